//! Mirror of `rdma/fi_cm.h`: connection management.

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fid, fid_t};
use crate::fi_endpoint::{fid_ep, fid_pep};

structs! {
    /// A joined multicast or collective group, `fi_cm`(3).
    struct fid_mc: 32 bytes {
        fid @ 0: fid,
        fi_addr @ 24: fi_addr_t,
    }

    /// Connection operations of an endpoint, `fi_cm`(3).
    ops fi_ops_cm: 80 bytes {
        setname @ 8: fn(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int,
        getname @ 16: fn(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        getpeer @ 24: fn(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
        connect @ 32: fn(
            ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int,
        listen @ 40: fn(pep: *mut fid_pep) -> c_int,
        accept @ 48: fn(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
        reject @ 56: fn(
            pep: *mut fid_pep, handle: fid_t, param: *const c_void, paramlen: usize,
        ) -> c_int,
        shutdown @ 64: fn(ep: *mut fid_ep, flags: u64) -> c_int,
        join @ 72: fn(
            ep: *mut fid_ep, addr: *const c_void, flags: u64, mc: *mut *mut fid_mc,
            context: *mut c_void,
        ) -> c_int,
    }
}
