#![allow(unsafe_code)]
//! Copies between our memory and a caller's, through raw pointers only.
//!
//! Messages of 16 bytes and less are moved by two overlapping loads and stores of a fixed size
//! instead of a call of `memcpy`: an 8-byte copy is a handful of instructions.

use core::ptr;

use crate::UserBuf;

/// The largest copy done inline.
const SMALL: usize = 16;

/// Copies from the caller's `src` into `dst` and returns the number of bytes: the smaller of
/// the two lengths.
#[inline]
pub fn copy_in(dst: &mut [u8], src: UserBuf) -> usize {
    let n = dst.len().min(src.len());
    // SAFETY: `n` is within both; `dst` is borrowed for writing and `src` is readable by the
    // contract of `UserBuf::from_raw`, which also rules out that they overlap.
    unsafe { move_bytes(dst.as_mut_ptr(), src.as_ptr(), n) };
    n
}

/// Copies `src` into the caller's `dst` and returns the number of bytes: the smaller of the
/// two lengths.
#[inline]
pub fn copy_out(dst: UserBuf, src: &[u8]) -> usize {
    let n = dst.len().min(src.len());
    // SAFETY: `n` is within both; `src` is borrowed for reading and `dst` is writable by the
    // contract of `UserBuf::from_raw`, which also rules out that they overlap.
    unsafe { move_bytes(dst.as_ptr(), src.as_ptr(), n) };
    n
}

/// Copies from one caller's buffer to another (they may overlap: a message to oneself) and
/// returns the number of bytes: the smaller of the two lengths.
#[inline]
pub fn copy(dst: UserBuf, src: UserBuf) -> usize {
    let n = dst.len().min(src.len());
    // SAFETY: `n` is within both, readable and writable by the contract of `from_raw`.
    unsafe { move_bytes(dst.as_ptr(), src.as_ptr(), n) };
    n
}

/// Moves `n` bytes; the two ranges may overlap.
///
/// # Safety
///
/// `src` is valid for reads and `dst` for writes of `n` bytes.
#[inline(always)]
unsafe fn move_bytes(dst: *mut u8, src: *const u8, n: usize) {
    if n > SMALL {
        // SAFETY: the caller's guarantee.
        unsafe { ptr::copy(src, dst, n) };
    } else if n >= 8 {
        // SAFETY: 8 <= n <= 16, and the caller's guarantee.
        unsafe { move_ends::<u64>(dst, src, n) };
    } else if n >= 4 {
        // SAFETY: 4 <= n <= 8, and the caller's guarantee.
        unsafe { move_ends::<u32>(dst, src, n) };
    } else if n >= 2 {
        // SAFETY: 2 <= n <= 4, and the caller's guarantee.
        unsafe { move_ends::<u16>(dst, src, n) };
    } else if n == 1 {
        // SAFETY: the caller's guarantee for one byte.
        unsafe { ptr::copy(src, dst, 1) };
    }
}

/// Moves `n` bytes as a first and a last word that overlap in the middle. Both are read before
/// either is written, so the ranges may overlap too.
///
/// # Safety
///
/// As for [`move_bytes`], with `size_of::<W>() <= n <= 2 * size_of::<W>()`. `W` is an integer.
#[inline(always)]
unsafe fn move_ends<W: Copy>(dst: *mut u8, src: *const u8, n: usize) {
    let last = n - size_of::<W>();
    // SAFETY: the first word is within `n` readable bytes; any bits are an integer.
    let head = unsafe { src.cast::<W>().read_unaligned() };
    // SAFETY: `last` bytes on is still within the `n` bytes.
    let src_tail = unsafe { src.add(last) };
    // SAFETY: the last word ends exactly at byte `n`.
    let tail = unsafe { src_tail.cast::<W>().read_unaligned() };
    // SAFETY: the first word is within `n` writable bytes.
    unsafe { dst.cast::<W>().write_unaligned(head) };
    // SAFETY: `last` bytes on is still within the `n` bytes.
    let dst_tail = unsafe { dst.add(last) };
    // SAFETY: the last word ends exactly at byte `n`.
    unsafe { dst_tail.cast::<W>().write_unaligned(tail) };
}
