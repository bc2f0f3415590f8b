//! Which copies through the ring are those of a stream ([`Flow`]): they may have waited for copies of the other side, and
//! for nothing else.
//!
//! Where a stream of payloads goes one way, the time from one copy to the next is what both sides need for a payload.
//! Where each message answers another (ping-pong) it is that of a round trip, which says nothing of the ring.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use ripstop_core::provider::Copies;

use crate::copy_cost::{CREDIT_BYTES, Flow, RingCopy};

/// Long writes behind one that found no room, of which each may have waited for that: a reader gives room for this many
/// of the shortest back at once.
const WRITES_PER_WAIT: u32 = (CREDIT_BYTES / Copies::MIN_BYTES) as u32;

/// What one side of a connection has copied lately. One thread at a time changes it, under the lock of the connection.
#[derive(Debug, Default)]
pub(crate) struct CopyWaits {
    /// Entries that this side had written at the last read of a long payload.
    written_before_read: AtomicU64,
    /// Long writes to come that count as waiting for room.
    writes_behind_wait: AtomicU32,
}

impl CopyWaits {
    /// A long read begins, when this side has written so many entries. It is one of a stream if this side has sent nothing
    /// since the read before: it answers nothing.
    #[inline]
    pub(crate) fn begin_read(&self, entries_written: u64) -> Flow {
        let before = self.written_before_read.load(Relaxed);
        self.written_before_read.store(entries_written, Relaxed);
        match before == entries_written {
            true => Flow::Stream,
            false => Flow::Other,
        }
    }

    /// A long write begins. It is one of a stream if there was no room lately: the reader cannot keep up.
    #[inline]
    pub(crate) fn begin_write(&self) -> Flow {
        let left = self.writes_behind_wait.load(Relaxed);
        self.writes_behind_wait
            .store(left.saturating_sub(1), Relaxed);
        match left {
            0 => Flow::Other,
            1.. => Flow::Stream,
        }
    }

    /// A long copy has moved `done` of `len` bytes. A write that moved less found no room.
    #[inline]
    pub(crate) fn end(&self, what: RingCopy, len: usize, done: usize) {
        if what == RingCopy::Write && done < len {
            self.writes_behind_wait.store(WRITES_PER_WAIT, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_behind_an_answer_waits_for_more_than_copies() {
        let waits = CopyWaits::default();
        assert_eq!(
            [0, 0].map(|written| waits.begin_read(written)),
            [Flow::Stream; 2]
        );
        assert_eq!(waits.begin_read(1), Flow::Other, "this side has answered");
        assert_eq!(waits.begin_read(1), Flow::Stream);
    }

    #[test]
    fn only_writes_behind_one_without_room_wait_for_copies() {
        let waits = CopyWaits::default();
        let len = 8192;
        for _ in 0..10 {
            assert_eq!(waits.begin_write(), Flow::Other, "there is room");
            waits.end(RingCopy::Write, len, len);
        }
        for done in [0, len / 2] {
            waits.end(RingCopy::Write, len, done);
            for _ in 0..WRITES_PER_WAIT {
                assert_eq!(waits.begin_write(), Flow::Stream, "{done} bytes found room");
                waits.end(RingCopy::Write, len, len);
            }
            assert_eq!(waits.begin_write(), Flow::Other);
        }
        waits.end(RingCopy::Read, len, 0);
        assert_eq!(waits.begin_write(), Flow::Other, "what was short is a read");
    }
}
