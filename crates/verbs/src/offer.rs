//! What is offered of a device (man page `fi_getinfo(3)`).

use ripstop_core::{DomainAttr, EpAttr, FabricAttr, Hints, Info, RxAttr, SHARED_CONTEXT, TxAttr};
use ripstop_types::{
    AddrFormat, EpType, Flags, Mode, MrMode, MsgOrder, Progress, Protocol, ResourceMgmt, Threading,
    flags,
};

use crate::devices::Device;
use crate::params::{NAME, Params, VERSION};

pub(crate) const COMM: Flags = flags![LOCAL_COMM REMOTE_COMM];
const TX_CAPS: Flags = flags![MSG RMA SEND READ WRITE];
const RX_CAPS: Flags = flags![MSG RMA RECV REMOTE_READ REMOTE_WRITE];

/// A queue pair carries out what it is given in order, but that a read may be answered after what follows.
pub(crate) const ORDER: MsgOrder = MsgOrder::RAR
    .union(MsgOrder::RMA_RAR)
    .union(MsgOrder::RAW)
    .union(MsgOrder::RMA_RAW)
    .union(MsgOrder::RAS)
    .union(MsgOrder::WAW)
    .union(MsgOrder::RMA_WAW)
    .union(MsgOrder::ATOMIC_RAR)
    .union(MsgOrder::ATOMIC_RAW)
    .union(MsgOrder::ATOMIC_WAW)
    .union(MsgOrder::WAS)
    .union(MsgOrder::SAW)
    .union(MsgOrder::SAS);

/// Most requests of a queue that are offered, whatever the device says: queues are allocated when an
/// endpoint is enabled.
const MOST_REQUESTS: usize = 16384;

/// Counters that are offered, which are only memory.
const MOST_COUNTERS: usize = 8192;

/// Whether the program wants to get remote CQ data, which uses up receives: C libfabric asks for the mode
/// only then, too.
fn wants_data(hints: &Hints) -> bool {
    let in_rx = hints
        .rx
        .as_ref()
        .is_some_and(|rx| rx.mode.contains(Mode::RX_CQ_DATA));
    let in_domain = hints
        .domain
        .as_ref()
        .is_some_and(|domain| domain.cq_data_size > 0);
    hints.mode.contains(Mode::RX_CQ_DATA) || in_rx || in_domain
}

/// Whether receives are to be those of a shared context.
fn wants_shared_rx(hints: &Hints) -> bool {
    let ep = hints.ep.as_ref();
    ep.is_some_and(|ep| ep.rx_ctx_cnt == SHARED_CONTEXT)
}

/// What domains of a device have.
fn domain(device: &Device) -> DomainAttr {
    let attr = &device.attr;
    DomainAttr {
        name: Some(device.name.clone()),
        threading: Threading::Safe,
        control_progress: Progress::Auto,
        progress: Progress::Auto,
        resource_mgmt: ResourceMgmt::Enabled,
        mr_mode: MrMode::LOCAL
            | MrMode::VIRT_ADDR
            | MrMode::ALLOCATED
            | MrMode::PROV_KEY
            | MrMode::BASIC,
        mr_key_size: size_of::<u32>(),
        cq_data_size: size_of::<u32>(),
        cq_cnt: attr.max_cq,
        cntr_cnt: MOST_COUNTERS,
        ep_cnt: attr.max_qp,
        tx_ctx_cnt: attr.max_qp.min(1024),
        rx_ctx_cnt: attr.max_qp.min(1024),
        max_ep_tx_ctx: 1,
        max_ep_rx_ctx: 1,
        max_ep_srx_ctx: attr.max_srq,
        mr_iov_limit: 1,
        mr_cnt: attr.max_mr,
        caps: COMM,
        max_err_data: size_of::<u32>().max(u8::MAX.into()),
        ..DomainAttr::default()
    }
}

