#![allow(unsafe_code)]
//! Messages (`fi_msg(3)`).

use core::ffi::c_void;

use ripstop_abi::*;

use super::vectors::{Operation, many, one};
use crate::call::Detail;
use crate::call::Kind::{self, Recv, Send};

/// # Safety
///
/// `msg` is null or that of a call.
unsafe fn whole(kind: Kind, msg: *const fi_msg, flags: u64) -> Detail {
    // SAFETY: null or a message, by the contract of this function.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return Detail::None;
    };
    // SAFETY: the arrays of this message.
    let operation = unsafe { many(kind, msg.msg_iov, msg.desc, msg.iov_count) };
    operation.to(msg.addr, msg.context).flags(flags).detail()
}

super::interpose! {
    fi_ops_msg at fid_ep.msg {
        recv "fi_recv" [Recv] (
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src: fi_addr_t,
            context: *mut c_void,
        ) -> isize = one(Recv, buf, len, desc).to(src, context).detail();
        recvv "fi_recvv" [Recv] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src: fi_addr_t,
            context: *mut c_void,
        ) -> isize => many(Recv, iov, desc, count).to(src, context).detail();
        recvmsg "fi_recvmsg" [Recv] (ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize
            => whole(Recv, msg, flags);
        send "fi_send" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest: fi_addr_t,
            context: *mut c_void,
        ) -> isize = one(Send, buf, len, desc).to(dest, context).detail();
        sendv "fi_sendv" [Send] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest: fi_addr_t,
            context: *mut c_void,
        ) -> isize => many(Send, iov, desc, count).to(dest, context).detail();
        sendmsg "fi_sendmsg" [Send] (ep: *mut fid_ep, msg: *const fi_msg, flags: u64) -> isize
            => whole(Send, msg, flags);
        inject "fi_inject" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest: fi_addr_t,
        ) -> isize = Operation::injected(Send, buf, len, dest).detail();
        senddata "fi_senddata" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest: fi_addr_t,
            context: *mut c_void,
        ) -> isize = one(Send, buf, len, desc).to(dest, context).detail();
        injectdata "fi_injectdata" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest: fi_addr_t,
        ) -> isize = Operation::injected(Send, buf, len, dest).detail();
    }
}
