//! Progress: connections that were just active are read before all others are polled.

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::pool::NIL;
use ripstop_engine::stream::Engine;
use ripstop_mem::UserBuf;
use ripstop_os::clock;
use ripstop_types::{Errno, Result};

use crate::alone::SHORT;
use crate::readiness::{Readiness as _, polls_links};
use crate::state::{State, token};
use crate::transport::{Link as _, Transport};

/// Connections remembered as just active.
const HOT: usize = 2;

/// With connections that were just active, the poll of all others is left out this many times.
const POLL_EVERY: u32 = 32;

/// The same where epoll was not asked when it was its turn: the program polls all the time.
const POLL_SELDOM: u32 = 256;

/// All connections are polled again so many [`ticks`](clock::ticks) after the last time, 24 to 120 us,
/// although fewer than [`POLL_EVERY`] reads were in vain: where processors are shared, each poll of
/// a program that gives up its own takes as long as what the others do meanwhile. Not after
/// [`IN_VAIN`] polls of all in a row that found nothing.
const POLL_AFTER: u32 = 120_000;

/// See [`POLL_AFTER`].
const IN_VAIN: u32 = 64;

/// One of so many reads that find something counts as one in vain, so that others are polled too
/// while the connections that were just active always have something.
const FINDS: u32 = 64;

/// Polls of all in a row after a connection had no room to be written.
const WRITES: u32 = 64;

/// One of so many of these asks epoll too, where that does not tell of room.
const ASKS: u32 = 16;

/// Where epoll tells only of what is rare, polls that follow each other ask it so often at most: it
/// takes longer than a message does.
const RARELY: Duration = Duration::from_micros(20);

/// Polls of all that find nothing before connections are remembered again, after there were many.
const COLD: u32 = 64;

/// The connections that were just active, and how often they are read before all are polled.
#[derive(Debug)]
pub(crate) struct Hot<L> {
    /// Their sockets, all or none; one that is alone is there twice.
    pub(crate) sockets: [Option<Arc<L>>; HOT],
    /// Their ids.
    pub(crate) ids: [u32; HOT],
    /// Whether their next bytes are a header, and they are not stalled: they can be read to the
    /// receive buffer.
    plain: [bool; HOT],
    /// Whether it is the second one's turn. What was active stays first until it has nothing.
    pub(crate) turn: bool,
    /// One more than the reads in vain until the next poll, while all connections are plain and
    /// nothing waits to be written; else 1.
    quick: u32,
    /// Reads in vain until the next poll that are not in `quick`.
    left: u32,
    /// What was read last from a connection that was just active had short writes.
    pub(crate) writes_come: bool,
    /// Reads that are not in vain until one counts as in vain; never 0 between two reads.
    finds: u32,
    /// Polls until connections are remembered again.
    cold_for: u32,
    /// Polls of all in a row from now on: a connection waits for room to be written, which reads do
    /// not notice.
    writes: u32,
    /// Polls of all among these; wraps.
    polls: u32,
    /// When epoll was asked, of a transport that it tells only what is rare; 0 asks it next time.
    asked: Duration,
    /// When all were polled, of a transport that epoll tells all of.
    polled: u32,
    /// Polls of all since one found something, up to [`IN_VAIN`].
    in_vain: u32,
}

/// What a quick read has found, for [`State::handle_found`]: this many bytes at the front of the
/// receive buffer; or [`READY`]; or [`NOTHING`]; or, below, an error with its sign changed.
pub(crate) type Found = isize;

/// There is something that was not read yet, on a link that gathers.
pub(crate) const READY: Found = Found::MAX;

/// It was not read: more is to be done, by [`State::progress_all`].
pub(crate) const NOTHING: Found = 0;

/// The outcome of [`State::read_quick`].
pub(crate) enum Quick {
    /// Nothing has arrived, and nothing else is to be done.
    Nothing,
    /// Go on with this.
    Found(Found),
}

impl<L> Default for Hot<L> {
    fn default() -> Self {
        Self {
            sockets: Default::default(),
            ids: [NIL; HOT],
            plain: [false; HOT],
            turn: false,
            quick: 1,
            left: 0,
            writes_come: false,
            finds: FINDS,
            cold_for: 0,
            writes: 0,
            polls: 0,
            asked: Duration::ZERO,
            polled: 0,
            in_vain: 0,
        }
    }
}

impl<L> Hot<L> {
    /// The connection whose turn it is.
    #[inline]
    fn first(&self) -> Option<u32> {
        let turn = usize::from(self.turn);
        self.sockets[turn].is_some().then_some(self.ids[turn])
    }

    /// A quick read was not in vain.
    #[inline(always)]
    pub(crate) fn found(&mut self) {
        self.finds -= 1;
        if self.finds == 0 {
            self.found_many();
        }
    }

