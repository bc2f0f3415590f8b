//! The structs of `infiniband/verbs.h` and `rdma/rdma_cma.h` that programs read and write, as rdma-core lays
//! them out on 64-bit Linux since its release 44; its ABI only adds.
//!
//! Names and fields are those of the headers. The assertions hold what a C compiler says of them.

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64};

/// A function of a table that programs reach by its true type only.
pub(crate) type AnyFn = unsafe extern "C" fn() -> c_int;

/// `struct ibv_device`.
#[repr(C)]
pub(crate) struct ibv_device {
    pub(crate) ops: [Option<AnyFn>; 2],
    pub(crate) node_type: c_int,
    pub(crate) transport_type: c_int,
    pub(crate) name: [c_char; 64],
    pub(crate) dev_name: [c_char; 64],
    pub(crate) dev_path: [c_char; 256],
    pub(crate) ibdev_path: [c_char; 256],
}

/// `struct ibv_context_ops`: what the inline functions of the headers call.
#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) query_to_dereg: [AnyFn; 7],
    pub(crate) alloc_mw: unsafe extern "C" fn() -> *mut c_void,
    pub(crate) bind_mw: AnyFn,
    pub(crate) dealloc_mw: AnyFn,
    pub(crate) create_cq: AnyFn,
    pub(crate) poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub(crate) req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub(crate) cq_and_srq: [AnyFn; 7],
    pub(crate) post_srq_recv: AnyFn,
    pub(crate) qp: [AnyFn; 4],
    pub(crate) post_send:
        unsafe extern "C" fn(*mut ibv_qp, *const ibv_send_wr, *mut *const ibv_send_wr) -> c_int,
    pub(crate) post_recv:
        unsafe extern "C" fn(*mut ibv_qp, *const ibv_recv_wr, *mut *const ibv_recv_wr) -> c_int,
    pub(crate) ah_to_async: [AnyFn; 5],
}

/// `struct ibv_context`. `abi_compat` is null: programs see a device without the extended calls.
#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: [u64; 5],
    pub(crate) abi_compat: *mut c_void,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
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
    pub(crate) ee_to_fmr: [c_int; 11],
    pub(crate) max_srq: c_int,
    pub(crate) max_srq_wr: c_int,
    pub(crate) max_srq_sge: c_int,
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct _compat_ibv_port_attr`: what `ibv_query_port` fills in. `struct ibv_port_attr` has fields behind
/// it, which the inline function of the headers clears.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_port_attr {
    pub(crate) state: c_int,
    pub(crate) max_mtu: c_int,
    pub(crate) active_mtu: c_int,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
}

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_gid(pub(crate) [u8; 16]);

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_gid_entry {
    pub(crate) gid: ibv_gid,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// `struct ibv_pd`.
#[repr(C)]
pub(crate) struct ibv_pd {
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct ibv_mr {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex_and_cond: [u64; 11],
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

/// `struct ibv_qp`.
#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: AtomicI32,
    pub(crate) qp_type: c_int,
    pub(crate) mutex_and_cond: [u64; 11],
    pub(crate) events_completed: u32,
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
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: c_int,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_ah_attr` with its `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_ah_attr {
    pub(crate) dgid: ibv_gid,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: c_int,
    pub(crate) cur_qp_state: c_int,
    pub(crate) path_mtu: c_int,
    pub(crate) path_mig_state: c_int,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: u32,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`. Its union of remote addresses is four words: address and key of a write or read;
/// address, `compare_add`, `swap` and key of an atomic.
#[repr(C)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *const ibv_send_wr,
    pub(crate) sg_list: *const ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_int,
    pub(crate) send_flags: u32,
    pub(crate) imm_data: u32,
    pub(crate) remote: [u64; 4],
    pub(crate) qp_type: u64,
    pub(crate) bind_mw: [u64; 6],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *const ibv_recv_wr,
    pub(crate) sg_list: *const ibv_sge,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

/// `struct sockaddr_storage`: room for any socket address.
#[repr(C)]
#[derive(Default)]
pub(crate) struct SockaddrStorage(pub(crate) [AtomicU64; 16]);

/// `struct rdma_event_channel`.
#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

/// `struct rdma_cm_id`. The program reads and writes it while this library has it too.
#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: AtomicPtr<ibv_context>,
    pub(crate) channel: AtomicPtr<rdma_event_channel>,
    pub(crate) context: AtomicPtr<c_void>,
    pub(crate) qp: AtomicPtr<ibv_qp>,
    pub(crate) src_addr: SockaddrStorage,
    pub(crate) dst_addr: SockaddrStorage,
    pub(crate) ib_addr: [AtomicU64; 5],
    pub(crate) path_rec: AtomicPtr<c_void>,
    pub(crate) num_paths: AtomicU64,
    pub(crate) ps: AtomicI32,
    pub(crate) port_num: AtomicU8,
    pub(crate) event: AtomicPtr<rdma_cm_event>,
    pub(crate) send_cq_channel: AtomicPtr<ibv_comp_channel>,
    pub(crate) send_cq: AtomicPtr<ibv_cq>,
    pub(crate) recv_cq_channel: AtomicPtr<ibv_comp_channel>,
    pub(crate) recv_cq: AtomicPtr<ibv_cq>,
    pub(crate) srq: AtomicPtr<c_void>,
    pub(crate) pd: AtomicPtr<ibv_pd>,
    pub(crate) qp_type: AtomicI32,
}

