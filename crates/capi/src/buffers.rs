#![allow(unsafe_code)]
//! A caller's buffers as values.

use core::ffi::c_void;
use core::slice;

use ripstop_abi as abi;
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{Errno, Result};

use crate::object;

/// A source of one segment.
///
/// # Errors
/// [`Errno::EINVAL`] for null with a length.
///
/// # Safety
///
/// As `UserBuf::from_const` says of memory that is not null.
#[inline(always)]
pub(crate) unsafe fn source(buf: *const c_void, len: usize) -> Result<UserBuf> {
    if buf.is_null() {
        return nothing(len);
    }
    // SAFETY: the caller's guarantee.
    Ok(unsafe { UserBuf::from_const(buf.cast(), len) })
}

/// A source at null: out of the way of those that are not.
#[cold]
#[inline(never)]
fn nothing(len: usize) -> Result<UserBuf> {
    match len {
        0 => Ok(UserBuf::EMPTY),
        _ => Err(object::missing("a data transfer", "a buffer with a length")),
    }
}

/// A destination of one segment. Null is a buffer without room, whatever its length: programs
/// that expect messages without data post such receives.
///
/// # Safety
///
/// As `UserBuf::from_raw` says of memory that is not null.
#[inline(always)]
pub(crate) unsafe fn destination(buf: *mut c_void, len: usize) -> UserBuf {
    let room = if buf.is_null() { 0 } else { len };
    // SAFETY: the caller's guarantee.
    unsafe { UserBuf::from_raw(buf.cast(), room) }
}

/// A destination of one segment that must be there: what is fetched has to go somewhere.
///
/// # Errors
/// [`Errno::EINVAL`] for null with a length.
///
/// # Safety
///
/// As `UserBuf::from_raw` says of memory that is not null.
pub(crate) unsafe fn result(buf: *mut c_void, len: usize) -> Result<UserBuf> {
    if buf.is_null() && len != 0 {
        return Err(object::missing("a data transfer", "a result with a length"));
    }
    // SAFETY: the caller's guarantee.
    Ok(unsafe { UserBuf::from_raw(buf.cast(), len) })
}

/// The segments of an I/O vector.
pub(crate) struct Segments {
    segs: [UserBuf; IOV_LIMIT],
    count: usize,
}

impl Segments {
    /// The segments, in order.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[UserBuf] {
        self.segs.get(..self.count).unwrap_or_default()
    }
}

/// Why a vector is not taken: it is not there, or else it is too long.
#[cold]
pub(crate) fn no_vector(null: bool) -> Errno {
    if null {
        return object::missing("a data transfer", "a vector with a count");
    }
    let why = "a vector has more elements than iov_limit of the endpoint; send them in parts";
    object::refused("a data transfer", why, Errno::EINVAL)
}

/// The segments of an I/O vector, each made by `one`.
///
/// # Errors
/// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments or a null vector; those of `one`.
///
/// # Safety
///
/// `iov` is null or valid for reads of `count` elements.
#[inline(always)]
unsafe fn many(
    iov: *const abi::iovec,
    count: usize,
    one: impl Fn(&abi::iovec) -> Result<UserBuf>,
) -> Result<Segments> {
    if count > IOV_LIMIT || (iov.is_null() && count != 0) {
        return Err(no_vector(iov.is_null()));
    }
    let mut segs = [UserBuf::EMPTY; IOV_LIMIT];
    if count != 0 {
        // SAFETY: not null, and the caller's guarantee.
        let iov = unsafe { slice::from_raw_parts(iov, count) };
        for (seg, part) in segs.iter_mut().zip(iov) {
            *seg = one(part)?;
        }
    }
    Ok(Segments { segs, count })
}

/// The sources of an I/O vector.
///
/// # Errors
/// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments, a null vector, or a null segment
/// with a length.
///
/// # Safety
///
/// `iov` is null or valid for reads of `count` elements; as [`source`] for each.
#[inline]
pub(crate) unsafe fn sources(iov: *const abi::iovec, count: usize) -> Result<Segments> {
    let one = |part: &abi::iovec| {
        // SAFETY: the caller's guarantee.
        unsafe { source(part.iov_base, part.iov_len) }
    };
    // SAFETY: the caller's guarantee.
    unsafe { many(iov, count, one) }
}

/// The destinations of an I/O vector.
///
/// # Errors
/// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments or a null vector.
///
/// # Safety
///
/// `iov` is null or valid for reads of `count` elements; as [`destination`] for each.
#[inline]
pub(crate) unsafe fn destinations(iov: *const abi::iovec, count: usize) -> Result<Segments> {
    let one = |part: &abi::iovec| {
        // SAFETY: the caller's guarantee.
        Ok(unsafe { destination(part.iov_base, part.iov_len) })
    };
    // SAFETY: the caller's guarantee.
    unsafe { many(iov, count, one) }
}

/// The destinations of an I/O vector that must all be there.
///
/// # Errors
/// As for [`sources`].
///
/// # Safety
///
/// `iov` is null or valid for reads of `count` elements; as [`result`] for each.
pub(crate) unsafe fn results(iov: *const abi::iovec, count: usize) -> Result<Segments> {
    let one = |part: &abi::iovec| {
        // SAFETY: the caller's guarantee.
        unsafe { result(part.iov_base, part.iov_len) }
    };
    // SAFETY: the caller's guarantee.
    unsafe { many(iov, count, one) }
}

/// Data that a control call passes.
///
/// # Errors
/// [`Errno::EINVAL`] for null with a length.
///
/// # Safety
///
/// `data` is null or valid for reads of `len` bytes during `'a`.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8]> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(object::missing("a control call", "data with a length")),
        (false, len) if len > isize::MAX.unsigned_abs() => {
            let why = "the length is more than memory can hold";
            Err(object::refused("a control call", why, Errno::EINVAL))
        }
        // SAFETY: not null, and the caller's guarantee.
        (false, _) => Ok(unsafe { slice::from_raw_parts(data.cast(), len) }),
    }
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;

    #[test]
    fn bad_vectors_are_refused() {
        let part = abi::iovec {
            iov_base: ptr::dangling_mut(),
            iov_len: 1,
        };
        let iov = [part; IOV_LIMIT + 1];
        let count = |iov: *const abi::iovec, count| {
            // SAFETY: the buffers are never touched.
            unsafe { sources(iov, count) }.map(|segs| segs.as_slice().len())
        };
        assert_eq!(count(iov.as_ptr(), IOV_LIMIT), Ok(IOV_LIMIT));
        assert_eq!(count(iov.as_ptr(), IOV_LIMIT + 1), Err(Errno::EINVAL));
        assert_eq!(count(ptr::null(), 1), Err(Errno::EINVAL));
        assert_eq!(count(ptr::null(), 0), Ok(0));
        let hole = abi::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 1,
        };
        assert_eq!(count(&raw const hole, 1), Err(Errno::EINVAL));
        // SAFETY: the buffer is never touched.
        let into = unsafe { destinations(&raw const hole, 1) }.unwrap();
        assert!(into.as_slice()[0].is_empty(), "there is no room at null");
    }
}
