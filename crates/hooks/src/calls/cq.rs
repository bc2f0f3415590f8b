#![allow(unsafe_code)]
//! The operations of completion queues.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;

use ripstop_abi::*;

use crate::call::{Detail, Entries};

/// Entries that are stored here.
const fn entries(buf: *mut c_void, sources: *mut fi_addr_t) -> Detail {
    let buf = buf.cast_const();
    let sources = sources.cast_const();
    Detail::Entries(Entries { buf, sources })
}

super::interpose! {
    fi_ops_cq at fid_cq.ops {
        read "fi_cq_read" (cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize
            = entries(buf, ptr::null_mut());
        readfrom "fi_cq_readfrom" (
            cq: *mut fid_cq, buf: *mut c_void, count: usize, sources: *mut fi_addr_t,
        ) -> isize = entries(buf, sources);
        readerr "fi_cq_readerr" (cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize
            = Detail::ErrorEntry(buf);
        sread "fi_cq_sread" (
            cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int,
        ) -> isize = entries(buf, ptr::null_mut());
        sreadfrom "fi_cq_sreadfrom" (
            cq: *mut fid_cq, buf: *mut c_void, count: usize, sources: *mut fi_addr_t, cond: *const c_void,
            timeout: c_int,
        ) -> isize = entries(buf, sources);
        signal "fi_cq_signal" (cq: *mut fid_cq) -> c_int;
        strerror "fi_cq_strerror" (
            cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize,
        ) -> *const c_char;
    }
}
