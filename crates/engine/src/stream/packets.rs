//! Connections whose messages are in packets (`FI_PROTO_RXM`, `docs/design/rxm.md`).
//!
//! A packet is a longer header of a message, so what is above headers is the same: matching, kept
//! messages, completions. A message that is too long for one packet is announced with an address that
//! no region has, and a key that names the message among those that wait. Its receiver reads it when
//! it has found its receive, as a program reads memory, and says so.

use ripstop_types::{Errno, Result};
use ripstop_wire::WireError;
use ripstop_wire::rxm::{Body, MAX_UNIT_HEADER, Message, Packet, Unit, emit_packet};
use ripstop_wire::xnet::base::{self, BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs};

use crate::id::ConnId;
use crate::matching::{Envelope, Rts};
use crate::stream::arriving::Target;
use crate::stream::awaited::{CtsEntry, IndexedTx, ReadEntry, RtsEntry};
use crate::stream::conn::Conn;
use crate::stream::eager::hold_back_bytes;
use crate::stream::engine::{Engine, Limits};
use crate::stream::packet_state::{Expected, ReadBy};
use crate::stream::records::Origin;
use crate::stream::request::{Send, SendPlan, TxDone};
use crate::{Buffer, Iov, Reached};

/// The length in bytes of the header of a message in one packet.
pub(super) const PACKET_HEADER: usize = base::BASE_LEN + ripstop_wire::rxm::BASE_LEN;

/// What is read from this address on is a message that waits for that: the key is its index. Memory of
/// a program ends below, whether its region has addresses or offsets.
const ANNOUNCED: u64 = 1 << 63;

/// How often the payload of a message may be read: once for each piece of memory that it is said to
/// be in, of which there is one here and could be four.
pub(super) const READS: u8 = 4;

impl<B: Buffer> Conn<B> {
    /// As [`Engine::is_by_device`].
    pub(super) fn is_by_device(&self) -> bool {
        let packets = self.packets.as_ref();
        packets.is_some_and(|packets| packets.announced == ReadBy::Device)
    }

    /// Whether a message that is not injected is announced: it is too long for one packet and for segments, or nothing
    /// else tells that it is delivered. Messages that could go in segments are announced, too, once so much has gone that
    /// way that the peer, if it has no receives for it, should not have to keep more: what is announced is kept here.
    pub(super) fn is_to_announce(&self, len: u64, delivery: bool, limits: &Limits) -> bool {
        let Some(packets) = &self.packets else {
            return false;
        };
        let much = packets.segmented_unheard > hold_back_bytes(limits.kept_bytes);
        let is_long = len > self.eager_max && (much || len > packets.segmented_max);
        is_long || self.is_to_announce_injected(len, delivery)
    }

    /// Whether an injected message is announced: nothing else tells that it is delivered.
    #[inline]
    pub(super) fn is_to_announce_injected(&self, len: u64, delivery: bool) -> bool {
        delivery && len > 0 && self.is_by_device()
    }

    /// A message of so many bytes is sent without being announced.
    pub(super) fn note_eager_packet(&mut self, len: u64) {
        if len > self.eager_max
            && let Some(packets) = &mut self.packets
        {
            packets.segmented_unheard = packets.segmented_unheard.saturating_add(len);
        }
    }

