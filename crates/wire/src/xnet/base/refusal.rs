//! Why a target refused a one-sided operation, and what the refusal stands for.

use core::fmt;

use ripstop_types::Errno;

use crate::WireError;

/// What a refusal stands for: the answer the initiator would else have got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Answer {
    /// None: the initiator had not asked for one.
    #[default]
    None = 1,
    /// The acknowledgement of a write, or of an atomic that fetches nothing.
    Ack = 2,
    /// The response to a read, or to an atomic that fetches.
    Response = 3,
}

/// Why the target of a one-sided operation refused it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Reason {
    /// No region has the key, or no longer.
    #[default]
    Key = 1,
    /// The region is not registered for this access.
    Access = 2,
    /// Not all bytes are inside the region.
    Bounds = 3,
    /// The target could not do it.
    Failed = 4,
    /// The target has no such operation on this datatype.
    Unsupported = 5,
    /// The memory of an atomic is not aligned to its datatype, or not a whole number of them.
    Misaligned = 6,
}

impl Answer {
    /// The answer of this number.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::None),
            2 => Some(Self::Ack),
            3 => Some(Self::Response),
            _ => None,
        }
    }
}

impl Reason {
    /// The reason of this number.
    #[must_use]
    pub const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Key),
            2 => Some(Self::Access),
            3 => Some(Self::Bounds),
            4 => Some(Self::Failed),
            5 => Some(Self::Unsupported),
            6 => Some(Self::Misaligned),
            _ => None,
        }
    }

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

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key => "no region has this key",
            Self::Access => "the region is not registered for this access",
            Self::Bounds => "not all of it is inside the region",
            Self::Failed => "it could not be done",
            Self::Unsupported => "there is no such operation on this datatype",
            Self::Misaligned => "it is not aligned to its datatype",
        })
    }
}

/// What the two numbers of a refusal say.
///
/// # Errors
///
/// [`WireError::Refusal`] if one of them is not known.
pub(super) fn parse(answer: u8, reason: u8) -> Result<(Answer, Reason), WireError> {
    let known = Answer::from_byte(answer).zip(Reason::from_byte(reason));
    known.ok_or(WireError::Refusal { answer, reason })
}
