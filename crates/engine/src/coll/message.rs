//! What members say to each other.

use ripstop_types::Errno;
use ripstop_wire::xnet::base::Coll;

pub use ripstop_wire::xnet::base::CollKind as Kind;

/// Payloads up to this many bytes are sent unasked; longer ones when the receiver is ready.
pub const EAGER: u64 = 64 * 1024;

/// How the sender of a [`Kind::Gone`] ended the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Gone {
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

impl Gone {
    /// The ending of this number; one of a later version is like a member that left.
    pub(super) const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Done,
            1 => Self::Mismatch,
            2 => Self::Lost,
            4 => Self::Memory,
            5 => Self::Unsupported,
            6 => Self::Circle,
            _ => Self::Left,
        }
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

/// A message between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// What it is.
    pub kind: Kind,
    /// The group; before there is one, what its members have in common.
    pub group: u64,
    /// What the members must agree on in this operation. In [`Kind::Joined`] the group.
    pub check: u64,
    /// Which operation of the group.
    pub seq: u32,
    /// Which message of the step's receiver; in [`Kind::Gone`] and [`Kind::Decline`] the
    /// [`Gone`], in [`Kind::Ready`] how many messages longer than [`EAGER`] may come.
    pub tag: u32,
    /// The sender's rank.
    pub from: u32,
    /// Bytes of payload, only of [`Kind::Data`].
    pub len: u64,
}

impl Message {
    /// The message of a header.
    #[must_use]
    pub const fn read(coll: &Coll, len: u64) -> Self {
        let Coll {
            kind,
            group,
            check,
            seq,
            tag,
            from,
        } = *coll;
        Self {
            kind,
            group,
            check,
            seq,
            tag,
            from,
            len,
        }
    }

    /// What its header says.
    #[must_use]
    pub const fn header(&self) -> Coll {
        let Self {
            kind,
            group,
            check,
            seq,
            tag,
            from,
            len: _,
        } = *self;
        Coll {
            kind,
            group,
            check,
            seq,
            tag,
            from,
        }
    }
}
