//! The object model as traits: what a provider implements, and what the C ABI and the Rust
//! API are written against.
//!
//! Associated types lead from a [`Provider`] to its endpoints, so that a caller's send lands
//! in the provider's own code without a table look-up. Objects are `Arc`s: an object holds
//! what it is bound to, and the last owner's drop closes it. Whoever offers `fi_close` must
//! refuse with [`Errno::EBUSY`] while others still hold the object
//! (`Arc::strong_count(..) > 1`).
//!
//! # Buffers
//!
//! A buffer is a [`UserBuf`], which a provider uses until the operation is over and not a moment
//! longer. Unsafe code relies on that: the C functions, which make a `UserBuf` on the word of a C
//! program that waits for the completion, and whoever frees a parked buffer
//! ([`Parked::unpark`](ripstop_mem::Parked::unpark)). So an implementation of these traits that uses a
//! buffer later is unsound, although it has no `unsafe` itself. An operation is over, and its buffers
//! are forgotten *before* this becomes visible, when
//!
//! - its last completion or error entry is in a queue, or is returned by a read of it; for a receive
//!   with `FI_MULTI_RECV` that is the entry with this flag, or an error;
//! - it has no entry, and the counter bound for it has counted it;
//! - the call that would have begun it returns an error;
//! - the call returns, of those that copy: `inject` and whatever has [`Flags::INJECT`] (results are
//!   written later all the same);
//! - its endpoint is closed: the last owner has dropped it;
//! - for registered memory: [`MemoryRegion::try_close`] has returned `true`, or the last owner has
//!   dropped the region. A peer that has mapped memory that is shared may go on to write there.
//!
//! A peer process that was stopped just before a system call that writes to a buffer makes that call when it goes on, however late.
//! A provider does not wait for ever: it may end the operation or the region all the same, if it has
//! [noted](ripstop_os::abandon) before that the memory is abandoned. Owners ask
//! ([`is_abandoned`](ripstop_os::is_abandoned)) and leak such memory; a C program can only be told by the log.

#[cfg(doc)]
use ripstop_mem::UserBuf;
use std::sync::Arc;
use std::time::Duration;

use ripstop_os::Dmabuf;
use ripstop_types::{
    AtomicKind, AtomicOp, AvType, Collective, Datatype, EpType, Errno, FiAddr, Flags, Progress,
    Result, Threading,
};

use crate::eq::EventQueue;
use crate::registry::ProviderInfo;
use crate::{Address, FabricAttr, Info, RxAttr, TxAttr};

mod scalable;

pub use scalable::{RxContext, ScalableEp, TxContext};

mod collective;
pub use collective::{CollCall, CollLimit, Group, JoinCall};

mod attr;
pub use attr::{AvAttr, CounterAttr, CqAttr, MrAttr, Sharing};

mod calls;
pub use calls::{AtomicCall, Direction, EpOption, RecvKind, RmaCall, SendKind};

mod copies;
pub use copies::{Copied, Copies};

mod counter;
pub use counter::Counter;

mod endpoint;
pub use endpoint::Endpoint;

mod queue;
pub use queue::CompletionQueue;

mod receive;
pub use receive::{Arrival, Done, PeerRx, SharedRx};

mod same_domain;
pub use same_domain::same_domain;

mod triggered;
pub use triggered::{DataCall, Threshold, Work, WorkOp};

/// What identifies an object in events: the C layer puts the `fid` pointer here, the Rust API
/// an id of its own. Never interpreted by a provider.
pub use crate::token::FidToken as Token;

/// A provider: finds fabrics ([`ProviderInfo`]) and opens them (man page `fi_provider(7)`).
pub trait Provider: ProviderInfo {
    /// The fabrics it opens.
    type Fabric: Fabric;

    /// Opens a fabric (`fi_fabric(3)`).
    ///
    /// # Errors
    /// [`Errno::ENODATA`] for a fabric this provider does not know.
    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Self::Fabric>>;
}

