//! What members of a collective group say to each other.

use core::fmt;

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// Length in bytes of the part behind the base header.
pub(super) const COLL_LEN: u8 = 32;

/// What a message between members is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum CollKind {
    /// Data of a step.
    Data = 1,
    /// The receiver of a step's data has the place for it.
    Ready = 2,
    /// Whether the operation goes on; asked when it has not for a while.
    Ask = 3,
    /// The sender has ended the operation.
    Gone = 4,
    /// To member 0: the sender joins.
    Join = 5,
    /// From member 0: all have joined.
    Joined = 6,
    /// The sender does not join, or no longer.
    Decline = 7,
    /// The sender waits for the receiver to join.
    #[default]
    Ping = 8,
}

impl CollKind {
    /// The kind of this number.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Data,
            2 => Self::Ready,
            3 => Self::Ask,
            4 => Self::Gone,
            5 => Self::Join,
            6 => Self::Joined,
            7 => Self::Decline,
            8 => Self::Ping,
            _ => return None,
        })
    }
}

impl fmt::Display for CollKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Ready => "ready",
            Self::Ask => "ask",
            Self::Gone => "gone",
            Self::Join => "join",
            Self::Joined => "joined",
            Self::Decline => "decline",
            Self::Ping => "ping",
        })
    }
}

/// The fields of a `Coll` header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Coll {
    /// What it is.
    pub kind: CollKind,
    /// The group, or before there is one what its members have in common.
    pub group: u64,
    /// What the members must agree on.
    pub check: u64,
    /// Which operation of the group.
    pub seq: u32,
    /// Which message of that, or how it ended.
    pub tag: u32,
    /// The sender's rank.
    pub from: u32,
}

impl Coll {
    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.u64(self.group)?;
        out.u64(self.check)?;
        out.u64(pair(self.seq, self.tag))?;
        out.u64(pair(self.from, 0))
    }

    pub(super) fn read(kind: CollKind, bytes: &mut Reader<'_>) -> Result<Self, WireError> {
        let (group, check) = (bytes.u64()?, bytes.u64()?);
        let (seq, tag) = split(bytes.u64()?);
        let (from, zero) = split(bytes.u64()?);
        if zero != 0 {
            return Err(WireError::CollReserved { found: zero });
        }
        Ok(Self {
            kind,
            group,
            check,
            seq,
            tag,
            from,
        })
    }
}

/// Two numbers in one of 64 bits, the first in its upper half.
fn pair(upper: u32, lower: u32) -> u64 {
    u64::from(upper) << 32 | u64::from(lower)
}

const fn split(both: u64) -> (u32, u32) {
    ((both >> 32) as u32, both as u32)
}
