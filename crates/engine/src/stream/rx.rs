//! The receiving side of a connection.

use ripstop_types::{Completion, Errno, FiAddr, Result};
use ripstop_wire::rxm::{MESSAGE_LEN, parse_message};
use ripstop_wire::xnet::base::{
    BASE_LEN, Header, Op, Small, emit_got, may_be_sole, parse_small, parse_sole, peek_len,
};
use ripstop_wire::xnet::cm::Extensions;
use ripstop_wire::{ByteOrder, WireError};

use crate::Buffer;
use crate::cq::CompletionQueue;
use crate::id::{ConnId, CqId, RecvId, SrxId};
use crate::matching::{Envelope, Rts};
use crate::stream::arriving::{RxState, Target};
use crate::stream::awaited::CtsEntry;
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::records::{Origin, Output};
use crate::stream::recv::rx_flags;

/// A message that [`Engine::rx_whole`] took.
#[derive(Clone, Copy, Debug)]
pub struct Whole<B> {
    /// Bytes of its header.
    pub header_len: usize,
    /// Bytes of its payload, which follows the header.
    pub len: usize,
    /// Where the payload goes.
    pub memory: B,
}

impl<B: Buffer> Conn<B> {
    /// Collects a header, of which `need` says how many bytes it has or may be waited for. Returns how
    /// many of `bytes` were taken, and the length of the header if it is whole.
    pub(super) fn collect_header(
        &mut self,
        bytes: &[u8],
        need: impl Fn(&[u8]) -> core::result::Result<usize, WireError>,
    ) -> core::result::Result<(usize, Option<usize>), WireError> {
        let mut used = 0usize;
        loop {
            let have = usize::from(self.header_have);
            let need = need(self.header.get(..have).unwrap_or_default())?;
            if have >= need {
                self.header_have = 0;
                return Ok((used, Some(need)));
            }
            let more = bytes.get(used..).unwrap_or_default();
            let step = need.saturating_sub(have).min(more.len());
            if step == 0 {
                return Ok((used, None));
            }
            let end = have.saturating_add(step);
            if let (Some(to), Some(from)) = (self.header.get_mut(have..end), more.get(..step)) {
                to.copy_from_slice(from);
            }
            self.header_have = end as u8;
            used = used.saturating_add(step);
        }
    }
}

impl<B: Buffer> Engine<B> {
    /// The frequent case in one step: if `bytes` starts with a whole small message and the
    /// first posted receive is for it, takes that message. The driver copies the payload at
    /// once: the completion is there. `None` says no more than that it is another case.
    #[inline]
    pub fn rx_whole(&mut self, conn_id: ConnId, bytes: &[u8]) -> Option<Whole<B>> {
        self.rx_whole_with(conn_id, bytes, 0)
    }

    /// As [`Engine::rx_whole`], where the driver can read `more` bytes of the stream behind `bytes`
    /// now: it copies to the payload's place from both.
    #[inline(always)]
    pub fn rx_whole_with(
        &mut self,
        conn_id: ConnId,
        bytes: &[u8],
        more: usize,
    ) -> Option<Whole<B>> {
        let small = parse_small(self.rx_order(conn_id)?, bytes)?;
        let there = bytes.len().saturating_sub(small.header_len());
        let there = there.saturating_add(more);
        if small.flags.wants_ack() || small.payload_len > there as u64 {
            return None;
        }
        let (whole, completion, reported) = self.match_small(conn_id, None, &small)?;
        if let Some(cq) = reported {
            cq.push(completion);
        }
        Some(whole)
    }

    /// Parses the header of a sole message: it is all of the `len` bytes that the driver has, of which
    /// it gives the first 24 as words. Nothing is changed; `None` is as for [`Engine::rx_whole`].
    #[inline(always)]
    #[must_use]
    pub fn rx_sole(&self, conn_id: ConnId, words: [[u8; 8]; 3], len: usize) -> Option<Small> {
        if !may_be_sole(words[0]) {
            return None;
        }
        parse_sole(self.rx_order(conn_id)?, words, len)
    }

