//! Mirror of `rdma/fi_domain.h`: address vectors, memory regions and the domain.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::ptr;

use crate::fabric::{fi_addr_t, fi_av_type, fi_info, fi_rx_attr, fi_tx_attr, fid, iovec};
use crate::fi_atomic::fi_atomic_attr;
use crate::fi_collective::{fi_collective_attr, fid_av_set};
use crate::fi_endpoint::{fid_ep, fid_stx};
use crate::fi_eq::{fi_cntr_attr, fi_cq_attr, fi_poll_attr, fid_cntr, fid_cq, fid_poll};

/// Kind of device memory, `fi_mr`(3). Any value may arrive from C.
pub type fi_hmem_iface = c_uint;

constants! {
    "Kind of device memory, `fi_mr`(3)." fi_hmem_iface {
        FI_HMEM_SYSTEM = 0,
        FI_HMEM_CUDA = 1,
        FI_HMEM_ROCR = 2,
        FI_HMEM_ZE = 3,
        FI_HMEM_NEURON = 4,
        FI_HMEM_SYNAPSEAI = 5,
    }
}

/// Atomic data type, `fi_atomic`(3). Any value may arrive from C.
pub type fi_datatype = c_uint;

constants! {
    "Atomic data type, `fi_atomic`(3)." fi_datatype {
        FI_INT8 = 0,
        FI_UINT8 = 1,
        FI_INT16 = 2,
        FI_UINT16 = 3,
        FI_INT32 = 4,
        FI_UINT32 = 5,
        FI_INT64 = 6,
        FI_UINT64 = 7,
        FI_FLOAT = 8,
        FI_DOUBLE = 9,
        FI_FLOAT_COMPLEX = 10,
        FI_DOUBLE_COMPLEX = 11,
        FI_LONG_DOUBLE = 12,
        FI_LONG_DOUBLE_COMPLEX = 13,
        FI_INT128 = 14,
        FI_UINT128 = 15,
        FI_FLOAT16 = 16,
        FI_BFLOAT16 = 17,
        FI_FLOAT8_E4M3 = 18,
        FI_FLOAT8_E5M2 = 19,
        FI_VOID = 256,
    }
}

/// Atomic operation, `fi_atomic`(3). Any value may arrive from C.
pub type fi_op = c_uint;

constants! {
    "Atomic operation, `fi_atomic`(3)." fi_op {
        FI_MIN = 0,
        FI_MAX = 1,
        FI_SUM = 2,
        FI_PROD = 3,
        FI_LOR = 4,
        FI_LAND = 5,
        FI_BOR = 6,
        FI_BAND = 7,
        FI_LXOR = 8,
        FI_BXOR = 9,
        FI_ATOMIC_READ = 10,
        FI_ATOMIC_WRITE = 11,
        FI_CSWAP = 12,
        FI_CSWAP_NE = 13,
        FI_CSWAP_LE = 14,
        FI_CSWAP_LT = 15,
        FI_CSWAP_GE = 16,
        FI_CSWAP_GT = 17,
        FI_MSWAP = 18,
        FI_DIFF = 19,
        FI_NOOP = 256,
    }
}

/// Collective operation, `fi_collective`(3). Any value may arrive from C.
pub type fi_collective_op = c_uint;

constants! {
    "Collective operation, `fi_collective`(3)." fi_collective_op {
        FI_BARRIER = 0,
        FI_BROADCAST = 1,
        FI_ALLTOALL = 2,
        FI_ALLREDUCE = 3,
        FI_ALLGATHER = 4,
        FI_REDUCE_SCATTER = 5,
        FI_REDUCE = 6,
        FI_SCATTER = 7,
        FI_GATHER = 8,
    }
}

constants! {
    "Address vector flag, `fi_av`(3)." u64 {
        FI_SYMMETRIC = 1 << 59,
        FI_SYNC_ERR = 1 << 58,
        FI_UNIVERSE = 1 << 57,
    }
}

constants! {
    "Flag of [`fi_av_set_attr::flags`], `fi_collective`(3)." u64 {
        FI_BARRIER_SET = 1 << 40,
        FI_BROADCAST_SET = 1 << 41,
        FI_ALLTOALL_SET = 1 << 42,
        FI_ALLREDUCE_SET = 1 << 43,
        FI_ALLGATHER_SET = 1 << 44,
        FI_REDUCE_SCATTER_SET = 1 << 45,
        FI_REDUCE_SET = 1 << 46,
        FI_SCATTER_SET = 1 << 47,
        FI_GATHER_SET = 1 << 48,
    }
}

