#![allow(unsafe_code)]
//! Memory that another process or a device may write at any time.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use crate::UserBuf;

/// The word of the bulk copies and of single values.
const WORD: usize = size_of::<u64>();

/// Why an access to a [`Region`] was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionError {
    /// The bytes are not all inside the region.
    OutOfBounds,
    /// The address is not a multiple of the size of the atomic value.
    Misaligned,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfBounds => "access beyond the end of the memory region",
            Self::Misaligned => "atomic access at an address that is not aligned to its size",
        })
    }
}

impl core::error::Error for RegionError {}

/// A window of memory shared with somebody who may write it at any time: another process, a
/// device, a hostile peer.
///
/// There is no way to a reference into it. Every access is checked against the bounds and done
/// by relaxed atomic bytes and words, so a concurrent writer can tear a bulk copy but cannot
/// cause undefined behaviour. The rule for what comes out: **copy once, then check the copy**;
/// a value read twice may differ.
///
/// Bulk copies give no ordering. To publish data, write it and then store a flag with
/// [`Ordering::Release`]; to take it, load the flag with [`Ordering::Acquire`] and then read.
///
/// The lifetime is that of the mapping.
pub struct Region<'m> {
    ptr: NonNull<u8>,
    len: usize,
    mapping: PhantomData<&'m [AtomicU8]>,
}

// SAFETY: all accesses are atomic, so threads may share and move it like `&[AtomicU8]`.
unsafe impl Send for Region<'_> {}
// SAFETY: as for `Send`.
unsafe impl Sync for Region<'_> {}

impl<'m> Region<'m> {
    /// The `len` bytes at `ptr`.
    ///
    /// # Safety
    ///
    /// For the whole of `'m`:
    /// - `ptr` is valid for reads and writes of `len` bytes, at most `isize::MAX`;
    /// - this process reaches them only through `Region`s and atomics, with no plain access
    ///   and no reference (other processes and devices may do what they like).
    #[must_use]
    #[inline]
    pub const unsafe fn from_raw(ptr: NonNull<u8>, len: usize) -> Self {
        Self {
            ptr,
            len,
            mapping: PhantomData,
        }
    }

    /// The number of bytes.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    #[must_use]
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The `len` bytes from offset `off` as a region of their own.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if they are not all inside.
    #[inline]
    pub fn slice(&self, off: usize, len: usize) -> Result<Self, RegionError> {
        Ok(Self {
            ptr: self.check(off, len)?,
            len,
            mapping: PhantomData,
        })
    }

    /// Copies `dst.len()` bytes from offset `off` into `dst`.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if they are not all inside.
    #[inline]
    pub fn read(&self, off: usize, dst: &mut [u8]) -> Result<(), RegionError> {
        let src = self.check(off, dst.len())?;
        // SAFETY: `src` has `dst.len()` bytes of this region by the check; `dst` is writable.
        unsafe { load_bytes(dst.as_mut_ptr(), src.as_ptr(), dst.len()) };
        Ok(())
    }

    /// Copies `src` into the region at offset `off`.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfBounds`] if it does not fit.
    #[inline]
    pub fn write(&self, off: usize, src: &[u8]) -> Result<(), RegionError> {
        let dst = self.check(off, src.len())?;
        // SAFETY: `dst` has `src.len()` bytes of this region by the check; `src` is readable.
        unsafe { store_bytes(dst.as_ptr(), src.as_ptr(), src.len()) };
        Ok(())
    }

    /// The start of `len` bytes at `off`, if they are inside.
    #[inline]
    fn check(&self, off: usize, len: usize) -> Result<NonNull<u8>, RegionError> {
        match off.checked_add(len) {
            // SAFETY: `off <= self.len`, so the pointer stays within the region or one past.
            Some(end) if end <= self.len => Ok(unsafe { self.ptr.add(off) }),
            _ => Err(RegionError::OutOfBounds),
        }
    }
}

/// Words that both sides access, in this machine's byte order.
impl Region<'_> {
    /// The `u64` at offset `off`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is not inside or not aligned.
    ///
    /// # Panics
    ///
    /// On an ordering that a load cannot have (`Release`, `AcqRel`).
    #[inline]
    pub fn load_u64(&self, off: usize, order: Ordering) -> Result<u64, RegionError> {
        Ok(self.word(off)?.load(order))
    }

    /// Stores a `u64` at offset `off`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is not inside or not aligned.
    ///
    /// # Panics
    ///
    /// On an ordering that a store cannot have (`Acquire`, `AcqRel`).
    #[inline]
    pub fn store_u64(&self, off: usize, value: u64, order: Ordering) -> Result<(), RegionError> {
        self.word(off)?.store(value, order);
        Ok(())
    }

    /// Replaces the `u64` at offset `off` by `new` if it is `current`. The inner result is that of
    /// `compare_exchange`: the value found, `Ok` if it was replaced. A failure is ordered `Acquire`,
    /// a success `AcqRel`.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is not inside or not aligned.
    #[inline]
    pub fn compare_exchange_u64(
        &self,
        off: usize,
        current: u64,
        new: u64,
    ) -> Result<Result<u64, u64>, RegionError> {
        let word = self.word(off)?;
        Ok(word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire))
    }

    #[inline]
    fn word(&self, off: usize) -> Result<&AtomicU64, RegionError> {
        let ptr = self.check(off, WORD)?.cast::<u64>();
        if !ptr.is_aligned() {
            return Err(RegionError::Misaligned);
        }
        // SAFETY: inside the region and aligned; `from_raw` promises that this process accesses
        // it by atomics only. An atomic reference lets others write.
        Ok(unsafe { AtomicU64::from_ptr(ptr.as_ptr()) })
    }
}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:p}, {} B)", self.ptr, self.len)
    }
}

