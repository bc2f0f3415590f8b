//! What the objects can do (man page `fi_getinfo(3)`).

use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, TxAttr};
use ripstop_engine::IOV_LIMIT;
use ripstop_engine::mr::PIECES;
use ripstop_types::{
    AddrFormat, EpType, Flags, Mode, MrMode, MsgOrder, Progress, Protocol, ResourceMgmt, Threading,
    Version, flags, tclass,
};
use ripstop_wire::xnet::rdm::CONTEXTS;

use crate::addr::Addr as _;
use crate::transport::Transport;
use crate::tunables::Tunables;

/// Most transmit contexts, and most receive contexts, of one endpoint.
pub(crate) const MAX_CONTEXTS: usize = CONTEXTS as usize;

const TX_OPS: Flags =
    flags![INJECT COMMIT_COMPLETE INJECT_COMPLETE TRANSMIT_COMPLETE DELIVERY_COMPLETE COMPLETION];

/// Operations of plain endpoints, but for tagged messages.
pub const OPS: Flags = flags![MSG RMA RMA_PMEM ATOMIC TRIGGER];

/// What a transmit context starts.
const STARTS: Flags = flags![SEND READ WRITE FENCE];

/// What peers do through a receive context.
const SERVES: Flags = flags![REMOTE_READ REMOTE_WRITE RMA_EVENT];

/// Capabilities of a receive context that endpoints share, or that belongs to RDM.
pub const MATCHED_RX: Flags = SERVES.union(flags![RECV MULTI_RECV]);

/// Capabilities of the domain of reliable datagram endpoints, but for where their peers may be.
pub const RDM_DOMAIN: Flags = flags![SHARED_AV AV_USER_ID PEER];

/// What only endpoints with an address vector know.
pub const SOURCES: Flags = flags![DIRECTED_RECV SOURCE SOURCE_ERR];

/// Operations are carried out in the order of the stream, except that a read fetches its data
/// some time before its response leaves: a write behind it may come first. What an atomic fetches
/// is copied when it is carried out.
const ORDER: MsgOrder = MsgOrder::RAR
    .union(MsgOrder::RMA_RAR)
    .union(MsgOrder::ATOMIC_RAR)
    .union(MsgOrder::RAW)
    .union(MsgOrder::RMA_RAW)
    .union(MsgOrder::ATOMIC_RAW)
    .union(MsgOrder::ATOMIC_WAR)
    .union(MsgOrder::WAW)
    .union(MsgOrder::RMA_WAW)
    .union(MsgOrder::ATOMIC_WAW)
    .union(MsgOrder::RAS)
    .union(MsgOrder::WAS)
    .union(MsgOrder::SAW)
    .union(MsgOrder::SAS);

/// Orders of what follows a read. The stream keeps them as little as it keeps those of [`ORDER`] that
/// it lacks; where a transport has them ([`Transport::AFTER_READS`]), an endpoint that asked for one holds back writes,
/// atomics and messages to a peer until the peer has answered all reads before them. The answer holds what
/// was read, so nothing that follows changes it, whatever the length.
pub(crate) const AFTER_READS: MsgOrder =
    MsgOrder::WAR.union(MsgOrder::RMA_WAR).union(MsgOrder::SAR);

/// What tells one kind of endpoint from another.
#[derive(Clone, Copy, Debug)]
pub struct Offer {
    /// The type of its endpoints.
    pub ep_type: EpType,
    /// How they are named.
    pub addr_format: AddrFormat,
    /// What they speak.
    pub protocol: Protocol,
    /// The version of that.
    pub protocol_version: u32,
    /// Capabilities of the domain.
    pub domain_caps: Flags,
    /// Capabilities of transmit and receive contexts alike.
    pub ops: Flags,
    /// Capabilities of receive contexts.
    pub rx_caps: Flags,
    /// Receive contexts of an endpoint, or [`SHARED_CONTEXT`](ripstop_core::SHARED_CONTEXT).
    pub rx_ctx_cnt: usize,
}

