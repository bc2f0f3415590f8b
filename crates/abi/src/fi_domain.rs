//! Mirror of `rdma/fi_domain.h`: address vectors, memory regions and the domain.

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::ptr;

use crate::fabric::{fi_addr_t, fi_av_type, fi_info, fi_rx_attr, fi_tx_attr, fid, iovec};
use crate::fi_atomic::fi_atomic_attr;
use crate::fi_collective::{fi_collective_attr, fid_av_set};
use crate::fi_endpoint::{fid_ep, fid_stx};
use crate::fi_eq::{fi_cntr_attr, fi_cq_attr, fi_poll_attr, fid_cntr, fid_cq, fid_poll};

constants! {
    "Kind of device memory, `fi_mr`(3)." type fi_hmem_iface = c_uint {
        FI_HMEM_SYSTEM = 0,
        FI_HMEM_CUDA = 1,
        FI_HMEM_ROCR = 2,
        FI_HMEM_ZE = 3,
        FI_HMEM_NEURON = 4,
        FI_HMEM_SYNAPSEAI = 5,
    }

    "Atomic data type, `fi_atomic`(3)." type fi_datatype = c_uint {
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

    "Atomic operation, `fi_atomic`(3)." type fi_op = c_uint {
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

    "Collective operation, `fi_collective`(3)." type fi_collective_op = c_uint {
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

    "Address vector flag, `fi_av`(3)." u64 {
        FI_SYMMETRIC = 1 << 59,
        FI_SYNC_ERR = 1 << 58,
        FI_UNIVERSE = 1 << 57,
    }

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

    "Flag of `fi_mr_regattr`(3)." u64 {
        FI_MR_DMABUF = 1 << 40,
        FI_MR_SINGLE_USE = 1 << 41,
        FI_HMEM_HOST_ALLOC = 1 << 45,
        FI_HMEM_DEVICE_ONLY = 1 << 46,
    }

    "First value of collective-only data types and operations." c_uint {
        FI_COLLECTIVE_OFFSET = 256,
    }

    "Flag of `fi_domain_bind`(3), deprecated." u64 {
        FI_REG_MR = 1 << 59,
    }
}

/// Name of the override table of `fi_set_ops`(3) for copies to and from device memory.
pub const FI_SET_OPS_HMEM_OVERRIDE: &CStr = c"hmem_override_ops";

structs! {
    /// Attributes of an address vector, `fi_av`(3).
    struct fi_av_attr: 48 bytes {
        type_ @ 0: fi_av_type,
        rx_ctx_bits @ 4: c_int,
        count @ 8: usize,
        ep_per_node @ 16: usize,
        name @ 24: *const c_char,
        map_addr @ 32: *mut c_void,
        flags @ 40: u64,
    }

    /// Attributes of an address vector set, `fi_av_set`(3).
    struct fi_av_set_attr: 56 bytes {
        count @ 0: usize,
        start_addr @ 8: fi_addr_t,
        end_addr @ 16: fi_addr_t,
        stride @ 24: u64,
        comm_key_size @ 32: usize,
        comm_key @ 40: *mut u8,
        flags @ 48: u64,
    }

    /// Operations of an address vector, `fi_av`(3).
    ops fi_ops_av: 88 bytes {
        insert @ 8: fn(
            av: *mut fid_av, addr: *const c_void, count: usize, fi_addr: *mut fi_addr_t, flags: u64,
            context: *mut c_void,
        ) -> c_int,
        insertsvc @ 16: fn(
            av: *mut fid_av, node: *const c_char, service: *const c_char, fi_addr: *mut fi_addr_t,
            flags: u64, context: *mut c_void,
        ) -> c_int,
        insertsym @ 24: fn(
            av: *mut fid_av, node: *const c_char, nodecnt: usize, service: *const c_char,
            svccnt: usize, fi_addr: *mut fi_addr_t, flags: u64, context: *mut c_void,
        ) -> c_int,
        remove @ 32: fn(
            av: *mut fid_av, fi_addr: *mut fi_addr_t, count: usize, flags: u64,
        ) -> c_int,
        lookup @ 40: fn(
            av: *mut fid_av, fi_addr: fi_addr_t, addr: *mut c_void, addrlen: *mut usize,
        ) -> c_int,
        straddr @ 48: fn(
            av: *mut fid_av, addr: *const c_void, buf: *mut c_char, len: *mut usize,
        ) -> *const c_char,
        av_set @ 56: fn(
            av: *mut fid_av, attr: *mut fi_av_set_attr, av_set: *mut *mut fid_av_set,
            context: *mut c_void,
        ) -> c_int,
        insert_auth_key @ 64: fn(
            av: *mut fid_av, auth_key: *const c_void, auth_key_size: usize, fi_addr: *mut fi_addr_t,
            flags: u64,
        ) -> c_int,
        lookup_auth_key @ 72: fn(
            av: *mut fid_av, fi_addr: fi_addr_t, auth_key: *mut c_void, auth_key_size: *mut usize,
        ) -> c_int,
        set_user_id @ 80: fn(
            av: *mut fid_av, fi_addr: fi_addr_t, user_id: fi_addr_t, flags: u64,
        ) -> c_int,
    }

    /// An address vector, `fi_av`(3).
    struct fid_av: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_av,
    }

    /// A memory region, `fi_mr`(3).
    struct fid_mr: 40 bytes {
        fid @ 0: fid,
        mem_desc @ 24: *mut c_void,
        key @ 32: u64,
    }

    /// A region given as a dma-buf, `fi_mr`(3).
    struct fi_mr_dmabuf: 32 bytes {
        fd @ 0: c_int,
        offset @ 8: u64,
        len @ 16: usize,
        base_addr @ 24: *mut c_void,
    }

    /// Authorization key of a region given by address vector, `fi_mr`(3).
    struct fi_mr_auth_key: 16 bytes {
        av @ 0: *mut fid_av,
        src_addr @ 8: fi_addr_t,
    }

    /// Union inside [`fi_mr_attr`].
    union fi_mr_attr_iov {
        mr_iov: *const iovec,
        dmabuf: *const fi_mr_dmabuf,
    } default { mr_iov: ptr::null() }

    /// Union inside [`fi_mr_attr`].
    union fi_mr_attr_device {
        reserved: u64,
        cuda: c_int,
        ze: c_int,
        neuron: c_int,
        synapseai: c_int,
        rocr: c_int,
    } default { reserved: 0 }

    /// Arguments of `fi_mr_regattr`, `fi_mr`(3).
    struct fi_mr_attr: 112 bytes {
        mr @ 0: fi_mr_attr_iov,
        iov_count @ 8: usize,
        access @ 16: u64,
        offset @ 24: u64,
        requested_key @ 32: u64,
        context @ 40: *mut c_void,
        auth_key_size @ 48: usize,
        auth_key @ 56: *mut u8,
        iface @ 64: fi_hmem_iface,
        device @ 72: fi_mr_attr_device,
        hmem_data @ 80: *mut c_void,
        page_size @ 88: usize,
        base_mr @ 96: *const fid_mr,
        sub_mr_cnt @ 104: usize,
    }

    /// Argument of `FI_REFRESH`, `fi_mr`(3).
    struct fi_mr_modify: 120 bytes {
        flags @ 0: u64,
        attr @ 8: fi_mr_attr,
    }

    /// Replacement of copies to and from device memory, `fi_mr`(3).
    ops fi_hmem_override_ops: 24 bytes {
        copy_from_hmem_iov @ 8: fn(
            dest: *mut c_void, size: usize, iface: fi_hmem_iface, device: u64,
            hmem_iov: *const iovec, hmem_iov_count: usize, hmem_iov_offset: u64,
        ) -> isize,
        copy_to_hmem_iov @ 16: fn(
            iface: fi_hmem_iface, device: u64, hmem_iov: *const iovec, hmem_iov_count: usize,
            hmem_iov_offset: u64, src: *const c_void, size: usize,
        ) -> isize,
    }

    /// Operations of a domain, `fi_domain`(3).
    ops fi_ops_domain: 96 bytes {
        av_open @ 8: fn(
            domain: *mut fid_domain, attr: *mut fi_av_attr, av: *mut *mut fid_av,
            context: *mut c_void,
        ) -> c_int,
        cq_open @ 16: fn(
            domain: *mut fid_domain, attr: *mut fi_cq_attr, cq: *mut *mut fid_cq,
            context: *mut c_void,
        ) -> c_int,
        endpoint @ 24: fn(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, context: *mut c_void,
        ) -> c_int,
        scalable_ep @ 32: fn(
            domain: *mut fid_domain, info: *mut fi_info, sep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        cntr_open @ 40: fn(
            domain: *mut fid_domain, attr: *mut fi_cntr_attr, cntr: *mut *mut fid_cntr,
            context: *mut c_void,
        ) -> c_int,
        poll_open @ 48: fn(
            domain: *mut fid_domain, attr: *mut fi_poll_attr, pollset: *mut *mut fid_poll,
        ) -> c_int,
        stx_ctx @ 56: fn(
            domain: *mut fid_domain, attr: *mut fi_tx_attr, stx: *mut *mut fid_stx,
            context: *mut c_void,
        ) -> c_int,
        srx_ctx @ 64: fn(
            domain: *mut fid_domain, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int,
        query_atomic @ 72: fn(
            domain: *mut fid_domain, datatype: fi_datatype, op: fi_op, attr: *mut fi_atomic_attr,
            flags: u64,
        ) -> c_int,
        query_collective @ 80: fn(
            domain: *mut fid_domain, coll: fi_collective_op, attr: *mut fi_collective_attr,
            flags: u64,
        ) -> c_int,
        endpoint2 @ 88: fn(
            domain: *mut fid_domain, info: *mut fi_info, ep: *mut *mut fid_ep, flags: u64,
            context: *mut c_void,
        ) -> c_int,
    }

    /// Registration operations of a domain, `fi_mr`(3).
    ops fi_ops_mr: 32 bytes {
        reg @ 8: fn(
            fid: *mut fid, buf: *const c_void, len: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        regv @ 16: fn(
            fid: *mut fid, iov: *const iovec, count: usize, access: u64, offset: u64,
            requested_key: u64, flags: u64, mr: *mut *mut fid_mr, context: *mut c_void,
        ) -> c_int,
        regattr @ 24: fn(
            fid: *mut fid, attr: *const fi_mr_attr, flags: u64, mr: *mut *mut fid_mr,
        ) -> c_int,
    }

    /// A domain, `fi_domain`(3).
    struct fid_domain: 40 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_domain,
        mr @ 32: *mut fi_ops_mr,
    }
}
