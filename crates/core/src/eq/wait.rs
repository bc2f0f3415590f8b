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
    /// A set of descriptors: the queue's own and those of its sources.
    Descriptors(Descriptors),
}

/// What is missing where there are no [`Descriptors`].
const NO_WAIT: &str = "descriptor to wait on (eventfd2, epoll_create1)";

pub(super) struct Descriptors {
    /// Readable while there are events.
    pending: EventFd,
    set: Epoll,
}

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
                Ok(Self::Descriptors(Descriptors { pending, set }))
            }
            WaitObj::Set => Err(Errno::ENOSYS),
        }
    }

    /// Tells whether there are events from now on.
    pub(super) fn show_pending(&self, pending: bool) {
        if let Self::Descriptors(descriptors) = self {
            // An eventfd that is open takes both.
            let _done = if pending {
                descriptors.pending.signal()
            } else {
                descriptors.pending.drain().map(|_| ())
            };
        }
    }

    /// Waits on a source's descriptor as well.
    pub(super) fn add(&self, fd: BorrowedFd<'_>) -> Result<()> {
        match self {
            Self::Descriptors(descriptors) => descriptors.set.add(fd, ANY, Interest::READ),
            Self::None | Self::Yield => Ok(()),
        }
    }

    pub(super) fn remove(&self, fd: BorrowedFd<'_>) -> Result<()> {
        match self {
            Self::Descriptors(descriptors) => descriptors.set.remove(fd),
            Self::None | Self::Yield => Ok(()),
        }
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
            Self::Descriptors(descriptors) => {
                let mut events = Events::with_capacity(1);
                match descriptors.set.wait(&mut events, time) {
                    Ok(_) => Ok(()),
                    Err(Errno::EINTR) => Err(Errno::EAGAIN),
                    Err(other) => Err(other),
                }
            }
        }
    }

    /// The descriptor of the whole set.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptors(descriptors) => Some(descriptors.set.as_fd()),
            Self::None | Self::Yield => None,
        }
    }
}
