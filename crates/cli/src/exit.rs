//! How a tool ends.

use std::fmt;
use std::io::{Write as _, stdout};
use std::process::{self, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use ripstop_types::Errno;
use signal_hook::consts::SIGPIPE;
use signal_hook::flag;
use thiserror::Error;

/// Prints a line of output as `println!` does, and ends the process with an error where it cannot be written.
#[macro_export]
macro_rules! outln {
    () => { $crate::exit::print(format_args!("\n")) };
    ($($arg:tt)*) => { $crate::exit::print(format_args!("{}\n", format_args!($($arg)*))) };
}

/// As [`outln!`], without the end of the line.
#[macro_export]
macro_rules! out {
    ($($arg:tt)*) => { $crate::exit::print(format_args!($($arg)*)) };
}

/// Writes to the standard output, and ends the process with an error where that fails: the disk of its file is full.
pub fn print(text: fmt::Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        eprintln!("error: cannot write the output, which is incomplete: {error}");
        process::exit(1);
    }
}

/// Whether a write to a pipe that nobody reads ends this process.
static ENDS_ON_CLOSED_PIPE: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on the process ends quietly, as other Unix tools do, when it writes to a pipe that nobody reads
/// any more (`fi_info | head`); each binary calls this first. The Rust runtime ignores `SIGPIPE`.
pub fn end_on_closed_pipe() {
    ENDS_ON_CLOSED_PIPE.store(true, Ordering::Relaxed);
    // Fails only for signals that cannot be caught; then the write fails.
    let _ = flag::register_conditional_default(SIGPIPE, Arc::clone(&ENDS_ON_CLOSED_PIPE));
}

/// While it is there, writes to a pipe that nobody reads are errors again: for orders to processes of the
/// tool's own, which may have ended.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct ClosedPipesAreErrors {
    before: bool,
}

impl ClosedPipesAreErrors {
    /// From now on.
    pub fn new() -> Self {
        Self {
            before: ENDS_ON_CLOSED_PIPE.swap(false, Ordering::Relaxed),
        }
    }
}

impl Default for ClosedPipesAreErrors {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ClosedPipesAreErrors {
    fn drop(&mut self) {
        ENDS_ON_CLOSED_PIPE.store(self.before, Ordering::Relaxed);
    }
}

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
