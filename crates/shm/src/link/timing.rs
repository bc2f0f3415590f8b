//! The time that long copies through the ring take, by which [`CopyChoice`](crate::copy_choice::CopyChoice) knows what
//! the ring costs. Long reads, and writes of what was queued, pass [`Rings::timed`], which times a few of them. What
//! [`RingInPlace`](super::RingInPlace) sends at once does not.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use ripstop_core::provider::Copies;
use ripstop_os::clock;

use super::{RingResult, Rings};
use crate::copy_choice::RingCopy;
use crate::copy_waits::CopyWaits;

/// The shortest copy to or from the ring in bytes whose time counts: shorter payloads have no other way.
const MIN_TIMED_BYTES: usize = Copies::MIN_BYTES as usize;

/// Copies that are not timed after two that were. Together these are an odd number: a writer that gets room for two or
/// four copies at once is then not timed at the same one of them each time.
const UNTIMED_COPIES: u32 = 13;

/// Bytes that are copied from the ring behind a copy by attach until the time counts again: meanwhile the ring
/// has left the processor's caches, and each part of it is to be there again. They must be fewer than those of the 8
/// messages in a row that take the ring to see what that costs, or none of these would count.
const MIN_READ_BYTES_AFTER_ATTACH: usize = 16 << 10;

/// Which of the next copies of a connection are timed.
#[derive(Debug)]
pub(super) struct RingTimer {
    /// Copies to or from the ring that are not timed.
    copies_until_timed: AtomicU32,
    copy_waits: CopyWaits,
    /// Bytes of long copies from the ring since payloads were copied by attach, up to [`MIN_READ_BYTES_AFTER_ATTACH`].
    read_since_attach: AtomicUsize,
}

impl RingTimer {
    pub(super) fn new() -> Self {
        Self {
            copies_until_timed: AtomicU32::new(0),
            copy_waits: CopyWaits::default(),
            read_since_attach: AtomicUsize::new(MIN_READ_BYTES_AFTER_ATTACH),
        }
    }

    /// To be called when payloads of messages were copied by attach.
    pub(super) fn note_get(&self) {
        self.read_since_attach.store(0, Ordering::Relaxed);
    }
}

impl Rings {
    /// Copies up to `len` bytes to or from the ring, and takes the time now and then, to know what the
    /// ring costs.
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
        let read = self.timer.read_since_attach.load(Ordering::Relaxed);
        if what == RingCopy::Read && read < MIN_READ_BYTES_AFTER_ATTACH {
            let read = read.saturating_add(len);
            self.timer.read_since_attach.store(read, Ordering::Relaxed);
            return copy();
        }
        let streams = match what {
            RingCopy::Read => self
                .timer
                .copy_waits
                .begin_read(self.writer.entries_written()),
            RingCopy::Write => self.timer.copy_waits.begin_write(),
        };
        let copy = || {
            let count = copy();
            self.timer.copy_waits.end(what, len, count.unwrap_or(len));
            count
        };
        let copies = self.timer.copies_until_timed.load(Ordering::Relaxed);
        if copies > 0 {
            self.timer
                .copies_until_timed
                .store(copies - 1, Ordering::Relaxed);
            return copy();
        }
        let began = clock::now();
        let count = copy();
        if let Ok(len @ MIN_TIMED_BYTES..) = count {
            let ended = clock::now();
            self.with_attach(|attach| {
                let (len, time) = (len as u64, (began, ended));
                let untimed = match attach.choice.note_copy(what, len, time, streams) {
                    true => 0,
                    false => UNTIMED_COPIES,
                };
                self.timer
                    .copies_until_timed
                    .store(untimed, Ordering::Relaxed);
            });
        }
        count
    }
}
