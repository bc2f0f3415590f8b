#![allow(unsafe_code)]
//! Tagged messages (`fi_tagged(3)`).
//!
//! These operations belong to endpoints of type `D` and are called through them; buffers, I/O
//! vectors and messages are null or valid as `fi_tagged(3)` asks. Every `SAFETY` remark below
//! rests on this.

use core::ffi::c_void;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Endpoint, RecvKind, SendKind};
use ripstop_types::{FiAddr, Flags, Result};

use super::msg::{Posted, data_of};
use super::{Defaults, EpBody, Tables};
use crate::buffers;
use crate::errno::status;
use crate::object::{self, body};
use crate::tables;

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const TAGGED: &'static abi::fi_ops_tagged = &abi::fi_ops_tagged {
        recv: Some(recv::<D, M>),
        recvv: Some(recvv::<D, M>),
        recvmsg: Some(recvmsg::<D, M>),
        send: Some(send::<D, M>),
        sendv: Some(sendv::<D, M>),
        sendmsg: Some(sendmsg::<D, M>),
        inject: Some(inject::<D, M>),
        senddata: Some(senddata::<D, M>),
        injectdata: Some(injectdata::<D, M>),
        ..tables::NO_TAGGED_OPS
    };

    /// Of a context that only sends.
    pub(super) const TAGGED_TX: &'static abi::fi_ops_tagged = &abi::fi_ops_tagged {
        recv: tables::NO_TAGGED_OPS.recv,
        recvv: tables::NO_TAGGED_OPS.recvv,
        recvmsg: tables::NO_TAGGED_OPS.recvmsg,
        ..*Self::TAGGED
    };

    /// Of a context that only receives.
    pub(super) const TAGGED_RX: &'static abi::fi_ops_tagged = &abi::fi_ops_tagged {
        recv: Self::TAGGED.recv,
        recvv: Self::TAGGED.recvv,
        recvmsg: Self::TAGGED.recvmsg,
        ..tables::NO_TAGGED_OPS
    };
}

unsafe extern "C" fn send<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: abi::fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let context = context.expose_provenance();
        let (flags, dest) = (this.defaults.tx(), FiAddr(dest_addr));
        this.send(SendKind::Tagged(tag), &[buf], None, dest, context, flags)
    }))
}

unsafe extern "C" fn sendv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: abi::fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::sources(iov, count) };
    status(segs.and_then(|segs| {
        let context = context.expose_provenance();
        let (flags, dest) = (this.defaults.tx(), FiAddr(dest_addr));
        let segs = segs.as_slice();
        this.send(SendKind::Tagged(tag), segs, None, dest, context, flags)
    }))
}

unsafe extern "C" fn sendmsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let msg =
        unsafe { msg.as_ref() }.ok_or_else(|| object::missing("fi_tsendmsg or fi_trecvmsg", "msg"));
    status(msg.and_then(|msg| {
        // SAFETY: see the module.
        let segs = unsafe { buffers::sources(msg.msg_iov, msg.iov_count) }?;
        let flags = Flags::from_bits_retain(flags);
        this.send(
            SendKind::Tagged(msg.tag),
            segs.as_slice(),
            data_of(flags, msg.data),
            FiAddr(msg.addr),
            msg.context.expose_provenance(),
            Some(flags),
        )
    }))
}

unsafe extern "C" fn senddata<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    dest_addr: abi::fi_addr_t,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let context = context.expose_provenance();
        let (flags, dest) = (this.defaults.tx(), FiAddr(dest_addr));
        let (kind, data) = (SendKind::Tagged(tag), Some(data));
        this.send(kind, &[buf], data, dest, context, flags)
    }))
}

unsafe extern "C" fn inject<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: abi::fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    let (kind, dest) = (SendKind::Tagged(tag), FiAddr(dest_addr));
    status(buf.and_then(|buf| this.ep.inject(kind, buf, None, dest)))
}

unsafe extern "C" fn injectdata<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: abi::fi_addr_t,
    tag: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    let (kind, dest) = (SendKind::Tagged(tag), FiAddr(dest_addr));
    status(buf.and_then(|buf| this.ep.inject(kind, buf, Some(data), dest)))
}

unsafe extern "C" fn recv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: abi::fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::destination(buf, len) };
    let context = context.expose_provenance();
    let (flags, src) = (this.defaults.rx(), FiAddr(src_addr));
    let kind = RecvKind::Tagged { tag, ignore };
    status(this.recv(kind, &[buf], src, context, flags))
}

unsafe extern "C" fn recvv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: abi::fi_addr_t,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::destinations(iov, count) };
    status(segs.and_then(|segs| {
        let context = context.expose_provenance();
        let (flags, src) = (this.defaults.rx(), FiAddr(src_addr));
        let kind = RecvKind::Tagged { tag, ignore };
        this.recv(kind, segs.as_slice(), src, context, flags)
    }))
}

unsafe extern "C" fn recvmsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg_tagged,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let posted = unsafe { recv_message(msg, flags) };
    status(posted.and_then(|posted| {
        posted.to(|kind, segs, src, context, flags| this.recv(kind, segs, src, context, flags))
    }))
}

/// Reads the message of `fi_trecvmsg`.
///
/// # Safety
///
/// `msg` is null or valid, with its vector.
#[inline]
pub(crate) unsafe fn recv_message(msg: *const abi::fi_msg_tagged, flags: u64) -> Result<Posted> {
    // SAFETY: the caller's guarantee, for this and the block below.
    let msg = unsafe { msg.as_ref() }
        .ok_or_else(|| object::missing("fi_tsendmsg or fi_trecvmsg", "msg"))?;
    // SAFETY: as above.
    let segs = unsafe { buffers::destinations(msg.msg_iov, msg.iov_count) }?;
    Ok(Posted {
        kind: RecvKind::Tagged {
            tag: msg.tag,
            ignore: msg.ignore,
        },
        segs,
        src: FiAddr(msg.addr),
        context: msg.context.expose_provenance(),
        flags: Flags::from_bits_retain(flags),
    })
}
