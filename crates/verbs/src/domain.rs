//! Domains: one device.

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::eq::EventQueue;
use ripstop_core::log::Subsys;
use ripstop_core::{Info, fi_warn};
use ripstop_ibverbs::{Context, DeviceAttr, Pd};
use ripstop_types::Result;

use crate::fabric::Fabric;
use crate::params::NAME;
use crate::regions::Regions;
use crate::ud::{self, Port};

/// A domain: a device with a protection domain.
pub struct Domain {
    pub(crate) fabric: Arc<Fabric>,
    pub(crate) context: Arc<Context>,
    pub(crate) attr: DeviceAttr,
    pub(crate) pd: Arc<Pd>,
    pub(crate) regions: Regions,
    /// What datagram endpoints have in common, of a domain for these; it has no others.
    pub(crate) port: Option<Port>,
    pub(crate) eq: Mutex<Option<Arc<EventQueue>>>,
}

impl std::fmt::Debug for Domain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Domain({:?})", self.context)
    }
}

impl Domain {
    pub(crate) fn open(fabric: &Arc<Fabric>, info: &Info) -> Result<Arc<Self>> {
        let context = Arc::clone(fabric.device(info)?);
        let pd = Pd::new(&context).inspect_err(|error| {
            let device = context.name();
            fi_warn!(
                NAME,
                Subsys::Domain,
                "device {device} has no protection domain left: {error}"
            );
        })?;
        let name = info.domain.name.as_deref().unwrap_or_default();
        let is_for_datagrams = name.ends_with(ud::SUFFIX);
        let port = is_for_datagrams.then(|| Port::open(&context, &pd, fabric.params.gid_idx));
        Ok(Arc::new(Self {
            port: port.transpose()?,
            fabric: Arc::clone(fabric),
            attr: context.attr()?,
            context,
            pd,
            regions: Regions::default(),
            eq: Mutex::new(None),
        }))
    }
}
