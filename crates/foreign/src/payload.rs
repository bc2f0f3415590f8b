#![allow(unsafe_code)]
//! What operations move: buffers given away, or slices of a region.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

use ripstop_abi::iovec;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags};

use crate::buf::Buf;
use crate::guard::Op;
use crate::ops::Held;
use crate::region::Slice;
use crate::threading::Threading;

/// Pieces one operation may have here.
pub(crate) const MAX_PARTS: usize = 16;

/// Memory an operation takes: a [`Buf`] or a vector of them, handed back with the completion,
/// a [`Slice`] of a region of the same domain, or a [`UserBuf`] or some of them, whose maker has
/// promised that they stay.
///
/// Where the provider needs `FI_MR_LOCAL`, only slices of registered regions are accepted.
pub trait Payload: private::Sealed {}

/// A [`Payload`] of one piece.
pub trait Contiguous: Payload + private::Single {}

/// Where an operation happens.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub(crate) domain: usize,
    pub(crate) mr_local: bool,
}

/// One piece of memory as C takes it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub(crate) iov: iovec,
    pub(crate) desc: *mut c_void,
}

/// Bytes that a call copies before it returns.
pub(crate) fn from_slice(bytes: &[u8]) -> UserBuf {
    // SAFETY: every caller gives the buffer to an inject, which only reads it, and only until it
    // returns: as long as its own caller lends the bytes.
    unsafe { UserBuf::from_const(bytes.as_ptr(), bytes.len()) }
}

const NO_PART: Part = Part {
    iov: iovec {
        iov_base: ptr::null_mut(),
        iov_len: 0,
    },
    desc: ptr::null_mut(),
};

/// An address that nobody has.
pub(crate) const NOWHERE: *mut c_void = ptr::without_provenance_mut(usize::MAX / 3);

/// What stands where a piece was.
const SPENT: iovec = iovec {
    iov_base: NOWHERE,
    iov_len: usize::MAX,
};

/// The pieces of a payload, split as C takes them.
#[doc(hidden)]
#[derive(Debug)]
pub struct Parts {
    pub(crate) iov: [iovec; MAX_PARTS],
    pub(crate) desc: [*mut c_void; MAX_PARTS],
    pub(crate) count: usize,
}

impl Parts {
    /// No pieces.
    pub(crate) const NONE: Self = Self {
        iov: [NO_PART.iov; MAX_PARTS],
        desc: [NO_PART.desc; MAX_PARTS],
        count: 0,
    };

    /// Overwrites the arrays once the call has returned, after which nobody may look at them:
    /// a library that does reads where nothing is.
    pub(crate) fn spend(&mut self) {
        *self = Self {
            iov: [SPENT; MAX_PARTS],
            desc: [NOWHERE; MAX_PARTS],
            count: usize::MAX,
        };
        black_box(self);
    }

    /// What is about to be posted.
    pub(crate) fn op(&self, flags: Flags) -> Op {
        let len = self.iov[..self.count]
            .iter()
            .fold(0_usize, |sum, iov| sum.saturating_add(iov.iov_len));
        Op {
            len,
            parts: self.count,
            flags,
        }
    }

    fn push(&mut self, part: Part) -> Result<(), Errno> {
        let iov = self.iov.get_mut(self.count).ok_or(Errno::EINVAL)?;
        *iov = part.iov;
        self.desc[self.count] = part.desc;
        self.count += 1;
        Ok(())
    }
}

pub(crate) mod private {
    use super::{Errno, Held, Part, Parts, Place};

    pub trait Sealed: Sized {
        /// What stays with the caller while the rest is parked.
        type Rest;
        /// Whether the memory may be used there.
        fn admit(&self, place: Place) -> Result<(), Errno>;
        fn parts(&self) -> Result<Parts, Errno>;
        fn park(self) -> (Held, Self::Rest);
        /// Undoes `park`.
        fn unpark(held: Held, rest: Self::Rest) -> Self;
    }

    pub trait Single {
        fn part(&self) -> Part;
    }
}

