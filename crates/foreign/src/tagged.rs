#![allow(unsafe_code)]
//! Tagged messages, `fi_tagged`(3).

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut as none;

use ripstop_abi::fi_msg_tagged;
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags};

use crate::call::calls;
use crate::object::endpoint::done;
use crate::ops::Kind;
use crate::payload::{NOWHERE, Parts};
use crate::threading::Threading;
use crate::{Endpoint, Error, Result};

impl<M: Threading> Endpoint<M> {
    /// `fi_tsend`, or `fi_tsenddata`.
    #[inline]
    pub(crate) fn tsend_one(
        &self,
        buf: UserBuf,
        tag: u64,
        data: Option<u64>,
        to: FiAddr,
        context: Context,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.tagged_ops());
        let (base, len) = (buf.as_ptr().cast(), buf.len());
        match data {
            None => self.post("fi_tsend", Kind::Plain, context, |at| {
                calls!(
                    table,
                    fi_ops_tagged.send(ep, base, len, none(), to.0, tag, at)
                )
            }),
            Some(data) => self.post("fi_tsenddata", Kind::Plain, context, |at| {
                calls!(
                    table,
                    fi_ops_tagged.senddata(ep, base, len, none(), data, to.0, tag, at)
                )
            }),
        }
    }

    /// `fi_tsendmsg`. `data` counts with [`Flags::REMOTE_CQ_DATA`].
    pub(crate) fn tsendmsg(
        &self,
        iov: &[UserBuf],
        tag: u64,
        (data, flags): (u64, Flags),
        to: FiAddr,
        context: Context,
    ) -> Result<()> {
        let mut parts = Parts::new("fi_tsendmsg", &[iov])?;
        let (ep, table) = (self.raw(), self.tagged_ops());
        self.post("fi_tsendmsg", Kind::Plain, context, |at| {
            let mut msg = message(&mut parts, to, (tag, 0), data, at);
            let ret = calls!(
                table,
                fi_ops_tagged.sendmsg(ep, &raw const msg, flags.bits())
            );
            spend(&mut msg);
            parts.spend();
            ret
        })
    }

    /// `fi_tinject`, or `fi_tinjectdata`.
    #[inline]
    pub(crate) fn tinject_one(
        &self,
        buf: UserBuf,
        tag: u64,
        data: Option<u64>,
        to: FiAddr,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.tagged_ops());
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        match data {
            None => done(
                "fi_tinject",
                calls!(table, fi_ops_tagged.inject(ep, from, len, to.0, tag)),
            ),
            Some(data) => done(
                "fi_tinjectdata",
                calls!(
                    table,
                    fi_ops_tagged.injectdata(ep, from, len, data, to.0, tag)
                ),
            ),
        }
    }

    /// `fi_trecv`, for a tag of which the bits in the second number are free.
    #[inline]
    pub(crate) fn trecv_one(
        &self,
        buf: UserBuf,
        (tag, ignore): (u64, u64),
        from: FiAddr,
        context: Context,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.tagged_ops());
        let (base, len) = (buf.as_ptr().cast(), buf.len());
        self.post("fi_trecv", Kind::Plain, context, |at| {
            calls!(
                table,
                fi_ops_tagged.recv(ep, base, len, none(), from.0, tag, ignore, at)
            )
        })
    }

    /// `fi_trecvmsg`, also for peeks and to receive or discard what one has claimed.
    ///
    /// A claim is posted with the memory that its peek had as a context.
    pub(crate) fn trecvmsg(
        &self,
        iov: &[UserBuf],
        tag: (u64, u64),
        flags: Flags,
        from: FiAddr,
        context: Context,
    ) -> Result<()> {
        const CALL: &str = "fi_trecvmsg";
        let mut parts = Parts::new(CALL, &[iov])?;
        let mut call = |at: *mut c_void| {
            let mut msg = message(&mut parts, from, tag, 0, at);
            let (ep, table) = (self.raw(), self.tagged_ops());
            let ret = calls!(
                table,
                fi_ops_tagged.recvmsg(ep, &raw const msg, flags.bits())
            );
            spend(&mut msg);
            parts.spend();
            ret
        };
        let (domain, id) = (self.domain(), self.raw().addr());
        let claims = flags.contains(Flags::CLAIM);
        if flags.contains(Flags::PEEK) || !claims {
            let kind = if claims {
                Kind::PeekClaim(id)
            } else {
                Kind::Plain
            };
            return self.post(CALL, kind, context, &mut call);
        }
        let claimed = domain.book(|book| book.claim(id, context));
        let at = claimed.ok_or(Error::new(CALL, Errno::ENOMSG))?;
        done(CALL, call(at)).inspect_err(|_| {
            domain.book(|book| book.reclaim(id, at));
        })
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

pub(crate) fn message(
    parts: &mut Parts,
    addr: FiAddr,
    (tag, ignore): (u64, u64),
    data: u64,
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
        data,
    }
}
