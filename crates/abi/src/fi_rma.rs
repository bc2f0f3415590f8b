//! Mirror of `rdma/fi_rma.h`: remote memory access.

use core::ffi::c_void;

use crate::fabric::{fi_addr_t, iovec};
use crate::fi_endpoint::fid_ep;

structs! {
    /// Remote vector element of RMA, `fi_rma`(3).
    struct fi_rma_iov: 24 bytes {
        addr @ 0: u64,
        len @ 8: usize,
        key @ 16: u64,
    }

    /// Remote vector element of atomics, `fi_rma`(3).
    struct fi_rma_ioc: 24 bytes {
        addr @ 0: u64,
        count @ 8: usize,
        key @ 16: u64,
    }

    /// Arguments of `fi_readmsg` and `fi_writemsg`, `fi_rma`(3).
    struct fi_msg_rma: 64 bytes {
        msg_iov @ 0: *const iovec,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        rma_iov @ 32: *const fi_rma_iov,
        rma_iov_count @ 40: usize,
        context @ 48: *mut c_void,
        data @ 56: u64,
    }

    /// Operations of an endpoint with `FI_RMA`, `fi_rma`(3).
    ops fi_ops_rma: 80 bytes {
        read @ 8: fn(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        readv @ 16: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        readmsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        write @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        writev @ 40: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        writemsg @ 48: fn(ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize,
        inject @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, addr: u64,
            key: u64,
        ) -> isize,
        writedata @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, addr: u64, key: u64, context: *mut c_void,
        ) -> isize,
        injectdata @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
            addr: u64, key: u64,
        ) -> isize,
    }
}
