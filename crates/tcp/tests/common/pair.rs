//! Two RDM endpoints that know each other.

use std::sync::Arc;

use ripstop_core::provider::{AddressVector, AvAttr, CqAttr, Domain, Endpoint};
use ripstop_core::{FidToken, Info};
use ripstop_types::{FiAddr, Flags, WaitObj};

/// An endpoint, and what it goes by.
pub(crate) struct End<D: Domain> {
    pub(crate) ep: Arc<D::Endpoint>,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) av: Arc<D::Av>,
    pub(crate) peer: FiAddr,
}

/// An endpoint that knows nobody; `bind` is what else is bound before it is enabled.
pub(crate) fn open_with<D: Domain>(
    domain: &Arc<D>,
    info: &Info,
    bind: impl FnOnce(&D::Endpoint),
) -> End<D> {
    let cq = domain
        .cq(&CqAttr {
            wait: WaitObj::Unspec,
            ..CqAttr::default()
        })
        .unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(info, FidToken(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    bind(&ep);
    ep.enable().unwrap();
    End {
        ep,
        cq,
        av,
        peer: FiAddr::UNSPEC,
    }
}

impl<D: Domain> End<D> {
    /// Each gets to know the other.
    pub(crate) fn meet(&mut self, other: &mut Self) {
        self.peer = self.av.insert(&other.ep.name().unwrap()).unwrap();
        other.peer = other.av.insert(&self.ep.name().unwrap()).unwrap();
    }
}
