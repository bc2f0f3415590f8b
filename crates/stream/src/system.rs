//! Where a domain gets its time and its events from: the operating system, or a simulation of it.

use std::fmt::Debug;
use std::os::fd::AsFd;
use std::time::Duration;

use ripstop_os::{Epoll, Events, Interest, clock};
use ripstop_types::Result;

/// What the objects of a domain ask the system for, apart from the links of their
/// [`Transport`](crate::Transport). There is no value of it.
pub trait System: Debug + 'static {
    /// How a domain learns what has happened.
    type Poller: Poller;

    /// What wakes a domain that has deadlines.
    type Timer: Timer;

    /// Whether domains look once a second at what waits, tell the log of it and show it to other
    /// processes.
    const WATCHES: bool = false;

    /// Monotonic time since an arbitrary start.
    fn now() -> Duration;

    /// A counter as [`clock::ticks`].
    fn ticks() -> u32;

    /// Lets so much time pass, in a call that waits for others.
    fn sleep(time: Duration);

    /// Lets others go on, in a call that waits for them or has found nothing for a while.
    fn yield_now();
}

/// A set of links, listeners and other descriptors to be told about, as [`Epoll`], whose methods
/// these are. What cannot be seen by its descriptor alone is told apart by that.
pub trait Poller: AsFd + Debug + Send + Sync + Sized + 'static {
    /// An empty set.
    ///
    /// # Errors
    /// As for [`Epoll::new`].
    fn new() -> Result<Self>;

    /// Adds `fd`; its events carry `token`. Closing the descriptor takes it out again, unless a forked child has it, too.
    ///
    /// # Errors
    /// As for [`Epoll::add`].
    fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()>;

    /// Changes token and interest of `fd`.
    ///
    /// # Errors
    /// As for [`Epoll::modify`].
    fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()>;

    /// Takes `fd` out.
    ///
    /// # Errors
    /// As for [`Epoll::remove`].
    fn remove(&self, fd: impl AsFd) -> Result<()>;

    /// Looks for ready descriptors without waiting.
    ///
    /// # Errors
    /// As for [`Epoll::poll`].
    fn poll(&self, events: &mut Events) -> Result<usize>;

    /// Waits until a descriptor is ready.
    ///
    /// # Errors
    /// As for [`Epoll::wait`].
    fn wait(&self, events: &mut Events) -> Result<usize>;
}

/// A timer that makes its descriptor readable, as [`ripstop_os::Timer`], whose methods these are.
pub trait Timer: AsFd + Debug + Send + Sync + Sized + 'static {
    /// A timer that is not set.
    ///
    /// # Errors
    /// Of the system.
    fn new() -> Result<Self>;

    /// Sets it to go off every `period`, first after one; zero stops it.
    ///
    /// # Errors
    /// Of the system.
    fn set(&self, period: Duration) -> Result<()>;

    /// Makes the descriptor unreadable until it goes off again.
    fn drain(&self);
}

/// The operating system.
#[derive(Debug)]
pub struct Os;

impl System for Os {
    type Poller = Epoll;
    type Timer = ripstop_os::Timer;

    const WATCHES: bool = true;

    #[inline(always)]
    fn now() -> Duration {
        clock::now()
    }

    #[inline(always)]
    fn ticks() -> u32 {
        clock::ticks()
    }

    fn sleep(time: Duration) {
        std::thread::sleep(time);
    }

    #[inline]
    fn yield_now() {
        std::thread::yield_now();
    }
}

impl Poller for Epoll {
    fn new() -> Result<Self> {
        Self::new()
    }

    fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        Self::add(self, fd, token, interest)
    }

    fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        Self::modify(self, fd, token, interest)
    }

    fn remove(&self, fd: impl AsFd) -> Result<()> {
        Self::remove(self, fd)
    }

    #[inline]
    fn poll(&self, events: &mut Events) -> Result<usize> {
        Self::poll(self, events)
    }

    fn wait(&self, events: &mut Events) -> Result<usize> {
        Self::wait(self, events, None)
    }
}

impl Timer for ripstop_os::Timer {
    fn new() -> Result<Self> {
        Self::new()
    }

    fn set(&self, period: Duration) -> Result<()> {
        Self::set(self, period)
    }

    fn drain(&self) {
        Self::drain(self);
    }
}
