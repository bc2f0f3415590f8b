//! Progress: reads what has arrived and writes what waits, for every call that makes progress. A
//! fast poll of the [active connections](crate::state::active) is all that most calls need; a full poll
//! goes over all links and epoll.
//!
//! ```text
//! progress, and reads of completion queues (api/cq.rs)
//!  |
//!  v
//! fast_poll (poll.rs): the active connection whose turn it is, while nothing waits to be written
//!  |    found something: a queue read tries fast_receive (rx/fast.rs), then handle_found (rx/small_messages.rs)
//!  |    found nothing:   done
//!  v    not enough, since its budget is spent or there is something else to do
//! progress_all: writes what was put off, then by what is left of the poll budget
//!  |    reads an active connection, and polls links (links.rs) if that has nothing, or
//!  |    polls links only, where no connection is active
//!  v    no budget left
//! full_poll: links, epoll (connections, listeners, handshakes, the timer), connections that have ended
//! ```
//!
//! [`State::poll_all`] is a full poll with epoll in any case, for threads that are about to sleep. What
//! the engine leaves to be done after it was called is in [`tidy`].

pub(crate) mod links;
pub(crate) mod poll;
pub(crate) mod tidy;

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_os::Event;

use crate::progress::poll::FastPoll;
use crate::state::active::{ACTIVE, EMPTY_POLLS};
use crate::state::connection::Connection;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::link::Link as _;
use crate::transport::readiness::{is_polled, polls_links, watches_links};
use crate::transport::{DirectOf, Transport};

impl<T: Transport> State<T> {
    /// Makes progress without waiting: writes what waits, reads what has arrived.
    #[inline(never)]
    pub(crate) fn progress(&mut self) {
        match self.fast_poll() {
            FastPoll::Nothing => {}
            FastPoll::Insufficient => _ = self.progress_all(),
            found => self.handle_found(found),
        }
    }

    /// Makes progress where a fast poll is not enough. Returns whether there was anything to do.
    #[inline(never)]
    pub(crate) fn progress_all(&mut self) -> bool {
        self.end_burst();
        self.active.suspend_fast_polls();
        match self.active.first() {
            Some(id) if self.active.budget > 0 => {
                if self.read_connection(id) {
                    self.active.found_slow(T::System::ticks);
                    return true;
                }
                self.active.note_idle();
                self.active.suspend_fast_polls();
                self.active.budget = self.active.budget.saturating_sub(1);
                let mut any = false;
                if polls_links::<T>()
                    && let (1.., last) = self.poll_links()
                {
                    self.note_active(1, last);
                    any = true;
                }
                if self.watches_links() && self.active.is_full_poll_due(T::System::ticks) {
                    return self.full_poll();
                }
                self.resume_fast_polls();
                any
            }
            None if !self.watches_links() && self.active.budget > 0 => self.poll_links_only(),
            _ => self.full_poll(),
        }
    }

    /// Polls all connections and other descriptors, epoll included.
    pub(crate) fn poll_all(&mut self) {
        self.active.epoll_at = Duration::ZERO;
        self.full_poll();
    }

    /// A full poll: all links, and epoll unless it was asked a moment ago. Returns whether there was
    /// anything to do.
    fn full_poll(&mut self) -> bool {
        if std::mem::replace(&mut self.full_poll_runs, true) {
            return false;
        }
        let ended = self.ending.len();
        let (mut active, mut last) = match polls_links::<T>() {
            true => self.poll_links(),
            false => (0, None),
        };
        let watches = self.watches_links();
        let polls_epoll = !polls_links::<T>() || self.active.polls_epoll(watches, T::System::now);
        let found =
            polls_epoll && self.epoll.poll(&mut self.events).is_ok() && !self.events.is_empty();
        if found {
            for index in 0..self.events.len() {
                let Some(event) = self.events.at(index) else {
                    break;
                };
                if let Some(id) = self.handle_event(event) {
                    active += 1;
                    last = Some(id);
                }
            }
        }
        if polls_links::<T>() && self.doorbell_rang {
            self.rearm_doorbells();
        }
        let any = found || active > 0;
        if any {
            self.note_active(active, last);
        } else if self.active.untracked_for > 0 {
            self.active.untracked_for -= 1;
        }
        if polls_epoll && !self.ending.is_empty() {
            let full = self.events.is_full();
            self.end_connections(if full { ended } else { usize::MAX });
        }
        self.full_poll_runs = false;
        // Peers that may reach what this side has exposed wait to be told of what was applied.
        self.active.refill(polls_epoll || !self.exposed.is_empty());
        if watches && polls_epoll {
            self.active.full_poll_at = T::System::ticks();
            if found && polls_links::<T>() {
                // More may come of what delivers: the next full poll asks again.
                self.active.epoll_at = Duration::ZERO;
            }
            self.active.empty_polls = match any {
                true => 0,
                false => (self.active.empty_polls + 1).min(EMPTY_POLLS),
            };
        }
        self.resume_fast_polls();
        self.wake_any_waiters();
        any
    }