/// `struct rdma_conn_param`.
#[repr(C)]
#[derive(Clone, Copy)]
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

/// `struct rdma_cm_event`, with as much behind the parameters of a connection as those of datagrams have.
#[repr(C)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: c_int,
    pub(crate) status: c_int,
    pub(crate) conn: rdma_conn_param,
    pub(crate) rest: [u64; 4],
}

/// `struct rdma_addrinfo`.
#[repr(C)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: u32,
    pub(crate) ai_dst_len: u32,
    pub(crate) ai_src_addr: *mut c_void,
    pub(crate) ai_dst_addr: *mut c_void,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
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
    ibv_device size 664 {
        node_type at 16 transport_type at 20 name at 24 dev_name at 88 dev_path at 152 ibdev_path at 408
    }
    ibv_context_ops size 256 {
        alloc_mw at 56 bind_mw at 64 dealloc_mw at 72 poll_cq at 88 req_notify_cq at 96
        post_srq_recv at 160 post_send at 200 post_recv at 208
    }
    ibv_context size 328 {
        device at 0 ops at 8 cmd_fd at 264 async_fd at 268 num_comp_vectors at 272 mutex at 280
        abi_compat at 320
    }
    ibv_device_attr size 232 {
        node_guid at 64 sys_image_guid at 72 max_mr_size at 80 page_size_cap at 88 vendor_id at 96
        max_qp at 108 max_qp_wr at 112 device_cap_flags at 116 max_sge at 120 max_sge_rd at 124
        max_cq at 128 max_cqe at 132 max_mr at 136 max_pd at 140 max_qp_rd_atom at 144
        max_qp_init_rd_atom at 156 atomic_cap at 164 max_srq at 212 max_pkeys at 224 phys_port_cnt at 227
    }
    ibv_port_attr size 48 {
        state at 0 max_mtu at 4 active_mtu at 8 gid_tbl_len at 12 max_msg_sz at 20 pkey_tbl_len at 32
        lid at 34 active_width at 43 active_speed at 44 phys_state at 45 link_layer at 46 flags at 47
    }
    ibv_gid size 16 {}
    ibv_gid_entry size 32 { gid_index at 16 port_num at 20 gid_type at 24 ndev_ifindex at 28 }
    ibv_pd size 16 { handle at 8 }
    ibv_mr size 48 { pd at 8 addr at 16 length at 24 handle at 32 lkey at 36 rkey at 40 }
    ibv_comp_channel size 16 { fd at 8 refcnt at 12 }
    ibv_cq size 128 { channel at 8 cq_context at 16 handle at 24 cqe at 28 comp_events_completed at 120 }
    ibv_qp size 160 {
        qp_context at 8 pd at 16 send_cq at 24 recv_cq at 32 srq at 40 handle at 48 qp_num at 52
        state at 56 qp_type at 60 events_completed at 152
    }
    ibv_qp_cap size 20 { max_recv_wr at 4 max_send_sge at 8 max_recv_sge at 12 max_inline_data at 16 }
    ibv_qp_init_attr size 64 {
        send_cq at 8 recv_cq at 16 srq at 24 cap at 32 qp_type at 52 sq_sig_all at 56
    }
    ibv_ah_attr size 32 { flow_label at 16 sgid_index at 20 dlid at 24 is_global at 29 port_num at 30 }
    ibv_qp_attr size 144 {
        path_mtu at 8 qkey at 16 rq_psn at 20 sq_psn at 24 dest_qp_num at 28 qp_access_flags at 32
        cap at 36 ah_attr at 56 alt_ah_attr at 88 pkey_index at 120 max_rd_atomic at 126
        min_rnr_timer at 128 port_num at 129 timeout at 130 retry_cnt at 131 rnr_retry at 132
        rate_limit at 136
    }
    ibv_sge size 16 { addr at 0 length at 8 lkey at 12 }
    ibv_send_wr size 128 {
        next at 8 sg_list at 16 num_sge at 24 opcode at 28 send_flags at 32 imm_data at 36 remote at 40
        qp_type at 72 bind_mw at 80
    }
    ibv_recv_wr size 32 { next at 8 sg_list at 16 num_sge at 24 }
    ibv_wc size 48 {
        status at 8 opcode at 12 vendor_err at 16 byte_len at 20 imm_data at 24 qp_num at 28 src_qp at 32
        wc_flags at 36 pkey_index at 40 slid at 42 sl at 44 dlid_path_bits at 45
    }
    rdma_event_channel size 4 {}
    rdma_cm_id size 416 {
        channel at 8 context at 16 qp at 24 src_addr at 32 dst_addr at 160 path_rec at 328
        num_paths at 336 ps at 344 port_num at 348 event at 352 send_cq_channel at 360 srq at 392 pd at 400
        qp_type at 408
    }
    rdma_conn_param size 24 {
        private_data_len at 8 responder_resources at 9 initiator_depth at 10 flow_control at 11
        retry_count at 12 rnr_retry_count at 13 srq at 14 qp_num at 16
    }
    rdma_cm_event size 80 { listen_id at 8 event at 16 status at 20 conn at 24 }
    rdma_addrinfo size 96 {
        ai_port_space at 12 ai_src_len at 16 ai_src_addr at 24 ai_dst_addr at 32 ai_src_canonname at 40
        ai_route_len at 56 ai_route at 64 ai_connect_len at 72 ai_connect at 80 ai_next at 88
    }
}
