#![allow(unsafe_code)]
//! Owned buffers lent to an operation.

use alloc::vec::Vec;
use core::fmt;
use core::mem::ManuallyDrop;

use crate::UserBuf;

/// A `Vec<u8>` that an operation may be reading or writing.
///
/// [`park`](Self::park) takes the vector, so that nothing else can touch, grow or free it;
/// [`buf`](Self::buf) is what the operation works on; [`unpark`](Self::unpark) gives the vector
/// back once the operation has completed, which the caller answers for.
///
/// Dropping a `Parked` leaks its memory, on purpose: the operation may not have completed, and
/// a later arrival would be written into memory that the allocator has already given to
/// somebody else. Memory safety needs only that it is not freed. So whoever owns the operation
/// keeps its `Parked` until the completion, also when the future that waited for it is gone.
pub struct Parked {
    // Raw parts, not a `Vec`: the vector must not claim to own bytes that others write.
    buf: UserBuf,
    capacity: usize,
}

impl Parked {
    /// Takes `vec` out of the caller's hands. Its `len` bytes (not its spare capacity) are the
    /// buffer.
    #[must_use]
    pub fn park(vec: Vec<u8>) -> Self {
        let mut vec = ManuallyDrop::new(vec);
        let (ptr, len, capacity) = (vec.as_mut_ptr(), vec.len(), vec.capacity());
        Self {
            // SAFETY: the vector's allocation has `len` initialised bytes; nobody else can
            // reach or free it before `unpark`, and `Drop` does not.
            buf: unsafe { UserBuf::from_raw(ptr, len) },
            capacity,
        }
    }

    /// The buffer, for the operation only.
    #[must_use]
    #[inline]
    pub const fn buf(&self) -> UserBuf {
        self.buf
    }

    /// Gives the vector back, with the length and capacity it came with.
    ///
    /// # Safety
    ///
    /// No copy of [`buf`](Self::buf), nor of a part of it, is used any more: every operation that
    /// was given one has ended. Providers promise in `ripstop_core::provider` when that is; who
    /// unparks knows that it has come to that for all operations on this buffer.
    #[must_use]
    pub unsafe fn unpark(self) -> Vec<u8> {
        // SAFETY: pointer, length and capacity are those of the vector taken apart in `park`,
        // and `self` is consumed, so it is put together once. Only whole bytes were written, and
        // by the caller's guarantee nobody writes any more.
        unsafe { Vec::from_raw_parts(self.buf.as_ptr(), self.buf.len(), self.capacity) }
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Parked({:?})", self.buf)
    }
}
