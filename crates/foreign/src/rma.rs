#![allow(unsafe_code)]
//! Remote memory access, `fi_rma`(3).

use std::ffi::c_void;

use ripstop_abi::fi_ops_rma;
use ripstop_types::FiAddr;

use crate::call::op;
use crate::guard::Op;
use crate::msg::{NONE, Posted};
use crate::ops::Kind;
use crate::payload::Contiguous;
use crate::threading::Threading;
use crate::{Endpoint, Error, Result};

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
        self.may_inject("fi_inject_write", bytes.len(), to)?;
        let (from, len) = (bytes.as_ptr().cast::<c_void>(), bytes.len());
        let ret = match op!(self.rma_ops(), fi_ops_rma.inject) {
            // SAFETY: the endpoint is open; the call copies the bytes before it returns.
            Some(inject) => unsafe { inject(self.raw(), from, len, to.0, address, key) },
            None => NONE,
        };
        Error::check_count("fi_inject_write", ret).map(|_| ())
    }
}
