//! Regions of this side that peers may access without the byte stream.

use ripstop_mem::ring::Grant;
use ripstop_os::{Shareable, abandon};

/// A region of this side that a peer may access directly.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Is set on the status page of this side as long as the region may be accessed.
    pub grant: Grant,
    /// The region's key.
    pub key: u64,
    /// The address of its first byte as peers name it.
    pub base: u64,
    /// Its memory.
    pub memory: Lent,
}

impl Offer {
    /// A peer that may be at work there is not waited for any more. Memory that it has mapped is not abandoned: the
    /// owner only unmaps it, and the peer goes on in its own mapping.
    pub(crate) fn abandon(&self) {
        if let Lent::At {
            addr,
            len,
            write: true,
            ..
        } = self.memory
        {
            abandon(addr, len);
        }
    }
}

/// How a peer accesses the memory of a region.
#[derive(Clone, Debug, PartialEq)]
pub enum Lent {
    /// By mapping this memory.
    Part(Shareable),
    /// By its address in this process, with a system call (see [`DirectAccess::attach`]).
    ///
    /// [`DirectAccess::attach`]: crate::DirectAccess::attach
    At {
        /// The address of its first byte.
        addr: u64,
        /// Its bytes.
        len: u64,
        /// Whether peers may read it.
        read: bool,
        /// Whether they may write it.
        write: bool,
    },
}
