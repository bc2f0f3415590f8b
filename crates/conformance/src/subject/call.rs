use std::fmt;

use ripstop_types::Errno;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// The implementation refused it.
    Call {
        /// The call as the man pages name it, for instance `fi_tsend`.
        call: &'static str,
        /// The reason, positive.
        errno: Errno,
    },
    /// This way into the implementation has no such call, or cannot say what was asked.
    Missing(&'static str),
}

impl Error {
    /// The reason, if the implementation gave one.
    #[must_use]
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::Call { errno, .. } => Some(*errno),
            Self::Missing(_) => None,
        }
    }

    /// Whether the implementation gave this reason.
    #[must_use]
    pub fn is(&self, errno: Errno) -> bool {
        self.errno() == Some(errno)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { call, errno } => write!(f, "{call} said {}", errno.name()),
            Self::Missing(what) => write!(f, "this interface cannot {what}"),
        }
    }
}

impl std::error::Error for Error {}
