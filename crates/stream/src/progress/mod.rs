//! Progress: reads what has arrived and writes what waits, for every call that makes progress. A
//! fast poll of the [active connections](crate::active) is all that most calls need; a full poll
//! goes over all links and epoll.

pub(crate) mod links;

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::Engine;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};

use crate::progress::links::{Readiness as _, polls_links};
use crate::rx::fast::MAX_SHORT_WRITE;
use crate::state::active::{ACTIVE, EMPTY_POLLS};
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::{Link as _, Transport};

/// What a fast poll has found, for [`State::handle_found`]: this many bytes at the front of the
/// receive buffer; or [`READY`]; or [`NOTHING`]; or, below, an error with its sign changed.
pub(crate) type Found = isize;

/// There is something that was not read yet, on a link that is received from in place.
pub(crate) const READY: Found = Found::MAX;

/// It was not read: more is to be done, by [`State::progress_all`].
pub(crate) const NOTHING: Found = 0;

/// The outcome of [`State::fast_poll`].
pub(crate) enum FastPoll {
    /// Nothing has arrived, and nothing else is to be done.
    Nothing,
    /// Go on with this.
    Found(Found),
}

impl<T: Transport> State<T> {
    /// Makes progress without waiting: writes what waits, reads what has arrived.
    #[inline(never)]
    pub(crate) fn progress(&mut self) {
        match self.fast_poll() {
            FastPoll::Nothing => {}
            FastPoll::Found(NOTHING) => _ = self.progress_all(),
            FastPoll::Found(found) => self.handle_found(found),
        }
    }

    /// YieldPolicy the active connection whose turn it is, if there is nothing else to do: reads it, or
    /// sees that it has something. Inlined into each call that makes progress.
    #[inline(always)]
    pub(crate) fn fast_poll(&mut self) -> FastPoll {
        self.burst = false;
        let active = &mut self.active;
        if active.fast_budget == 1 {
            return FastPoll::Found(NOTHING);
        }
        let Some(link) = &active.links[usize::from(active.turn)] else {
            return FastPoll::Found(NOTHING);
        };
        let found = match T::Link::IN_PLACE {
            true if link.is_ready() => READY,
            true => NOTHING,
            false => match link.recv_once(&mut self.rx_buffer) {
                Err(Errno::EAGAIN) => NOTHING,
                outcome => Self::found_by(outcome),
            },
        };
        if found != NOTHING {
            return FastPoll::Found(found);
        }
        active.fast_budget -= 1;
        active.note_idle();
        match polls_links::<T>() {
            true if self.readiness.is_due() => FastPoll::Found(NOTHING),
            false if active.is_full_poll_due(T::System::ticks) => {
                active.poll_next();
                FastPoll::Found(NOTHING)
            }
            _ => FastPoll::Nothing,
        }
    }

    /// The outcome of a read that found something.
    #[inline(always)]
    fn found_by(outcome: Result<usize>) -> Found {
        match outcome {
            Ok(0) => Found::from(-(Errno::ECONNRESET.0 as i16)),
            Ok(count) => count.cast_signed(),
            Err(error) => Found::from(-(error.0 as i16)),
        }
    }

    /// Goes on after a fast poll that has found something.
    #[inline(always)]
    pub(crate) fn handle_found(&mut self, mut found: Found) {
        self.active.found(T::System::ticks);
        if T::Link::IN_PLACE && found == READY {
            let link = &self.active.links[usize::from(self.active.turn)];
            found = match link {
                Some(link) => Self::found_by(link.recv_once(&mut self.rx_buffer)),
                None => NOTHING,
            };
        }
        match usize::try_from(found) {
            Ok(count) => self.handle_active(count),
            Err(_) => self.end_active(Errno(-found as i32)),
        }
    }