    #[cold]
    fn found_many(&mut self) {
        self.finds = FINDS;
        self.quick = self.quick.saturating_sub(1).max(1);
    }

    /// A read that is not quick was not in vain.
    const fn found_more(&mut self) {
        self.finds -= 1;
        if self.finds == 0 {
            self.finds = FINDS;
            self.left = self.left.saturating_sub(1);
        }
    }

    /// A read was in vain.
    #[inline]
    fn next(&mut self) {
        self.turn = !self.turn;
    }

    fn has(&self, id: u32) -> bool {
        self.sockets[0].is_some() && self.ids.contains(&id)
    }

    /// Adds a connection in the place of the oldest.
    fn remember(&mut self, id: u32, link: &Arc<L>, plain: bool) {
        if self.sockets[1].is_none() {
            self.put(0, id, link, plain);
        } else {
            self.sockets.swap(0, 1);
            (self.ids[0], self.plain[0]) = (self.ids[1], self.plain[1]);
        }
        self.put(1, id, link, plain);
    }

    fn put(&mut self, place: usize, id: u32, link: &Arc<L>, plain: bool) {
        self.sockets[place] = Some(Arc::clone(link));
        (self.ids[place], self.plain[place]) = (id, plain);
    }

    fn forget(&mut self, id: u32) {
        if self.ids == [id; HOT] {
            self.sockets = Default::default();
            return;
        }
        for (place, other) in [(0, 1), (1, 0)] {
            if self.ids[place] == id {
                self.sockets[place] = self.sockets[other].clone();
                (self.ids[place], self.plain[place]) = (self.ids[other], self.plain[other]);
            }
        }
    }

    /// Something is to be done before the next quick read.
    #[inline]
    pub(crate) fn hold(&mut self) {
        self.left += self.quick - 1;
        self.quick = 1;
    }

    /// Allows quick reads again, if every connection is plain.
    fn release(&mut self) {
        self.hold();
        if self.sockets[0].is_some() && self.plain == [true; HOT] {
            self.quick += std::mem::take(&mut self.left);
        }
    }

    /// The next progress polls.
    pub(crate) const fn poll_next(&mut self) {
        (self.quick, self.left) = (1, 0);
        self.asked = Duration::ZERO;
    }

    /// The next progress after a read in vain of each polls.
    fn poll_soon(&mut self) {
        const READS: u32 = HOT as u32;
        let left = self.quick - 1 + self.left;
        self.quick = self.quick.min(READS + 1);
        self.left = left.min(READS) - (self.quick - 1);
    }

    /// Whether the poll of all was left out for too long.
    #[inline(always)]
    fn is_late(&self) -> bool {
        self.in_vain < IN_VAIN && clock::ticks().wrapping_sub(self.polled) >= POLL_AFTER
    }

    /// A look at all connections was in vain.
    pub(crate) fn pass(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// It takes so many reads in vain until the next poll.
    fn restart(&mut self, soon: bool) {
        let reads = if soon { POLL_EVERY } else { POLL_SELDOM };
        (self.quick, self.left) = (1, reads);
        if self.writes > 0 {
            self.writes -= 1;
            self.left = 0;
        }
    }

    /// Whether a poll of all asks epoll, of a transport that it tells neither of bytes nor of room.
    /// The clock is read only where it decides.
    fn asks(&mut self, clock: impl FnOnce() -> Duration) -> bool {
        self.polls = self.polls.wrapping_add(1);
        if self.writes > 0 && !self.polls.is_multiple_of(ASKS) {
            return false;
        }
        let now = clock();
        let asks = now.saturating_sub(self.asked) >= RARELY;
        if asks {
            self.asked = now;
        }
        asks
    }

    /// A connection waits for room to be written.
    pub(crate) const fn write_waits(&mut self) {
        self.writes = WRITES;
        self.poll_next();
    }
}

impl<T: Transport> State<T> {
    /// Makes progress without waiting: writes what waits, reads what has arrived.
    #[inline(never)]
    pub(crate) fn progress(&mut self) {
        match self.read_quick() {
            Quick::Nothing => {}
            Quick::Found(NOTHING) => _ = self.progress_all(),
            Quick::Found(found) => self.handle_found(found),
        }
    }

    /// Reads the connection that is first, if that is all there is to do, or sees that there is
    /// something.
    #[inline(always)]
    pub(crate) fn read_quick(&mut self) -> Quick {
        self.burst = false;
        let hot = &mut self.hot;
        if hot.quick == 1 {
            return Quick::Found(NOTHING);
        }
        let Some(link) = &hot.sockets[usize::from(hot.turn)] else {
            return Quick::Found(NOTHING);
        };
        let found = match T::Link::GATHERS {
            true if link.is_ready() => READY,
            true => NOTHING,
            false => match link.recv_once(&mut self.rx_buffer) {
                Err(Errno::EAGAIN) => NOTHING,
                outcome => Self::found_by(outcome),
            },
        };
        if found != NOTHING {
            return Quick::Found(found);
        }
        hot.quick -= 1;
        hot.next();
        match polls_links::<T>() {
            true if self.readiness.is_due() => Quick::Found(NOTHING),
            false if hot.is_late() => {
                hot.poll_next();
                Quick::Found(NOTHING)
            }
            _ => Quick::Nothing,
        }
    }

