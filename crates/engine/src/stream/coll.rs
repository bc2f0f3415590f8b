//! Collective operations over the connections of an endpoint, as an extension of the protocol
//! ([`Extensions::COLL`]): what [`Collectives`] says to members goes out among the messages, and
//! what they say comes in its own space, apart from messages and tags.

use core::time::Duration;

use ripstop_types::{Completion, Errno, FiAddr, Flags, Result};
use ripstop_wire::xnet::base::{Header, MAX_HEADER};
use ripstop_wire::xnet::cm::Extensions;

use crate::coll::{
    Action, Arrival, Collectives, Joining, Message, Outcome, Place, Purpose, Request, Task,
};
use crate::id::{CollOpId, ConnId, EpId, GroupId, SlotId};
use crate::matching::ENTRY;
use crate::stream::arriving::{Incoming, RxState, Target};
use crate::stream::conn::Conn;
use crate::stream::engine::{Engine, Ep, Limits};
use crate::stream::records::Output;
use crate::stream::request::{CollSend, Posted, TxDone, TxInfo};
use crate::stream::rma::Appended;
use crate::{Buffer, Iov};

/// What the driver must do with a message to a member that was accepted.
#[derive(Clone, Copy, Debug)]
pub enum CollPlan {
    /// Append it to the transmit buffer.
    Append(Appended),
    /// Nothing: it goes out by [`Engine::start_postponed`].
    Postpone,
}

/// What the driver is to do for collective operations.
#[derive(Clone, Copy, Debug)]
pub enum CollAction<B> {
    /// Send a message to a member: find the connection of the endpoint, open one if there is
    /// none, and call [`Engine::post_coll`]. Without a connection, call
    /// [`Engine::coll_unreachable`].
    Send {
        /// The endpoint.
        ep: EpId,
        /// The member.
        to: FiAddr,
        /// The message.
        send: CollSend<B>,
    },
    /// Something else: a copy or reduction that cannot be done ends by [`Engine::coll_no_memory`],
    /// a group that has been joined by [`Engine::close_group`].
    Task(Task<B>),
}

// Groups and operations.
impl<B: Buffer> Engine<B> {
    /// Joins a group; [`Task::Joined`] says when all members have.
    ///
    /// # Errors
    /// As for [`Collectives::join`].
    pub fn join_group(&mut self, joining: &Joining<'_>) -> Result<GroupId> {
        let joined = self.coll.join(joining);
        self.note_coll();
        joined
    }

    /// Leaves a group. What is in flight there ends in error.
    pub fn close_group(&mut self, group: GroupId) {
        self.coll.close(group);
        self.note_coll();
    }

    /// The members of a group that is up, by rank.
    #[must_use]
    pub fn group_members(&self, group: GroupId) -> Option<&[FiAddr]> {
        self.coll.members(group)
    }

    /// Starts an operation of a group.
    ///
    /// # Errors
    /// As for [`Collectives::start`].
    pub fn start_coll(&mut self, group: GroupId, request: Request<B>) -> Result<()> {
        let plan = self.coll.plan(group, &request)?;
        let slot = match Collectives::scratch(&plan, &request) {
            0 => None,
            _ => Some(self.slots.insert(())?),
        };
        let started = self.coll.start(group, request, slot);
        if let (Err(_), Some(slot)) = (started, slot) {
            self.slots.remove(slot);
        }
        self.note_coll();
        started
    }

    /// Time has passed. Returns whether to call again soon; the time is that since any fixed
    /// moment.
    pub fn coll_tick(&mut self, now: Duration) -> bool {
        if self.coll.is_unused() {
            return false;
        }
        let again = self.coll.tick(now);
        self.note_coll();
        again
    }

    /// There can be no connection to a member.
    pub fn coll_unreachable(&mut self, ep: EpId, to: FiAddr, send: &CollSend<B>, error: Errno) {
        self.coll_failed(send.op, error);
        self.coll.lost(ep, to, None, error);
        self.note_coll();
    }

    /// There is no memory for what an action says.
    pub fn coll_no_memory(&mut self, op: CollOpId) {
        self.coll.no_memory(op);
    }

