//! The sleep word of a domain, by which peers know that they have to ring its doorbell.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::ring::primitive::{Memory, RawSleepWord};

/// The sleep word in a domain's own status page: odd while a thread sleeps.
///
/// A thread that is about to sleep calls [`begin_sleep`](Self::begin_sleep), then polls everything it
/// waits for once more ([`Reader::is_ready`](super::Reader::is_ready),
/// [`Writer::has_room`](super::Writer::has_room)), and only then sleeps. After it has woken, before it
/// polls anything, it calls [`end_sleep`](Self::end_sleep). A peer rings once for each odd value.
///
/// The methods are called by one thread at a time, which holds the domain's lock.
///
/// `barrier` must order the store before the loads that follow it, against every processor that runs
/// a peer. It is `membarrier` (`GLOBAL_EXPEDITED`), or a sequentially consistent fence where that is
/// refused: then peers must be told to fence too ([`PeerStatus::from_mapping`](super::PeerStatus::from_mapping)).
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

    /// Sets the word to an even value, as if threads had slept that often.
    #[cfg(all(test, not(loom)))]
    pub(super) fn start_at(&self, word: u32) {
        self.set(word);
    }

    /// To be called by a thread that is about to sleep.
    pub fn begin_sleep(&self, barrier: impl FnOnce()) {
        let sleepers = self.sleepers.load(Ordering::Relaxed).saturating_add(1);
        self.sleepers.store(sleepers, Ordering::Relaxed);
        self.rearm(barrier);
    }

    /// To be called by a thread that has woken, or does not sleep after all.
    pub fn end_sleep(&self, barrier: impl FnOnce()) {
        let sleepers = self.sleepers.load(Ordering::Relaxed).saturating_sub(1);
        self.sleepers.store(sleepers, Ordering::Relaxed);
        if sleepers > 0 {
            return self.rearm(barrier);
        }
        let even = self.value.load(Ordering::Relaxed).wrapping_add(1) & !1;
        self.set(even);
    }

    /// To be called by a thread that has drained doorbells from a socket while others sleep, before it
    /// polls anything: peers then ring again for what they write from now on.
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
