//! The active connections: the one or two that delivered something last. Progress reads them before
//! it polls all, and this says how often it may do so: each poll of them that finds nothing spends
//! one unit of a poll budget, and all connections are polled once that is spent.

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::ConnId;

/// Active connections, at most.
pub(crate) const ACTIVE: usize = 2;

/// Poll budget after a full poll: polls of the active connections that find nothing.
const POLL_BUDGET: u32 = 32;

/// The same after a full poll that left out epoll, since it was asked a moment before.
const POLL_BUDGET_WITHOUT_EPOLL: u32 = 256;

/// Where epoll reports all that happens, a full poll is due this many [`ticks`](ripstop_os::clock::ticks) after
/// the last one (24 to 120 us), however much poll budget is left. Where processes share a
/// processor and yield it, a few polls may take as long as all that the others do. Not applied
/// after [`EMPTY_POLLS`].
const FULL_POLL_TICKS: u32 = 120_000;

/// Full polls in a row that found nothing, after which [`FULL_POLL_TICKS`] is not applied.
pub(crate) const EMPTY_POLLS: u32 = 64;

/// Every 64th successful poll of an active connection spends poll budget, so that other connections
/// are not starved while the active ones always have something.
const FINDS_PER_UNIT: u32 = 64;

/// When 64 successful polls take this many [`ticks`](ripstop_os::clock::ticks) (60 to 300 ms), a full poll
/// is due. Each is then a time slice after the one before, since processes share a processor, and
/// those that wait to be accepted cannot wait for thousands of them.
const SLOW_FINDS_TICKS: u32 = 300_000_000;

/// Full polls in a row after a connection had no room to be written.
const ROOM_POLLS: u32 = 64;

/// Every 16th of these asks epoll too, where that does not report room.
const ROOM_POLLS_PER_EPOLL: u32 = 16;

/// Time between two calls of epoll where it reports only handshakes and ends: a call takes longer
/// than a message does.
const EPOLL_INTERVAL: Duration = Duration::from_micros(20);

/// Full polls without result before connections are tracked again, after more than [`ACTIVE`] of
/// them were active at once.
const UNTRACKED_POLLS: u32 = 64;

/// See the [module](self). It is part of a domain's state and used under its lock.
#[derive(Debug)]
pub(crate) struct ActiveConnections<L> {
    /// Their links, all or none; a connection that is the only one is there twice.
    pub(crate) links: [Option<Arc<L>>; ACTIVE],
    /// Their ids.
    pub(crate) ids: [ConnId; ACTIVE],
    /// Whether the next bytes are a header and the connection is not stalled, so that it can be read
    /// to the receive buffer.
    pub(crate) header_next: [bool; ACTIVE],
    /// Which of them is polled next. One that delivers stays first until it has nothing.
    pub(crate) turn: bool,
    /// One more than the part of the poll budget that [`State::fast_poll`](crate::state::State)
    /// may spend: while every `header_next` holds and nothing waits to be written. Else 1.
    pub(crate) fast_budget: u32,
    /// The rest of the poll budget.
    pub(crate) budget: u32,
    /// The last read of an active connection had short writes.
    pub(crate) short_writes: bool,
    /// Successful polls until one spends poll budget; never 0 between two polls.
    finds_left: u32,
    /// When the last poll spent poll budget for that, in ticks.
    finds_since: u32,
    /// Full polls until connections are tracked again.
    pub(crate) untracked_for: u32,
    /// Full polls in a row from now on, since a connection waits for room to be written, which
    /// reads do not notice.
    room_polls: u32,
    /// Full polls; wraps.
    polls: u32,
    /// When epoll was asked, where it reports only handshakes and ends; 0 asks it next time.
    pub(crate) epoll_at: Duration,
    /// When the last full poll was, in ticks, where epoll reports all.
    pub(crate) full_poll_at: u32,
    /// Full polls since one found something, up to [`EMPTY_POLLS`].
    pub(crate) empty_polls: u32,
}

impl<L> Default for ActiveConnections<L> {
    fn default() -> Self {
        Self {
            links: Default::default(),
            ids: [ConnId::FIRST; ACTIVE],
            header_next: [false; ACTIVE],
            turn: false,
            fast_budget: 1,
            budget: 0,
            short_writes: false,
            finds_left: FINDS_PER_UNIT,
            finds_since: 0,
            untracked_for: 0,
            room_polls: 0,
            polls: 0,
            epoll_at: Duration::ZERO,
            full_poll_at: 0,
            empty_polls: 0,
        }
    }
}

impl<L> ActiveConnections<L> {
    /// The connection that is polled next.
    #[inline]
    pub(crate) fn first(&self) -> Option<ConnId> {
        let turn = usize::from(self.turn);
        self.links[turn].is_some().then_some(self.ids[turn])
    }

    /// A fast poll found something. The clock is read only if it decides.
    #[inline(always)]
    pub(crate) fn found(&mut self, ticks: impl FnOnce() -> u32) {
        self.finds_left -= 1;
        if self.finds_left == 0 {
            self.spend_fast(ticks());
        }
    }

    #[cold]
    fn spend_fast(&mut self, now: u32) {
        self.fast_budget = self.fast_budget.saturating_sub(1).max(1);
        self.end_finds(now);
    }

