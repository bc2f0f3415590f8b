//! Progress: who makes it, and how those who wait for it sleep.
//!
//! Everything comes down to two steps. [`Core::advance`] moves bytes, attributes completions
//! and events, and wakes who waits for them; it never blocks. [`Core::sleep`] blocks until the
//! provider has something to do. At most one thread of a domain sleeps there, the *leader*:
//! the library's own thread, or one of those that wait inside a call. The others, its
//! followers, are parked, and woken when what they wait for is done or the lead is free.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

use crate::running::{Running, Turn};

/// Drives a domain from an event loop of the program's: wait until its descriptor is
/// readable, then take [turns](Self::turn) until one is idle.
///
/// The descriptor is level-triggered, and may be watched edge-triggered as well. Readiness may
/// be forgotten only after an idle turn. With tokio:
///
/// ```no_run
/// # async fn drive(domain: ripstop::Domain) -> std::io::Result<()> {
/// use ripstop::Turn;
/// use tokio::io::unix::AsyncFd;
///
/// // SAFETY: a driver owns its descriptor as long as it lives. (Before tokio 1.54 this is the
/// // safe `AsyncFd::new`.)
/// let driver = unsafe { AsyncFd::register(domain.driver())? };
/// loop {
///     let mut ready = driver.readable().await?;
///     if driver.get_ref().turn() == Turn::Idle {
///         ready.clear_ready();
///     }
/// }
/// # }
/// ```
///
/// A driver keeps its domain open: end the task that has it when the work is done.
#[derive(Clone, Debug)]
pub struct Driver(pub(crate) Arc<Running>);

impl Driver {
    /// Makes progress, wakes the tasks whose operations are done, and says whether it is safe
    /// to block on the descriptor (`fi_trywait(3)`). Never blocks.
    #[must_use = "only an idle turn allows to wait for the descriptor"]
    pub fn turn(&self) -> Turn {
        if self.0.core.advance() || !self.0.core.try_wait() {
            Turn::Busy
        } else {
            Turn::Idle
        }
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.core.as_fd()
    }
}

impl AsRawFd for Driver {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
