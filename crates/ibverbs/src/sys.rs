//! The structs of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as rdma-core 44 lays them out on 64-bit
//! Linux. Its ABI only adds, so later releases have them too.
//!
//! A struct that the libraries allocate ends here with the last field that is used. Those that this
//! crate allocates are whole. The assertions hold what the headers say to what is written here.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;

/// A function of a table that this crate does not call.
type Unused = Option<unsafe extern "C" fn()>;

/// `struct ibv_device`, the front.
#[repr(C)]
pub(crate) struct ibv_device {
    _ops: [Unused; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
}

/// `struct ibv_context_ops`: what rdma-core's inline functions call.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    _compat: [Unused; 11],
    pub(crate) poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    _compat_cq: [Unused; 7],
    pub(crate) post_srq_recv: post_srq_recv_fn,
    _compat_qp: [Unused; 4],
    pub(crate) post_send: post_send_fn,
    pub(crate) post_recv: post_recv_fn,
    _compat_rest: [Unused; 5],
}

pub(crate) type post_send_fn =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub(crate) type post_recv_fn =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub(crate) type post_srq_recv_fn =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// `struct ibv_context`, the front.
#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
}

/// `struct ibv_device_attr`.
#[repr(C)]
pub(crate) struct ibv_device_attr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: u32,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) max_mr: c_int,
    pub(crate) max_pd: c_int,
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) max_ee_rd_atom: c_int,
    pub(crate) max_res_rd_atom: c_int,
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) max_ee_init_rd_atom: c_int,
    pub(crate) atomic_cap: c_int,
    _ee_to_fmr: [c_int; 11],
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct ibv_port_attr`.
#[repr(C)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    _counters: [u32; 2],
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    _lmc_to_init_type: [u8; 5],
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct ibv_pd {
    context: *mut ibv_context,
    handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct ibv_mr {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct ibv_comp_channel {
    context: *mut ibv_context,
    pub(crate) fd: c_int,
    refcnt: c_int,
}

/// `struct ibv_cq`, the front.
#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
    cq_context: *mut c_void,
    handle: u32,
    pub(crate) cqe: c_int,
}

/// `struct ibv_srq`, the front.
#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
}

/// `struct ibv_qp`, the front.
#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    qp_context: *mut c_void,
    pd: *mut ibv_pd,
    send_cq: *mut ibv_cq,
    recv_cq: *mut ibv_cq,
    srq: *mut ibv_srq,
    handle: u32,
    pub(crate) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_qp_attr`, of which only one field is set.
#[repr(C)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) _state_to_rd_atomic: [u32; 31],
    pub(crate) min_rnr_timer: u8,
    pub(crate) _port_to_rate_limit: [u8; 7],
    pub(crate) rate_limit: u32,
    pub(crate) _padding: u32,
}

/// `struct ibv_srq_init_attr`, with its `struct ibv_srq_attr`.
#[repr(C)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// The part of a `struct ibv_send_wr` that the operation chooses: of writes and reads the first two
/// fields, with the key in the low half of the second.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union ibv_send_wr_remote {
    pub(crate) rdma: ibv_send_wr_rdma,
    pub(crate) atomic: ibv_send_wr_atomic,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_rdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr_atomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: u32,
    pub(crate) imm_data: u32,
    pub(crate) wr: ibv_send_wr_remote,
    pub(crate) qp_type: u64,
    pub(crate) bind_mw: [u64; 6],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: c_int,
    pub(crate) opcode: c_int,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: u32,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// A `struct sockaddr_storage`: room for any socket address.
pub(crate) const SOCKADDR_STORAGE: usize = 128;

/// `struct rdma_event_channel`.
#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

/// `struct rdma_cm_id`, the front.
#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) src_addr: SockaddrStorage,
    pub(crate) dst_addr: SockaddrStorage,
    _ib_addr: [u64; 5],
    _path_rec: *mut c_void,
    _num_paths: u64,
    ps: c_int,
    pub(crate) port_num: u8,
}

/// The bytes of a socket address.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub(crate) struct SockaddrStorage(pub(crate) [u8; SOCKADDR_STORAGE]);

/// `struct rdma_conn_param`.
#[repr(C)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

/// `struct rdma_cm_event` of connected ids, the front. Those of datagrams have more behind it.
#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: rdma_conn_param,
}

/// Sizes and offsets as a C compiler gives them for the headers.
macro_rules! layout {
    ($($name:ident $(size $size:literal)? { $($field:ident at $offset:literal)* })*) => { $(
        $(const _: () = assert!(size_of::<$name>() == $size);)?
        $(const _: () = assert!(offset_of!($name, $field) == $offset);)*
    )* };
}

