//! Cursors: the positions that [`Writer`](super::Writer) and [`Reader`](super::Reader) keep.
//!
//! A cursor has the index of an entry in its low half and the lap in its high half, as word 0 of the
//! entry has it; the first lap is 1. Cursors are in private memory and relaxed atomics: one thread at
//! a time uses a writer or a reader. Threads that break this mix up the stream, but cannot reach
//! beyond the memory.

/// The bits of the lap in a cursor, and in word 0 of an entry.
pub(super) const LAP_MASK: u64 = 0xffff_ffff_0000_0000;

/// Cursor arithmetic for a ring of a given number of entries.
#[derive(Clone, Copy)]
pub(super) struct CursorSpace {
    shift: u32,
    mask: u64,
    quarter: u64,
}

impl CursorSpace {
    pub(super) const fn new(entries: u32) -> Self {
        Self {
            shift: entries.trailing_zeros(),
            mask: entries as u64 - 1,
            quarter: entries as u64 / 4 - 1,
        }
    }

    /// The cursor of a position: the number of entries before it, which wraps where laps do.
    pub(super) const fn cursor(self, position: u64) -> u64 {
        let lap = (position >> self.shift).wrapping_add(1);
        (lap << 32) | (position & self.mask)
    }

    /// The low 32 bits of a cursor's position, as a credit has them.
    pub(super) const fn count(self, cursor: u64) -> u32 {
        self.position(cursor) as u32
    }

    /// The position of a cursor.
    pub(super) const fn position(self, cursor: u64) -> u64 {
        let lap = (cursor >> 32).wrapping_sub(1) & (u32::MAX as u64);
        (lap << self.shift) | (cursor & self.mask)
    }

    /// The cursor of the next entry; `None` if that starts a quarter of a lap.
    #[inline(always)]
    pub(super) const fn next_in_quarter(self, cursor: u64) -> Option<u64> {
        let next = cursor.wrapping_add(1);
        match self.starts_quarter(next) {
            true => None,
            false => Some(next),
        }
    }

    /// The cursor of the next entry.
    #[inline(always)]
    pub(super) const fn next(self, cursor: u64) -> u64 {
        let next = cursor.wrapping_add(1);
        if next & self.mask == 0 {
            return (cursor & LAP_MASK).wrapping_add(1 << 32);
        }
        next
    }

    /// Whether this cursor starts a quarter of a lap, which is when a reader returns credit.
    #[inline(always)]
    pub(super) const fn starts_quarter(self, cursor: u64) -> bool {
        cursor & self.quarter == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cursors_follow_positions() {
        for entries in [4, 256, 65536] {
            let space = CursorSpace::new(entries);
            let n = u64::from(entries);
            for start in [0, 3 * n - 2, (n << 32) - n - 2, (n << 32) - 2] {
                let mut cursor = space.cursor(start);
                for step in 0..2 * n.min(300) {
                    let position = start.wrapping_add(step);
                    assert_eq!(cursor, space.cursor(position));
                    assert_eq!(space.count(cursor), position as u32);
                    assert_eq!(space.position(cursor), position % (n << 32));
                    assert_eq!(space.starts_quarter(cursor), position % (n / 4) == 0);
                    let next = space.next(cursor);
                    let inside = Some(next).filter(|next| !space.starts_quarter(*next));
                    assert_eq!(space.next_in_quarter(cursor), inside);
                    cursor = next;
                }
            }
        }
        assert_eq!(CursorSpace::new(4).cursor(0), 1 << 32, "the first lap is 1");
    }
}
