//! The time that long copies through the ring take, by which [`CopyChoice`](crate::copy_choice::CopyChoice) knows what
//! the ring costs. All long reads and writes of rings pass [`Connection::timed`], which times a few of them.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ripstop_core::provider::Copies;
use ripstop_os::clock;

use super::{Connection, RingResult};
use crate::copy_cost::{RingCopy, TimedCopy};
use crate::copy_waits::CopyWaits;

/// The shortest copy to or from the ring in bytes whose time counts: shorter payloads have no other way.
const MIN_TIMED_BYTES: usize = Copies::MIN_BYTES as usize;

/// Copies that are not timed after two that were. Together these are an odd number: a writer that gets room for two or
/// four copies at once is then not timed at the same one of them each time.
const UNTIMED_COPIES: u32 = 29;

/// Bytes that are copied from the ring behind a copy by attach until the time counts again: meanwhile the ring
/// has left the processor's caches, and each part of it is to be there again. They must be fewer than those of the 8
/// messages in a row that take the ring to see what that costs, or none of these would count.
const COLD_BYTES_AFTER_ATTACH: usize = 16 << 10;

/// Which copies through the ring of one connection are timed. Changed under the lock of the connection only.
#[derive(Debug, Default)]
pub(super) struct RingTimer {
    /// Long copies until the next one that is timed.
    copies_until_timed: AtomicU32,
    copy_waits: CopyWaits,
    /// Bytes of long copies from the ring until their time counts: they find memory that this process has not touched
    /// since payloads were copied by attach.
    cold_reads: AtomicUsize,
}

impl RingTimer {
    /// To be called when payloads of messages were copied by attach.
    pub(super) fn note_get(&self) {
        self.cold_reads
            .store(COLD_BYTES_AFTER_ATTACH, Ordering::Relaxed);
    }

    /// To be called when a read or write is a trial of the ring: the next copy is timed.
    pub(super) fn time_next(&self) {
        self.copies_until_timed.store(0, Ordering::Relaxed);
    }

    /// A long copy begins. Returns whether it finds cold memory, so that its time would say nothing.
    #[inline]
    fn begin_cold(&self, what: RingCopy, len: usize) -> bool {
        if what == RingCopy::Write {
            return false;
        }
        let cold = self.cold_reads.load(Ordering::Relaxed);
        if cold > 0 {
            self.cold_reads
                .store(cold.saturating_sub(len), Ordering::Relaxed);
        }
        cold > 0
    }

    /// A long copy begins that finds no cold memory. Returns whether it is timed.
    #[inline]
    fn begin_due(&self) -> bool {
        let copies = self.copies_until_timed.load(Ordering::Relaxed);
        self.copies_until_timed
            .store(copies.saturating_sub(1), Ordering::Relaxed);
        copies == 0
    }
}

impl Connection {
    /// Copies up to `len` bytes to or from the ring by `copy`, and takes the time now and then, to know what the ring costs.
    /// All reads and writes that may be long are made by this.
    #[inline]
    pub(super) fn timed(
        &self,
        what: RingCopy,
        len: usize,
        copy: impl FnOnce() -> RingResult,
    ) -> RingResult {
        // Without attach there is no choice.
        if len < MIN_TIMED_BYTES || self.attach.is_none() {
            return copy();
        }
        if self.timer.begin_cold(what, len) {
            return copy();
        }
        let waits = &self.timer.copy_waits;
        let flow = match what {
            RingCopy::Read => waits.begin_read(self.rings.writer.entries_written()),
            RingCopy::Write => waits.begin_write(),
        };
        let began = self.timer.begin_due().then(clock::now);
        let count = copy();
        waits.end(what, len, count.unwrap_or(len));
        if let (Some(began), Ok(copied @ MIN_TIMED_BYTES..)) = (began, count) {
            let timed = TimedCopy {
                what,
                len: copied as u64,
                began,
                ended: clock::now(),
                flow,
                backlog: match what {
                    // A credit that no peer has fails the next write, too.
                    RingCopy::Write => self.rings.writer.backlog().ok(),
                    RingCopy::Read => None,
                },
            };
            self.note_timed(&timed);
        }
        count
    }

    /// Hands the time of a copy on, and says which of the next copies are timed.
    fn note_timed(&self, copy: &TimedCopy) {
        self.with_attach(|attach| {
            let untimed = match attach.choice.note_copy(copy) {
                true => 0,
                false => UNTIMED_COPIES,
            };
            self.timer
                .copies_until_timed
                .store(untimed, Ordering::Relaxed);
            self.has_new_get_limit
                .store(attach.choice.has_new_limit(), Ordering::Relaxed);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_by_attach_makes_reads_cold_for_fewer_bytes_than_8_messages_in_a_row_have() {
        let timer = RingTimer::default();
        assert!(!timer.begin_cold(RingCopy::Read, 4096));
        timer.note_get();
        let cold = (0..8).filter(|_| timer.begin_cold(RingCopy::Read, 4096));
        assert_eq!(cold.count(), 4);
        assert!(!timer.begin_cold(RingCopy::Write, 4096));
    }

    #[test]
    fn a_copy_that_is_to_show_what_the_ring_costs_is_timed_at_once() {
        let timer = RingTimer::default();
        timer.copies_until_timed.store(2, Ordering::Relaxed);
        assert_eq!([(); 3].map(|()| timer.begin_due()), [false, false, true]);
        timer.copies_until_timed.store(2, Ordering::Relaxed);
        timer.time_next();
        assert!(timer.begin_due());
    }
}