/// What receivers must keep to for remote CQ data, for programs that want any.
pub(crate) fn rx_mode(hints: Option<&Hints>) -> Mode {
    match hints.is_none_or(wants_data) {
        true => Mode::RX_CQ_DATA,
        false => Mode::empty(),
    }
}

/// The offer of a device.
pub(crate) fn offer(device: &Device, params: &Params, hints: Option<&Hints>) -> Info {
    let attr = &device.attr;
    let shares = attr.max_srq > 0 && hints.is_some_and(wants_shared_rx);
    let max_msg = device.port.max_msg as usize;
    let rx_mode = rx_mode(hints);
    let atomics = match attr.atomics {
        true => Flags::ATOMIC,
        false => Flags::empty(),
    };
    let requests = attr.max_qp_wr.min(MOST_REQUESTS);
    let receives = match shares {
        true => attr.max_srq_wr.min(MOST_REQUESTS),
        false => requests,
    };
    let receive_pieces = match shares {
        true => attr.max_srq_sge,
        false => attr.max_sge,
    };
    Info {
        caps: TX_CAPS | RX_CAPS | COMM | atomics,
        // Who says nothing is told in both places.
        mode: match hints {
            None => rx_mode,
            Some(_) => Mode::empty(),
        },
        addr_format: AddrFormat::SockaddrIp,
        tx: TxAttr {
            caps: TX_CAPS | atomics,
            op_flags: flags![INJECT INJECT_COMPLETE TRANSMIT_COMPLETE COMPLETION],
            msg_order: ORDER,
            inject_size: device.inline,
            size: requests,
            iov_limit: params.tx_iov_limit.min(attr.max_sge),
            rma_iov_limit: 1,
            ..TxAttr::default()
        },
        rx: RxAttr {
            caps: RX_CAPS | atomics,
            mode: rx_mode,
            op_flags: Flags::COMPLETION,
            msg_order: ORDER,
            size: receives,
            iov_limit: params.rx_iov_limit.min(receive_pieces),
            ..RxAttr::default()
        },
        ep: EpAttr {
            ep_type: EpType::Msg,
            protocol: Protocol::RdmaCmIbRc,
            protocol_version: 1,
            max_msg_size: max_msg,
            max_order_raw_size: max_msg,
            max_order_waw_size: max_msg,
            tx_ctx_cnt: 1,
            rx_ctx_cnt: if shares { SHARED_CONTEXT } else { 1 },
            ..EpAttr::default()
        },
        domain: domain(device),
        fabric: FabricAttr {
            name: Some(device.fabric.clone()),
            prov_name: Some(NAME.to_owned()),
            prov_version: VERSION.0,
            ..FabricAttr::default()
        },
        nic: Some(device.nic.clone()),
        ..Info::default()
    }
}

/// For callers that do not say: queue sizes, no default operation flags, and no remote CQ data.
pub(crate) fn apply_defaults(info: &mut Info, params: &Params, hints: Option<&Hints>) {
    let tx = hints.and_then(|hints| hints.tx.as_ref());
    let rx = hints.and_then(|hints| hints.rx.as_ref());
    if let Some(hints) = hints {
        // Remote CQ data is for who knows that it uses up receives.
        if !info.rx.mode.contains(Mode::RX_CQ_DATA) {
            info.domain.cq_data_size = 0;
        } else if hints.mode.contains(Mode::RX_CQ_DATA) {
            info.mode |= Mode::RX_CQ_DATA;
        }
    }
    if tx.is_none_or(|tx| tx.size == 0) {
        info.tx.size = params.tx_size.min(info.tx.size);
    }
    if rx.is_none_or(|rx| rx.size == 0) {
        info.rx.size = params.rx_size.min(info.rx.size);
    }
    if tx.is_none() {
        info.tx.op_flags = Flags::empty();
    }
    if rx.is_none() {
        info.rx.op_flags = Flags::empty();
    }
}
