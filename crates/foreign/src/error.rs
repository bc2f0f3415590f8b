//! What calls into the library, and opening it, return.

use std::fmt;
use std::path::PathBuf;

use ripstop_types::{Errno, Version};

/// The result of a call into the library.
pub type Result<T> = std::result::Result<T, Error>;

/// A call that the library, or this crate before it, refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The call as the man pages name it, for instance `fi_tsend`.
    pub call: &'static str,
    /// The reason, positive.
    pub errno: Errno,
}

impl Error {
    /// Whether the call may succeed when repeated after progress (`FI_EAGAIN`).
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.errno == Errno::EAGAIN
    }

    pub(crate) const fn new(call: &'static str, errno: Errno) -> Self {
        Self { call, errno }
    }

    /// The C return value.
    pub(crate) const fn code(self) -> isize {
        -(self.errno.0 as isize)
    }

    /// Turns a C return value, zero or negative, into a result.
    pub(crate) fn check(call: &'static str, ret: i32) -> Result<()> {
        if ret == 0 {
            Ok(())
        } else {
            Err(Self::new(call, Errno(ret.saturating_neg())))
        }
    }

    /// Turns a C return value that counts when positive into a result.
    pub(crate) fn check_count(call: &'static str, ret: isize) -> Result<usize> {
        usize::try_from(ret).map_err(|_| {
            let errno = ret.checked_neg().and_then(|e| i32::try_from(e).ok());
            Self::new(call, errno.map_or(Errno::EOTHER, Errno))
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({:?})", self.call, self.errno, self.errno)
    }
}

impl std::error::Error for Error {}

/// Why a file could not be used as a libfabric.
#[derive(Debug)]
pub enum OpenError {
    /// The dynamic linker refused the file.
    Load {
        /// The file.
        path: PathBuf,
        /// The dynamic linker's words.
        reason: String,
    },
    /// The file lacks a function every libfabric has.
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function's name.
        name: &'static str,
    },
    /// The library is older than 1.5, whose structs this crate does not know.
    TooOld {
        /// The file.
        path: PathBuf,
        /// What `fi_version` said.
        version: Version,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { path, reason } => write!(
                f,
                "{} does not load: {reason}; give the path of a libfabric.so.1",
                path.display()
            ),
            Self::Symbol { path, name } => write!(
                f,
                "{} has no function {name}: it is not a libfabric",
                path.display()
            ),
            Self::TooOld { path, version } => write!(
                f,
                "{} is libfabric {version}; use release 1.5 or later",
                path.display()
            ),
        }
    }
}

impl std::error::Error for OpenError {}
