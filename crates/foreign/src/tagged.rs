#![allow(unsafe_code)]
//! Tagged messages, `fi_tagged`(3).

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

use ripstop_abi::{fi_msg_tagged, fi_ops_tagged};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags};

use crate::call::op;
use crate::guard::Op;
use crate::msg::{NONE, Posted, refused};
use crate::ops::{Claim, Held, Kind, OpId};
use crate::payload::{Contiguous, NOWHERE, Parts, Payload, from_slice};
use crate::threading::Threading;
use crate::{Endpoint, Error, Rejected, Result};

/// What a refused claim gives back.
type ClaimRefused<P> = (Claim, Rejected<P>);

impl<M: Threading> Endpoint<M> {
    #[inline]
    fn tagged_ops(&self) -> *const fi_ops_tagged {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).tagged }
    }

    /// Sends a tagged message (`fi_tsend`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    #[inline]
    pub fn tsend<P: Contiguous>(&self, payload: P, to: FiAddr, tag: u64, token: u64) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.tagged_ops());
        self.post("fi_tsend", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_tagged.send) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(send) => unsafe {
                    let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                    send(ep, base, len, part.desc, to.0, tag, context)
                },
                None => NONE,
            }
        })
    }

    /// Sends a tagged message with remote CQ data (`fi_tsenddata`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn tsenddata<P: Contiguous>(
        &self,
        payload: P,
        data: u64,
        to: FiAddr,
        tag: u64,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.tagged_ops());
        self.post(
            "fi_tsenddata",
            Kind::Plain,
            token,
            payload,
            gate,
            |context| {
                match op!(table, fi_ops_tagged.senddata) {
                    // SAFETY: the endpoint is open; memory and context are booked until completion.
                    Some(senddata) => unsafe {
                        let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                        senddata(ep, base, len, part.desc, data, to.0, tag, context)
                    },
                    None => NONE,
                }
            },
        )
    }

    /// Sends a tagged message of any pieces with flags of its own (`fi_tsendmsg`). `data`
    /// counts with [`Flags::REMOTE_CQ_DATA`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`].
    pub fn tsendmsg<P: Payload>(
        &self,
        payload: P,
        to: FiAddr,
        tag: u64,
        data: u64,
        flags: Flags,
        token: u64,
    ) -> Posted<P> {
        let mut parts = match payload.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_tsendmsg", errno, payload)),
        };
        let gate = self.may_transmit(parts.op(flags), to);
        let (ep, table) = (self.raw(), self.tagged_ops());
        self.post(
            "fi_tsendmsg",
            Kind::Plain,
            token,
            payload,
            gate,
            |context| {
                let mut msg = fi_msg_tagged {
                    data,
                    ..message(&mut parts, to, tag, 0, context)
                };
                let ret = match op!(table, fi_ops_tagged.sendmsg) {
                    // SAFETY: the endpoint is open; memory and context are booked until completion.
                    Some(sendmsg) => unsafe { sendmsg(ep, &raw const msg, flags.bits()) },
                    None => NONE,
                };
                spend(&mut msg);
                parts.spend();
                ret
            },
        )
    }

    /// Sends a copy of `bytes` as a tagged message without a completion (`fi_tinject`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::inject`].
    #[inline]
    pub fn tinject(&self, bytes: &[u8], to: FiAddr, tag: u64) -> Result<()> {
        self.tinject_from(from_slice(bytes), to, tag)
    }

    #[inline]
    pub(crate) fn tinject_from(&self, buf: UserBuf, to: FiAddr, tag: u64) -> Result<()> {
        self.may_inject("fi_tinject", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.tagged_ops(), fi_ops_tagged.inject) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(inject) => unsafe { inject(self.raw(), from, len, to.0, tag) },
            None => NONE,
        };
        Error::check_count("fi_tinject", ret).map(|_| ())
    }

    /// Sends a copy of `bytes` as a tagged message with remote CQ data, without a completion
    /// (`fi_tinjectdata`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::inject`].
    pub fn tinjectdata(&self, bytes: &[u8], data: u64, to: FiAddr, tag: u64) -> Result<()> {
        self.tinjectdata_from(from_slice(bytes), data, to, tag)
    }

    #[inline]
    pub(crate) fn tinjectdata_from(
        &self,
        buf: UserBuf,
        data: u64,
        to: FiAddr,
        tag: u64,
    ) -> Result<()> {
        self.may_inject("fi_tinjectdata", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.tagged_ops(), fi_ops_tagged.injectdata) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(injectdata) => unsafe { injectdata(self.raw(), from, len, data, to.0, tag) },
            None => NONE,
        };
        Error::check_count("fi_tinjectdata", ret).map(|_| ())
    }

    /// Posts a receive for `tag`, of which the bits in `ignore` are free (`fi_trecv`). `from`
    /// counts with `FI_DIRECTED_RECV`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    #[inline]
    pub fn trecv<P: Contiguous>(
        &self,
        payload: P,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_receive(Op::plain(part.iov.iov_len), from);
        let (ep, table) = (self.raw(), self.tagged_ops());
        self.post("fi_trecv", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_tagged.recv) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(recv) => unsafe {
                    let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                    recv(ep, base, len, part.desc, from.0, tag, ignore, context)
                },
                None => NONE,
            }
        })
    }

    /// Posts a tagged receive into any pieces with flags of its own (`fi_trecvmsg`). Peeks and
    /// claims have calls of their own.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`].
    pub fn trecvmsg<P: Payload>(
        &self,
        payload: P,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        flags: Flags,
        token: u64,
    ) -> Posted<P> {
        let mut parts = match payload.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused("fi_trecvmsg", errno, payload)),
        };
        let gate = self.may_receive(parts.op(flags), from);
        self.post(
            "fi_trecvmsg",
            Kind::Plain,
            token,
            payload,
            gate,
            |context| {
                let mut msg = message(&mut parts, from, tag, ignore, context);
                let ret = self.call_trecvmsg(&msg, flags);
                spend(&mut msg);
                parts.spend();
                ret
            },
        )
    }

    /// Looks for a message that has arrived (`fi_trecvmsg` with `FI_PEEK`). The completion
    /// describes it, or is the error `FI_ENOMSG`. With [`Flags::CLAIM`] in `flags` a message
    /// that is found is reserved, and its completion returns the [`Claim`]; with
    /// [`Flags::DISCARD`] it is dropped.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn tpeek(
        &self,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        flags: Flags,
        token: u64,
    ) -> Result<OpId> {
        self.may_receive(Op::plain(0), from)
            .map_err(|errno| Error::new("fi_trecvmsg", errno))?;
        let flags = (flags & (Flags::CLAIM | Flags::DISCARD)) | Flags::PEEK;
        let kind = match flags.contains(Flags::CLAIM) {
            true => Kind::PeekClaim(self.raw().addr()),
            false => Kind::Plain,
        };
        self.post_bare("fi_trecvmsg", kind, token, |context| {
            let msg = bare(from, tag, ignore, context);
            self.call_trecvmsg(&msg, flags)
        })
    }

    /// Receives a claimed message (`fi_trecvmsg` with `FI_CLAIM`). `from`, `tag` and `ignore`
    /// are those of the peek.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`]; `FI_EINVAL` when another endpoint made the claim. Claim and
    /// memory come back.
    pub fn tclaim<P: Contiguous>(
        &self,
        claim: Claim,
        payload: P,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        token: u64,
    ) -> std::result::Result<OpId, ClaimRefused<P>> {
        const CALL: &str = "fi_trecvmsg";
        let domain = self.domain();
        let parts = self
            .may_receive(Op::plain(0), from)
            .and_then(|()| payload.admit(domain.place()))
            .and_then(|()| payload.parts());
        let mut parts = match parts {
            Ok(parts) => parts,
            Err(errno) => return Err((claim, refused(CALL, errno, payload))),
        };
        let (held, rest) = payload.park();
        let ep = self.raw().addr();
        let entered = domain.book(|book| book.reenter(&claim, ep, token, held));
        let (op, context) = match entered {
            Ok(entered) => entered,
            Err(held) => {
                return Err((claim, refused(CALL, Errno::EINVAL, P::unpark(held, rest))));
            }
        };
        let mut msg = message(&mut parts, from, tag, ignore, context);
        let ret = self.call_trecvmsg(&msg, Flags::CLAIM);
        spend(&mut msg);
        parts.spend();
        match Error::check_count(CALL, ret) {
            Ok(_) => Ok(op),
            Err(error) => {
                let held = domain.book(|book| book.reclaim(op, ep));
                Err((
                    claim,
                    Rejected {
                        error,
                        payload: P::unpark(held, rest),
                    },
                ))
            }
        }
    }

    /// Drops a claimed message (`fi_trecvmsg` with `FI_CLAIM` and `FI_DISCARD`); there is a
    /// completion. `from`, `tag` and `ignore` are those of the peek.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when another endpoint made the claim, and what the library says; the claim
    /// comes back.
    pub fn tdiscard(
        &self,
        claim: Claim,
        from: FiAddr,
        tag: u64,
        ignore: u64,
        token: u64,
    ) -> std::result::Result<OpId, (Claim, Error)> {
        const CALL: &str = "fi_trecvmsg";
        if let Err(errno) = self.may_receive(Op::plain(0), from) {
            return Err((claim, Error::new(CALL, errno)));
        }
        let (domain, ep) = (self.domain(), self.raw().addr());
        let entered = domain.book(|book| book.reenter(&claim, ep, token, Held::Nothing));
        let Ok((op, context)) = entered else {
            return Err((claim, Error::new(CALL, Errno::EINVAL)));
        };
        let msg = bare(from, tag, ignore, context);
        let ret = self.call_trecvmsg(&msg, Flags::CLAIM | Flags::DISCARD);
        match Error::check_count(CALL, ret) {
            Ok(_) => Ok(op),
            Err(error) => {
                domain.book(|book| book.reclaim(op, ep));
                Err((claim, error))
            }
        }
    }

    /// The call itself; what `msg` names must be booked until completion.
    fn call_trecvmsg(&self, msg: &fi_msg_tagged, flags: Flags) -> isize {
        match op!(self.tagged_ops(), fi_ops_tagged.recvmsg) {
            // SAFETY: the endpoint is open; memory and context are booked until completion.
            Some(recvmsg) => unsafe { recvmsg(self.raw(), msg, flags.bits()) },
            None => NONE,
        }
    }
}

/// Overwrites a message once the call has returned, after which nobody may look at it.
fn spend(msg: &mut fi_msg_tagged) {
    *msg = fi_msg_tagged {
        msg_iov: NOWHERE.cast(),
        desc: NOWHERE.cast(),
        iov_count: usize::MAX,
        addr: u64::MAX,
        tag: u64::MAX,
        ignore: 0,
        context: NOWHERE,
        data: u64::MAX,
    };
    black_box(msg);
}

fn message(
    parts: &mut Parts,
    addr: FiAddr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> fi_msg_tagged {
    fi_msg_tagged {
        msg_iov: parts.iov.as_ptr(),
        desc: parts.desc.as_mut_ptr(),
        iov_count: parts.count,
        addr: addr.0,
        tag,
        ignore,
        context,
        data: 0,
    }
}

/// A message without memory.
fn bare(addr: FiAddr, tag: u64, ignore: u64, context: *mut c_void) -> fi_msg_tagged {
    fi_msg_tagged {
        msg_iov: ptr::null(),
        desc: ptr::null_mut(),
        iov_count: 0,
        addr: addr.0,
        tag,
        ignore,
        context,
        data: 0,
    }
}
