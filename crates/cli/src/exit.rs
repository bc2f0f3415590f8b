//! How a tool ends.

use std::process::ExitCode;

use ripstop_types::Errno;
use thiserror::Error;

/// An error that the tool has already told the user about, with the exit code it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("exit code {0}")]
pub struct Told(pub u8);

impl From<Errno> for Told {
    /// The number of the error, as libfabric's own tools exit.
    fn from(errno: Errno) -> Self {
        Self(u8::try_from(errno.0).unwrap_or(1).max(1))
    }
}

/// Prints an error that nobody was told about, on standard error and with its causes, and
/// chooses the exit code: 0 for success, else what [`Told`] says or 1.
#[must_use]
pub fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    match error.downcast_ref::<Told>() {
        Some(told) => ExitCode::from(told.0),
        None => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