/// A fabric domain's parent (man page `fi_fabric(3)`).
pub trait Fabric: Send + Sync + 'static {
    /// Domains that may be called from any thread at any time.
    type SafeDomain: Domain;
    /// Domains whose calls the application serialises (`FI_THREAD_DOMAIN`, manual progress).
    type SerialDomain: Domain;
    /// Listening endpoints.
    type PassiveEp: PassiveEp;

    /// The attributes it was opened with.
    fn attr(&self) -> &FabricAttr;

    /// Opens a domain that locks. Use unless [`Fabric::needs_lock`] says otherwise.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] if `info` was not made by this provider's `getinfo`; resource errors.
    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Self::SafeDomain>>;

    /// Opens a domain without locks; for `FI_THREAD_DOMAIN` with manual progress only.
    ///
    /// # Errors
    /// As for [`Fabric::safe_domain`].
    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Self::SerialDomain>>;

    /// Opens a passive endpoint (`fi_passive_ep(3)`); `token` names it in events.
    ///
    /// # Errors
    /// Of `socket` and `bind`, when `info` carries a source address.
    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Self::PassiveEp>>;

    /// Whether a domain opened with these attributes must lock: every threading level but
    /// domain, any automatic progress, and endpoints with events: connected ones and those with
    /// collectives (an event queue belongs to the fabric, not the domain).
    fn needs_lock(info: &Info) -> bool
    where
        Self: Sized,
    {
        let manual = |p| matches!(p, Progress::Manual | Progress::ControlUnified);
        info.domain.threading != Threading::Domain
            || !manual(info.domain.progress)
            || !manual(info.domain.control_progress)
            || info.ep.ep_type != EpType::Rdm
            // Whether a group is joined is told by an event.
            || info.caps.contains(Flags::COLLECTIVE)
    }
}

/// A listening endpoint (man page `fi_endpoint(3)`, passive endpoints; `fi_cm(3)`).
pub trait PassiveEp: Send + Sync + 'static {
    /// Binds the queue that gets connection requests.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when one is bound already.
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()>;

    /// Starts to listen; requests arrive as `FI_CONNREQ` events whose `info.handle` is given
    /// to [`Domain::endpoint`] or [`PassiveEp::reject`].
    ///
    /// # Errors
    /// [`Errno::ENOEQ`] without a queue; of `bind` and `listen`.
    fn listen(&self) -> Result<()>;

    /// The address peers connect to.
    ///
    /// # Errors
    /// [`Errno::EOPBADSTATE`] before an address is bound.
    fn name(&self) -> Result<Address>;

    /// Binds another local address, before listening.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a format the provider does not use; of `bind`.
    fn set_name(&self, address: &Address) -> Result<()>;

    /// Sets the length of the queue of pending connections.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when listening already.
    fn set_backlog(&self, backlog: u32) -> Result<()>;

    /// Most bytes of connection data (`FI_OPT_CM_DATA_SIZE`).
    fn cm_data_size(&self) -> usize {
        256
    }

    /// Refuses a connection request, with up to [`PassiveEp::cm_data_size`] bytes for the peer.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for too much data or a handle that is not a request.
    fn reject(&self, info: &Info, data: &[u8]) -> Result<()>;
}

