//! The event queue (man page `fi_eq(3)`): the program reads it, providers put events into it.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use ripstop_os::clock;
use ripstop_types::{Errno, Flags, Result, WaitObj};

use super::event::{Event, EventError};
use super::source::{ProgressSource, Sources};
use super::wait::Waiting;
use crate::log::Subsys;
use crate::token::FidToken;

/// Attributes of an event queue (`struct fi_eq_attr`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EqAttr {
    /// Events there must be room for; there is room for more.
    pub size: usize,
    /// [`Flags::WRITE`] if the program inserts events of its own, [`Flags::AFFINITY`] if
    /// `signaling_vector` is meant.
    pub flags: Flags,
    /// How the program waits.
    pub wait_obj: WaitObj,
    /// Processor for interrupts; these queues raise none.
    pub signaling_vector: i32,
}

type Item = core::result::Result<Event, EventError>;

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// There was no memory for an event; nothing is added any more.
    overrun: bool,
}

/// An event queue. Any thread may use it at any time.
pub struct EventQueue {
    attr: EqAttr,
    state: Mutex<State>,
    sources: Sources,
    waiting: Waiting,
}

impl fmt::Debug for EventQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "EventQueue({:?}, {} events)",
            self.attr.wait_obj,
            self.len()
        )
    }
}

/// Most events that memory is taken for when a queue opens; its size is a hint.
const MOST_PREPARED: usize = 4096;

impl EventQueue {
    /// Opens a queue.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for flags that are not those of [`EqAttr::flags`] or
    /// [`Flags::PEER`], [`Errno::ENOSYS`] for a wait set, [`Errno::ENOMEM`], and
    /// [`Errno::EMFILE`] when descriptors run out.
    pub fn open(attr: &EqAttr) -> Result<Self> {
        if !(Flags::WRITE | Flags::AFFINITY | Flags::PEER).contains(attr.flags) {
            crate::fi_warn!(
                "core",
                Subsys::Eq,
                "fi_eq_open: flags other than FI_WRITE and FI_AFFINITY are unknown; leave them out"
            );
            return Err(Errno::EINVAL);
        }
        let mut state = State::default();
        state
            .items
            .try_reserve(attr.size.min(MOST_PREPARED))
            .map_err(|_| Errno::ENOMEM)?;
        Ok(Self {
            attr: *attr,
            state: Mutex::new(state),
            sources: Sources::default(),
            waiting: Waiting::open(attr.wait_obj)?,
        })
    }

    /// The attributes it was opened with.
    #[must_use]
    pub const fn attr(&self) -> &EqAttr {
        &self.attr
    }

    /// Number of events and errors to be read.
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether there is nothing to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds an event.
    ///
    /// # Errors
    /// [`Errno::EOVERRUN`] when there is no memory for it; the queue then only hands out what
    /// it has, and reports the overrun after that.
    pub fn push(&self, event: Event) -> Result<()> {
        self.append(Ok(event))
    }

    /// Adds an error. It is read in its turn, by [`read_error`](Self::read_error).
    ///
    /// # Errors
    /// As for [`push`](Self::push).
    pub fn push_error(&self, error: EventError) -> Result<()> {
        self.append(Err(error))
    }

    /// Adds an event of the program's own (`fi_eq_write`) and returns the number of bytes.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`]; as for [`push`](Self::push).
    pub fn write(&self, event: u32, bytes: &[u8]) -> Result<usize> {
        let mut copy = Vec::new();
        copy.try_reserve_exact(bytes.len())
            .map_err(|_| Errno::ENOMEM)?;
        copy.extend_from_slice(bytes);
        self.push(Event::Written { event, bytes: copy })?;
        Ok(bytes.len())
    }

