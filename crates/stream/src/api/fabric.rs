//! Fabrics.

use std::sync::Arc;

use ripstop_core::FabricAttr;

use crate::transport::Transport;
use crate::tunables::Tunables;

/// A fabric: what its transport reaches.
#[derive(Debug)]
pub struct Fabric<T: Transport> {
    pub(crate) attr: FabricAttr,
    pub(crate) params: Arc<T::Params>,
}

impl<T: Transport> Fabric<T> {
    /// A fabric with these attributes, in a provider with these parameters.
    #[must_use]
    pub const fn new(attr: FabricAttr, params: Arc<T::Params>) -> Self {
        Self { attr, params }
    }

    /// The parameters that all transports have.
    pub(crate) fn tunables(&self) -> &Tunables {
        AsRef::as_ref(&*self.params)
    }
}
