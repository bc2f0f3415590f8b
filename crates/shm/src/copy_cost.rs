//! What copies of payloads cost one side, by their measured times: each by itself, and those through the ring also by what
//! they waited for. [`CopyChoice`](crate::copy_choice::CopyChoice) compares these.

use std::time::Duration;

use ripstop_mem::ring::{Backlog, MAX_SMALL_BUFFER_BYTES};

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

/// Bytes that the peer must read of what is ahead of it, to know how long it takes for them: it returns room in steps of
/// [`CREDIT_BYTES`]. A few messages at a time are less than that, of which the program may do more than read them.
const MIN_PACE_BYTES: u64 = 4 * CREDIT_BYTES;

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
    /// How far the peer was when it ended, of a copy to the ring.
    pub(crate) backlog: Option<Backlog>,
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
        self.note_equal(len, elapsed, 1);
    }

    /// Takes `count` measurements that are equal.
    pub(crate) fn note_equal(&mut self, len: u64, elapsed: Duration, count: u32) {
        // In 64 bits: a division of 128 takes as long as a reading of the clock.
        let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
        let found = nanos.saturating_mul(1000) / len.max(1);
        let found = u32::try_from(found).unwrap_or(u32::MAX >> 1).max(1);
        for _ in 0..count {
            self.ps = match self.samples {
                0 => found,
                1..MIN_SAMPLES => self.ps.min(found),
                MIN_SAMPLES.. if found < self.ps => self.ps - (self.ps - found) / AVERAGED,
                MIN_SAMPLES.. => self.ps + (found - self.ps).min(self.ps) / AVERAGED,
            };
            self.samples = MIN_SAMPLES.min(self.samples + 1);
        }
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

/// How fast the peer reads what is ahead of it in the ring. A writer whose payloads are acknowledged, and who has only so many
/// under way, waits for that, though there is room.
#[derive(Clone, Copy, Debug, Default)]
struct ReaderPace {
    /// Where a measurement began: when, and how far the peer was. `None` between measurements.
    since: Option<(Duration, Backlog)>,
}

impl ReaderPace {
    /// Takes how far the peer is now. Returns how many bytes it has read in which time, once those are
    /// enough. Begins anew where it may have had nothing to read.
    fn note(&mut self, now: Duration, backlog: Backlog) -> Option<(u64, Duration)> {
        let returned = self
            .since
            .and_then(|(began, before)| Some((backlog.returned_since(before)?, began)));
        match returned {
            Some((len, began)) if len >= MIN_PACE_BYTES => {
                self.since = None;
                Some((len, now.saturating_sub(began)))
            }
            Some(_) => None,
            None => {
                let is_enough = backlog.bytes() > MIN_PACE_BYTES;
                self.since = is_enough.then_some((now, backlog));
                None
            }
        }
    }
}

/// What copies from the ring cost this side, or those to it. They are timed in pairs, each one and the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RingCost {
    /// From the beginning of a copy to its end.
    pub(crate) copies: RecentCost,
    /// From the end of one copy to the end of the next, where both are of a stream; of copies to the ring also what the
    /// peer takes to read them, where many are ahead of it.
    pub(crate) periods: RecentCost,
    reader_pace: ReaderPace,
    /// When the first copy of a pair ended, until the second one.
    pub(crate) first_ended: Option<Duration>,
}

impl RingCost {
    pub(crate) fn note(&mut self, copy: &TimedCopy) {
        self.copies.note(copy.len, copy.elapsed());
        self.note_backlog(copy);
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

    /// Whether the next copy is to be timed, since the time of this one alone says too little.
    pub(crate) fn wants_next(&self) -> bool {
        self.first_ended.is_some() || self.reader_pace.since.is_some()
    }

    /// Takes how far the peer was when this copy to the ring ended. Where it takes much longer for a byte than this side,
    /// its program does something else.
    fn note_backlog(&mut self, copy: &TimedCopy) {
        let read = copy
            .backlog
            .and_then(|backlog| self.reader_pace.note(copy.ended, backlog));
        if let Some((len, elapsed)) = read {
            let own = copy.elapsed().as_nanos() * u128::from(len);
            if elapsed.as_nanos() * u128::from(copy.len) <= u128::from(MAX_GAP_COPIES) * own {
                self.periods.note(len, elapsed);
            }
        }
    }

    /// A copy the other way was measured.
    pub(crate) fn note_other(&mut self) {
        self.copies.note_other();
        self.periods.note_other();
    }
}
