#![allow(unsafe_code)]
//! Sources and sinks: the private memory that rings copy from and to, ours or a caller's.

use core::marker::PhantomData;

use crate::UserBuf;

/// Bytes to write: our own, borrowed for `'a`, or a caller's ([`UserBuf`]).
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    buf: UserBuf,
    bytes: PhantomData<&'a [u8]>,
}

/// Room to read into: our own, borrowed for `'a`, or a caller's ([`UserBuf`]).
#[derive(Debug)]
pub struct Sink<'a> {
    buf: UserBuf,
    bytes: PhantomData<&'a mut [u8]>,
}

/// One piece of a vectored write.
pub trait AsSource {
    /// The bytes.
    fn as_source(&self) -> Source<'_>;
}

/// One piece of a vectored read.
pub trait AsSink {
    /// The room.
    fn as_sink(&mut self) -> Sink<'_>;
}

/// What sources and sinks have in common.
macro_rules! pieces {
    ($($piece:ident)*) => {$(
        impl $piece<'_> {
            /// The number of bytes, or how many there is room for.
            #[must_use]
            #[inline]
            pub const fn len(&self) -> usize {
                self.buf.len()
            }

            /// Whether that is none.
            #[must_use]
            #[inline]
            pub const fn is_empty(&self) -> bool {
                self.buf.is_empty()
            }

            /// The memory as a value, for as long as `self` may be used.
            #[inline]
            pub(super) const fn buf(&self) -> UserBuf {
                self.buf
            }
        }

        impl From<UserBuf> for $piece<'_> {
            #[inline]
            fn from(buf: UserBuf) -> Self {
                let bytes = PhantomData;
                Self { buf, bytes }
            }
        }
    )*};
}

pieces! { Source Sink }

impl<'a> From<&'a [u8]> for Source<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self {
            // SAFETY: borrowed for `'a`, and only read through a `Source`.
            buf: unsafe { UserBuf::from_const(bytes.as_ptr(), bytes.len()) },
            bytes: PhantomData,
        }
    }
}

impl<'a> From<&'a mut [u8]> for Sink<'a> {
    #[inline]
    fn from(bytes: &'a mut [u8]) -> Self {
        Self {
            // SAFETY: borrowed for `'a` by this value alone.
            buf: unsafe { UserBuf::from_raw(bytes.as_mut_ptr(), bytes.len()) },
            bytes: PhantomData,
        }
    }
}

impl AsSource for Source<'_> {
    #[inline]
    fn as_source(&self) -> Source<'_> {
        *self
    }
}

impl AsSource for &[u8] {
    #[inline]
    fn as_source(&self) -> Source<'_> {
        Source::from(*self)
    }
}

impl AsSource for UserBuf {
    #[inline]
    fn as_source(&self) -> Source<'_> {
        Source::from(*self)
    }
}

impl AsSink for Sink<'_> {
    #[inline]
    fn as_sink(&mut self) -> Sink<'_> {
        Sink::from(self.buf)
    }
}

impl AsSink for &mut [u8] {
    #[inline]
    fn as_sink(&mut self) -> Sink<'_> {
        Sink::from(&mut **self)
    }
}

impl AsSink for UserBuf {
    #[inline]
    fn as_sink(&mut self) -> Sink<'_> {
        Sink::from(*self)
    }
}