    /// Takes the next event.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none, [`Errno::EAVAIL`] when an error is next.
    pub fn read(&self) -> Result<Event> {
        let mut state = self.event_first()?;
        match self.pop(&mut state) {
            Some(Ok(event)) => Ok(event),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// Shows the next event to `take`, which may copy what it needs; it must not use the
    /// queue. The event is removed if `consume` is set and `take` succeeds (else `FI_PEEK`).
    ///
    /// # Errors
    /// As for [`read`](Self::read), and those of `take`, such as [`Errno::ETOOSMALL`] for a
    /// buffer that cannot hold the event, which then stays.
    pub fn read_with<T>(&self, consume: bool, take: impl FnOnce(&Event) -> Result<T>) -> Result<T> {
        let mut state = self.event_first()?;
        let Some(Ok(event)) = state.items.front() else {
            return Err(Errno::EAGAIN);
        };
        let taken = take(event)?;
        if consume {
            self.pop(&mut state);
        }
        Ok(taken)
    }

    /// As [`read_with`](Self::read_with), but waits for an event at most for `timeout`
    /// (`None`: for ever).
    ///
    /// # Errors
    /// As for [`read_with`](Self::read_with), where [`Errno::EAGAIN`] also says that a signal
    /// came; [`Errno::ENOSYS`] when the queue was opened with `FI_WAIT_NONE`.
    pub fn sread_with<T>(
        &self,
        timeout: Option<Duration>,
        consume: bool,
        mut take: impl FnMut(&Event) -> Result<T>,
    ) -> Result<T> {
        self.until(timeout, || self.read_with(consume, &mut take))
    }

    /// Takes the next event, waiting for it at most for `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// As for [`sread_with`](Self::sread_with).
    pub fn sread(&self, timeout: Option<Duration>) -> Result<Event> {
        self.until(timeout, || self.read())
    }

    /// Returns the next entry if it is an error, and removes it if `consume` is set.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is none, or an event is next.
    pub fn read_error(&self, consume: bool) -> Result<EventError> {
        if self.is_empty() {
            self.progress();
        }
        let mut state = self.state.lock();
        match state.items.front() {
            None if state.overrun => Ok(EventError::overrun()),
            None | Some(Ok(_)) => Err(Errno::EAGAIN),
            Some(Err(error)) => {
                let error = error.clone();
                if consume {
                    self.pop(&mut state);
                }
                Ok(error)
            }
        }
    }

    /// Has `source` called when the queue is empty and read, until it is dropped. The queue does
    /// not keep it alive; adding it again does nothing.
    ///
    /// # Errors
    /// Those of `epoll_ctl(2)`.
    pub fn add_source(&self, source: &Arc<dyn ProgressSource>) -> Result<()> {
        if !self.sources.add(&Arc::downgrade(source)) {
            return Ok(());
        }
        let watched = source.wait_fd().map_or(Ok(()), |fd| self.waiting.add(fd));
        if watched.is_err() {
            self.sources.remove(&Arc::downgrade(source));
        }
        watched
    }

    /// Calls all sources.
    pub fn progress(&self) {
        self.sources.each(|source| source.progress());
    }

    /// Whether it is safe to block on [`wait_fd`](Self::wait_fd) (`fi_trywait(3)`).
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is something to read first.
    pub fn try_wait(&self) -> Result<()> {
        self.progress();
        let state = self.state.lock();
        let empty = state.items.is_empty() && !state.overrun;
        // Sources have locks of their own, and push events with them held.
        drop(state);
        // How long the program waits is not known, so nobody is told afterwards.
        match empty && self.sources.before_wait().is_some() {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// The descriptor that is readable while the queue or one of its sources has something
    /// to do (`FI_GETWAIT` with `FI_WAIT_FD`).
    ///
    /// # Errors
    /// [`Errno::ENODATA`] when the queue was opened with another wait object.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        match self.attr.wait_obj {
            WaitObj::Fd | WaitObj::PollFd | WaitObj::Unspec => {
                self.waiting.fd().ok_or(Errno::ENODATA)
            }
            _ => Err(Errno::ENODATA),
        }
    }

    /// Drops what is queued about an object that closes.
    pub fn forget(&self, fid: FidToken) {
        let mut state = self.state.lock();
        if !state.items.is_empty() {
            state.items.retain(|item| match item {
                Ok(event) => event.fid() != Some(fid),
                Err(error) => error.fid != fid,
            });
            self.hide_pending(&state);
        }
    }

    /// Repeats `read`, waiting in between, until it has something else to say than `EAGAIN`.
    fn until<T>(
        &self,
        timeout: Option<Duration>,
        mut read: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        if matches!(self.waiting, Waiting::None) {
            return Err(Errno::ENOSYS);
        }
        let end = timeout.and_then(|timeout| clock::now().checked_add(timeout));
        loop {
            match read() {
                Err(Errno::EAGAIN) => {}
                outcome => return outcome,
            }
            let left = end.map(|end| end.saturating_sub(clock::now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno::EAGAIN);
            }
            let limits = [left, self.sources.wait_limit()];
            let Some(asked) = self.sources.before_wait() else {
                continue;
            };
            let waited = self.waiting.wait(limits.into_iter().flatten().min());
            Sources::after_wait(asked);
            waited?;
        }
    }

    fn append(&self, item: Item) -> Result<()> {
        let mut state = self.state.lock();
        if state.overrun || state.items.try_reserve(1).is_err() {
            state.overrun = true;
            self.waiting.show_pending(true);
            return Err(Errno::EOVERRUN);
        }
        state.items.push_back(item);
        if state.items.len() == 1 {
            self.waiting.show_pending(true);
        }
        Ok(())
    }

    /// The queue with an event in front, after progress where it is empty.
    fn event_first(&self) -> Result<MutexGuard<'_, State>> {
        let first = || {
            let state = self.state.lock();
            match state.items.front() {
                Some(Ok(_)) => Ok(state),
                None if !state.overrun => Err(Errno::EAGAIN),
                _ => Err(Errno::EAVAIL),
            }
        };
        match first() {
            Err(Errno::EAGAIN) => {
                self.progress();
                first()
            }
            outcome => outcome,
        }
    }

    fn pop(&self, state: &mut State) -> Option<Item> {
        let item = state.items.pop_front();
        self.hide_pending(state);
        item
    }

    /// The overrun stays to be read for ever.
    fn hide_pending(&self, state: &State) {
        if state.items.is_empty() && !state.overrun {
            self.waiting.show_pending(false);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overrun_is_reported_after_what_there_is() {
        let eq = EventQueue::open(&EqAttr {
            wait_obj: WaitObj::Fd,
            ..EqAttr::default()
        })
        .unwrap();
        let event = || Event::Shutdown { ep: FidToken(1) };
        eq.push(event()).unwrap();
        eq.state.lock().overrun = true;
        assert_eq!(eq.push(event()), Err(Errno::EOVERRUN));
        assert_eq!(eq.read(), Ok(event()));
        assert_eq!(eq.read(), Err(Errno::EAVAIL));
        assert_eq!(eq.try_wait(), Err(Errno::EAGAIN));
        assert_eq!(eq.read_error(true).unwrap().err, Errno::EOVERRUN);
        assert_eq!(eq.sread(None), Err(Errno::EAVAIL));
    }
}