    /// What to do next, until there is nothing. [`Engine::pop_output`] says [`Output::Coll`] when there
    /// is something.
    pub fn coll_next(&mut self) -> Option<CollAction<B>> {
        loop {
            let Some(action) = self.coll.next_action() else {
                self.coll_noted = false;
                return None;
            };
            match action {
                Action::Send {
                    ep,
                    to,
                    op,
                    message,
                    payload,
                } => {
                    let send = CollSend::new(message, op, &payload);
                    return Some(CollAction::Send { ep, to, send });
                }
                Action::Task(task) => return Some(CollAction::Task(task)),
                Action::Drop { conn, of } => self.drop_incoming(conn, of),
                Action::Forget { conn, slot, len } => self.forget_kept(conn, slot, len),
                Action::Free { slot } => self.release_slot(slot),
                Action::Ended(outcome) => self.report_coll(&outcome),
            }
        }
    }

    /// Makes sure the driver comes for what is to be done.
    #[cold]
    #[inline(never)]
    pub(super) fn note_coll(&mut self) {
        if !self.coll_noted && !self.coll.is_quiet() {
            self.coll_noted = self.output_push(Output::Coll).is_ok();
        }
    }

    fn report_coll(&mut self, outcome: &Outcome) {
        let Some(ep) = self.eps.get(outcome.ep) else {
            return;
        };
        if let Some(counter) = self.counters.find_mut(ep.config.write_counter) {
            match outcome.error {
                None => counter.success(0),
                Some(_) => counter.failure(),
            }
        }
        let cq = ep.config.tx_cq;
        let entry = Completion {
            context: outcome.context,
            flags: Flags::COLLECTIVE,
            ..Completion::BLANK
        };
        match outcome.error {
            None => self.report(cq, Ok(entry)),
            Some(error) => self.push_error(cq, entry, error),
        }
    }
}

