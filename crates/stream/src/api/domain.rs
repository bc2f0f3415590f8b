//! Domains: the lock, the progress thread, and the objects made from them.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ripstop_core::lock::{Lock, Locking, Serial, Shared};
use ripstop_core::provider::same_domain;
use ripstop_core::{Info, ProgressSource};
use ripstop_mem::UserBuf;
use ripstop_os::{Backings, EventFd, Events, Interest, thread};
use ripstop_types::{Errno, Progress, Result};

use crate::api::fabric::Fabric;
use crate::logging::{EPOLL, EVENT_FD};
use crate::state::watch::Sleepers;
use crate::state::yield_policy::YieldNow;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::readiness::polls_links;
use crate::transport::{PollerOf, Transport};

/// How long the progress thread leaves a domain alone that the application polls itself: at least, and at most.
const MIN_STANDBY: Duration = Duration::from_millis(1);
const MAX_STANDBY: Duration = Duration::from_millis(8);

/// In between, this part of the time for which the application has polled it so far. Each look of the thread takes the
/// processor from the application for a while, and who has polled for long will not be missed for such a part of that.
const STANDBY_PART: u32 = 8;

/// How the domain's lock and event queues go together: an event queue may be read from any
/// thread, so only a shared domain can be progressed by one.
pub trait Mode: Locking + fmt::Debug + Sized {
    /// The domain as something an event queue can drive.
    fn source<T: Transport>(domain: &Arc<Inner<T, Self>>) -> Option<Arc<dyn ProgressSource>>;

    /// Starts a thread that makes progress when the application does not.
    ///
    /// # Errors
    /// Of starting a thread.
    fn start<T: Transport>(domain: &Arc<Inner<T, Self>>) -> Result<Option<JoinHandle<()>>>;
}

impl Mode for Shared {
    fn source<T: Transport>(domain: &Arc<Inner<T, Self>>) -> Option<Arc<dyn ProgressSource>> {
        Some(Arc::clone(domain) as Arc<dyn ProgressSource>)
    }

    fn start<T: Transport>(domain: &Arc<Inner<T, Self>>) -> Result<Option<JoinHandle<()>>> {
        let domain = Arc::clone(domain);
        std::thread::Builder::new()
            .name(format!("ripstop-{}", T::NAME))
            .spawn(move || domain.attend())
            .map(Some)
            .map_err(|_| Errno::EAGAIN)
    }
}

impl Mode for Serial {
    fn source<T: Transport>(_: &Arc<Inner<T, Self>>) -> Option<Arc<dyn ProgressSource>> {
        None
    }

    fn start<T: Transport>(_: &Arc<Inner<T, Self>>) -> Result<Option<JoinHandle<()>>> {
        Ok(None)
    }
}

/// What the objects of a domain share.
pub struct Inner<T: Transport, K: Mode> {
    pub(crate) state: K::Lock<State<T>>,
    pub(crate) epoll: Arc<PollerOf<T>>,
    wake: EventFd,
    /// Counts progress made by the application, so that the progress thread can tell.
    activity: AtomicU64,
    /// Application threads that wait inside a call, and so make progress.
    pub(crate) waiting: Arc<Sleepers>,
    stop: AtomicBool,
    /// What is known of the memory of this process.
    pub(crate) finder: K::Lock<Finder>,
}

impl<T: Transport, K: Mode> fmt::Debug for Inner<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl<T: Transport, K: Mode> Inner<T, K> {
    /// Notes that the application drives progress.
    #[inline]
    pub(crate) fn note_activity(&self) {
        if K::SHARED {
            let seen = self.activity.load(Ordering::Relaxed);
            // A lost count is no harm: that it changes is what matters.
            self.activity.store(seen.wrapping_add(1), Ordering::Relaxed);
        }
    }

    /// Whether a thread must not sleep until epoll wakes it, since there is something to do;
    /// otherwise [`Inner::end_sleep`] follows.
    pub(crate) fn begin_sleep(&self) -> bool {
        polls_links::<T>() && self.state.lock().begin_sleep()
    }

    /// Follows [`Inner::begin_sleep`] that let the thread sleep.
    pub(crate) fn end_sleep(&self) {
        if polls_links::<T>() {
            self.state.lock().end_sleep();
        }
    }

    /// Yields the processor, unless the policy says to poll on.
    #[cold]
    #[inline(never)]
    pub(crate) fn pause(&self) {
        let yields = self.state.lock().next_yield();
        match yields {
            YieldNow::No => {}
            YieldNow::Yes => T::System::yield_now(),
            YieldNow::Measure => self.yield_and_measure(),
        }
    }

    #[cold]
    #[inline(never)]
    fn yield_and_measure(&self) {
        // Before and after by the same thread, as each has a count of its own.
        let switches = thread::switches();
        let before = T::System::now();
        T::System::yield_now();
        let took = T::System::now().saturating_sub(before);
        let switched = switches.is_some() && switches != thread::switches();
        self.state.lock().note_yield(took, switched);
    }
}

impl<T: Transport> Inner<T, Shared> {
    /// The progress thread: stands by while the application makes progress itself, and else
    /// waits for events in its place.
    fn attend(&self) {
        let mut events = Events::with_capacity(1);
        let mut seen = self.activity.load(Ordering::Relaxed);
        let mut attended = Duration::ZERO;
        while !self.stop.load(Ordering::Acquire) {
            let standby = standby_after(attended);
            std::thread::park_timeout(standby);
            let now = self.activity.load(Ordering::Relaxed);
            if now != seen || self.waiting.any() {
                seen = now;
                attended = attended.saturating_add(standby);
                continue;
            }
            self.take_over(&mut events, seen);
            seen = self.activity.load(Ordering::Relaxed);
            attended = Duration::ZERO;
        }
    }

