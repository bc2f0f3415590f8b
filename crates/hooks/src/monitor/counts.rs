//! What is counted, until a file gets it.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use ripstop_core::params;

use crate::counting::{Threads, bump};
use crate::layout::{BUCKETS, NUMBERS, count_at};

/// Counted things between two looks at the file, by default.
const TICKS: i32 = 1024;

/// What is counted of one domain, or of a fabric outside its domains. The numbers only rise: a file
/// gets what they have risen by.
#[derive(Debug)]
pub(super) struct Counts {
    numbers: Box<[AtomicU64]>,
    ticks: AtomicU64,
    threads: Threads,
}

impl Counts {
    pub(super) fn new(threads: Threads) -> Arc<Self> {
        Arc::new(Self {
            numbers: (0..NUMBERS).map(|_| AtomicU64::new(0)).collect(),
            ticks: AtomicU64::new(0),
            threads,
        })
    }

    /// Counts something of so many bytes; true when it is time to look at the file.
    #[inline]
    pub(super) fn add(&self, place: usize, bucket: usize, bytes: usize) -> bool {
        if bucket >= BUCKETS {
            return false;
        }
        let at = count_at(place, bucket);
        let (Some(count), Some(sum)) = (self.numbers.get(at), self.numbers.get(at + BUCKETS))
        else {
            return false;
        };
        bump(count, 1, self.threads);
        if bytes > 0 {
            bump(sum, bytes as u64, self.threads);
        }
        bump(&self.ticks, 1, self.threads);
        if self.ticks.load(Ordering::Relaxed) < ticks() {
            return false;
        }
        self.ticks.store(0, Ordering::Relaxed);
        true
    }

    /// Adds all of it to these numbers.
    pub(super) fn add_to(&self, totals: &mut [u64]) {
        for (total, number) in totals.iter_mut().zip(&self.numbers) {
            *total = total.wrapping_add(number.load(Ordering::Relaxed));
        }
    }
}

/// Counted things between two looks at the file.
#[inline]
fn ticks() -> u64 {
    static TICK_MAX: OnceLock<u64> = OnceLock::new();
    *TICK_MAX.get_or_init(|| {
        let given = params().get::<i32>(None, "ofi_hook_monitor_tick_max");
        u64::try_from(given.unwrap_or(TICKS)).unwrap_or(TICKS as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_where_the_sampler_looks() {
        for threads in [Threads::One, Threads::Several] {
            let counts = Counts::new(threads);
            for _ in 0..3 {
                counts.add(12, 1, 100);
            }
            counts.add(0, 0, 0);
            assert!(!counts.add(0, BUCKETS, 1), "no bucket");
            let mut totals = vec![0; NUMBERS];
            counts.add_to(&mut totals);
            let at = 12 * 18;
            assert_eq!((totals[at + 1], totals[at + 9 + 1]), (3, 300));
            assert_eq!(totals.iter().sum::<u64>(), 304);
        }
    }
}
