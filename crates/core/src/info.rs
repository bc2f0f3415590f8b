//! What a provider offers, and what a caller asks for (`struct fi_info`).

use core::any::Any;
use core::fmt;
use std::sync::Arc;

use ripstop_types::{AddrFormat, Flags, Mode};

use crate::address::Address;
use crate::attr::{DomainAttr, EpAttr, FabricAttr, RxAttr, TxAttr};
use crate::nic::Nic;

/// A provider's object carried through [`Info`], such as a connection request
/// (`fi_info::handle`). Two handles are equal when they are the same object.
#[derive(Clone)]
pub struct Handle(pub Arc<dyn Any + Send + Sync>);

impl Handle {
    /// Wraps a provider's object.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(object: T) -> Self {
        Self(Arc::new(object))
    }

    /// The object, if it is a `T`.
    #[must_use]
    pub fn downcast<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl PartialEq for Handle {
    fn eq(&self, other: &Self) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.0), Arc::as_ptr(&other.0))
    }
}

impl Eq for Handle {}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Handle({:p})", Arc::as_ptr(&self.0))
    }
}

/// One communication interface a provider offers (`struct fi_info`, man page
/// `fi_getinfo(3)`). The C list is a `Vec<Info>` here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Info {
    /// Capabilities of the interface.
    pub caps: Flags,
    /// What the application must promise.
    pub mode: Mode,
    /// Format of the addresses below and of those in address vectors.
    pub addr_format: AddrFormat,
    /// Local address.
    pub src_addr: Option<Address>,
    /// Address of the peer.
    pub dest_addr: Option<Address>,
    /// Connection request (or other object) that an endpoint is opened from.
    pub handle: Option<Handle>,
    /// Transmit attributes.
    pub tx: TxAttr,
    /// Receive attributes.
    pub rx: RxAttr,
    /// Endpoint attributes.
    pub ep: EpAttr,
    /// Domain attributes.
    pub domain: DomainAttr,
    /// Fabric attributes.
    pub fabric: FabricAttr,
    /// The network card, where known.
    pub nic: Option<Arc<Nic>>,
}

impl Info {
    /// Who a provider is and nothing else, as `FI_PROV_ATTR_ONLY` asks.
    pub(crate) fn of_provider(prov_name: Option<String>, prov_version: u32) -> Self {
        let mut info = Self::default();
        (info.fabric.prov_name, info.fabric.prov_version) = (prov_name, prov_version);
        info
    }

    /// Name of the provider; empty while it is not set.
    #[must_use]
    pub fn prov_name(&self) -> &str {
        self.fabric.prov_name.as_deref().unwrap_or_default()
    }
}

/// What a caller asks `fi_getinfo` for: an [`Info`] whose attribute groups may be absent.
/// Inside a group zero, empty, `Unspec` and `None` mean no preference; `caps` zero means any.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hints {
    /// Capabilities the caller needs; empty for whatever there is.
    pub caps: Flags,
    /// Promises the caller can keep.
    pub mode: Mode,
    /// Address format the caller wants.
    pub addr_format: AddrFormat,
    /// Local address to use.
    pub src_addr: Option<Address>,
    /// Peer to reach.
    pub dest_addr: Option<Address>,
    /// Connection request, passed through to the answer.
    pub handle: Option<Handle>,
    /// Transmit attributes.
    pub tx: Option<TxAttr>,
    /// Receive attributes.
    pub rx: Option<RxAttr>,
    /// Endpoint attributes.
    pub ep: Option<EpAttr>,
    /// Domain attributes.
    pub domain: Option<DomainAttr>,
    /// Fabric attributes.
    pub fabric: Option<FabricAttr>,
}

impl From<Info> for Hints {
    /// Asks for exactly what an earlier answer offered.
    fn from(info: Info) -> Self {
        Self {
            caps: info.caps,
            mode: info.mode,
            addr_format: info.addr_format,
            src_addr: info.src_addr,
            dest_addr: info.dest_addr,
            handle: info.handle,
            tx: Some(info.tx),
            rx: Some(info.rx),
            ep: Some(info.ep),
            domain: Some(info.domain),
            fabric: Some(info.fabric),
        }
    }
}
