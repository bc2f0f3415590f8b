//! What a domain owns behind its lock: the engine, the connections, and how they make progress.

pub(crate) mod active;
pub(crate) mod connection;
pub(crate) mod ep;
pub(crate) mod place;
pub(crate) mod slots;
pub(crate) mod tx_buffer;
pub(crate) mod waiters;
pub(crate) mod yield_policy;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId, MrId, SlotId};
use ripstop_engine::stream::{Engine, Limits, Output};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::Grant;
use ripstop_os::{EventFd, Events, Interest, Spare};
use ripstop_types::{Errno, Result};

use crate::api::av::Table;
use crate::conn::accept::Accepting;
use crate::conn::end::Ending;
use crate::deferred::coll::GroupState;
use crate::deferred::triggered::Works;
use crate::progress::links::{Readiness, ReadyLink, polls_links};
use crate::progress::{consume_whole, read_to};
use crate::region::direct::DIRECT_BYTES_BUDGET;
use crate::region::exposed::Exposed;
use crate::state::active::ActiveConnections;
use crate::state::connection::Connection;
pub(crate) use crate::state::ep::{EpState, Msg};
use crate::state::slots::Slots;
use crate::state::tx_buffer::TX_BUFFER;
use crate::state::waiters::{Waited, Waiters};
use crate::state::yield_policy::YieldPolicy;
use crate::system::{Poller as _, System, Timer as _};
use crate::transport::{Link as _, PollerOf, Transport};
use crate::tunables::Tunables;
use crate::tx::fast::FAST_SEND_BUFFER;

/// Bytes read from a link at once when headers or small messages are expected.
const RX_BUFFER: usize = 16 * 1024;

/// A message is coalesced for so many [`ticks`](ripstop_os::clock::ticks) at most after the first one of its burst,
/// 0.6 to 3 ms: then the next is the first of another burst, so that a program that makes no progress
/// sends them nevertheless.
const BURST_TICKS: u32 = 3_000_000;

/// How often deadlines are checked while there are any.
pub(crate) const TIMER_INTERVAL: Duration = Duration::from_millis(50);

/// How often connections are checked whose peer's machine may be dead ([`Link::CHECKS_PEER`]).
const PEER_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// What an epoll event is about, in the token's upper byte.
pub(crate) mod token {
    pub(crate) const CONNECTION: u64 = 0;
    pub(crate) const LISTENER: u64 = 1 << 56;
    pub(crate) const ACCEPTING: u64 = 2 << 56;
    pub(crate) const TIMER: u64 = 3 << 56;
    pub(crate) const WAKE: u64 = 4 << 56;
    pub(crate) const WORK: u64 = 5 << 56;
    pub(crate) const KIND: u64 = 0xff << 56;

