//! Whether a domain looks at its rings, and a word by which peers know its address space.
//!
//! A peer that may reach memory of the owner by its address
//! (`process_vm_readv`) does so only while the owner does not look at what the ring brings: that is
//! what the first word is for, which the owner changes each time that it poll_count. It is a hint and no
//! more: a wrong one costs time. The second word lies in the status page like the others, and the owner says
//! where in its own address space that is: who reads the same there is in the right process.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::ring::layout::RingError;
use crate::ring::primitive::{Mapping, Memory, RawPollStatus};

/// A domain's own words.
pub struct PollStatus {
    words: RawPollStatus,
    poll_count: AtomicU64,
}

impl PollStatus {
    /// In a domain's own status page, of zeroes until now. `token` is what peers find at the witness's
    /// address, unlike what others have there; 0 says that there is none.
    ///
    /// # Errors
    ///
    /// As for [`SleepWord::from_mapping`](super::SleepWord::from_mapping).
    pub fn from_mapping(map: Arc<dyn Mapping>, token: u64) -> Result<Self, RingError> {
        let words = RawPollStatus::new(&Memory::status_page(map, true)?);
        words.store_address_probe(token);
        Ok(Self {
            words,
            poll_count: AtomicU64::new(0),
        })
    }

    /// All rings were looked at.
    pub fn count_poll(&self) {
        let poll_count = self.poll_count.load(Ordering::Relaxed).wrapping_add(1);
        self.poll_count.store(poll_count, Ordering::Relaxed);
        self.words.store_poll_count(poll_count);
    }
}

/// A peer's words, which it may change at any time.
pub struct PeerPollStatus(RawPollStatus);

/// What a peer says of its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressProbe {
    /// An address there.
    pub addr: u64,
    /// The 8 bytes at it.
    pub token: u64,
}

impl PeerPollStatus {
    /// In the status page of a peer.
    ///
    /// # Errors
    ///
    /// As for [`PeerStatus::from_mapping`](super::PeerStatus::from_mapping).
    pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
        Ok(Self(RawPollStatus::new(&Memory::status_page(map, false)?)))
    }

    /// A number that changes whenever the peer looks at its rings.
    #[inline]
    #[must_use]
    pub fn poll_count(&self) -> u64 {
        self.0.load_poll_count()
    }

    /// By what its address space is known; `None` if it says nothing of it.
    #[must_use]
    pub fn address_probe(&self) -> Option<AddressProbe> {
        let (addr, token) = self.0.load_address_probe();
        (token != 0).then_some(AddressProbe { addr, token })
    }
}

impl fmt::Debug for PollStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PollStatus({})", self.poll_count.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for PeerPollStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerPollStatus({})", self.poll_count())
    }
}
