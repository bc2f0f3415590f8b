#![allow(unsafe_code)]
//! Remote memory access, `fi_rma`(3).

use std::ffi::c_void;
use std::hint::black_box;

use ripstop_abi::{fi_msg_rma, fi_ops_rma, fi_rma_iov};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags, RmaIov};

use crate::call::op;
use crate::guard::Op;
use crate::msg::{NONE, Posted, refused};
use crate::ops::Kind;
use crate::payload::{Contiguous, NOWHERE, Parts, Payload, from_slice};
use crate::threading::Threading;
use crate::{Endpoint, Error, Result};

/// Pieces of a peer's memory that one operation may name here.
pub(crate) const MAX_REMOTE: usize = 16;

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the peer's memory into ours.
    Read,
    /// From our memory into the peer's.
    Write,
}

/// Overwrites a message and the places it names once the call has returned, after which nobody may
/// look at them.
fn spend(msg: &mut fi_msg_rma, places: &mut [fi_rma_iov; MAX_REMOTE]) {
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
    #[inline]
    fn rma_ops(&self) -> *const fi_ops_rma {
        // SAFETY: the endpoint is open.
        unsafe { (*self.raw()).rma }
    }

    /// Writes to a peer's memory (`fi_write`), at `address` of the region with `key`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    #[inline]
    pub fn write<P: Contiguous>(
        &self,
        payload: P,
        to: FiAddr,
        address: u64,
        key: u64,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.rma_ops());
        self.post("fi_write", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_rma.write) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(write) => unsafe {
                    let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                    write(ep, base, len, part.desc, to.0, address, key, context)
                },
                None => NONE,
            }
        })
    }

    /// Writes to a peer's memory with remote CQ data (`fi_writedata`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    pub fn writedata<P: Contiguous>(
        &self,
        payload: P,
        data: u64,
        to: FiAddr,
        address: u64,
        key: u64,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), to);
        let (ep, table) = (self.raw(), self.rma_ops());
        self.post(
            "fi_writedata",
            Kind::Plain,
            token,
            payload,
            gate,
            |context| {
                match op!(table, fi_ops_rma.writedata) {
                    // SAFETY: the endpoint is open; memory and context are booked until completion.
                    Some(writedata) => unsafe {
                        let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                        writedata(ep, base, len, part.desc, data, to.0, address, key, context)
                    },
                    None => NONE,
                }
            },
        )
    }

    /// Reads a peer's memory (`fi_read`), from `address` of the region with `key`.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::send`].
    #[inline]
    pub fn read<P: Contiguous>(
        &self,
        payload: P,
        from: FiAddr,
        address: u64,
        key: u64,
        token: u64,
    ) -> Posted<P> {
        let part = payload.part();
        let gate = self.may_transmit(Op::plain(part.iov.iov_len), from);
        let (ep, table) = (self.raw(), self.rma_ops());
        self.post("fi_read", Kind::Plain, token, payload, gate, |context| {
            match op!(table, fi_ops_rma.read) {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(read) => unsafe {
                    let (base, len) = (part.iov.iov_base, part.iov.iov_len);
                    read(ep, base, len, part.desc, from.0, address, key, context)
                },
                None => NONE,
            }
        })
    }

    /// Writes a copy of `bytes` to a peer's memory without a completion (`fi_inject_write`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::inject`].
    #[inline]
    pub fn inject_write(&self, bytes: &[u8], to: FiAddr, address: u64, key: u64) -> Result<()> {
        self.inject_write_from(from_slice(bytes), to, address, key)
    }

    #[inline]
    pub(crate) fn inject_write_from(
        &self,
        buf: UserBuf,
        to: FiAddr,
        address: u64,
        key: u64,
    ) -> Result<()> {
        self.may_inject("fi_inject_write", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.rma_ops(), fi_ops_rma.inject) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(inject) => unsafe { inject(self.raw(), from, len, to.0, address, key) },
            None => NONE,
        };
        Error::check_count("fi_inject_write", ret).map(|_| ())
    }

    /// As [`Endpoint::inject_write`], with remote CQ data (`fi_inject_writedata`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::inject`].
    pub fn inject_writedata(
        &self,
        bytes: &[u8],
        data: u64,
        to: FiAddr,
        address: u64,
        key: u64,
    ) -> Result<()> {
        self.inject_writedata_from(from_slice(bytes), data, to, address, key)
    }

    #[inline]
    pub(crate) fn inject_writedata_from(
        &self,
        buf: UserBuf,
        data: u64,
        to: FiAddr,
        address: u64,
        key: u64,
    ) -> Result<()> {
        self.may_inject("fi_inject_writedata", buf.len(), to)?;
        let (from, len) = (buf.as_ptr().cast::<c_void>(), buf.len());
        let ret = match op!(self.rma_ops(), fi_ops_rma.injectdata) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(inject) => unsafe { inject(self.raw(), from, len, data, to.0, address, key) },
            None => NONE,
        };
        Error::check_count("fi_inject_writedata", ret).map(|_| ())
    }

    /// Moves any pieces of memory from or to one place of a peer's (`fi_readv`, `fi_writev`).
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`].
    pub fn rmav<P: Payload>(
        &self,
        direction: Direction,
        payload: P,
        peer: FiAddr,
        (address, key): (u64, u64),
        token: u64,
    ) -> Posted<P> {
        let call = match direction {
            Direction::Read => "fi_readv",
            Direction::Write => "fi_writev",
        };
        let mut parts = match payload.parts() {
            Ok(parts) => parts,
            Err(errno) => return Err(refused(call, errno, payload)),
        };
        let gate = self.may_transmit(parts.op(Flags::empty()), peer);
        let (ep, table) = (self.raw(), self.rma_ops());
        self.post(call, Kind::Plain, token, payload, gate, |context| {
            let found = match direction {
                Direction::Read => op!(table, fi_ops_rma.readv),
                Direction::Write => op!(table, fi_ops_rma.writev),
            };
            let Parts { iov, desc, count } = &mut parts;
            let (iov, desc) = (iov.as_ptr(), desc.as_mut_ptr());
            let ret = match found {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(rma) => unsafe { rma(ep, iov, desc, *count, peer.0, address, key, context) },
                None => NONE,
            };
            parts.spend();
            ret
        })
    }

    /// Moves any pieces of memory from or to any places of a peer's, with flags of its own
    /// (`fi_readmsg`, `fi_writemsg`). `data` counts with [`Flags::REMOTE_CQ_DATA`].
    ///
    /// # Errors
    ///
    /// As [`Endpoint::sendmsg`]; `FI_EINVAL` for more than 16 places.
    pub fn rmamsg<P: Payload>(
        &self,
        direction: Direction,
        payload: P,
        peer: FiAddr,
        remote: &[RmaIov],
        (data, flags): (u64, Flags),
        token: u64,
    ) -> Posted<P> {
        let call = match direction {
            Direction::Read => "fi_readmsg",
            Direction::Write => "fi_writemsg",
        };
        let mut places = [fi_rma_iov::default(); MAX_REMOTE];
        let parts = match (payload.parts(), places.get_mut(..remote.len())) {
            (Ok(parts), Some(places)) => {
                for (place, piece) in places.iter_mut().zip(remote) {
                    (place.addr, place.len, place.key) =
                        (piece.addr, piece.len as usize, piece.key);
                }
                Ok(parts)
            }
            (Err(errno), _) => Err(errno),
            (_, None) => Err(Errno::EINVAL),
        };
        let mut parts = match parts {
            Ok(parts) => parts,
            Err(errno) => return Err(refused(call, errno, payload)),
        };
        let gate = self.may_transmit(parts.op(flags), peer);
        let (ep, table) = (self.raw(), self.rma_ops());
        self.post(call, Kind::Plain, token, payload, gate, |context| {
            let found = match direction {
                Direction::Read => op!(table, fi_ops_rma.readmsg),
                Direction::Write => op!(table, fi_ops_rma.writemsg),
            };
            let mut msg = fi_msg_rma {
                msg_iov: parts.iov.as_ptr(),
                desc: parts.desc.as_mut_ptr(),
                iov_count: parts.count,
                addr: peer.0,
                rma_iov: places.as_ptr(),
                rma_iov_count: remote.len(),
                context,
                data,
            };
            let ret = match found {
                // SAFETY: the endpoint is open; memory and context are booked until completion.
                Some(rma) => unsafe { rma(ep, &raw const msg, flags.bits()) },
                None => NONE,
            };
            spend(&mut msg, &mut places);
            parts.spend();
            ret
        })
    }
}
