//! The structs of the extended calls: what is in front of a `struct ibv_context`, and behind queues.

use core::ffi::{c_int, c_uint, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64};

use super::{
    AnyFn, ibv_ah, ibv_comp_channel, ibv_context, ibv_cq, ibv_device_attr, ibv_pd, ibv_qp,
    ibv_qp_cap, ibv_qp_init_attr, ibv_sge, ibv_srq,
};

/// What `abi_compat` of a `struct ibv_context` is that is a part of a `struct verbs_context`:
/// `__VERBS_ABI_IS_EXTENDED`.
pub const VERBS_ABI_IS_EXTENDED: usize = usize::MAX;

/// `struct verbs_context`, without the `struct ibv_context` at its end. Programs find a function by its distance from
/// there, if `sz` says that it is there, and it is not null.
#[repr(C)]
pub struct verbs_context {
    pub query_port_to_query_rt_values: [Option<AnyFn>; 25],
    pub create_cq_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub priv_: *mut c_void,
    pub query_device_ex: Option<
        unsafe extern "C" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub destroy_flow_to_open_qp: [Option<AnyFn>; 5],
    pub create_qp_ex:
        Option<unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub get_srq_num_to_close_xrcd: [Option<AnyFn>; 4],
    pub placeholder3: u64,
    pub sz: usize,
}

/// `struct ibv_query_device_ex_input`.
#[repr(C)]
pub struct ibv_query_device_ex_input {
    pub comp_mask: u32,
}

/// `struct ibv_device_attr_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_device_attr_ex {
    pub orig_attr: ibv_device_attr,
    pub comp_mask: u32,
    pub odp_caps: [u64; 3],
    pub completion_timestamp_mask: u64,
    pub hca_core_clock: u64,
    pub device_cap_flags_ex: u64,
    pub tso_to_xrc_odp_caps: [u32; 27],
    pub phys_port_cnt_ex: u32,
}

/// `struct ibv_cq_init_attr_ex`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_cq_init_attr_ex {
    pub cqe: u32,
    pub cq_context: *mut c_void,
    pub channel: *mut ibv_comp_channel,
    pub comp_vector: u32,
    pub wc_flags: u64,
    pub comp_mask: u32,
    pub flags: u32,
    pub parent_domain: *mut ibv_pd,
}

/// `struct ibv_poll_cq_attr`.
#[repr(C)]
pub struct ibv_poll_cq_attr {
    pub comp_mask: u32,
}

/// `struct ibv_cq_ex`. The device writes `status` and `wr_id` of the completion that is being looked at.
#[repr(C)]
pub struct ibv_cq_ex {
    /// Its first fields are those of a `struct ibv_cq`.
    pub base: ibv_cq,
    pub comp_mask: u32,
    pub status: AtomicI32,
    pub wr_id: AtomicU64,
    pub start_poll: unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int,
    pub next_poll: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int,
    pub end_poll: unsafe extern "C" fn(*mut ibv_cq_ex),
    pub read_opcode: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_int,
    pub read_vendor_err: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_byte_len: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_imm_data: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_qp_num: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_src_qp: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_wc_flags: unsafe extern "C" fn(*mut ibv_cq_ex) -> c_uint,
    pub read_slid: unsafe extern "C" fn(*mut ibv_cq_ex) -> u32,
    pub read_sl: unsafe extern "C" fn(*mut ibv_cq_ex) -> u8,
    pub read_dlid_path_bits: unsafe extern "C" fn(*mut ibv_cq_ex) -> u8,
    /// What a queue has only if it was created so.
    pub read_completion_ts_to_wallclock_ns: [Option<AnyFn>; 5],
}

/// `struct ibv_qp_init_attr_ex`, which begins as a `struct ibv_qp_init_attr` does.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_qp_init_attr_ex {
    pub qp_context: *mut c_void,
    pub send_cq: *mut ibv_cq,
    pub recv_cq: *mut ibv_cq,
    pub srq: *mut ibv_srq,
    pub cap: ibv_qp_cap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
    pub comp_mask: u32,
    pub pd: *mut ibv_pd,
    pub xrcd: *mut c_void,
    pub create_flags: u32,
    pub max_tso_header: u16,
    pub rwq_ind_tbl: *mut c_void,
    pub rx_hash_conf: [u64; 3],
    pub source_qpn: u32,
    pub send_ops_flags: u64,
}

