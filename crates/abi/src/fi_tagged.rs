//! Mirror of `rdma/fi_tagged.h`: tagged messages.

use core::ffi::c_void;

use crate::fabric::{fi_addr_t, iovec};
use crate::fi_endpoint::fid_ep;

constants! {
    "Ignore mask of the [`FI_TAG_MPI`](crate::fabric::FI_TAG_MPI) tag format." u64 {
        FI_MPI_IGNORE_TAG = 0xffffffff,
        FI_MPI_IGNORE_PAYLOAD = 0xff00000000,
    }
}

structs! {
    /// Arguments of `fi_tsendmsg` and `fi_trecvmsg`, `fi_tagged`(3).
    struct fi_msg_tagged: 64 bytes {
        msg_iov @ 0: *const iovec,
        desc @ 8: *mut *mut c_void,
        iov_count @ 16: usize,
        addr @ 24: fi_addr_t,
        tag @ 32: u64,
        ignore @ 40: u64,
        context @ 48: *mut c_void,
        data @ 56: u64,
    }

    /// Operations of an endpoint with `FI_TAGGED`, `fi_tagged`(3).
    ops fi_ops_tagged: 80 bytes {
        recv @ 8: fn(
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src_addr: fi_addr_t,
            tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize,
        recvv @ 16: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            src_addr: fi_addr_t, tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize,
        recvmsg @ 24: fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        send @ 32: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        sendv @ 40: fn(
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        sendmsg @ 48: fn(ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize,
        inject @ 56: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest_addr: fi_addr_t, tag: u64,
        ) -> isize,
        senddata @ 64: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64,
            dest_addr: fi_addr_t, tag: u64, context: *mut c_void,
        ) -> isize,
        injectdata @ 72: fn(
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest_addr: fi_addr_t,
            tag: u64,
        ) -> isize,
    }
}