    /// The active connection that was read has ended.
    #[cold]
    #[inline(never)]
    fn end_active(&mut self, error: Errno) {
        match self.active.first() {
            Some(id) if error != Errno::EINTR => {
                self.note_end(id, error);
                self.poll_all();
            }
            _ => _ = self.progress_all(),
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
                if !polls_links::<T>() && self.active.is_full_poll_due(T::System::ticks) {
                    return self.full_poll();
                }
                self.resume_fast_polls();
                any
            }
            None if polls_links::<T>() && self.active.budget > 0 => self.poll_links_only(),
            _ => self.full_poll(),
        }
    }

    /// YieldPolicy all connections and other descriptors, epoll included.
    pub(crate) fn poll_all(&mut self) {
        self.active.epoll_at = Duration::ZERO;
        self.full_poll();
    }

    /// A full poll: all links, and epoll unless it was asked a moment ago. Returns whether there was
    /// anything to do.
    fn full_poll(&mut self) -> bool {
        let Some(mut events) = self.events.take() else {
            return false;
        };
        let ended = self.ending.len();
        let (mut active, mut last) = match polls_links::<T>() {
            true => self.poll_links(),
            false => (0, None),
        };
        let polls_epoll = !polls_links::<T>() || self.active.polls_epoll(T::System::now);
        let found = polls_epoll && self.epoll.poll(&mut events).is_ok() && !events.is_empty();
        if found {
            for index in 0..events.len() {
                let Some(event) = events.at(index) else { break };
                let id = event.token as u32;
                match event.token & token::KIND {
                    token::CONNECTION => {
                        let Some(id) = ConnId::new(id) else { continue };
                        let known = self
                            .connection(id)
                            .is_some_and(|s| token::connection(id, s.generation) == event.token);
                        if known {
                            self.handle_connection(id, event);
                            active += 1;
                            last = Some(id);
                        }
                    }
                    token::LISTENER => {
                        let Some(id) = EpId::new(id) else { continue };
                        self.handle_listener(id);
                    }
                    token::ACCEPTING => {
                        self.handle_accepting(id);
                        self.after();
                    }
                    token::TIMER => self.handle_timer(),
                    token::WORK => self.drain_again(),
                    _ => {}
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
            self.end_connections(if events.is_full() { ended } else { usize::MAX });
        }
        self.events = Some(events);
        // Peers that may reach what this side has exposed wait to be told of what was applied.
        self.active.refill(polls_epoll || !self.exposed.is_empty());
        self.active.full_poll_at = T::System::ticks();
        if !polls_links::<T>() {
            self.active.empty_polls = match any {
                true => 0,
                false => (self.active.empty_polls + 1).min(EMPTY_POLLS),
            };
        }
        self.resume_fast_polls();
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
        any
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
            let Some(Some(connection)) = self.connections.get(last.index()) else {
                return;
            };
            let (true, Some(link)) = (connection.is_up(), &connection.link) else {
                return;
            };
            let link = Arc::clone(link);
            let header_next = self.is_header_next(last);
            self.active.add(last, &link, header_next);
        }
    }

    /// A connection ends, or stalls: it is not active any more.
    pub(crate) fn remove_active(&mut self, id: ConnId) {
        self.active.remove(id);
        self.resume_fast_polls();
    }

    /// This thread has yielded, see [`YieldPolicy::note_yield`](crate::state::yield_policy::YieldPolicy::note_yield).
    pub(crate) fn note_yield(&mut self, took: Duration, switched: bool) {
        if self.yielding.note_yield(took, switched) {
            // Much may have arrived meanwhile, also where nothing was just active.
            self.active.poll_soon();
        }
    }

    /// Allows fast polls again, unless bytes wait to be written.
    pub(crate) fn resume_fast_polls(&mut self) {
        if self.has_dirty() {
            self.active.suspend_fast_polls();
        } else {
            self.active.resume_fast_polls();
        }
    }

    /// Whether the next bytes of a connection are a header, so that they go to the receive buffer.
    fn is_header_next(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id.index()).and_then(Option::as_ref);
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

    /// Handles bytes of the active connection, at the front of the receive buffer.
    #[inline(always)]
    fn handle_active(&mut self, count: usize) {
        let Some(id) = self.active.first() else {
            return;
        };
        let bytes = self.rx_buffer.get(..count).unwrap_or_default();
        let taken = take_whole(&mut self.engine, id, bytes);
        if taken != count || count == self.rx_buffer.len() {
            self.handle_more(id, taken, count);
        }
        // Whole messages leave the engine quiet.
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
    }

    /// Goes on with a read of `count` bytes of which a message has taken the first `taken`.
    #[inline(never)]
    fn handle_more(&mut self, id: ConnId, taken: usize, count: usize) {
        let bytes = self.rx_buffer.get(taken..count).unwrap_or_default();
        let rest = match taken {
            0 => count,
            _ => consume_whole(&mut self.engine, id, bytes),
        };
        let rest = match rest {
            1.. if T::Link::IN_PLACE => self.receive_in_place(id, count, rest),
            rest => rest,
        };
        if rest > 0 {
            self.handle_rest(id, count - rest, count);
        } else if count == self.rx_buffer.len() {
            self.read_connection(id);
        }
    }

    /// Receives plain writes, messages between them, and one whose payload the link has ready, from
    /// the last `rest` of `count` bytes in the receive buffer. Returns how many are left.
    pub(crate) fn receive_in_place(&mut self, id: ConnId, count: usize, mut rest: usize) -> usize {
        let Self {
            engine,
            connections,
            rx_buffer,
            active,
            ..
        } = self;
        let Some(Some(connection)) = connections.get(id.index()) else {
            return rest;
        };
        let Some(link) = &connection.link else {
            return rest;
        };
        // What the link has ready follows the last byte in the receive buffer.
        let more = link.payload_ready();
        while let Some(bytes) = rx_buffer.get(count - rest..count) {
            let (whole, stored) = match engine.rx_write(id, bytes, more) {
                Some(whole) => (whole, true),
                None => match engine.rx_whole_with(id, bytes, more) {
                    Some(whole) => (whole, false),
                    None => break,
                },
            };
            let place = whole.memory.first(whole.len);
            let front = bytes.get(whole.header_len..).unwrap_or_default();
            let done = match stored {
                true => {
                    active.short_writes |= whole.len <= MAX_SHORT_WRITE;
                    ripstop_mem::store(place, front)
                }
                false => ripstop_mem::copy_out(place, front),
            };
            rest -= whole.header_len + done;
            if done < whole.len {
                link.recv_payload(place.skip(done));
            }
            if rest == 0 {
                break;
            }
        }
        rest
    }

    /// Handles what is left of a read: the receive buffer from `from` to `to`.
    #[inline(never)]
    fn handle_rest(&mut self, id: ConnId, from: usize, to: usize) {
        let rx_buffer = std::mem::take(&mut self.rx_buffer);
        let done = self.consume(id, &rx_buffer[from..to]);
        let full = to == rx_buffer.len();
        self.rx_buffer = rx_buffer;
        match done {
            Ok(true) => {
                if full || !self.engine.rx_in_header(id) {
                    self.read_connection(id);
                }
            }
            Ok(false) => {}
            Err(error) => self.protocol_error(id, error),
        }
        self.note_header_next(id);
        self.after();
    }
}

/// Takes whole small messages with a posted receive from the front of `bytes`; returns how
/// many bytes are left.
#[inline]
pub(crate) fn consume_whole(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        let taken = take_whole(engine, id, rest);
        rest = rest.get(taken..).unwrap_or_default();
        if taken == 0 || rest.is_empty() {
            return rest.len();
        }
    }
}

/// Takes one such message; returns its length in bytes, 0 if it is another case.
#[inline(never)]
fn take_whole(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    let Some(whole) = engine.rx_whole(id, bytes) else {
        return 0;
    };
    let end = whole.header_len + whole.len;
    if let Some(payload) = bytes.get(whole.header_len..end) {
        ripstop_mem::copy_out(whole.memory, payload);
    }
    end
}

/// A read of nothing is the end of the stream.
pub(crate) fn read_to(outcome: Result<usize>) -> Result<usize> {
    match outcome {
        Ok(0) => Err(Errno::ECONNRESET),
        outcome => outcome,
    }
}
