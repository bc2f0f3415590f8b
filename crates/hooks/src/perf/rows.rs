//! Counters of each call and each peer.

use core::hint::cold_path;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::OnceLock;

use parking_lot::Mutex;

use super::histogram::Histogram;
use crate::call::CallInfo;
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
    call: AtomicPtr<CallInfo>,
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

    /// The call and the peer; `None` for a free row.
    pub(super) fn key(&self) -> Option<(&'static CallInfo, u64)> {
        let call = crate::calls::call_at(self.call.load(Ordering::Acquire))?;
        Some((call, self.peer.load(Ordering::Relaxed)))
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

    /// The row of a call for a peer, and its number.
    #[inline(always)]
    pub(super) fn of(&self, call: &'static CallInfo, peer: u64) -> Option<(usize, &Row)> {
        let first = Self::first(call, peer);
        for (at, row) in self.rows.get(first..first + WINDOW)?.iter().enumerate() {
            let at_row = row.call.load(Ordering::Acquire);
            if ptr::eq(at_row, call) && row.peer.load(Ordering::Relaxed) == peer {
                return Some((first + at, row));
            }
            if at_row.is_null() {
                break;
            }
        }
        cold_path();
        self.fill(call, peer)
    }

    /// The row of a call for a peer that has none yet.
    #[cold]
    fn fill(&self, call: &'static CallInfo, peer: u64) -> Option<(usize, &Row)> {
        let filling = self.filling.lock();
        for peer in [peer, OTHERS] {
            let first = Self::first(call, peer);
            for (at, row) in self.rows.get(first..first + WINDOW)?.iter().enumerate() {
                let at_row = row.call.load(Ordering::Acquire);
                if at_row.is_null() {
                    row.peer.store(peer, Ordering::Relaxed);
                    row.call
                        .store(ptr::from_ref(call).cast_mut(), Ordering::Release);
                    return Some((first + at, row));
                }
                if ptr::eq(at_row, call) && row.peer.load(Ordering::Relaxed) == peer {
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
        let rows = Rows::new();
        let mut found = 0;
        for _ in 0..2 {
            for peer in 0..2 * ROWS as u64 {
                if let Some((number, row)) = rows.of(&CALL, peer) {
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
