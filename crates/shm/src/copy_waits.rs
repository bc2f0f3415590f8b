//! Which copies through the ring may have waited for copies of the other side, and for nothing else.
//!
//! Where a stream of payloads goes one way, the time from one copy to the next is what both sides need for a payload.
//! Where each message answers another it is that of a round trip, which says nothing of the ring.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ripstop_core::provider::Copies;

use crate::copy_choice::{CREDIT_BYTES, RingCopy};

/// Long writes behind one that found no room, of which each may have waited for that: a reader gives room for this many
/// of the shortest back at once.
const WRITES_PER_WAIT: u32 = (CREDIT_BYTES / Copies::MIN_BYTES) as u32;

/// What one side of a connection has copied lately. One thread at a time changes it, under the lock of the connection.
#[derive(Debug, Default)]
pub(crate) struct CopyWaits {
    /// Entries that this side had written at the last read of a long payload.
    written_before_read: AtomicU64,
    /// Long writes to come that may have waited for room.
    waiting_writes: AtomicU32,
}

impl CopyWaits {
    /// A long read begins, when this side has written so many entries. Returns whether it can have waited for copies only:
    /// this side has sent nothing since the read before.
    #[inline]
    pub(crate) fn begin_read(&self, entries_written: u64) -> bool {
        let before = self.written_before_read.load(Relaxed);
        self.written_before_read.store(entries_written, Relaxed);
        before == entries_written
    }

    /// A long write begins. Returns whether it can have waited for copies only: there was no room lately.
    #[inline]
    pub(crate) fn begin_write(&self) -> bool {
        let left = self.waiting_writes.load(Relaxed);
        self.waiting_writes.store(left.saturating_sub(1), Relaxed);
        left > 0
    }

    /// A copy has moved `done` of `len` bytes.
    #[inline]
    pub(crate) fn end(&self, what: RingCopy, len: usize, done: usize) {
        if what == RingCopy::Write && done < len {
            self.waiting_writes.store(WRITES_PER_WAIT, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_behind_an_answer_waits_for_more_than_copies() {
        let waits = CopyWaits::default();
        assert!(waits.begin_read(0) && waits.begin_read(0), "a stream");
        assert!(!waits.begin_read(1), "this side has answered");
        assert!(waits.begin_read(1));
    }

    #[test]
    fn only_writes_behind_one_without_room_wait_for_copies() {
        let waits = CopyWaits::default();
        let len = 8192;
        for _ in 0..10 {
            assert!(!waits.begin_write(), "there is room");
            waits.end(RingCopy::Write, len, len);
        }
        for done in [0, len / 2] {
            waits.end(RingCopy::Write, len, done);
            for _ in 0..WRITES_PER_WAIT {
                assert!(waits.begin_write(), "{done} bytes found room");
                waits.end(RingCopy::Write, len, len);
            }
            assert!(!waits.begin_write());
        }
        waits.end(RingCopy::Read, len, 0);
        assert!(!waits.begin_write(), "a read finds no room, or nothing");
    }
}
