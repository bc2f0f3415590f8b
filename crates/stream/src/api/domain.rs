//! Domains: the lock, the progress thread, and the objects made from them.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ripstop_core::lock::{Lock, Locking, Serial, Shared};
use ripstop_core::provider::{
    self, AvAttr, CollLimit, CounterAttr, CqAttr, MrAttr, Threshold, Token, Work, WorkOp,
};
use ripstop_core::{EventQueue, Info, ProgressSource, RxAttr, TxAttr};
use ripstop_engine::id::CounterId;
use ripstop_engine::stream::MAX_ATOMIC;
use ripstop_engine::triggered::{Basis, When};
use ripstop_os::{EventFd, Events, Interest, thread};
use ripstop_types::{AtomicKind, AtomicOp, Collective, Datatype, Errno, Flags, Progress, Result};

use crate::api::av::Av;
use crate::api::counter::Counter;
use crate::api::cq::Cq;
use crate::api::endpoint::Endpoint;
use crate::api::fabric::Fabric;
use crate::api::mr::{Finder, Mr};
use crate::api::owned::PeerRx;
use crate::api::scalable::ScalableEp;
use crate::api::srx::SharedRx;
use crate::api::stx::SharedTx;
use crate::deferred::coll::{Group, MAX_MEMBERS, check_elements};
use crate::deferred::triggered::Held;
use crate::progress::links::polls_links;
use crate::state::yield_policy::YieldNow;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::{PollerOf, Transport};