// What is sent.
impl<B: Buffer> Engine<B> {
    /// Accepts a message to a member for a connection, whatever waits there. Its header is put
    /// into `header`.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] if the peer has no collectives, [`Errno::ENOTCONN`],
    /// [`Errno::ENOMEM`]: call [`Engine::coll_unreachable`].
    pub fn post_coll(
        &mut self,
        conn_id: ConnId,
        send: &CollSend<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<CollPlan> {
        let conn = self.conns.get(conn_id).ok_or(Errno::ENOTCONN)?;
        if conn.up && !conn.extensions.contains(Extensions::COLL) {
            return Err(Errno::EOPNOTSUPP);
        }
        if conn.ready_to_send || conn.awaits_only_reads() {
            match self.queue_coll(conn_id, send, header) {
                Err(Errno::EAGAIN) => {}
                buffered => return buffered.map(CollPlan::Append),
            }
        }
        self.postpone(conn_id, Posted::Coll(*send))?;
        Ok(CollPlan::Postpone)
    }

    /// As [`Engine::post_coll`], when its turn has come.
    pub(super) fn queue_coll(
        &mut self,
        conn_id: ConnId,
        send: &CollSend<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Appended> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = self.eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        let buffered = Self::append_coll(conn, ep, &self.limits, send, header)?;
        if buffered.inline
            && let Some(op) = send.op
        {
            // The driver copies it before it does anything else.
            self.coll.sent(op);
            self.note_coll();
        }
        Ok(buffered)
    }

    fn append_coll(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        send: &CollSend<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Appended> {
        let len = send.message.len;
        let inline = conn.copies_payload(limits, MAX_HEADER, len, false)?;
        let full = Header::coll(send.message);
        let header_len = full.emit(conn.order, header)?;
        if inline {
            conn.queue_buffered(len.saturating_add(header_len as u64))?;
            return Ok(Appended { header_len, inline });
        }
        let end = conn.queued.wrapping_add(header_len as u64);
        let info = send.info();
        conn.dones.push(TxDone {
            end: end.wrapping_add(len),
            info,
        })?;
        let queued = match send.kept {
            None => conn.queue(header_len as u64, Some(&send.iov)),
            Some((slot, at)) => conn.queue_part(header_len as u64, slot, at, len),
        };
        if let Err(error) = queued {
            conn.dones.pop_back();
            return Err(error);
        }
        ep.outstanding = ep.outstanding.wrapping_add(1);
        Ok(Appended { header_len, inline })
    }

    /// A message to a member has left.
    pub(super) fn finish_coll_send(&mut self, conn_id: ConnId, info: &TxInfo) {
        self.one_less(conn_id);
        if let Some(op) = op_of(info) {
            self.coll.sent(op);
        }
        self.note_coll();
    }

    /// A message to a member will not leave whole.
    pub(super) fn fail_coll_send(&mut self, conn_id: ConnId, info: &TxInfo, error: Errno) {
        self.one_less(conn_id);
        self.coll_failed(op_of(info), error);
        if error == Errno::EOPNOTSUPP
            && let Some(conn) = self.conns.get(conn_id)
        {
            let (ep, src) = (conn.config.ep, conn.config.src);
            self.coll.lost(ep, src, None, error);
        }
        self.note_coll();
    }

    fn one_less(&mut self, conn_id: ConnId) {
        let ep = self.conns.get(conn_id).map(|conn| conn.config.ep);
        if let Some(ep) = self.eps.find_mut(ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
    }

    fn coll_failed(&mut self, op: Option<CollOpId>, error: Errno) {
        if let Some(op) = op {
            self.coll.send_failed(op, error);
        }
    }
}

/// The operation whose message has this context, see [`CollSend::info`].
fn op_of(info: &TxInfo) -> Option<CollOpId> {
    CollOpId::new(u32::try_from(info.context).ok()?)
}

// What arrives.
impl<B: Buffer> Engine<B> {
    /// A message of a member starts.
    pub(super) fn start_coll_message(
        &mut self,
        conn_id: ConnId,
        coll: Option<&Message>,
    ) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let message = *coll.ok_or(Errno::EPROTO)?;
        if !conn.extensions.contains(Extensions::COLL) {
            return Err(Errno::EPROTO);
        }
        if message.len > 0 && !self.coll.is_quiet() {
            // Where it goes depends on what is yet to be done.
            conn.incoming.waits = Some(message);
            conn.rx = RxState::Job;
            return Ok(());
        }
        self.deliver_coll(conn_id, message)
    }

    /// All that [`Engine::coll_next`] said was done: goes on with the message for which that had
    /// to be. A peer that broke the protocol is named by [`Engine::pop_broken`].
    pub fn coll_job_done(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.get_mut(conn_id)
            && conn.rx == RxState::Job
            && let Some(message) = conn.incoming.waits.take()
        {
            self.deliver_or_break(conn_id, message);
        }
    }

    fn deliver_or_break(&mut self, conn_id: ConnId, message: Message) {
        let Err(error) = self.deliver_coll(conn_id, message) else {
            return;
        };
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.rx = RxState::Blocked(None);
        }
        self.break_conn(conn_id, error);
    }

    /// Tries again to keep the message that a connection is blocked on.
    pub(super) fn retry_coll(&mut self, conn_id: ConnId) {
        let waits = self
            .conns
            .get_mut(conn_id)
            .and_then(|conn| conn.incoming.waits.take());
        let Some(message) = waits else { return };
        if self.coll.is_quiet() || message.len == 0 {
            return self.deliver_or_break(conn_id, message);
        }
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.incoming.waits = Some(message);
            conn.rx = RxState::Job;
        }
    }

