#![allow(unsafe_code)]
//! Reads and writes of remote memory (`fi_rma(3)`).

use core::ffi::c_void;

use ripstop_abi::*;

use super::vectors::{Operation, many, one};
use crate::call::Detail;
use crate::call::Kind::{self, Read, Write};

/// # Safety
///
/// `msg` is null or that of a call.
unsafe fn whole(kind: Kind, msg: *const fi_msg_rma, flags: u64) -> Detail {
    // SAFETY: null or a message, by the contract of this function.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return Detail::None;
    };
    // SAFETY: the arrays of this message.
    let operation = unsafe { many(kind, msg.msg_iov, msg.desc, msg.iov_count) };
    operation.to(msg.addr, msg.context).flags(flags).detail()
}

super::interpose! {
    fi_ops_rma at fid_ep.rma {
        read "fi_read" [Read] (
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src: fi_addr_t, addr: u64,
            key: u64, context: *mut c_void,
        ) -> isize = one(Read, buf, len, desc).to(src, context).detail();
        readv "fi_readv" [Read] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize => many(Read, iov, desc, count).to(src, context).detail();
        readmsg "fi_readmsg" [Read] (ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
            => whole(Read, msg, flags);
        write "fi_write" [Write] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest: fi_addr_t, addr: u64,
            key: u64, context: *mut c_void,
        ) -> isize = one(Write, buf, len, desc).to(dest, context).detail();
        writev "fi_writev" [Write] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize => many(Write, iov, desc, count).to(dest, context).detail();
        writemsg "fi_writemsg" [Write] (ep: *mut fid_ep, msg: *const fi_msg_rma, flags: u64) -> isize
            => whole(Write, msg, flags);
        inject "fi_inject_write" [Write] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest: fi_addr_t, addr: u64, key: u64,
        ) -> isize = Operation::injected(Write, buf, len, dest).detail();
        writedata "fi_writedata" [Write] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest: fi_addr_t,
            addr: u64, key: u64, context: *mut c_void,
        ) -> isize = one(Write, buf, len, desc).to(dest, context).detail();
        injectdata "fi_inject_writedata" [Write] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest: fi_addr_t, addr: u64, key: u64,
        ) -> isize = Operation::injected(Write, buf, len, dest).detail();
    }
}
