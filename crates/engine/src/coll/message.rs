//! What members say to each other.

use ripstop_types::{Errno, numbered};

pub use ripstop_wire::xnet::base::{Coll as Message, CollKind as Kind};

/// Payloads up to this many bytes are sent eagerly; longer ones wait for a grant of their receiver
/// ([`Kind::Ready`]).
pub const EAGER: u64 = 64 * 1024;

numbered! {
    /// How the sender of a [`Kind::Gone`] ended the operation.
    pub enum Gone: u8 as u32 {
        /// It is done.
        Done = 0,
        /// The members do not agree on what it is.
        Mismatch = 1,
        /// A member cannot be reached.
        Lost = 2,
        /// A member has left the group.
        Left = 3,
        /// A member has no memory for it.
        Memory = 4,
        /// A member has no collectives.
        Unsupported = 5,
        /// Not one that ended: members wait for each other in a circle, each to join another group.
        Circle = 6,
    }
}

impl Gone {
    /// The ending that a message tells; one of a later version is like a member that left.
    pub(super) fn told(tag: u32) -> Self {
        Self::from_number(tag).unwrap_or(Self::Left)
    }

    /// What to tell others of an operation that ended so.
    pub(super) const fn of(error: Errno) -> Self {
        match error {
            Errno::EINVAL => Self::Mismatch,
            Errno::ECANCELED => Self::Left,
            Errno::ENOMEM => Self::Memory,
            Errno::EOPNOTSUPP => Self::Unsupported,
            _ => Self::Lost,
        }
    }

    /// What the operation ends with at those that hear of it.
    pub(super) const fn errno(self) -> Errno {
        match self {
            // It can only be done there if it was another one.
            Self::Done | Self::Mismatch | Self::Circle => Errno::EINVAL,
            Self::Lost => Errno::ECONNABORTED,
            Self::Left => Errno::ECANCELED,
            Self::Memory => Errno::ENOMEM,
            Self::Unsupported => Errno::EOPNOTSUPP,
        }
    }
}
