//! A fast poll: the active connection whose turn it is.

use ripstop_types::{Errno, Result};

use crate::state::State;
use crate::system::System as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::link::Link as _;
use crate::transport::readiness::{Readiness as _, polls_links};
use crate::transport::{InPlaceOf, Transport};

/// What a fast poll has found.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FastPoll {
    /// It was not enough: there is more to be done, by [`State::progress_all`].
    Insufficient,
    /// Nothing has arrived, and nothing else is to be done.
    Nothing,
    /// The active link has bytes, not read yet: only of links that are received from in place.
    Readable,
    /// [`State::rx_len`] bytes were received into the receive buffer.
    Received,
    /// The active link has ended with [`State::rx_error`].
    Ended,
}

impl<T: Transport> State<T> {
    /// Polls the active connection whose turn it is, if there is nothing else to do: reads it, or
    /// sees that it has something. Inlined into each call that makes progress.
    #[inline(always)]
    pub(crate) fn fast_poll(&mut self) -> FastPoll {
        self.burst_open = false;
        let active = &mut self.active;
        if active.fast_budget == 1 {
            return FastPoll::Insufficient;
        }
        let Some(link) = &active.links[usize::from(active.turn)] else {
            return FastPoll::Insufficient;
        };
        if InPlaceOf::<T>::applies(link) {
            if InPlaceOf::<T>::is_ready(link) {
                return FastPoll::Readable;
            }
        } else {
            match link.recv_once(&mut self.rx_buffer) {
                Err(Errno::EAGAIN) => {}
                outcome => return self.note_received(outcome),
            }
        }
        self.active.fast_budget -= 1;
        self.active.note_idle();
        if polls_links::<T>() && self.readiness.is_due() {
            return FastPoll::Insufficient;
        }
        if self.watches_links() && self.active.is_full_poll_due(T::System::ticks) {
            self.active.poll_next();
            return FastPoll::Insufficient;
        }
        FastPoll::Nothing
    }

    /// Keeps the outcome of a read of the active link that had something.
    #[inline(always)]
    pub(crate) fn note_received(&mut self, outcome: Result<usize>) -> FastPoll {
        self.rx_error = match outcome {
            Ok(0) => Errno::ECONNRESET,
            Ok(len) => {
                self.rx_len = len;
                return FastPoll::Received;
            }
            Err(error) => error,
        };
        FastPoll::Ended
    }
}
