//! Whether a domain looks at its rings, and a word by which peers know its address space.
//!
//! A peer that may reach memory of the owner by its address
//! (`process_vm_readv`) does so only while the owner does not look at what the ring brings: that is
//! what the first word is for, which the owner changes each time that it looks. It is a hint and no
//! more: a wrong one costs time. The second word lies in the face like the others, and the owner says
//! where in its own address space that is: who reads the same there is in the right process.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::ring::layout::RingError;
use crate::ring::primitive::{Mapping, Memory, PresenceWords};

/// A domain's own words.
pub struct Presence {
    words: PresenceWords,
    looks: AtomicU64,
}

impl Presence {
    /// In a domain's own face, of zeroes until now. `token` is what peers find at the witness's
    /// address, unlike what others have there; 0 says that there is none.
    ///
    /// # Errors
    ///
    /// As for [`Sleep::over`](super::Sleep::over).
    pub fn over(map: Arc<dyn Mapping>, token: u64) -> Result<Self, RingError> {
        let words = PresenceWords::new(&Memory::face(map, true)?);
        words.testify(token);
        Ok(Self {
            words,
            looks: AtomicU64::new(0),
        })
    }

    /// All rings were looked at.
    pub fn have_looked(&self) {
        let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
        self.looks.store(looks, Ordering::Relaxed);
        self.words.store_looks(looks);
    }
}

/// A peer's words, which it may change at any time.
pub struct Sight(PresenceWords);

/// What a peer says of its address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// An address there.
    pub addr: u64,
    /// The 8 bytes at it.
    pub token: u64,
}

impl Sight {
    /// In the face of a peer.
    ///
    /// # Errors
    ///
    /// As for [`Watch::over`](super::Watch::over).
    pub fn over(map: Arc<dyn Mapping>) -> Result<Self, RingError> {
        Ok(Self(PresenceWords::new(&Memory::face(map, false)?)))
    }

    /// A number that changes whenever the peer looks at its rings.
    #[inline]
    #[must_use]
    pub fn looks(&self) -> u64 {
        self.0.load_looks()
    }

    /// By what its address space is known; `None` if it says nothing of it.
    #[must_use]
    pub fn witness(&self) -> Option<Witness> {
        let (addr, token) = self.0.testimony();
        (token != 0).then_some(Witness { addr, token })
    }
}

impl fmt::Debug for Presence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Presence({})", self.looks.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sight({})", self.looks())
    }
}