constants! {
    "Flag of `fi_mr_regattr`(3)." u64 {
        FI_MR_DMABUF = 1 << 40,
        FI_MR_SINGLE_USE = 1 << 41,
        FI_HMEM_HOST_ALLOC = 1 << 45,
        FI_HMEM_DEVICE_ONLY = 1 << 46,
    }
}

constants! {
    "First value of collective-only data types and operations." c_uint {
        FI_COLLECTIVE_OFFSET = 256,
    }
}

constants! {
    "Flag of `fi_domain_bind`(3), deprecated." u64 {
        FI_REG_MR = 1 << 59,
    }
}

/// Name of the override table of `fi_set_ops`(3) for copies to and from device memory.
pub const FI_SET_OPS_HMEM_OVERRIDE: &CStr = c"hmem_override_ops";

/// Attributes of an address vector, `fi_av`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_av_attr {
    pub type_: fi_av_type,
    pub rx_ctx_bits: c_int,
    pub count: usize,
    pub ep_per_node: usize,
    pub name: *const c_char,
    pub map_addr: *mut c_void,
    pub flags: u64,
}

/// Attributes of an address vector set, `fi_av_set`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_av_set_attr {
    pub count: usize,
    pub start_addr: fi_addr_t,
    pub end_addr: fi_addr_t,
    pub stride: u64,
    pub comm_key_size: usize,
    pub comm_key: *mut u8,
    pub flags: u64,
}

/// Operations of an address vector, `fi_av`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_av {
    pub size: usize,
    pub insert: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            addr: *const c_void,
            count: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insertsvc: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            node: *const c_char,
            service: *const c_char,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insertsym: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            node: *const c_char,
            nodecnt: usize,
            service: *const c_char,
            svccnt: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub remove: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: *mut fi_addr_t,
            count: usize,
            flags: u64,
        ) -> c_int,
    >,
    pub lookup: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            addr: *mut c_void,
            addrlen: *mut usize,
        ) -> c_int,
    >,
    pub straddr: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            addr: *const c_void,
            buf: *mut c_char,
            len: *mut usize,
        ) -> *const c_char,
    >,
    pub av_set: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            attr: *mut fi_av_set_attr,
            av_set: *mut *mut fid_av_set,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub insert_auth_key: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            auth_key: *const c_void,
            auth_key_size: usize,
            fi_addr: *mut fi_addr_t,
            flags: u64,
        ) -> c_int,
    >,
    pub lookup_auth_key: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            auth_key: *mut c_void,
            auth_key_size: *mut usize,
        ) -> c_int,
    >,
    pub set_user_id: Option<
        unsafe extern "C" fn(
            av: *mut fid_av,
            fi_addr: fi_addr_t,
            user_id: fi_addr_t,
            flags: u64,
        ) -> c_int,
    >,
}

/// An address vector, `fi_av`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_av {
    pub fid: fid,
    pub ops: *mut fi_ops_av,
}

/// A memory region, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_mr {
    pub fid: fid,
    pub mem_desc: *mut c_void,
    pub key: u64,
}

/// A region given as a dma-buf, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_dmabuf {
    pub fd: c_int,
    pub offset: u64,
    pub len: usize,
    pub base_addr: *mut c_void,
}

/// Authorization key of a region given by address vector, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_auth_key {
    pub av: *mut fid_av,
    pub src_addr: fi_addr_t,
}

/// Union inside [`fi_mr_attr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_mr_attr_iov {
    pub mr_iov: *const iovec,
    pub dmabuf: *const fi_mr_dmabuf,
}

impl Default for fi_mr_attr_iov {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self {
            mr_iov: ptr::null(),
        }
    }
}

impl fmt::Debug for fi_mr_attr_iov {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_mr_attr_iov { .. }")
    }
}

/// Union inside [`fi_mr_attr`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_mr_attr_device {
    pub reserved: u64,
    pub cuda: c_int,
    pub ze: c_int,
    pub neuron: c_int,
    pub synapseai: c_int,
    pub rocr: c_int,
}

impl Default for fi_mr_attr_device {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self { reserved: 0 }
    }
}

impl fmt::Debug for fi_mr_attr_device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_mr_attr_device { .. }")
    }
}

/// Arguments of `fi_mr_regattr`, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_attr {
    pub mr: fi_mr_attr_iov,
    pub iov_count: usize,
    pub access: u64,
    pub offset: u64,
    pub requested_key: u64,
    pub context: *mut c_void,
    pub auth_key_size: usize,
    pub auth_key: *mut u8,
    pub iface: fi_hmem_iface,
    pub device: fi_mr_attr_device,
    pub hmem_data: *mut c_void,
    pub page_size: usize,
    pub base_mr: *const fid_mr,
    pub sub_mr_cnt: usize,
}

