#![allow(unsafe_code)]
//! The operations of connections, and joining groups.

use core::ffi::{c_int, c_void};

use ripstop_abi::*;

use crate::hook::With;

// The table is at the same place in all structs that have it.
super::interpose! {
    fi_ops_cm at fid_ep.cm {
        setname "fi_setname" (ep: *mut fid, addr: *mut c_void, addrlen: usize) -> c_int;
        getname "fi_getname" (ep: *mut fid, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        getpeer "fi_getpeer" (ep: *mut fid_ep, addr: *mut c_void, addrlen: *mut usize) -> c_int;
        connect "fi_connect" (
            ep: *mut fid_ep, addr: *const c_void, param: *const c_void, paramlen: usize,
        ) -> c_int;
        listen "fi_listen" (pep: *mut fid_pep) -> c_int;
        accept "fi_accept" (ep: *mut fid_ep, param: *const c_void, paramlen: usize) -> c_int;
        reject "fi_reject" (
            pep: *mut fid_pep, handle: *mut fid, param: *const c_void, paramlen: usize,
        ) -> c_int;
        shutdown "fi_shutdown" (ep: *mut fid_ep, flags: u64) -> c_int;
        join "fi_join" (
            ep: *mut fid_ep, addr: *const c_void, flags: u64, mc: *mut *mut fid_mc, context: *mut c_void,
        ) -> c_int, opens mc with With::Nothing;
    }
}
