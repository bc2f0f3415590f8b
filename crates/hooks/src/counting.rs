//! Counters that several threads may raise, and that cost less where only one does at a time.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use ripstop_abi as abi;

/// How many threads call at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// One: the program has promised it for the domain.
    One,
    /// Any number.
    Several,
}

impl Threads {
    /// What a program has promised for a domain with these attributes.
    pub(crate) fn of(threading: abi::fi_threading) -> Self {
        match threading {
            abi::FI_THREAD_DOMAIN => Self::One,
            _ => Self::Several,
        }
    }
}

/// Raises a counter by one, and returns what it was.
#[inline(always)]
pub(crate) fn take_number(counter: &AtomicUsize, threads: Threads) -> usize {
    match threads {
        Threads::One => {
            let old = counter.load(Ordering::Relaxed);
            counter.store(old.wrapping_add(1), Ordering::Relaxed);
            old
        }
        Threads::Several => counter.fetch_add(1, Ordering::Relaxed),
    }
}

/// Raises a counter. A program that breaks its promise makes it wrong, and nothing else.
#[inline(always)]
pub(crate) fn bump(counter: &AtomicU64, by: u64, threads: Threads) {
    match threads {
        Threads::One => {
            let old = counter.load(Ordering::Relaxed);
            counter.store(old.wrapping_add(by), Ordering::Relaxed);
        }
        Threads::Several => {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }
}
