//! What is under way on a connection, under the indices by which its peers name it: of a rendezvous, of an announced or
//! segmented message, of an atomic in a packet.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result};

use crate::ring::try_push;

/// Entries under the indices of a rendezvous: numbers of two bytes, the low one of which is not 0.
/// Those without the high one come first. Takes memory up to the highest that was ever used.
#[derive(Debug)]
pub(super) struct IndexTable<T> {
    entries: Vec<Option<T>>,
    /// Places that may be free, among others that are not any more.
    free: Vec<u16>,
    used: u32,
}

impl<T> IndexTable<T> {
    /// How many indices of one byte there are.
    const ONE_BYTE_INDICES: u32 = 255;

    /// How many there are in all.
    const INDICES: u32 = 255 * 256;

    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many entries there may be at once.
    const fn limit(wide: bool) -> u32 {
        if wide {
            Self::INDICES
        } else {
            Self::ONE_BYTE_INDICES
        }
    }

    /// Whether another entry finds an index, of two bytes if they are `wide`.
    pub(super) const fn has_room(&self, wide: bool) -> bool {
        self.used < Self::limit(wide)
    }

    const fn index(place: u16) -> u16 {
        // Neither divides by 0, and both are below 256.
        let [high, low] = [place / 255, place % 255];
        (high << 8) | low.wrapping_add(1)
    }

    fn place(index: u16) -> Option<u16> {
        let [high, low] = index.to_be_bytes();
        let low = u16::from(low).checked_sub(1)?;
        u16::from(high).checked_mul(255)?.checked_add(low)
    }

    /// Puts an entry under an index that is free again, or the least that was never used;
    /// [`Errno::EAGAIN`] where [`IndexTable::has_room`] says no.
    pub(super) fn insert(&mut self, entry: T, wide: bool) -> Result<u16> {
        let Self { entries, free, .. } = self;
        let is_free = |place: &u16| matches!(entries.get(usize::from(*place)), Some(None));
        let again = core::iter::from_fn(|| free.pop()).find(is_free);
        let place = match again {
            Some(place) => place,
            None => u16::try_from(entries.len()).map_err(|_| Errno::EAGAIN)?,
        };
        if u32::from(place) >= Self::limit(wide) {
            return Err(Errno::EAGAIN);
        }
        let index = Self::index(place);
        self.set(index, entry)?;
        Ok(index)
    }

    /// Puts an entry under an index the peer chose; [`Errno::EPROTO`] if it is used or zero.
    pub(super) fn set(&mut self, index: u16, entry: T) -> Result<()> {
        let place = Self::place(index).map(usize::from).ok_or(Errno::EPROTO)?;
        while self.entries.len() <= place {
            try_push(&mut self.entries, None)?;
        }
        match self.entries.get_mut(place) {
            Some(slot @ None) => {
                *slot = Some(entry);
                self.used = self.used.saturating_add(1);
                Ok(())
            }
            _ => Err(Errno::EPROTO),
        }
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut T> {
        let place = Self::place(index)?;
        self.entries.get_mut(usize::from(place))?.as_mut()
    }

    pub(super) fn get(&self, index: u16) -> Option<&T> {
        let place = Self::place(index)?;
        self.entries.get(usize::from(place))?.as_ref()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.entries.iter_mut().flatten()
    }

    /// The entries with their indices.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u16, &T)> {
        let entries = (0..=u16::MAX).zip(&self.entries);
        entries.filter_map(|(place, entry)| Some((Self::index(place), entry.as_ref()?)))
    }

    /// The entries with their indices, to be changed.
    pub(super) fn entries_mut(&mut self) -> impl Iterator<Item = (u16, &mut T)> {
        let entries = (0..=u16::MAX).zip(&mut self.entries);
        entries.filter_map(|(place, entry)| Some((Self::index(place), entry.as_mut()?)))
    }

    pub(super) fn take(&mut self, index: u16) -> Option<T> {
        let place = Self::place(index)?;
        let entry = self.entries.get_mut(usize::from(place))?.take()?;
        self.used = self.used.saturating_sub(1);
        // The indices of entries that the peer numbers are of no use here, so there are at most as
        // many. Without memory this one is not used again.
        if self.free.len() < self.entries.len() {
            _ = try_push(&mut self.free, place);
        }
        Some(entry)
    }

    /// Takes the entry under the highest index.
    pub(super) fn take_any(&mut self) -> Option<T> {
        let entry = core::iter::from_fn(|| self.entries.pop())
            .flatten()
            .next()?;
        self.used = self.used.saturating_sub(1);
        Some(entry)
    }
}