    /// A poll that is not a fast one found something.
    pub(crate) fn found_slow(&mut self, ticks: impl FnOnce() -> u32) {
        self.finds_left -= 1;
        if self.finds_left == 0 {
            self.budget = self.budget.saturating_sub(1);
            self.end_finds(ticks());
        }
    }

    /// The last of [`FINDS_PER_UNIT`] finds.
    fn end_finds(&mut self, now: u32) {
        self.finds_left = FINDS_PER_UNIT;
        let took = now.wrapping_sub(self.finds_since);
        self.finds_since = now;
        if took >= SLOW_FINDS_TICKS {
            self.poll_next();
        }
    }

    /// A poll found nothing: the other one is next.
    #[inline]
    pub(crate) fn note_idle(&mut self) {
        self.turn = !self.turn;
    }

    pub(crate) fn contains(&self, id: ConnId) -> bool {
        self.links[0].is_some() && self.ids.contains(&id)
    }

    /// Adds a connection in the place of the oldest.
    pub(crate) fn add(&mut self, id: ConnId, link: &Arc<L>, header_next: bool) {
        if self.links[1].is_none() {
            self.put(0, id, link, header_next);
        } else {
            self.links.swap(0, 1);
            (self.ids[0], self.header_next[0]) = (self.ids[1], self.header_next[1]);
        }
        self.put(1, id, link, header_next);
    }

    fn put(&mut self, place: usize, id: ConnId, link: &Arc<L>, header_next: bool) {
        self.links[place] = Some(Arc::clone(link));
        (self.ids[place], self.header_next[place]) = (id, header_next);
    }

    /// Removes a connection, if it is one of them.
    pub(crate) fn remove(&mut self, id: ConnId) {
        if self.ids == [id; ACTIVE] {
            self.links = Default::default();
            return;
        }
        for (place, other) in [(0, 1), (1, 0)] {
            if self.ids[place] == id {
                self.links[place] = self.links[other].clone();
                (self.ids[place], self.header_next[place]) =
                    (self.ids[other], self.header_next[other]);
            }
        }
    }

    /// More than [`ACTIVE`] connections were active at once: tracks none for some full polls.
    pub(crate) fn untrack(&mut self) {
        *self = Self {
            untracked_for: UNTRACKED_POLLS,
            room_polls: self.room_polls,
            ..Self::default()
        };
    }

    /// Something else is to be done before the next fast poll.
    #[inline]
    pub(crate) fn suspend_fast_polls(&mut self) {
        self.budget += self.fast_budget - 1;
        self.fast_budget = 1;
    }

    /// Allows fast polls again, if the next bytes of every active connection are a header.
    pub(crate) fn resume_fast_polls(&mut self) {
        self.suspend_fast_polls();
        if self.links[0].is_some() && self.header_next == [true; ACTIVE] {
            self.fast_budget += std::mem::take(&mut self.budget);
        }
    }

    /// The next call of progress is a full poll, with epoll.
    pub(crate) const fn poll_next(&mut self) {
        (self.fast_budget, self.budget) = (1, 0);
        self.epoll_at = Duration::ZERO;
    }

    /// A full poll follows after one more poll of each active connection.
    pub(crate) fn poll_soon(&mut self) {
        const READS: u32 = ACTIVE as u32;
        let budget = self.fast_budget - 1 + self.budget;
        self.fast_budget = self.fast_budget.min(READS + 1);
        self.budget = budget.min(READS) - (self.fast_budget - 1);
    }

    /// Whether the time since the last full poll asks for another one.
    #[inline(always)]
    pub(crate) fn is_full_poll_due(&self, ticks: impl FnOnce() -> u32) -> bool {
        self.empty_polls < EMPTY_POLLS && ticks().wrapping_sub(self.full_poll_at) >= FULL_POLL_TICKS
    }

    /// A poll of all links found nothing.
    pub(crate) fn spend(&mut self) {
        self.budget = self.budget.saturating_sub(1);
    }

    /// After a full poll: the budget until the next one, the shorter one if `soon`.
    pub(crate) fn refill(&mut self, soon: bool) {
        let reads = if soon {
            POLL_BUDGET
        } else {
            POLL_BUDGET_WITHOUT_EPOLL
        };
        (self.fast_budget, self.budget) = (1, reads);
        if self.room_polls > 0 {
            self.room_polls -= 1;
            self.budget = 0;
        }
    }

    /// Whether a full poll asks epoll, where that reports neither bytes nor room, or that of some links
    /// only (`watches`). The clock is read only if it decides.
    pub(crate) fn polls_epoll(&mut self, watches: bool, clock: impl FnOnce() -> Duration) -> bool {
        self.polls = self.polls.wrapping_add(1);
        let of_room = self.room_polls > 0 && !self.polls.is_multiple_of(ROOM_POLLS_PER_EPOLL);
        if of_room && !watches {
            return false;
        }
        let now = clock();
        let polls_epoll = now.saturating_sub(self.epoll_at) >= EPOLL_INTERVAL;
        if polls_epoll {
            self.epoll_at = now;
        }
        polls_epoll
    }

    /// A connection waits for room to be written.
    pub(crate) const fn wait_for_room(&mut self) {
        self.room_polls = ROOM_POLLS;
        self.poll_next();
    }
}

#[cfg(test)]
mod tests;
