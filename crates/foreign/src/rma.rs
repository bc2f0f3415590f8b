#![allow(unsafe_code)]
//! Remote memory access, `fi_rma`(3).

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr::null_mut as none;

use ripstop_abi::{fi_msg_rma, fi_rma_iov};
use ripstop_core::provider::RmaCall;
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, RmaIov};

use crate::call::calls;
use crate::object::endpoint::done;
use crate::ops::Kind;
use crate::payload::{NOWHERE, Parts};
use crate::threading::Threading;
use crate::{Endpoint, Error, Result};

/// Pieces of a peer's memory that one operation may name here.
const MAX_REMOTE: usize = 16;

/// Pieces of a peer's memory as C takes them.
pub(crate) type Places = [fi_rma_iov; MAX_REMOTE];

/// The pieces for this call.
pub(crate) fn places(call: &'static str, remote: &[RmaIov]) -> Result<Places> {
    let mut places = [fi_rma_iov::default(); MAX_REMOTE];
    let room = places.get_mut(..remote.len());
    let room = room.ok_or(Error::new(call, Errno::EINVAL))?;
    for (place, piece) in room.iter_mut().zip(remote) {
        (place.addr, place.len, place.key) = (piece.addr, piece.len as usize, piece.key);
    }
    Ok(places)
}

pub(crate) fn message(
    parts: &mut Parts,
    places: &Places,
    call: &RmaCall<'_>,
    context: *mut c_void,
) -> fi_msg_rma {
    fi_msg_rma {
        msg_iov: parts.iov.as_ptr(),
        desc: parts.desc.as_mut_ptr(),
        iov_count: parts.count,
        addr: call.peer.0,
        rma_iov: places.as_ptr(),
        rma_iov_count: call.remote.len(),
        context,
        data: call.data.unwrap_or(0),
    }
}

/// Overwrites a message and the places it names once the call has returned, after which nobody may
/// look at them.
fn spend(msg: &mut fi_msg_rma, places: &mut Places) {
    *places = [fi_rma_iov {
        addr: u64::MAX,
        len: usize::MAX,
        key: u64::MAX,
    }; MAX_REMOTE];
    *msg = fi_msg_rma {
        msg_iov: NOWHERE.cast(),
        desc: NOWHERE.cast(),
        iov_count: usize::MAX,
        addr: u64::MAX,
        rma_iov: NOWHERE.cast(),
        rma_iov_count: usize::MAX,
        context: NOWHERE,
        data: u64::MAX,
    };
    black_box((msg, places));
}

impl<M: Threading> Endpoint<M> {
    /// `fi_write`, or `fi_writedata`.
    #[inline]
    pub(crate) fn write_one(
        &self,
        buf: UserBuf,
        data: Option<u64>,
        to: RmaIov,
        peer: FiAddr,
        context: Context,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.rma_ops());
        let (base, len, RmaIov { addr, key, .. }) = (buf.as_ptr().cast(), buf.len(), to);
        match data {
            None => self.post("fi_write", Kind::Plain, context, |at| {
                calls!(
                    table,
                    fi_ops_rma.write(ep, base, len, none(), peer.0, addr, key, at)
                )
            }),
            Some(data) => self.post("fi_writedata", Kind::Plain, context, |at| {
                calls!(
                    table,
                    fi_ops_rma.writedata(ep, base, len, none(), data, peer.0, addr, key, at)
                )
            }),
        }
    }

    /// `fi_read`.
    #[inline]
    pub(crate) fn read_one(
        &self,
        buf: UserBuf,
        from: RmaIov,
        peer: FiAddr,
        context: Context,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.rma_ops());
        let (base, len, RmaIov { addr, key, .. }) = (buf.as_ptr().cast(), buf.len(), from);
        self.post("fi_read", Kind::Plain, context, |at| {
            calls!(
                table,
                fi_ops_rma.read(ep, base, len, none(), peer.0, addr, key, at)
            )
        })
    }

    /// `fi_inject_write`, or `fi_inject_writedata`.
    #[inline]
    pub(crate) fn inject_write_one(
        &self,
        buf: UserBuf,
        data: Option<u64>,
        to: RmaIov,
        peer: FiAddr,
    ) -> Result<()> {
        let (ep, table) = (self.raw(), self.rma_ops());
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let RmaIov { addr, key, .. } = to;
        match data {
            None => done(
                "fi_inject_write",
                calls!(table, fi_ops_rma.inject(ep, from, len, peer.0, addr, key)),
            ),
            Some(data) => done(
                "fi_inject_writedata",
                calls!(
                    table,
                    fi_ops_rma.injectdata(ep, from, len, data, peer.0, addr, key)
                ),
            ),
        }
    }

    /// `fi_readv`, or `fi_writev`, from or to one place of a peer's memory.
    pub(crate) fn rmav(
        &self,
        reads: bool,
        iov: &[UserBuf],
        place: RmaIov,
        peer: FiAddr,
        context: Context,
    ) -> Result<()> {
        let call = if reads { "fi_readv" } else { "fi_writev" };
        let mut parts = Parts::new(call, &[iov])?;
        let (ep, table, RmaIov { addr, key, .. }) = (self.raw(), self.rma_ops(), place);
        self.post(call, Kind::Plain, context, |at| {
            let Parts { iov, desc, count } = &mut parts;
            let (iov, desc, count) = (iov.as_ptr(), desc.as_mut_ptr(), *count);
            let ret = match reads {
                true => calls!(
                    table,
                    fi_ops_rma.readv(ep, iov, desc, count, peer.0, addr, key, at)
                ),
                false => {
                    calls!(
                        table,
                        fi_ops_rma.writev(ep, iov, desc, count, peer.0, addr, key, at)
                    )
                }
            };
            parts.spend();
            ret
        })
    }

    /// `fi_readmsg`, or `fi_writemsg`.
    pub(crate) fn rmamsg(
        &self,
        reads: bool,
        iov: &[UserBuf],
        asked: &RmaCall<'_>,
        flags: Flags,
    ) -> Result<()> {
        let call = if reads { "fi_readmsg" } else { "fi_writemsg" };
        let mut parts = Parts::new(call, &[iov])?;
        let mut places = places(call, asked.remote)?;
        let (ep, table, flags) = (self.raw(), self.rma_ops(), flags.bits());
        self.post(call, Kind::Plain, asked.context, |at| {
            let mut msg = message(&mut parts, &places, asked, at);
            let ret = match reads {
                true => calls!(table, fi_ops_rma.readmsg(ep, &raw const msg, flags)),
                false => calls!(table, fi_ops_rma.writemsg(ep, &raw const msg, flags)),
            };
            spend(&mut msg, &mut places);
            parts.spend();
            ret
        })
    }
}
