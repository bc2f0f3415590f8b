//! Mirror of `rdma/fi_cm.h`: connection management.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_int, c_void};

use crate::fabric::{fi_addr_t, fid, fid_t};
use crate::fi_endpoint::{fid_ep, fid_pep};

/// A joined multicast or collective group, `fi_cm`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_mc {
    pub fid: fid,
    pub fi_addr: fi_addr_t,
}

/// Connection operations of an endpoint, `fi_cm`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_cm {
    pub size: usize,
    pub setname:
        Option<unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: usize) -> c_int>,
    pub getname:
        Option<unsafe extern "C" fn(fid: fid_t, addr: *mut c_void, addrlen: *mut usize) -> c_int>,
    pub getpeer: Option<
        unsafe extern "C" fn(ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int,
    >,
    pub connect: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            addr: *const c_void,
            param: *const c_void,
            paramlen: usize,
        ) -> c_int,
    >,
    pub listen: Option<unsafe extern "C" fn(pep: *mut fid_pep) -> c_int>,
    pub accept: Option<
        unsafe extern "C" fn(ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int,
    >,
    pub reject: Option<
        unsafe extern "C" fn(
            pep: *mut fid_pep,
            handle: fid_t,
            param: *const c_void,
            paramlen: usize,
        ) -> c_int,
    >,
    pub shutdown: Option<unsafe extern "C" fn(ep: *mut fid_ep, flags: u64) -> c_int>,
    pub join: Option<
        unsafe extern "C" fn(
            ep: *mut fid_ep,
            addr: *const c_void,
            flags: u64,
            mc: *mut *mut fid_mc,
            context: *mut c_void,
        ) -> c_int,
    >,
}

layout! {
    fid_mc: 32 { fid = 0, fi_addr = 24 }
    fi_ops_cm: 80 {
        size = 0, setname = 8, getname = 16, getpeer = 24, connect = 32, listen = 40,
        accept = 48, reject = 56, shutdown = 64, join = 72
    }
}
