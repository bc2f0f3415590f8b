//! What calls on a [`Subject`](super::Subject) return.

use ripstop_types::Errno;

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The implementation refused it.
    #[error("{call} said {}", .errno.name())]
    Call {
        /// The call as the man pages name it, for instance `fi_tsend`.
        call: &'static str,
        /// The reason, positive.
        errno: Errno,
    },
    /// This way into the implementation has no such call, or cannot say what was asked.
    #[error("this interface cannot {0}")]
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
