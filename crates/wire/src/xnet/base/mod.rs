//! Data headers: what stands before each payload on a connected stream.
//!
//! [`Header`] is the whole vocabulary. [`emit_msg`], [`emit_tag`] and [`parse_small`], [`emit_write`]
//! and [`parse_write`], [`emit_announced`], [`emit_got`] and [`parse_get`] do the most frequent headers in a few instructions.
//! A receiver reads [`BASE_LEN`] bytes, asks [`peek_len`] how long the header is, reads the rest of it, and calls
//! [`Header::parse`].

mod coll;
mod header;
mod refusal;
mod rma;
mod small;
#[cfg(test)]
mod tests;

use bitflags::bitflags;

pub use coll::{Coll, CollKind};
pub use header::{Header, peek_len};
pub use refusal::{Answer, Reason};
pub use rma::{RmaIov, RmaIovs};
pub use small::{
    GetHeader, Small, TAG_GET_LEN, WRITE_LEN, emit_announced, emit_got, emit_msg, emit_response,
    emit_tag, emit_write, may_be_sole, parse_get, parse_small, parse_sole, parse_write,
};

use crate::WireError;
pub use crate::op::Op;

/// Length in bytes of the part every header starts with.
pub const BASE_LEN: usize = 16;

/// The longest header in bytes: a write with completion data to four segments.
pub const MAX_HEADER: usize = 24 + 4 * 24;

/// The most RMA segments one header names.
pub const MAX_RMA: u8 = 4;

/// The only version there is.
pub const VERSION: u8 = 3;

/// The value of [`Header::op_data`] that makes a `Msg` an acknowledgement.
pub const OP_ACK: u8 = 2;

impl Op {
    /// The highest number of an operation that needs no agreement.
    pub const MAX: u8 = Self::Data as u8;

    /// The operation of this number.
    ///
    /// # Errors
    ///
    /// [`WireError::Op`].
    #[inline]
    pub const fn from_byte(byte: u8) -> Result<Self, WireError> {
        match Self::from_number(byte) {
            Some(op) => Ok(op),
            None => Err(WireError::Op {
                found: byte,
                max: Self::MAX,
            }),
        }
    }

    /// Whether its header may carry remote completion data. On the others the flag
    /// [`BaseFlags::REMOTE_CQ_DATA`] says nothing: C peers leave it set on `Data`.
    #[must_use]
    pub const fn may_carry_cq_data(self) -> bool {
        matches!(
            self,
            Self::Msg | Self::Tag | Self::Write | Self::TagRts | Self::MsgGet | Self::TagGet
        ) || self.is_atomic()
    }

    /// Whether its header carries a tag.
    #[must_use]
    pub const fn has_tag(self) -> bool {
        matches!(self, Self::Tag | Self::TagRts | Self::TagGet)
    }

    /// Whether its payload is not in the stream but at an address of the sender.
    #[must_use]
    pub const fn is_get(self) -> bool {
        matches!(self, Self::MsgGet | Self::TagGet)
    }

    /// Whether its header names RMA segments. On the others the count says nothing: C peers
    /// leave it at whatever the buffer held before.
    #[must_use]
    pub const fn has_rma(self) -> bool {
        matches!(self, Self::ReadReq | Self::Write) || self.is_atomic()
    }

    /// Whether it is an atomic, with a datatype and an operation of its own.
    #[must_use]
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::Atomic | Self::FetchAtomic | Self::CompareAtomic)
    }

    /// Whether its header may say the length of a payload, which follows in the stream except where it
    /// [is to be got](Self::is_get).
    #[must_use]
    pub const fn may_have_payload(self) -> bool {
        !matches!(
            self,
            Self::ReadReq
                | Self::TagRts
                | Self::Cts
                | Self::Refuse
                | Self::EagerLimit
                | Self::Ats
                | Self::GetLimit
                | Self::Joint
        )
    }

    /// Whether [`Header::op_data`] is a rendezvous index.
    #[must_use]
    pub const fn has_index(self) -> bool {
        matches!(
            self,
            Self::TagRts | Self::Cts | Self::Data | Self::MsgGet | Self::TagGet | Self::Ats
        )
    }
}

bitflags! {
    /// Flags of a header. Bits without a name here are kept and mean nothing; none of them
    /// changes the layout.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct BaseFlags: u16 {
        /// The header carries remote completion data. [`Header`] says this with
        /// [`Header::cq_data`] instead.
        const REMOTE_CQ_DATA = 1;
        /// The sender waits for an acknowledgement that the payload was placed.
        const DELIVERY_COMPLETE = 4;
        /// The sender waits for an acknowledgement that the payload is in persistent memory.
        const COMMIT_COMPLETE = 8;
    }
}

impl BaseFlags {
    /// Whether the sender waits for an acknowledgement of any kind.
    #[must_use]
    pub const fn wants_ack(self) -> bool {
        self.intersects(Self::DELIVERY_COMPLETE.union(Self::COMMIT_COMPLETE))
    }
}