#[cfg(target_pointer_width = "64")]
layout! {
    ibv_device { node_type at 16 transport_type at 20 name at 24 }
    ibv_context_ops size 256 {
        poll_cq at 88 req_notify_cq at 96 post_srq_recv at 160 post_send at 200 post_recv at 208
    }
    ibv_context { device at 0 ops at 8 cmd_fd at 264 async_fd at 268 num_comp_vectors at 272 }
    ibv_device_attr size 232 {
        node_guid at 64 max_mr_size at 80 vendor_id at 96 max_qp at 108 device_cap_flags at 116
        max_sge at 120 max_qp_rd_atom at 144 atomic_cap at 164 max_srq at 212 max_pkeys at 224
        phys_port_cnt at 227
    }
    ibv_port_attr size 52 {
        state at 0 gid_tbl_len at 12 max_msg_sz at 20 pkey_tbl_len at 32 lid at 34 active_width at 43
        active_speed at 44 link_layer at 46 flags at 47 port_cap_flags2 at 48
    }
    ibv_pd size 16 {}
    ibv_mr size 48 { addr at 16 length at 24 lkey at 36 rkey at 40 }
    ibv_comp_channel size 16 { fd at 8 }
    ibv_cq { context at 0 channel at 8 cqe at 28 }
    ibv_srq { context at 0 }
    ibv_qp { context at 0 qp_num at 52 }
    ibv_qp_cap size 20 {}
    ibv_qp_init_attr size 64 { send_cq at 8 srq at 24 cap at 32 qp_type at 52 sq_sig_all at 56 }
    ibv_qp_attr size 144 { min_rnr_timer at 128 rate_limit at 136 }
    ibv_srq_init_attr size 24 { max_wr at 8 }
    ibv_sge size 16 { addr at 0 length at 8 lkey at 12 }
    ibv_send_wr_rdma { rkey at 8 }
    ibv_send_wr_atomic size 32 { compare_add at 8 swap at 16 rkey at 24 }
    ibv_send_wr size 128 {
        next at 8 sg_list at 16 num_sge at 24 opcode at 28 send_flags at 32 imm_data at 36 wr at 40
        qp_type at 72 bind_mw at 80
    }
    ibv_recv_wr size 32 { next at 8 sg_list at 16 num_sge at 24 }
    ibv_wc size 48 {
        status at 8 opcode at 12 vendor_err at 16 byte_len at 20 imm_data at 24 qp_num at 28
        wc_flags at 36 dlid_path_bits at 45
    }
    rdma_event_channel size 4 {}
    rdma_cm_id {
        verbs at 0 channel at 8 context at 16 qp at 24 src_addr at 32 dst_addr at 160 ps at 344
        port_num at 348
    }
    rdma_conn_param size 24 {
        private_data_len at 8 responder_resources at 9 initiator_depth at 10 flow_control at 11
        retry_count at 12 rnr_retry_count at 13 srq at 14 qp_num at 16
    }
    rdma_cm_event { id at 0 listen_id at 8 event at 16 status at 20 conn at 24 }
}

// enum ibv_qp_type
pub(crate) const IBV_QPT_RC: c_int = 2;

// enum ibv_qp_attr_mask
pub(crate) const IBV_QP_MIN_RNR_TIMER: c_int = 1 << 15;

// enum ibv_wr_opcode
pub(crate) const IBV_WR_RDMA_WRITE: c_int = 0;
pub(crate) const IBV_WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(crate) const IBV_WR_SEND: c_int = 2;
pub(crate) const IBV_WR_SEND_WITH_IMM: c_int = 3;
pub(crate) const IBV_WR_RDMA_READ: c_int = 4;
pub(crate) const IBV_WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub(crate) const IBV_WR_ATOMIC_FETCH_AND_ADD: c_int = 6;

// enum ibv_send_flags
pub(crate) const IBV_SEND_FENCE: u32 = 1;
pub(crate) const IBV_SEND_SIGNALED: u32 = 2;
pub(crate) const IBV_SEND_SOLICITED: u32 = 4;
pub(crate) const IBV_SEND_INLINE: u32 = 8;

// enum ibv_wc_opcode
pub(crate) const IBV_WC_RDMA_WRITE: c_int = 1;
pub(crate) const IBV_WC_RDMA_READ: c_int = 2;
pub(crate) const IBV_WC_COMP_SWAP: c_int = 3;
pub(crate) const IBV_WC_FETCH_ADD: c_int = 4;
pub(crate) const IBV_WC_RECV: c_int = 128;
pub(crate) const IBV_WC_RECV_RDMA_WITH_IMM: c_int = 129;

// enum ibv_wc_flags
pub(crate) const IBV_WC_WITH_IMM: u32 = 2;

// enum rdma_port_space
pub(crate) const RDMA_PS_TCP: c_int = 0x0106;
