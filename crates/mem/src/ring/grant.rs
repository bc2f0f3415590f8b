//! Grants: the permission for peers to access a region directly, and how it is revoked.
//!
//! The owner of a region publishes a grant in a slot of its status page ([`Grants::open`]). Before each
//! access the peer stores a claim ([`Writer::claim`](super::Writer::claim)), and only then checks that
//! the grant is valid ([`PeerStatus::is_granted`](super::PeerStatus::is_granted)). The owner first ends
//! the grant ([`Grants::close`]), and then waits until no peer claims the slot
//! ([`Reader::is_claimed`](super::Reader::is_claimed)). So either the peer sees that the grant has
//! ended, or the owner sees the claim.

use core::fmt;

use crate::ring::layout::GRANT_SLOTS;
use crate::ring::primitive::{Memory, RawSlots};

/// A claim word that says that its writer has ended the connection.
pub(super) const ENDED: u64 = u64::MAX;

/// A grant of one region: its slot in the owner's status page, and its generation, the value of the slot
/// as long as the grant is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    slot: u32,
    generation: u64,
}

impl Grant {
    /// A grant as a peer has sent it; `None` if there is no such slot, or if the generation is even.
    #[must_use]
    pub const fn new(slot: u32, generation: u64) -> Option<Self> {
        if (slot as usize) < GRANT_SLOTS && generation & 1 == 1 {
            Some(Self { slot, generation })
        } else {
            None
        }
    }

    /// The slot, below [`GRANT_SLOTS`].
    #[must_use]
    pub const fn slot(self) -> u32 {
        self.slot
    }

    /// The value of the slot as long as the grant is valid, an odd number.
    #[must_use]
    pub const fn generation(self) -> u64 {
        self.generation
    }

    /// The value of a claim word that claims it; 0 is no claim.
    pub(super) const fn claim(self) -> u64 {
        self.slot as u64 + 1
    }
}

/// The grants in a domain's own status page. The generations are kept in private memory.
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

    /// Publishes a new grant; `None` if all slots are used.
    pub fn open(&mut self) -> Option<Grant> {
        let slot = self.generations.iter().position(|value| value & 1 == 0)?;
        self.step(slot)
    }

    /// Ends a grant. A peer that claims the slot afterwards sees that; the caller waits for claims that
    /// are there already, by [`Reader::is_claimed`](super::Reader::is_claimed) of each peer.
    ///
    /// `barrier` must order the store before the loads that follow it, as for
    /// [`SleepWord`](super::SleepWord).
    pub fn close(&mut self, grant: Grant, barrier: impl FnOnce()) {
        let slot = grant.slot as usize;
        if self.generations.get(slot) == Some(&grant.generation) {
            self.step(slot);
            barrier();
        }
    }

    /// Publishes the next generation of a slot: an odd one opens a grant, an even one ends it.
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
