#![allow(unsafe_code)]
//! Messages (`fi_msg(3)`): each operation is the provider's own, with the arguments put in order.
//!
//! These operations belong to endpoints of type `D` and are called through them; buffers, I/O
//! vectors and messages are null or valid as `fi_msg(3)` asks. Every `SAFETY` remark below
//! rests on this.

use core::ffi::c_void;

use ripstop_abi as abi;
use ripstop_core::provider::{DataCall, Domain, Endpoint, RecvKind, SendKind};
use ripstop_mem::UserBuf;
use ripstop_types::{FiAddr, Flags, Result};

use super::{Defaults, EpBody, Tables};
use crate::buffers;
use crate::errno::status;
use crate::object::{self, body};
use crate::tables;

impl<D: Domain, M: Defaults> Tables<D, M> {
    pub(super) const MSG: &'static abi::fi_ops_msg = &abi::fi_ops_msg {
        recv: Some(recv::<D, M>),
        recvv: Some(recvv::<D, M>),
        recvmsg: Some(recvmsg::<D, M>),
        send: Some(send::<D, M>),
        sendv: Some(sendv::<D, M>),
        sendmsg: Some(sendmsg::<D, M>),
        inject: Some(inject::<D, M>),
        senddata: Some(senddata::<D, M>),
        injectdata: Some(injectdata::<D, M>),
        ..tables::NO_MSG_OPS
    };

    /// Of a context that only sends.
    pub(super) const MSG_TX: &'static abi::fi_ops_msg = &abi::fi_ops_msg {
        recv: tables::NO_MSG_OPS.recv,
        recvv: tables::NO_MSG_OPS.recvv,
        recvmsg: tables::NO_MSG_OPS.recvmsg,
        ..*Self::MSG
    };

    /// Of a context that only receives.
    pub(super) const MSG_RX: &'static abi::fi_ops_msg = &abi::fi_ops_msg {
        recv: Self::MSG.recv,
        recvv: Self::MSG.recvv,
        recvmsg: Self::MSG.recvmsg,
        ..tables::NO_MSG_OPS
    };
}

/// Remote CQ data of a call that takes flags: there only if the flags say so.
#[inline(always)]
pub(crate) fn data_of(flags: Flags, data: u64) -> Option<u64> {
    flags.contains(Flags::REMOTE_CQ_DATA).then_some(data)
}

unsafe extern "C" fn send<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    dest_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let context = context.expose_provenance();
        let (flags, dest) = (this.defaults.tx(), FiAddr(dest_addr));
        this.send(SendKind::Msg, &[buf], None, dest, context, flags)
    }))
}

unsafe extern "C" fn sendv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    dest_addr: abi::fi_addr_t,
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
        this.send(SendKind::Msg, segs, None, dest, context, flags)
    }))
}

unsafe extern "C" fn sendmsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let msg =
        unsafe { msg.as_ref() }.ok_or_else(|| object::missing("fi_sendmsg or fi_recvmsg", "msg"));
    status(msg.and_then(|msg| {
        // SAFETY: see the module.
        let segs = unsafe { buffers::sources(msg.msg_iov, msg.iov_count) }?;
        let flags = Flags::from_bits_retain(flags);
        this.send(
            SendKind::Msg,
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
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    status(buf.and_then(|buf| {
        let context = context.expose_provenance();
        let (flags, dest) = (this.defaults.tx(), FiAddr(dest_addr));
        this.send(SendKind::Msg, &[buf], Some(data), dest, context, flags)
    }))
}

unsafe extern "C" fn inject<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    dest_addr: abi::fi_addr_t,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    let dest = FiAddr(dest_addr);
    status(buf.and_then(|buf| this.ep.inject(SendKind::Msg, buf, None, dest)))
}

unsafe extern "C" fn injectdata<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *const c_void,
    len: usize,
    data: u64,
    dest_addr: abi::fi_addr_t,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::source(buf, len) };
    let dest = FiAddr(dest_addr);
    status(buf.and_then(|buf| this.ep.inject(SendKind::Msg, buf, Some(data), dest)))
}

unsafe extern "C" fn recv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    src_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let buf = unsafe { buffers::destination(buf, len) };
    let context = context.expose_provenance();
    let (flags, src) = (this.defaults.rx(), FiAddr(src_addr));
    status(this.recv(RecvKind::Msg, &[buf], src, context, flags))
}

unsafe extern "C" fn recvv<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    iov: *const abi::iovec,
    _desc: *mut *mut c_void,
    count: usize,
    src_addr: abi::fi_addr_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(ep) };
    // SAFETY: see the module.
    let segs = unsafe { buffers::destinations(iov, count) };
    status(segs.and_then(|segs| {
        let context = context.expose_provenance();
        let (flags, src) = (this.defaults.rx(), FiAddr(src_addr));
        let segs = segs.as_slice();
        this.recv(RecvKind::Msg, segs, src, context, flags)
    }))
}

unsafe extern "C" fn recvmsg<D: Domain, M: Defaults>(
    ep: *mut abi::fid_ep,
    msg: *const abi::fi_msg,
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

/// A receive as `fi_recvmsg` or `fi_trecvmsg` describes it.
pub(crate) struct Posted {
    pub(crate) kind: RecvKind,
    pub(crate) segs: buffers::Segments,
    pub(crate) src: FiAddr,
    pub(crate) context: usize,
    pub(crate) flags: Flags,
}

impl Posted {
    /// As a call that may be put off.
    pub(crate) fn call(&self) -> DataCall<'_> {
        DataCall::Recv {
            kind: self.kind,
            iov: self.segs.as_slice(),
            src: self.src,
            context: self.context,
            flags: self.flags,
        }
    }

    /// Posts it.
    #[inline(always)]
    pub(crate) fn to(
        &self,
        recv: impl FnOnce(RecvKind, &[UserBuf], FiAddr, usize, Option<Flags>) -> Result<()>,
    ) -> Result<()> {
        let segs = self.segs.as_slice();
        recv(self.kind, segs, self.src, self.context, Some(self.flags))
    }
}

/// Reads the message of `fi_recvmsg`.
///
/// # Safety
///
/// `msg` is null or valid, with its vector.
#[inline]
pub(crate) unsafe fn recv_message(msg: *const abi::fi_msg, flags: u64) -> Result<Posted> {
    // SAFETY: the caller's guarantee, for this and the block below.
    let msg = unsafe { msg.as_ref() }
        .ok_or_else(|| object::missing("fi_sendmsg or fi_recvmsg", "msg"))?;
    // SAFETY: as above.
    let segs = unsafe { buffers::destinations(msg.msg_iov, msg.iov_count) }?;
    Ok(Posted {
        kind: RecvKind::Msg,
        segs,
        src: FiAddr(msg.addr),
        context: msg.context.expose_provenance(),
        flags: Flags::from_bits_retain(flags),
    })
}

/// `fi_cancel`.
pub(super) unsafe extern "C" fn cancel<D: Domain, M: Defaults>(
    fid: abi::fid_t,
    context: *mut c_void,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EpBody<D, M>>(fid.cast()) };
    status(this.ep.cancel(context.expose_provenance()))
}
