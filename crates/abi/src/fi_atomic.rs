//! Mirror of `rdma/fi_atomic.h`: atomic operations.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

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

/// Bounds of one atomic operation, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_atomic_attr {
    pub count: usize,
    pub size: usize,
}

/// Arguments of `fi_atomicmsg`, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_msg_atomic {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_ioc,
    pub rma_iov_count: usize,
    pub datatype: fi_datatype,
    pub op: fi_op,
    pub context: *mut c_void,
    pub data: u64,
}

/// Result vector of a deferred fetching atomic, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_msg_fetch {
    pub msg_iov: *mut fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// Compare vector of a deferred compare atomic, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_msg_compare {
    pub msg_iov: *const fi_ioc,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
}

/// Operations of an endpoint with `FI_ATOMIC`, `fi_atomic`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_atomic {
    pub size: usize,
    pub write: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            count: usize,
            desc: *mut c_void,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub writev: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const fi_ioc,
            desc: *mut *mut c_void,
            count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub writemsg: Option<
        unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize,
    >,
    pub inject: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
        ) -> isize,
    >,
    pub readwrite: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            count: usize,
            desc: *mut c_void,
            result: *mut c_void,
            result_desc: *mut c_void,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub readwritev: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const fi_ioc,
            desc: *mut *mut c_void,
            count: usize,
            resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void,
            result_count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub readwritemsg: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            msg: *const fi_msg_atomic,
            resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void,
            result_count: usize,
            flags: u64,
        ) -> isize,
    >,
    pub compwrite: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            count: usize,
            desc: *mut c_void,
            compare: *const c_void,
            compare_desc: *mut c_void,
            result: *mut c_void,
            result_desc: *mut c_void,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub compwritev: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const fi_ioc,
            desc: *mut *mut c_void,
            count: usize,
            comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void,
            compare_count: usize,
            resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void,
            result_count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            datatype: fi_datatype,
            op: fi_op,
            context: *mut c_void,
        ) -> isize,
    >,
    pub compwritemsg: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            msg: *const fi_msg_atomic,
            comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void,
            compare_count: usize,
            resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void,
            result_count: usize,
            flags: u64,
        ) -> isize,
    >,
    pub writevalid: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            datatype: fi_datatype,
            op: fi_op,
            count: *mut usize,
        ) -> c_int,
    >,
    pub readwritevalid: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            datatype: fi_datatype,
            op: fi_op,
            count: *mut usize,
        ) -> c_int,
    >,
    pub compwritevalid: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            datatype: fi_datatype,
            op: fi_op,
            count: *mut usize,
        ) -> c_int,
    >,
}

layout! {
    fi_atomic_attr: 16 { count = 0, size = 8 }
    fi_msg_atomic: 72 {
        msg_iov = 0, desc = 8, iov_count = 16, addr = 24, rma_iov = 32, rma_iov_count =
        40, datatype = 48, op = 52, context = 56, data = 64
    }
    fi_msg_fetch: 24 { msg_iov = 0, desc = 8, iov_count = 16 }
    fi_msg_compare: 24 { msg_iov = 0, desc = 8, iov_count = 16 }
    fi_ops_atomic: 112 {
        size = 0, write = 8, writev = 16, writemsg = 24, inject = 32, readwrite = 40,
        readwritev = 48, readwritemsg = 56, compwrite = 64, compwritev = 72, compwritemsg
        = 80, writevalid = 88, readwritevalid = 96, compwritevalid = 104
    }
}
