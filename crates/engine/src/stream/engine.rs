//! The objects of a domain, and what happens to them as a whole.

use ripstop_types::{Completion, Errno, FiAddr, Result};
use ripstop_wire::WireError;

use crate::Buffer;
use crate::coll::Collectives;
use crate::counter::Counter;
use crate::cq::{CompletionQueue, ERROR_DATA, ErrorEntry};
use crate::id::{
    AskedId, ConnId, CounterId, CqId, DepartedId, EpId, MessageId, ResponseId, SlotId, SrxId,
    UserIdsId, WorkId,
};
use crate::ids::UserIds;
use crate::matching::{ENTRY, Matcher, Unexpected};
use crate::mr::MrTable;
use crate::pool::{Place, Places, Pool};
use crate::ring::Ring;
use crate::stream::arriving::{RxState, Target};
use crate::stream::conn::{Conn, ConnConfig};
use crate::stream::records::{Departed, Output, Refusal, Response, Work};

/// Bounds of a domain.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size of a connection's transmit buffer, bytes.
    pub tx_buffer: usize,
    /// Payloads up to this many bytes are copied to the transmit buffer if there is room.
    pub inline: usize,
    /// Tagged messages longer than this wait for their receive at the sender.
    pub eager_max: u64,
    /// Most bytes of unexpected messages kept for one connection. Each counts with its payload and
    /// [`ENTRY`](crate::matching::ENTRY) bytes.
    pub kept_bytes: u64,
    /// Most unexpected messages kept for one connection.
    pub kept_messages: u32,
    /// Longest payload of an unexpected message that is kept; a longer one waits in the stream.
    pub kept_longest: u64,
    /// As `kept_bytes`, for all connections together, those that have closed included.
    pub kept_total: u64,
    /// Payload up to this many bytes is kept before the owner of a receive context is asked, so
    /// that what follows in the stream is not held up. Longer payload stays in the stream until
    /// the owner has answered, and goes straight to its receive.
    pub ask_first: u64,
}

/// What an endpoint is made of. Ids are of objects of the same engine.
#[derive(Clone, Copy, Debug)]
pub struct EpConfig {
    /// Receive context.
    pub srx: Option<SrxId>,
    /// Completion queue of sends.
    pub tx_cq: Option<CqId>,
    /// Completion queue of receives.
    pub rx_cq: Option<CqId>,
    /// Counter of sends.
    pub tx_counter: Option<CounterId>,
    /// Counter of receives.
    pub rx_counter: Option<CounterId>,
    /// Counter of reads.
    pub read_counter: Option<CounterId>,
    /// Counter of writes.
    pub write_counter: Option<CounterId>,
    /// Counter of reads by peers.
    pub remote_read_counter: Option<CounterId>,
    /// Counter of writes by peers.
    pub remote_write_counter: Option<CounterId>,
    /// Most operations not yet completed, but for rendezvous that the receiver has not asked for.
    pub tx_size: usize,
    /// Report the source of messages (`FI_SOURCE`).
    pub source: bool,
    /// Report messages from unknown peers as errors (`FI_SOURCE_ERR`).
    pub source_err: bool,
    /// What peers are reported as, instead of their addresses.
    pub ids: Option<UserIdsId>,
    /// What follows a read to the same peer, but for other reads, waits until that is answered
    /// (`FI_ORDER_WAR`, `FI_ORDER_RMA_WAR`, `FI_ORDER_SAR`).
    pub after_reads: bool,
}

impl EpConfig {
    /// Without any object, and without room for sends.
    pub const NONE: Self = Self {
        srx: None,
        tx_cq: None,
        rx_cq: None,
        tx_counter: None,
        rx_counter: None,
        read_counter: None,
        write_counter: None,
        remote_read_counter: None,
        remote_write_counter: None,
        tx_size: 0,
        source: false,
        source_err: false,
        ids: None,
        after_reads: false,
    };

    /// The counters of what the endpoint starts: sends, reads and writes.
    #[must_use]
    pub const fn tx_counters(&self) -> [Option<CounterId>; 3] {
        [self.tx_counter, self.read_counter, self.write_counter]
    }

    /// The counters of what peers do: receives, reads and writes.
    #[must_use]
    pub const fn rx_counters(&self) -> [Option<CounterId>; 3] {
        [
            self.rx_counter,
            self.remote_read_counter,
            self.remote_write_counter,
        ]
    }

    /// Takes over the counters of what the endpoint starts.
    pub const fn count_tx_as(&mut self, other: &Self) {
        [self.tx_counter, self.read_counter, self.write_counter] = other.tx_counters();
    }

