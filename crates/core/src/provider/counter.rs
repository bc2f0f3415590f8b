//! The trait of counters.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ripstop_types::{Result, WaitObj};

#[cfg(doc)]
use super::CompletionQueue;
#[cfg(doc)]
use ripstop_types::Errno;

/// A counter (man page `fi_cntr(3)`).
pub trait Counter: 'static {
    /// Successes so far; makes progress.
    fn read(&self) -> u64;
    /// Errors so far; makes progress.
    fn read_error(&self) -> u64;
    /// Adds to the successes.
    fn add(&self, value: u64);
    /// Sets the successes.
    fn set(&self, value: u64);
    /// Adds to the errors.
    fn add_error(&self, value: u64);
    /// Sets the errors.
    fn set_error(&self, value: u64);

    /// Whether triggered operations or deferred work wait for it or will change it. Such a
    /// counter must not be closed (`fi_close` says `FI_EBUSY`); when it is dropped all the same,
    /// they are cancelled.
    fn is_busy(&self) -> bool;

    /// Waits until the successes reach `threshold`.
    ///
    /// # Errors
    /// [`Errno::ETIMEDOUT`]; [`Errno::EAVAIL`] when the error count rises meanwhile.
    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()>;

    /// The wait object it was opened with.
    fn wait_obj(&self) -> WaitObj;

    /// As [`CompletionQueue::wait_fd`].
    ///
    /// # Errors
    /// [`Errno::ENODATA`] without one.
    fn wait_fd(&self) -> Result<BorrowedFd<'_>>;

    /// As [`CompletionQueue::try_wait`].
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the counter should be read first.
    fn try_wait(&self) -> Result<()>;
}