/// Copies `src` into memory that is registered for peers, and returns the number of bytes: the
/// smaller of the two lengths. As in a [`Region`], aligned words are stored whole, so that the
/// memory's owner may look at it meanwhile by atomics of at most a word.
#[inline]
pub fn store(dst: UserBuf, src: &[u8]) -> usize {
    let n = dst.len().min(src.len());
    // SAFETY: `dst` is writable by `UserBuf::from_raw` and `src` readable; `n` is within both.
    unsafe { store_short(dst.as_ptr(), src.as_ptr(), n) };
    n
}

/// How many single bytes come before the first aligned word of the shared side.
#[inline]
fn head_len(shared: *const u8, n: usize) -> usize {
    shared.addr().wrapping_neg().wrapping_rem(WORD).min(n)
}

/// Copies `n` bytes out of shared memory: relaxed atomic words where aligned, bytes elsewhere.
///
/// # Safety
///
/// `src` is `n` bytes of a `Region`; `dst` is valid for writes of `n` bytes and not shared.
#[inline]
pub(crate) unsafe fn load_bytes(dst: *mut u8, src: *const u8, n: usize) {
    let head = head_len(src, n);
    let words = (n - head) / WORD;
    let body = head + words * WORD;
    for i in (0..head).chain(body..n) {
        // SAFETY: i < n; the shared side is accessed atomically.
        let byte =
            unsafe { AtomicU8::from_ptr(src.wrapping_add(i).cast_mut()) }.load(Ordering::Relaxed);
        // SAFETY: i < n, the private side is writable.
        unsafe { dst.wrapping_add(i).write(byte) };
    }
    for i in 0..words {
        let at = head + i * WORD;
        // SAFETY: at + WORD <= n, and `src + head` is aligned to a word.
        let word = unsafe { AtomicU64::from_ptr(src.wrapping_add(at).cast::<u64>().cast_mut()) }
            .load(Ordering::Relaxed);
        // SAFETY: at + WORD <= n, the private side is writable at any alignment.
        unsafe { dst.wrapping_add(at).cast::<u64>().write_unaligned(word) };
    }
}

/// As [`store_bytes`], faster for one aligned word.
///
/// # Safety
///
/// As for [`store_bytes`].
#[inline(always)]
pub(crate) unsafe fn store_short(dst: *mut u8, src: *const u8, n: usize) {
    if n != WORD || !dst.addr().is_multiple_of(WORD) {
        // SAFETY: the caller's guarantee.
        return unsafe { store_bytes(dst, src, n) };
    }
    // SAFETY: a word of the private side, readable at any alignment.
    let word = unsafe { src.cast::<u64>().read_unaligned() };
    // SAFETY: a word of the shared side, aligned by the check above.
    unsafe { AtomicU64::from_ptr(dst.cast::<u64>()) }.store(word, Ordering::Relaxed);
}

/// Copies `n` bytes into shared memory: relaxed atomic words where aligned, bytes elsewhere.
///
/// # Safety
///
/// `dst` is `n` bytes of a `Region`; `src` is valid for reads of `n` bytes and not shared.
#[inline]
pub(crate) unsafe fn store_bytes(dst: *mut u8, src: *const u8, n: usize) {
    let head = head_len(dst, n);
    let words = (n - head) / WORD;
    let body = head + words * WORD;
    for i in (0..head).chain(body..n) {
        // SAFETY: i < n, the private side is readable.
        let byte = unsafe { src.wrapping_add(i).read() };
        // SAFETY: i < n; the shared side is accessed atomically.
        unsafe { AtomicU8::from_ptr(dst.wrapping_add(i)) }.store(byte, Ordering::Relaxed);
    }
    for i in 0..words {
        let at = head + i * WORD;
        // SAFETY: at + WORD <= n, the private side is readable at any alignment.
        let word = unsafe { src.wrapping_add(at).cast::<u64>().read_unaligned() };
        // SAFETY: at + WORD <= n, and `dst + head` is aligned to a word.
        unsafe { AtomicU64::from_ptr(dst.wrapping_add(at).cast::<u64>()) }
            .store(word, Ordering::Relaxed);
    }
}