/// What domains have, of RDM endpoints or of MSG ones.
fn domain_attr<T: Transport>(rdm: bool, caps: Flags) -> DomainAttr {
    let most_endpoints = if rdm { 256 } else { 8192 };
    let most_contexts = if rdm { MAX_CONTEXTS } else { 1 };
    DomainAttr {
        name: Some(T::NAME.into()),
        threading: Threading::Safe,
        control_progress: Progress::Auto,
        progress: Progress::Auto,
        resource_mgmt: ResourceMgmt::Enabled,
        mr_mode: MrMode::BASIC | MrMode::SCALABLE,
        mr_key_size: size_of::<u64>(),
        cq_data_size: size_of::<u64>(),
        cq_cnt: 256,
        ep_cnt: most_endpoints,
        tx_ctx_cnt: most_endpoints,
        rx_ctx_cnt: most_endpoints,
        max_ep_srx_ctx: 8192,
        max_ep_stx_ctx: 8192,
        max_ep_tx_ctx: most_contexts,
        max_ep_rx_ctx: most_contexts,
        cntr_cnt: 8192,
        mr_iov_limit: PIECES,
        caps,
        tclass: tclass::BEST_EFFORT,
        max_err_data: T::Addr::LEN,
        max_cntr_value: u64::MAX,
        max_err_cntr_value: u64::MAX,
        ..DomainAttr::default()
    }
}