    /// Takes over the counters of what peers do.
    pub const fn count_rx_as(&mut self, other: &Self) {
        [
            self.rx_counter,
            self.remote_read_counter,
            self.remote_write_counter,
        ] = other.rx_counters();
    }
}

#[derive(Debug)]
pub(super) struct Ep {
    pub(super) config: EpConfig,
    /// Where its queues are, for what is reported often.
    pub(super) tx_cq: Place<CqId>,
    pub(super) rx_cq: Place<CqId>,
    pub(super) outstanding: u32,
    /// Of these, messages whose receiver has been asked for leave to send the payload.
    waiting: u32,
    /// Most that may be outstanding: those that wait for their receiver hold up no others, of which
    /// one may be what the receiver waits for.
    pub(super) room: usize,
    /// Sources of messages are looked at: unknown ones are errors, or known ones have ids.
    pub(super) screens: bool,
}

impl Ep {
    pub(super) fn new(config: EpConfig) -> Self {
        let mut ep = Self {
            tx_cq: Place::NOWHERE,
            rx_cq: Place::NOWHERE,
            config,
            outstanding: 0,
            waiting: 0,
            room: 0,
            screens: false,
        };
        ep.settle();
        ep
    }

    /// Whether it takes one more operation.
    #[inline]
    pub(super) const fn has_room(&self) -> bool {
        (self.outstanding as usize) < self.room
    }

    fn settle(&mut self) {
        self.tx_cq = Place::of(self.config.tx_cq);
        self.rx_cq = Place::of(self.config.rx_cq);
        self.screens = self.config.source_err || self.config.ids.is_some();
        self.room = self.config.tx_size.saturating_add(self.waiting as usize);
    }

    /// One more message waits for its receiver.
    pub(super) fn add_waiting(&mut self) {
        self.waiting = self.waiting.saturating_add(1);
        self.settle();
    }

    /// So many messages wait for their receiver no more.
    pub(super) fn end_waiting(&mut self, count: u32) {
        self.waiting = self.waiting.saturating_sub(count);
        self.settle();
    }

    #[inline]
    pub(super) const fn counts_sends(&self) -> bool {
        self.config.tx_counter.is_some()
    }
}

/// The engine of one domain; see the [module](super).
#[derive(Debug)]
pub struct Engine<B> {
    pub(super) limits: Limits,
    pub(super) cqs: Places<CqId, CompletionQueue>,
    pub(super) counters: Pool<CounterId, Counter>,
    pub(super) ids: Pool<UserIdsId, UserIds>,
    pub(super) srxs: Pool<SrxId, Matcher<B>>,
    pub(super) eps: Pool<EpId, Ep>,
    pub(super) conns: Pool<ConnId, Conn<B>>,
    pub(super) unexpected: Pool<MessageId, Unexpected>,
    /// Senders of such messages whose connections are gone.
    pub(super) departed: Pool<DepartedId, Departed>,
    pub(super) slots: Pool<SlotId, ()>,
    /// Messages that owners of receive contexts have not been asked about, in the order they
    /// came.
    pub(super) asked: Pool<AskedId, Ring<MessageId>>,
    /// Memory that peers may reach.
    pub(super) regions: MrTable<B>,
    /// Reads by peers that are being answered.
    pub(super) responses: Pool<ResponseId, Response>,
    /// Deferred work that has begun.
    pub(super) works: Pool<WorkId, Work>,
    pub(super) refusals: Ring<Refusal>,
    /// Groups, and what their members do together.
    pub(super) coll: Collectives<B>,
    /// The driver knows that there is something to be done for them.
    pub(super) coll_noted: bool,
    pub(super) wire_error: Option<WireError>,
    /// Weight of all messages that are kept.
    pub(super) kept: u64,
    /// Connections blocked because of that.
    pub(super) starved: Ring<ConnId>,
    pub(super) freed: Ring<SlotId>,
    resumed: Ring<ConnId>,
    pub(super) output: Ring<Output>,
    broken: Ring<(ConnId, Errno)>,
}

impl<B: Buffer> Engine<B> {
    /// An engine without objects.
    #[must_use]
    pub const fn new(limits: Limits) -> Self {
        Self {
            limits,
            cqs: Places::new(),
            counters: Pool::new(),
            ids: Pool::new(),
            srxs: Pool::new(),
            eps: Pool::new(),
            conns: Pool::new(),
            unexpected: Pool::new(),
            departed: Pool::new(),
            slots: Pool::new(),
            asked: Pool::new(),
            regions: MrTable::new(),
            responses: Pool::new(),
            works: Pool::new(),
            refusals: Ring::new(),
            coll: Collectives::new(),
            coll_noted: false,
            wire_error: None,
            kept: 0,
            starved: Ring::new(),
            freed: Ring::new(),
            resumed: Ring::new(),
            output: Ring::new(),
            broken: Ring::new(),
        }
    }

