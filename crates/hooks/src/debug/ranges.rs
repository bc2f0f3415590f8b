//! Memory of operations, to find what overlaps.

use std::collections::BTreeMap;

/// Addresses, each of an operation.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Where each ends, by its start and its operation.
    ends: BTreeMap<(usize, u64), usize>,
    /// None is longer.
    longest: usize,
}

impl Ranges {
    pub(super) fn insert(&mut self, start: usize, len: usize, operation: u64) {
        let end = start.saturating_add(len);
        let place = self.ends.entry((start, operation)).or_insert(end);
        *place = end.max(*place);
        self.longest = self.longest.max(len);
    }

    pub(super) fn remove(&mut self, start: usize, operation: u64) {
        self.ends.remove(&(start, operation));
        if self.ends.is_empty() {
            self.longest = 0;
        }
    }

    /// Each that shares a byte with these: its start and its operation.
    pub(super) fn overlapping(
        &self,
        start: usize,
        len: usize,
    ) -> impl Iterator<Item = (usize, u64)> {
        let from = start.saturating_sub(self.longest);
        let end = start.saturating_add(len);
        let near = self.ends.range((from, 0)..(end, 0));
        near.filter(move |(_, its_end)| **its_end > start)
            .map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_shares_a_byte_is_found() {
        let mut ranges = Ranges::default();
        ranges.insert(100, 50, 1);
        ranges.insert(150, 10, 2);
        ranges.insert(0, 1000, 3);
        let found = |ranges: &Ranges, start, len| -> Vec<u64> {
            ranges.overlapping(start, len).map(|(_, of)| of).collect()
        };
        assert_eq!(found(&ranges, 149, 1), [3, 1]);
        assert_eq!(found(&ranges, 149, 2), [3, 1, 2]);
        assert_eq!(found(&ranges, 1000, 5), [0; 0]);
        ranges.remove(0, 3);
        assert_eq!(found(&ranges, 90, 10), [0; 0]);
        assert_eq!(found(&ranges, 160, 10), [0; 0]);
        assert_eq!(found(&ranges, 159, 10), [2]);
    }
}
