//! Why a target refused a one-sided operation, and what the refusal stands for.

use ripstop_types::{Errno, numbered};

use crate::WireError;

numbered! {
    /// What a refusal stands for: the answer the initiator would else have got.
    #[derive(Default)]
    pub enum Answer: u8 as u8 {
        /// None: the initiator had not asked for one.
        #[default]
        None = 1,
        /// The acknowledgement of a write, or of an atomic that fetches nothing.
        Ack = 2,
        /// The response to a read, or to an atomic that fetches.
        Response = 3,
    }
}

numbered! {
    /// Why the target of a one-sided operation refused it.
    #[derive(Default)]
    pub enum Reason: u8 as u8 {
        /// No region has the key, or no longer.
        #[default]
        Key = 1 => "no region has this key",
        /// The region is not registered for this access.
        Access = 2 => "the region is not registered for this access",
        /// Not all bytes are inside the region.
        Bounds = 3 => "not all of it is inside the region",
        /// The target could not do it.
        Failed = 4 => "it could not be done",
        /// The target has no such operation on this datatype.
        Unsupported = 5 => "there is no such operation on this datatype",
        /// The memory of an atomic is not aligned to its datatype, or not a whole number of them.
        Misaligned = 6 => "it is not aligned to its datatype",
    }
}

impl Reason {
    /// The error the initiator reports.
    #[must_use]
    pub const fn errno(self) -> Errno {
        match self {
            Self::Key => Errno::EKEYREJECTED,
            Self::Access => Errno::EACCES,
            Self::Bounds => Errno::EFAULT,
            Self::Failed => Errno::EREMOTEIO,
            Self::Unsupported => Errno::EOPNOTSUPP,
            Self::Misaligned => Errno::EINVAL,
        }
    }
}

/// What the two numbers of a refusal say.
///
/// # Errors
///
/// [`WireError::Refusal`] if one of them is not known.
pub(super) fn parse(answer: u8, reason: u8) -> Result<(Answer, Reason), WireError> {
    let known = Answer::from_number(answer).zip(Reason::from_number(reason));
    known.ok_or(WireError::Refusal { answer, reason })
}