impl ibv_qp_init_attr_ex {
    /// The front, which is all that a queue pair without extensions has.
    #[must_use]
    pub const fn plain(&self) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: self.qp_context,
            send_cq: self.send_cq,
            recv_cq: self.recv_cq,
            srq: self.srq,
            cap: self.cap,
            qp_type: self.qp_type,
            sq_sig_all: self.sq_sig_all,
        }
    }
}

/// `struct ibv_data_buf`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ibv_data_buf {
    pub addr: *mut c_void,
    pub length: usize,
}

/// `struct ibv_qp_ex`. The program writes `wr_id` and `wr_flags` before each request.
#[repr(C)]
pub struct ibv_qp_ex {
    pub qp_base: ibv_qp,
    pub comp_mask: u64,
    pub wr_id: AtomicU64,
    pub wr_flags: AtomicU32,
    pub wr_atomic_cmp_swp: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64, u64),
    pub wr_atomic_fetch_add: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u64),
    pub wr_bind_mw: unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u32, *const c_void),
    pub wr_local_inv: unsafe extern "C" fn(*mut ibv_qp_ex, u32),
    pub wr_rdma_read: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64),
    pub wr_rdma_write: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64),
    pub wr_rdma_write_imm: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32),
    pub wr_send: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_send_imm: unsafe extern "C" fn(*mut ibv_qp_ex, u32),
    pub wr_send_inv: unsafe extern "C" fn(*mut ibv_qp_ex, u32),
    pub wr_send_tso: unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, u16, u16),
    pub wr_set_ud_addr: unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32),
    pub wr_set_xrc_srqn: unsafe extern "C" fn(*mut ibv_qp_ex, u32),
    pub wr_set_inline_data: unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize),
    pub wr_set_inline_data_list: unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf),
    pub wr_set_sge: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32),
    pub wr_set_sge_list: unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge),
    pub wr_start: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_complete: unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int,
    pub wr_abort: unsafe extern "C" fn(*mut ibv_qp_ex),
    pub wr_atomic_write: unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, *const c_void),
}

// enum ibv_create_cq_wc_flags
/// Those that every queue has: `IBV_WC_STANDARD_FLAGS`.
pub const IBV_WC_STANDARD_FLAGS: u64 = 0x7f;

// enum ibv_cq_init_attr_mask
pub const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;

// enum ibv_create_cq_attr_flags
pub const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 2;

// enum ibv_qp_init_attr_mask
pub const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;

// enum ibv_qp_create_send_ops_flags
/// Writes, sends, reads, and atomics on 8 bytes.
pub const IBV_QP_EX_WITH_BASIC: u64 = 0x7f;
/// Sends, with immediate data or without.
pub const IBV_QP_EX_WITH_SENDS: u64 = 1 << 2 | 1 << 3;

#[cfg(target_pointer_width = "64")]
layout! {
    verbs_context size 320 {
        create_cq_ex at 200 priv_ at 208 query_device_ex at 216 create_qp_ex at 264
        get_srq_num_to_close_xrcd at 272 sz at 312
    }
    ibv_device_attr_ex size 400 {
        comp_mask at 232 odp_caps at 240 completion_timestamp_mask at 264 device_cap_flags_ex at 280
        phys_port_cnt_ex at 396
    }
    ibv_cq_init_attr_ex size 56 {
        cq_context at 8 channel at 16 comp_vector at 24 wc_flags at 32 comp_mask at 40 flags at 44
        parent_domain at 48
    }
    ibv_poll_cq_attr size 4 {}
    ibv_cq_ex size 288 {
        comp_mask at 128 status at 132 wr_id at 136 start_poll at 144
        read_completion_ts_to_wallclock_ns at 248
    }
    ibv_qp_init_attr_ex size 136 {
        comp_mask at 60 pd at 64 xrcd at 72 create_flags at 80 max_tso_header at 84 rwq_ind_tbl at 88
        rx_hash_conf at 96 source_qpn at 120 send_ops_flags at 128
    }
    ibv_data_buf size 16 { length at 8 }
    ibv_qp_ex size 352 {
        comp_mask at 160 wr_id at 168 wr_flags at 176 wr_atomic_cmp_swp at 184 wr_send at 240
        wr_set_inline_data at 288 wr_start at 320 wr_atomic_write at 344
    }
}
