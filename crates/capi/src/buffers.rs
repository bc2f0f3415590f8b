#![allow(unsafe_code)]
//! A caller's buffers as values.

use core::ffi::c_void;
use core::marker::PhantomData;
use core::slice;

use ripstop_abi as abi;
use ripstop_mem::{IOV_LIMIT, UserBuf};
use ripstop_types::{Errno, Result};

use crate::edge::{Arg, Arg2, Arg3, Array, Pointer, arguments};
use crate::errno;

arguments! {
    /// Memory that a call reads: null, or that many bytes; what is posted may be read until it completes.
    #[derive(Clone, Copy)]
    pub(crate) struct Src { at: *const c_void, len: usize }
}

/// Memory with its descriptor, which nobody needs here.
macro_rules! with_descriptor {
    ($($memory:ident)*) => { $(
        impl Arg3 for $memory<'_> {
            type A = <Self as Arg2>::A;
            type B = <Self as Arg2>::B;
            type C = *mut c_void;

            #[inline(always)]
            unsafe fn from_c(at: Self::A, len: Self::B, _desc: *mut c_void) -> Self {
                // SAFETY: the two are this argument, by the contract of this function.
                unsafe { <Self as Arg2>::from_c(at, len) }
            }
        }
    )* };
}

with_descriptor! { Src Dst }

impl<'a> Src<'a> {
    /// What a data transfer sends.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a length.
    #[inline(always)]
    pub(crate) fn buf(self) -> Result<UserBuf> {
        if self.at.is_null() {
            return nothing(self.len);
        }
        // SAFETY: that many bytes that may be read until the transfer completes: `from_c` was
        // promised that of memory that is not null.
        Ok(unsafe { UserBuf::from_const(self.at.cast(), self.len) })
    }

    /// Data that a control call passes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a length.
    pub(crate) fn bytes(self) -> Result<&'a [u8]> {
        match (self.at.is_null(), self.len) {
            (_, 0) => Ok(&[]),
            (true, _) => Err(errno::missing("a control call", "data with a length")),
            (false, len) if len > isize::MAX.unsigned_abs() => {
                let why = "the length is more than memory can hold";
                Err(errno::refused("a control call", why, Errno::EINVAL))
            }
            // SAFETY: not null, and then that many bytes: `from_c` was promised that.
            (false, len) => Ok(unsafe { slice::from_raw_parts(self.at.cast(), len) }),
        }
    }
}

/// A source at null: out of the way of those that are not.
#[cold]
#[inline(never)]
fn nothing(len: usize) -> Result<UserBuf> {
    match len {
        0 => Ok(UserBuf::EMPTY),
        _ => Err(errno::missing("a data transfer", "a buffer with a length")),
    }
}

arguments! {
    /// Memory that a call writes: null, or that many bytes; what is posted may be written until it
    /// completes.
    #[derive(Clone, Copy)]
    pub(crate) struct Dst { at: *mut c_void, len: usize }
}

impl Dst<'_> {
    /// Where a message goes. Null is a buffer without room, whatever its length: programs that
    /// expect messages without data post such receives.
    #[inline(always)]
    pub(crate) fn room(self) -> UserBuf {
        let room = if self.at.is_null() { 0 } else { self.len };
        // SAFETY: nothing, or that many bytes that may be written until the transfer completes:
        // `from_c` was promised that of memory that is not null.
        unsafe { UserBuf::from_raw(self.at.cast(), room) }
    }

    /// Where what is fetched goes, which has to go somewhere.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a length.
    pub(crate) fn result(self) -> Result<UserBuf> {
        if self.at.is_null() && self.len != 0 {
            return Err(errno::missing("a data transfer", "a result with a length"));
        }
        // SAFETY: nothing, or that many bytes that may be written until the transfer completes:
        // `from_c` was promised that of memory that is not null.
        Ok(unsafe { UserBuf::from_raw(self.at.cast(), self.len) })
    }
}

/// Memory of a call whose length is a number of elements of a datatype, which other arguments of
/// the same call say; or null.
pub(crate) struct Elements<'a, P>(P, PhantomData<&'a [u8]>);

impl<P: Pointer> Arg for Elements<'_, P> {
    type C = P;

    #[inline(always)]
    unsafe fn from_c(at: P) -> Self {
        Self(at, PhantomData)
    }
}

impl<'a> Elements<'a, *mut c_void> {
    /// The memory of an element of an [`Array`], whose caller has promised it with the array.
    pub(crate) fn of(ioc: &'a abi::fi_ioc) -> Self {
        Self(ioc.addr, PhantomData)
    }

