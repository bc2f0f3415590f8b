//! Fabrics.

use std::sync::Arc;

use ripstop_core::log::Subsys;
use ripstop_core::{FabricAttr, Info, fi_warn};
use ripstop_ibverbs::{Context, devices};
use ripstop_types::{Errno, Result};

use crate::cm::Cm;
use crate::params::{NAME, Params};
use crate::ud;

/// A fabric: what the devices of one subnet reach.
#[derive(Debug)]
pub struct Fabric {
    pub(crate) attr: FabricAttr,
    pub(crate) params: Arc<Params>,
    pub(crate) cm: Arc<Cm>,
}

impl Fabric {
    pub(crate) fn open(attr: &FabricAttr, params: &Arc<Params>) -> Result<Arc<Self>> {
        if devices()?.is_empty() {
            fi_warn!(NAME, Subsys::Fabric, "there is no RDMA device any more");
            return Err(Errno::ENODATA);
        }
        Ok(Arc::new(Self {
            attr: attr.clone(),
            params: Arc::clone(params),
            cm: Cm::new()?,
        }))
    }

    /// The device that a domain's name is of. Only domains have devices open, so that those which nobody uses can be
    /// removed.
    pub(crate) fn device(info: &Info) -> Result<Arc<Context>> {
        let name = info.domain.name.as_deref().unwrap_or_default();
        let wanted = name.strip_suffix(ud::SUFFIX).unwrap_or(name);
        let found = devices()?
            .into_iter()
            .find(|device| device.name() == wanted);
        found.ok_or_else(|| {
            fi_warn!(
                NAME,
                Subsys::Domain,
                "there is no RDMA device {name}; take the name of the domain from fi_getinfo"
            );
            Errno::EINVAL
        })
    }
}
