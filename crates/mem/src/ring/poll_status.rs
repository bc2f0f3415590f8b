//! The words of a status page that serve cross-memory attach (`process_vm_readv(2)`): poll count and
//! address probe.
//!
//! A peer uses attach only while the owner does not poll its rings, which it sees from the poll count:
//! the owner changes it each time that it polls them all. It is a hint; a wrong one costs time. The
//! address probe is a random token, with its address in the owner's process: a peer that reads the
//! same token from that address has the right process, and is permitted to attach.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::ring::layout::RingError;
use crate::ring::primitive::{Mapping, Memory, RawPollStatus};

/// The owner's side: the poll count and address probe in its own status page.
pub struct PollStatus {
    words: RawPollStatus,
    poll_count: AtomicU64,
}

impl PollStatus {
    /// In a domain's own status page, which is all zeroes. `token` is a random number for the address
    /// probe; 0 means that there is no probe.
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

    /// To be called when all rings were polled.
    pub fn count_poll(&self) {
        let poll_count = self.poll_count.load(Ordering::Relaxed).wrapping_add(1);
        self.poll_count.store(poll_count, Ordering::Relaxed);
        self.words.store_poll_count(poll_count);
    }
}

/// A peer's poll count and address probe. It may change both at any time.
pub struct PeerPollStatus(RawPollStatus);

/// A value by which a peer's address space is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressProbe {
    /// An address in the peer's process.
    pub addr: u64,
    /// The 8 bytes at that address.
    pub token: u64,
}

impl PeerPollStatus {
    /// In the mapped status page of a peer.
    ///
    /// # Errors
    ///
    /// As for [`PeerStatus::from_mapping`](super::PeerStatus::from_mapping).
    pub fn from_mapping(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
        Ok(Self(RawPollStatus::new(&Memory::status_page(map, false)?)))
    }

    /// A number that changes whenever the peer polls all its rings.
    #[inline]
    #[must_use]
    pub fn poll_count(&self) -> u64 {
        self.0.load_poll_count()
    }

    /// The address probe; `None` if the peer has none.
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
