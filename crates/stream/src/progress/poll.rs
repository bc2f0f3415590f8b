//! A fast poll: the active connection whose turn it is.

use ripstop_types::{Errno, Result};

use crate::state::State;
use crate::system::System as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::link::Link as _;
use crate::transport::readiness::{Readiness as _, polls_links};
use crate::transport::{InPlaceOf, Transport};

/// What a fast poll has found, for [`State::handle_found`]: this many bytes at the front of the
/// receive buffer; or [`READY`]; or [`NOTHING`]; or, below, an error with its sign changed.
pub(crate) type Found = isize;

/// There is something that was not read yet, on a link that is received from in place.
pub(crate) const READY: Found = Found::MAX;

/// It was not read: more is to be done, by [`State::progress_all`].
pub(crate) const NOTHING: Found = 0;

/// The outcome of [`State::fast_poll`].
pub(crate) enum FastPoll {
    /// Nothing has arrived, and nothing else is to be done.
    Nothing,
    /// Go on with this.
    Found(Found),
}

impl<T: Transport> State<T> {
    /// Polls the active connection whose turn it is, if there is nothing else to do: reads it, or
    /// sees that it has something. Inlined into each call that makes progress.
    #[inline(always)]
    pub(crate) fn fast_poll(&mut self) -> FastPoll {
        self.burst = false;
        let active = &mut self.active;
        if active.fast_budget == 1 {
            return FastPoll::Found(NOTHING);
        }
        let Some(link) = &active.links[usize::from(active.turn)] else {
            return FastPoll::Found(NOTHING);
        };
        let found = match InPlaceOf::<T>::SUPPORTED {
            true if InPlaceOf::<T>::is_ready(link) => READY,
            true => NOTHING,
            false => match link.recv_once(&mut self.rx_buffer) {
                Err(Errno::EAGAIN) => NOTHING,
                outcome => Self::found_by(outcome),
            },
        };
        if found != NOTHING {
            return FastPoll::Found(found);
        }
        active.fast_budget -= 1;
        active.note_idle();
        match polls_links::<T>() {
            true if self.readiness.is_due() => FastPoll::Found(NOTHING),
            false if active.is_full_poll_due(T::System::ticks) => {
                active.poll_next();
                FastPoll::Found(NOTHING)
            }
            _ => FastPoll::Nothing,
        }
    }

    /// The outcome of a read that found something.
    #[inline(always)]
    pub(crate) fn found_by(outcome: Result<usize>) -> Found {
        match outcome {
            Ok(0) => Found::from(-(Errno::ECONNRESET.0 as i16)),
            Ok(count) => count.cast_signed(),
            Err(error) => Found::from(-(error.0 as i16)),
        }
    }
}