    /// The outcome of a read that is not in vain.
    #[inline(always)]
    fn found_by(outcome: Result<usize>) -> Found {
        match outcome {
            Ok(0) => Found::from(-(Errno::ECONNRESET.0 as i16)),
            Ok(count) => count.cast_signed(),
            Err(error) => Found::from(-(error.0 as i16)),
        }
    }

    /// Goes on after a quick read that has found something.
    #[inline(always)]
    pub(crate) fn handle_found(&mut self, mut found: Found) {
        self.hot.found();
        if T::Link::GATHERS && found == READY {
            let link = &self.hot.sockets[usize::from(self.hot.turn)];
            found = match link {
                Some(link) => Self::found_by(link.recv_once(&mut self.rx_buffer)),
                None => NOTHING,
            };
        }
        match usize::try_from(found) {
            Ok(count) => self.handle_hot(count),
            Err(_) => self.end_hot(Errno(-found as i32)),
        }
    }

    /// The connection that was read has ended.
    #[cold]
    #[inline(never)]
    fn end_hot(&mut self, error: Errno) {
        match self.hot.first() {
            Some(id) if error != Errno::EINTR => {
                self.note_end(id, error);
                self.poll();
            }
            _ => _ = self.progress_all(),
        }
    }

    /// Makes progress where a quick read is not all. Returns whether there was anything to do.
    #[inline(never)]
    pub(crate) fn progress_all(&mut self) -> bool {
        self.end_burst();
        self.hot.hold();
        match self.hot.first() {
            Some(id) if self.hot.left > 0 => {
                if self.read_connection(id) {
                    self.hot.found_more();
                    return true;
                }
                self.hot.next();
                self.hot.hold();
                self.hot.left = self.hot.left.saturating_sub(1);
                let mut any = false;
                if polls_links::<T>()
                    && let (1.., last) = self.poll_links()
                {
                    self.note_active(1, last);
                    any = true;
                }
                if !polls_links::<T>() && self.hot.is_late() {
                    return self.poll_in_turn();
                }
                self.release_hot();
                any
            }
            None if polls_links::<T>() && self.hot.left > 0 => self.poll_links_only(),
            _ => self.poll_in_turn(),
        }
    }

    /// Looks at all descriptors.
    pub(crate) fn poll(&mut self) {
        self.hot.asked = Duration::ZERO;
        self.poll_in_turn();
    }

