//! What members of a collective group say to each other.

use ripstop_types::numbered;

use crate::WireError;
use crate::cursor::{Reader, Writer};

/// Length in bytes of the part behind the base header.
pub(super) const COLL_LEN: u8 = 32;

numbered! {
    /// What a message between members is.
    #[derive(Default, PartialOrd, Ord)]
    pub enum CollKind: u8 as u8 {
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
}

/// A message between members: the fields of a `Coll` header, and the length of its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Coll {
    /// What it is.
    pub kind: CollKind,
    /// The group; before there is one, what its members have in common.
    pub group: u64,
    /// What the members must agree on in this operation. In [`CollKind::Joined`] the group.
    pub check: u64,
    /// Which operation of the group.
    pub seq: u32,
    /// Which message of the step's receiver; in [`CollKind::Gone`] and [`CollKind::Decline`] how the
    /// operation ended, in [`CollKind::Ready`] how many long messages may come.
    pub tag: u32,
    /// The sender's rank.
    pub from: u32,
    /// Bytes of payload, only of [`CollKind::Data`]. It is [`Header::payload_len`](super::Header).
    pub len: u64,
}

impl Coll {
    pub(super) fn emit(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.u64(self.group)?;
        out.u64(self.check)?;
        out.u64(pair(self.seq, self.tag))?;
        out.u64(pair(self.from, 0))
    }

    pub(super) fn read(
        kind: CollKind,
        len: u64,
        bytes: &mut Reader<'_>,
    ) -> Result<Self, WireError> {
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
            len,
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