    /// Fast receive: as [`Engine::rx_whole`], for a message of [`Engine::rx_sole`] whose completion
    /// would go to the queue `cq`, which is empty and is being read. The completion is returned to
    /// the reader without being queued. `TAGGED` says whether the message has a tag: each kind has
    /// code of its own.
    #[inline(always)]
    pub fn rx_fast<const TAGGED: bool>(
        &mut self,
        conn_id: ConnId,
        cq: CqId,
        small: Small,
    ) -> Option<(Whole<B>, Completion)> {
        let small = Small {
            tag: TAGGED.then(|| small.tag.unwrap_or_default()),
            ..small
        };
        let (whole, completion, _) = self.match_small(conn_id, Some(cq), &small)?;
        Some((whole, completion))
    }

    /// As [`Engine::rx_sole`], on a connection for packets, of all the bytes that the driver has. The header is
    /// [`MESSAGE_LEN`] bytes long.
    #[inline(always)]
    #[must_use]
    pub fn rx_sole_packet(&self, conn_id: ConnId, bytes: &[u8]) -> Option<Small> {
        let small = parse_message(self.rx_packet_order(conn_id)?, bytes)?;
        let payload = bytes.len().checked_sub(MESSAGE_LEN)?;
        (small.payload_len == payload as u64).then_some(small)
    }

    /// As [`Engine::rx_whole`], on a connection for packets.
    #[inline]
    pub fn rx_whole_packet(&mut self, conn_id: ConnId, bytes: &[u8]) -> Option<Whole<B>> {
        self.rx_whole_packet_with(conn_id, bytes, 0)
    }

    /// As [`Engine::rx_whole_packet`], where the packet has `more` bytes behind `bytes`, which the driver can read now: it
    /// copies to the payload's place from both. Such a packet is as long as its header says.
    #[inline]
    pub fn rx_whole_packet_with(
        &mut self,
        conn_id: ConnId,
        bytes: &[u8],
        more: usize,
    ) -> Option<Whole<B>> {
        let small = parse_message(self.rx_packet_order(conn_id)?, bytes)?;
        let there = bytes.len().checked_sub(MESSAGE_LEN)?;
        let there = there.saturating_add(more) as u64;
        if small.payload_len > there || more > 0 && small.payload_len < there {
            return None;
        }
        let (whole, completion, reported) = self.match_small(conn_id, None, &small)?;
        if let Some(cq) = reported {
            cq.push(completion);
        }
        let header_len = MESSAGE_LEN;
        Some(Whole {
            header_len,
            ..whole
        })
    }

    /// As [`Engine::rx_order`], of a connection for packets.
    #[inline(always)]
    fn rx_packet_order(&self, conn_id: ConnId) -> Option<ByteOrder> {
        let conn = self.conns.get(conn_id)?;
        (conn.at_header() && conn.packets.is_some()).then_some(conn.order)
    }

    /// The byte order of a connection whose next bytes are a header.
    #[inline(always)]
    fn rx_order(&self, conn_id: ConnId) -> Option<ByteOrder> {
        let conn = self.conns.get(conn_id)?;
        (conn.at_header() && conn.packets.is_none()).then_some(conn.order)
    }