/// How long the progress thread leaves a domain alone that the application polls itself.
const STANDBY: Duration = Duration::from_millis(1);

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
    pub(crate) waiting: AtomicU32,
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
    #[inline]
    pub(crate) fn pause(&self) {
        let yields = self.state.lock().next_yield();
        match yields {
            YieldNow::No => {}
            YieldNow::Yes => std::thread::yield_now(),
            YieldNow::Measure => self.yield_and_measure(),
        }
    }

    #[cold]
    #[inline(never)]
    fn yield_and_measure(&self) {
        // Before and after by the same thread, as each has a count of its own.
        let switches = thread::switches();
        let before = T::System::now();
        std::thread::yield_now();
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
        while !self.stop.load(Ordering::Acquire) {
            std::thread::park_timeout(STANDBY);
            let now = self.activity.load(Ordering::Relaxed);
            if now != seen || self.waiting.load(Ordering::Relaxed) > 0 {
                seen = now;
                continue;
            }
            self.take_over(&mut events, seen);
            seen = self.activity.load(Ordering::Relaxed);
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
            let back = self.activity.load(Ordering::Relaxed) != seen
                || self.waiting.load(Ordering::Relaxed) > 0;
            if back || self.stop.load(Ordering::Acquire) {
                self.state.lock().unattended = false;
                return;
            }
        }
    }
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
    pub(crate) fn open(fabric: &Arc<Fabric<T>>, info: &Info) -> Result<Arc<Self>> {
        let epoll = PollerOf::<T>::new().inspect_err(lacks!(
            T,
            Domain,
            "descriptor to watch others by (epoll_create1)"
        ));
        let epoll = Arc::new(epoll?);
        let wake = EventFd::new().inspect_err(lacks!(
            T,
            Domain,
            "descriptor that wakes threads (eventfd2)"
        ))?;
        epoll.add(&wake, token::WAKE, Interest::READ)?;
        let state = State::new(Arc::clone(&fabric.params), Arc::clone(&epoll))?;
        let inner = Arc::new(Inner {
            state: K::Lock::new(state),
            epoll,
            wake,
            activity: AtomicU64::new(0),
            waiting: AtomicU32::new(0),
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
        let connections = state.connections.iter().flatten();
        connections
            .filter_map(|connection| connection.link.clone())
            .collect()
    }

    /// The id of a counter of this domain.
    fn counter_id(self: &Arc<Self>, counter: &Counter<T, K>) -> Result<CounterId> {
        match Arc::ptr_eq(&counter.domain, self) {
            true => Ok(counter.id),
            false => Err(Errno::EINVAL),
        }
    }

    /// What an operation waits for, in the words of the engine.
    pub(crate) fn reached(
        self: &Arc<Self>,
        when: Threshold<'_, Self>,
        basis: Basis,
    ) -> Result<When> {
        Ok(When {
            counter: self.counter_id(when.counter)?,
            basis,
            threshold: when.value,
        })
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

impl<T: Transport, K: Mode> provider::Domain for Domain<T, K> {
    type Endpoint = Endpoint<T, K>;
    type ScalableEp = ScalableEp<T, K>;
    type SharedRx = SharedRx<T, K>;
    type PeerRx = PeerRx<T, K>;
    type SharedTx = SharedTx<T, K>;
    type Cq = Cq<T, K>;
    type Counter = Counter<T, K>;
    type Av = Av<T, K>;
    type Mr = Mr<T, K>;
    type Group = Group<T, K>;

    fn endpoint(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<Endpoint<T, K>>> {
        Endpoint::open(self, info, token)
    }

    fn scalable_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<ScalableEp<T, K>>> {
        ScalableEp::open(self, info, token)
    }

    fn shared_rx(self: &Arc<Self>, attr: &RxAttr) -> Result<Arc<SharedRx<T, K>>> {
        SharedRx::open(self, attr)
    }

    fn peer_rx(self: &Arc<Self>) -> Result<Arc<PeerRx<T, K>>> {
        // Owners such as lnx open domains with what `fi_getinfo(3)` gave them, and keep it there.
        if !self.info.caps.contains(Flags::PEER) {
            log_warn!(
                T,
                EpCtrl,
                "a receive context of another provider needs an interface with FI_PEER; ask for it \
                 in the caps of the hints"
            );
            return Err(Errno::EINVAL);
        }
        PeerRx::open(self)
    }

    fn shared_tx(self: &Arc<Self>, attr: &TxAttr) -> Result<Arc<SharedTx<T, K>>> {
        SharedTx::open(self, attr)
    }

    fn cq(self: &Arc<Self>, attr: &CqAttr) -> Result<Arc<Cq<T, K>>> {
        Cq::open(self, attr)
    }

    fn counter(self: &Arc<Self>, attr: &CounterAttr) -> Result<Arc<Counter<T, K>>> {
        Counter::open(self, attr)
    }

    fn av(self: &Arc<Self>, attr: &AvAttr) -> Result<Arc<Av<T, K>>> {
        Av::open(self, attr)
    }

    fn mr(self: &Arc<Self>, attr: &MrAttr) -> Result<Arc<Mr<T, K>>> {
        Mr::register(self, attr)
    }

    fn atomic_limit(&self, kind: AtomicKind, datatype: Datatype, op: AtomicOp) -> Result<usize> {
        if !kind.allows(op, datatype) || !ripstop_mem::atomic::supported(datatype) {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(MAX_ATOMIC / datatype.size())
    }

    fn queue_work(self: &Arc<Self>, work: &Work<'_, Self>) -> Result<()> {
        let when = self.reached(work.when, Basis::All)?;
        let held = match &work.op {
            WorkOp::Set(counter, value) => {
                Held::change(work.token, self.counter_id(counter)?, *value, false)
            }
            WorkOp::Add(counter, value) => {
                Held::change(work.token, self.counter_id(counter)?, *value, true)
            }
            WorkOp::Data { ep, call, done } => {
                if !Arc::ptr_eq(&ep.domain, self) {
                    return Err(Errno::EINVAL);
                }
                let done = match done {
                    Some(counter) => Some(self.counter_id(counter)?),
                    None => None,
                };
                ep.held(call, Some((work.token, done)))?
            }
            WorkOp::SharedRecv { srx, call, done } => {
                if !Arc::ptr_eq(&srx.domain, self) {
                    return Err(Errno::EINVAL);
                }
                let done = match done {
                    Some(counter) => Some(self.counter_id(counter)?),
                    None => None,
                };
                srx.held(call, Some((work.token, done)))?
            }
        };
        self.lock().hold(when, held)
    }

    fn cancel_work(&self, token: Token) -> Result<()> {
        self.lock().cancel_work(token)
    }

    fn flush_work(self: &Arc<Self>, counter: Option<&Arc<Counter<T, K>>>) -> Result<()> {
        let counter = counter
            .map(|counter| self.counter_id(counter))
            .transpose()?;
        self.lock().flush_work(counter);
        Ok(())
    }

    fn collective_limit(
        &self,
        coll: Collective,
        datatype: Option<Datatype>,
        op: Option<AtomicOp>,
    ) -> Result<CollLimit> {
        if !self.info.caps.contains(Flags::COLLECTIVE) {
            return Err(Errno::EOPNOTSUPP);
        }
        let barrier = coll == Collective::Barrier;
        if barrier != datatype.is_none() || coll.reduces() != op.is_some() {
            return Err(Errno::EOPNOTSUPP);
        }
        if let (Some(datatype), Some(op)) = (datatype, op) {
            check_elements(coll, datatype, op)?;
        }
        let size = datatype.map_or(0, Datatype::size);
        Ok(CollLimit {
            count: self.info.ep.max_msg_size.checked_div(size).unwrap_or(0),
            members: MAX_MEMBERS,
        })
    }

    fn set_answer_timeout(&self, time: Duration) {
        self.lock().answer = time;
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        if let Some(source) = K::source(&self.inner) {
            eq.add_source(&source)?;
        }
        Ok(())
    }
}
