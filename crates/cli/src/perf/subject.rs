//! What is measured: Ripstop in this program, or a library given by its path.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use ripstop_types::Flags;
use serde::{Deserialize, Serialize};

/// One of the things to compare.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The Rust objects in this program.
    Native,
    /// A `libfabric.so.1` through the C interface.
    Library(PathBuf),
    /// No library: what plain programs do here.
    Machine,
}

impl Subject {
    /// What the `--lib` options ask to compare.
    ///
    /// # Errors
    /// For more than two libraries, or a path with no file.
    pub(super) fn list(libs: &[PathBuf]) -> anyhow::Result<Vec<Self>> {
        let library = |path: &PathBuf| find(path).map(Self::Library);
        Ok(match libs {
            [] => vec![Self::Native],
            [one] => vec![Self::Native, library(one)?],
            [one, two] => vec![library(one)?, library(two)?],
            more => bail!(
                "{} libraries are too many: give --lib once or twice",
                more.len()
            ),
        })
    }

    /// The library's path.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Native | Self::Machine => None,
            Self::Library(path) => Some(path),
        }
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Native => write!(f, "Ripstop {} in Rust", env!("CARGO_PKG_VERSION")),
            Self::Library(path) => path.display().fmt(f),
            Self::Machine => f.write_str("the machine"),
        }
    }
}

/// The whole path of a library. Two libraries of one name are only told apart with a slash.
///
/// # Errors
/// When there is no such file.
pub fn find(path: &Path) -> anyhow::Result<PathBuf> {
    let found = path.canonicalize().with_context(|| {
        format!(
            "--lib {}: give the path of a libfabric.so.1",
            path.display()
        )
    })?;
    ensure!(
        found.is_file(),
        "--lib {} is no file: give the path of a libfabric.so.1",
        path.display()
    );
    Ok(found)
}

/// The local name that a provider's endpoints take: loopback for those over IP.
pub(super) fn home(provider: &str) -> Option<&'static str> {
    matches!(provider, "tcp" | "udp").then_some("127.0.0.1")
}

/// The key of the memory that is reached.
pub(super) const KEY: u64 = 1;

/// What an endpoint must do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// Tagged messages.
    Messages,
    /// Also writes and reads of the peer's memory.
    Memory,
    /// Collective operations.
    Groups,
}

impl Wanted {
    /// The capabilities to ask for.
    pub(super) fn caps(self) -> Flags {
        let messages = Flags::MSG | Flags::TAGGED;
        match self {
            Self::Messages => messages,
            Self::Memory => messages | Flags::RMA,
            Self::Groups => messages | Flags::COLLECTIVE,
        }
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Messages => "tagged RDM endpoint",
            Self::Memory => "tagged RDM endpoint with FI_RMA",
            Self::Groups => "tagged RDM endpoint with FI_COLLECTIVE",
        })
    }
}

/// A library has not what is to be measured: an error that ends no more than that.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Lacks(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_library_is_compared_with_ripstop() {
        let this = PathBuf::from(file!())
            .file_name()
            .map(|_| std::env::current_exe().expect("a path"));
        let this = this.expect("a file");
        let list = Subject::list(std::slice::from_ref(&this)).expect("a file");
        assert_eq!(list.len(), 2);
        assert_eq!(list[0], Subject::Native);
        assert_eq!(Subject::list(&[]).expect("nothing"), [Subject::Native]);
        assert!(Subject::list(&[this.clone(), this.clone(), this]).is_err());
        let error = Subject::list(&["/no/such".into()]).expect_err("no file");
        assert!(format!("{error:#}").contains("libfabric.so.1"));
    }
}
