//! Choosing an interface.

use std::time::Duration;

use ripstop_core::hints::Request;
use ripstop_core::registry::registry;
use ripstop_core::{Address, DomainAttr, EpAttr, FabricAttr, Info, RxAttr, TxAttr};
use ripstop_types::{EpType, Flags, MrMode, MsgOrder, Progress as Driven, Threading, Version};

use crate::backend;
use crate::domain::Domain;
use crate::domain_attr::{Attr, Progress};
use crate::error::{Error, Result};
use crate::fabric::Fabric;

/// What a program needs of an interface, in the terms of `fi_getinfo(3)`.
///
/// Nothing is sent and no device is opened until [`open`](Self::open). Where several
/// interfaces fit, [`getinfo`](Self::getinfo) lists them, best first; `FI_PROVIDER` and the
/// other environment variables of libfabric apply.
///
/// ```
/// use ripstop::Hints;
///
/// let error = Hints::rdm().inject_size(1 << 30).open().unwrap_err();
/// // tcp: hints->tx_attr->inject_size: asked 1073741824, offered at most 128; ask for ...
/// assert!(error.to_string().contains("inject_size: asked 1073741824"));
/// assert_eq!(error.refusals().unwrap().refusals[0].0, "tcp");
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Hints {
    attributes: ripstop_core::Hints,
    node: Option<String>,
    service: Option<String>,
    attr: Attr,
}

impl Hints {
    /// Reliable endpoints that reach any number of peers without connecting (`FI_EP_RDM`),
    /// for messages and tagged messages, with the source of what is received.
    pub fn rdm() -> Self {
        Self::of(
            EpType::Rdm,
            Flags::MSG | Flags::TAGGED | Flags::SOURCE | Flags::SOURCE_ERR | Flags::DIRECTED_RECV,
        )
    }

    /// Connected endpoints (`FI_EP_MSG`), for messages and tagged messages.
    pub fn msg() -> Self {
        Self::of(EpType::Msg, Flags::MSG | Flags::TAGGED)
    }

    fn of(ep_type: EpType, caps: Flags) -> Self {
        Self {
            attributes: ripstop_core::Hints {
                caps,
                ep: Some(EpAttr {
                    ep_type,
                    ..EpAttr::default()
                }),
                // Progress is what this crate does; see `Progress`.
                domain: Some(DomainAttr {
                    threading: Threading::Safe,
                    progress: Driven::Manual,
                    control_progress: Driven::Manual,
                    // Regions know their address and ask for their key.
                    mr_mode: MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
                    ..DomainAttr::default()
                }),
                ..ripstop_core::Hints::default()
            },
            node: None,
            service: None,
            attr: Attr::default(),
        }
    }

    /// The provider, by name (`"tcp"`).
    pub fn provider(mut self, name: impl Into<String>) -> Self {
        self.fabric_attr().prov_name = Some(name.into());
        self
    }

    /// The domain, by name: for IP providers the network interface (`"eth0"`), over RDMA the device
    /// (`"mlx5_0"`).
    pub fn interface(mut self, name: impl Into<String>) -> Self {
        self.domain_attr().name = Some(name.into());
        self
    }

    /// Reads and writes of the memory of peers as well (`FI_RMA`); see
    /// [`Endpoint::write`](crate::Endpoint::write).
    pub fn rma(mut self) -> Self {
        self.attributes.caps |= Flags::RMA;
        self
    }

    /// Atomics on the memory of peers as well (`FI_ATOMIC`); see
    /// [`Endpoint::fetch_atomic`](crate::Endpoint::fetch_atomic).
    pub fn atomic(mut self) -> Self {
        self.attributes.caps |= Flags::ATOMIC;
        self
    }

    /// Capabilities instead of those of [`rdm`](Self::rdm) or [`msg`](Self::msg).
    pub fn caps(mut self, caps: Flags) -> Self {
        self.attributes.caps = caps;
        self
    }

    /// The local address of endpoints and listeners; port 0 for any.
    pub fn source(mut self, address: impl Into<Address>) -> Self {
        self.attributes.src_addr = Some(address.into());
        self
    }

    /// A peer by name: the interface chosen is one that reaches it, and `dest_addr` of the
    /// [`Info`] is its address. Names are resolved by [`getinfo`](Self::getinfo), which blocks
    /// meanwhile.
    pub fn peer(mut self, node: impl Into<String>, service: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self.service = Some(service.into());
        self
    }

    /// The least number of sends and receives an endpoint has room for. More can be posted at
    /// any time; they wait in the endpoint.
    pub fn sizes(mut self, tx: usize, rx: usize) -> Self {
        self.tx_attr().size = tx;
        self.rx_attr().size = rx;
        self
    }

    /// The least number of bytes that can be injected.
    pub fn inject_size(mut self, bytes: usize) -> Self {
        self.tx_attr().inject_size = bytes;
        self
    }

    /// The order that messages between two endpoints must keep; `MsgOrder::SAS` is the one
    /// that matters for messages.
    pub fn msg_order(mut self, order: MsgOrder) -> Self {
        self.tx_attr().msg_order = order;
        self.rx_attr().msg_order = order;
        self
    }

    /// Any other attribute.
    pub fn with(mut self, change: impl FnOnce(&mut ripstop_core::Hints)) -> Self {
        change(&mut self.attributes);
        self
    }

    /// Who makes progress in domains that [`open`](Self::open) opens.
    pub fn progress(mut self, progress: Progress) -> Self {
        self.attr.progress = progress;
        self
    }

    /// The longest that a wait in such a domain polls before it sleeps, in a call or in a task; see
    /// [`DomainBuilder::busy_poll`](crate::DomainBuilder::busy_poll).
    pub const fn busy_poll(mut self, time: Duration) -> Self {
        self.attr.busy_poll = time;
        self
    }

    /// How long a peer that such a domain is connected to may take before it answers; see
    /// [`DomainBuilder::answer_timeout`](crate::DomainBuilder::answer_timeout).
    pub const fn answer_timeout(mut self, time: Duration) -> Self {
        self.attr.answer_timeout = Some(time);
        self
    }

    /// The interfaces that fit, best first; at least one.
    ///
    /// # Errors
    /// `FI_ENODATA` when none fits: [`Error::refusals`] has for each provider the attribute,
    /// what was asked and what is offered.
    pub fn getinfo(&self) -> Result<Vec<Info>> {
        backend::register();
        let request = Request {
            version: Version::CURRENT,
            node: self.node.as_deref(),
            service: self.service.as_deref(),
            hints: Some(&self.attributes),
            ..Request::default()
        };
        registry().getinfo(&request).map_err(Error::no_info)
    }

    /// Opens a domain on the interface that fits best.
    ///
    /// # Errors
    /// As for [`getinfo`](Self::getinfo), and of opening fabric and domain.
    pub fn open(&self) -> Result<Domain> {
        let info = self.getinfo()?.swap_remove(0);
        Fabric::open(&info)?.domain(&info).attr(self.attr).open()
    }

    fn fabric_attr(&mut self) -> &mut FabricAttr {
        self.attributes.fabric.get_or_insert_default()
    }

    fn domain_attr(&mut self) -> &mut DomainAttr {
        self.attributes.domain.get_or_insert_default()
    }

    fn tx_attr(&mut self) -> &mut TxAttr {
        self.attributes.tx.get_or_insert_default()
    }

    fn rx_attr(&mut self) -> &mut RxAttr {
        self.attributes.rx.get_or_insert_default()
    }
}
