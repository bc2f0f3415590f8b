//! The names `fi_tostr(3)` prints: for an enumeration the name of a value, for flags the names
//! of the set bits in a fixed order.

use ripstop_abi as abi;

use crate::text::Text;

/// Values and their names, in the order in which set bits are listed.
pub(super) type Names = &'static [(u64, &'static str)];

macro_rules! names {
    ($($name:ident)*) => { &[$((abi::$name as u64, stringify!($name)),)*] };
}

/// Appends the name of an enumeration's value.
pub(super) fn value(text: &mut Text, names: Names, value: u64) {
    let known = names.iter().find(|(v, _)| *v == value);
    text.put(known.map_or("Unknown", |(_, name)| *name));
}

/// Appends the names of the set bits, with commas between. Bits without a name are left out.
pub(super) fn flags(text: &mut Text, names: Names, bits: u64) {
    let mut set = names.iter().filter(|(bit, _)| bits & bit != 0);
    if let Some((_, first)) = set.next() {
        text.put(first);
    }
    for (_, name) in set {
        text.put(", ");
        text.put(name);
    }
}

pub(super) const OP_FLAGS: Names = names! {
    FI_MULTICAST FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_MORE FI_PEEK FI_TRIGGER FI_FENCE
    FI_COMPLETION FI_INJECT FI_INJECT_COMPLETE FI_TRANSMIT_COMPLETE FI_DELIVERY_COMPLETE
    FI_MATCH_COMPLETE FI_AFFINITY FI_CLAIM FI_DISCARD
};

pub(super) const ADDR_FORMAT: Names = names! {
    FI_FORMAT_UNSPEC FI_SOCKADDR FI_SOCKADDR_IP FI_SOCKADDR_IN FI_SOCKADDR_IN6 FI_SOCKADDR_IB
    FI_ADDR_PSMX2 FI_ADDR_MLX FI_ADDR_UCX FI_ADDR_STR FI_ADDR_IB_UD FI_ADDR_EFA FI_ADDR_PSMX3
    FI_ADDR_OPX FI_ADDR_CXI
};

pub(super) const PROGRESS: Names = names! {
    FI_PROGRESS_UNSPEC FI_PROGRESS_AUTO FI_PROGRESS_MANUAL FI_PROGRESS_CONTROL_UNIFIED
};

pub(super) const THREADING: Names = names! {
    FI_THREAD_UNSPEC FI_THREAD_SAFE FI_THREAD_DOMAIN FI_THREAD_COMPLETION
};

pub(super) const MSG_ORDER: Names = names! {
    FI_ORDER_RAR FI_ORDER_RAW FI_ORDER_RAS FI_ORDER_WAR FI_ORDER_WAW FI_ORDER_WAS FI_ORDER_SAR
    FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_RMA_RAR FI_ORDER_RMA_RAW FI_ORDER_RMA_WAR
    FI_ORDER_RMA_WAW FI_ORDER_ATOMIC_RAR FI_ORDER_ATOMIC_RAW FI_ORDER_ATOMIC_WAR
    FI_ORDER_ATOMIC_WAW
};

pub(super) const CAPS: Names = names! {
    FI_MSG FI_RMA FI_TAGGED FI_ATOMIC FI_MULTICAST FI_COLLECTIVE FI_READ FI_WRITE FI_RECV
    FI_SEND FI_REMOTE_READ FI_REMOTE_WRITE FI_MULTI_RECV FI_REMOTE_CQ_DATA FI_TRIGGER FI_FENCE
    FI_RMA_PMEM FI_SOURCE_ERR FI_LOCAL_COMM FI_REMOTE_COMM FI_SHARED_AV FI_RMA_EVENT FI_SOURCE
    FI_NAMED_RX_CTX FI_DIRECTED_RECV FI_AV_USER_ID FI_PEER FI_HMEM
};

pub(super) const EP_TYPE: Names = names! { FI_EP_UNSPEC FI_EP_MSG FI_EP_DGRAM FI_EP_RDM };

pub(super) const PROTOCOL: Names = names! {
    FI_PROTO_UNSPEC FI_PROTO_RDMA_CM_IB_RC FI_PROTO_IWARP FI_PROTO_IB_UD FI_PROTO_PSMX2
    FI_PROTO_UDP FI_PROTO_SOCK_TCP FI_PROTO_IB_RDM FI_PROTO_IWARP_RDM FI_PROTO_RXM FI_PROTO_RXD
    FI_PROTO_MLX FI_PROTO_UCX FI_PROTO_NETWORKDIRECT FI_PROTO_SHM FI_PROTO_RDMA_CM_IB_XRC
    FI_PROTO_EFA FI_PROTO_PSMX3 FI_PROTO_RXM_TCP FI_PROTO_OPX FI_PROTO_CXI FI_PROTO_XNET
    FI_PROTO_SM2 FI_PROTO_CXI_RNR FI_PROTO_LPP FI_PROTO_LNX
};

pub(super) const MODE: Names = names! {
    FI_CONTEXT FI_MSG_PREFIX FI_ASYNC_IOV FI_RX_CQ_DATA FI_LOCAL_MR FI_CONTEXT2
};

pub(super) const RESOURCE_MGMT: Names = names! { FI_RM_UNSPEC FI_RM_DISABLED FI_RM_ENABLED };

pub(super) const AV_TYPE: Names = names! { FI_AV_UNSPEC FI_AV_MAP FI_AV_TABLE };

pub(super) const AV_FLAGS: Names = names! { FI_EVENT FI_READ FI_SYMMETRIC };

