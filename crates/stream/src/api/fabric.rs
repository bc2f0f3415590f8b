//! Fabrics.

use std::sync::Arc;

use ripstop_core::lock::{Serial, Shared};
use ripstop_core::provider::{self, Token};
use ripstop_core::{FabricAttr, Info};
use ripstop_types::{Errno, Result};

use crate::api::domain::Domain;
use crate::api::passive::PassiveEp;
use crate::transport::Transport;
use crate::tunables::Tunables;

/// A fabric: what its transport reaches.
#[derive(Debug)]
pub struct Fabric<T: Transport> {
    attr: FabricAttr,
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

impl<T: Transport> provider::Fabric for Fabric<T> {
    type SafeDomain = Domain<T, Shared>;
    type SerialDomain = Domain<T, Serial>;
    type PassiveEp = PassiveEp<T>;

    fn attr(&self) -> &FabricAttr {
        &self.attr
    }

    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Shared>>> {
        Domain::open(self, info)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Serial>>> {
        if <Self as provider::Fabric>::needs_lock(info) {
            return Err(Errno::EINVAL);
        }
        Domain::open(self, info)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp<T>>> {
        PassiveEp::open(self, info, token)
    }
}
