#![allow(unsafe_code)]
//! Atomic operations (`fi_atomic(3)`).

use core::ffi::{c_int, c_void};

use ripstop_abi::*;

use super::vectors::{Operation, first, size_of_elements, sum};
use crate::call::Detail;
use crate::call::Kind::Atomic;

/// One of so many elements.
const fn of(count: usize, datatype: fi_datatype, desc: *mut c_void, dest: fi_addr_t) -> Operation {
    let bytes = size_of_elements(datatype, count);
    Operation::of_bytes(Atomic, bytes, desc).to(dest, core::ptr::null_mut())
}

/// One of these elements.
///
/// # Safety
///
/// The arrays are null or so long.
unsafe fn vector(
    iov: *const fi_ioc,
    desc: *mut *mut c_void,
    count: usize,
    datatype: fi_datatype,
    dest: fi_addr_t,
) -> Operation {
    // SAFETY: the same contract.
    let elements = unsafe { sum(iov, count, |ioc| ioc.count) };
    // SAFETY: the same contract.
    let desc = unsafe { first(desc, count) };
    of(elements, datatype, desc, dest)
}

/// # Safety
///
/// `msg` is null or that of a call.
unsafe fn whole(msg: *const fi_msg_atomic, flags: u64) -> Detail {
    // SAFETY: null or a message, by the contract of this function.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return Detail::None;
    };
    // SAFETY: the arrays of this message.
    let operation = unsafe { vector(msg.msg_iov, msg.desc, msg.iov_count, msg.datatype, msg.addr) };
    operation.context(msg.context).flags(flags).detail()
}

super::interpose! {
    fi_ops_atomic at fid_ep.atomic {
        write "fi_atomic" [Atomic] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, dest: fi_addr_t, addr: u64,
            key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, dest).context(context).detail();
        writev "fi_atomicv" [Atomic] (
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize, dest: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize => vector(iov, desc, count, datatype, dest).context(context).detail();
        writemsg "fi_atomicmsg" [Atomic] (ep: *mut fid_ep, msg: *const fi_msg_atomic, flags: u64) -> isize
            => whole(msg, flags);
        inject "fi_inject_atomic" [Atomic] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, dest: fi_addr_t, addr: u64, key: u64,
            datatype: fi_datatype, op: fi_op,
        ) -> isize = of(count, datatype, core::ptr::null_mut(), dest).at_once().detail();
        readwrite "fi_fetch_atomic" [Atomic] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, result: *mut c_void,
            result_desc: *mut c_void, dest: fi_addr_t, addr: u64, key: u64, datatype: fi_datatype, op: fi_op,
            context: *mut c_void,
        ) -> isize = of(count, datatype, desc, dest).context(context).detail();
        readwritev "fi_fetch_atomicv" [Atomic] (
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, dest: fi_addr_t, addr: u64, key: u64,
            datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize => vector(iov, desc, count, datatype, dest).context(context).detail();
        readwritemsg "fi_fetch_atomicmsg" [Atomic] (
            ep: *mut fid_ep, msg: *const fi_msg_atomic, resultv: *mut fi_ioc, result_desc: *mut *mut c_void,
            result_count: usize, flags: u64,
        ) -> isize => whole(msg, flags);
        compwrite "fi_compare_atomic" [Atomic] (
            ep: *mut fid_ep, buf: *const c_void, count: usize, desc: *mut c_void, compare: *const c_void,
            compare_desc: *mut c_void, result: *mut c_void, result_desc: *mut c_void, dest: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize = of(count, datatype, desc, dest).context(context).detail();
        compwritev "fi_compare_atomicv" [Atomic] (
            ep: *mut fid_ep, iov: *const fi_ioc, desc: *mut *mut c_void, count: usize,
            comparev: *const fi_ioc, compare_desc: *mut *mut c_void, compare_count: usize,
            resultv: *mut fi_ioc, result_desc: *mut *mut c_void, result_count: usize, dest: fi_addr_t,
            addr: u64, key: u64, datatype: fi_datatype, op: fi_op, context: *mut c_void,
        ) -> isize => vector(iov, desc, count, datatype, dest).context(context).detail();
        compwritemsg "fi_compare_atomicmsg" [Atomic] (
            ep: *mut fid_ep, msg: *const fi_msg_atomic, comparev: *const fi_ioc,
            compare_desc: *mut *mut c_void, compare_count: usize, resultv: *mut fi_ioc,
            result_desc: *mut *mut c_void, result_count: usize, flags: u64,
        ) -> isize => whole(msg, flags);
        writevalid "fi_atomicvalid" (
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int;
        readwritevalid "fi_fetch_atomicvalid" (
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int;
        compwritevalid "fi_compare_atomicvalid" (
            ep: *mut fid_ep, datatype: fi_datatype, op: fi_op, count: *mut usize,
        ) -> c_int;
    }
}
