//! The status page of a peer.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::ring::grant::Grant;
use crate::ring::primitive::{Memory, RawSleepWord, RawSlots, fence};

/// A peer's status page.
pub struct PeerStatus {
    word: RawSleepWord,
    slots: RawSlots,
    rung: AtomicU32,
    fenced: bool,
}

impl PeerStatus {
    pub(super) fn new(memory: &Memory, fenced: bool) -> Self {
        Self {
            word: RawSleepWord::new(memory),
            slots: RawSlots::new(memory),
            rung: AtomicU32::new(0),
            fenced,
        }
    }

    /// Whether the peer has to be woken, by whatever it sleeps on. To be asked after every
    /// write, and after every read that gave room ([`Reader::take_credit_returned`](super::Reader)).
    /// Says so once for each time that the peer sleeps.
    #[inline]
    pub fn must_wake(&self) -> bool {
        self.order();
        let word = self.word.load();
        word & 1 != 0 && self.is_new(word)
    }

    /// Whether a grant of the peer stands: to be asked after
    /// [`Writer::claim`](super::Writer::claim), and before its memory is reached.
    #[inline]
    #[must_use]
    pub fn is_granted(&self, grant: Grant) -> bool {
        self.order();
        self.slots.load(grant.slot() as usize) == grant.generation()
    }

    /// Between what is stored for the peer and what is loaded of it.
    #[inline(always)]
    fn order(&self) {
        match self.fenced {
            true => fence(Ordering::SeqCst),
            // The peer's barrier is one for us too.
            false => compiler_fence(Ordering::SeqCst),
        }
    }

    #[cold]
    fn is_new(&self, word: u32) -> bool {
        let rung = self.rung.load(Ordering::Relaxed);
        self.rung.store(word, Ordering::Relaxed);
        rung != word
    }
}

impl fmt::Debug for PeerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerStatus({})", self.word.load())
    }
}
