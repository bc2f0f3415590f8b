//! What a domain is while it is open: its objects and its table of operations, and the progress that
//! waiting futures make.

mod undriven;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use ripstop_core::Info;
use ripstop_core::eq::{EqAttr, EventQueue};
use ripstop_os::{Epoll, EventFd, Events, Interest};
use ripstop_types::{EpType, Errno, WaitObj};

use crate::backend::AnyDomain;
use crate::domain_attr::{ANSWER_TIMEOUT, Attr, Progress};
use crate::fabric::Fabric;
use crate::later::Later;
use crate::polling::{self, Part, Polling, SLICE, WaiterId};
use crate::table::Table;

/// How long the leader sleeps at most while operations wait for room: a provider tells of
/// completions, and this is for room that comes about without one.
const WITH_BACKLOG: Duration = Duration::from_millis(10);

/// Polls between two offers of the processor to other threads.
const YIELD_EVERY: u32 = 16;

/// The event queue is looked at once in so many steps, if it does not say that it has events.
const EVENTS_EVERY: u32 = 16;

/// What a domain's handles share.
#[derive(Debug)]
pub(crate) struct Core {
    table: Mutex<Table>,
    pub(crate) domain: AnyDomain,
    /// For connections; RDM domains have none.
    pub(crate) eq: Option<Arc<EventQueue>>,
    pub(crate) fabric: Fabric,
    pub(crate) info: Info,
    pub(crate) id: u32,
    polling: Polling,
    steps: AtomicU32,
    /// Readable when [`Core::advance`] has something to do.
    set: Epoll,
    /// The same, and `kick`.
    bed: Epoll,
    kick: EventFd,
    /// The leader is asleep, or about to be.
    asleep: AtomicBool,
    /// A thread of the library drives.
    background: bool,
    /// Threads that drive it while they wait inside a call.
    blocked: AtomicU32,
    /// It is looked after, see [`crate::undriven`].
    pub(crate) looked_after: AtomicBool,
    stop: AtomicBool,
    lead: Mutex<()>,
    followers: Mutex<Vec<Thread>>,
}

impl Core {
    pub(crate) fn open(fabric: &Fabric, info: &Info, attr: &Attr) -> Result<Arc<Self>, Errno> {
        static IDS: AtomicU32 = AtomicU32::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let domain = fabric.object().domain(info)?;
        match attr.answer_timeout {
            Some(time) => domain.set_answer_timeout(time),
            None => domain.set_default_answer_timeout(ANSWER_TIMEOUT),
        }
        let (set, bed, kick) = (Epoll::new()?, Epoll::new()?, EventFd::new()?);
        set.add(domain.wait_fd()?, 0, Interest::READ)?;
        let eq = if info.ep.ep_type == EpType::Msg {
            let eq = EventQueue::open(&EqAttr {
                wait_obj: WaitObj::Fd,
                ..EqAttr::default()
            })?;
            set.add(eq.wait_fd()?, 0, Interest::READ)?;
            Some(Arc::new(eq))
        } else {
            None
        };
        bed.add(&set, 0, Interest::READ)?;
        bed.add(&kick, 0, Interest::READ)?;
        Ok(Arc::new(Self {
            table: Mutex::new(Table::new(id, info)),
            domain,
            eq,
            fabric: fabric.clone(),
            info: info.clone(),
            id,
            polling: Polling::new(attr.busy_poll),
            steps: AtomicU32::new(0),
            set,
            bed,
            kick,
            asleep: AtomicBool::new(false),
            background: attr.progress == Progress::Background,
            blocked: AtomicU32::new(0),
            looked_after: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            lead: Mutex::new(()),
            followers: Mutex::new(Vec::new()),
        }))
    }

