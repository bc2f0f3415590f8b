//! How a queue lets its readers wait.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd};

use ripstop_os::{Epoll, EventFd, Events, Interest};
use ripstop_types::{Errno, Result, WaitObj};

use crate::log::{Subsys, no_descriptor};

/// Tokens in the set: nobody needs to know which descriptor it was.
const ANY: u64 = 0;

/// The means to wait.
pub(super) enum Waiting {
    /// The program never waits.
    None,
    /// Waiting is giving up the processor, again and again.
    Yield,
    /// On descriptors.
    Descriptors {
        /// Readable while there are events.
        pending: EventFd,
        /// That and the descriptors of the sources.
        set: Epoll,
    },
}

/// What is missing where there are no descriptors.
const NO_WAIT: &str = "descriptor to wait on (eventfd2, epoll_create1)";

impl Waiting {
    pub(super) fn open(wait: WaitObj) -> Result<Self> {
        match wait {
            WaitObj::None => Ok(Self::None),
            WaitObj::Yield => Ok(Self::Yield),
            WaitObj::Unspec | WaitObj::Fd | WaitObj::PollFd | WaitObj::MutexCond => {
                let no = |error: &Errno| no_descriptor("core", Subsys::Eq, NO_WAIT, *error);
                let pending = EventFd::new().inspect_err(no)?;
                let set = Epoll::new().inspect_err(no)?;
                set.add(&pending, ANY, Interest::READ)?;
                Ok(Self::Descriptors { pending, set })
            }
            WaitObj::Set => Err(Errno::ENOSYS),
        }
    }

    /// Tells whether there are events from now on.
    pub(super) fn show_pending(&self, show: bool) {
        if let Self::Descriptors { pending, .. } = self {
            // An eventfd that is open takes both.
            let _done = match show {
                true => pending.signal(),
                false => pending.drain().map(drop),
            };
        }
    }

    /// Waits on a source's descriptor as well.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        self.set()
            .map_or(Ok(()), |set| set.add(fd, ANY, Interest::READ))
    }

    /// Waits until something may have happened, at most for `time`.
    ///
    /// # Errors
    /// `EAGAIN` when a signal interrupts, `ENOSYS` when there is no waiting.
    pub(super) fn wait(&self, time: Option<Duration>) -> Result<()> {
        match self {
            Self::None => Err(Errno::ENOSYS),
            Self::Yield => {
                std::thread::yield_now();
                Ok(())
            }
            Self::Descriptors { set, .. } => {
                let mut events = Events::with_capacity(1);
                match set.wait(&mut events, time) {
                    Ok(_) => Ok(()),
                    Err(Errno::EINTR) => Err(Errno::EAGAIN),
                    Err(other) => Err(other),
                }
            }
        }
    }

    /// The descriptor of the whole set.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.set().map(AsFd::as_fd)
    }

    const fn set(&self) -> Option<&Epoll> {
        match self {
            Self::Descriptors { set, .. } => Some(set),
            Self::None | Self::Yield => None,
        }
    }
}
