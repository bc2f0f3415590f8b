//! Waiting for queues and counters, by descriptor or inside a call.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_os::{Epoll, EventFd, Events, Interest};
use ripstop_types::{Errno, Result, WaitObj};

use crate::api::domain::{Domain, Mode};
use crate::state::State;
use crate::state::waiters::{Calls, Waited};
use crate::system::System as _;
use crate::transport::Transport;
use crate::transport::readiness::polls_links;

/// Polls before a thread sleeps: what comes soon needs no sleep.
const POLLS_BEFORE_SLEEP: u32 = 64;

/// The wait object of a queue or counter.
#[derive(Debug)]
pub(crate) struct Wait {
    obj: WaitObj,
    /// Where the program sleeps outside, once it has asked for the descriptor.
    lent: OnceLock<Seat>,
    seats: Mutex<Seats>,
}

/// What a wait does when the process gets a signal (POSIX), and so its handler runs, while it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnSignal {
    /// Looks once more and ends with [`Errno::EAGAIN`], as `fi_cq(3)` says of `fi_cq_sread`.
    End,
    /// Goes on: `fi_cntr(3)` knows a wait to end by its threshold, an error or its time only.
    GoOn,
}

/// Where threads sleep in a call.
#[derive(Debug, Default)]
struct Seats {
    /// Of threads that do not sleep any more.
    spare: Vec<Seat>,
    calls: Calls<Arc<EventFd>>,
}

/// What is missing where there is no [`Seat`].
const NO_SEAT: &str = "descriptor to wait on (epoll_create1, eventfd2)";

/// Where one sleeps: the descriptor is readable when the domain has something to do, or when
/// somebody else's progress, or a call, has rung the doorbell.
#[derive(Debug)]
struct Seat {
    epoll: Epoll,
    doorbell: Arc<EventFd>,
}

impl Seat {
    fn new<T: Transport, K: Mode>(domain: &Domain<T, K>) -> Result<Self> {
        let epoll = Epoll::new()?;
        let doorbell = Arc::new(EventFd::new()?);
        epoll.add(&*doorbell, 0, Interest::READ)?;
        epoll.add(&*domain.inner.epoll, 1, Interest::READ)?;
        Ok(Self { epoll, doorbell })
    }

