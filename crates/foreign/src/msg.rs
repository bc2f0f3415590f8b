#![allow(unsafe_code)]
//! Messages, `fi_msg`(3).

use std::ffi::c_void;
use std::hint::black_box;

use ripstop_abi::{fi_msg, fi_ops_msg};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags};

use crate::buf::Buf;
use crate::call::{ENOSYS, op};
use crate::guard::Op;
use crate::ops::{Kind, OpId};
use crate::payload::{Contiguous, NOWHERE, Parts, Payload, from_slice};
use crate::threading::Threading;
use crate::{Endpoint, Error, Rejected, Result};

pub(crate) const NONE: isize = ENOSYS as isize;

/// What posting an operation gives: the operation, or the memory back with the reason.
pub(crate) type Posted<P> = std::result::Result<OpId, Rejected<P>>;

impl<M: Threading> Endpoint<M> {
    #[inline]
    fn msg_ops(&self) -> *const fi_ops_msg {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).msg }
    }

    /// Sends a message (`fi_send`). A connected endpoint ignores `to`. `token` comes back with
    /// the completion.
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when a queue is full, `FI_EADDRNOTAVAIL` for an address that the endpoint's
    /// vector does not have, `FI_EMSGSIZE` for more bytes than the info allows, `FI_EDOMAIN`
    /// for a slice of another domain's region, and what else the library says; the memory comes
    /// back.
    #[inline]
    pub fn send<P: Contiguous>(&self, payload: P, to: FiAddr, token: u64) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_send", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_msg.send) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(send) => unsafe {
                    send(
                        ep,
                        part.iov.iov_base,
                        part.iov.iov_len,
                        part.desc,
                        to.0,
                        context,
                    )
                },
                None => NONE,
            }
        })
    }

    /// Sends a message with remote CQ data (`fi_senddata`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn senddata<P: Contiguous>(
        &self,
        payload: P,
        data: u64,
        to: FiAddr,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post(
            "fi_senddata",
            Kind::Plain,
            token,
            payload,
            gate,
            |context| {
                match op!(table, fi_ops_msg.senddata) {
                    // SAFETY: the endpoint is open; memory and context are booked until completion.
                    Some(senddata) => unsafe {
                        let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                        senddata(ep, base, len, part.desc, data, to.0, context)
                    },
                    None => NONE,
                }
            },
        )
    }

    /// Sends a message of any pieces with flags of its own (`fi_sendmsg`). `data` counts with
    /// [`Flags::REMOTE_CQ_DATA`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`]; `FI_EINVAL` for more pieces than the info allows or 16, or for
    /// `FI_INJECT` of more bytes than it allows; `FI_EBADFLAGS` for flags that would change
    /// what memory and context are used for, such as `FI_TRIGGER`.
    pub fn sendmsg<P: Payload>(
        &self,
        payload: P,
        to: FiAddr,
        data: u64,
        flags: Flags,
        token: u64,
    ) -> Posted<P> {
        let mut parts = match payload.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_sendmsg", errno, payload)),
        };
        let gate = self.may_transmit(parts.op(flags), to);
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_sendmsg", Kind::Plain, token, payload, gate, |context| {
            let mut msg = message(&mut parts, to, data, context);
            let ret = match op!(table, fi_ops_msg.sendmsg) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(sendmsg) => unsafe { sendmsg(ep, &raw const msg, flags.bits()) },
                None => NONE,
            };
            spend(&mut msg);
            parts.spend();
            ret
        })
    }

    /// Sends a copy of `bytes` without a completion (`fi_inject`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for more bytes than the info allows, else as [`Endpoint::send`].
    #[inline]
    pub fn inject(&self, bytes: &[u8], to: FiAddr) -> Result<()> {
        self.inject_from(from_slice(bytes), to)
    }

    #[inline]
    pub(crate) fn inject_from(&self, buf: UserBuf, to: FiAddr) -> Result<()> {
        self.may_inject("fi_inject", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.msg_ops(), fi_ops_msg.inject) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(inject) => unsafe { inject(self.raw(), from, len, to.0) },
            None => NONE,
        };
        Error::check_count("fi_inject", ret).map(|_| ())
    }

    /// Sends a copy of `bytes` with remote CQ data, without a completion (`fi_injectdata`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for more bytes than the info allows, else as [`Endpoint::send`].
    pub fn injectdata(&self, bytes: &[u8], data: u64, to: FiAddr) -> Result<()> {
        self.injectdata_from(from_slice(bytes), data, to)
    }

    #[inline]
    pub(crate) fn injectdata_from(&self, buf: UserBuf, data: u64, to: FiAddr) -> Result<()> {
        self.may_inject("fi_injectdata", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.msg_ops(), fi_ops_msg.injectdata) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(injectdata) => unsafe { injectdata(self.raw(), from, len, data, to.0) },
            None => NONE,
        };
        Error::check_count("fi_injectdata", ret).map(|_| ())
    }

    /// Posts a receive (`fi_recv`). `from` counts with `FI_DIRECTED_RECV`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    #[inline]
    pub fn recv<P: Contiguous>(&self, payload: P, from: FiAddr, token: u64) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_receive(Op::plain(part.iov.iov_len), from);
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_recv", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_msg.recv) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(recv) => unsafe {
                    recv(
                        ep,
                        part.iov.iov_base,
                        part.iov.iov_len,
                        part.desc,
                        from.0,
                        context,
                    )
                },
                None => NONE,
            }
        })
    }

    /// Posts a receive into any pieces with flags of its own (`fi_recvmsg`). For a buffer of
    /// several messages see [`Endpoint::recv_multi`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`].
    pub fn recvmsg<P: Payload>(
        &self,
        payload: P,
        from: FiAddr,
        flags: Flags,
        token: u64,
    ) -> Posted<P> {
        if flags.contains(Flags::MULTI_RECV) {
            return Err(refused("fi_recvmsg", Errno::EBADFLAGS, payload));
        }
        self.post_recvmsg(Kind::Plain, payload, from, flags, token)
    }

    /// Posts a buffer that takes messages until it is nearly full (`fi_recvmsg` with
    /// `FI_MULTI_RECV`). Each message comes as [`Returned::Piece`](crate::Returned), the last
    /// one with the buffer. The queue needs format DATA or TAGGED for the bytes.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn recv_multi(&self, buf: Buf, from: FiAddr, token: u64) -> Posted<Buf> {
        self.post_recvmsg(Kind::Multi, buf, from, Flags::MULTI_RECV, token)
    }

    pub(crate) fn post_recvmsg<P: Payload>(
        &self,
        kind: Kind,
        payload: P,
        from: FiAddr,
        flags: Flags,
        token: u64,
    ) -> Posted<P> {
        let mut parts = match payload.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_recvmsg", errno, payload)),
        };
        let gate = self.may_receive(parts.op(flags - Flags::MULTI_RECV), from);
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_recvmsg", kind, token, payload, gate, |context| {
            let mut msg = message(&mut parts, from, 0, context);
            let ret = match op!(table, fi_ops_msg.recvmsg) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(recvmsg) => unsafe { recvmsg(ep, &raw const msg, flags.bits()) },
                None => NONE,
            };
            spend(&mut msg);
            parts.spend();
            ret
        })
    }
}

/// Overwrites a message once the call has returned, after which nobody may look at it.
fn spend(msg: &mut fi_msg) {
    *msg = fi_msg {
        msg_iov: NOWHERE.cast(),
        desc: NOWHERE.cast(),
        iov_count: usize::MAX,
        addr: u64::MAX,
        context: NOWHERE,
        data: u64::MAX,
    };
    black_box(msg);
}

fn message(parts: &mut Parts, addr: FiAddr, data: u64, context: *mut c_void) -> fi_msg {
    fi_msg {
        msg_iov: parts.iov.as_ptr(),
        desc: parts.desc.as_mut_ptr(),
        iov_count: parts.count,
        addr: addr.0,
        context,
        data,
    }
}

pub(crate) fn refused<P>(call: &'static str, errno: Errno, payload: P) -> Rejected<P> {
    Rejected {
        error: Error::new(call, errno),
        payload,
    }
}
