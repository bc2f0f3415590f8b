//! Counters of each call and each peer.

use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::histogram::Histogram;
use crate::call::{CallInfo, Kind};
use crate::call_cell::CallCell;
use crate::counting::{Threads, bump};

/// The rows of a table, a power of two.
const ROWS: usize = 1 << 11;

/// The rows that one call and peer can be in.
const WINDOW: usize = 16;

/// The peer of a row for all peers that have none of their own.
pub(super) const OTHERS: u64 = u64::MAX - 1;

/// The calls of one function for one peer.
#[derive(Debug, Default)]
pub(super) struct Row {
    /// Null for a free one; stored last.
    call: CallCell,
    peer: AtomicU64,
    /// Calls that have succeeded.
    pub(super) calls: AtomicU64,
    /// Calls that returned an error.
    pub(super) refused: AtomicU64,
    /// Operations that ended in error.
    pub(super) in_error: AtomicU64,
    /// Bytes of the calls that have succeeded.
    pub(super) bytes: AtomicU64,
    /// From post to completion.
    pub(super) took: OnceLock<Box<Histogram>>,
}

impl Row {
    /// Counts what a completed operation took.
    #[inline]
    pub(super) fn completed(&self, took: u64, threads: Threads) {
        let histogram = self.took.get_or_init(|| Box::new(Histogram::new()));
        histogram.add(took, threads);
    }

    #[inline(always)]
    fn is_of(&self, call: &'static CallInfo, peer: u64) -> bool {
        self.call.is(call, Ordering::Acquire) && self.peer.load(Ordering::Relaxed) == peer
    }

    /// The call and the peer; `None` for a free row.
    pub(super) fn key(&self) -> Option<(&'static CallInfo, u64)> {
        let call = self.call.load(Ordering::Acquire)?;
        Some((call, self.peer.load(Ordering::Relaxed)))
    }
}

/// What the calls on one object have come to, by kind of operation.
#[derive(Debug, Default)]
pub(super) struct Recent([OfKind; 4]);

/// See [`Recent`].
#[derive(Debug, Default)]
struct OfKind {
    /// The row that the last call was counted in: most are found here without a search.
    row: AtomicU32,
    /// Operations that were posted. Threads that post at once may lose some.
    turns: AtomicU64,
}

impl Recent {
    #[inline(always)]
    fn of(&self, call: &'static CallInfo) -> &OfKind {
        let [others, sends, receives, reads] = &self.0;
        match call.kind {
            Some(Kind::Send) => sends,
            Some(Kind::Recv) => receives,
            Some(Kind::Read) => reads,
            _ => others,
        }
    }

    /// How many operations of this kind were posted before the one that is now.
    #[inline(always)]
    pub(super) fn turn(&self, call: &'static CallInfo) -> u64 {
        let turns = &self.of(call).turns;
        let before = turns.load(Ordering::Relaxed);
        turns.store(before.wrapping_add(1), Ordering::Relaxed);
        before
    }
}

/// All rows of a domain, or of what a fabric has outside domains.
#[derive(Debug)]
pub(super) struct Rows {
    rows: Box<[Row]>,
    filling: Mutex<()>,
    /// Calls that have no row, for want of room.
    unlisted: AtomicU64,
}

impl Rows {
    pub(super) fn new() -> Self {
        Self {
            rows: (0..ROWS).map(|_| Row::default()).collect(),
            filling: Mutex::new(()),
            unlisted: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    fn first(call: &'static CallInfo, peer: u64) -> usize {
        let call = ptr::from_ref(call).addr() as u64 >> 3;
        let mixed =
            (call ^ peer.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed >> 40) as usize & (ROWS - 1) & !(WINDOW - 1)
    }

    /// The row of a call for a peer, and its number. `recent` is that of the object it is made on.
    #[inline(always)]
    pub(super) fn of(
        &self,
        recent: &Recent,
        call: &'static CallInfo,
        peer: u64,
    ) -> Option<(usize, &Row)> {
        let place = &recent.of(call).row;
        let number = place.load(Ordering::Relaxed) as usize;
        if let Some(row) = self.rows.get(number)
            && row.is_of(call, peer)
        {
            return Some((number, row));
        }
        let (number, row) = self.search(call, peer)?;
        place.store(number as u32, Ordering::Relaxed);
        Some((number, row))
    }

    #[inline(never)]
    fn search(&self, call: &'static CallInfo, peer: u64) -> Option<(usize, &Row)> {
        let first = Self::first(call, peer);
        for (at, row) in self.rows.get(first..first + WINDOW)?.iter().enumerate() {
            if row.is_of(call, peer) {
                return Some((first + at, row));
            }
            if row.call.load(Ordering::Relaxed).is_none() {
                break;
            }
        }
        self.fill(call, peer)
    }

    /// The row of a call for a peer that has none yet.
    #[cold]
    fn fill(&self, call: &'static CallInfo, peer: u64) -> Option<(usize, &Row)> {
        let filling = self.filling.lock();
        for peer in [peer, OTHERS] {
            let first = Self::first(call, peer);
            for (at, row) in self.rows.get(first..first + WINDOW)?.iter().enumerate() {
                if row.call.load(Ordering::Acquire).is_none() {
                    row.peer.store(peer, Ordering::Relaxed);
                    row.call.store(call, Ordering::Release);
                    return Some((first + at, row));
                }
                if row.is_of(call, peer) {
                    return Some((first + at, row));
                }
            }
        }
        drop(filling);
        bump(&self.unlisted, 1, Threads::Several);
        None
    }

    /// A row by its number.
    #[inline]
    pub(super) fn at(&self, number: usize) -> Option<&Row> {
        self.rows.get(number)
    }

    /// Those that are in use.
    pub(super) fn used(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.key().is_some())
    }

    /// Calls that have no row.
    pub(super) fn unlisted(&self) -> u64 {
        self.unlisted.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_counted_somewhere() {
        static CALL: CallInfo = CallInfo::new("fi_send", None);
        let (rows, recent) = (Rows::new(), Recent::default());
        let mut found = 0;
        for _ in 0..2 {
            for peer in 0..2 * ROWS as u64 {
                if let Some((number, row)) = rows.of(&recent, &CALL, peer) {
                    assert!(ptr::eq(rows.at(number).unwrap(), row));
                    bump(&row.calls, 1, Threads::One);
                    found += 1;
                }
            }
        }
        let counted: u64 = rows
            .used()
            .map(|row| row.calls.load(Ordering::Relaxed))
            .sum();
        assert_eq!(counted, found);
        assert_eq!(found + rows.unlisted(), 4 * ROWS as u64);
        let of_others = rows.used().filter(|row| row.key().unwrap().1 == OTHERS);
        assert!(of_others.count() <= 1);
    }
}