    fn deliver_coll(&mut self, conn_id: ConnId, message: Message) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let (ep, src) = (conn.config.ep, conn.config.src);
        conn.rx = RxState::Header;
        conn.envelope.ack = false;
        conn.envelope.len = message.len;
        let arrival = self.coll.handle_message((ep, src, conn_id), &message);
        let target = match arrival {
            Arrival::Discard => Target::Discard,
            Arrival::Into { of, place } => {
                self.expect(conn_id, place, of);
                Target::Coll
            }
            Arrival::Keep => match self.keep_coll(conn_id, message)? {
                true => Target::Coll,
                false => return Ok(()),
            },
            Arrival::Broken => return Err(Errno::EPROTO),
        };
        self.note_coll();
        if message.len > 0 {
            self.start_payload(conn_id, target, None);
        }
        Ok(())
    }

    fn expect(&mut self, conn_id: ConnId, place: Place<B>, of: Purpose) {
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.incoming = Incoming {
                waits: None,
                iov: match place {
                    Place::User(buffer) => Iov::one(buffer),
                    Place::Slot { .. } => Iov::EMPTY,
                },
                place,
                of: Some(of),
            };
        }
    }

    /// Keeps a message that comes too early; `false` if the connection has to wait for room.
    fn keep_coll(&mut self, conn_id: ConnId, message: Message) -> Result<bool> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let weight = message.len.saturating_add(ENTRY);
        let own = conn.kept.saturating_add(weight);
        let full = own > self.limits.kept_bytes || conn.kept_count >= self.limits.kept_messages;
        let all = self.kept.saturating_add(weight);
        if full || all > self.limits.kept_total {
            conn.incoming.waits = Some(message);
            conn.rx = RxState::Blocked(None);
            if !full {
                conn.starved = conn.starved || self.starved.push(conn_id).is_ok();
            }
            return Ok(false);
        }
        let slot = if message.len > 0 {
            Some(self.slots.insert(())?)
        } else {
            None
        };
        let from = (conn.config.ep, conn.config.src, conn_id);
        let id = self.coll.keep(from, message, slot)?;
        self.kept = all;
        conn.kept = own;
        conn.kept_count = conn.kept_count.saturating_add(1);
        let place = match slot {
            Some(slot) => Place::Slot {
                slot,
                total: message.len,
                at: 0,
                len: message.len,
            },
            None => Place::User(B::EMPTY),
        };
        self.expect(conn_id, place, Purpose::Early(id));
        Ok(true)
    }

    /// The payload of a member's message has come.
    pub(super) fn finish_coll_payload(&mut self, conn_id: ConnId) {
        if let Some(of) = self.conns.get(conn_id).and_then(|conn| conn.incoming.of) {
            self.coll.arrived(of);
        }
        self.note_coll();
    }

    /// There is no memory for the slot where it goes.
    pub(super) fn coll_rx_no_memory(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        if let RxState::Payload { target, .. } = &mut conn.rx {
            *target = Target::Discard;
        }
        if let Some(of) = conn.incoming.of {
            self.coll.arrival_lost(of);
        }
        self.note_coll();
    }

    fn drop_incoming(&mut self, conn_id: ConnId, of: Purpose) {
        if let Some(conn) = self.conns.get_mut(conn_id)
            && conn.incoming.of == Some(of)
            && let RxState::Payload { target, .. } = &mut conn.rx
            && *target == Target::Coll
        {
            *target = Target::Discard;
        }
    }

    fn forget_kept(&mut self, conn_id: Option<ConnId>, slot: Option<SlotId>, len: u64) {
        self.free_slot(slot);
        if let Some(conn_id) = conn_id
            && let Some(conn) = self.conns.get_mut(conn_id)
        {
            conn.kept = conn.kept.saturating_sub(len.saturating_add(ENTRY));
            conn.kept_count = conn.kept_count.saturating_sub(1);
            if matches!(conn.rx, RxState::Blocked { .. }) {
                self.resume(conn_id);
            }
        }
        self.make_room(len.saturating_add(ENTRY));
    }

    /// A connection closes. What came over it and what went there is no more.
    pub(super) fn lose_members(&mut self, conn_id: ConnId, used: bool, error: Errno) {
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let (ep, src) = (conn.config.ep, conn.config.src);
        if self.coll.is_unused() {
            return;
        }
        match used {
            true => self.coll.lost(ep, src, Some(conn_id), error),
            false => self.coll.forget_conn(conn_id),
        }
        self.note_coll();
    }
}

impl<B: Buffer> Conn<B> {
    /// Whether members would miss it.
    pub(super) fn serves_groups(&self) -> bool {
        let coll = |index| {
            let postponed = self.postponed.get(index);
            postponed.is_some_and(|postponed| matches!(postponed.posted, Posted::Coll(_)))
        };
        self.up || (0..self.postponed.len()).any(coll)
    }
}
