//! Which addresses a vector has given out, in next to no memory of its own: what a library needs for a
//! peer is measured through this crate.

use std::collections::HashSet;

use ripstop_types::FiAddr;

/// The addresses an address vector has given out and not taken back.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// A bit for each small address.
    dense: Vec<u64>,
    sparse: HashSet<u64>,
}

/// Addresses below this are kept as bits: at most 16 MiB of them.
const DENSE: u64 = 1 << 27;

impl Known {
    pub(crate) fn insert(&mut self, addr: FiAddr) {
        if !addr.is_specified() {
            return;
        }
        if addr.0 >= DENSE {
            self.sparse.insert(addr.0);
            return;
        }
        let (word, bit) = place(addr);
        if word >= self.dense.len() {
            self.dense.resize(word + 1, 0);
        }
        self.dense[word] |= bit;
    }

    pub(crate) fn remove(&mut self, addr: FiAddr) {
        let (word, bit) = place(addr);
        match self.dense.get_mut(word) {
            Some(bits) => *bits &= !bit,
            None => {
                self.sparse.remove(&addr.0);
            }
        }
    }

    #[inline]
    pub(crate) fn contains(&self, addr: FiAddr) -> bool {
        let (word, bit) = place(addr);
        match self.dense.get(word) {
            Some(bits) => bits & bit != 0,
            None => self.sparse.contains(&addr.0),
        }
    }

    /// All of them, in ascending order.
    pub(crate) fn all(&self) -> Vec<FiAddr> {
        let bits = self.dense.len() as u64 * 64;
        let dense = (0..bits).map(FiAddr).filter(|addr| self.contains(*addr));
        let mut sparse: Vec<_> = self.sparse.iter().copied().map(FiAddr).collect();
        sparse.sort_unstable();
        dense.chain(sparse).collect()
    }
}

#[inline]
fn place(addr: FiAddr) -> (usize, u64) {
    ((addr.0 / 64) as usize, 1 << (addr.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_known_until_removed() {
        let mut known = Known::default();
        for addr in [0, 63, 64, 1_000_000, DENSE - 1, DENSE, 1 << 63] {
            let addr = FiAddr(addr);
            assert!(!known.contains(addr));
            known.insert(addr);
            assert!(known.contains(addr));
            assert!(!known.contains(FiAddr(addr.0 + 1)));
            known.remove(addr);
            assert!(!known.contains(addr));
        }
        for addr in [DENSE + 7, 70, 2, DENSE] {
            known.insert(FiAddr(addr));
        }
        assert_eq!(known.all(), [2, 70, DENSE, DENSE + 7].map(FiAddr));
        known.insert(FiAddr::NOTAVAIL);
        assert!(!known.contains(FiAddr::NOTAVAIL));
    }
}