    pub(super) fn emit_packet(
        &self,
        flags: BaseFlags,
        body: Body,
        out: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<usize> {
        let packets = self.packets.as_ref().ok_or(Errno::EPROTO)?;
        let packet = Packet {
            conn: packets.to,
            body,
        };
        Ok(emit_packet(self.order, flags, &packet, out)?)
    }

    /// Queues the whole of a unit without payload that is not in the transmit buffer. Headers are of
    /// whole words.
    fn queue_unit(&mut self, bytes: &[u8]) -> Result<()> {
        self.reserve(bytes.len().div_ceil(base::BASE_LEN))?;
        let mut start = true;
        for piece in bytes.chunks(base::BASE_LEN) {
            self.queue_header(piece, start)?;
            start = false;
        }
        Ok(())
    }

    pub(super) fn queue_packet(&mut self, body: Body) -> Result<()> {
        let mut out = [0; MAX_UNIT_HEADER];
        let len = self.emit_packet(BaseFlags::empty(), body, &mut out)?;
        self.queue_unit(out.get(..len).unwrap_or_default())
    }

    /// The memory that a read of the peer names, if it is that of messages which wait to be read.
    fn announced_memory(&mut self, pieces: &RmaIovs) -> Result<Reached<B>> {
        let mut memory = Reached::EMPTY;
        for piece in pieces.as_slice() {
            let at = piece.addr.checked_sub(ANNOUNCED);
            let at = at.ok_or(Errno::EKEYREJECTED)?;
            let index = u16::try_from(piece.key).map_err(|_| Errno::EKEYREJECTED)?;
            let entry = self.indexed.get_mut(index);
            let entry = entry.ok_or(Errno::EKEYREJECTED)?;
            let entry = entry.message_mut().ok_or(Errno::EPROTO)?;
            entry.reads_left = entry.reads_left.checked_sub(1).ok_or(Errno::EPROTO)?;
            let part = entry.iov.part(at, piece.len).ok_or(Errno::EPROTO)?;
            for segment in part.segments() {
                memory.push(*segment)?;
            }
        }
        Ok(memory)
    }
}

// Sending.
impl<B: Buffer> Engine<B> {
    /// Puts the header of a message of [`SendPlan::Packet`] into `out`; returns its length in bytes.
    #[must_use]
    pub fn packet(
        &self,
        conn_id: ConnId,
        send: &Send<B>,
        index: Option<u16>,
        out: &mut [u8; MAX_UNIT_HEADER],
    ) -> usize {
        let Some(conn) = self.conns.get(conn_id) else {
            return 0;
        };
        let message = Message {
            tag: send.tag,
            data: send.data,
            len: send.iov.len(),
        };
        let (flags, body) = match index {
            None if send.ack => (BaseFlags::DELIVERY_COMPLETE, Body::Eager(message)),
            None => (BaseFlags::empty(), Body::Eager(message)),
            Some(index) => {
                let memory = RmaIovs::one(RmaIov {
                    addr: ANNOUNCED,
                    len: message.len,
                    key: index.into(),
                });
                let id = u64::from(index);
                let announcement = Body::Rendezvous {
                    message,
                    id,
                    memory,
                };
                (BaseFlags::empty(), announcement)
            }
        };
        conn.emit_packet(flags, body, out).unwrap_or(0)
    }

    /// The memory of a message that was announced in a packet; none of one that was injected.
    #[must_use]
    pub fn announced_memory(&self, conn_id: ConnId, index: u16) -> Option<&Iov<B>> {
        let entry = self.conns.get(conn_id)?.indexed.get(index)?;
        Some(&entry.message()?.iov)
    }

    /// Announces a message that is too long for one packet.
    pub(super) fn announce_message(&mut self, conn_id: ConnId, send: &Send<B>) -> Result<SendPlan> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        let no_room = limits.tx_buffer.saturating_sub(conn.buffered) < MAX_UNIT_HEADER;
        if no_room {
            return Err(Errno::EAGAIN);
        }
        let entry = RtsEntry {
            is_get: true,
            seen: false,
            reads_left: READS,
            iov: match send.inject {
                // The peer reads a copy, by the device.
                true => Iov::EMPTY,
                false => send.iov,
            },
            info: send.info(),
        };
        let index = conn.indexed.insert(IndexedTx::Message(entry), true)?;
        if let Err(error) = conn.queue(MAX_UNIT_HEADER as u64, None) {
            conn.indexed.take(index);
            return Err(error);
        }
        ep.outstanding = ep.outstanding.wrapping_add(1);
        ep.add_waiting();
        Ok(SendPlan::Packet {
            index: Some(index),
            inline: false,
        })
    }

    /// Answers a read of a message that waits for that; `None` for a read of other memory.
    pub(super) fn respond_announced(
        &mut self,
        conn_id: ConnId,
        header: &Header,
    ) -> Option<Result<()>> {
        let conn = self.conns.get_mut(conn_id)?;
        let first = header.rma.as_slice().first()?;
        if conn.packets.is_none() || first.addr < ANNOUNCED {
            return None;
        }
        let memory = match conn.announced_memory(&header.rma) {
            // Then it is denied as any other memory that is none.
            Err(Errno::EKEYREJECTED) => return None,
            memory => memory,
        };
        // Its end is not noted: what waits is done behind it, see `handle_read_done`.
        let queued = memory.and_then(|memory| {
            let answer = conn.base_header(&Header::new(Op::ReadRsp, memory.len()))?;
            conn.queue_data(answer, &memory)
        });
        self.mark_output(conn_id);
        Some(queued)
    }