    /// As [`State::poll`], after many reads in vain. Returns whether there was anything to do.
    fn poll_in_turn(&mut self) -> bool {
        let Some(mut events) = self.events.take() else {
            return false;
        };
        let ended = self.ending.len();
        let (mut active, mut last) = match polls_links::<T>() {
            true => self.poll_links(),
            false => (0, NIL),
        };
        let asks = !polls_links::<T>() || self.hot.asks(clock::now);
        let found = asks && self.epoll.poll(&mut events).is_ok() && !events.is_empty();
        if found {
            for index in 0..events.len() {
                let Some(event) = events.at(index) else { break };
                let id = event.token as u32;
                match event.token & token::KIND {
                    token::STREAM => {
                        let known = self
                            .connection(id)
                            .is_some_and(|s| token::connection(id, s.generation) == event.token);
                        if known {
                            self.handle_connection(id, event);
                            active += 1;
                            last = id;
                        }
                    }
                    token::LISTENER => self.handle_listener(id),
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
        } else if self.hot.cold_for > 0 {
            self.hot.cold_for -= 1;
        }
        if asks && !self.ending.is_empty() {
            self.end_connections(if events.is_full() { ended } else { usize::MAX });
        }
        self.events = Some(events);
        // Peers that may reach what this side has exposed wait to be told of what was applied.
        self.hot.restart(asks || !self.exposed.is_empty());
        if !polls_links::<T>() {
            self.hot.polled = clock::ticks();
            self.hot.in_vain = match any {
                true => 0,
                false => (self.hot.in_vain + 1).min(IN_VAIN),
            };
        }
        self.release_hot();
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
        any
    }

    /// Remembers the connection that was just active, to be read first; with many active ones
    /// only the poll of all is worth it.
    pub(crate) fn note_active(&mut self, active: u32, last: u32) {
        if active as usize > HOT {
            self.hot = Hot {
                cold_for: COLD,
                writes: self.hot.writes,
                ..Hot::default()
            };
        } else if self.hot.cold_for > 0 {
            self.hot.cold_for -= 1;
        } else if active > 0 && !self.hot.has(last) {
            let Some(Some(connection)) = self.connections.get(last as usize) else {
                return;
            };
            let (true, Some(link)) = (connection.is_up(), &connection.link) else {
                return;
            };
            let link = Arc::clone(link);
            let plain = self.is_plain(last);
            self.hot.remember(last, &link, plain);
        }
    }

    pub(crate) fn forget_hot(&mut self, id: u32) {
        self.hot.forget(id);
        self.release_hot();
    }

    /// Other threads could run, see [`Polls::have_run_for`](crate::polls::Polls::have_run_for).
    pub(crate) fn have_run_for(&mut self, took: Duration, switched: bool) {
        if self.polls.have_run_for(took, switched) {
            // Much may have arrived meanwhile, also where nothing was just active.
            self.hot.poll_soon();
        }
    }

    /// Allows quick reads again, if nothing stands against it.
    pub(crate) fn release_hot(&mut self) {
        if self.has_dirty() {
            self.hot.hold();
        } else {
            self.hot.release();
        }
    }

    /// Whether a connection may be read without asking where its next bytes go.
    fn is_plain(&self, id: u32) -> bool {
        let connection = self.connections.get(id as usize).and_then(Option::as_ref);
        self.engine.rx_in_header(id)
            && connection.is_some_and(|connection| connection.interest.read)
    }

    /// Notes whether a connection may be read without asking where its next bytes go.
    pub(crate) fn set_plain(&mut self, id: u32) {
        if !self.hot.has(id) {
            return;
        }
        let plain = self.is_plain(id);
        for place in 0..HOT {
            if self.hot.ids[place] == id {
                self.hot.plain[place] = plain;
            }
        }
        self.release_hot();
    }

    /// Handles bytes of the stream that is first, at the front of the receive buffer.
    #[inline(always)]
    fn handle_hot(&mut self, count: usize) {
        let Some(id) = self.hot.first() else {
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
    fn handle_more(&mut self, id: u32, taken: usize, count: usize) {
        let bytes = self.rx_buffer.get(taken..count).unwrap_or_default();
        let rest = match taken {
            0 => count,
            _ => consume_whole(&mut self.engine, id, bytes),
        };
        let rest = match rest {
            1.. if T::Link::GATHERS => self.handle_gathered(id, count, rest),
            rest => rest,
        };
        if rest > 0 {
            self.handle_rest(id, count - rest, count);
        } else if count == self.rx_buffer.len() {
            self.read_connection(id);
        }
    }

    /// Takes plain writes, messages between them, and one whose rest the link has at hand, from
    /// the last `rest` of `count` bytes in the receive buffer. Returns how many are left.
    pub(crate) fn handle_gathered(&mut self, id: u32, count: usize, mut rest: usize) -> usize {
        let Self {
            engine,
            connections,
            rx_buffer,
            hot,
            ..
        } = self;
        let Some(Some(connection)) = connections.get(id as usize) else {
            return rest;
        };
        let Some(link) = &connection.link else {
            return rest;
        };
        // What is at hand follows the last byte in the receive buffer.
        let more = link.at_hand();
        while let Some(bytes) = rx_buffer.get(count - rest..count) {
            let (whole, stored) = match engine.rx_write(id, bytes, more) {
                Some(whole) => (whole, true),
                None => match engine.rx_at_hand(id, bytes, more) {
                    Some(whole) => (whole, false),
                    None => break,
                },
            };
            let place = whole.memory.first(whole.len);
            let front = bytes.get(whole.header_len..).unwrap_or_default();
            let done = match stored {
                true => {
                    hot.writes_come |= whole.len <= SHORT;
                    ripstop_mem::store(place, front)
                }
                false => ripstop_mem::copy_out(place, front),
            };
            rest -= whole.header_len + done;
            if done < whole.len {
                link.take_at_hand(place.skip(done));
            }
            if rest == 0 {
                break;
            }
        }
        rest
    }

    /// Handles what is left of a read: the receive buffer from `from` to `to`.
    #[inline(never)]
    fn handle_rest(&mut self, id: u32, from: usize, to: usize) {
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
        self.set_plain(id);
        self.after();
    }
}

/// Takes whole small messages with a posted receive from the front of `bytes`; returns how
/// many bytes are left.
#[inline]
pub(crate) fn consume_whole(engine: &mut Engine<UserBuf>, id: u32, bytes: &[u8]) -> usize {
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
fn take_whole(engine: &mut Engine<UserBuf>, id: u32, bytes: &[u8]) -> usize {
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

#[cfg(test)]
mod tests;