    /// Makes progress until the application does again.
    fn take_over(&self, events: &mut Events, seen: u64) {
        loop {
            {
                let mut state = self.state.lock();
                state.unattended = true;
                state.progress();
                state.poll_all();
            }
            // Level-triggered: what the progress left is told again.
            if !self.begin_sleep() {
                let _ = self.epoll.wait(events);
                self.end_sleep();
            }
            let back = self.activity.load(Ordering::Relaxed) != seen || self.waiting.any();
            if back || self.stop.load(Ordering::Acquire) {
                self.state.lock().unattended = false;
                return;
            }
        }
    }
}

/// How long the progress thread stands by after the application has polled for so long.
fn standby_after(attended: Duration) -> Duration {
    (attended / STANDBY_PART).clamp(MIN_STANDBY, MAX_STANDBY)
}

impl<T: Transport> ProgressSource for Inner<T, Shared> {
    fn progress(&self) {
        self.note_activity();
        let mut state = self.state.lock();
        state.progress();
        state.poll_all();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn before_wait(&self) -> bool {
        self.begin_sleep()
    }

    fn after_wait(&self) {
        self.end_sleep();
    }
}

/// A domain.
#[derive(Debug)]
pub struct Domain<T: Transport, K: Mode> {
    pub(crate) inner: Arc<Inner<T, K>>,
    pub(crate) fabric: Arc<Fabric<T>>,
    pub(crate) info: Info,
    thread: Option<JoinHandle<()>>,
}

impl<T: Transport, K: Mode> Domain<T, K> {
    /// Checks that `what`, which a call brings to an object of this domain, is of this domain too.
    ///
    /// # Errors
    /// [`Errno::EDOMAIN`], with a line in the log.
    pub(crate) fn check_same(self: &Arc<Self>, other: &Arc<Self>, what: &str) -> Result<()> {
        same_domain(T::NAME, what, self, other)
    }

    pub(crate) fn open(fabric: &Arc<Fabric<T>>, info: &Info) -> Result<Arc<Self>> {
        let epoll = PollerOf::<T>::new().inspect_err(lacks!(T::Domain, EPOLL));
        let epoll = Arc::new(epoll?);
        let wake = EventFd::new().inspect_err(lacks!(T::Domain, EVENT_FD))?;
        epoll.add(&wake, token::WAKE, Interest::READ)?;
        let state = State::new(Arc::clone(&fabric.params), Arc::clone(&epoll))?;
        let waiting = Arc::clone(&state.watch.sleepers);
        let inner = Arc::new(Inner {
            state: K::Lock::new(state),
            epoll,
            wake,
            activity: AtomicU64::new(0),
            waiting,
            stop: AtomicBool::new(false),
            finder: K::Lock::new(Finder::default()),
        });
        let automatic = |p| matches!(p, Progress::Auto | Progress::Unspec);
        let wanted = automatic(info.domain.progress) || automatic(info.domain.control_progress);
        let thread = if wanted && !fabric.tunables().no_thread {
            K::start(&inner)?
        } else {
            None
        };
        inner.state.lock().watch.has_thread = thread.is_some();
        Ok(Arc::new(Self {
            inner,
            fabric: Arc::clone(fabric),
            info: info.clone(),
            thread,
        }))
    }

    /// The links of all connections, as they are at this moment: to look at, not to read or write.
    #[must_use]
    pub fn links(&self) -> Vec<Arc<T::Link>> {
        let state = self.lock();
        let connections = state.connections.iter();
        connections
            .filter_map(|connection| connection.link.clone())
            .collect()
    }

    /// How many operations an endpoint has under way at most, of which so many were asked for. As in C, that is a number that
    /// fits, not a limit: programs that ask for few take `FI_EAGAIN` for the end.
    pub(crate) fn tx_room(&self, asked: usize) -> usize {
        asked.max(self.fabric.tunables().tx_size).max(1)
    }

    /// The state, with the note that the application is active.
    #[inline]
    pub(crate) fn lock(&self) -> <K::Lock<State<T>> as Lock<State<T>>>::Guard<'_> {
        self.inner.state.lock()
    }
}

impl<T: Transport, K: Mode> Drop for Domain<T, K> {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // Without the wake-up it would end at its next event.
            let _ = self.inner.wake.signal();
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Binds an object where none is bound yet.
pub(crate) fn bind_once<O>(place: &mut Option<Arc<O>>, object: &Arc<O>) -> Result<()> {
    match place {
        Some(_) => Err(Errno::EINVAL),
        None => {
            *place = Some(Arc::clone(object));
            Ok(())
        }
    }
}

/// What a domain knows of the memory of this process.
#[derive(Debug, Default)]
pub(crate) struct Finder {
    pub(crate) backings: Backings,
    /// It was said once that memory is not for peers to map.
    pub(crate) told: bool,
}

/// A region that was checked for memory that peers may map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Looked {
    pub(crate) memory: UserBuf,
    pub(crate) base: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_stands_by_for_a_part_of_the_time_that_the_program_has_polled() {
        let standby = |polled| standby_after(Duration::from_millis(polled)).as_millis();
        assert_eq!([0, 8, 24, 64, 1000].map(standby), [1, 1, 3, 8, 8]);
    }
}