    /// The peer has read a message. It is done once nothing is written from its memory any more.
    fn handle_read_done(&mut self, conn_id: ConnId, id: u64) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let index = u16::try_from(id).map_err(|_| Errno::EPROTO)?;
        let entry = conn.indexed.get(index).and_then(IndexedTx::message);
        let mut info = entry.ok_or(Errno::EPROTO)?.info;
        info.ack = false;
        let end = conn.queued;
        let is_out = conn.has_sent(end) && conn.dones.is_empty();
        if !is_out {
            conn.dones.push(TxDone { end, info })?;
        }
        conn.indexed.take(index);
        if let Some(packets) = &mut conn.packets {
            packets.segmented_unheard = 0;
        }
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.end_waiting(1);
        }
        if is_out {
            self.finish(conn_id, &info);
        }
        self.wake_postponed(conn_id);
        Ok(())
    }
}

// Receiving.
impl<B: Buffer> Engine<B> {
    /// As [`Engine::rx_header`], on a connection for packets.
    pub(super) fn rx_unit(&mut self, conn_id: ConnId, bytes: &[u8]) -> Result<usize> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let order = conn.order;
        let mut fail = |error: WireError| {
            self.wire_error = Some(error);
            error.errno()
        };
        let (used, len) = conn
            .collect_header(bytes, |have| Unit::need(order, have))
            .map_err(&mut fail)?;
        let Some(len) = len else {
            return Ok(used);
        };
        let bytes = conn.header.get(..len).unwrap_or_default();
        match Unit::parse(order, bytes).map_err(&mut fail)? {
            Unit::Packet(packet, flags) => self.handle_packet(conn_id, &packet, flags)?,
            Unit::Plain(header) => match header.op {
                Op::Write if self.is_by_device(conn_id) => {
                    self.note_written(conn_id, &header)?;
                }
                Op::ReadRsp if self.is_by_device(conn_id) => self.note_read(conn_id)?,
                Op::Tag | Op::Write | Op::ReadReq | Op::ReadRsp | Op::Refuse | Op::Coll => {
                    self.handle_header(conn_id, &header)?;
                }
                Op::Msg if header.is_ack() => self.handle_header(conn_id, &header)?,
                _ => return Err(Errno::EPROTO),
            },
        }
        Ok(used)
    }

    /// Whether a device moves the payload of reads and writes: it is in its place when the header comes, and nothing
    /// follows.
    fn is_by_device(&self, conn_id: ConnId) -> bool {
        self.conns.get(conn_id).is_some_and(Conn::is_by_device)
    }

    fn handle_packet(&mut self, conn_id: ConnId, packet: &Packet, flags: BaseFlags) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let src = conn.config.src;
        let envelope = |message: Message, ack| Envelope {
            tag: message.tag,
            src,
            data: message.data,
            len: message.len,
            ack,
        };
        let ack = flags.wants_ack();
        match packet.body {
            Body::Eager(message) => {
                self.start_message(conn_id, envelope(message, ack), None);
                return Ok(());
            }
            Body::Rendezvous {
                message,
                id,
                memory,
            } => {
                let packets = conn.packets.as_mut().ok_or(Errno::EPROTO)?;
                let announced = Expected::Announced { id, memory };
                let index = packets.expected.insert(announced, true)?;
                let rts = Rts {
                    index,
                    address: None,
                };
                self.start_message(conn_id, envelope(message, false), Some(rts));
            }
            Body::ReadDone(id) => self.handle_read_done(conn_id, id)?,
            Body::Atomic(atomic) => return self.start_packet_atomic(conn_id, &atomic, ack),
            Body::AtomicResult(result) => return self.start_result(conn_id, &result, ack),
            Body::Segment(message, segment) => {
                return self.start_segment(conn_id, envelope(message, ack), &segment);
            }
            Body::Part(said) => self.handle_part(conn_id, said)?,
            // Links read credits and the packets of units.
            Body::Credit(_) | Body::Unit(_) | Body::WriteReady { .. } | Body::WriteDone(_) => {
                return Err(Errno::EPROTO);
            }
        }
        if ack {
            self.acknowledge(conn_id);
        }
        Ok(())
    }

    /// A message that was announced has its place: its payload is read, as far as there is room.
    pub(super) fn read_announced(
        &mut self,
        conn_id: ConnId,
        index: u16,
        target: Target,
        envelope: Envelope,
    ) {
        let asked = self.ask_announced(conn_id, index, target, envelope);
        match asked {
            Ok(true) => {}
            Ok(false) => self.finish_announced_at(conn_id, index, target, &envelope),
            Err(error) => {
                if let Target::Recv(recv, _) = target {
                    self.fail_recv(conn_id, recv, &envelope, error);
                }
                self.break_conn(conn_id, error);
            }
        }
    }

    /// Asks for the payload of a message that was announced; returns whether there is any to ask for.
    fn ask_announced(
        &mut self,
        conn_id: ConnId,
        index: u16,
        target: Target,
        envelope: Envelope,
    ) -> Result<bool> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let packets = conn.packets.as_ref().ok_or(Errno::EPROTO)?;
        let Some(&Expected::Announced { memory, .. }) = packets.expected.get(index) else {
            return Err(Errno::EPROTO);
        };
        let iov = match target {
            Target::Recv(recv, at) => {
                let matcher = self.srxs.find(conn.srx).ok_or(Errno::EPROTO)?;
                let iov = matcher.recv(recv).ok_or(Errno::EPROTO)?.iov;
                let room = iov.len().saturating_sub(at);
                iov.part(at, envelope.len.min(room)).ok_or(Errno::EPROTO)?
            }
            _ => Iov::EMPTY,
        };
        if iov.is_empty() {
            return Ok(false);
        }
        let full = Header {
            rma: front(&memory, iov.len())?,
            ..Header::new(Op::ReadReq, 0)
        };
        let mut header = [0; MAX_HEADER];
        let len = full.emit(conn.order, &mut header)?;
        let entry = CtsEntry {
            address: None,
            target,
            envelope,
        };
        conn.cts.set(index, entry)?;
        let end = conn.queued.wrapping_add(len as u64);
        let read = ReadEntry::of_message(iov, index, end);
        let queued = conn.reads.push(read).and_then(|()| {
            let queued = conn.queue_unit(header.get(..len).unwrap_or_default());
            if queued.is_err() {
                conn.reads.pop_back();
            }
            queued
        });
        if let Err(error) = queued {
            conn.cts.take(index);
            return Err(error);
        }
        self.mark_output(conn_id);
        Ok(true)
    }

    /// The payload of a message that was announced is in its place.
    pub(super) fn finish_announced(&mut self, conn_id: ConnId, index: u16) {
        let entry = self
            .conns
            .get_mut(conn_id)
            .and_then(|conn| conn.cts.take(index));
        if let Some(CtsEntry {
            target, envelope, ..
        }) = entry
        {
            self.finish_announced_at(conn_id, index, target, &envelope);
        }
    }

    fn finish_announced_at(
        &mut self,
        conn_id: ConnId,
        index: u16,
        target: Target,
        envelope: &Envelope,
    ) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let (ep, srx) = (conn.config.ep, conn.srx);
        let announced = conn
            .packets
            .as_mut()
            .and_then(|packets| packets.expected.take(index));
        let told = match announced {
            Some(Expected::Announced { id, .. }) => conn.queue_packet(Body::ReadDone(id)),
            _ => Err(Errno::EPROTO),
        };
        self.mark_output(conn_id);
        if let Target::Recv(recv, at) = target {
            self.finish_recv(Some(ep), srx, Origin::conn(conn_id), recv, at, envelope);
        }
        if let Err(error) = told {
            self.break_conn(conn_id, error);
        }
    }
}

/// The first `len` bytes of these pieces of memory.
fn front(memory: &RmaIovs, len: u64) -> Result<RmaIovs> {
    let mut pieces = [RmaIov::default(); base::MAX_RMA as usize];
    let mut count = 0usize;
    let mut left = len;
    for (piece, of) in pieces.iter_mut().zip(memory.as_slice()) {
        if left == 0 {
            break;
        }
        *piece = RmaIov {
            len: of.len.min(left),
            ..*of
        };
        left = left.saturating_sub(piece.len);
        count = count.saturating_add(1);
    }
    Ok(RmaIovs::new(pieces.get(..count).unwrap_or_default())?)
}