    pub(crate) const fn connection(id: super::ConnId, generation: u32) -> u64 {
        CONNECTION | (((generation & 0xff_ffff) as u64) << 32) | id.number() as u64
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct State<T: Transport> {
    pub(crate) engine: Engine<UserBuf>,
    pub(crate) connections: Vec<Option<Connection<T>>>,
    pub(crate) eps: Vec<Option<EpState<T>>>,
    pub(crate) avs: Vec<Option<Table<T>>>,
    pub(crate) accepting: HashMap<u32, Accepting<T>>,
    pub(crate) next_accepting: u32,
    pub(crate) spare: Spare,
    pub(crate) slots: Slots,
    pub(crate) epoll: Arc<PollerOf<T>>,
    pub(crate) params: Arc<T::Params>,
    timer: <T::System as System>::Timer,
    /// How often the timer goes off; zero when it is not set.
    pub(crate) timer_period: Duration,
    /// When connections were last checked, see [`Link::CHECKS_PEER`].
    watched: Duration,
    /// Taken while a poll of all is under way.
    pub(crate) events: Option<Events>,
    pub(crate) rx_buffer: Box<[u8]>,
    /// Where a small message is put together.
    pub(crate) scratch: Box<[u8; FAST_SEND_BUFFER]>,
    /// Connections with bytes in their transmit buffer that were not written at once.
    dirty: Vec<ConnId>,
    /// Something was sent since the last progress.
    pub(crate) burst: bool,
    /// Counts the bursts; see [`Connection::round`].
    pub(crate) round: u32,
    /// When the burst began, in ticks.
    since: u32,
    /// Nobody polls: write every message at once.
    pub(crate) unattended: bool,
    pub(crate) active: ActiveConnections<T::Link>,
    pub(crate) readiness: T::Readiness,
    /// Links that the last poll has found ready; empty between two polls, kept for its memory.
    pub(crate) ready: Vec<ReadyLink>,
    /// Threads that sleep here.
    pub(crate) sleepers: u32,
    /// Peers ring the doorbell when they write ([`Readiness::arm`]).
    pub(crate) doorbells_armed: bool,
    /// A doorbell rang and was drained: it has to be armed again.
    pub(crate) doorbell_rang: bool,
    generation: u32,
    /// Connections that have ended, and are closed once all others were polled.
    pub(crate) ending: Vec<Ending>,
    /// The highest context of a peer that any connection was with.
    pub(crate) max_context: u8,
    pub(crate) waiters: Waiters<Arc<EventFd>>,
    pub(crate) yielding: YieldPolicy,
    pub(crate) works: Works,
    pub(crate) groups: Vec<Option<GroupState>>,
    /// Regions that peers may map.
    pub(crate) exposed: Vec<Exposed>,
    /// Regions that are closing, which peers may still be at work in.
    pub(crate) withdrawn: Vec<(MrId, Grant)>,
    /// How long a peer that is connected may take to begin its part of a handshake.
    pub(crate) answer: Duration,
    /// The connection whose peer was told last what is applied.
    pub(crate) next_told: usize,
    /// Bytes of direct accesses that are left until progress is made.
    pub(crate) direct_budget: u32,
    /// Operations that still go by the stream before attach is tried again, since the peer polls.
    pub(crate) stream_ops: u32,
}

impl<T: Transport> State<T> {
    pub(crate) fn new(params: Arc<T::Params>, epoll: Arc<PollerOf<T>>) -> Result<Self> {
        let tunables: &Tunables = (*params).as_ref();
        let answer = tunables.answer;
        let timer = <T::System as System>::Timer::new().inspect_err(lacks!(
            T,
            Domain,
            "timer (timerfd_create)"
        ))?;
        epoll.add(&timer, token::TIMER, Interest::READ)?;
        Ok(Self {
            engine: Engine::new(Limits {
                tx_buffer: TX_BUFFER,
                inline: tunables.inline,
                rendezvous: tunables.rendezvous,
                kept_bytes: tunables.kept_bytes,
                kept_messages: tunables.kept_messages,
                kept_longest: tunables.kept_longest,
                kept_total: tunables.kept_total,
                ask_first: RX_BUFFER as u64,
            }),
            connections: Vec::new(),
            eps: Vec::new(),
            avs: Vec::new(),
            accepting: HashMap::new(),
            next_accepting: 0,
            spare: Spare::new().inspect_err(lacks!(T, Domain, "spare descriptor"))?,
            slots: Slots::default(),
            epoll,
            params,
            timer,
            timer_period: Duration::ZERO,
            watched: Duration::ZERO,
            events: Some(Events::with_capacity(64)),
            rx_buffer: vec![0; RX_BUFFER].into_boxed_slice(),
            scratch: Box::new([0; FAST_SEND_BUFFER]),
            dirty: Vec::new(),
            burst: false,
            since: 0,
            round: 0,
            unattended: false,
            active: ActiveConnections::default(),
            readiness: Readiness::open()?,
            ready: Vec::new(),
            sleepers: 0,
            doorbells_armed: false,
            doorbell_rang: false,
            generation: 0,
            ending: Vec::new(),
            max_context: 0,
            waiters: Waiters::default(),
            yielding: YieldPolicy::new(!polls_links::<T>()),
            works: Works::default(),
            groups: Vec::new(),
            exposed: Vec::new(),
            withdrawn: Vec::new(),
            answer,
            next_told: 0,
            direct_budget: DIRECT_BYTES_BUDGET,
            stream_ops: 0,
        })
    }

    /// The parameters that all transports have.
    pub(crate) fn tunables(&self) -> &Tunables {
        AsRef::as_ref(&*self.params)
    }

    #[inline]
    pub(crate) fn connection(&mut self, id: ConnId) -> Option<&mut Connection<T>> {
        self.connections.get_mut(id.index())?.as_mut()
    }

    #[inline]
    pub(crate) fn ep(&mut self, id: EpId) -> Option<&mut EpState<T>> {
        self.eps.get_mut(id.index())?.as_mut()
    }

    /// The ids that connections have or had.
    pub(crate) fn connection_ids(&self) -> impl Iterator<Item = ConnId> + use<T> {
        (1..self.connections.len() as u32).filter_map(ConnId::new)
    }

    /// The ids that endpoints have or had.
    pub(crate) fn ep_ids(&self) -> impl Iterator<Item = EpId> + use<T> {
        (1..self.eps.len() as u32).filter_map(EpId::new)
    }

    pub(crate) fn put_connection(&mut self, id: ConnId, connection: Connection<T>) {
        put(&mut self.connections, id.number(), connection);
    }

    pub(crate) fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// Whether there is or was any connection.
    pub(crate) const fn has_connections(&self) -> bool {
        !self.connections.is_empty()
    }

    /// Makes sure that deadlines are checked.
    pub(crate) fn start_timer(&mut self) {
        self.set_timer(TIMER_INTERVAL);
    }

    /// There are no deadlines; connections that have to be watched are checked now and then.
    pub(crate) fn slow_timer(&mut self) {
        let up = |connection: &Connection<T>| connection.is_up();
        let watched = T::Link::CHECKS_PEER && self.connections.iter().flatten().any(up);
        self.set_timer(if watched {
            PEER_CHECK_INTERVAL
        } else {
            Duration::ZERO
        });
    }

    /// Whether connections were not checked for [`PEER_CHECK_INTERVAL`]: the timer may go off more often.
    pub(crate) fn is_watch_due(&mut self, now: Duration) -> bool {
        let due = now >= self.watched + PEER_CHECK_INTERVAL;
        if due {
            self.watched = now;
        }
        due
    }

    fn set_timer(&mut self, period: Duration) {
        if self.timer_period != period && self.timer.set(period).is_ok() {
            self.timer_period = period;
        }
    }

    pub(crate) fn drain_timer(&self) {
        self.timer.drain();
    }

    pub(crate) fn handle_connection(&mut self, id: ConnId, event: ripstop_os::Event) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_up() {
            self.handle_handshake(id);
            self.after();
            return;
        }
        if polls_links::<T>()
            && let Some(link) = connection.link.as_ref()
        {
            link.drain_doorbell(&mut connection.windows);
            connection.mapped = T::Link::DIRECT_ACCESS && T::Link::has_windows(&connection.windows);
            let asked = link.take_requests();
            self.doorbell_rang = true;
            self.leave_ended(id);
            if !asked.is_empty() {
                self.lend(id, &asked);
            }
        }
        if event.writable() {
            self.flush(id);
        }
        if event.readable() || event.error() || event.hangup() {
            self.read_connection(id);
        }
    }

    /// Reads a connection until it has no more, for a bounded time. Returns whether there was
    /// anything.
    pub(crate) fn read_connection(&mut self, id: ConnId) -> bool {
        let mut any = false;
        // Bounded, so that one busy peer does not keep the others waiting.
        for _ in 0..64 {
            let outcome = self.read_once(id);
            match outcome {
                Err(Errno::EAGAIN) => break,
                outcome => {
                    any = true;
                    if !self.handle_read(id, outcome) {
                        break;
                    }
                }
            }
        }
        self.after();
        self.note_header_next(id);
        any
    }

    /// One read: straight to where a payload goes, with what follows to the receive buffer.
    /// Returns how many bytes are in the receive buffer.
    fn read_once(&mut self, id: ConnId) -> Result<usize> {
        use ripstop_engine::stream::RxWant;
        let Self {
            engine,
            connections,
            rx_buffer,
            slots,
            ..
        } = self;
        let Some(Some(connection)) = connections.get(id.index()) else {
            return Err(Errno::EAGAIN);
        };
        let Some(link) = &connection.link else {
            return Err(Errno::EAGAIN);
        };
        let (placed, read) = match engine.rx_want(id) {
            RxWant::Blocked | RxWant::Job => return Err(Errno::EAGAIN),
            RxWant::Header => return read_to(link.recv(rx_buffer)),
            RxWant::Place(iov, at, len) => {
                crate::state::place::read_user(&**link, iov, at, len, rx_buffer)?
            }
            RxWant::Store(iov, at, len) => {
                crate::state::place::read_region(&**link, iov, at, len, rx_buffer)?
            }
            RxWant::Keep(slot, total, at, len) => match slots.make(slot, total) {
                Ok(memory) => crate::state::place::read_slot(&**link, memory, at, len, rx_buffer)?,
                Err(_) => {
                    engine.rx_no_memory(id);
                    return Err(Errno::EAGAIN);
                }
            },
            RxWant::Discard(left) => {
                let want = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(rx_buffer.len());
                let dropped = read_to(link.recv(&mut rx_buffer[..want]))?;
                (dropped, dropped)
            }
        };
        engine.rx_placed(id, placed as u64);
        self.yielding.note_payload(!engine.rx_in_header(id));
        Ok(read - placed)
    }

    /// Handles the outcome of a read; returns whether to read on.
    pub(crate) fn handle_read(&mut self, id: ConnId, outcome: Result<usize>) -> bool {
        match outcome {
            Ok(count) => {
                let rest = match T::Link::IN_PLACE {
                    true => self.receive_in_place(id, count, count),
                    false => count,
                };
                let rx_buffer = std::mem::take(&mut self.rx_buffer);
                let done = self.consume(id, &rx_buffer[count - rest..count]);
                let full = count == rx_buffer.len();
                self.rx_buffer = rx_buffer;
                match done {
                    Ok(all) => all && (full || !self.engine.rx_in_header(id)),
                    Err(error) => {
                        self.protocol_error(id, error);
                        false
                    }
                }
            }
            Err(error) => {
                self.note_end(id, error);
                false
            }
        }
    }

    /// Hands bytes of the stream to the engine and its payload to memory. Returns whether all
    /// were taken; else the rest is kept and the connection is not read until the engine says so.
    pub(crate) fn consume(&mut self, id: ConnId, bytes: &[u8]) -> Result<bool> {
        use ripstop_engine::stream::RxWant;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.engine.rx_in_header(id) {
                let whole = rest.len() - consume_whole(&mut self.engine, id, rest);
                rest = &rest[whole..];
                if rest.is_empty() {
                    break;
                }
                let used = self.engine.rx_header(id, rest)?;
                rest = &rest[used..];
                continue;
            }
            let Self { engine, slots, .. } = self;
            let taken = match engine.rx_want(id) {
                RxWant::Header => 0,
                RxWant::Place(iov, at, len) => crate::state::place::copy_user(iov, at, len, rest),
                RxWant::Store(iov, at, len) => crate::state::place::store(iov, at, len, rest),
                RxWant::Keep(slot, total, at, len) => match slots.make(slot, total) {
                    Ok(memory) => crate::state::place::copy_slot(memory, at, len, rest),
                    Err(_) => {
                        engine.rx_no_memory(id);
                        0
                    }
                },
                RxWant::Discard(left) => {
                    usize::try_from(left).unwrap_or(usize::MAX).min(rest.len())
                }
                RxWant::Job => {
                    self.run_job(id);
                    continue;
                }
                RxWant::Blocked => {
                    self.stall(id, rest);
                    return Ok(false);
                }
            };
            self.engine.rx_placed(id, taken as u64);
            rest = &rest[taken..];
        }
        while matches!(self.engine.rx_want(id), RxWant::Job) {
            self.run_job(id);
        }
        if matches!(self.engine.rx_want(id), RxWant::Blocked) {
            self.stall(id, rest);
            return Ok(false);
        }
        if self
            .engine
            .conn(id)
            .is_some_and(|conn| conn.in_mid_header())
        {
            self.note_partial(id);
        }
        Ok(true)
    }

