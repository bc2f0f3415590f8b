//! Access to the words, entries and buffers in shared memory, on which the rings are built.
//!
//! There are two implementations with the same methods. `shared` is a mapping. `modelled`
//! (`--cfg loom`) has loom's atomics, and cells that report every access to payload to loom, so that
//! the model finds an access that the words do not order.

#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod shared;

use core::sync::atomic::Ordering;

use crate::ring::layout::{GRANT_SLOTS, JOINT_PAYLOAD_WORDS};

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, AtomicU64};
#[cfg(loom)]
use loom::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(not(loom))]
pub(super) use core::sync::atomic::fence;
#[cfg(loom)]
pub(super) use loom::sync::atomic::fence;

#[cfg(loom)]
use modelled::Word;
#[cfg(loom)]
pub(super) use modelled::{Buffers, EntryCell, EntryCells, Memory};
#[cfg(not(loom))]
pub use shared::Mapping;
#[cfg(not(loom))]
use shared::Word;
#[cfg(not(loom))]
pub(super) use shared::{Buffers, EntryCell, EntryCells, Memory, RawPollStatus};

/// The credit of a direction, and the cursor that its reader has applied.
pub(super) struct RawCredit {
    word: Word<AtomicU64>,
    applied: Word<AtomicU64>,
    small: Word<AtomicU64>,
}

impl RawCredit {
    pub(super) fn new(memory: &Memory, direction: usize) -> Self {
        Self {
            word: memory.credit(direction),
            applied: memory.applied(direction),
            small: memory.small_credit(direction),
        }
    }

    /// The cursor up to which the reader has applied everything.
    pub(super) fn load_applied(&self) -> u64 {
        self.applied.load(Ordering::Acquire)
    }

    /// Stores the cursor up to which everything is applied, after what was applied.
    pub(super) fn store_applied(&self, cursor: u64) {
        self.applied.store(cursor, Ordering::Release);
    }

    /// The credit; the reader's copies of what it covers are finished.
    pub(super) fn load(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Stores the credit, after the copies of what it covers.
    pub(super) fn store(&self, consumed: u64) {
        self.word.store(consumed, Ordering::Release);
    }

    /// The lines of the small buffer that were consumed; the reader's copies of them are finished.
    pub(super) fn load_small(&self) -> u32 {
        self.small.load(Ordering::Acquire) as u32
    }

    /// Stores the lines of the small buffer that were consumed, after the copies of them.
    pub(super) fn store_small(&self, lines: u32) {
        self.small.store(lines.into(), Ordering::Release);
    }
}

/// The claim of a direction's writer on a region of its peer.
pub(super) struct RawClaim(Word<AtomicU64>);

impl RawClaim {
    pub(super) fn new(memory: &Memory, direction: usize) -> Self {
        Self(memory.claim(direction))
    }

    /// The claim; if it is 0, accesses under earlier claims are finished.
    pub(super) fn load(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Stores a claim.
    pub(super) fn claim(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// Clears the claim, after the accesses that it covers.
    pub(super) fn clear(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Stores a claim that is never cleared. Later stores of this process are not seen before it.
    pub(super) fn store_last(&self, value: u64) {
        self.0.store(value, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The claim, after all earlier loads, those of the kernel for this process included.
    pub(super) fn load_after_all(&self) -> u64 {
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst)
    }
}

/// The words of a direction's joint copies, see [`joint`](super::joint).
pub(super) struct RawJoint {
    state: Word<AtomicU64>,
    payload: Word<[AtomicU64; JOINT_PAYLOAD_WORDS]>,
}

impl RawJoint {
    /// Those of messages that come by a direction.
    pub(super) fn messages(memory: &Memory, direction: usize) -> Self {
        Self {
            state: memory.joint_message(direction),
            payload: memory.joint_message_payload(direction),
        }
    }

    /// Those of accesses by the side that writes a direction.
    pub(super) fn accesses(memory: &Memory, direction: usize) -> Self {
        Self {
            state: memory.joint_access(direction),
            payload: memory.joint_access_payload(direction),
        }
    }

    /// Stores what is copied, and then the state.
    pub(super) fn open(&self, payload: [u64; JOINT_PAYLOAD_WORDS], state: u64) {
        for (word, value) in self.payload.iter().zip(payload) {
            word.store(value, Ordering::Relaxed);
        }
        self.state.store(state, Ordering::Release);
    }

    /// The state; copies of parts that it says are copied are finished.
    pub(super) fn load(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// What is copied, if a swap of the state succeeds that was loaded before.
    pub(super) fn payload(&self) -> [u64; JOINT_PAYLOAD_WORDS] {
        core::array::from_fn(|at| self.payload[at].load(Ordering::Relaxed))
    }

    /// Stores a state if it is as it was. Otherwise the error is what it is.
    pub(super) fn swap(&self, was: u64, is: u64) -> Result<(), u64> {
        let swapped = self
            .state
            .compare_exchange(was, is, Ordering::AcqRel, Ordering::Acquire);
        swapped.map(drop)
    }

    /// Sets bits of the state.
    pub(super) fn set(&self, bits: u64) {
        self.state.fetch_or(bits, Ordering::AcqRel);
    }

    /// Adds to the state, after the copies of this process.
    pub(super) fn add(&self, value: u64) {
        self.state.fetch_add(value, Ordering::AcqRel);
    }
}

/// The grant slots of a status page.
pub(super) struct RawSlots(Word<[AtomicU64; GRANT_SLOTS]>);

impl RawSlots {
    pub(super) fn new(memory: &Memory) -> Self {
        Self(memory.slots())
    }

    /// The generation in a slot. Later accesses are not moved before this load.
    #[inline(always)]
    pub(super) fn load(&self, slot: usize) -> u64 {
        self.0[slot].load(Ordering::Acquire)
    }

    /// To be called on the domain's own page only.
    pub(super) fn store(&self, slot: usize, value: u64) {
        self.0[slot].store(value, Ordering::Release);
    }
}

/// The sleep word of a status page.
pub(super) struct RawSleepWord(Word<AtomicU32>);

impl RawSleepWord {
    pub(super) fn new(memory: &Memory) -> Self {
        Self(memory.sleep_word())
    }

    #[inline(always)]
    pub(super) fn load(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// To be called on the domain's own page only.
    pub(super) fn store(&self, value: u32) {
        self.0.store(value, Ordering::Relaxed);
    }
}
