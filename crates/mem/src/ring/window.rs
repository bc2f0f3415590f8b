#![allow(unsafe_code)]
//! Windows: mapped regions of a peer, which are accessed directly.

use alloc::sync::Arc;
use core::ptr::NonNull;

use ripstop_types::{AtomicOp, Datatype};

use crate::UserBuf;
use crate::atomic::{self, AtomicError};
use crate::region::{RegionError, load_bytes, store_short};
use crate::ring::primitive::Mapping;
use crate::ring::racy_copy;
use crate::ring::source_sink::{Sink, Source};

/// Copies below this length load and store aligned words whole, as [`Window`] promises. From it on they are those of
/// chunks, which are faster and may tear a word.
const MIN_BULK_BYTES: usize = 1024;

/// A mapped region of a peer, or memory of our own that peers map. Both sides may access it at the same
/// time.
///
/// A copy of less than 1 KiB moves each aligned word at once, so that others may poll such a word; a
/// longer copy is in any order.
#[derive(Clone, Debug)]
pub struct Window {
    /// The first byte, kept here so that an access need not ask the mapping.
    start: NonNull<u8>,
    len: usize,
    _map: Arc<dyn Mapping>,
}

// SAFETY: the mapping is `Send`, and so are copies from and to it, which are all that is done.
unsafe impl Send for Window {}
// SAFETY: as for `Send`; the bytes are reached by atomics and by assembly, which takes them as such.
unsafe impl Sync for Window {}

impl Window {
    /// A window on `len` bytes of a mapping, from `off` on.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if they are not all in the mapping, or it is not writable.
    pub fn from_mapping(
        map: Arc<dyn Mapping>,
        off: usize,
        len: usize,
    ) -> Result<Self, RegionError> {
        let end = off.checked_add(len);
        let fits = end.is_some_and(|end| end <= map.len()) && map.writable();
        match fits {
            true => Ok(Self {
                // SAFETY: within the mapping, or at its end, by the check above.
                start: unsafe { map.start().add(off) },
                len,
                _map: map,
            }),
            false => Err(RegionError::OutOfBounds),
        }
    }

    /// The number of bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies `src` to byte `off`.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if it does not fit.
    #[inline]
    pub fn put(&self, off: usize, src: UserBuf) -> Result<(), RegionError> {
        let (dst, n) = (self.check(off, src.len())?, src.len());
        match n {
            // SAFETY: `dst` has `n` bytes of the mapping by the check; `src` is readable.
            ..MIN_BULK_BYTES => unsafe { store_short(dst.as_ptr(), src.as_ptr(), n) },
            // SAFETY: the same.
            _ => unsafe { racy_copy::into_buffer(dst.as_ptr(), src.as_ptr(), n) },
        }
        Ok(())
    }

    /// Copies from byte `off` on into `dst`.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if there are not this many bytes.
    #[inline]
    pub fn get(&self, off: usize, dst: UserBuf) -> Result<(), RegionError> {
        let (src, n) = (self.check(off, dst.len())?, dst.len());
        match n {
            // SAFETY: `src` has `n` bytes of the mapping by the check; `dst` is writable.
            ..MIN_BULK_BYTES => unsafe { load_bytes(dst.as_ptr(), src.as_ptr(), n) },
            // SAFETY: the same.
            _ => unsafe { racy_copy::out_of_buffer(dst.as_ptr(), src.as_ptr(), n) },
        }
        Ok(())
    }

    /// Copies `bytes` to byte `off`.
    ///
    /// # Errors
    ///
    /// As for [`put`](Self::put).
    pub fn write(&self, off: usize, bytes: &[u8]) -> Result<(), RegionError> {
        self.put(off, Source::from(bytes).buf())
    }

    /// Copies from byte `off` on into `bytes`.
    ///
    /// # Errors
    ///
    /// As for [`get`](Self::get).
    pub fn read(&self, off: usize, bytes: &mut [u8]) -> Result<(), RegionError> {
        self.get(off, Sink::from(bytes).buf())
    }

    /// Whether [`update`](Self::update) of such elements at byte `off` is atomic against that of
    /// other processes, and against the processor's atomics.
    #[must_use]
    pub fn is_atomic(&self, datatype: Datatype, off: usize) -> bool {
        let at = self.start.addr().get();
        datatype.size() <= 8 && at.wrapping_add(off).is_multiple_of(datatype.size())
    }

    /// As [`atomic::execute`], on the `len` bytes at `off`.
    ///
    /// # Errors
    ///
    /// [`AtomicError`], [`AtomicError::Length`] if they are not all inside; nothing is done.
    pub fn update(
        &self,
        (datatype, op): (Datatype, AtomicOp),
        (off, len): (usize, usize),
        operand: &[u8],
        compare: &[u8],
        result: Option<&mut [u8]>,
    ) -> Result<(), AtomicError> {
        let start = self.check(off, len).map_err(|_| AtomicError::Length)?;
        // SAFETY: mapped for reads and writes as long as `self`, which is borrowed, and it does
        // not leave this call; no reference to them exists, and only atomics reach them.
        let target = unsafe { UserBuf::from_raw(start.as_ptr(), len) };
        atomic::execute(datatype, op, target, operand, compare, result)
    }

    /// The start of `len` bytes at `off`, if they are inside.
    #[inline]
    fn check(&self, off: usize, len: usize) -> Result<NonNull<u8>, RegionError> {
        match off.checked_add(len) {
            // SAFETY: `off` is within the bytes, or at their end, and the mapping stays where it is.
            Some(end) if end <= self.len => Ok(unsafe { self.start.add(off) }),
            _ => Err(RegionError::OutOfBounds),
        }
    }
}