pub(super) const MR_MODE: Names = names! {
    FI_MR_BASIC FI_MR_SCALABLE FI_MR_LOCAL FI_MR_RAW FI_MR_VIRT_ADDR FI_MR_ALLOCATED
    FI_MR_PROV_KEY FI_MR_MMU_NOTIFY FI_MR_RMA_EVENT FI_MR_ENDPOINT FI_MR_HMEM FI_MR_COLLECTIVE
};

pub(super) const MR_ACCESS: Names = names! {
    FI_RECV FI_SEND FI_READ FI_WRITE FI_REMOTE_READ FI_REMOTE_WRITE FI_COLLECTIVE
};

pub(super) const OP_TYPE: Names = names! {
    FI_OP_RECV FI_OP_SEND FI_OP_TRECV FI_OP_TSEND FI_OP_READ FI_OP_WRITE FI_OP_ATOMIC
    FI_OP_FETCH_ATOMIC FI_OP_COMPARE_ATOMIC FI_OP_CNTR_SET FI_OP_CNTR_ADD
};

pub(super) const ATOMIC_TYPE: Names = names! {
    FI_INT8 FI_UINT8 FI_INT16 FI_UINT16 FI_INT32 FI_UINT32 FI_INT64 FI_UINT64 FI_INT128
    FI_UINT128 FI_FLOAT FI_DOUBLE FI_FLOAT_COMPLEX FI_DOUBLE_COMPLEX FI_LONG_DOUBLE
    FI_LONG_DOUBLE_COMPLEX
};

pub(super) const ATOMIC_OP: Names = names! {
    FI_MIN FI_MAX FI_SUM FI_PROD FI_LOR FI_LAND FI_BOR FI_BAND FI_LXOR FI_BXOR FI_ATOMIC_READ
    FI_ATOMIC_WRITE FI_CSWAP FI_CSWAP_NE FI_CSWAP_LE FI_CSWAP_LT FI_CSWAP_GE FI_CSWAP_GT
    FI_MSWAP
};

pub(super) const COLLECTIVE_OP: Names = names! {
    FI_BARRIER FI_BROADCAST FI_ALLTOALL FI_ALLREDUCE FI_ALLGATHER FI_REDUCE_SCATTER FI_REDUCE
    FI_SCATTER FI_GATHER
};

pub(super) const EQ_EVENT: Names = names! {
    FI_NOTIFY FI_CONNREQ FI_CONNECTED FI_SHUTDOWN FI_MR_COMPLETE FI_AV_COMPLETE FI_JOIN_COMPLETE
};

pub(super) const CQ_EVENT_FLAGS: Names = names! {
    FI_SEND FI_RECV FI_RMA FI_ATOMIC FI_MSG FI_TAGGED FI_READ FI_WRITE FI_REMOTE_READ
    FI_REMOTE_WRITE FI_REMOTE_CQ_DATA FI_MULTI_RECV FI_MORE FI_CLAIM
};

pub(super) const CQ_FLAGS: Names = names! { FI_AFFINITY };

pub(super) const CQ_FORMAT: Names = names! {
    FI_CQ_FORMAT_UNSPEC FI_CQ_FORMAT_CONTEXT FI_CQ_FORMAT_MSG FI_CQ_FORMAT_DATA
    FI_CQ_FORMAT_TAGGED
};

pub(super) const CQ_WAIT_COND: Names = names! { FI_CQ_COND_NONE FI_CQ_COND_THRESHOLD };

pub(super) const WAIT_OBJ: Names = names! {
    FI_WAIT_NONE FI_WAIT_UNSPEC FI_WAIT_SET FI_WAIT_FD FI_WAIT_MUTEX_COND FI_WAIT_YIELD
    FI_WAIT_POLLFD
};

pub(super) const CNTR_EVENTS: Names = names! { FI_CNTR_EVENTS_COMP FI_CNTR_EVENTS_BYTES };

pub(super) const HMEM_IFACE: Names = names! {
    FI_HMEM_SYSTEM FI_HMEM_CUDA FI_HMEM_ROCR FI_HMEM_ZE FI_HMEM_NEURON FI_HMEM_SYNAPSEAI
};

pub(super) const BUS_TYPE: Names = names! { FI_BUS_UNKNOWN FI_BUS_PCI };

pub(super) const LINK_STATE: Names = names! { FI_LINK_UNKNOWN FI_LINK_DOWN FI_LINK_UP };

pub(super) const LOG_LEVEL: Names = &[
    (abi::FI_LOG_WARN as u64, "warn"),
    (abi::FI_LOG_TRACE as u64, "trace"),
    (abi::FI_LOG_INFO as u64, "info"),
    (abi::FI_LOG_DEBUG as u64, "debug"),
];

pub(super) const LOG_SUBSYS: Names = &[
    (abi::FI_LOG_CORE as u64, "core"),
    (abi::FI_LOG_FABRIC as u64, "fabric"),
    (abi::FI_LOG_DOMAIN as u64, "domain"),
    (abi::FI_LOG_EP_CTRL as u64, "ep_ctrl"),
    (abi::FI_LOG_EP_DATA as u64, "ep_data"),
    (abi::FI_LOG_AV as u64, "av"),
    (abi::FI_LOG_CQ as u64, "cq"),
    (abi::FI_LOG_EQ as u64, "eq"),
    (abi::FI_LOG_MR as u64, "mr"),
    (abi::FI_LOG_CNTR as u64, "cntr"),
];