impl private::Single for Buf {
    fn part(&self) -> Part {
        let iov = iovec {
            iov_base: self.as_ptr().cast(),
            iov_len: self.len(),
        };
        Part {
            iov,
            desc: ptr::null_mut(),
        }
    }
}

impl private::Sealed for Buf {
    type Rest = ();

    fn admit(&self, place: Place) -> Result<(), Errno> {
        if place.mr_local {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }

    fn parts(&self) -> Result<Parts, Errno> {
        let mut parts = Parts::NONE;
        parts.push(private::Single::part(self))?;
        Ok(parts)
    }

    fn park(self) -> (Held, ()) {
        (Held::One(self), ())
    }

    fn unpark(held: Held, (): ()) -> Self {
        match held {
            Held::One(buf) => buf,
            _ => unreachable!("a buffer was parked"),
        }
    }
}

impl Payload for Buf {}
impl Contiguous for Buf {}

impl private::Single for UserBuf {
    #[inline]
    fn part(&self) -> Part {
        let iov = iovec {
            iov_base: self.as_ptr().cast(),
            iov_len: self.len(),
        };
        Part {
            iov,
            desc: ptr::null_mut(),
        }
    }
}

/// Memory that stays with the caller while an operation uses it.
macro_rules! stays {
    ($($memory:ty: $pieces:expr;)*) => {
        $(impl private::Sealed for $memory {
            type Rest = Self;

            #[inline]
            fn admit(&self, place: Place) -> Result<(), Errno> {
                match place.mr_local {
                    true => Err(Errno::EINVAL),
                    false => Ok(()),
                }
            }

            fn parts(&self) -> Result<Parts, Errno> {
                let pieces: fn(&Self) -> &[UserBuf] = $pieces;
                let mut parts = Parts::NONE;
                for piece in pieces(self) {
                    parts.push(private::Single::part(piece))?;
                }
                Ok(parts)
            }

            #[inline]
            fn park(self) -> (Held, Self) {
                (Held::Nothing, self)
            }

            #[inline]
            fn unpark(_: Held, rest: Self) -> Self {
                rest
            }
        }

        impl Payload for $memory {})*
    };
}

stays! {
    UserBuf: std::slice::from_ref;
    &[UserBuf]: |pieces| pieces;
}

impl Contiguous for UserBuf {}

impl private::Sealed for Vec<Buf> {
    type Rest = ();

    fn admit(&self, place: Place) -> Result<(), Errno> {
        if place.mr_local {
            Err(Errno::EINVAL)
        } else {
            Ok(())
        }
    }

    fn parts(&self) -> Result<Parts, Errno> {
        let mut parts = Parts::NONE;
        for buf in self {
            parts.push(private::Single::part(buf))?;
        }
        Ok(parts)
    }

    fn park(self) -> (Held, ()) {
        (Held::Many(self), ())
    }

    fn unpark(held: Held, (): ()) -> Self {
        match held {
            Held::Many(bufs) => bufs,
            _ => unreachable!("buffers were parked"),
        }
    }
}

impl Payload for Vec<Buf> {}

impl<M: Threading> private::Single for Slice<'_, M> {
    #[inline]
    fn part(&self) -> Part {
        Part {
            iov: self.iov(),
            desc: self.desc(),
        }
    }
}

impl<M: Threading> private::Sealed for Slice<'_, M> {
    type Rest = Self;

    #[inline]
    fn admit(&self, place: Place) -> Result<(), Errno> {
        if self.domain() != place.domain {
            return Err(Errno::EDOMAIN);
        }
        if place.mr_local && self.desc().is_null() {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    fn parts(&self) -> Result<Parts, Errno> {
        let mut parts = Parts::NONE;
        parts.push(private::Single::part(self))?;
        Ok(parts)
    }

    #[inline]
    fn park(self) -> (Held, Self) {
        (Held::Nothing, self)
    }

    #[inline]
    fn unpark(_: Held, rest: Self) -> Self {
        rest
    }
}

impl<M: Threading> Payload for Slice<'_, M> {}
impl<M: Threading> Contiguous for Slice<'_, M> {}
