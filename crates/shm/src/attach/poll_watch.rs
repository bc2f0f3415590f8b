//! Whether the peer polls its rings, as its poll count tells: a peer that does can be reached through them, one that
//! does not would let an operation wait.
//!
//! The count is a hint that the peer writes; a wrong one costs time.

use std::time::Duration;

use ripstop_mem::ring::PeerPollStatus;
use ripstop_os::clock;

/// How long a peer that was seen polling is assumed to poll on, without watching it again: at first,
/// and at most, after doubling each time that it is seen polling.
const MIN_ASSUME_POLLING: Duration = Duration::from_micros(20);
const MAX_ASSUME_POLLING: Duration = Duration::from_micros(320);

/// How long the poll count is watched for a change. A domain that polls changes it on every 32nd idle
/// poll, that is within 1 to 2 us.
const POLL_WATCH_TIME: Duration = Duration::from_micros(6);

/// Loads of the poll count between two reads of the clock.
const COUNT_READS_PER_CLOCK_READ: u32 = 16;

/// Yields of the processor in place of [`POLL_WATCH_TIME`] where threads share a processor.
const MAX_WATCH_YIELDS: u32 = 4;

/// What was seen of one peer's polls.
#[derive(Debug)]
pub(crate) struct PollWatch {
    status: PeerPollStatus,
    /// The time until which the peer is assumed to poll its rings.
    polling_until: Duration,
    /// How long to assume so when it is next seen polling.
    assume_polling: Duration,
    /// The poll count at which the peer was found idle.
    idle_count: Option<u64>,
    /// The poll count when [`seems_polling`](Self::seems_polling) was last asked.
    seen_count: u64,
    /// The peer has copied parts of the last joint read or write.
    has_helped: bool,
}

impl PollWatch {
    pub(super) const fn new(status: PeerPollStatus) -> Self {
        Self {
            status,
            polling_until: Duration::ZERO,
            assume_polling: MIN_ASSUME_POLLING,
            idle_count: None,
            seen_count: 0,
            has_helped: false,
        }
    }

    /// Whether the peer was seen polling a moment ago: the caller then uses the ring.
    pub(crate) fn is_assumed_polling(&self) -> bool {
        clock::now() < self.polling_until
    }

    /// Whether the peer has polled its rings since this was last asked, or has copied parts of the last joint read or
    /// write: it is then likely to copy parts of the next one. Does not watch it.
    pub(crate) fn seems_polling(&mut self) -> bool {
        let count = self.status.poll_count();
        std::mem::replace(&mut self.seen_count, count) != count || self.has_helped
    }

    /// To be called after each joint read or write.
    pub(crate) fn note_helped(&mut self, has_helped: bool) {
        self.has_helped = has_helped;
    }

    /// Whether the peer does not poll its rings; watches it for a moment where that is not known.
    /// `crowded` says that threads share a processor.
    pub(super) fn is_idle(&mut self, crowded: bool) -> bool {
        let count = self.status.poll_count();
        if self.idle_count != Some(count) {
            if !self.stays_idle(count, crowded) {
                self.polling_until = clock::now() + self.assume_polling;
                self.assume_polling = (2 * self.assume_polling).min(MAX_ASSUME_POLLING);
                return false;
            }
            self.idle_count = Some(count);
            self.assume_polling = MIN_ASSUME_POLLING;
        }
        true
    }

    /// Whether the peer's poll count keeps this value while it is watched.
    #[cold]
    #[inline(never)]
    fn stays_idle(&self, count: u64, crowded: bool) -> bool {
        let same = || {
            std::hint::spin_loop();
            self.status.poll_count() == count
        };
        if crowded {
            return (0..MAX_WATCH_YIELDS).all(|_| {
                std::thread::yield_now();
                same()
            });
        }
        let end = clock::now() + POLL_WATCH_TIME;
        while (0..COUNT_READS_PER_CLOCK_READ).all(|_| same()) {
            if clock::now() >= end {
                return true;
            }
        }
        false
    }
}
