//! Mirror of `rdma/fi_atomic.h`: atomic operations.

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fi_ioc};
use crate::fi_domain::{fi_datatype, fi_op};
use crate::fi_endpoint::fid_ep;
use crate::fi_rma::fi_rma_ioc;

constants! {
    "Flag of `fi_query_atomic`(3)." u64 {
        FI_FETCH_ATOMIC = 1 << 58,
        FI_COMPARE_ATOMIC = 1 << 59,
    }
}

structs! {
    /// Bounds of one atomic operation, `fi_atomic`(3).
    struct fi_atomic_attr: 16 bytes {
        count @ 0: usize,
        size @ 8: usize,
    }

    /// Arguments of `fi_atomicmsg`, `fi_atomic`(3).
    struct fi_msg_atomic: 72 bytes {
        msg_iov @ 0: *const fi_ioc,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        rma_iov @ 32: *const fi_rma_ioc,
        rma_iov_count @ 40: usize,
        datatype @ 48: fi_datatype,
        op @ 52: fi_op,
        context @ 56: *mut c_void,
        data @ 64: u64,
    }

    /// Result vector of a deferred fetching atomic, `fi_atomic`(3).
    struct fi_msg_fetch: 24 bytes {
        msg_iov @ 0: *mut fi_ioc,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
    }

    /// Compare vector of a deferred compare atomic, `fi_atomic`(3).
    struct fi_msg_compare: 24 bytes {
        msg_iov @ 0: *const fi_ioc,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
    }

    /// Operations of an endpoint with `FI_ATOMIC`, `fi_atomic`(3).
    ops fi_ops_atomic: 112 bytes {
        write @ 8: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
            context: *mut c_void,
        ) -> isize,
        writev @ 16: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
            context: *mut c_void,
        ) -> isize,
        writemsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize,
        inject @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, dest_addr: fi_addr_t, addr: u64,
            key: u64, datatype: fi_datatype, op: fi_op,
        ) -> isize,
        readwrite @ 40: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            result: *mut c_void, result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64,
            key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize,
        readwritev @ 48: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
            context: *mut c_void,
        ) -> isize,
        readwritemsg @ 56: fn(
            ep: *mut fid_ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        compwrite @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void,
            compare: *const c_void, compare_desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, dest_addr: fi_addr_t, addr: u64, key: u64,
            datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize,
        compwritev @ 72: fn(
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
            context: *mut c_void,
        ) -> isize,
        compwritemsg @ 80: fn(
            ep: *mut fid_ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize,
        writevalid @ 88: fn(
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int,
        readwritevalid @ 96: fn(
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int,
        compwritevalid @ 104: fn(
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int,
    }
}
