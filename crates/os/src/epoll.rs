#![allow(unsafe_code)]
//! Readiness of many descriptors.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ripstop_types::Result;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, Timespec, epoll, poll};

use crate::errno::{errno, retry};

/// The time of a look that does not wait.
const NOW: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 0,
};

/// Whether one of a few descriptors is ready, without a set of them (`poll(2)`).
pub(crate) fn is_ready(fds: &mut [PollFd<'_>]) -> Result<bool> {
    Ok(retry(|| poll(fds, Some(&NOW)))? > 0)
}

/// What to be told about a descriptor, as long as it is so. An error and a hang-up are always told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// There is something to read, or the peer has stopped writing.
    pub read: bool,
    /// There is room to write, or a connection attempt has ended.
    pub write: bool,
}

impl Interest {
    /// Reading only.
    pub const READ: Self = Self {
        read: true,
        write: false,
    };
    /// Writing only.
    pub const WRITE: Self = Self {
        read: false,
        write: true,
    };

    fn flags(self) -> epoll::EventFlags {
        let mut flags = epoll::EventFlags::empty();
        flags.set(epoll::EventFlags::IN | epoll::EventFlags::RDHUP, self.read);
        flags.set(epoll::EventFlags::OUT, self.write);
        flags
    }
}

/// One descriptor that is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The token it was added with.
    pub token: u64,
    flags: epoll::EventFlags,
}

impl Event {
    #[inline]
    fn of(event: &epoll::Event) -> Self {
        Self {
            token: event.data.u64(),
            flags: event.flags,
        }
    }

    /// Reading gives bytes, the end of the stream, or an error.
    #[must_use]
    #[inline]
    pub fn readable(self) -> bool {
        use epoll::EventFlags as F;
        self.flags.intersects(F::IN | F::RDHUP | F::HUP | F::ERR)
    }

    /// Writing takes bytes or gives an error; a connection attempt has ended.
    #[must_use]
    #[inline]
    pub fn writable(self) -> bool {
        use epoll::EventFlags as F;
        self.flags.intersects(F::OUT | F::HUP | F::ERR)
    }

    /// The descriptor has an error: [`Socket::take_error`](crate::Socket::take_error) has it.
    #[must_use]
    #[inline]
    pub fn error(self) -> bool {
        self.flags.contains(epoll::EventFlags::ERR)
    }

    /// The stream is closed in both directions, or never was connected.
    #[must_use]
    #[inline]
    pub fn hangup(self) -> bool {
        self.flags.contains(epoll::EventFlags::HUP)
    }
}

/// Room for the events of one [`Epoll::wait`]; allocated once and used again.
pub struct Events(Vec<epoll::Event>);

// SAFETY: the only pointers in it are the data words of events, which this crate fills with
// numbers (`new_u64`) and reads as numbers; nothing is ever reached through them.
unsafe impl Send for Events {}
// SAFETY: for the same reason as `Send`, and `&Events` only reads.
unsafe impl Sync for Events {}

impl Events {
    /// Room for `capacity` events a call, at least one.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity.max(1)))
    }

    /// The events of the last [`Epoll::wait`].
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Event> + '_ {
        self.0.iter().map(Event::of)
    }

    /// The `i`-th event of the last [`Epoll::wait`], for loops that change the set meanwhile.
    #[must_use]
    #[inline]
    pub fn at(&self, i: usize) -> Option<Event> {
        self.0.get(i).map(Event::of)
    }

    /// How many events the last [`Epoll::wait`] gave.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an event, for whoever stands in for [`Epoll`]: what can be done, and whether the stream has
    /// ended or failed. Returns whether there was room.
    pub fn push(&mut self, token: u64, ready: Interest, ended: bool) -> bool {
        if self.is_full() {
            return false;
        }
        let mut flags = ready.flags();
        flags.set(epoll::EventFlags::HUP, ended);
        let data = epoll::EventData::new_u64(token);
        self.0.push(epoll::Event { flags, data });
        true
    }

    /// Takes all events out.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Whether there was no room for more: others may be ready as well.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.0.len() == self.0.capacity()
    }

    /// Whether the last [`Epoll::wait`] gave none.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// A set of descriptors to wait for (`epoll(7)`). Its own descriptor is readable while any of
/// them is ready, so it can be nested, or handed to the program (`FI_WAIT_FD`).
#[derive(Debug)]
pub struct Epoll(OwnedFd);

impl Epoll {
    /// An empty set; its descriptor is closed on `exec`.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM` and the others of `epoll_create1(2)`.
    pub fn new() -> Result<Self> {
        epoll::create(epoll::CreateFlags::CLOEXEC)
            .map(Self)
            .map_err(errno)
    }

    /// Adds `fd`; its events carry `token`. Closing the descriptor takes it out again, unless a forked child has it, too.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it is in the set, `ENOSPC` at the user's limit of watches, and the others
    /// of `epoll_ctl(2)`.
    pub fn add(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::add(&self.0, fd, data, interest.flags()).map_err(errno)
    }

    /// Changes token and interest of `fd`.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it is not in the set, and the others of `epoll_ctl(2)`.
    pub fn modify(&self, fd: impl AsFd, token: u64, interest: Interest) -> Result<()> {
        let data = epoll::EventData::new_u64(token);
        epoll::modify(&self.0, fd, data, interest.flags()).map_err(errno)
    }

    /// Takes `fd` out.
    ///
    /// # Errors
    ///
    /// `ENOENT` if it is not in the set, and the others of `epoll_ctl(2)`.
    pub fn remove(&self, fd: impl AsFd) -> Result<()> {
        epoll::delete(&self.0, fd).map_err(errno)
    }

    /// Waits until a descriptor is ready or `timeout` (`None`: no end) has passed, and returns
    /// how many events there are in `events`. A zero timeout only looks.
    ///
    /// # Errors
    ///
    /// `EINTR` if a signal came before anything was ready (a look never is interrupted); the
    /// caller decides what is left of its time.
    #[inline]
    pub fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        events.0.clear();
        match timeout {
            Some(Duration::ZERO) => self.poll(events),
            Some(time) => {
                // A time that the kernel cannot count to has no end.
                let time = Timespec::try_from(time).ok();
                self.collect(events, time.as_ref())
            }
            None => self.collect(events, None),
        }
    }

    /// Looks for ready descriptors without waiting; the same as a zero timeout.
    ///
    /// # Errors
    ///
    /// Those of `epoll_wait(2)` other than `EINTR`.
    #[inline]
    pub fn poll(&self, events: &mut Events) -> Result<usize> {
        events.0.clear();
        retry(|| epoll::wait(&self.0, spare_capacity(&mut events.0), Some(&NOW)))
    }

    fn collect(&self, events: &mut Events, timeout: Option<&Timespec>) -> Result<usize> {
        epoll::wait(&self.0, spare_capacity(&mut events.0), timeout).map_err(errno)
    }
}

impl AsFd for Epoll {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
