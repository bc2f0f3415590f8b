//! Memory of the engine's slots.

use ripstop_engine::id::SlotId;
use ripstop_types::{Errno, Result};

/// Slots of this many bytes are kept for the next one of their size: to give memory of that size
/// back and get it anew takes longer than to fill it.
const REUSED_SLOT_BYTES: std::ops::RangeInclusive<usize> = 16 * 1024..=8 * 1024 * 1024;

/// The memory of slots, by number.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Vec<Box<[u8]>>,
    /// The last large one that was of no more use.
    spare: Box<[u8]>,
}

impl Slots {
    /// The memory of a slot; none for one that was not made.
    pub(crate) fn get(&self, slot: SlotId) -> &[u8] {
        self.all.get(slot.index()).map_or(&[], |memory| memory)
    }

    /// As [`Slots::get`].
    pub(crate) fn get_mut(&mut self, slot: SlotId) -> &mut [u8] {
        self.all
            .get_mut(slot.index())
            .map_or(&mut [], |memory| memory)
    }

    /// The memory of a slot of `total` bytes, made when first asked for. What is in there at
    /// first is nothing to rely on.
    pub(crate) fn make(&mut self, slot: SlotId, total: u64) -> Result<&mut [u8]> {
        let Self { all, spare } = self;
        let index = slot.index();
        if all.len() <= index {
            all.try_reserve(index + 1 - all.len())
                .map_err(|_| Errno::ENOMEM)?;
            all.resize_with(index + 1, Box::default);
        }
        let memory = &mut all[index];
        if memory.len() as u64 != total {
            *memory = match spare.len() as u64 == total {
                true => std::mem::take(spare),
                false => new(total)?,
            };
        }
        Ok(memory)
    }

    /// Takes the memory of a slot away until it is [put back](Slots::put).
    pub(crate) fn take(&mut self, slot: SlotId) -> Box<[u8]> {
        let memory = self.all.get_mut(slot.index());
        memory.map(std::mem::take).unwrap_or_default()
    }

    /// Puts back what was taken.
    pub(crate) fn put(&mut self, slot: SlotId, memory: Box<[u8]>) {
        if let Some(place) = self.all.get_mut(slot.index()) {
            *place = memory;
        }
    }

    /// The slot is of no more use.
    pub(crate) fn free(&mut self, slot: SlotId) {
        let memory = self.take(slot);
        if REUSED_SLOT_BYTES.contains(&memory.len()) {
            self.spare = memory;
        }
    }
}

fn new(total: u64) -> Result<Box<[u8]>> {
    let total = usize::try_from(total).map_err(|_| Errno::ENOMEM)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(total).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(total, 0);
    Ok(bytes.into_boxed_slice())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_have_the_length_that_was_asked_for() {
        let mut slots = Slots::default();
        let slot = SlotId::new(3).unwrap();
        assert!(slots.get(slot).is_empty() && slots.take(slot).is_empty());
        for total in [5, 0, 1 << 20, 7, 1 << 20, 2 << 20, 1 << 20] {
            let memory = slots.make(slot, total).unwrap();
            assert_eq!(memory.len() as u64, total);
            memory.fill(1);
            slots.free(slot);
            assert!(slots.get(slot).is_empty());
        }
        assert_eq!(
            slots.make(SlotId::FIRST, u64::MAX).map(|_| ()),
            Err(Errno::ENOMEM)
        );
    }

    #[test]
    fn only_one_large_one_is_kept() {
        let mut slots = Slots::default();
        let all = [1, 2, 3, 4].map(|number| SlotId::new(number).unwrap());
        for slot in all {
            slots.make(slot, 1 << 20).unwrap();
        }
        for slot in all {
            slots.free(slot);
        }
        assert_eq!(slots.spare.len(), 1 << 20);
        slots.make(all[0], 16 << 20).unwrap();
        slots.free(all[0]);
        assert_eq!(slots.spare.len(), 1 << 20);
        slots.make(all[1], 1 << 20).unwrap();
        assert!(slots.spare.is_empty());
    }
}