/// Argument of `FI_REFRESH`, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mr_modify {
    pub flags: u64,
    pub attr: fi_mr_attr,
}

/// Replacement of copies to and from device memory, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_hmem_override_ops {
    pub size: usize,
    pub copy_from_hmem_iov: Option<
        unsafe extern "C" fn(
            dest: *mut c_void,
            size: usize,
            iface: fi_hmem_iface,
            device: u64,
            hmem_iov: *const iovec,
            hmem_iov_count: usize,
            hmem_iov_offset: u64,
        ) -> isize,
    >,
    pub copy_to_hmem_iov: Option<
        unsafe extern "C" fn(
            iface: fi_hmem_iface,
            device: u64,
            hmem_iov: *const iovec,
            hmem_iov_count: usize,
            hmem_iov_offset: u64,
            src: *const c_void,
            size: usize,
        ) -> isize,
    >,
}

/// Operations of a domain, `fi_domain`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_domain {
    pub size: usize,
    pub av_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_av_attr,
            av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub cq_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_cq_attr,
            cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub endpoint: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub scalable_ep: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub cntr_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_cntr_attr,
            cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub poll_open: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_poll_attr,
            pollset: *mut *mut fid_poll,
        ) -> c_int,
    >,
    pub stx_ctx: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_tx_attr,
            stx: *mut *mut fid_stx,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub srx_ctx: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            attr: *mut fi_rx_attr,
            rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub query_atomic: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            datatype: fi_datatype,
            op: fi_op,
            attr: *mut fi_atomic_attr,
            flags: u64,
        ) -> c_int,
    >,
    pub query_collective: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            coll: fi_collective_op,
            attr: *mut fi_collective_attr,
            flags: u64,
        ) -> c_int,
    >,
    pub endpoint2: Option<
        unsafe extern "C" fn(
            domain: *mut fid_domain,
            info: *mut fi_info,
            ep: *mut *mut fid_ep,
            flags: u64,
            context: *mut c_void,
        ) -> c_int,
    >,
}

/// Registration operations of a domain, `fi_mr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_mr {
    pub size: usize,
    pub reg: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            buf: *const c_void,
            len: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub regv: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            iov: *const iovec,
            count: usize,
            access: u64,
            offset: u64,
            requested_key: u64,
            flags: u64,
            mr: *mut *mut fid_mr,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub regattr: Option<
        unsafe extern "C" fn(
            fid: *mut fid,
            attr: *const fi_mr_attr,
            flags: u64,
            mr: *mut *mut fid_mr,
        ) -> c_int,
    >,
}

/// A domain, `fi_domain`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_domain {
    pub fid: fid,
    pub ops: *mut fi_ops_domain,
    pub mr: *mut fi_ops_mr,
}

layout! {
    fi_av_attr: 48 {
        type_ = 0, rx_ctx_bits = 4, count = 8, ep_per_node = 16, name = 24, map_addr = 32,
        flags = 40
    }
    fi_av_set_attr: 56 {
        count = 0, start_addr = 8, end_addr = 16, stride = 24, comm_key_size = 32,
        comm_key = 40, flags = 48
    }
    fi_ops_av: 88 {
        size = 0, insert = 8, insertsvc = 16, insertsym = 24, remove = 32, lookup = 40,
        straddr = 48, av_set = 56, insert_auth_key = 64, lookup_auth_key = 72, set_user_id
        = 80
    }
    fid_av: 32 { fid = 0, ops = 24 }
    fid_mr: 40 { fid = 0, mem_desc = 24, key = 32 }
    fi_mr_dmabuf: 32 { fd = 0, offset = 8, len = 16, base_addr = 24 }
    fi_mr_auth_key: 16 { av = 0, src_addr = 8 }
    fi_mr_attr: 112 {
        mr = 0, iov_count = 8, access = 16, offset = 24, requested_key = 32, context = 40,
        auth_key_size = 48, auth_key = 56, iface = 64, device = 72, hmem_data = 80,
        page_size = 88, base_mr = 96, sub_mr_cnt = 104
    }
    fi_mr_modify: 120 { flags = 0, attr = 8 }
    fi_hmem_override_ops: 24 { size = 0, copy_from_hmem_iov = 8, copy_to_hmem_iov = 16 }
    fi_ops_domain: 96 {
        size = 0, av_open = 8, cq_open = 16, endpoint = 24, scalable_ep = 32, cntr_open =
        40, poll_open = 48, stx_ctx = 56, srx_ctx = 64, query_atomic = 72,
        query_collective = 80, endpoint2 = 88
    }
    fi_ops_mr: 32 { size = 0, reg = 8, regv = 16, regattr = 24 }
    fid_domain: 40 { fid = 0, ops = 24, mr = 32 }
}
