//! When tasks poll a domain before they sleep, and what the library's thread does meanwhile.
//! `docs/design/async-progress.md` says why.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a task polls at most before its runtime gets a turn.
pub(crate) const SLICE: Duration = Duration::from_micros(20);

/// How long operations may follow one another in one turn of the runtime, as far as they are waited
/// for.
const TURN: Duration = Duration::from_micros(200);

/// Operations in one turn of the runtime.
const OPS_PER_TURN: u32 = 128;

/// Waits in a row that were too long to be polled for, after which there is no polling.
const MISSES: u32 = 4;

/// Then one wait in so many polls all the same.
const PROBE_EVERY: u32 = 16;

/// How long the library's thread leaves the domain to tasks that poll. They may have ended, or their
/// runtime may be busy: it looks after them then.
const STANDBY: Duration = Duration::from_millis(1);

/// Who polls a domain, and whether that is worth it.
#[derive(Debug)]
pub(crate) struct Polling {
    /// The longest that one wait polls.
    limit: Duration,
    /// Waits in a row that were longer than that.
    misses: AtomicU32,
    /// Waits that did not poll, for the next probe.
    skipped: AtomicU32,
    /// Slices that tasks have polled, so that the library's thread sees that they do.
    slices: AtomicU64,
    /// No task polls, or will soon: the library's thread has to see what comes.
    resting: AtomicBool,
    /// The library's thread stands by.
    standby: AtomicBool,
    thread: OnceLock<Thread>,
}

impl Polling {
    pub(crate) const fn new(limit: Duration) -> Self {
        Self {
            limit,
            misses: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            slices: AtomicU64::new(0),
            resting: AtomicBool::new(true),
            standby: AtomicBool::new(false),
            thread: OnceLock::new(),
        }
    }

    pub(crate) const fn limit(&self) -> Duration {
        self.limit
    }

    /// A wait begins. Returns whether it should poll.
    pub(crate) fn begin_wait(&self) -> bool {
        if self.limit.is_zero() {
            return false;
        }
        if self.limit == Duration::MAX || self.misses.load(Ordering::Relaxed) < MISSES {
            return true;
        }
        let skipped = self.skipped.fetch_add(1, Ordering::Relaxed);
        (skipped + 1).is_multiple_of(PROBE_EVERY)
    }

    /// A wait has taken so long, or was given up after that.
    pub(crate) fn note_wait(&self, took: Duration) {
        if took < self.limit {
            self.misses.store(0, Ordering::Relaxed);
        } else {
            let misses = self.misses.load(Ordering::Relaxed);
            self.misses
                .store((misses + 1).min(MISSES), Ordering::Relaxed);
        }
    }

    /// A task polls for a slice.
    pub(crate) fn note_slice(&self) {
        self.resting.store(false, Ordering::SeqCst);
        self.slices.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether tasks poll, and the library's thread may stand by.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.resting.load(Ordering::Relaxed)
    }

    /// Nobody polls from here on: the library's thread, if there is one, sees what comes.
    pub(crate) fn rest(&self) {
        // In this order: the thread announces that it stands by, and then looks whether anybody rests.
        self.resting.store(true, Ordering::SeqCst);
        if self.standby.load(Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// For the library's thread: stands by for a while if tasks have polled since `seen`. Returns
    /// whether it did.
    pub(crate) fn stand_by(&self, seen: &mut u64, stop: impl Fn() -> bool) -> bool {
        let slices = self.slices.load(Ordering::Relaxed);
        if std::mem::replace(seen, slices) == slices {
            return false;
        }
        self.thread.get_or_init(thread::current);
        self.standby.store(true, Ordering::SeqCst);
        let stands_by = !self.resting.load(Ordering::SeqCst) && !stop();
        if stands_by {
            thread::park_timeout(STANDBY);
        }
        self.standby.store(false, Ordering::SeqCst);
        stands_by
    }
}

/// The wait that tasks of a domain are in, however many they are; part of the table.
#[derive(Debug, Default)]
pub(crate) struct Quiet {
    /// Since when nothing has begun and nothing was over; none while no task waits, and after polling
    /// was given up.
    since: Option<Instant>,
    /// What had begun and what was over when that was looked at.
    seen: (usize, usize),
    /// This wait polls.
    polls: bool,
    /// The waiter whose task polls for all, and when it was last seen.
    poller: Option<(WaiterId, Instant)>,
}

/// What a task waits for: an operation, or events ([`Watch`](crate::watch::Watch)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaiterId {
    /// By its number.
    Op(usize),
    /// By its number.
    Watch(u64),
}

/// What a task that waits does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Polls for all.
    Poll,
    /// Polls in its next turn: others wait as well, and those that can run go first.
    PollNext,
    /// Another task polls.
    Sleep,
    /// Nobody polls.
    Rest,
}

impl Quiet {
    /// A task waits. Returns whether it is to poll.
    fn wait(&mut self, now: Instant, seen: (usize, usize), polling: &Polling) -> bool {
        if std::mem::replace(&mut self.seen, seen) != seen {
            self.since = Some(now);
            self.polls = polling.begin_wait();
        }
        let Some(since) = self.since.filter(|_| self.polls) else {
            return false;
        };
        let waited = now.duration_since(since);
        if waited < polling.limit() {
            return true;
        }
        polling.note_wait(waited);
        self.since = None;
        self.polls = false;
        false
    }

    /// The part of a task that waits, beside others if they are not `alone`.
    pub(crate) fn part(
        &mut self,
        waiter: WaiterId,
        (now, seen): (Instant, (usize, usize)),
        alone: bool,
        polling: &Polling,
    ) -> Part {
        if !self.wait(now, seen, polling) {
            self.poller = None;
            return Part::Rest;
        }
        let late = |at: Instant| now.duration_since(at) >= STANDBY;
        match self.poller {
            Some((other, at)) if other != waiter && !late(at) => return Part::Sleep,
            _ => {}
        }
        let before = self.poller.replace((waiter, now));
        if alone || before.is_some_and(|(before, _)| before == waiter) {
            Part::Poll
        } else {
            Part::PollNext
        }
    }

    /// A waiter does not wait any more.
    pub(crate) fn leave(&mut self, waiter: WaiterId) {
        if self.poller.is_some_and(|(poller, _)| poller == waiter) {
            self.poller = None;
        }
    }

    /// Whether no task is to poll.
    pub(crate) const fn lacks_poller(&self) -> bool {
        self.poller.is_none()
    }

    /// Something is over.
    pub(crate) fn end(&mut self, polling: &Polling) {
        if let Some(since) = self.since.take() {
            polling.note_wait(since.elapsed());
        }
    }
}

thread_local! {
    /// What this thread has had of the turn of its runtime: since when, and operations.
    static HAD: Cell<(Option<Instant>, u32)> = const { Cell::new((None, 0)) };
}

/// A future was ready at once.
pub(crate) fn note_ready() {
    let (since, ops) = HAD.get();
    HAD.set((since, ops.saturating_add(1)));
}

/// A future returns to its runtime.
pub(crate) fn note_pending() {
    HAD.set((None, 0));
}

/// Whether the thread's runtime should get its turn before another operation is looked at.
pub(crate) fn is_turn_over() -> bool {
    HAD.get().1 >= OPS_PER_TURN
}

/// Whether the time of this turn is over; begins it if need be.
pub(crate) fn is_time_over(now: Instant) -> bool {
    match HAD.get() {
        (Some(since), _) => now.duration_since(since) >= TURN,
        (None, ops) => {
            HAD.set((Some(now), ops));
            false
        }
    }
}
