//! How often an interval was how long.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::counting::{Threads, bump};

/// Buckets between one power of two and the next: a value is known to an eighth.
const EACH: usize = 8;

/// The exponent of [`EACH`].
const EACH_BITS: u32 = EACH.trailing_zeros();

/// Enough for every `u64`.
const BUCKETS: usize = (64 - EACH_BITS as usize + 1) * EACH;

/// Intervals, in units of the clock.
#[derive(Debug)]
pub(super) struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

/// The bucket of a value.
#[inline]
const fn bucket(value: u64) -> usize {
    if value < EACH as u64 {
        return value as usize;
    }
    let octave = 63 - value.leading_zeros();
    let within = (value >> (octave - EACH_BITS)) as usize & (EACH - 1);
    (octave - EACH_BITS + 1) as usize * EACH + within
}

/// The least value of a bucket.
const fn least(bucket: usize) -> u64 {
    if bucket < EACH {
        return bucket as u64;
    }
    let octave = bucket / EACH - 1;
    ((EACH + bucket % EACH) as u64) << octave
}

impl Histogram {
    pub(super) const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Counts an interval.
    #[inline]
    pub(super) fn add(&self, value: u64, threads: Threads) {
        if let Some(bucket) = self.buckets.get(bucket(value)) {
            bump(bucket, 1, threads);
        }
        bump(&self.sum, value, threads);
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
    }

    /// What it holds now.
    pub(super) fn snapshot(&self) -> Snapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let buckets: Vec<u64> = self.buckets.iter().map(read).collect();
        Snapshot {
            count: buckets.iter().sum(),
            buckets,
            sum: read(&self.sum),
            max: read(&self.max),
        }
    }
}

/// A histogram at one moment.
#[derive(Debug)]
pub(super) struct Snapshot {
    buckets: Vec<u64>,
    pub(super) count: u64,
    pub(super) sum: u64,
    pub(super) max: u64,
}

impl Snapshot {
    /// The value that this share of the intervals does not exceed, to an eighth; `share` is in thousandths.
    pub(super) fn quantile(&self, share: u64) -> u64 {
        let rank = (self.count * share).div_ceil(1000).max(1);
        let mut seen = 0;
        for (at, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return (least(at).midpoint(least(at + 1))).min(self.max);
            }
        }
        self.max
    }

    /// Buckets that are not empty: the least value and the count of each.
    pub(super) fn filled(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0)
            .map(|(at, count)| (least(at), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_begins_with_its_least_value() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(least(at)), at);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let histogram = Histogram::new();
        for value in 1..=1000 {
            histogram.add(value, Threads::One);
        }
        let snapshot = histogram.snapshot();
        assert_eq!(
            (snapshot.count, snapshot.sum, snapshot.max),
            (1000, 500_500, 1000)
        );
        for (share, expected) in [(500, 500), (990, 990), (1000, 1000)] {
            let value = snapshot.quantile(share);
            assert!(value.abs_diff(expected) <= expected / 8, "{share}: {value}");
        }
    }
}