    /// The same, for a call that only reads it.
    pub(crate) const fn read_only(self) -> Elements<'a, *const c_void> {
        Elements(self.0.cast_const(), PhantomData)
    }
}

impl<P: Pointer<Target = c_void>> Elements<'_, P> {
    /// No memory.
    pub(crate) fn none() -> Self {
        Self(P::null(), PhantomData)
    }

    /// Whether there is none.
    pub(crate) fn is_null(&self) -> bool {
        self.0.address().is_null()
    }

    /// The memory; it is only written where it is that of a result.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null with a length.
    ///
    /// # Safety
    ///
    /// `len` is no more than what the arguments of the same call say.
    pub(crate) unsafe fn bytes(self, len: usize) -> Result<UserBuf> {
        let (at, call) = (self.0.address().cast_mut(), PhantomData);
        Dst { at, len, call }.result()
    }
}

/// A vector of places for results, with their descriptors.
pub(crate) struct IocMut<'a>(pub(crate) Array<'a, abi::fi_ioc>);

impl Arg3 for IocMut<'_> {
    type A = *mut abi::fi_ioc;
    type B = *mut *mut c_void;
    type C = usize;

    unsafe fn from_c(at: *mut abi::fi_ioc, _desc: *mut *mut c_void, count: usize) -> Self {
        // SAFETY: by the contract of `from_c`, the two describe an array.
        Self(unsafe { Array::new(at, count) })
    }
}

/// The segments of an I/O vector.
pub(crate) struct Segments {
    segs: [UserBuf; IOV_LIMIT],
    count: usize,
}

impl Segments {
    /// No segments.
    pub(crate) const NONE: Self = Self {
        segs: [UserBuf::EMPTY; IOV_LIMIT],
        count: 0,
    };

    /// The segments, in order.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[UserBuf] {
        self.segs.get(..self.count).unwrap_or_default()
    }

    /// The segments that `one` makes of the elements of a vector.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments or a null vector; those of `one`.
    #[inline(always)]
    pub(crate) fn of<T>(vector: Array<'_, T>, one: impl Fn(&T) -> Result<UserBuf>) -> Result<Self> {
        let Some(parts) = vector.at_most(IOV_LIMIT) else {
            return Err(no_vector(vector.is_null()));
        };
        let mut segs = [UserBuf::EMPTY; IOV_LIMIT];
        for (seg, part) in segs.iter_mut().zip(parts) {
            *seg = one(part)?;
        }
        let count = parts.len();
        Ok(Self { segs, count })
    }
}

/// Why a vector is not taken: it is not there, or else it is too long.
#[cold]
pub(crate) fn no_vector(null: bool) -> Errno {
    if null {
        return errno::missing("a data transfer", "a vector with a count");
    }
    let why = "a vector has more elements than iov_limit of the endpoint; send them in parts";
    errno::refused("a data transfer", why, Errno::EINVAL)
}

impl Array<'_, abi::iovec> {
    /// What a data transfer sends.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments, a null vector, or a null segment
    /// with a length.
    #[inline]
    pub(crate) fn sources(self) -> Result<Segments> {
        Segments::of(self, |part| src(part).buf())
    }

    /// Where a message goes.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for more than [`IOV_LIMIT`] segments or a null vector.
    #[inline]
    pub(crate) fn rooms(self) -> Result<Segments> {
        Segments::of(self, |part| Ok(dst(part).room()))
    }

    /// Where what is fetched goes.
    ///
    /// # Errors
    /// As for [`Array::sources`].
    pub(crate) fn results(self) -> Result<Segments> {
        Segments::of(self, |part| dst(part).result())
    }
}

/// The memory of an element of an [`Array`], whose caller has promised it with the array.
#[inline(always)]
fn src(part: &abi::iovec) -> Src<'_> {
    let (at, len, call) = (part.iov_base.cast_const(), part.iov_len, PhantomData);
    Src { at, len, call }
}

/// The memory of an element of an [`Array`], whose caller has promised it with the array.
#[inline(always)]
fn dst(part: &abi::iovec) -> Dst<'_> {
    let (at, len, call) = (part.iov_base, part.iov_len, PhantomData);
    Dst { at, len, call }
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
            // SAFETY: the vector has at least `count` elements, and no buffer is touched.
            let vector = unsafe { Array::new(iov, count) };
            vector.sources().map(|segs| segs.as_slice().len())
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
        // SAFETY: a vector of one, whose buffer is not touched.
        let into = unsafe { Array::new(&raw const hole, 1) }.rooms().unwrap();
        assert!(into.as_slice()[0].is_empty(), "there is no room at null");
    }
}
