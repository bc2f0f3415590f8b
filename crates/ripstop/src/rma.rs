//! Reads and writes of a peer's memory.

use ripstop_types::Flags;

use crate::message::{Action, Remote};

/// How a write is done, and when it counts as done (flags of `fi_writemsg`, man page
/// `fi_rma(3)`).
///
/// Nothing set, it is done when its bytes are in the peer's memory (`FI_DELIVERY_COMPLETE`),
/// and a write that the peer refuses is an error of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct WriteMsg {
    data: Option<u64>,
    flags: Flags,
}

impl Default for WriteMsg {
    fn default() -> Self {
        Self::new()
    }
}

impl WriteMsg {
    /// A write that is done when it is in the peer's memory.
    pub const fn new() -> Self {
        Self {
            data: None,
            flags: Flags::DELIVERY_COMPLETE,
        }
    }

    /// Immediate data, for a completion at the peer (`FI_REMOTE_CQ_DATA`); endpoints of this
    /// crate do not report it, those of other programs do.
    pub const fn data(mut self, data: u64) -> Self {
        self.data = Some(data);
        self
    }

    /// Done when the buffer may be used again (`FI_INJECT_COMPLETE`), without a word from the
    /// peer. That it was refused is then not told.
    pub const fn inject_complete(self) -> Self {
        self.level(Flags::INJECT_COMPLETE)
    }

    /// Done when the bytes are durable, where the peer's memory is backed by a file or is
    /// persistent (`FI_COMMIT_COMPLETE`, capability `FI_RMA_PMEM`).
    pub const fn commit_complete(self) -> Self {
        self.level(Flags::COMMIT_COMPLETE)
    }

    /// Not begun before all operations towards the peer that were started before are done
    /// (`FI_FENCE`, a capability to ask for).
    pub const fn fence(mut self) -> Self {
        self.flags = self.flags.union(Flags::FENCE);
        self
    }

    /// Another operation on this endpoint follows at once (`FI_MORE`).
    pub const fn more(mut self) -> Self {
        self.flags = self.flags.union(Flags::MORE);
        self
    }

    const fn level(mut self, level: Flags) -> Self {
        self.flags = self.flags.difference(Flags::DELIVERY_COMPLETE).union(level);
        self
    }

    pub(crate) const fn action(self, to: Remote) -> Action {
        Action::Write {
            to,
            data: self.data,
            flags: self.flags,
        }
    }
}