    /// Works on the table; wakers run when it is unlocked again.
    #[inline]
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Table, &mut Later) -> T) -> T {
        let mut later = Later::default();
        let mut table = self.table.lock();
        let result = act(&mut table, &mut later);
        let backlog = table.has_backlog();
        drop(table);
        later.run();
        if backlog {
            // Whoever sleeps without a limit has one now.
            self.kick();
        }
        result
    }

    /// Makes progress without blocking; returns whether anything came of it.
    #[inline]
    pub(crate) fn advance(&self) -> bool {
        self.with(|table, later| self.advance_in(table, later))
    }

    /// As [`Core::advance`], with the table in hand.
    #[inline]
    pub(crate) fn advance_in(&self, table: &mut Table, later: &mut Later) -> bool {
        let any = table.reap(&self.domain, later);
        if any {
            table.quiet.end(&self.polling);
        }
        match &self.eq {
            None => any,
            Some(eq) => self.take_events(eq, table, later) || any,
        }
    }

    fn take_events(&self, eq: &EventQueue, table: &mut Table, later: &mut Later) -> bool {
        // The queue's own progress is that of the domain once more, and that of listeners.
        let step = self.steps.fetch_add(1, Ordering::Relaxed);
        if eq.is_empty() && !step.is_multiple_of(EVENTS_EVERY) {
            return false;
        }
        table.connections.take_events(eq, later)
    }

    /// What `take` finds in the table, if need be after progress.
    #[inline]
    pub(crate) fn find<T>(
        &self,
        table: &mut Table,
        later: &mut Later,
        advance: bool,
        take: impl Fn(&mut Table, &mut Later) -> Option<T>,
    ) -> Option<T> {
        let found = take(table, later);
        if found.is_some() || !advance {
            return found;
        }
        self.advance_in(table, later);
        take(table, later)
    }

    /// The step of a future: as [`Core::find`]. Where there is nothing yet, `wait` notes whom to wake,
    /// and the task polls the domain for a slice where that is worth it.
    #[inline]
    pub(crate) fn poll<T>(
        self: &Arc<Self>,
        waker: &Waker,
        advance: bool,
        take: impl Fn(&mut Table, &mut Later) -> Option<T>,
        wait: impl FnOnce(&mut Table, &mut Later) -> Option<WaiterId>,
    ) -> Poll<T> {
        // Calls that drive the domain while they wait poll for what is awaited in them.
        let driven = self.blocked.load(Ordering::Relaxed) > 0;
        if !driven && polling::is_turn_over() {
            return self.give_turn(waker, wait);
        }
        let mut waiter = None;
        let found = self.with(|table, later| {
            let found = self.find(table, later, advance, &take);
            if found.is_none() {
                waiter = wait(table, later);
            } else if !advance {
                self.succeed(table, later);
            }
            found
        });
        let found = match (found, waiter) {
            (None, Some(waiter)) if !driven => self.poll_a_slice(waiter, waker, take),
            (found, _) => found,
        };
        if found.is_some() {
            polling::note_ready();
        } else {
            polling::note_pending();
            self.expect_progress();
        }
        found.map_or(Poll::Pending, Poll::Ready)
    }

    /// A task has had much of its runtime's time: it looks again in the next turn.
    #[cold]
    fn give_turn<T>(
        &self,
        waker: &Waker,
        wait: impl FnOnce(&mut Table, &mut Later) -> Option<WaiterId>,
    ) -> Poll<T> {
        let _waiter = self.with(wait);
        polling::note_pending();
        waker.wake_by_ref();
        Poll::Pending
    }

    /// What a task that waits does now.
    fn part(&self, waiter: WaiterId, now: Instant) -> Part {
        let mut table = self.table.lock();
        let (steps, alone) = (table.steps(), table.is_one_awaited());
        table.quiet.part(waiter, (now, steps), alone, &self.polling)
    }

    /// Polls the domain on behalf of all tasks that wait in it, one of which has registered `waker`:
    /// until `take` finds something, others are woken, or a slice is over. Where that is not all there
    /// is to poll, the task wakes itself, so that it goes on after its runtime's turn.
    fn poll_a_slice<T>(
        &self,
        waiter: WaiterId,
        waker: &Waker,
        take: impl Fn(&mut Table, &mut Later) -> Option<T>,
    ) -> Option<T> {
        if self.polling.limit().is_zero() {
            return None;
        }
        let start = Instant::now();
        let part = self.part(waiter, start);
        match part {
            Part::Sleep => return None,
            Part::Rest => self.polling.rest(),
            Part::Poll | Part::PollNext => self.polling.note_slice(),
        }
        let mut over = part != Part::Poll || polling::is_time_over(start);
        let mut now = start;
        while !over && now.duration_since(start) < SLICE {
            let found = self.with(|table, later| {
                self.advance_in(table, later);
                let found = take(table, later);
                // Those that are woken go first.
                over = later.wakes();
                if found.is_some() {
                    table.quiet.leave(waiter);
                    self.succeed(table, later);
                }
                found
            });
            if found.is_some() {
                return found;
            }
            now = Instant::now();
        }
        if part != Part::Rest && (over || self.part(waiter, now) != Part::Rest) {
            waker.wake_by_ref();
        } else {
            self.polling.rest();
        }
        None
    }

    /// A task leaves that may have polled for others as well: one of those goes on.
    #[inline]
    pub(crate) fn succeed(&self, table: &mut Table, later: &mut Later) {
        if self.polling.is_at_work() && table.quiet.lacks_poller() {
            table.call_successor(later);
        }
    }

    /// Whether it is safe to block on the descriptor (`fi_trywait(3)`).
    pub(crate) fn try_wait(&self) -> bool {
        // It may move bytes, which happens only under this lock.
        let _table = self.table.lock();
        let queue = |eq: &Arc<EventQueue>| eq.try_wait().is_ok();
        self.domain.try_wait().is_ok() && self.eq.as_ref().is_none_or(queue)
    }

    /// A task waits from here on. Something has to drive the domain, so where nothing may, that is
    /// looked after.
    #[inline]
    pub(crate) fn expect_progress(self: &Arc<Self>) {
        let alone = !self.background && self.blocked.load(Ordering::Relaxed) == 0;
        if alone && !self.looked_after.swap(true, Ordering::SeqCst) {
            undriven::look_after(self);
        }
    }

    /// How much progress was made, and whether any task waits for more.
    pub(crate) fn state(&self) -> (u64, bool) {
        let table = self.table.lock();
        (table.advances, table.is_awaited())
    }

    /// Wakes the leader, if it is asleep.
    pub(crate) fn kick(&self) {
        if self.asleep.load(Ordering::SeqCst) {
            // An eventfd that is open takes it.
            let _ = self.kick.signal();
        }
    }

    /// Blocks until there may be something to do, unless `ready`. For the leader only.
    fn sleep(&self, limit: Option<Duration>, events: &mut Events, ready: impl Fn() -> bool) {
        // Announced first: whoever makes `ready` true, or adds to the backlog, after these two
        // were looked at finds the announcement and kicks.
        self.asleep.store(true, Ordering::SeqCst);
        let backlog = self.table.lock().has_backlog();
        let limit = match (limit, backlog) {
            (Some(limit), true) => Some(limit.min(WITH_BACKLOG)),
            (None, true) => Some(WITH_BACKLOG),
            (limit, false) => limit,
        };
        if !ready() && self.try_wait() {
            // A signal that interrupts is no harm: the caller looks again.
            let _ = self.bed.wait(events, limit);
        }
        self.asleep.store(false, Ordering::SeqCst);
        let _ = self.kick.drain();
    }

    /// Polls what `take` looks at for the time that calls may spin.
    #[inline]
    pub(crate) fn spin<T>(
        &self,
        end: Option<Instant>,
        mut take: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        if let Some(taken) = take() {
            return Some(taken);
        }
        if !self.polling.begin_wait() {
            return None;
        }
        let start = Instant::now();
        let end = match (start.checked_add(self.polling.limit()), end) {
            (Some(own), Some(end)) => Some(own.min(end)),
            (own, end) => own.or(end),
        };
        let mut polls = 0u32;
        while end.is_none_or(|end| Instant::now() < end) {
            if let Some(taken) = take() {
                self.polling.note_wait(start.elapsed());
                return Some(taken);
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(YIELD_EVERY) {
                // What this waits for may need the processor.
                thread::yield_now();
            }
        }
        let took = start.elapsed();
        if took >= self.polling.limit() {
            self.polling.note_wait(took);
        }
        None
    }

    /// Polls a future, making progress or sleeping in between, until it is ready (`Some`) or
    /// the time is over.
    pub(crate) fn block<T>(
        self: &Arc<Self>,
        end: Option<Instant>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Option<T> {
        let waiter = Arc::new(Waiter {
            thread: thread::current(),
            woken: AtomicBool::new(false),
            core: Arc::downgrade(self),
        });
        let waker = Waker::from(Arc::clone(&waiter));
        self.blocked.fetch_add(1, Ordering::Relaxed);
        let mut post = Post {
            core: self,
            lead: None,
            events: Events::with_capacity(1),
        };
        loop {
            waiter.woken.store(false, Ordering::SeqCst);
            if let Poll::Ready(result) = poll(&mut Context::from_waker(&waker)) {
                return Some(result);
            }
            let woken = || waiter.woken.load(Ordering::SeqCst);
            let polled = self.spin(end, || {
                // Parked followers make room for the leader.
                let _any = self.advance();
                woken().then_some(())
            });
            if polled.is_some() {
                continue;
            }
            while !woken() {
                let left = end.map(|end| end.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    return None;
                }
                post.rest(left, woken);
                self.advance();
            }
        }
    }

    /// Polls a future as [`Core::block`] does, for as long as it takes.
    pub(crate) fn block_on<T>(
        self: &Arc<Self>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> T {
        loop {
            if let Some(result) = self.block(None, &mut poll) {
                return result;
            }
        }
    }

    /// Offers the lead to a follower, if nobody has it.
    fn hand_over(&self) {
        if self.lead.is_locked() {
            return;
        }
        let next = self.followers.lock().first().cloned();
        if let Some(thread) = next {
            thread.unpark();
        }
    }

    /// The work of the library's own thread: the lead, until the domain closes.
    fn attend(&self) {
        let _lead = self.lead.lock();
        let mut events = Events::with_capacity(1);
        let stop = || self.stop.load(Ordering::SeqCst);
        let mut seen = 0;
        while !stop() {
            if !self.advance() && !self.polling.stand_by(&mut seen, stop) {
                self.sleep(None, &mut events, stop);
            }
        }
    }
}

impl AsFd for Core {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

/// A thread that waits in [`Core::block`].
struct Waiter {
    thread: Thread,
    woken: AtomicBool,
    core: Weak<Core>,
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        // It is parked, or it is the leader and asleep.
        self.thread.unpark();
        if let Some(core) = self.core.upgrade() {
            core.kick();
        }
    }
}

/// The place of a waiting thread: leader or follower.
struct Post<'a> {
    core: &'a Core,
    lead: Option<MutexGuard<'a, ()>>,
    events: Events,
}

impl Post<'_> {
    /// Sleeps as leader, if there is no other, or is parked.
    fn rest(&mut self, limit: Option<Duration>, woken: impl Fn() -> bool) {
        if self.lead.is_none() {
            // On the list before the attempt: a leader that leaves later sees this thread.
            self.enlist();
            self.lead = self.core.lead.try_lock();
            if self.lead.is_some() {
                self.delist();
            }
        }
        if self.lead.is_some() {
            return self.core.sleep(limit, &mut self.events, woken);
        }
        self.core.polling.rest();
        match limit {
            _ if woken() => {}
            Some(limit) => thread::park_timeout(limit),
            None => thread::park(),
        }
    }

    fn enlist(&self) {
        let this = thread::current();
        let mut followers = self.core.followers.lock();
        if !followers.iter().any(|other| other.id() == this.id()) {
            followers.push(this);
        }
    }

    fn delist(&self) {
        let this = thread::current().id();
        let mut followers = self.core.followers.lock();
        followers.retain(|other| other.id() != this);
    }
}

impl Drop for Post<'_> {
    fn drop(&mut self) {
        self.core.blocked.fetch_sub(1, Ordering::Relaxed);
        self.delist();
        self.lead = None;
        self.core.hand_over();
    }
}

/// A domain with the thread that may drive it.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(core: Arc<Core>) -> Result<Arc<Self>, Errno> {
        let thread = if core.background {
            let core = Arc::clone(&core);
            let spawned = thread::Builder::new()
                .name("ripstop".into())
                .spawn(move || core.attend());
            Some(spawned.map_err(|_| Errno::EAGAIN)?)
        } else {
            None
        };
        Ok(Arc::new(Self { core, thread }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else {
            return;
        };
        self.core.stop.store(true, Ordering::SeqCst);
        self.core.kick();
        thread.thread().unpark();
        // A waker that the thread calls may be the last to let go of the domain.
        if thread.thread().id() != thread::current().id() {
            // It ends by returning, unless a waker panicked there.
            let _ = thread.join();
        }
    }
}

/// What a step of a [`Driver`](crate::Driver) came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There may be more to do: take another turn.
    Busy,
    /// Nothing more to do until the descriptor is readable.
    Idle,
}
