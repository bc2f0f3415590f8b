//! Regions that a peer reaches without the rings: who may, and how that ends.
//!
//! The owner of a region that a peer has mapped says in its status page, in the slot of the region, that
//! the grant stands ([`Grants`]). A peer that is about to reach the memory says so in its claim
//! ([`Writer::claim`](super::Writer::claim)), and only then looks whether the grant stands
//! ([`PeerStatus::is_granted`](super::PeerStatus::is_granted)). The owner ends the grant first, and then waits until
//! nobody claims the slot ([`Reader::is_claimed`](super::Reader::is_claimed)). So either the peer
//! sees that the grant has ended, or the owner sees the claim.

use core::fmt;

use crate::ring::primitive::{Memory, RawSlots};

/// Regions that one status page can grant at a time.
#[cfg(not(loom))]
pub const GRANT_SLOTS: usize = 64;
/// In the model.
#[cfg(loom)]
pub const GRANT_SLOTS: usize = 2;

/// That a region may be reached: its slot in the owner's status page, and what is there as long as the
/// grant stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    slot: u32,
    generation: u64,
}

impl Grant {
    /// What a peer says of one; `None` if there is no such slot, or if it never stands.
    #[must_use]
    pub const fn new(slot: u32, generation: u64) -> Option<Self> {
        if (slot as usize) < GRANT_SLOTS && generation & 1 == 1 {
            Some(Self { slot, generation })
        } else {
            None
        }
    }

    /// Its slot, below [`GRANT_SLOTS`].
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// What is in the slot as long as it stands, an odd number.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }

    /// What a claim of it is; no claim is 0.
    pub(super) const fn claim(self) -> u64 {
        self.slot as u64 + 1
    }
}

/// The grants in a domain's own status page. What it goes by is in private memory.
pub struct Grants {
    words: RawSlots,
    generations: [u64; GRANT_SLOTS],
}

impl Grants {
    pub(super) fn new(memory: &Memory) -> Self {
        Self {
            words: RawSlots::new(memory),
            generations: [0; GRANT_SLOTS],
        }
    }

    /// A new grant, which stands from now on; `None` if all slots are used.
    pub fn open(&mut self) -> Option<Grant> {
        let slot = self.generations.iter().position(|value| value & 1 == 0)?;
        self.step(slot)
    }

    /// Ends a grant. Who claims its slot afterwards sees that; who does already is to be waited
    /// for, [`Reader::is_claimed`](super::Reader::is_claimed) of each peer tells of it.
    ///
    /// `barrier` has to order the store before it and the loads after it, as for
    /// [`SleepWord`](super::SleepWord).
    pub fn close(&mut self, grant: Grant, barrier: impl FnOnce()) {
        let slot = grant.slot as usize;
        if self.generations.get(slot) == Some(&grant.generation) {
            self.step(slot);
            barrier();
        }
    }

    fn step(&mut self, slot: usize) -> Option<Grant> {
        let value = self.generations.get_mut(slot)?;
        *value = value.wrapping_add(1);
        self.words.store(slot, *value);
        Some(Grant {
            slot: slot as u32,
            generation: *value,
        })
    }
}

impl fmt::Debug for Grants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = self.generations.iter().filter(|value| *value & 1 == 1);
        write!(f, "Grants({})", standing.count())
    }
}
