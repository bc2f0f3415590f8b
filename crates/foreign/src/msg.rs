#![allow(unsafe_code)]
//! Messages, `fi_msg`(3).

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut as none;

use ripstop_abi::fi_msg;
use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Flags};

use crate::call::calls;
use crate::object::endpoint::done;
use crate::ops::Kind;
use crate::payload::{NOWHERE, Parts};
use crate::threading::Threading;
use crate::{Endpoint, Result};

impl<M: Threading> Endpoint<M> {
    /// `fi_send`, or `fi_senddata`.
    #[inline]
    pub(crate) fn send_one(
        &self,
        buf: UserBuf,
        data: Option<u64>,
        to: FiAddr,
        context: Context,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.msg_ops());
        let (base, len) = (buf.as_ptr().cast(), buf.len());
        match data {
            None => self.post("fi_send", Kind::Plain, context, |at| {
                calls!(table, fi_ops_msg.send(ep, base, len, none(), to.0, at))
            }),
            Some(data) => self.post("fi_senddata", Kind::Plain, context, |at| {
                calls!(
                    table,
                    fi_ops_msg.senddata(ep, base, len, none(), data, to.0, at)
                )
            }),
        }
    }

    /// `fi_sendmsg`. `data` counts with [`Flags::REMOTE_CQ_DATA`].
    pub(crate) fn sendmsg(
        &self,
        iov: &[UserBuf],
        to: FiAddr,
        data: u64,
        flags: Flags,
        context: Context,
    ) -> Result<()> {
        let mut parts = Parts::new("fi_sendmsg", &[iov])?;
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_sendmsg", Kind::Plain, context, |at| {
            let mut msg = message(&mut parts, to, data, at);
            let ret = calls!(table, fi_ops_msg.sendmsg(ep, &raw const msg, flags.bits()));
            spend(&mut msg);
            parts.spend();
            ret
        })
    }

    /// `fi_inject`, or `fi_injectdata`.
    #[inline]
    pub(crate) fn inject_one(&self, buf: UserBuf, data: Option<u64>, to: FiAddr) -> Result<()> {
        let (ep, table) = (self.raw(), self.msg_ops());
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        match data {
            None => done(
                "fi_inject",
                calls!(table, fi_ops_msg.inject(ep, from, len, to.0)),
            ),
            Some(data) => done(
                "fi_injectdata",
                calls!(table, fi_ops_msg.injectdata(ep, from, len, data, to.0)),
            ),
        }
    }

    /// `fi_recv`. `from` counts with `FI_DIRECTED_RECV`.
    #[inline]
    pub(crate) fn recv_one(&self, buf: UserBuf, from: FiAddr, context: Context) -> Result<()> {
        let (ep, table) = (self.raw(), self.msg_ops());
        let (base, len) = (buf.as_ptr().cast(), buf.len());
        self.post("fi_recv", Kind::Plain, context, |at| {
            calls!(table, fi_ops_msg.recv(ep, base, len, none(), from.0, at))
        })
    }

    /// `fi_recvmsg`.
    pub(crate) fn recvmsg(
        &self,
        iov: &[UserBuf],
        from: FiAddr,
        flags: Flags,
        context: Context,
    ) -> Result<()> {
        let kind = match flags.contains(Flags::MULTI_RECV) {
            true => Kind::Multi,
            false => Kind::Plain,
        };
        let mut parts = Parts::new("fi_recvmsg", &[iov])?;
        let (ep, table) = (self.raw(), self.msg_ops());
        self.post("fi_recvmsg", kind, context, |at| {
            let mut msg = message(&mut parts, from, 0, at);
            let ret = calls!(table, fi_ops_msg.recvmsg(ep, &raw const msg, flags.bits()));
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

pub(crate) fn message(parts: &mut Parts, addr: FiAddr, data: u64, context: *mut c_void) -> fi_msg {
    fi_msg {
        msg_iov: parts.iov.as_ptr(),
        desc: parts.desc.as_mut_ptr(),
        iov_count: parts.count,
        addr: addr.0,
        context,
        data,
    }
}
