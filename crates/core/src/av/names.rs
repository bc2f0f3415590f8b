//! The table of peers that are known by strings (`FI_ADDR_STR`).

use core::hash::Hash;
use std::collections::{BTreeSet, HashMap};

use ripstop_types::{Errno, FiAddr, Result};

/// Peers by index and by name, for names that are cheap to clone. As in
/// [`AddressTable`](super::AddressTable), a peer is known by the index of its insertion.
///
/// Not synchronised: who shares it between threads puts a lock around it.
#[derive(Debug)]
pub struct NameTable<N> {
    slots: Vec<Option<Slot<N>>>,
    index: HashMap<N, u32>,
    /// Slots without a peer.
    unused: BTreeSet<u32>,
}

#[derive(Debug)]
struct Slot<N> {
    name: N,
    /// Insertions that were not taken back.
    uses: u32,
}

impl<N: Clone + Eq + Hash> Default for NameTable<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N: Clone + Eq + Hash> NameTable<N> {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            index: HashMap::new(),
            unused: BTreeSet::new(),
        }
    }

    /// Inserts a peer at the lowest unused index. A peer that is there already keeps its
    /// index, and has to be removed once more.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], and [`Errno::EOVERFLOW`] beyond 2^32 - 1 peers or insertions of one,
    /// without effect.
    pub fn insert(&mut self, name: &N) -> Result<FiAddr> {
        if let Some(&known) = self.index.get(name) {
            let slot = self.slot_mut(known).ok_or(Errno::EINVAL)?;
            slot.uses = slot.uses.checked_add(1).ok_or(Errno::EOVERFLOW)?;
            return Ok(FiAddr(known.into()));
        }
        self.index.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        let slot = Slot {
            name: name.clone(),
            uses: 1,
        };
        let index = match self.unused.pop_first() {
            Some(index) => {
                if let Some(free) = self.slots.get_mut(index as usize) {
                    *free = Some(slot);
                }
                index
            }
            None => {
                let index = u32::try_from(self.slots.len()).map_err(|_| Errno::EOVERFLOW)?;
                self.slots.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                self.slots.push(Some(slot));
                index
            }
        };
        self.index.insert(name.clone(), index);
        Ok(FiAddr(index.into()))
    }

    /// Takes back one insertion. With the last one the peer is gone: its name is returned and
    /// its index can be used again.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when there is no such peer.
    pub fn remove(&mut self, peer: FiAddr) -> Result<Option<N>> {
        let index = u32::try_from(peer.0).map_err(|_| Errno::EINVAL)?;
        let slot = self.slot_mut(index).ok_or(Errno::EINVAL)?;
        slot.uses = slot.uses.saturating_sub(1);
        if slot.uses > 0 {
            return Ok(None);
        }
        let gone = self.slots.get_mut(index as usize).and_then(Option::take);
        self.unused.insert(index);
        Ok(gone.map(|slot| {
            self.index.remove(&slot.name);
            slot.name
        }))
    }

    /// The name of a peer.
    #[must_use]
    pub fn lookup(&self, peer: FiAddr) -> Option<&N> {
        let index = usize::try_from(peer.0).ok()?;
        self.slots.get(index)?.as_ref().map(|slot| &slot.name)
    }

    /// The peer with a name, or [`FiAddr::NOTAVAIL`].
    #[must_use]
    pub fn find(&self, name: &N) -> FiAddr {
        let found = self.index.get(name);
        found.map_or(FiAddr::NOTAVAIL, |&index| FiAddr(index.into()))
    }

    /// All peers in the order of their index.
    pub fn iter(&self) -> impl Iterator<Item = (FiAddr, &N)> {
        let all = (0_u64..).map(FiAddr).zip(&self.slots);
        all.filter_map(|(index, slot)| Some((index, &slot.as_ref()?.name)))
    }

    fn slot_mut(&mut self, index: u32) -> Option<&mut Slot<N>> {
        self.slots.get_mut(index as usize)?.as_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_keep_their_index_until_the_last_removal() {
        let mut table = NameTable::new();
        let [first, second] = ["one", "two"].map(|name| table.insert(&name).unwrap());
        assert_eq!((first, second), (FiAddr(0), FiAddr(1)));
        assert_eq!(table.insert(&"one"), Ok(first));
        assert_eq!(table.remove(first), Ok(None));
        assert_eq!(table.lookup(first), Some(&"one"));
        assert_eq!(table.remove(first), Ok(Some("one")));
        assert_eq!(table.lookup(first), None);
        assert_eq!(table.find(&"one"), FiAddr::NOTAVAIL);
        assert_eq!(table.remove(first), Err(Errno::EINVAL));
        assert_eq!(table.iter().collect::<Vec<_>>(), [(second, &"two")]);
    }

    #[test]
    fn the_lowest_unused_index_is_used_again() {
        let mut table = NameTable::new();
        let all: Vec<_> = (0..4).map(|name| table.insert(&name).unwrap()).collect();
        assert_eq!(table.remove(all[2]), Ok(Some(2)));
        assert_eq!(table.remove(all[1]), Ok(Some(1)));
        assert_eq!(table.insert(&7), Ok(all[1]));
        assert_eq!(table.insert(&8), Ok(all[2]));
        assert_eq!(table.insert(&9), Ok(FiAddr(4)));
        assert_eq!(table.find(&8), all[2]);
        for none in [FiAddr(5), FiAddr::NOTAVAIL, FiAddr(1 << 32)] {
            assert_eq!(table.lookup(none), None);
            assert_eq!(table.remove(none), Err(Errno::EINVAL));
        }
    }
}
