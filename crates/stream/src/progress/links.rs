//! Progress on links that the domain polls itself: polls of all of them, and doorbells for threads that
//! sleep.

use ripstop_engine::id::ConnId;

use crate::state::State;
use crate::transport::Transport;
use crate::transport::readiness::{Readiness as _, ReadyLink, polls_links};

/// Attempts to arm the doorbells again while peers write without end; then the timer does it.
const REARM_ATTEMPTS: u32 = 64;

impl<T: Transport> State<T> {
    /// Polls links, and handles those that have something. Returns how many, and the last one.
    #[inline(never)]
    pub(crate) fn poll_links(&mut self) -> (u32, Option<ConnId>) {
        let (mut active, mut last) = (0, None);
        let mut ready = std::mem::take(&mut self.ready_links);
        self.readiness.poll(&mut ready);
        for ReadyLink { id, what } in ready.drain(..) {
            // One that was handled before may have ended others.
            if !self.is_up(id) {
                continue;
            }
            if what.write {
                self.flush(id);
            }
            if what.read {
                self.read_connection(id);
            }
            (active, last) = (active + 1, Some(id));
        }
        self.ready_links = ready;
        self.have_polled();
        (active, last)
    }

    /// As [`State::poll_links`], in a call of progress that does not ask epoll. Returns whether any had
    /// something.
    #[inline(never)]
    pub(crate) fn poll_links_only(&mut self) -> bool {
        let (active, last) = self.poll_links();
        match active {
            0 => self.active.spend(),
            _ => self.note_active(active, last),
        }
        self.resume_fast_polls();
        self.wake_any_waiters();
        active > 0
    }

    /// A thread is about to sleep until epoll wakes it. Returns whether it must not, since there is
    /// something to do; otherwise [`State::end_sleep`] follows.
    pub(crate) fn begin_sleep(&mut self) -> bool {
        if !polls_links::<T>() {
            return false;
        }
        if !self.exposed.is_empty() {
            self.tell_applied(usize::MAX);
        }
        let due = self.arm_doorbells();
        if due {
            self.disarm_doorbells();
        } else {
            self.sleepers = self.sleepers.saturating_add(1);
        }
        due
    }

    /// Peers have to ring from now on. Returns whether nobody may sleep, since there is something.
    pub(crate) fn arm_doorbells(&mut self) -> bool {
        self.doorbells_armed = true;
        self.readiness.arm()
    }

    /// Peers need not ring any more, unless somebody sleeps.
    pub(crate) fn disarm_doorbells(&mut self) {
        if polls_links::<T>() && self.doorbells_armed && !self.is_anybody_asleep() {
            self.doorbells_armed = false;
            self.readiness.disarm();
        }
    }

    /// A thread has slept.
    pub(crate) fn end_sleep(&mut self) {
        self.sleepers = self.sleepers.saturating_sub(1);
        self.disarm_doorbells();
    }

    /// Whether anybody sleeps, here or on a descriptor that the program was lent.
    fn is_anybody_asleep(&self) -> bool {
        self.sleepers > 0 || self.waiters.any_outside()
    }

    /// A doorbell rang and was drained, also for all others who sleep: it is armed again.
    #[cold]
    #[inline(never)]
    pub(crate) fn rearm_doorbells(&mut self) {
        self.doorbell_rang = false;
        for _ in 0..REARM_ATTEMPTS {
            if !self.is_anybody_asleep() || !self.arm_doorbells() {
                return;
            }
            self.poll_links();
        }
        // Peers write without end: the timer wakes whoever sleeps.
        self.start_timer();
    }
}
