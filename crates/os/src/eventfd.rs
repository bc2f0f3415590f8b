//! Wake-ups between threads through a descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ripstop_types::{Errno, Result};
use rustix::event::{EventfdFlags, eventfd};

use crate::errno::{errno, retry};

/// A descriptor that is readable from [`signal`](Self::signal) to [`drain`](Self::drain)
/// (`eventfd(2)`). Any number of signals before a drain count as one.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// A descriptor that is not signalled; non-blocking and closed on `exec`.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM` and the others of `eventfd(2)`.
    pub fn new() -> Result<Self> {
        eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map(Self)
            .map_err(errno)
    }

    /// Makes the descriptor readable and wakes whoever waits for it.
    ///
    /// # Errors
    ///
    /// Those of `write(2)`; a counter that is full already is signalled, hence no error.
    #[inline]
    pub fn signal(&self) -> Result<()> {
        match retry(|| rustix::io::write(&self.0, &1u64.to_ne_bytes())) {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// Makes the descriptor unreadable again; tells whether it was signalled.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    #[inline]
    pub fn drain(&self) -> Result<bool> {
        let mut count = [0u8; 8];
        match retry(|| rustix::io::read(&self.0, &mut count)) {
            Ok(_) => Ok(true),
            Err(Errno::EAGAIN) => Ok(false),
            Err(err) => Err(err),
        }
    }
}

impl AsFd for EventFd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
