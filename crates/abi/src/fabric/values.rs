//! The enumerations, flags and other values of `rdma/fabric.h`.

use core::ffi::{c_int, c_uint};

use super::fi_addr_t;

constants! {
    "Historic bound kept for programs that use it." usize {
        FI_NAME_MAX = 64,
        FI_ATOMIC_OP_LAST = 19,
        FI_DATATYPE_LAST = 14,
    }

    "Address format in [`fi_info::addr_format`](super::fi_info::addr_format), `fi_getinfo`(3)." u32 {
        FI_FORMAT_UNSPEC = 0,
        FI_SOCKADDR = 1,
        FI_SOCKADDR_IN = 2,
        FI_SOCKADDR_IN6 = 3,
        FI_SOCKADDR_IB = 4,
        FI_ADDR_PSMX = 5,
        FI_ADDR_GNI = 6,
        FI_ADDR_BGQ = 7,
        FI_ADDR_MLX = 8,
        FI_ADDR_STR = 9,
        FI_ADDR_PSMX2 = 10,
        FI_ADDR_IB_UD = 11,
        FI_ADDR_EFA = 12,
        FI_ADDR_PSMX3 = 13,
        FI_ADDR_OPX = 14,
        FI_ADDR_CXI = 15,
        FI_ADDR_UCX = 16,
        FI_SOCKADDR_IP = 17,
    }

    "Address vector type, `fi_av`(3)." type fi_av_type = c_uint {
        FI_AV_UNSPEC = 0,
        FI_AV_MAP = 1,
        FI_AV_TABLE = 2,
    }

    "Progress model, `fi_domain`(3)." type fi_progress = c_uint {
        FI_PROGRESS_UNSPEC = 0,
        FI_PROGRESS_AUTO = 1,
        FI_PROGRESS_MANUAL = 2,
        FI_PROGRESS_CONTROL_UNIFIED = 3,
    }

    "Threading model, `fi_domain`(3)." type fi_threading = c_uint {
        FI_THREAD_UNSPEC = 0,
        FI_THREAD_SAFE = 1,
        FI_THREAD_FID = 2,
        FI_THREAD_DOMAIN = 3,
        FI_THREAD_COMPLETION = 4,
        FI_THREAD_ENDPOINT = 5,
    }

    "Resource management, `fi_domain`(3)." type fi_resource_mgmt = c_uint {
        FI_RM_UNSPEC = 0,
        FI_RM_DISABLED = 1,
        FI_RM_ENABLED = 2,
    }

    "Endpoint type, `fi_endpoint`(3)." type fi_ep_type = c_uint {
        FI_EP_UNSPEC = 0,
        FI_EP_MSG = 1,
        FI_EP_DGRAM = 2,
        FI_EP_RDM = 3,
    }

    "Wire protocol in [`fi_ep_attr::protocol`](super::fi_ep_attr::protocol), `fi_endpoint`(3)." u32 {
        FI_PROTO_UNSPEC = 0,
        FI_PROTO_RDMA_CM_IB_RC = 1,
        FI_PROTO_IWARP = 2,
        FI_PROTO_IB_UD = 3,
        FI_PROTO_PSMX = 4,
        FI_PROTO_UDP = 5,
        FI_PROTO_SOCK_TCP = 6,
        FI_PROTO_MXM = 7,
        FI_PROTO_IWARP_RDM = 8,
        FI_PROTO_IB_RDM = 9,
        FI_PROTO_GNI = 10,
        FI_PROTO_RXM = 11,
        FI_PROTO_RXD = 12,
        FI_PROTO_MLX = 13,
        FI_PROTO_NETWORKDIRECT = 14,
        FI_PROTO_PSMX2 = 15,
        FI_PROTO_SHM = 16,
        FI_PROTO_MRAIL = 17,
        FI_PROTO_RSTREAM = 18,
        FI_PROTO_RDMA_CM_IB_XRC = 19,
        FI_PROTO_EFA = 20,
        FI_PROTO_PSMX3 = 21,
        FI_PROTO_RXM_TCP = 22,
        FI_PROTO_OPX = 23,
        FI_PROTO_CXI = 24,
        FI_PROTO_XNET = 25,
        FI_PROTO_COLL = 26,
        FI_PROTO_UCX = 27,
        FI_PROTO_SM2 = 28,
        FI_PROTO_CXI_RNR = 29,
        FI_PROTO_LPP = 30,
        FI_PROTO_LNX = 31,
    }

    "Tag format in [`fi_ep_attr::mem_tag_format`](super::fi_ep_attr::mem_tag_format), `fi_endpoint`(3)." u64 {
        FI_TAG_BITS = 0,
        FI_TAG_MPI = 1,
        FI_TAG_CCL = 1 << 1,
        FI_TAG_MAX_FORMAT = 1 << 16,
    }

    "Traffic class in [`fi_tx_attr::tclass`](super::fi_tx_attr::tclass), `fi_endpoint`(3)." u32 {
        FI_TC_UNSPEC = 0,
        FI_TC_DSCP = 0x100,
        FI_TC_LABEL = 0x200,
        FI_TC_BEST_EFFORT = 0x200,
        FI_TC_LOW_LATENCY = 0x201,
        FI_TC_DEDICATED_ACCESS = 0x202,
        FI_TC_BULK_DATA = 0x203,
        FI_TC_SCAVENGER = 0x204,
        FI_TC_NETWORK_CTRL = 0x205,
    }

    "Bus type of a NIC, `fi_nic`(3)." type fi_bus_type = c_uint {
        FI_BUS_UNSPEC = 0,
        FI_BUS_UNKNOWN = 0,
        FI_BUS_PCI = 1,
    }

    "Link state of a NIC, `fi_nic`(3)." type fi_link_state = c_uint {
        FI_LINK_UNKNOWN = 0,
        FI_LINK_DOWN = 1,
        FI_LINK_UP = 2,
    }

    "Object class in [`fid::fclass`](super::fid::fclass)." usize {
        FI_CLASS_UNSPEC = 0,
        FI_CLASS_FABRIC = 1,
        FI_CLASS_DOMAIN = 2,
        FI_CLASS_EP = 3,
        FI_CLASS_SEP = 4,
        FI_CLASS_RX_CTX = 5,
        FI_CLASS_SRX_CTX = 6,
        FI_CLASS_TX_CTX = 7,
        FI_CLASS_STX_CTX = 8,
        FI_CLASS_PEP = 9,
        FI_CLASS_INTERFACE = 10,
        FI_CLASS_AV = 11,
        FI_CLASS_MR = 12,
        FI_CLASS_EQ = 13,
        FI_CLASS_CQ = 14,
        FI_CLASS_CNTR = 15,
        FI_CLASS_WAIT = 16,
        FI_CLASS_POLL = 17,
        FI_CLASS_CONNREQ = 18,
        FI_CLASS_MC = 19,
        FI_CLASS_NIC = 20,
        FI_CLASS_AV_SET = 21,
        FI_CLASS_MR_CACHE = 22,
        FI_CLASS_MEM_MONITOR = 23,
        FI_CLASS_PEER_CQ = 24,
        FI_CLASS_PEER_SRX = 25,
        FI_CLASS_LOG = 26,
        FI_CLASS_PEER_AV = 27,
        FI_CLASS_PEER_AV_SET = 28,
        FI_CLASS_PEER_CNTR = 29,
        FI_CLASS_PROFILE = 30,
    }

    "Command of `fi_control`(3)." c_int {
        FI_GETFIDFLAG = 0,
        FI_SETFIDFLAG = 1,
        FI_GETOPSFLAG = 2,
        FI_SETOPSFLAG = 3,
        FI_ALIAS = 4,
        FI_GETWAIT = 5,
        FI_ENABLE = 6,
        FI_BACKLOG = 7,
        FI_GET_RAW_MR = 8,
        FI_MAP_RAW_MR = 9,
        FI_UNMAP_KEY = 10,
        FI_QUEUE_WORK = 11,
        FI_CANCEL_WORK = 12,
        FI_FLUSH_WORK = 13,
        FI_REFRESH = 14,
        FI_DUP = 15,
        FI_GETWAITOBJ = 16,
        FI_GET_VAL = 17,
        FI_SET_VAL = 18,
        FI_EXPORT_FID = 19,
        FI_GET_FD = 20,
    }

    "What `fi_tostr`(3) prints." type fi_type = c_uint {
        FI_TYPE_INFO = 0,
        FI_TYPE_EP_TYPE = 1,
        FI_TYPE_CAPS = 2,
        FI_TYPE_OP_FLAGS = 3,
        FI_TYPE_ADDR_FORMAT = 4,
        FI_TYPE_TX_ATTR = 5,
        FI_TYPE_RX_ATTR = 6,
        FI_TYPE_EP_ATTR = 7,
        FI_TYPE_DOMAIN_ATTR = 8,
        FI_TYPE_FABRIC_ATTR = 9,
        FI_TYPE_THREADING = 10,
        FI_TYPE_PROGRESS = 11,
        FI_TYPE_PROTOCOL = 12,
        FI_TYPE_MSG_ORDER = 13,
        FI_TYPE_MODE = 14,
        FI_TYPE_AV_TYPE = 15,
        FI_TYPE_ATOMIC_TYPE = 16,
        FI_TYPE_ATOMIC_OP = 17,
        FI_TYPE_VERSION = 18,
        FI_TYPE_EQ_EVENT = 19,
        FI_TYPE_CQ_EVENT_FLAGS = 20,
        FI_TYPE_MR_MODE = 21,
        FI_TYPE_OP_TYPE = 22,
        FI_TYPE_FID = 23,
        FI_TYPE_COLLECTIVE_OP = 24,
        FI_TYPE_HMEM_IFACE = 25,
        FI_TYPE_CQ_FORMAT = 26,
        FI_TYPE_LOG_LEVEL = 27,
        FI_TYPE_LOG_SUBSYS = 28,
        FI_TYPE_AV_ATTR = 29,
        FI_TYPE_CQ_ATTR = 30,
        FI_TYPE_MR_ATTR = 31,
        FI_TYPE_CNTR_ATTR = 32,
        FI_TYPE_CQ_ERR_ENTRY = 33,
        FI_TYPE_CQ_WAIT_COND = 34,
        FI_TYPE_WAIT_OBJ = 35,
    }

    "Type of a parameter, `fi_provider`(3)." type fi_param_type = c_uint {
        FI_PARAM_STRING = 0,
        FI_PARAM_INT = 1,
        FI_PARAM_BOOL = 2,
        FI_PARAM_SIZE_T = 3,
    }

    "Version of the headers mirrored here." u32 {
        FI_MAJOR_VERSION = 2,
        FI_MINOR_VERSION = 6,
        FI_REVISION_VERSION = 0,
    }

    "Capability, operation or completion flag, `fi_getinfo`(3), `fi_msg`(3), `fi_cq`(3)." u64 {
        FI_MSG = 1 << 1,
        FI_RMA = 1 << 2,
        FI_TAGGED = 1 << 3,
        FI_ATOMIC = 1 << 4,
        FI_ATOMICS = 1 << 4,
        FI_MULTICAST = 1 << 5,
        FI_COLLECTIVE = 1 << 6,
        FI_READ = 1 << 8,
        FI_WRITE = 1 << 9,
        FI_RECV = 1 << 10,
        FI_SEND = 1 << 11,
        FI_TRANSMIT = 1 << 11,
        FI_REMOTE_READ = 1 << 12,
        FI_REMOTE_WRITE = 1 << 13,
        FI_MULTI_RECV = 1 << 16,
        FI_REMOTE_CQ_DATA = 1 << 17,
        FI_MORE = 1 << 18,
        FI_PEEK = 1 << 19,
        FI_TRIGGER = 1 << 20,
        FI_FENCE = 1 << 21,
        FI_COMPLETION = 1 << 24,
        FI_EVENT = 1 << 24,
        FI_INJECT = 1 << 25,
        FI_INJECT_COMPLETE = 1 << 26,
        FI_TRANSMIT_COMPLETE = 1 << 27,
        FI_DELIVERY_COMPLETE = 1 << 28,
        FI_AFFINITY = 1 << 29,
        FI_COMMIT_COMPLETE = 1 << 30,
        FI_MATCH_COMPLETE = 1 << 31,
        FI_RESCAN = 1 << 35,
        FI_PEER_TRANSFER = 1 << 36,
        FI_AV_USER_ID = 1 << 41,
        FI_FIREWALL_ADDR = 1 << 42,
        FI_PEER = 1 << 43,
        FI_TAGGED_DIRECTED_RECV = 1 << 45,
        FI_TAGGED_MULTI_RECV = 1 << 46,
        FI_HMEM = 1 << 47,
        FI_EXACT_DIRECTED_RECV = 1 << 48,
        FI_RMA_PMEM = 1 << 49,
        FI_SOURCE_ERR = 1 << 50,
        FI_LOCAL_COMM = 1 << 51,
        FI_REMOTE_COMM = 1 << 52,
        FI_SHARED_AV = 1 << 53,
        FI_PROV_ATTR_ONLY = 1 << 54,
        FI_NUMERICHOST = 1 << 55,
        FI_RMA_EVENT = 1 << 56,
        FI_SOURCE = 1 << 57,
        FI_NAMED_RX_CTX = 1 << 58,
        FI_DIRECTED_RECV = 1 << 59,
        FI_CLAIM = 1 << 59,
        FI_DISCARD = 1 << 58,
        FI_AUTH_KEY = 1 << 57,
    }

    "Address that names no peer." fi_addr_t {
        FI_ADDR_UNSPEC = u64::MAX,
        FI_ADDR_NOTAVAIL = u64::MAX,
    }

    "Memory key that names no region, `fi_mr`(3)." u64 {
        FI_KEY_NOTAVAIL = u64::MAX,
    }

    "Special size in [`fi_ep_attr`](super::fi_ep_attr), `fi_endpoint`(3)." usize {
        FI_SHARED_CONTEXT = usize::MAX,
        FI_AV_AUTH_KEY = usize::MAX,
    }

    "Bit of [`fi_domain_attr::mr_mode`](super::fi_domain_attr::mr_mode), `fi_domain`(3)." c_int {
        FI_MR_UNSPEC = 0,
        FI_MR_BASIC = 1 << 0,
        FI_MR_SCALABLE = 1 << 1,
        FI_MR_LOCAL = 1 << 2,
        FI_MR_RAW = 1 << 3,
        FI_MR_VIRT_ADDR = 1 << 4,
        FI_MR_ALLOCATED = 1 << 5,
        FI_MR_PROV_KEY = 1 << 6,
        FI_MR_MMU_NOTIFY = 1 << 7,
        FI_MR_RMA_EVENT = 1 << 8,
        FI_MR_ENDPOINT = 1 << 9,
        FI_MR_HMEM = 1 << 10,
        FI_MR_COLLECTIVE = 1 << 11,
    }

    "Message ordering bit in [`fi_tx_attr::msg_order`](super::fi_tx_attr::msg_order) and [`fi_rx_attr::msg_order`](super::fi_rx_attr::msg_order), `fi_endpoint`(3)." u64 {
        FI_ORDER_NONE = 0,
        FI_ORDER_RAR = 1 << 0,
        FI_ORDER_RAW = 1 << 1,
        FI_ORDER_RAS = 1 << 2,
        FI_ORDER_WAR = 1 << 3,
        FI_ORDER_WAW = 1 << 4,
        FI_ORDER_WAS = 1 << 5,
        FI_ORDER_SAR = 1 << 6,
        FI_ORDER_SAW = 1 << 7,
        FI_ORDER_SAS = 1 << 8,
        FI_ORDER_STRICT = 0x1ff,
        FI_ORDER_RMA_RAR = 1 << 32,
        FI_ORDER_RMA_RAW = 1 << 33,
        FI_ORDER_RMA_WAR = 1 << 34,
        FI_ORDER_RMA_WAW = 1 << 35,
        FI_ORDER_ATOMIC_RAR = 1 << 36,
        FI_ORDER_ATOMIC_RAW = 1 << 37,
        FI_ORDER_ATOMIC_WAR = 1 << 38,
        FI_ORDER_ATOMIC_WAW = 1 << 39,
        FI_ORDER_DATA = 1 << 16,
    }

    "Mode bit of [`fi_info::mode`](super::fi_info::mode), `fi_getinfo`(3)." u64 {
        FI_CONTEXT = 1 << 59,
        FI_MSG_PREFIX = 1 << 58,
        FI_ASYNC_IOV = 1 << 57,
        FI_RX_CQ_DATA = 1 << 56,
        FI_LOCAL_MR = 1 << 55,
        FI_CONTEXT2 = 1 << 52,
    }

    "Flag of `fi_ep_bind`(3): only operations with [`FI_COMPLETION`] write an entry." u64 {
        FI_SELECTIVE_COMPLETION = 1 << 59,
    }

    "Withdrawn flag, always zero, kept for old programs." u64 {
        FI_VARIABLE_MSG = 0,
        FI_NOTIFY_FLAGS_ONLY = 0,
        FI_RESTRICTED_COMP = 0,
    }

    "Withdrawn endpoint type, the same as [`FI_EP_UNSPEC`]." fi_ep_type {
        FI_EP_SOCK_STREAM = 0,
    }
}