    /// Takes the message of this header, if the first posted receive is for it, and where only
    /// one queue will do, if the completion belongs there. Returns where the payload goes, the
    /// completion, and the queue for it, if it is reported.
    #[inline(always)]
    fn match_small(
        &mut self,
        conn_id: ConnId,
        only: Option<CqId>,
        small: &Small,
    ) -> Option<(Whole<B>, Completion, Option<&mut CompletionQueue>)> {
        let conn = self.conns.get(conn_id)?;
        let ep = self.eps.get(conn.config.ep)?;
        let config = &ep.config;
        let src = conn.config.src;
        if ep.screens && (config.ids.is_some() || !src.is_specified()) {
            return None;
        }
        if only.is_some_and(|cq| Some(cq) != config.rx_cq) {
            return None;
        }
        let len = small.payload_len;
        let matcher = self.srxs.find_mut(conn.srx)?;
        let (memory, context, reported) =
            matcher.match_first(small.tag, src, len, only.is_some())?;
        if let Some(counter) = self.counters.find_mut(config.rx_counter) {
            counter.success(len);
        }
        let completion = Completion {
            context,
            flags: rx_flags(small.tag.is_some()),
            len: len as usize,
            buf: memory.address(),
            data: 0,
            tag: small.tag.unwrap_or_default(),
            src: if config.source { src } else { FiAddr::NOTAVAIL },
        };
        let whole = Whole {
            header_len: small.header_len(),
            len: len as usize,
            memory,
        };
        let cq = match reported {
            true => self.cqs.at_mut(ep.rx_cq),
            false => None,
        };
        Some((whole, completion, cq))
    }

    /// Takes header bytes from the front of `bytes`, which may go on behind the header, and
    /// returns how many. When the header is complete the message is matched.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] or another code when the peer broke the protocol; close the
    /// connection. [`Engine::wire_error`] says what was wrong.
    #[inline]
    pub fn rx_header(&mut self, conn_id: ConnId, bytes: &[u8]) -> Result<usize> {
        let Some(conn) = self.conns.get(conn_id) else {
            return Err(Errno::ENOTCONN);
        };
        if conn.packets.is_some() {
            return self.rx_unit(conn_id, bytes);
        }
        if conn.header_have == 0
            && let Some(small) = parse_small(conn.order, bytes)
        {
            let envelope = Envelope {
                tag: small.tag,
                src: conn.config.src,
                data: None,
                len: small.payload_len,
                ack: small.flags.wants_ack(),
            };
            self.start_message(conn_id, envelope, None);
            return Ok(small.header_len());
        }
        match self.rx_get_header(conn_id, bytes)? {
            0 => self.rx_header_slow(conn_id, bytes),
            used => Ok(used),
        }
    }

