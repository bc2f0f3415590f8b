#![allow(unsafe_code)]
//! Buffers as the kernel takes them in scatter and gather calls.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;

use ripstop_mem::UserBuf;
use ripstop_mem::ring::{AsSink, AsSource, Sink, Source};

/// Bytes to send: our own, borrowed for `'a`, or a caller's ([`UserBuf`]).
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct IoVec<'a> {
    raw: libc::iovec,
    bytes: PhantomData<&'a [u8]>,
}

/// Room to receive into: our own, borrowed for `'a`, or a caller's ([`UserBuf`]).
#[repr(transparent)]
pub struct IoVecMut<'a> {
    raw: libc::iovec,
    bytes: PhantomData<&'a mut [u8]>,
}

// `IoSlice` is documented to be ABI compatible with `iovec`, as are the types above.
const _: () = assert!(size_of::<IoVec<'_>>() == size_of::<IoSlice<'_>>());
const _: () = assert!(align_of::<IoVec<'_>>() == align_of::<IoSlice<'_>>());
const _: () = assert!(size_of::<IoVecMut<'_>>() == size_of::<IoSliceMut<'_>>());
const _: () = assert!(align_of::<IoVecMut<'_>>() == align_of::<IoSliceMut<'_>>());

// SAFETY: the same as a `&[u8]` or a `UserBuf`, which are both `Send`.
unsafe impl Send for IoVec<'_> {}
// SAFETY: `&IoVec` gives what `&&[u8]` gives, or a `UserBuf`, which is `Sync`.
unsafe impl Sync for IoVec<'_> {}
// SAFETY: the same as a `&mut [u8]` or a `UserBuf`, which are both `Send`.
unsafe impl Send for IoVecMut<'_> {}

/// What both have: an empty one, that of a caller's buffer, and the number of bytes.
macro_rules! vectors {
    ($($vector:ident)*) => { $(
        impl $vector<'_> {
            /// No bytes.
            pub const EMPTY: Self = Self::from_user(UserBuf::EMPTY);

            /// A caller's buffer; what [`UserBuf`] says about its use after completion holds.
            #[must_use]
            #[inline]
            pub const fn from_user(buf: UserBuf) -> Self {
                Self::of(buf.as_ptr(), buf.len())
            }

            const fn of(start: *mut u8, len: usize) -> Self {
                let raw = libc::iovec {
                    iov_base: start.cast(),
                    iov_len: len,
                };
                Self { raw, bytes: PhantomData }
            }

            /// The number of bytes.
            #[must_use]
            #[inline]
            pub const fn len(&self) -> usize {
                self.raw.iov_len
            }

            /// Where the first one is: a number, to be compared.
            #[must_use]
            #[inline]
            pub fn addr(&self) -> usize {
                self.raw.iov_base.addr()
            }

            /// Whether there are no bytes.
            #[must_use]
            #[inline]
            pub const fn is_empty(&self) -> bool {
                self.raw.iov_len == 0
            }
        }

        impl fmt::Debug for $vector<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:p}, {} B)", stringify!($vector), self.raw.iov_base, self.len())
            }
        }
    )* };
}

vectors!(IoVec IoVecMut);

impl<'a> IoVec<'a> {
    /// Bytes of our own, such as headers.
    #[must_use]
    #[inline]
    pub const fn from_slice(bytes: &'a [u8]) -> Self {
        Self::of(bytes.as_ptr().cast_mut(), bytes.len())
    }

    /// Keeps the first `len` bytes; no change if there are fewer.
    #[inline]
    pub const fn truncate(&mut self, len: usize) {
        if len < self.raw.iov_len {
            self.raw.iov_len = len;
        }
    }

    /// Its bytes as a value, to be used as long as `self` may be.
    #[inline]
    fn buf(&self) -> UserBuf {
        // SAFETY: borrowed for longer than `self` lives, or a caller's buffer, whose promises are
        // those of `from_const`.
        unsafe { UserBuf::from_const(self.raw.iov_base.cast(), self.raw.iov_len) }
    }

    /// Copies what follows the first `skip` bytes to `bytes`; returns how many. For a transport that is no
    /// socket.
    pub fn copy_part(&self, skip: usize, bytes: &mut [u8]) -> usize {
        ripstop_mem::copy_in(bytes, self.buf().skip(skip))
    }

    /// Copies its front to `bytes`; returns how many bytes. For a transport that is no socket.
    pub fn copy_to(&self, bytes: &mut [u8]) -> usize {
        ripstop_mem::copy_in(bytes, self.buf())
    }
}

impl<'a> IoVecMut<'a> {
    /// Room of our own, such as a staging buffer.
    #[must_use]
    #[inline]
    pub const fn from_slice(bytes: &'a mut [u8]) -> Self {
        Self::of(bytes.as_mut_ptr(), bytes.len())
    }

    /// Its room as a value, to be used as long as `self` may be.
    #[inline]
    fn buf(&mut self) -> UserBuf {
        // SAFETY: borrowed for longer than `self` lives, or a caller's buffer, whose promises are
        // those of `from_raw`.
        unsafe { UserBuf::from_raw(self.raw.iov_base.cast(), self.raw.iov_len) }
    }

    /// Copies the front of `bytes` to its room; returns how many. For a transport that is no socket.
    pub fn copy_from(&mut self, bytes: &[u8]) -> usize {
        ripstop_mem::copy_out(self.buf(), bytes)
    }

    /// Copies the front of `bytes` to its room behind the first `skip` bytes; returns how many.
    pub fn copy_part_from(&mut self, skip: usize, bytes: &[u8]) -> usize {
        ripstop_mem::copy_out(self.buf().skip(skip), bytes)
    }

    /// Copies the front of `from` to its room behind the first `skip` bytes; returns how many.
    pub fn copy_from_user(&mut self, skip: usize, from: UserBuf) -> usize {
        ripstop_mem::copy(self.buf().skip(skip), from)
    }
}

/// A ring takes what a socket takes.
impl AsSource for IoVec<'_> {
    #[inline]
    fn as_source(&self) -> Source<'_> {
        Source::from(self.buf())
    }
}

impl AsSink for IoVecMut<'_> {
    #[inline]
    fn as_sink(&mut self) -> Sink<'_> {
        Sink::from(self.buf())
    }
}

/// The list in the form in which `rustix` and `nix` pass it on to the kernel.
#[inline]
pub(crate) fn slices<'a, 'b>(vecs: &'b [IoVec<'a>]) -> &'b [IoSlice<'a>] {
    // SAFETY: both are transparent over `iovec` (asserted above), and `rustix` and `nix` hand the
    // array to the kernel without dereferencing it to `&[u8]`, which a `UserBuf` would not allow.
    unsafe { &*(std::ptr::from_ref(vecs) as *const [IoSlice<'a>]) }
}

/// As [`slices`], to be written by the kernel.
#[inline]
pub(crate) fn slices_mut<'a, 'b>(vecs: &'b mut [IoVecMut<'a>]) -> &'b mut [IoSliceMut<'a>] {
    // SAFETY: both are transparent over `iovec` (asserted above), the list is borrowed for as long
    // as the result, and the array is handed to the kernel without being dereferenced.
    unsafe { &mut *(std::ptr::from_mut(vecs) as *mut [IoSliceMut<'a>]) }
}
