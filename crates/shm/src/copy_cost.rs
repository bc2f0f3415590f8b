//! What copies of payloads cost one side, by their measured times: each by itself, and those through the ring also by what
//! they waited for. [`CopyChoice`](crate::copy_choice::CopyChoice) compares these.

use std::time::Duration;

use ripstop_mem::ring::MAX_SMALL_BUFFER_BYTES;

/// Measurements of a way before it counts. The first ones often hold page faults.
pub(crate) const MIN_SAMPLES: u8 = 4;

/// Measurements over which the average is taken, roughly: each counts as an eighth of it.
const AVERAGED: u32 = 8;

/// Measurements of another kind after which those of one kind do not count any more.
pub(crate) const OTHERS_UNTIL_STALE: u8 = 64;

/// A copy of a stream waited for the other side's copy if the time between the one before and it is at most this many
/// times that of the copy; a longer time is the program's. A writer may wait for room for [`CREDIT_BYTES`] at once, that is
/// for as many of its copies.
const MAX_GAP_COPIES: u32 = 4;

/// How much room a reader gives back at once, in bytes. Where a domain has many connections it is less.
pub(crate) const CREDIT_BYTES: u64 = MAX_SMALL_BUFFER_BYTES as u64;

/// What a copy through the ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingCopy {
    /// From the ring.
    Read,
    /// To the ring.
    Write,
}

impl RingCopy {
    /// The copy of the side that writes to memory of the peer, or reads from there.
    pub(crate) fn of_access(write: bool) -> Self {
        match write {
            true => Self::Write,
            false => Self::Read,
        }
    }
}

/// How a copy through the ring follows the one before in its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// As one of a stream: what it waited for, if anything, is copies of the other side.
    Stream,
    /// Otherwise, as where each message answers another (ping-pong): it may have waited for more than copies.
    Other,
}

/// A copy through the ring of which the time was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedCopy {
    pub(crate) what: RingCopy,
    /// How many bytes were copied.
    pub(crate) len: u64,
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    pub(crate) flow: Flow,
}

impl TimedCopy {
    pub(crate) fn elapsed(&self) -> Duration {
        self.ended.saturating_sub(self.began)
    }

    /// The longest time since the copy before in which this one waited for the other side's copy; `None` if it may
    /// have waited for more than that.
    pub(crate) fn max_gap(&self) -> Option<Duration> {
        let copies = match self.what {
            RingCopy::Read => 1,
            RingCopy::Write => (CREDIT_BYTES / self.len.max(1)).max(1) as u32,
        };
        (self.flow == Flow::Stream).then(|| MAX_GAP_COPIES * copies * self.elapsed())
    }
}

/// The cost of a way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// Picoseconds a byte.
    ps: u32,
    /// Measurements, up to [`MIN_SAMPLES`].
    samples: u8,
}

impl Cost {
    /// Takes one measurement: the least of the first ones, then a moving average, in which one that was
    /// disturbed counts as twice as long as usual at most.
    pub(crate) fn note(&mut self, len: u64, elapsed: Duration) {
        // In 64 bits: a division of 128 takes as long as a reading of the clock.
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let found = nanos.saturating_mul(1000) / len.max(1);
        let found = u32::try_from(found).unwrap_or(u32::MAX >> 1).max(1);
        self.ps = match self.samples {
            0 => found,
            1..MIN_SAMPLES => self.ps.min(found),
            MIN_SAMPLES.. if found < self.ps => self.ps - (self.ps - found) / AVERAGED,
            MIN_SAMPLES.. => self.ps + (found - self.ps).min(self.ps) / AVERAGED,
        };
        self.samples = MIN_SAMPLES.min(self.samples + 1);
    }

    /// The cost in picoseconds a byte, if it is known.
    pub(crate) fn known(&self) -> Option<u32> {
        (self.samples >= MIN_SAMPLES).then_some(self.ps)
    }
}

/// A cost that is known as long as it was measured lately: among the last [`OTHERS_UNTIL_STALE`] measurements of
/// another kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RecentCost {
    cost: Cost,
    /// Measurements of another kind until it is stale.
    others_left: u8,
}

impl RecentCost {
    pub(crate) fn note(&mut self, len: u64, elapsed: Duration) {
        self.cost.note(len, elapsed);
        self.others_left = OTHERS_UNTIL_STALE;
    }

    /// Another kind was measured.
    pub(crate) fn note_other(&mut self) {
        self.others_left = self.others_left.saturating_sub(1);
    }

    /// A payload went by attach, of which the ring would have taken such a copy: the cost counts as measured now.
    pub(crate) fn keep(&mut self) {
        self.others_left = OTHERS_UNTIL_STALE;
    }

    pub(crate) fn known(&self) -> Option<u32> {
        self.cost.known().filter(|_| self.others_left > 0)
    }
}

/// What copies from the ring cost this side, or those to it. They are timed in pairs, each one and the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCost {
    /// From the beginning of a copy to its end.
    pub(crate) copies: RecentCost,
    /// From the end of one copy to the end of the next, where both are of a stream.
    pub(crate) periods: RecentCost,
    /// When the first copy of a pair ended, until the second one.
    pub(crate) first_ended: Option<Duration>,
}

impl RingCost {
    pub(crate) fn note(&mut self, copy: &TimedCopy) {
        self.copies.note(copy.len, copy.elapsed());
        let Some(first_ended) = self.first_ended.take() else {
            self.first_ended = Some(copy.ended);
            return;
        };
        let gap = copy.began.saturating_sub(first_ended);
        match copy.max_gap().is_some_and(|max_gap| gap <= max_gap) {
            true => {
                let period = copy.ended.saturating_sub(first_ended);
                self.periods.note(copy.len, period);
            }
            false => self.periods.note_other(),
        }
    }

    /// A copy the other way was measured.
    pub(crate) fn note_other(&mut self) {
        self.copies.note_other();
        self.periods.note_other();
    }
}
