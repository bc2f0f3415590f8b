//! Mirror of `rdma/fi_rma.h`: remote memory access.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::c_void;

use crate::fabric::{fi_addr_t, iovec};
use crate::fi_endpoint::fid_ep;

/// Remote vector element of RMA, `fi_rma`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_rma_iov {
    pub addr: u64,
    pub len: usize,
    pub key: u64,
}

/// Remote vector element of atomics, `fi_rma`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_rma_ioc {
    pub addr: u64,
    pub count: usize,
    pub key: u64,
}

/// Arguments of `fi_readmsg` and `fi_writemsg`, `fi_rma`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_msg_rma {
    pub msg_iov: *const iovec,
    pub desc: *mut *mut c_void,
    pub iov_count: usize,
    pub addr: fi_addr_t,
    pub rma_iov: *const fi_rma_iov,
    pub rma_iov_count: usize,
    pub context: *mut c_void,
    pub data: u64,
}

/// Operations of an endpoint with `FI_RMA`, `fi_rma`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_rma {
    pub size: usize,
    pub read: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *mut c_void,
            len: usize,
            desc: *mut c_void,
            src_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize,
    >,
    pub readv: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            src_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize,
    >,
    pub readmsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize>,
    pub write: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize,
    >,
    pub writev: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            iov: *const iovec,
            desc: *mut *mut c_void,
            count: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize,
    >,
    pub writemsg:
        Option<unsafe extern "C" fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize>,
    pub inject: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
        ) -> isize,
    >,
    pub writedata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            desc: *mut c_void,
            data: u64,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
            context: *mut c_void,
        ) -> isize,
    >,
    pub injectdata: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            buf: *const c_void,
            len: usize,
            data: u64,
            dest_addr: fi_addr_t,
            addr: u64,
            key: u64,
        ) -> isize,
    >,
}

layout! {
    fi_rma_iov: 24 { addr = 0, len = 8, key = 16 }
    fi_rma_ioc: 24 { addr = 0, count = 8, key = 16 }
    fi_msg_rma: 64 {
        msg_iov = 0, desc = 8, iov_count = 16, addr = 24, rma_iov = 32, rma_iov_count =
        40, context = 48, data = 56
    }
    fi_ops_rma: 80 {
        size = 0, read = 8, readv = 16, readmsg = 24, write = 32, writev = 40, writemsg =
        48, inject = 56, writedata = 64, injectdata = 72
    }
}
