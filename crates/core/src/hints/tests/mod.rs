//! Negotiation against offers like those of the tcp provider.

use ripstop_types::{
    AddrFormat, AvType, EpType, Errno, Flags, Mode, MrMode, MsgOrder, Progress, Protocol,
    ResourceMgmt, Threading, Version,
};

use super::*;
use crate::attr::{DomainAttr, EpAttr, FabricAttr, RxAttr, SHARED_CONTEXT, TxAttr};
use crate::caps::{MSG_DIRECTIONS, RMA_DIRECTIONS};

mod consumers;
mod rules;
mod strings;

const COMM: Flags = Flags::LOCAL_COMM.union(Flags::REMOTE_COMM);
const CONTEXTS: Mode = Mode::CONTEXT.union(Mode::CONTEXT2);
const PROVIDER_MR: MrMode = MrMode::VIRT_ADDR
    .union(MrMode::ALLOCATED)
    .union(MrMode::PROV_KEY);

/// Reliable datagrams over TCP; `extra` are capabilities beyond those of libfabric's tcp.
pub(super) fn rdm_offer(extra: Flags) -> Info {
    let messages = Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::RMA_PMEM | extra;
    let tx_caps = messages | Flags::SEND | Flags::READ | Flags::WRITE;
    let rx_caps = messages
        | Flags::RECV
        | Flags::REMOTE_READ
        | Flags::REMOTE_WRITE
        | Flags::RMA_EVENT
        | Flags::DIRECTED_RECV
        | Flags::SOURCE
        | Flags::MULTI_RECV;
    let order = MsgOrder::SAS | MsgOrder::RAW | MsgOrder::WAW | MsgOrder::WAS | MsgOrder::SAW;
    Info {
        caps: COMM | tx_caps | rx_caps,
        addr_format: AddrFormat::SockaddrIp,
        tx: TxAttr {
            caps: tx_caps,
            op_flags: Flags::INJECT
                | Flags::INJECT_COMPLETE
                | Flags::TRANSMIT_COMPLETE
                | Flags::DELIVERY_COMPLETE
                | Flags::COMMIT_COMPLETE
                | Flags::COMPLETION,
            msg_order: order,
            inject_size: 128,
            size: 65536,
            iov_limit: 4,
            rma_iov_limit: 4,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: rx_caps,
            op_flags: Flags::COMPLETION | Flags::MULTI_RECV,
            msg_order: order,
            size: 65536,
            iov_limit: 4,
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: EpType::Rdm,
            protocol: Protocol::Xnet,
            protocol_version: 1,
            max_msg_size: usize::MAX,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: 1,
            max_order_raw_size: usize::MAX,
            max_order_waw_size: usize::MAX,
            mem_tag_format: 0xaaaa_aaaa_aaaa_aaaa,
            ..EpAttr::default()
        },
        domain: domain_offer(),
        fabric: FabricAttr {
            name: Some("127.0.0.1/32".into()),
            prov_name: Some("tcp".into()),
            prov_version: Version::new(2, 6).0,
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

fn domain_offer() -> DomainAttr {
    DomainAttr {
        name: Some("lo".into()),
        threading: Threading::Safe,
        control_progress: Progress::Auto,
        progress: Progress::Auto,
        resource_mgmt: ResourceMgmt::Enabled,
        mr_mode: MrMode::SCALABLE | MrMode::BASIC,
        mr_key_size: 8,
        cq_data_size: 8,
        cq_cnt: 256,
        ep_cnt: 256,
        tx_ctx_cnt: 256,
        rx_ctx_cnt: 256,
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        mr_iov_limit: 1,
        caps: COMM,
        ..DomainAttr::default()
    }
}

/// Connected endpoints; with `srx` those that share a receive context.
fn msg_offer(srx: bool) -> Info {
    let mut info = rdm_offer(Flags::empty());
    info.ep.ep_type = EpType::Msg;
    info.ep.protocol = Protocol::SockTcp;
    info.ep.protocol_version = 0;
    info.domain.max_ep_srx_ctx = 8192;
    if srx {
        info.ep.rx_ctx_cnt = SHARED_CONTEXT;
    } else {
        let srx_only = Flags::TAGGED | Flags::DIRECTED_RECV | Flags::SOURCE | Flags::MULTI_RECV;
        info.caps -= srx_only;
        info.tx.caps -= srx_only;
        info.rx.caps -= srx_only;
        info.ep.mem_tag_format = 0;
    }
    info
}

/// An offer that needs the caller to register memory, as verbs does.
fn registering_offer() -> Info {
    let mut info = rdm_offer(Flags::ATOMIC);
    info.domain.mr_mode = PROVIDER_MR | MrMode::LOCAL | MrMode::BASIC;
    info
}

fn hints(caps: Flags, mode: Mode) -> Hints {
    Hints {
        caps,
        mode,
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        ..Hints::default()
    }
}

fn domain(threading: Threading, progress: Progress, mr_mode: MrMode) -> DomainAttr {
    DomainAttr {
        threading,
        progress,
        mr_mode,
        ..DomainAttr::default()
    }
}

fn answer(offer: &Info, hints: &Hints, version: (u16, u16)) -> Info {
    negotiate(offer, Some(hints), Version::new(version.0, version.1))
        .unwrap_or_else(|why| panic!("{why}"))
}

fn refusal(offer: &Info, hints: &Hints, version: (u16, u16)) -> Mismatch {
    negotiate(offer, Some(hints), Version::new(version.0, version.1)).unwrap_err()
}
