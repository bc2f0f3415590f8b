//! The sending side of a connection.

use ripstop_types::{Completion, Context, Errno, Flags, Result};
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::{Header, Op};

use crate::Buffer;
use crate::counter::Counter;
use crate::cq::CompletionQueue;
use crate::id::{ConnId, CounterId, CqId, SlotId};
use crate::pool::{Places, Pool};
use crate::stream::awaited::{IndexedTx, RtsEntry};
use crate::stream::conn::{Chunk, Conn};
use crate::stream::engine::{Engine, Ep, EpConfig, Limits, error_entry};
use crate::stream::message_header::{put_announcement, put_header};
use crate::stream::packets::PACKET_HEADER;
use crate::stream::request::{
    CANCELLED, Posted, Postponed, RARE, SEND_HEADER, Send, SendPlan, TxDone, TxInfo, WORK, Wait,
};

/// A postponed operation whose turn has come, see [`Engine::start_postponed`].
#[derive(Clone, Copy, Debug)]
pub struct StartedPostponed<B> {
    /// The operation, with the slot of its payload.
    pub postponed: Postponed<B>,
    /// The length of its header, in bytes.
    pub header_len: usize,
    /// Whether the payload goes to the transmit buffer behind the header.
    pub inline: bool,
}

impl Ep {
    /// Counts and reports an operation of the endpoint that has succeeded.
    #[inline]
    pub(super) fn succeed(
        &self,
        cqs: &mut Places<CqId, CompletionQueue>,
        counters: &mut Pool<CounterId, Counter>,
        info: &TxInfo,
    ) {
        if let Some(counter) = counters.find_mut(self.config.counter_of(info.flags)) {
            counter.success(info.len);
        }
        if info.completion
            && let Some(cq) = cqs.at_mut(self.tx_cq)
        {
            cq.push(Completion {
                context: info.context,
                flags: info.flags,
                ..Completion::BLANK
            });
        }
    }
}

impl EpConfig {
    /// Counts and reports one that has failed, with the flags and the context of its entry.
    pub(super) fn fail<B: Buffer>(
        &self,
        cqs: &mut Places<CqId, CompletionQueue>,
        counters: &mut Pool<CounterId, Counter>,
        (flags, context): (Flags, Context),
        error: Errno,
        conn: &Conn<B>,
    ) {
        if let Some(counter) = counters.find_mut(self.counter_of(flags)) {
            counter.failure();
        }
        if let Some(cq) = cqs.find_mut(self.tx_cq) {
            let completion = Completion {
                context,
                flags,
                ..Completion::BLANK
            };
            cq.push_error(error_entry(completion, error, conn));
        }
    }
}

/// What has become of a message that was to be queued eagerly.
enum Appended {
    /// It was queued.
    Eager(SendPlan),
    /// Nothing was queued: its receiver gets or asks for the payload, so it is to be announced.
    MustAnnounce,
}