    #[cold]
    fn note_partial(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.partial_since = Some(T::System::now());
        }
        self.start_timer();
    }

    /// Stops reading a connection until [`Engine::pop_resumed`] names it.
    #[cold]
    fn stall(&mut self, id: ConnId, rest: &[u8]) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let mut leftover = rest.to_vec();
        leftover.append(&mut connection.leftover);
        connection.leftover = leftover;
        if self.engine.rx_full(id).is_some() {
            self.note_full(id);
        }
        self.remove_active(id);
        self.watch(id, |interest| interest.read = false);
        self.leave_ended(id);
    }

    /// What the engine left to be done after it was called.
    #[inline]
    pub(crate) fn after(&mut self) {
        if self.engine.is_quiet() && self.waiters.is_empty() {
            return;
        }
        self.tidy_up();
    }

    #[inline(never)]
    fn tidy_up(&mut self) {
        // The end of a connection may leave something to be said to others.
        loop {
            self.tidy_once();
            if self.engine.is_quiet() {
                break;
            }
        }
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
    }

    fn tidy_once(&mut self) {
        while let Some(output) = self.engine.pop_output() {
            match output {
                Output::Coll => self.run_coll(false),
                Output::Conn(id) => self.flush(id),
            }
        }
        while let Some(slot) = self.engine.pop_freed() {
            self.slots.free(slot);
        }
        while let Some(id) = self.engine.pop_resumed() {
            self.resume(id);
        }
        self.log_refusals();
        while let Some((id, error)) = self.engine.pop_broken() {
            self.lost(id, error);
        }
    }

    #[cold]
    fn resume(&mut self, id: ConnId) {
        if !self.engine.rx_retry(id) {
            return;
        }
        let Some(connection) = self.connection(id) else {
            return;
        };
        let leftover = std::mem::take(&mut connection.leftover);
        connection.full = None;
        match self.consume(id, &leftover) {
            Ok(true) => {
                self.watch(id, |interest| interest.read = true);
                self.read_connection(id);
            }
            Ok(false) => {}
            Err(error) => self.protocol_error(id, error),
        }
    }

    /// Changes what epoll watches of a connection.
    pub(crate) fn watch(&mut self, id: ConnId, change: impl FnOnce(&mut Interest)) {
        let epoll = Arc::clone(&self.epoll);
        let Some(connection) = self.connection(id) else {
            return;
        };
        let mut interest = connection.interest;
        change(&mut interest);
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        if polls_links::<T>() && connection.is_up() {
            return self.readiness.modify(id, interest);
        }
        let generation = connection.generation;
        let failed = match &connection.link {
            Some(link) => epoll
                .modify(link, token::connection(id, generation), interest)
                .err(),
            None => None,
        };
        if let Some(error) = failed {
            self.lost(id, error);
        }
    }

    /// Puts off writing a connection's transmit buffer to the next progress.
    #[inline]
    pub(crate) fn put_off(&mut self, id: ConnId) {
        if let Some(Some(connection)) = self.connections.get_mut(id.index())
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(id);
            self.active.suspend_fast_polls();
        }
    }

    /// A message begins a burst, unless it belongs to one. Returns which that is.
    #[inline(always)]
    pub(crate) fn begin_burst(&mut self) -> u32 {
        if !self.burst {
            self.round = self.round.wrapping_add(1);
            self.since = T::System::ticks();
        }
        self.burst = true;
        self.round
    }

    /// Whether a small message is put off behind another that the same connection sent in this
    /// burst. The first of each connection is not: what a program sends to its neighbours before it
    /// goes on computing is under way.
    #[inline(always)]
    pub(crate) fn in_burst(&mut self, id: Option<ConnId>) -> bool {
        let connection = self.connections.get(ConnId::place(id));
        let follows = connection
            .and_then(Option::as_ref)
            .is_some_and(|connection| connection.round == self.round);
        self.burst && follows && self.burst_goes_on()
    }

    #[inline(always)]
    fn burst_goes_on(&mut self) -> bool {
        let goes_on = T::System::ticks().wrapping_sub(self.since) <= BURST_TICKS;
        if !goes_on {
            self.end_burst();
        }
        goes_on
    }

    /// Writes what was put off; the next message is written at once again.
    #[inline]
    pub(crate) fn end_burst(&mut self) {
        self.burst = false;
        if !self.dirty.is_empty() {
            self.flush_dirty();
        }
    }

    pub(crate) fn flush_dirty(&mut self) {
        while let Some(id) = self.dirty.pop() {
            if let Some(connection) = self.connection(id) {
                connection.dirty = false;
                if std::mem::take(&mut connection.held)
                    && let Some(link) = &connection.link
                {
                    link.push();
                }
                self.flush(id);
            }
        }
        self.resume_fast_polls();
    }

    /// Whether bytes wait for the next progress.
    pub(crate) fn has_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes what a connection has, as far as the kernel takes it.
    #[inline]
    pub(crate) fn flush(&mut self, id: ConnId) {
        loop {
            let Self {
                engine,
                connections,
                slots,
                ..
            } = self;
            let (Some(conn), Some(Some(connection))) =
                (engine.conn(id), connections.get_mut(id.index()))
            else {
                return;
            };
            let Some(link) = &connection.link else { return };
            if !connection.is_up() || connection.write_ended {
                return;
            }
            if !conn.has_output() {
                let waits = connection.interest.write;
                if conn.has_deferred() && self.replay(id) {
                    continue;
                }
                if waits {
                    self.await_no_room(id);
                }
                return;
            }
            let written = if conn.only_buffered() {
                link.send(connection.tx_buffer.bytes())
            } else {
                crate::state::place::write(&**link, engine, id, connection.tx_buffer.bytes(), slots)
            };
            match written {
                Ok(count) => {
                    let buffered = engine.sent(id, count);
                    connection.tx_buffer.advance(buffered);
                    if engine.conn(id).is_some_and(|conn| conn.is_flushed())
                        && !connection.interest.write
                    {
                        return;
                    }
                }
                Err(Errno::EAGAIN) => {
                    if link.await_room() {
                        continue;
                    }
                    self.watch(id, |interest| interest.write = true);
                    self.active.wait_for_room();
                    return;
                }
                Err(error) => {
                    self.end_writes(id, error);
                    return;
                }
            }
        }
    }

    /// Nothing is to be written: room is not watched for. What is deferred waits for something else,
    /// such as the peer's acknowledgement, and would keep everybody awake who sleeps until then.
    #[cold]
    fn await_no_room(&mut self, id: ConnId) {
        let flushed = self.engine.conn(id).is_some_and(|conn| !conn.has_output());
        if flushed
            && self
                .connection(id)
                .is_some_and(|connection| connection.is_up())
        {
            self.watch(id, |interest| interest.write = false);
        }
    }

    /// Memory of a slot, for a payload that is copied or replayed.
    pub(crate) fn slot(&self, slot: SlotId) -> &[u8] {
        self.slots.get(slot)
    }

    /// Fills a slot from user memory.
    pub(crate) fn fill_slot(&mut self, slot: SlotId, parts: [&[UserBuf]; 2]) -> Result<()> {
        let segments = || parts.into_iter().flatten();
        let total: usize = segments().map(|s| s.len()).sum();
        let memory = self.slots.make(slot, total as u64)?;
        let mut at = 0;
        for segment in segments() {
            at += ripstop_mem::copy_in(&mut memory[at..], *segment);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn wake_waiters(&mut self) {
        if self.has_works() {
            self.run_works();
        }
        if !self.has_works() {
            self.waiters.drop_work();
        }
        let Self {
            engine, waiters, ..
        } = self;
        waiters.wake(|what| match what {
            Waited::Work => None,
            Waited::Cq(id, wanted) => Some(
                engine
                    .cq_mut(id)
                    .is_none_or(|cq| cq.len() >= wanted || (!cq.is_empty() && cq.has_error())),
            ),
            Waited::Counter(id, seen) => Some(
                engine
                    .counter_mut(id)
                    .is_none_or(|c| [c.value, c.errors] != seen),
            ),
        });
        self.disarm_doorbells();
    }
}

/// Puts an item at its id in a table that grows as ids come.
pub(crate) fn put<I>(table: &mut Vec<Option<I>>, id: u32, item: I) {
    let index = id as usize;
    if table.len() <= index {
        table.resize_with(index + 1, || None);
    }
    table[index] = Some(item);
}
