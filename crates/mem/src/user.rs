#![allow(unsafe_code)]
//! A caller's buffer as a value.

use core::fmt;
use core::ptr;

/// A caller's buffer: where it starts and how many bytes it has.
///
/// It is `Copy`, has no lifetime and gives no `&[u8]`: the caller still holds the memory. Its
/// bytes move through [`copy_in`](crate::copy_in), [`copy_out`](crate::copy_out) and
/// [`copy`](crate::copy), or through a system call of `ripstop-os`.
///
/// A provider uses it only until the operation that it was given for is over; see the crate's
/// documentation for who answers for that.
#[derive(Clone, Copy)]
pub struct UserBuf {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: the memory is reached only through raw copies, and `from_raw` demands that it stays
// valid whichever thread drives the operation.
unsafe impl Send for UserBuf {}
// SAFETY: as for `Send`; a shared `UserBuf` can do no more than a copied one.
unsafe impl Sync for UserBuf {}

impl UserBuf {
    /// A buffer of no bytes, valid for ever.
    pub const EMPTY: Self = Self {
        ptr: ptr::null_mut(),
        len: 0,
    };

    /// A buffer of `len` bytes at `ptr`. `ptr` may be null when `len` is 0.
    ///
    /// A region for peers may also span addresses without memory, from null and up to [`usize::MAX`] bytes: what follows
    /// is then asked of the parts that peers are let to read and write, when they do.
    ///
    /// # Safety
    ///
    /// As long as this value or a copy of it is used, which a provider does until the operation that
    /// it was given for is over (`ripstop_core::provider`):
    /// - `ptr` is valid for reads of `len` bytes, and for writes too if the buffer is a
    ///   destination (one allocation, at most `isize::MAX` bytes);
    /// - no Rust reference to these bytes is used, other than shared ones to a source;
    /// - the caller does not write a source, and does not touch a destination (`fi_msg(3)`:
    ///   buffers belong to the provider while an operation is outstanding).
    #[must_use]
    #[inline]
    pub const unsafe fn from_raw(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len }
    }

    /// A source buffer of `len` bytes at `ptr`, which only the provider's reads touch.
    ///
    /// # Safety
    ///
    /// As for [`from_raw`](Self::from_raw), and the buffer is never a destination.
    #[must_use]
    #[inline]
    pub const unsafe fn from_const(ptr: *const u8, len: usize) -> Self {
        Self {
            ptr: ptr.cast_mut(),
            len,
        }
    }

    /// The number of bytes.
    #[must_use]
    #[inline]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The address of the first byte, as completions and logs report it.
    #[must_use]
    #[inline]
    pub fn addr(self) -> usize {
        self.ptr.addr()
    }

    /// The start as a pointer, for system calls and this crate's copies. Reading or writing
    /// through it needs the guarantees of [`from_raw`](Self::from_raw).
    #[must_use]
    #[inline]
    pub const fn as_ptr(self) -> *mut u8 {
        self.ptr
    }

    /// The `len` bytes from offset `off`, or `None` if they are not all inside.
    #[must_use]
    #[inline]
    pub fn slice(self, off: usize, len: usize) -> Option<Self> {
        let end = off.checked_add(len)?;
        if end > self.len {
            return None;
        }
        Some(Self {
            // In bounds by the check above, so no wrap can happen; `wrapping_add` keeps the
            // provenance and also allows the null pointer of an empty buffer.
            ptr: self.ptr.wrapping_add(off),
            len,
        })
    }

    /// The first `mid` bytes and the rest, or `None` if there are fewer than `mid`.
    #[must_use]
    #[inline]
    pub fn split_at(self, mid: usize) -> Option<(Self, Self)> {
        let rest = self.len.checked_sub(mid)?;
        Some((self.slice(0, mid)?, self.slice(mid, rest)?))
    }

    /// At most the first `len` bytes.
    #[must_use]
    #[inline]
    pub const fn first(self, len: usize) -> Self {
        Self {
            ptr: self.ptr,
            len: if len < self.len { len } else { self.len },
        }
    }

    /// What is left after the first `off` bytes; empty if there are no more.
    #[must_use]
    #[inline]
    pub const fn skip(self, off: usize) -> Self {
        let off = if off < self.len { off } else { self.len };
        Self {
            ptr: self.ptr.wrapping_add(off),
            len: self.len.wrapping_sub(off),
        }
    }
}

impl Default for UserBuf {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl fmt::Debug for UserBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserBuf({:p}, {} B)", self.ptr, self.len)
    }
}