impl<B: Buffer> Engine<B> {
    /// A connection, its endpoint, and the bounds on both.
    #[inline]
    pub(super) fn parts(&mut self, conn_id: ConnId) -> Result<(&mut Conn<B>, &mut Ep, &Limits)> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = self.eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        Ok((conn, ep, &self.limits))
    }

    /// As [`Engine::parts`], if the endpoint has room for one more operation.
    #[inline]
    pub(super) fn with_room(
        &mut self,
        conn_id: ConnId,
    ) -> Result<(&mut Conn<B>, &mut Ep, &Limits)> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        if !ep.has_room() {
            return Err(Errno::EAGAIN);
        }
        Ok((conn, ep, limits))
    }

    /// Accepts a message for a connection.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when a queue is full, [`Errno::ENOTCONN`] for an unknown connection,
    /// [`Errno::ENOMEM`]. Nothing is queued then.
    #[inline]
    pub fn send(&mut self, conn_id: ConnId, send: &Send<B>) -> Result<SendPlan> {
        let (conn, ep, limits) = self.with_room(conn_id)?;
        if !conn.ready_to_send {
            let slot = self.postpone(conn_id, Posted::Send(*send))?;
            return Ok(SendPlan::Postpone { slot });
        }
        match Self::append(conn, ep, limits, send)? {
            Appended::Eager(plan) => Ok(plan),
            Appended::MustAnnounce => self.send_rts(conn_id, send),
        }
    }

    /// As [`Engine::send`], whatever waits on the connection.
    fn queue_send(&mut self, conn_id: ConnId, send: &Send<B>) -> Result<SendPlan> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        match Self::append(conn, ep, limits, send)? {
            Appended::Eager(plan) => Ok(plan),
            Appended::MustAnnounce => self.send_rts(conn_id, send),
        }
    }

    /// Queues a message if it is eager. When as many announced ones wait as the protocol can name, the next
    /// messages are eager: what follows must not wait for them.
    #[inline]
    fn append(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        send: &Send<B>,
    ) -> Result<Appended> {
        let len = send.iov.len();
        if limits.tx_buffer.saturating_sub(conn.buffered) < SEND_HEADER {
            return Err(Errno::EAGAIN);
        }
        let asks = match send.inject {
            true => conn.is_to_announce_injected(len, send.ack),
            false => {
                conn.is_to_get(send, limits)
                    || conn.is_to_announce(len, send.ack, limits)
                    || send.tag.is_some()
                        && conn.packets.is_none()
                        && conn.is_held_back(len, limits)
            }
        };
        if asks {
            return Ok(Appended::MustAnnounce);
        }
        Self::append_eager(conn, ep, limits, send).map(Appended::Eager)
    }

    /// Queues an eager message.
    #[inline]
    pub(super) fn append_eager(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        send: &Send<B>,
    ) -> Result<SendPlan> {
        let len = send.iov.len();
        let room = limits.tx_buffer.saturating_sub(conn.buffered);
        let longest = match conn.packets {
            None => SEND_HEADER,
            Some(_) => PACKET_HEADER,
        };
        if room < longest {
            return Err(Errno::EAGAIN);
        }
        let inline = send.inject || len <= limits.inline as u64;
        let fits = len <= room.saturating_sub(longest) as u64;
        if send.inject && !fits {
            return Err(Errno::EAGAIN);
        }
        let inline = inline && fits;

        let mut header = [0; SEND_HEADER];
        let header_len = match conn.packets {
            None => put_header(conn.order, send.tag, send.data, send.ack, len, &mut header)
                .ok_or(Errno::EMSGSIZE)?,
            Some(_) => PACKET_HEADER,
        };
        let inline_len = if inline { len } else { 0 };
        let buffered = inline_len.saturating_add(header_len as u64);
        let noted = !send.is_silent() || ep.counts_sends() || send.ack;
        if noted {
            let user = if inline { 0 } else { len };
            let end = conn.queued.wrapping_add(buffered).wrapping_add(user);
            let info = send.info();
            conn.dones.push(TxDone { end, info })?;
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        let queued = if inline {
            conn.queue_buffered(buffered)
        } else {
            conn.queue(buffered, Some(&send.iov))
        };
        if let Err(error) = queued {
            if noted {
                conn.dones.pop_back();
                ep.outstanding = ep.outstanding.wrapping_sub(1);
            }
            return Err(error);
        }
        Ok(match conn.packets {
            None => SendPlan::Append {
                header,
                header_len: header_len as u8,
                inline,
            },
            Some(_) => {
                conn.note_eager_packet(len);
                SendPlan::Packet {
                    index: None,
                    inline,
                }
            }
        })
    }

    /// Puts an operation off; returns the slot for its payload, if that is copied.
    #[cold]
    pub(super) fn postpone(
        &mut self,
        conn_id: ConnId,
        posted: Posted<B>,
    ) -> Result<Option<SlotId>> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let fenced = core::mem::take(&mut conn.fence);
        let wait = match conn.after_reads && posted.follows_reads() {
            _ if fenced => Wait::All,
            true => Wait::Reads,
            false => Wait::Turn,
        };
        let inline = posted.is_injected() && !posted.iov().is_empty();
        let slot = match inline {
            true => Some(self.slots.insert(())?),
            false => None,
        };
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let postponed = Postponed { posted, slot, wait };
        conn.set_ready_to_send(false);
        if let Err(error) = conn.postponed.push(postponed) {
            if let Some(slot) = slot {
                self.slots.remove(slot);
            }
            return Err(error);
        }
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        Ok(slot)
    }

    /// What is posted next waits until what was posted before is done at the peer
    /// (`FI_FENCE`), and what follows it too.
    #[cold]
    pub fn fence(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.get_mut(conn_id)
            && (conn.is_fenced() || !conn.ready_to_send)
        {
            conn.set_ready_to_send(false);
            conn.fence = true;
        }
    }

    /// On a connection that is up, queues the oldest postponed operation. The driver puts the header,
    /// which is written to `header`, into the transmit buffer, and the payload if so told, from the
    /// slot if there is one, and then calls [`Engine::free_slot`]. `None` when none is left, or the
    /// oldest waits for answers that are under way. New operations are postponed too until none is
    /// left, so that none overtakes another.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the transmit buffer is full: write what there is, and come again when
    /// the connection had output.
    pub fn start_postponed(
        &mut self,
        conn_id: ConnId,
        header: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<Option<StartedPostponed<B>>> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.up || conn.is_parting() {
            return Ok(None);
        }
        self.fail_impossible(conn_id);
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let Some(postponed) = conn.postponed.front().copied() else {
            return Ok(None);
        };
        if conn.front_waits() {
            return Ok(None);
        }
        let header_of_unit = header.first_chunk_mut().ok_or(Errno::ENOBUFS)?;
        let (header_len, inline) = match &postponed.posted {
            Posted::Send(send) => match self.queue_send(conn_id, send)? {
                SendPlan::Append {
                    header: bytes,
                    header_len,
                    inline,
                    ..
                } => {
                    if let Some(front) = header.first_chunk_mut() {
                        *front = bytes;
                    }
                    (usize::from(header_len), inline)
                }
                SendPlan::Packet { index, inline } => {
                    (self.packet(conn_id, send, index, header), inline)
                }
                SendPlan::Postpone { .. } => return Ok(None),
            },
            Posted::Rma(rma) => {
                let buffered = self.queue_rma(conn_id, rma, header_of_unit)?;
                (buffered.header_len, buffered.inline)
            }
            Posted::Atomic(atomic) => {
                let buffered = self.queue_atomic(conn_id, atomic, header)?;
                (buffered.header_len, buffered.inline)
            }
            Posted::Coll(send) => {
                let buffered = self.queue_coll(conn_id, send, header_of_unit)?;
                (buffered.header_len, buffered.inline)
            }
        };
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return Err(Errno::ENOTCONN);
        };
        conn.postponed.pop();
        conn.settle_ready();
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
        Ok(Some(StartedPostponed {
            postponed,
            header_len,
            inline,
        }))
    }

    /// Fails what the peer does not have, when its turn has come.
    fn fail_impossible(&mut self, conn_id: ConnId) {
        while let Some(conn) = self.conns.get_mut(conn_id)
            && conn
                .postponed
                .front()
                .is_some_and(|next| !conn.has(&next.posted))
            && let Some(postponed) = conn.postponed.pop()
        {
            conn.settle_ready();
            self.fail_postponed(conn_id, postponed, Errno::EOPNOTSUPP);
        }
    }

    /// Takes back the message that [`Engine::send`] just postponed: the driver has no memory
    /// for its slot. The call that posted it fails, and nothing is reported.
    pub fn take_back(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let Some(postponed) = conn.postponed.pop_back() else {
            return;
        };
        conn.settle_ready();
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
        self.free_slot(postponed.slot);
    }

    /// Something that was under way is done at the peer: what was put off until then has its turn.
    pub(super) fn wake_postponed(&mut self, conn_id: ConnId) {
        let conn = self.conns.get(conn_id);
        if conn.is_some_and(|conn| conn.has_postponed() && !conn.front_waits()) {
            self.mark_output(conn_id);
        }
    }

    /// Moves what waits for `from` to come up behind what waits for `to`.
    pub fn move_postponed(&mut self, from: ConnId, to: ConnId) {
        while let Some(postponed) = self.conns.get_mut(from).and_then(|c| c.postponed.pop()) {
            let moved = match self.conns.get_mut(to) {
                Some(conn) => {
                    conn.set_ready_to_send(false);
                    conn.postponed.push(postponed)
                }
                None => Err(Errno::ENOTCONN),
            };
            if let Err(error) = moved {
                self.fail_postponed(from, postponed, error);
            }
        }
    }

    #[inline(never)]
    fn send_rts(&mut self, conn_id: ConnId, send: &Send<B>) -> Result<SendPlan> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if conn.packets.is_some() {
            return self.announce_message(conn_id, send);
        }
        let address = conn.get_address(send);
        let entry = RtsEntry {
            is_get: address.is_some(),
            seen: false,
            reads_left: 0,
            iov: send.iov,
            info: send.info(),
        };
        let entry = IndexedTx::Message(entry);
        let index = conn.indexed.insert(entry, conn.has_wide_indices())?;
        let mut header = [0; SEND_HEADER];
        let emitted = put_announcement(conn.order, send, address, index, &mut header);
        let queued = emitted.and_then(|len| conn.queue(len as u64, None).map(|()| len));
        let header_len = match queued {
            Ok(len) => len,
            Err(error) => {
                conn.indexed.take(index);
                return Err(error);
            }
        };
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_add(1);
            ep.add_waiting();
        }
        Ok(SendPlan::Append {
            header,
            header_len: header_len as u8,
            inline: false,
        })
    }

    /// The receiver of a rendezvous is ready: queue its payload behind what is queued.
    pub(super) fn handle_cts(&mut self, conn_id: ConnId, index: u16) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let entry = conn.indexed.get(index).and_then(IndexedTx::message);
        let RtsEntry { iov, info, .. } = *entry.ok_or(Errno::EPROTO)?;
        let header = Header::new(Op::Data, iov.len()).with_index(index);
        conn.queue_data(conn.base_header(&header)?, &iov)?;
        let end = conn.queued;
        conn.dones.push(TxDone { end, info })?;
        // Only now: whatever failed before, closing the connection reports the message.
        conn.indexed.take(index);
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.end_waiting(1);
        }
        self.mark_output(conn_id);
        Ok(())
    }

    /// Lists what to write next, at most `chunks.len()` pieces; returns how many there are.
    #[inline]
    #[must_use]
    pub fn transmit(&self, conn_id: ConnId, chunks: &mut [Chunk<B>]) -> usize {
        let Some(conn) = self.conns.get(conn_id) else {
            return 0;
        };
        conn.transmit(chunks)
    }

    /// Takes how many bytes of [`Engine::transmit`]'s list were written. Returns how many of
    /// them came from the transmit buffer.
    #[inline]
    pub fn sent(&mut self, conn_id: ConnId, bytes: usize) -> usize {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return 0;
        };
        let buffered = if conn.only_buffered() && bytes == conn.buffered {
            // The frequent case: small messages, and all of them were written.
            conn.segments.pop();
            conn.front_sent = 0;
            conn.sent = conn.queued;
            conn.buffered = 0;
            bytes
        } else {
            conn.consume(bytes as u64)
        };
        if !conn.dones.is_empty() {
            self.finish_due(conn_id);
        }
        buffered
    }

    /// Finishes the operations whose last byte has been written.
    fn finish_due(&mut self, conn_id: ConnId) {
        loop {
            self.finish_plain(conn_id);
            let Some(conn) = self.conns.get_mut(conn_id) else {
                return;
            };
            let Some(TxDone { info, .. }) = conn.dones_due() else {
                return;
            };
            if !info.ack || conn.acks.push(info).is_err() {
                self.finish(conn_id, &info);
            }
        }
    }

    /// The frequent case: messages that wait for nothing else, as many as come first.
    fn finish_plain(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let Some(ep) = self.eps.get_mut(conn.config.ep) else {
            return;
        };
        let mut cq = self.cqs.at_mut(ep.tx_cq);
        let mut counter = self.counters.find_mut(ep.config.tx_counter);
        while let Some(TxDone { end, info }) = conn.dones.front() {
            if !conn.has_sent(*end) || info.ack || info.flags.intersects(RARE) {
                return;
            }
            ep.outstanding = ep.outstanding.wrapping_sub(1);
            if let Some(counter) = &mut counter {
                counter.success(info.len);
            }
            if info.completion
                && let Some(cq) = &mut cq
            {
                cq.push(Completion {
                    context: info.context,
                    flags: info.flags,
                    ..Completion::BLANK
                });
            }
            conn.dones.skip();
        }
    }

    /// The peer acknowledged the oldest message that waits for it.
    pub(super) fn handle_ack(&mut self, conn_id: ConnId) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let info = conn.acks.pop().ok_or(Errno::EPROTO)?;
        self.finish(conn_id, &info);
        Ok(())
    }

    /// An operation is done, or a response has left whole.
    pub(super) fn finish(&mut self, conn_id: ConnId, info: &TxInfo) {
        if info.flags.contains(Flags::REMOTE_READ) {
            return self.finish_response(conn_id, info);
        }
        if info.flags.contains(WORK) {
            return self.end_work(conn_id, info, Ok(()));
        }
        if info.flags.contains(Flags::COLLECTIVE) {
            return self.finish_coll_send(conn_id, info);
        }
        if info.flags.contains(CANCELLED) {
            return self.finish(conn_id, &info.without_cancel());
        }
        let Some(ep) = self
            .conns
            .get(conn_id)
            .and_then(|c| self.eps.get_mut(c.config.ep))
        else {
            return;
        };
        ep.outstanding = ep.outstanding.wrapping_sub(1);
        ep.succeed(&mut self.cqs, &mut self.counters, info);
    }

    pub(super) fn fail_tx(&mut self, conn_id: ConnId, info: &TxInfo, error: Errno) {
        if info.flags.contains(WORK) {
            return self.end_work(conn_id, info, Err(error));
        }
        if info.flags.contains(Flags::COLLECTIVE) {
            return self.fail_coll_send(conn_id, info, error);
        }
        if info.flags.contains(CANCELLED) {
            return self.fail_tx(conn_id, &info.without_cancel(), Errno::ECANCELED);
        }
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let Some(ep) = self.eps.get_mut(conn.config.ep) else {
            return;
        };
        ep.outstanding = ep.outstanding.wrapping_sub(1);
        let what = (info.flags, info.context);
        ep.config
            .fail(&mut self.cqs, &mut self.counters, what, error, conn);
    }

    pub(super) fn fail_postponed(
        &mut self,
        conn_id: ConnId,
        postponed: Postponed<B>,
        error: Errno,
    ) {
        self.free_slot(postponed.slot);
        let info = postponed.posted.info();
        self.fail_tx(conn_id, &info, error);
    }

    /// Everything waiting to be sent, or sent and not acknowledged, fails.
    pub(super) fn fail_all_tx(&mut self, conn_id: ConnId, error: Errno) {
        if let Some(conn) = self.conns.get(conn_id)
            && let Some(ep) = self.eps.get_mut(conn.config.ep)
        {
            ep.end_waiting(conn.announced());
        }
        while let Some(info) = self.conns.get_mut(conn_id).and_then(Conn::pop_unfinished) {
            if info.flags.contains(Flags::REMOTE_READ) {
                self.release_response(conn_id, info.context);
            } else {
                self.fail_tx(conn_id, &info, error);
            }
        }
        while let Some(postponed) = self.conns.get_mut(conn_id).and_then(|c| c.postponed.pop()) {
            self.fail_postponed(conn_id, postponed, error);
        }
    }
}
