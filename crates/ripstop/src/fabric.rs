//! Fabrics, and how a domain is opened.

use std::sync::Arc;

use ripstop_core::{FabricAttr, Info};

use crate::backend::AnyFabric;
use crate::error::{Error, Operation, Result};

/// A fabric: the network that domains of one provider share (man page `fi_fabric(3)`).
///
/// A cheap handle; clones are the same fabric. It closes with its last handle and domain.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Open>);

#[derive(Debug)]
struct Open {
    object: AnyFabric,
    attr: FabricAttr,
}

impl Fabric {
    /// Opens the fabric of an interface that [`Hints::getinfo`](crate::Hints::getinfo) gave.
    ///
    /// # Errors
    /// `FI_ENODATA` when the provider it names is not built in.
    pub fn open(info: &Info) -> Result<Self> {
        let failed = |errno| Error::new(errno, Operation::OpenFabric);
        let object = AnyFabric::open(info).map_err(failed)?;
        Ok(Self(Arc::new(Open {
            object,
            attr: info.fabric.clone(),
        })))
    }

    /// The attributes it was opened with.
    #[must_use]
    pub fn attr(&self) -> &FabricAttr {
        &self.0.attr
    }

    pub(crate) fn object(&self) -> &AnyFabric {
        &self.0.object
    }
}
