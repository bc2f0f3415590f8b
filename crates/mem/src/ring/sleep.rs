//! Sleeping and waking.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ring::primitive::{Memory, RawSleepWord};

/// A domain's own status page: it says there whether a thread sleeps.
///
/// A thread that is about to sleep calls [`begin_sleep`](Self::begin_sleep), then looks once more at
/// everything it waits for ([`Reader::is_ready`](super::Reader::is_ready),
/// [`Writer::has_room`](super::Writer::has_room)), and only then sleeps. Afterwards, before it
/// looks at anything, it calls [`end_sleep`](Self::end_sleep). Peers ring once for each time.
///
/// All three are called by one thread at a time: the domain's lock sees to that.
///
/// `barrier` has to order the store before it and the loads after it, against every processor
/// that runs a peer. It is `membarrier` (`GLOBAL_EXPEDITED`), or where that is refused a
/// sequentially consistent fence: then peers must be told to fence too ([`PeerStatus::from_mapping`](super::PeerStatus::from_mapping)).
pub struct SleepWord {
    word: RawSleepWord,
    value: AtomicU32,
    sleepers: AtomicU32,
}

impl SleepWord {
    pub(super) fn new(memory: &Memory) -> Self {
        Self {
            word: RawSleepWord::new(memory),
            value: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// As if threads had slept so often that the word is this, an even one.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, word: u32) {
        self.set(word);
    }

    /// One more thread is about to sleep.
    pub fn begin_sleep(&self, barrier: impl FnOnce()) {
        let sleepers = self.sleepers.load(Ordering::Relaxed).saturating_add(1);
        self.sleepers.store(sleepers, Ordering::Relaxed);
        self.rearm(barrier);
    }

    /// A thread that slept, or was about to, does not any more.
    pub fn end_sleep(&self, barrier: impl FnOnce()) {
        let sleepers = self.sleepers.load(Ordering::Relaxed).saturating_sub(1);
        self.sleepers.store(sleepers, Ordering::Relaxed);
        if sleepers > 0 {
            return self.rearm(barrier);
        }
        let even = self.value.load(Ordering::Relaxed).wrapping_add(1) & !1;
        self.set(even);
    }

    /// To be called by a thread that has taken rings off a socket while others sleep, before it
    /// looks at anything: peers ring again for what comes from now on.
    pub fn rearm(&self, barrier: impl FnOnce()) {
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            let odd = self.value.load(Ordering::Relaxed).wrapping_add(1) | 1;
            self.set(odd);
            barrier();
        }
    }

    fn set(&self, value: u32) {
        self.value.store(value, Ordering::Relaxed);
        self.word.store(value);
    }
}

impl fmt::Debug for SleepWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SleepWord({})", self.value.load(Ordering::Relaxed))
    }
}