    /// Opens a completion queue with room for `size` entries.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_cq(&mut self, size: usize) -> Result<CqId> {
        self.cqs.insert(CompletionQueue::new(size)?)
    }

    /// Closes a completion queue.
    pub fn close_cq(&mut self, id: CqId) {
        self.cqs.remove(id);
    }

    /// A completion queue, to be looked at.
    #[inline]
    #[must_use]
    pub fn cq(&self, id: CqId) -> Option<&CompletionQueue> {
        self.cqs.get(id)
    }

    /// A completion queue.
    #[inline]
    pub fn cq_mut(&mut self, id: CqId) -> Option<&mut CompletionQueue> {
        self.cqs.get_mut(id)
    }

    /// Opens a counter.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_counter(&mut self, counter: Counter) -> Result<CounterId> {
        self.counters.insert(counter)
    }

    /// Closes a counter.
    pub fn close_counter(&mut self, id: CounterId) {
        self.untell(id);
        self.counters.remove(id);
    }

    /// A counter, to be looked at.
    #[must_use]
    pub fn counter(&self, id: CounterId) -> Option<&Counter> {
        self.counters.get(id)
    }

    /// A counter.
    #[inline]
    pub fn counter_mut(&mut self, id: CounterId) -> Option<&mut Counter> {
        self.counters.get_mut(id)
    }

    /// Opens ids for the peers of an address vector.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_ids(&mut self, ids: UserIds) -> Result<UserIdsId> {
        self.ids.insert(ids)
    }

    /// The ids of peers.
    pub fn ids_mut(&mut self, id: UserIdsId) -> Option<&mut UserIds> {
        self.ids.get_mut(id)
    }

    /// Closes ids. Peers are reported by their addresses again.
    pub fn close_ids(&mut self, id: UserIdsId) {
        self.ids.remove(id);
    }

    /// Opens a receive context.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_srx(&mut self, matcher: Matcher<B>) -> Result<SrxId> {
        self.srxs.insert(matcher)
    }

    /// A receive context.
    #[inline]
    pub fn srx_mut(&mut self, id: SrxId) -> Option<&mut Matcher<B>> {
        self.srxs.get_mut(id)
    }

    /// Closes a receive context; receives posted there are forgotten, and so are messages
    /// that wait there. Those of deferred work fail. Close the connections first.
    pub fn close_srx(&mut self, id: SrxId) {
        self.fail_each(id, (None, None), Errno::ECANCELED, |recv| {
            recv.work().is_some()
        });
        let Some(mut matcher) = self.srxs.remove(id) else {
            return;
        };
        let mut messages = matcher.split_unexpected(&mut self.unexpected, |_| true);
        while let Some(message) = messages.pop_front(&mut self.unexpected) {
            self.forget_unexpected(message);
        }
        if let Some(asked) = matcher.asked {
            self.asked.remove(asked);
        }
    }

    /// Opens an endpoint.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn open_ep(&mut self, config: EpConfig) -> Result<EpId> {
        self.eps.insert(Ep::new(config))
    }

    /// Closes an endpoint; messages that wait for a receive there are forgotten, also in a
    /// shared receive context. Close it before its connections, if operations that fail with them shall
    /// not be reported.
    pub fn close_ep(&mut self, id: EpId) {
        let Some(ep) = self.eps.remove(id) else {
            return;
        };
        self.coll.close_ep(id);
        self.note_coll();
        let Some(srx) = ep.config.srx else { return };
        self.lose(srx, Errno::ECANCELED, |message| message.ep == Some(id));
        self.leave_lost(srx, id);
    }

    /// What an endpoint is made of.
    #[must_use]
    pub fn ep(&self, id: EpId) -> Option<&EpConfig> {
        Some(&self.eps.get(id)?.config)
    }

    /// Changes what an endpoint is made of. Connections opened before keep their receive
    /// context.
    pub fn change_ep(&mut self, id: EpId, change: impl FnOnce(&mut EpConfig)) {
        if let Some(ep) = self.eps.get_mut(id) {
            change(&mut ep.config);
            ep.settle();
        }
    }

    /// Sends of an endpoint not yet completed.
    #[must_use]
    pub fn outstanding(&self, id: EpId) -> usize {
        self.eps.get(id).map_or(0, |ep| ep.outstanding as usize)
    }

    /// Whether an endpoint takes one more operation.
    #[must_use]
    pub fn has_room(&self, id: EpId) -> bool {
        self.eps.get(id).is_some_and(Ep::has_room)
    }

    /// Opens a connection that is not up yet: sends wait until [`Engine::conn_up`].
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an unknown endpoint, [`Errno::ENOMEM`].
    pub fn open_conn(&mut self, config: ConnConfig) -> Result<ConnId> {
        let ep = self.eps.get(config.ep).ok_or(Errno::EINVAL)?.config;
        let mut conn = Conn::new(config, ep.srx);
        conn.after_reads = ep.after_reads;
        self.conns.insert(conn)
    }

    /// A connection.
    #[inline]
    #[must_use]
    pub fn conn(&self, id: ConnId) -> Option<&Conn<B>> {
        self.conns.get(id)
    }

    /// The connections of an endpoint.
    pub fn conns_of(&self, ep: EpId) -> impl Iterator<Item = ConnId> + '_ {
        self.conns
            .ids()
            .filter(move |id| self.conns.get(*id).is_some_and(|c| c.config.ep == ep))
    }

    /// The peer of a connection got a place in the address vector, or lost it: messages from
    /// it that are not received yet are from `src` now. Receives posted for that source
    /// before do not see those that have arrived. Those that name a peer which loses its place
    /// stay posted: what becomes of operations in progress that name it is undefined
    /// (`fi_av_remove`, man page `fi_av(3)`).
    pub fn set_source(&mut self, id: ConnId, src: FiAddr) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        conn.config.src = src;
        conn.envelope.src = src;
        for entry in conn.cts.iter_mut() {
            entry.envelope.src = src;
        }
        if let Some(matcher) = self.srxs.find_mut(conn.srx) {
            matcher.rename_unexpected(&mut self.unexpected, |message| {
                (message.conn == Some(id)).then_some(src)
            });
        }
    }

    /// Ends a connection: all that waits for it completes with `error`. Messages that had
    /// arrived whole can still be received.
    pub fn close_conn(&mut self, id: ConnId, error: Errno) {
        // An end that was agreed on loses nobody: a member is reached by the next connection.
        let used = self.conns.get(id).is_some_and(Conn::serves_groups) && !self.may_be_closed(id);
        self.fail_all_tx(id, error);
        self.fail_all_rx(id, error);
        self.lose_members(id, used, error);
        self.conns.remove(id);
        // Its id may soon be another connection's.
        self.resumed.retain(|other| *other != id);
        self.output.retain(|other| match *other {
            Output::Conn(other)
            | Output::Get(other, _)
            | Output::Joint(other)
            | Output::PeerGot(other)
            | Output::Parted { conn: other, .. } => other != id,
            Output::Coll => true,
        });
        self.broken.retain(|(other, _)| *other != id);
        self.starved.retain(|other| *other != id);
        self.refusals.retain(|refusal| refusal.conn != id);
    }

    fn fail_all_rx(&mut self, id: ConnId, error: Errno) {
        let Some(conn) = self.conns.get_mut(id) else {
            return;
        };
        let (envelope, rx, srx) = (conn.envelope, conn.rx, conn.srx);
        conn.rx = RxState::Header;
        match rx {
            RxState::Payload {
                target: Target::Recv(recv, _),
                ..
            } => self.fail_recv(id, recv, &envelope, error),
            RxState::Job
            | RxState::Payload {
                target: Target::Write | Target::Operands,
                ..
            } => self.release_write(id),
            _ => {}
        }
        while let Some(entry) = self.conns.get_mut(id).and_then(|conn| conn.cts.take_any()) {
            if let Target::Recv(recv, _) = entry.target {
                self.fail_recv(id, recv, &entry.envelope, error);
            }
        }
        self.orphan(id, srx, error);
    }

    /// How much the unexpected messages that are kept count, see [`Limits::kept_total`].
    #[must_use]
    pub const fn kept(&self) -> u64 {
        self.kept
    }

    /// Whether none of the `pop_` methods has anything.
    #[inline]
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.output.is_empty()
            && self.freed.is_empty()
            && self.resumed.is_empty()
            && self.broken.is_empty()
            && self.refusals.is_empty()
    }

    /// A slot whose payload is no longer needed; the driver drops the memory behind it.
    #[inline]
    pub fn pop_freed(&mut self) -> Option<SlotId> {
        if self.freed.is_empty() {
            return None;
        }
        let slot = self.freed.pop()?;
        self.slots.remove(slot);
        Some(slot)
    }

    /// Says that the driver is done with a slot, if there is one, see [`Engine::start_postponed`].
    pub fn free_slot(&mut self, slot: Option<SlotId>) {
        if let Some(slot) = slot {
            self.release_slot(slot);
        }
    }

    pub(super) fn release_slot(&mut self, slot: SlotId) {
        if self.freed.push(slot).is_err() {
            // The id stays taken and its memory unused: a leak, but no confusion.
        }
    }

    /// A connection that was blocked and can be read again: [`Engine::rx_retry`] first.
    #[inline]
    pub fn pop_resumed(&mut self) -> Option<ConnId> {
        if self.resumed.is_empty() {
            return None;
        }
        self.resumed.pop()
    }

    /// The bytes of the message that a connection waits to keep or to place, of which none was
    /// taken off the stream; `None` where it waits for nothing of that kind.
    #[must_use]
    pub fn rx_stalled_len(&self, id: ConnId) -> Option<u64> {
        match self.conns.get(id)?.rx {
            RxState::Blocked(message) => Some(self.unexpected.find(message)?.payload()),
            RxState::Header | RxState::Payload { .. } | RxState::Job => None,
        }
    }

    /// How many messages are kept for a connection, and of how many bytes of payload, where it is not read for
    /// want of room for one more.
    #[must_use]
    pub fn rx_full(&self, id: ConnId) -> Option<(u32, u64)> {
        let conn = self.conns.get(id)?;
        match conn.rx {
            RxState::Blocked(Some(message)) if self.may_keep(message) => {
                let entries = u64::from(conn.kept_count).saturating_mul(ENTRY);
                Some((conn.kept_count, conn.kept.saturating_sub(entries)))
            }
            _ => None,
        }
    }

    pub(super) fn resume(&mut self, conn: ConnId) {
        if self.resumed.push(conn).is_err() {
            self.break_conn(conn, Errno::ENOMEM);
        }
    }

    /// Tries again to keep the message a connection is blocked on, unless that waits for an
    /// owner's answer. Returns whether the connection can be read.
    pub fn rx_retry(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get(id) else {
            return false;
        };
        match conn.rx {
            RxState::Blocked(None) => self.retry_coll(id),
            RxState::Blocked(Some(message)) if self.may_keep(message) => self.keep(id, message),
            _ => {}
        }
        self.conns
            .get(id)
            .is_some_and(|conn| !matches!(conn.rx, RxState::Blocked { .. }))
    }

    /// What the engine itself has to send.
    #[inline]
    pub fn pop_output(&mut self) -> Option<Output> {
        if self.output.is_empty() {
            return None;
        }
        self.output.pop()
    }

    /// Names a connection in [`Engine::pop_output`] when the driver comes to that.
    pub fn flush_later(&mut self, conn: ConnId) {
        self.mark_output(conn);
    }

    /// Names a connection in [`Engine::pop_broken`]: the driver cannot go on with it, but is in
    /// the middle of something.
    pub fn give_up(&mut self, conn: ConnId, error: Errno) {
        self.break_conn(conn, error);
    }

    pub(super) fn output_push(&mut self, output: Output) -> Result<()> {
        self.output.push(output)
    }

    pub(super) fn mark_output(&mut self, conn: ConnId) {
        if self.output.push(Output::Conn(conn)).is_err() {
            self.break_conn(conn, Errno::ENOMEM);
        }
    }

    /// A connection the engine cannot go on with, and why; the driver closes it.
    #[inline]
    pub fn pop_broken(&mut self) -> Option<(ConnId, Errno)> {
        if self.broken.is_empty() {
            return None;
        }
        self.broken.pop()
    }

    pub(super) fn break_conn(&mut self, conn: ConnId, error: Errno) {
        // Without memory even for this the connection stays as it is until the peer ends it.
        let _ = self.broken.push((conn, error));
    }
}

/// An error entry that names the connection's peer.
pub(super) fn error_entry<B: Buffer>(entry: Completion, err: Errno, conn: &Conn<B>) -> ErrorEntry {
    named_error(entry, err, conn.name())
}

/// An error entry about the peer with this address.
pub(super) fn named_error(entry: Completion, err: Errno, name: &[u8]) -> ErrorEntry {
    let mut entry = ErrorEntry::new(entry, err);
    if let Some(to) = entry.data.get_mut(..name.len().min(ERROR_DATA))
        && let Some(from) = name.get(..to.len())
    {
        to.copy_from_slice(from);
        entry.data_len = to.len() as u8;
    }
    entry
}
