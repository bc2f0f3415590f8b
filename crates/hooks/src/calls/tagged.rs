#![allow(unsafe_code)]
//! Tagged messages (`fi_tagged(3)`).

use core::ffi::c_void;

use ripstop_abi::*;

use super::vectors::{Operation, many, one};
use crate::call::Detail;
use crate::call::Kind::{self, Recv, Send};

/// # Safety
///
/// `msg` is null or that of a call.
unsafe fn whole(kind: Kind, msg: *const fi_msg_tagged, flags: u64) -> Detail {
    // SAFETY: null or a message, by the contract of this function.
    let Some(msg) = (unsafe { msg.as_ref() }) else {
        return Detail::None;
    };
    // SAFETY: the arrays of this message.
    let operation = unsafe { many(kind, msg.msg_iov, msg.desc, msg.iov_count) };
    let operation = operation.to(msg.addr, msg.context).flags(flags);
    operation.tag(msg.tag).detail()
}

super::interpose! {
    fi_ops_tagged at fid_ep.tagged {
        recv "fi_trecv" [Recv] (
            ep: *mut fid_ep, buf: *mut c_void, len: usize, desc: *mut c_void, src: fi_addr_t, tag: u64,
            ignore: u64, context: *mut c_void,
        ) -> isize = one(Recv, buf, len, desc).to(src, context).tag(tag).detail();
        recvv "fi_trecvv" [Recv] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, src: fi_addr_t,
            tag: u64, ignore: u64, context: *mut c_void,
        ) -> isize => many(Recv, iov, desc, count).to(src, context).tag(tag).detail();
        recvmsg "fi_trecvmsg" [Recv] (ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
            => whole(Recv, msg, flags);
        send "fi_tsend" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, dest: fi_addr_t, tag: u64,
            context: *mut c_void,
        ) -> isize = one(Send, buf, len, desc).to(dest, context).tag(tag).detail();
        sendv "fi_tsendv" [Send] (
            ep: *mut fid_ep, iov: *const iovec, desc: *mut *mut c_void, count: usize, dest: fi_addr_t,
            tag: u64, context: *mut c_void,
        ) -> isize => many(Send, iov, desc, count).to(dest, context).tag(tag).detail();
        sendmsg "fi_tsendmsg" [Send] (ep: *mut fid_ep, msg: *const fi_msg_tagged, flags: u64) -> isize
            => whole(Send, msg, flags);
        inject "fi_tinject" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, dest: fi_addr_t, tag: u64,
        ) -> isize = Operation::injected(Send, buf, len, dest).tag(tag).detail();
        senddata "fi_tsenddata" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, desc: *mut c_void, data: u64, dest: fi_addr_t,
            tag: u64, context: *mut c_void,
        ) -> isize = one(Send, buf, len, desc).to(dest, context).tag(tag).detail();
        injectdata "fi_tinjectdata" [Send] (
            ep: *mut fid_ep, buf: *const c_void, len: usize, data: u64, dest: fi_addr_t, tag: u64,
        ) -> isize = Operation::injected(Send, buf, len, dest).tag(tag).detail();
    }
}
