//! The structs and constants of `infiniband/verbs.h` and `rdma/rdma_cma.h`, as rdma-core lays them out on
//! 64-bit Linux since its release 44; its ABI only adds.
//!
//! These are facts of rdma-core's headers, for this crate, which calls rdma-core, and for `verbs-shim`, which programs
//! call in place of it; nothing here calls anything. Names and fields are those of the headers. The assertions hold
//! what a C compiler says of them.
#![allow(
    missing_docs,
    non_camel_case_types,
    missing_debug_implementations,
    reason = "the headers and their manual pages say what each field is, and their names are kept"
)]

use core::ffi::{c_char, c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::AtomicI32;

/// Sizes and offsets as a C compiler gives them for the headers.
macro_rules! layout {
    ($($name:ident $(size $size:literal)? { $($($field:ident).+ at $offset:literal)* })*) => { $(
        $(const _: () = assert!(size_of::<$name>() == $size);)?
        $(const _: () = assert!(offset_of!($name, $($field).+) == $offset);)*
    )* };
}

mod cma;
mod consts;
mod ex;

pub use cma::*;
pub use consts::*;
pub use ex::*;

/// A function of a table that is reached by its true type only.
pub type AnyFn = unsafe extern "C" fn() -> c_int;

/// `struct ibv_device`.
#[repr(C)]
pub struct ibv_device {
    pub ops: [Option<AnyFn>; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

/// `struct ibv_context_ops`: what the inline functions of the headers call.
#[repr(C)]
pub struct ibv_context_ops {
    pub query_to_dereg: [Option<AnyFn>; 7],
    pub alloc_mw: Option<unsafe extern "C" fn() -> *mut c_void>,
    pub bind_mw: Option<AnyFn>,
    pub dealloc_mw: Option<AnyFn>,
    pub create_cq: Option<AnyFn>,
    pub poll_cq: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    pub req_notify_cq: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    pub cq_and_srq: [Option<AnyFn>; 7],
    pub post_srq_recv: post_srq_recv_fn,
    pub qp: [Option<AnyFn>; 4],
    pub post_send: post_send_fn,
    pub post_recv: post_recv_fn,
    pub ah_to_async: [Option<AnyFn>; 5],
}

/// What posts requests to send.
pub type post_send_fn =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
/// What posts receives.
pub type post_recv_fn =
    unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
/// What posts receives to a shared queue.
pub type post_srq_recv_fn =
    unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;

/// `struct ibv_context`. Where `abi_compat` is null, programs see a device without the extended calls.
#[repr(C)]
pub struct ibv_context {
    pub device: *mut ibv_device,
    pub ops: ibv_context_ops,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: [u64; 5],
    pub abi_compat: *mut c_void,
}

/// `struct ibv_device_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: u32,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub ee_to_fmr: [c_int; 11],
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

/// `struct _compat_ibv_port_attr`: what the exported `ibv_query_port` fills in.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct compat_ibv_port_attr {
    pub state: c_int,
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    pub link_layer: u8,
    pub flags: u8,
}

/// `struct ibv_port_attr`. What is behind the front, the inline function of the headers clears.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_port_attr {
    pub front: compat_ibv_port_attr,
    pub port_cap_flags2: u16,
}

/// `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_gid(pub [u8; 16]);

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_gid_entry {
    pub gid: ibv_gid,
    pub gid_index: u32,
    pub port_num: u32,
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct ibv_pd {
    pub context: *mut ibv_context,
    pub handle: u32,
}

/// `struct ibv_mr`.
#[repr(C)]
pub struct ibv_mr {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub addr: *mut c_void,
    pub length: usize,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

/// `struct ibv_ah`.
#[repr(C)]
pub struct ibv_ah {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
    pub handle: u32,
}

/// `struct ibv_comp_channel`.
#[repr(C)]
pub struct ibv_comp_channel {
    pub context: *mut ibv_context,
    pub fd: c_int,
    pub refcnt: c_int,
}

/// `struct ibv_cq`.
#[repr(C)]
pub struct ibv_cq {
    pub context: *mut ibv_context,
    pub channel: *mut ibv_comp_channel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex_and_cond: [u64; 11],
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

/// `struct ibv_srq`.
#[repr(C)]
pub struct ibv_srq {
    pub context: *mut ibv_context,
    pub srq_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub handle: u32,
    pub mutex_and_cond: [u64; 11],
    pub events_completed: u32,
}

/// `struct ibv_srq_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_srq_attr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

/// `struct ibv_srq_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_srq_init_attr {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
}

/// `struct ibv_srq_init_attr_ex`, which begins as a `struct ibv_srq_init_attr` does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_srq_init_attr_ex {
    pub srq_context: *mut c_void,
    pub attr: ibv_srq_attr,
    pub comp_mask: u32,
    pub srq_type: c_int,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub cq: *mut ibv_cq,
    pub tm_cap: [u32; 2],
}

/// `struct ibv_qp`.
#[repr(C)]
pub struct ibv_qp {
    pub context: *mut ibv_context,
    pub qp_context: *mut c_void,
    pub pd: *mut ibv_pd,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: AtomicI32,
    pub qp_type: c_int,
    pub mutex_and_cond: [u64; 11],
    pub events_completed: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_qp_cap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_init_attr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

/// `struct ibv_ah_attr` with its `struct ibv_global_route`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_ah_attr {
    pub dgid: ibv_gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct ibv_qp_attr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: u32,
    pub cap: ibv_qp_cap,
    pub ah_attr: ibv_ah_attr,
    pub alt_ah_attr: ibv_ah_attr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

/// The part of a `struct ibv_send_wr` that the operation chooses: of writes and reads the first two
/// fields, with the key in the low half of the second.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_send_wr_remote {
    pub rdma: ibv_send_wr_rdma,
    pub atomic: ibv_send_wr_atomic,
    pub ud: ibv_send_wr_ud,
}

/// Of writes and reads.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr_rdma {
    pub remote_addr: u64,
    pub rkey: u32,
}

/// Of atomics.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr_atomic {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

/// Of datagrams.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_send_wr_ud {
    pub ah: *mut ibv_ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// `struct ibv_send_wr`.
#[repr(C)]
pub struct ibv_send_wr {
    pub wr_id: u64,
    pub next: *mut ibv_send_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
    pub opcode: c_int,
    pub send_flags: u32,
    pub imm_data: u32,
    pub wr: ibv_send_wr_remote,
    pub qp_type: u64,
    pub bind_mw: [u64; 6],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub struct ibv_recv_wr {
    pub wr_id: u64,
    pub next: *mut ibv_recv_wr,
    pub sg_list: *mut ibv_sge,
    pub num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ibv_wc {
    pub wr_id: u64,
    pub status: c_int,
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: u32,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

/// What an asynchronous event is about: the union in `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub union ibv_async_element {
    pub cq: *mut ibv_cq,
    pub qp: *mut ibv_qp,
    pub srq: *mut ibv_srq,
    pub port_num: c_int,
}

/// `struct ibv_async_event`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_async_event {
    pub element: ibv_async_element,
    pub event_type: c_int,
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
    compat_ibv_port_attr size 48 {
        state at 0 max_mtu at 4 active_mtu at 8 gid_tbl_len at 12 max_msg_sz at 20 pkey_tbl_len at 32
        lid at 34 active_width at 43 active_speed at 44 phys_state at 45 link_layer at 46 flags at 47
    }
    ibv_port_attr size 52 { port_cap_flags2 at 48 }
    ibv_gid size 16 {}
    ibv_gid_entry size 32 { gid_index at 16 port_num at 20 gid_type at 24 ndev_ifindex at 28 }
    ibv_pd size 16 { handle at 8 }
    ibv_mr size 48 { pd at 8 addr at 16 length at 24 handle at 32 lkey at 36 rkey at 40 }
    ibv_comp_channel size 16 { fd at 8 refcnt at 12 }
    ibv_cq size 128 { channel at 8 cq_context at 16 handle at 24 cqe at 28 comp_events_completed at 120 }
    ibv_srq size 128 { srq_context at 8 pd at 16 handle at 24 events_completed at 120 }
    ibv_srq_attr size 12 { max_sge at 4 srq_limit at 8 }
    ibv_srq_init_attr size 24 { attr at 8 }
    ibv_srq_init_attr_ex size 64 { attr at 8 comp_mask at 20 srq_type at 24 pd at 32 cq at 48 tm_cap at 56 }
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
    ibv_send_wr_rdma size 16 { rkey at 8 }
    ibv_ah size 24 { pd at 8 }
    ibv_send_wr_ud size 16 { remote_qpn at 8 remote_qkey at 12 }
    ibv_send_wr_atomic size 32 { compare_add at 8 swap at 16 rkey at 24 }
    ibv_send_wr size 128 {
        next at 8 sg_list at 16 num_sge at 24 opcode at 28 send_flags at 32 imm_data at 36 wr at 40
        qp_type at 72 bind_mw at 80
    }
    ibv_async_event size 16 { event_type at 8 }
    ibv_recv_wr size 32 { next at 8 sg_list at 16 num_sge at 24 }
    ibv_wc size 48 {
        status at 8 opcode at 12 vendor_err at 16 byte_len at 20 imm_data at 24 qp_num at 28 src_qp at 32
        wc_flags at 36 pkey_index at 40 slid at 42 sl at 44 dlid_path_bits at 45
    }
}
