//! Reading and writing fields one after the other, each with one length check.

use crate::{ByteOrder, WireError};

/// Takes numbers off the front of received bytes.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    order: ByteOrder,
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(order: ByteOrder, bytes: &'a [u8]) -> Self {
        Self { rest: bytes, order }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], WireError> {
        let (field, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated {
            found: self.rest.len(),
            needed: N,
        })?;
        self.rest = rest;
        Ok(*field)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(|bytes| self.order.u16(bytes))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(|bytes| self.order.u32(bytes))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(|bytes| self.order.u64(bytes))
    }
}

/// Puts fields at the front of a caller's buffer.
pub(crate) struct Writer<'a> {
    rest: &'a mut [u8],
    order: ByteOrder,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(order: ByteOrder, out: &'a mut [u8]) -> Self {
        Self { rest: out, order }
    }

    pub(crate) fn array<const N: usize>(&mut self, field: [u8; N]) -> Result<(), WireError> {
        let room = self.rest.len();
        let (place, rest) = core::mem::take(&mut self.rest)
            .split_first_chunk_mut()
            .ok_or(WireError::NoRoom {
                found: room,
                needed: N,
            })?;
        *place = field;
        self.rest = rest;
        Ok(())
    }

    pub(crate) fn u16(&mut self, value: u16) -> Result<(), WireError> {
        self.array(self.order.bytes16(value))
    }

    pub(crate) fn u32(&mut self, value: u32) -> Result<(), WireError> {
        self.array(self.order.bytes32(value))
    }

    pub(crate) fn u64(&mut self, value: u64) -> Result<(), WireError> {
        self.array(self.order.bytes64(value))
    }
}

/// The bytes of a header that is made of words of eight bytes.
#[inline(always)]
pub(crate) const fn join<const WORDS: usize, const BYTES: usize>(
    words: [[u8; 8]; WORDS],
) -> [u8; BYTES] {
    const { assert!(BYTES == 8 * WORDS) };
    match words.as_flattened().first_chunk() {
        Some(bytes) => *bytes,
        None => [0; BYTES],
    }
}