/// An offer: what the objects of this crate can do, with the endpoints of one kind.
#[must_use]
pub fn offer<T: Transport>(tunables: &Tunables, kind: &Offer) -> Info {
    let Offer {
        ep_type,
        domain_caps,
        ops,
        rx_caps,
        ..
    } = *kind;
    let rdm = ep_type == EpType::Rdm;
    let named = match rdm {
        true => Flags::NAMED_RX_CTX,
        false => Flags::empty(),
    };
    let (order, max_order_war_size) = match T::AFTER_READS {
        true => (ORDER | AFTER_READS, usize::MAX),
        false => (ORDER, 0),
    };
    let (max_tx, max_rx) = (65536.max(tunables.tx_size), 65536.max(tunables.rx_size));
    Info {
        caps: domain_caps | ops | STARTS | rx_caps | named,
        mode: Mode::empty(),
        addr_format: kind.addr_format,
        tx: TxAttr {
            caps: ops | STARTS | named,
            op_flags: TX_OPS,
            msg_order: order,
            inject_size: tunables.max_inject,
            size: max_tx,
            iov_limit: IOV_LIMIT,
            rma_iov_limit: IOV_LIMIT,
            tclass: tclass::BEST_EFFORT,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: ops | rx_caps,
            op_flags: Flags::COMPLETION | Flags::MULTI_RECV,
            msg_order: order,
            size: max_rx,
            iov_limit: IOV_LIMIT,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type,
            protocol: kind.protocol,
            protocol_version: kind.protocol_version,
            max_msg_size: usize::MAX >> 1,
            max_order_raw_size: usize::MAX,
            max_order_war_size,
            max_order_waw_size: usize::MAX,
            mem_tag_format: 0xAAAA_AAAA_AAAA_AAAA,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: kind.rx_ctx_cnt,
            ..EpAttr::default()
        },
        domain: domain_attr::<T>(rdm, domain_caps),
        fabric: FabricAttr {
            name: Some(T::NAME.into()),
            prov_name: Some(T::NAME.into()),
            prov_version: provider_version().0,
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

/// What is offered over any transport with messages in packets: endpoints of one context, with these operations, and these
/// capabilities of their receive contexts. That context may be named (`FI_NAMED_RX_CTX`): a program that asks for all that the first
/// offer of another provider has, as Intel MPI does, finds this one too.
#[must_use]
pub fn packet_offer<T: Transport>(tunables: &Tunables, ops: Flags, rx_caps: Flags) -> Info {
    let caps = Flags::LOCAL_COMM | Flags::REMOTE_COMM | Flags::SHARED_AV | Flags::AV_USER_ID;
    let mut info = offer::<T>(
        tunables,
        &Offer {
            ep_type: EpType::Rdm,
            addr_format: AddrFormat::SockaddrIp,
            protocol: Protocol::Rxm,
            protocol_version: 1,
            domain_caps: caps,
            ops: ops | Flags::COLLECTIVE,
            rx_caps: rx_caps | SOURCES,
            rx_ctx_cnt: 1,
        },
    );
    (info.domain.max_ep_tx_ctx, info.domain.max_ep_rx_ctx) = (1, 1);
    info
}

/// The most that an endpoint of any kind can be opened with. The sizes of contexts are hints.
pub(crate) fn widest_offer<T: Transport>(tunables: &Tunables) -> Info {
    let mut widest = offer::<T>(
        tunables,
        &Offer {
            ep_type: EpType::Rdm,
            addr_format: AddrFormat::Unspec,
            protocol: Protocol::Unspec,
            protocol_version: 0,
            domain_caps: RDM_DOMAIN | Flags::LOCAL_COMM | Flags::REMOTE_COMM,
            ops: OPS | Flags::TAGGED | Flags::COLLECTIVE,
            rx_caps: MATCHED_RX | SOURCES,
            rx_ctx_cnt: 1,
        },
    );
    (widest.tx.size, widest.rx.size) = (usize::MAX, usize::MAX);
    widest
}

/// The provider's version, derived from that of the interface as the C library does for its
/// own providers.
#[must_use]
pub const fn provider_version() -> Version {
    let minor = Version::CURRENT.minor();
    Version::new((Version::CURRENT.major() * 100 + minor) as u16, 0)
}

/// Whether a caller asks for what lets other providers use an interface (`FI_PEER`).
pub fn asks_peer(hints: Option<&Hints>) -> bool {
    hints.is_some_and(|hints| hints.caps.contains(Flags::PEER))
}

/// Whether a caller asks for an order of what follows a read, or for its size.
fn asks_after_reads(hints: &Hints) -> bool {
    let tx = hints.tx.as_ref().map(|tx| tx.msg_order);
    let rx = hints.rx.as_ref().map(|rx| rx.msg_order);
    let size = hints.ep.as_ref().map(|ep| ep.max_order_war_size);
    let mut orders = tx.into_iter().chain(rx);
    orders.any(|order| order.intersects(AFTER_READS)) || size.is_some_and(|size| size > 0)
}

/// What is offered to other providers: they drive it, as `fi_peer(3)` says where progress is
/// manual, and are not called by a thread of ours.
pub const fn set_manual_progress(offer: &mut Info) {
    offer.domain.progress = Progress::Manual;
    offer.domain.control_progress = Progress::Manual;
}

/// For callers that do not say: queue sizes, no default operation flags (the flags in an
/// offer are those a caller may ask for), and no error entries for unknown sources.
pub fn apply_defaults(info: &mut Info, tunables: &Tunables, hints: Option<&Hints>) {
    // It turns completions into errors, so it is for those who ask.
    if !hints.is_some_and(|hints| hints.caps.contains(Flags::SOURCE_ERR)) {
        info.caps -= Flags::SOURCE_ERR;
        info.rx.caps -= Flags::SOURCE_ERR;
    }
    if !asks_peer(hints) {
        info.caps -= Flags::PEER;
        info.domain.caps -= Flags::PEER;
    }
    // They make what follows a read wait, so they are for those who ask, too.
    if !hints.is_some_and(asks_after_reads) {
        info.tx.msg_order -= AFTER_READS;
        info.rx.msg_order -= AFTER_READS;
        info.ep.max_order_war_size = 0;
    }
    // A context can do no more than its interface.
    info.tx.caps &= info.caps;
    info.rx.caps &= info.caps;
    let tx = hints.and_then(|hints| hints.tx.as_ref());
    let rx = hints.and_then(|hints| hints.rx.as_ref());
    if tx.is_none_or(|tx| tx.size == 0) {
        info.tx.size = tunables.tx_size;
    }
    if rx.is_none_or(|rx| rx.size == 0) {
        info.rx.size = tunables.rx_size;
    }
    if tx.is_none() {
        info.tx.op_flags = Flags::empty();
    }
    if rx.is_none() {
        info.rx.op_flags = Flags::empty();
    }
}
