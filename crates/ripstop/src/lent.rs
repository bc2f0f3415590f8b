#![allow(unsafe_code)]
//! Memory that operations and peers may be using, and taking it back: the only unsafe code of the crate.
//!
//! What is lent is dropped by leaking it; to free it, or to hand it to its owner, is to say that the
//! provider does not use it any more, and why ([`Over`]). Each reason is a promise of
//! [`ripstop_core::provider`], so the memory is as safe as the provider keeps it. What the provider has
//! [abandoned](ripstop_os::abandon) is leaked for ever.

use ripstop_mem::{IOV_LIMIT, Parked, UserBuf, copy_in};
use ripstop_os::{SharedBuf, is_abandoned};

use crate::buf::Pieces;

/// Why a provider uses a buffer no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The only operation that has it is over: its completion or error was read, or its endpoint is
    /// closed.
    Ended,
    /// The call was refused, so that nothing was kept of it.
    Refused,
    /// The call has copied the bytes (`fi_inject`).
    Copied,
    /// The only registration of it has ended.
    Closed,
}

/// The vector of a buffer whose use is over; a copy where a peer process was given up that may still write there, as
/// that memory is leaked.
pub(crate) fn reclaim(parked: Parked, _: Over) -> Vec<u8> {
    let buf = parked.buf();
    if is_abandoned(buf) {
        let mut copy = vec![0; buf.len()];
        copy_in(&mut copy, buf);
        return copy;
    }
    // SAFETY: buffers are parked in this crate for one operation, injection or registration each, and
    // their `UserBuf` is given to the provider in that call only (`Region` copies under the domain's
    // lock, while it has the `Parked`). By what `Over` names, the provider's use has ended. A peer that may
    // still use it would have had the memory abandoned, which was asked above.
    unsafe { parked.unpark() }
}

/// The vectors of a message that an operation may be using. Dropping it leaks them.
#[derive(Debug)]
pub(crate) struct Lent {
    first: Parked,
    rest: Vec<Parked>,
}

impl Lent {
    /// Puts bytes where only an operation reaches them.
    pub(crate) fn park(pieces: Pieces) -> Self {
        let (first, rest) = pieces.into_parts();
        Self {
            first: Parked::park(first),
            rest: rest.into_iter().map(Parked::park).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        let rest = self.rest.iter().map(|parked| parked.buf().len());
        rest.fold(self.first.buf().len(), usize::saturating_add)
    }

    /// Takes the bytes back.
    pub(crate) fn reclaim(self, over: Over) -> Pieces {
        let rest = self.rest.into_iter();
        Pieces::new(
            reclaim(self.first, over),
            rest.map(|parked| reclaim(parked, over)).collect(),
        )
    }

    /// Calls `act` with what the operation works on, or with nothing if that is too much.
    pub(crate) fn with<T>(&self, act: impl FnOnce(Option<&[UserBuf]>) -> T) -> T {
        if self.rest.is_empty() {
            return act(Some(&[self.first.buf()]));
        }
        let mut iov = [UserBuf::EMPTY; IOV_LIMIT];
        let count = 1 + self.rest.len();
        let Some(used) = iov.get_mut(..count) else {
            return act(None);
        };
        let all = std::iter::once(&self.first).chain(&self.rest);
        used.iter_mut()
            .zip(all)
            .for_each(|(to, from)| *to = from.buf());
        act(Some(used))
    }
}

/// Memory of a registration whose owner is gone. Dropping it leaks it.
#[derive(Debug)]
pub(crate) enum Memory {
    Owned(Parked),
    Shared(SharedBuf),
}

impl Memory {
    /// Gives it back to the system; memory that is abandoned is leaked.
    pub(crate) fn free(self, over: Over) {
        let buf = match &self {
            Self::Owned(parked) => parked.buf(),
            // Peers may have reached it by its address instead of mapping it.
            Self::Shared(memory) => memory.buf(),
        };
        if is_abandoned(buf) {
            return;
        }
        match self {
            Self::Owned(parked) => drop(reclaim(parked, over)),
            // SAFETY: as for a parked buffer: it was made for one registration, and its `UserBuf`
            // given to the provider for that alone, which has ended by what `over` names.
            Self::Shared(memory) => unsafe { memory.free() },
        }
    }
}