    /// Sleeps until the domain has something to do or the doorbell rings, at most for `time`; whether
    /// a signal to the process has ended that. Whoever calls looks again before the next time.
    fn sleep<T: Transport, K: Mode>(
        &self,
        domain: &Domain<T, K>,
        events: &mut Events,
        time: Option<Duration>,
    ) -> Result<bool> {
        if domain.inner.begin_sleep() {
            return Ok(false);
        }
        domain.inner.waiting.enter();
        let slept = self.epoll.wait(events, time);
        domain.inner.waiting.leave();
        domain.inner.end_sleep();
        self.doorbell.drain()?;
        match slept {
            Ok(_) => Ok(false),
            Err(Errno::EINTR) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Wait {
    pub(crate) fn new<T: Transport, K: Mode>(domain: &Domain<T, K>, obj: WaitObj) -> Result<Self> {
        let mut seats = Seats::default();
        match obj {
            // The first thread that waits finds its seat.
            WaitObj::Unspec | WaitObj::MutexCond => {
                let seat = Seat::new(domain).inspect_err(lacks!(T::Cq, NO_SEAT));
                seats.spare.push(seat?);
            }
            WaitObj::None | WaitObj::Fd | WaitObj::PollFd | WaitObj::Yield => {}
            WaitObj::Set => return Err(Errno::ENOSYS),
        }
        Ok(Self {
            obj,
            lent: OnceLock::new(),
            seats: Mutex::new(seats),
        })
    }

    pub(crate) const fn obj(&self) -> WaitObj {
        self.obj
    }

    /// The descriptor for the program, readable once there is what it waits for, as is said under
    /// the domain's lock.
    pub(crate) fn fd<T: Transport, K: Mode>(
        &self,
        domain: &Domain<T, K>,
        what: impl Fn() -> Waited,
    ) -> Result<BorrowedFd<'_>> {
        if !matches!(self.obj, WaitObj::Fd | WaitObj::PollFd | WaitObj::Unspec) {
            return Err(Errno::ENODATA);
        }
        if let Some(lent) = self.lent.get() {
            return Ok(lent.epoll.as_fd());
        }
        let seat = Seat::new(domain).inspect_err(lacks!(T::Cq, NO_SEAT))?;
        let lent = self.lent.get_or_init(|| seat);
        let mut state = domain.lock();
        state.waiters.arm(&lent.doorbell, what());
        state.wake_waiters();
        Ok(lent.epoll.as_fd())
    }

    /// Ends the wait of every thread, see [`Calls`].
    pub(crate) fn signal(&self) -> Result<()> {
        if self.obj == WaitObj::None {
            return Err(Errno::ENOSYS);
        }
        self.seats.lock().calls.call();
        match self.lent.get() {
            Some(lent) => lent.doorbell.signal(),
            None => Ok(()),
        }
    }

    /// The object closes.
    pub(crate) fn close<T: Transport>(&self, state: &mut State<T>) {
        if let Some(lent) = self.lent.get() {
            state.waiters.disarm(&lent.doorbell);
            state.disarm_doorbells();
        }
    }

    /// Whether a program may block on the descriptor: `ready` says that it should not.
    pub(crate) fn try_wait<T: Transport, K: Mode>(
        &self,
        domain: &Domain<T, K>,
        what: impl Fn() -> Waited,
        ready: impl Fn(&mut State<T>) -> bool,
    ) -> Result<()> {
        if matches!(self.obj, WaitObj::Fd | WaitObj::PollFd | WaitObj::Unspec) {
            self.fd(domain, &what)?;
        }
        let mut state = domain.lock();
        state.progress();
        state.poll_all();
        // The doorbell stays as it is, for others that sleep on the descriptor.
        if self.seats.lock().calls.take_left() || ready(&mut state) || !state.dirty.is_empty() {
            return Err(Errno::EAGAIN);
        }
        let Some(lent) = self.lent.get() else {
            return Ok(());
        };
        lent.doorbell.drain()?;
        // A call that came meanwhile, without the domain's lock, has rung what is silent now.
        if self.seats.lock().calls.take_left() {
            return Err(Errno::EAGAIN);
        }
        state.waiters.arm(&lent.doorbell, what());
        if polls_links::<T>() {
            if state.arm_doorbells() {
                state.disarm_doorbells();
                return Err(Errno::EAGAIN);
            }
            state.waiters.go_outside(&lent.doorbell);
        }
        Ok(())
    }

    /// Waits until `ready` gives a result, at most `timeout`. [`Errno::EAGAIN`] when the time
    /// is over, somebody called [`Wait::signal`], or a signal came that ends this wait.
    pub(crate) fn wait<T: Transport, K: Mode, R>(
        &self,
        domain: &Domain<T, K>,
        timeout: Option<Duration>,
        on_signal: OnSignal,
        what: impl Fn(&mut State<T>) -> Waited,
        mut ready: impl FnMut(&mut State<T>) -> Option<R>,
    ) -> Result<R> {
        let end = timeout.map(|timeout| T::System::now().saturating_add(timeout));
        let mut seat = None;
        let mut look = |seat: &Option<Seat>, all: bool| {
            domain.inner.note_activity();
            let mut state = domain.lock();
            state.progress();
            let mut result = ready(&mut state);
            if all && result.is_none() {
                state.poll_all();
                result = ready(&mut state);
            }
            if let (None, Some(seat)) = (&result, seat) {
                let what = what(&mut state);
                state.waiters.arm(&seat.doorbell, what);
            }
            result
        };
        let outcome = self.repeat(domain, end, on_signal, &mut seat, &mut look);
        if let Some(seat) = seat {
            let mut state = domain.lock();
            state.waiters.disarm(&seat.doorbell);
            state.disarm_doorbells();
            drop(state);
            let mut seats = self.seats.lock();
            seats.calls.leave(&seat.doorbell);
            seats.spare.push(seat);
        }
        outcome
    }

    /// Looks, at all descriptors after a while, and sleeps in between once there is a seat, until
    /// there is something.
    fn repeat<T: Transport, K: Mode, R>(
        &self,
        domain: &Domain<T, K>,
        end: Option<Duration>,
        on_signal: OnSignal,
        seat: &mut Option<Seat>,
        look: &mut impl FnMut(&Option<Seat>, bool) -> Option<R>,
    ) -> Result<R> {
        let calls = self.seats.lock().calls.count();
        let mut events = Events::with_capacity(2);
        let mut polls = POLLS_BEFORE_SLEEP;
        let mut signalled = false;
        loop {
            if let Some(result) = look(seat, polls == 0) {
                return Ok(result);
            }
            if self.seats.lock().calls.hear(calls) || signalled && on_signal == OnSignal::End {
                return Err(Errno::EAGAIN);
            }
            let left = match end {
                None => None,
                Some(end) => {
                    let left = end.saturating_sub(T::System::now());
                    if left.is_zero() {
                        return Err(Errno::EAGAIN);
                    }
                    Some(left)
                }
            };
            match seat {
                Some(seat) => signalled = seat.sleep(domain, &mut events, left)?,
                None if polls > 0 => {
                    polls -= 1;
                    if polls == 0 {
                        *seat = self.take_seat(domain);
                    }
                }
                None => T::System::yield_now(),
            }
        }
    }

    /// A seat for the calling thread; none where waiting is giving up the processor.
    #[cold]
    fn take_seat<T: Transport, K: Mode>(&self, domain: &Domain<T, K>) -> Option<Seat> {
        if matches!(self.obj, WaitObj::None | WaitObj::Yield) {
            return None;
        }
        let spare = self.seats.lock().spare.pop();
        let seat = match spare.map_or_else(|| Seat::new(domain), Ok) {
            Ok(seat) => seat,
            Err(error) => {
                log_warn_sparse!(
                    T::Cq,
                    "a thread that waits has no descriptor to sleep on ({error}), and polls; raise \
                     the limit on open files"
                );
                return None;
            }
        };
        self.seats.lock().calls.enter(&seat.doorbell);
        Some(seat)
    }
}
