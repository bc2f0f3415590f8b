//! Waiting for queues and counters, by descriptor or inside a call.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ripstop_os::{Epoll, EventFd, Events, Interest, clock};
use ripstop_types::{Errno, Result, WaitObj};

use crate::domain::{Domain, Mode};
use crate::pulse::looks;
use crate::state::{State, Waited, Waiter};
use crate::transport::Transport;

/// The wait object of a queue or counter: readable when the domain has something to do, or
/// when somebody else's progress changed the object.
#[derive(Debug)]
pub(crate) struct Wait {
    obj: WaitObj,
    parts: Option<Parts>,
    signaled: AtomicBool,
}

#[derive(Debug)]
struct Parts {
    epoll: Epoll,
    event: Arc<EventFd>,
}

impl Wait {
    pub(crate) fn new<T: Transport, K: Mode>(domain: &Domain<T, K>, obj: WaitObj) -> Result<Self> {
        let parts = match obj {
            WaitObj::None => None,
            WaitObj::Unspec | WaitObj::Fd | WaitObj::MutexCond | WaitObj::Yield => {
                let epoll = Epoll::new()?;
                let event = Arc::new(EventFd::new()?);
                epoll.add(&*event, 0, Interest::READ)?;
                epoll.add(&*domain.inner.epoll, 1, Interest::READ)?;
                Some(Parts { epoll, event })
            }
            WaitObj::Set | WaitObj::PollFd => return Err(Errno::ENOSYS),
        };
        Ok(Self {
            obj,
            parts,
            signaled: AtomicBool::new(false),
        })
    }

    pub(crate) const fn obj(&self) -> WaitObj {
        self.obj
    }

    pub(crate) fn fd(&self) -> Result<BorrowedFd<'_>> {
        match (&self.parts, self.obj) {
            (Some(parts), WaitObj::Fd | WaitObj::Unspec) => Ok(parts.epoll.as_fd()),
            _ => Err(Errno::ENODATA),
        }
    }

    pub(crate) fn signal(&self) -> Result<()> {
        let parts = self.parts.as_ref().ok_or(Errno::ENOSYS)?;
        self.signaled.store(true, Ordering::Release);
        parts.event.signal()
    }

    /// Whether [`Wait::signal`] was called since the last time.
    pub(crate) fn take_signal(&self) -> bool {
        self.signaled.load(Ordering::Relaxed) && self.signaled.swap(false, Ordering::AcqRel)
    }

    /// From now on a change wakes; call it with the domain locked and nothing to report.
    pub(crate) fn arm<T: Transport>(&self, state: &mut State<T>, what: Waited) {
        let Some(parts) = &self.parts else { return };
        let same = |w: &Waiter| Arc::ptr_eq(&w.event, &parts.event);
        state.waiters.retain(|w| !same(w));
        state.waiters.push(Waiter {
            what,
            event: Arc::clone(&parts.event),
            outside: false,
        });
    }

    pub(crate) fn disarm<T: Transport>(&self, state: &mut State<T>) {
        let Some(parts) = &self.parts else { return };
        state
            .waiters
            .retain(|w| !Arc::ptr_eq(&w.event, &parts.event));
        state.spare_bells();
    }

    /// Whether a program may block on the descriptor: `ready` says that it should not.
    pub(crate) fn try_wait<T: Transport, K: Mode>(
        &self,
        domain: &Domain<T, K>,
        what: Waited,
        ready: impl Fn(&mut State<T>) -> bool,
    ) -> Result<()> {
        let mut state = domain.lock();
        state.progress();
        state.poll();
        if let Some(parts) = &self.parts {
            parts.event.drain()?;
        }
        if self.take_signal() || ready(&mut state) || state.has_dirty() {
            return Err(Errno::EAGAIN);
        }
        self.arm(&mut state, what);
        self.lend(&mut state)
    }

    /// The program will sleep on the descriptor, unless there is something to do.
    fn lend<T: Transport>(&self, state: &mut State<T>) -> Result<()> {
        if !looks::<T>() {
            return Ok(());
        }
        if state.ask_for_bells() {
            state.spare_bells();
            return Err(Errno::EAGAIN);
        }
        if let (Some(parts), Some(last)) = (&self.parts, state.waiters.last_mut()) {
            last.outside = Arc::ptr_eq(&last.event, &parts.event);
        }
        Ok(())
    }

    /// Waits until `ready` gives a result, at most `timeout`. [`Errno::EAGAIN`] when the time
    /// is over or somebody signalled.
    pub(crate) fn wait<T: Transport, K: Mode, R>(
        &self,
        domain: &Domain<T, K>,
        timeout: Option<Duration>,
        what: impl Fn(&mut State<T>) -> Waited,
        mut ready: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> Result<R> {
        let end = timeout.map(|timeout| clock::now().saturating_add(timeout));
        let mut events = Events::with_capacity(2);
        // A short while of polling: what comes soon needs no sleep.
        let mut polls = 64;
        loop {
            domain.inner.note_activity();
            {
                let mut state = domain.lock();
                state.progress();
                if let Some(result) = ready(&mut state) {
                    self.disarm(&mut state);
                    return Ok(result);
                }
                if self.take_signal() {
                    self.disarm(&mut state);
                    return Err(Errno::EAGAIN);
                }
                if polls == 0 {
                    state.poll();
                    if let Some(result) = ready(&mut state) {
                        self.disarm(&mut state);
                        return Ok(result);
                    }
                    let what = what(&mut state);
                    self.arm(&mut state, what);
                }
            }
            let left = match end {
                None => None,
                Some(end) => {
                    let left = end.saturating_sub(clock::now());
                    if left.is_zero() {
                        self.disarm(&mut domain.lock());
                        return Err(Errno::EAGAIN);
                    }
                    Some(left)
                }
            };
            if polls > 0 {
                polls -= 1;
                continue;
            }
            self.sleep(domain, &mut events, left)?;
        }
    }

    fn sleep<T: Transport, K: Mode>(
        &self,
        domain: &Domain<T, K>,
        events: &mut Events,
        left: Option<Duration>,
    ) -> Result<()> {
        let parts = self.parts.as_ref().filter(|_| self.obj != WaitObj::Yield);
        if parts.is_some() && domain.inner.fall_asleep() {
            return Ok(());
        }
        domain.inner.waiting.fetch_add(1, Ordering::Relaxed);
        let slept = match parts {
            Some(parts) => {
                let slept = parts.epoll.wait(events, left);
                let _ = parts.event.drain();
                slept
            }
            None => {
                std::thread::yield_now();
                Ok(0)
            }
        };
        domain.inner.waiting.fetch_sub(1, Ordering::Relaxed);
        if parts.is_some() {
            domain.inner.wake_up();
        }
        match slept {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
