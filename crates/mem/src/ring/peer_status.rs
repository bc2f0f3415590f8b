//! A peer's status page, as far as writers need it: whether the peer sleeps, and which grants are valid.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use crate::ring::grant::Grant;
use crate::ring::primitive::{Memory, RawSleepWord, RawSlots, fence};

/// The sleep word and the grants in a peer's status page, mapped read-only.
pub struct PeerStatus {
    word: RawSleepWord,
    slots: RawSlots,
    /// The sleep word for which the doorbell was rung last.
    last_rung: AtomicU32,
    /// `membarrier` is refused to this process or to the peer.
    needs_fence: bool,
}

impl PeerStatus {
    pub(super) fn new(memory: &Memory, needs_fence: bool) -> Self {
        Self {
            word: RawSleepWord::new(memory),
            slots: RawSlots::new(memory),
            last_rung: AtomicU32::new(0),
            needs_fence,
        }
    }

    /// Whether the caller has to ring the peer's doorbell. To be called after every write, and after every
    /// read that returned credit ([`Reader::take_credit_returned`](super::Reader)). It is true once for
    /// each value of the sleep word.
    #[inline]
    pub fn must_wake(&self) -> bool {
        self.fence();
        let word = self.word.load();
        word & 1 != 0 && self.is_new(word)
    }

    /// Whether a grant of the peer is valid. To be called after [`Writer::claim`](super::Writer::claim),
    /// and before the region is accessed.
    #[inline]
    #[must_use]
    pub fn is_granted(&self, grant: Grant) -> bool {
        self.fence();
        self.slots.load(grant.slot() as usize) == grant.generation()
    }

    /// Orders stores to the pair's memory before loads of the peer's status page.
    #[inline(always)]
    fn fence(&self) {
        match self.needs_fence {
            true => fence(Ordering::SeqCst),
            // The owner's `membarrier` is a barrier on this processor too.
            false => compiler_fence(Ordering::SeqCst),
        }
    }

    #[cold]
    fn is_new(&self, word: u32) -> bool {
        let last_rung = self.last_rung.load(Ordering::Relaxed);
        self.last_rung.store(word, Ordering::Relaxed);
        last_rung != word
    }
}

impl fmt::Debug for PeerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerStatus({})", self.word.load())
    }
}