/// A resource domain (man page `fi_domain(3)`).
pub trait Domain: Sized + 'static {
    /// Its active endpoints.
    type Endpoint: Endpoint<Domain = Self>;
    /// Its scalable endpoints.
    type ScalableEp: ScalableEp<Domain = Self>;
    /// Its shared receive contexts.
    type SharedRx: SharedRx<Domain = Self>;
    /// Receive contexts whose receives another provider has.
    type PeerRx: PeerRx<Domain = Self>;
    /// Its shared transmit contexts. Operations are posted to the endpoints that share one, so
    /// it is only opened, bound and closed.
    type SharedTx: 'static;
    /// Its completion queues.
    type Cq: CompletionQueue;
    /// Its counters.
    type Counter: Counter;
    /// Its address vectors.
    type Av: AddressVector;
    /// Its memory regions.
    type Mr: MemoryRegion<Domain = Self>;
    /// The collective groups of its endpoints.
    type Group: Group;

    /// Opens an endpoint; `info.handle` of a connection request makes it the accepting side.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for attributes `getinfo` did not offer; resource errors.
    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Self::Endpoint>>;

    /// Opens a scalable endpoint (`fi_scalable_ep(3)`) with as many contexts as `info.ep` says.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for attributes `getinfo` did not offer; [`Errno::ENOSYS`] where the
    /// endpoint type has none; resource errors.
    fn scalable_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Self::ScalableEp>>;

    /// Opens a shared receive context (`fi_srx_context(3)`).
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] where the endpoint type has none.
    fn shared_rx(self: &Arc<Self>, attr: &RxAttr) -> Result<Arc<Self::SharedRx>>;

    /// Opens a receive context whose receives another provider has (`fi_peer(3)`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] where there are none: the domain's interface must have
    /// [`Flags::PEER`](ripstop_types::Flags::PEER). Resource errors.
    fn peer_rx(self: &Arc<Self>) -> Result<Arc<Self::PeerRx>>;

    /// Opens a shared transmit context (`fi_stx_context(3)`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for attributes beyond those the domain offers; [`Errno::ENOSYS`] where
    /// the endpoint type has none.
    fn shared_tx(self: &Arc<Self>, attr: &TxAttr) -> Result<Arc<Self::SharedTx>>;

    /// Opens a completion queue (`fi_cq_open(3)`).
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] for a wait object the provider lacks; [`Errno::ENOMEM`].
    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Self::Cq>>;

    /// Opens a counter (`fi_cntr_open(3)`).
    ///
    /// # Errors
    /// As for [`Domain::cq`].
    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Self::Counter>>;

    /// Opens an address vector (`fi_av_open(3)`).
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] for attributes the provider lacks; [`Errno::ENOMEM`].
    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Self::Av>>;

    /// Registers memory (`fi_mr_reg(3)`).
    ///
    /// # Errors
    /// [`Errno::ENOKEY`] for a key in use; [`Errno::EINVAL`].
    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Self::Mr>>;

    /// Whether [`Domain::mr_dmabuf`] may succeed.
    const REGISTERS_DMABUFS: bool = false;

    /// Registers memory of a dma-buf (`FI_MR_DMABUF`, `fi_mr(3)`); `attr.iov` has no pieces. The descriptor
    /// can be closed afterwards. Called only where [`Domain::REGISTERS_DMABUFS`].
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] where the provider or its device does not do that; as for [`Domain::mr`].
    fn mr_dmabuf(self: &Arc<Self>, _dmabuf: &Dmabuf<'_>, _attr: &MrAttr) -> Result<Arc<Self::Mr>> {
        Err(Errno::ENOSYS)
    }

    /// The most elements of one atomic (`fi_query_atomic(3)`, `fi_atomicvalid(3)`).
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for what the provider does not do.
    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize>;

    /// Queues work that starts when a counter reaches a threshold (`FI_QUEUE_WORK`,
    /// `fi_trigger(3)`); at once if it has. Everything but the payload is copied. What is wrong
    /// with it and found only when it starts is counted as an error.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for arguments no call takes; [`Errno::EDOMAIN`] for objects of another domain;
    /// [`Errno::ENOSYS`] for receives that are more than one message into one buffer;
    /// [`Errno::EOPNOTSUPP`] for an endpoint without [`Flags::TRIGGER`];
    /// [`Errno::EAGAIN`] when too much waits; [`Errno::ENOMEM`].
    fn queue_work(self: &Arc<Self>, work: &Work<'_, Self>) -> Result<()>;

    /// Takes back all work of this name that has not started (`FI_CANCEL_WORK`).
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when there is none.
    fn cancel_work(&self, token: Token) -> Result<()>;

    /// Takes back all work that has not started, or all that waits for one counter
    /// (`FI_FLUSH_WORK`).
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`] for a counter of another domain.
    fn flush_work(self: &Arc<Self>, counter: Option<&Arc<Self::Counter>>) -> Result<()>;

    /// The limits of a collective operation (`fi_query_collective(3)`). `datatype` is `None` for
    /// one without elements, `op` for one that reduces nothing.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for what the provider does not do.
    fn collective_limit(
        &self,
        coll: Collective,
        datatype: Option<Datatype>,
        op: Option<AtomicOp>,
    ) -> Result<CollLimit>;

    /// How long a process that is connected may take before it begins its part of the handshake, on
    /// connections that are made from now on; until it is called, what the provider's parameters
    /// say. A provider without such a time ignores it.
    fn set_answer_timeout(&self, time: Duration) {
        let _ = time;
    }

    /// As [`Domain::set_answer_timeout`], unless the user has set the provider's parameter.
    fn set_default_answer_timeout(&self, time: Duration) {
        let _ = time;
    }

    /// The ways that long payloads of the domain have taken, of a provider that has more than one.
    fn copies(&self) -> Option<Copies> {
        None
    }

    /// Binds the event queue for asynchronous events of the domain (`fi_domain_bind(3)`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when one is bound already.
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()>;
}

/// An address vector (man page `fi_av(3)`).
pub trait AddressVector: 'static {
    /// Map or table, as it was opened.
    fn av_type(&self) -> AvType;

    /// Inserts one address.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a format the provider does not use; [`Errno::ENOMEM`].
    fn insert(&self, address: &Address) -> Result<FiAddr>;

    /// Inserts one address that completions report as `id` (`FI_AV_USER_ID` of an insertion).
    ///
    /// # Errors
    /// As for [`AddressVector::insert`]; [`Errno::EBADFLAGS`] where the provider has no ids,
    /// [`Errno::EINVAL`] when the address vector was opened with `FI_AV_USER_ID`.
    fn insert_as(&self, _address: &Address, _id: FiAddr) -> Result<FiAddr> {
        Err(Errno::EBADFLAGS)
    }

    /// Gives a peer the id that completions report (`fi_av_set_user_id`).
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address it does not hold, or when it was opened without
    /// `FI_AV_USER_ID`; [`Errno::ENOMEM`]; [`Errno::ENOSYS`] where the provider has no ids.
    fn set_user_id(&self, _addr: FiAddr, _id: FiAddr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Says of a peer that it is behind a firewall (`FI_FIREWALL_ADDR` of an insertion): what is sent to
    /// it while there is no connection that it made fails with [`Errno::EFIREWALLADDR`]. Nothing, where
    /// the provider has no network between peers.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address it does not hold.
    fn set_firewalled(&self, _addr: FiAddr) -> Result<()> {
        Ok(())
    }

    /// Inserts many IP addresses under one lock; `each` gets the outcome of each.
    fn insert_ip(
        &self,
        addresses: &mut dyn Iterator<Item = core::result::Result<std::net::SocketAddr, Errno>>,
        each: &mut dyn FnMut(Result<FiAddr>),
    );

    /// Removes an address; connections to it are closed.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address it does not hold.
    fn remove(&self, addr: FiAddr) -> Result<()>;

    /// The address behind a handle.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a handle it does not hold.
    fn lookup(&self, addr: FiAddr) -> Result<Address>;

    /// Binds the queue for asynchronous insertions.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when one is bound already.
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()>;

    /// All addresses it holds, in ascending order.
    fn addresses(&self) -> Vec<FiAddr>;

    /// The fabric addresses of a shared address vector by order of insertion, which
    /// `fi_av_attr::map_addr` leads to. Empty for one that is not shared.
    fn map(&self) -> &[u64] {
        &[]
    }

    /// The bound event queue, if insertions report to it.
    fn event_queue(&self) -> Option<Arc<EventQueue>>;
}

/// A memory region (man page `fi_mr(3)`). While it is open, peers that know its key may read
/// and write its memory as it was registered for. The last owner's drop waits for operations
/// that are under way there, at most a second, and ends those that take longer.
pub trait MemoryRegion: Sized + 'static {
    /// The domain it belongs to.
    type Domain: Domain<Mr = Self>;

    /// The protection key peers use.
    fn key(&self) -> u64;

    /// Counts what peers do to the memory; `flags` is `REMOTE_WRITE` (`fi_mr_bind`).
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`] for other flags, [`Errno::EDOMAIN`] for a counter of another
    /// domain, [`Errno::EINVAL`] when one is bound already.
    fn bind_counter(
        &self,
        counter: &Arc<<Self::Domain as Domain>::Counter>,
        flags: Flags,
    ) -> Result<()>;

    /// Other memory may be at the region's addresses now (`fi_mr_refresh`). Where a region is no
    /// more than addresses, there is nothing to do.
    fn refresh(&self) {}

    /// Ends the registration if no peer is at work in the memory, or with `evict` in any case: what
    /// a peer has begun there is refused then. Returns whether it has ended, so that the memory is
    /// the owner's again; afterwards nothing may be called but this. Never waits, where dropping a
    /// region that has not ended does.
    fn try_close(&self, evict: bool) -> bool;
}