    #[inline(never)]
    fn rx_header_slow(&mut self, conn_id: ConnId, bytes: &[u8]) -> Result<usize> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let mut fail = |error: WireError| {
            self.wire_error = Some(error);
            error.errno()
        };
        let need = |have: &[u8]| match have.len() < BASE_LEN {
            true => Ok(BASE_LEN),
            false => peek_len(have),
        };
        let (used, len) = conn.collect_header(bytes, need).map_err(&mut fail)?;
        let Some(len) = len else {
            return Ok(used);
        };
        let bytes = conn.header.get(..len).unwrap_or_default();
        let header = Header::parse(conn.order, bytes).map_err(&mut fail)?;
        self.handle_header(conn_id, &header)?;
        Ok(used)
    }

    pub(super) fn handle_header(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let Some(conn) = self.conns.get(conn_id) else {
            return Err(Errno::ENOTCONN);
        };
        let mut envelope = Envelope {
            tag: None,
            src: conn.config.src,
            data: header.cq_data,
            len: header.payload_len,
            ack: header.flags.wants_ack(),
        };
        let index = header.index(conn.has_wide_indices());
        match header.op {
            Op::Msg if header.is_ack() => self.handle_ack(conn_id),
            Op::Msg => {
                self.start_message(conn_id, envelope, None);
                Ok(())
            }
            Op::Tag => {
                envelope.tag = Some(header.tag);
                self.start_message(conn_id, envelope, None);
                Ok(())
            }
            Op::TagRts => {
                envelope.tag = Some(header.tag);
                envelope.len = header.rts_size;
                let rts = Rts {
                    index,
                    address: None,
                };
                self.start_message(conn_id, envelope, Some(rts));
                Ok(())
            }
            Op::MsgGet | Op::TagGet => {
                if !conn.extensions.contains(Extensions::GET) {
                    return Err(Errno::EPROTO);
                }
                envelope.tag = (header.op == Op::TagGet).then_some(header.tag);
                self.start_message(
                    conn_id,
                    envelope,
                    Some(Rts {
                        index,
                        address: Some(header.address),
                    }),
                );
                Ok(())
            }
            Op::Ats => self.handle_ats(conn_id, index),
            Op::GetLimit => self.handle_get_limit(conn_id, header),
            Op::Joint => self.handle_joint(conn_id),
            Op::Cts => self.handle_cts(conn_id, index),
            Op::Data => self.handle_data(conn_id, header),
            Op::Write => self.start_write(conn_id, header),
            Op::ReadReq => self.start_response(conn_id, header),
            Op::ReadRsp => self.start_read(conn_id, header),
            Op::Refuse => self.handle_refusal(conn_id, header),
            Op::Coll => self.start_coll_message(conn_id, header.coll.as_ref()),
            Op::EagerLimit => self.handle_eager_limit(conn_id, header),
            Op::Atomic | Op::FetchAtomic | Op::CompareAtomic => self.start_atomic(conn_id, header),
        }
    }

    /// What was wrong with the last header that was refused.
    pub fn wire_error(&mut self) -> Option<WireError> {
        self.wire_error.take()
    }

    #[inline]
    pub(super) fn start_message(&mut self, conn_id: ConnId, envelope: Envelope, rts: Option<Rts>) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        conn.envelope = envelope;
        let matched = self
            .srxs
            .find_mut(conn.srx)
            .and_then(|matcher| matcher.match_message(envelope.tag, envelope.src));
        match matched {
            Some(recv) => self.start_matched(conn_id, recv, rts),
            None => self.start_unexpected(conn_id, rts),
        }
    }

    /// A message has its receive: its payload goes there.
    #[inline]
    pub(super) fn start_matched(&mut self, conn_id: ConnId, recv_id: RecvId, rts: Option<Rts>) {
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let (len, srx) = (conn.envelope.len, conn.srx);
        let Some(base) = self.claim_space(srx, recv_id, len) else {
            return;
        };
        self.start_payload(conn_id, Target::Recv(recv_id, base), rts);
    }

    /// The payload of the current message goes to `target`.
    #[inline]
    pub(super) fn start_payload(&mut self, conn_id: ConnId, target: Target, rts: Option<Rts>) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let envelope = conn.envelope;
        if let Some(rts) = rts {
            conn.rx = RxState::Header;
            self.request_payload(conn_id, rts, target, envelope);
            return;
        }
        if envelope.len == 0 {
            conn.rx = RxState::Header;
            self.finish_payload(conn_id, target);
            return;
        }
        conn.rx = RxState::Payload {
            target,
            done: 0,
            left: conn.payload_len(envelope.len),
        };
    }

    /// Reserves the next part of a multi-receive buffer for a message; returns the offset
    /// where it starts. 0 for an ordinary receive.
    #[inline]
    pub(super) fn claim_space(
        &mut self,
        srx: Option<SrxId>,
        recv_id: RecvId,
        len: u64,
    ) -> Option<u64> {
        let matcher = self.srxs.find_mut(srx)?;
        let min = matcher.min_multi_recv;
        let recv = matcher.recv_mut(recv_id)?;
        if !recv.multi {
            return Some(0);
        }
        let base = recv.used;
        recv.used = base.saturating_add(len).min(recv.iov.len());
        recv.filling = recv.filling.saturating_add(1);
        if recv.iov.len().saturating_sub(recv.used) < min.max(1) {
            recv.released = true;
            matcher.unpost(recv_id);
        }
        Some(base)
    }

    /// The payload of a rendezvous has its place: the driver gets it from the sender's memory, or the
    /// sender is asked for it.
    pub(super) fn request_payload(
        &mut self,
        conn_id: ConnId,
        rts: Rts,
        target: Target,
        envelope: Envelope,
    ) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let Rts { index, address } = rts;
        if conn.packets.is_some() {
            return self.read_announced(conn_id, index, target, envelope);
        }
        // It was to be got and kept, and has found its receive before.
        if conn
            .cts
            .get(index)
            .is_some_and(|entry| matches!(entry.target, Target::Unexpected(_)))
        {
            conn.cts.take(index);
        }
        if address.is_some() && matches!(target, Target::Discard) {
            self.acknowledge_get(conn_id, index);
            return self.mark_output(conn_id);
        }
        let entry = CtsEntry {
            address,
            target,
            envelope,
        };
        let mut requested = conn.cts.set(index, entry);
        if address.is_some() {
            requested = requested.and_then(|()| self.output_push(Output::Get(conn_id, index)));
        } else {
            requested =
                requested.and_then(|()| conn.queue_control(conn.base_header(&Header::cts(index))?));
            self.mark_output(conn_id);
        }
        if let Err(error) = requested {
            if let Target::Recv(recv, _) = target {
                self.fail_recv(conn_id, recv, &envelope, error);
            }
            self.break_conn(conn_id, error);
        }
    }

    fn handle_data(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let index = header.index(conn.has_wide_indices());
        let expected = conn.cts.get(index).ok_or(Errno::EPROTO)?;
        if expected.envelope.len != header.payload_len {
            return Err(Errno::EPROTO);
        }
        let CtsEntry {
            target, envelope, ..
        } = conn.cts.take(index).ok_or(Errno::EPROTO)?;
        conn.envelope = envelope;
        self.start_payload(conn_id, target, None);
        Ok(())
    }

    /// Takes how many bytes went where [`Engine::rx_want`] said.
    #[inline]
    pub fn rx_placed(&mut self, conn_id: ConnId, bytes: u64) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let RxState::Payload { target, done, left } = &mut conn.rx else {
            return;
        };
        let bytes = bytes.min(*left);
        *done = done.wrapping_add(bytes);
        *left = left.wrapping_sub(bytes);
        let target = *target;
        let finished = *left == 0;
        if let Target::Unexpected(id) = target
            && let Some(message) = self.unexpected.get_mut(id)
        {
            message.kept = *done;
        }
        if finished {
            conn.rx = RxState::Header;
            if conn.packets.is_some() {
                return self.finish_unit(conn_id, target);
            }
            self.finish_payload(conn_id, target);
        }
    }

    #[inline]
    pub(super) fn finish_payload(&mut self, conn_id: ConnId, target: Target) {
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let (ep, srx, envelope) = (conn.config.ep, conn.srx, conn.envelope);
        match target {
            Target::Recv(id, base) => {
                self.finish_recv(Some(ep), srx, Origin::conn(conn_id), id, base, &envelope);
            }
            Target::Unexpected(_) | Target::Discard => {}
            Target::Write if self.is_to_commit(conn_id) => return self.await_job(conn_id),
            Target::Operands => return self.await_job(conn_id),
            Target::Write => self.finish_write(conn_id, None),
            Target::Read => self.finish_read(conn_id),
            Target::Result(index) => self.finish_result(conn_id, index),
            Target::Coll => self.finish_coll_payload(conn_id),
            Target::Refused => self.finish_refused(conn_id),
        }
        if envelope.ack {
            self.acknowledge(conn_id);
        }
    }

    #[inline]
    pub(super) fn acknowledge(&mut self, conn_id: ConnId) {
        self.send_control(conn_id, &Header::ack());
    }

    /// Queues a control message; a connection that has no memory for it is broken.
    #[inline]
    pub(super) fn send_control(&mut self, conn_id: ConnId, header: &Header) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let bytes = conn.base_header(header);
        let queued = bytes.and_then(|bytes| conn.queue_control(bytes));
        self.mark_output(conn_id);
        if let Err(error) = queued {
            self.break_conn(conn_id, error);
        }
    }

    /// Queues what tells the sender that its payload was got, or that nobody wants it.
    pub(super) fn acknowledge_get(&mut self, conn_id: ConnId, index: u16) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let queued = conn.queue_control(emit_got(conn.order, index));
        if let Err(error) = queued {
            self.break_conn(conn_id, error);
        }
    }
}