    /// Handles what epoll has reported; returns the connection it is of, if that is still open.
    #[inline(always)]
    fn handle_event(&mut self, event: Event) -> Option<ConnId> {
        let id = event.token as u32;
        match event.token & token::KIND {
            token::CONNECTION => {
                let id = ConnId::new(id)?;
                let connection = self.connection(id)?;
                if token::connection(id, connection.generation) != event.token {
                    return None;
                }
                self.handle_connection(id, event);
                return Some(id);
            }
            token::LISTENER => {
                if let Some(id) = EpId::new(id) {
                    self.handle_listener(id);
                    self.after();
                }
            }
            token::ACCEPTING => {
                self.handle_accepting(id);
                self.after();
            }
            token::TIMER => self.handle_timer(),
            token::WORK => self.drain_again(),
            token::HALF_CLOSED => self.release_half_closed(),
            _ => {}
        }
        None
    }

    /// Handles what epoll reports of a connection, or the poll of a link that the domain polls itself: handshakes,
    /// doorbells and records, room to write, and bytes to read.
    pub(crate) fn handle_connection(&mut self, id: ConnId, event: Event) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_up() {
            self.handle_handshake(id);
            self.after();
            return;
        }
        let polled = connection.is_polled();
        if polled && let Some(link) = connection.link.as_ref() {
            link.drain_doorbell(&mut connection.windows);
            connection.mapped =
                DirectOf::<T>::SUPPORTED && DirectOf::<T>::has_windows(&connection.windows);
            let asked = DirectOf::<T>::take_requests(link);
            self.doorbell_rang = true;
            self.unwatch_ended(id);
            if !asked.is_empty() {
                self.lend(id, &asked);
            }
        }
        if !polled && (event.error() || event.hangup()) {
            self.fail_soon_if_stalled(id);
            if event.hangup() {
                self.unwatch_hung_up(id);
            }
        }
        if event.writable() {
            self.flush(id);
        }
        if event.readable() || event.error() || event.hangup() {
            self.read_connection(id);
        }
    }

    /// Whether there may be links of which only epoll reports what happens.
    #[inline(always)]
    pub(crate) fn watches_links(&self) -> bool {
        watches_links::<T>() && (!polls_links::<T>() || self.watched_links > 0)
    }

    /// Whether the domain polls the link of a connection itself.
    pub(crate) fn is_polled(&self, id: ConnId) -> bool {
        polls_links::<T>() && self.connections.get(id).is_some_and(Connection::is_polled)
    }

    /// Tracks the connection that was just active, to be read first. After a poll with more than
    /// [`ACTIVE`] of them none is tracked for a while: only full polls are worth it.
    pub(crate) fn note_active(&mut self, active: u32, last: Option<ConnId>) {
        if active as usize > ACTIVE {
            self.active.untrack();
        } else if self.active.untracked_for > 0 {
            self.active.untracked_for -= 1;
        } else if active > 0
            && let Some(last) = last
            && !self.active.contains(last)
        {
            let Some(connection) = self.connections.get(last) else {
                return;
            };
            let (true, Some(link)) = (connection.is_up(), &connection.link) else {
                return;
            };
            let link = Arc::clone(link);
            let header_next = self.is_header_next(last);
            self.active.add(last, &link, header_next);
            if polls_links::<T>() && watches_links::<T>() {
                let mut links = self.active.links.iter().flatten();
                let calls = links.any(|link| !is_polled::<T>(link));
                self.yield_policy.set_calls(calls);
            }
        }
    }

    /// A connection ends, or stalls: it is not active any more.
    pub(crate) fn remove_active(&mut self, id: ConnId) {
        self.active.remove(id);
        self.resume_fast_polls();
    }

    /// This thread has yielded, see [`YieldPolicy::note_yield`](crate::state::yield_policy::YieldPolicy::note_yield).
    pub(crate) fn note_yield(&mut self, took: Duration, switched: bool) {
        if self.yield_policy.note_yield(took, switched) {
            // Much may have arrived meanwhile, also where nothing was just active.
            self.active.poll_soon();
        }
    }

    /// Allows fast polls again, unless bytes wait to be written.
    pub(crate) fn resume_fast_polls(&mut self) {
        if !self.dirty.is_empty() {
            self.active.suspend_fast_polls();
        } else {
            self.active.resume_fast_polls();
        }
    }

    /// Whether the next bytes of a connection are a header, so that they go to the receive buffer.
    fn is_header_next(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id);
        self.engine.rx_in_header(id)
            && connection.is_some_and(|connection| connection.interest.read)
    }

    /// Notes for an active connection whether its next bytes are a header.
    pub(crate) fn note_header_next(&mut self, id: ConnId) {
        if !self.active.contains(id) {
            return;
        }
        let header_next = self.is_header_next(id);
        for place in 0..ACTIVE {
            if self.active.ids[place] == id {
                self.active.header_next[place] = header_next;
            }
        }
        self.resume_fast_polls();
    }
}
