//! The sending side of a connection.

use ripstop_types::{Completion, Context, Errno, Flags, Result};
use ripstop_wire::xnet::base::{BASE_LEN, BaseFlags, Header, MAX_HEADER, Op};

use super::conn::{Chunk, Conn, Segment, Source, TxDone, TxInfo, is_slot};
use super::engine::{Engine, Ep, Limits};
use super::rma::Rma;
use super::small::put_header;
use crate::pool::NIL;
use crate::{Buffer, Iov};

/// A message to be sent.
#[derive(Clone, Copy, Debug)]
pub struct Send<B> {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The payload.
    pub iov: Iov<B>,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// The payload must be copied before the call returns.
    pub inject: bool,
    /// Done only when the peer has acknowledged (transmit and delivery complete).
    pub ack: bool,
}

/// The longest header of a message, in bytes: with completion data, tag and rendezvous size.
pub const SEND_HEADER: usize = 40;

/// What the driver must do for a message that was accepted.
#[derive(Clone, Copy, Debug)]
pub enum SendPlan {
    /// Append the header, and the payload too if `inline`, to the connection's staging buffer.
    Stage {
        /// The header.
        header: [u8; SEND_HEADER],
        /// Its length in bytes.
        header_len: u8,
        /// Whether the payload follows in the staging buffer.
        inline: bool,
    },
    /// The connection is not up yet, or earlier messages still wait for that. If this names a
    /// slot, copy the payload there; the message is sent when its turn comes, by
    /// [`Engine::replay`]. Without memory for it, call [`Engine::take_back`].
    Defer {
        /// The slot, or [`NIL`].
        slot: u32,
    },
}

/// What was posted.
#[derive(Clone, Copy, Debug)]
pub enum Posted<B> {
    /// A message.
    Send(Send<B>),
    /// A read or write.
    Rma(Rma<B>),
}

/// An operation accepted before its connection was up, or behind one that waits.
#[derive(Clone, Copy, Debug)]
pub struct Deferred<B> {
    /// The operation.
    pub posted: Posted<B>,
    /// Where its payload was copied, or [`NIL`].
    pub slot: u32,
}

/// An operation whose turn has come, see [`Engine::replay`].
#[derive(Clone, Copy, Debug)]
pub struct Replayed<B> {
    /// The operation, with the slot of its payload.
    pub deferred: Deferred<B>,
    /// The length of its header, in bytes.
    pub header_len: usize,
    /// Whether the payload goes to the staging buffer behind the header.
    pub inline: bool,
}

impl<B: Buffer> Posted<B> {
    /// The memory it sends from, or reads into.
    #[must_use]
    pub const fn iov(&self) -> &Iov<B> {
        match self {
            Self::Send(send) => &send.iov,
            Self::Rma(rma) => &rma.iov,
        }
    }

    /// The caller's context.
    #[must_use]
    pub const fn context(&self) -> Context {
        match self {
            Self::Send(send) => send.context,
            Self::Rma(rma) => rma.context,
        }
    }

    /// Whether its payload must be copied before the call that posts it returns.
    const fn is_injected(&self) -> bool {
        match self {
            Self::Send(send) => send.inject,
            Self::Rma(rma) => rma.inject,
        }
    }

    fn info(&self) -> TxInfo {
        match self {
            Self::Send(send) => send.info(),
            Self::Rma(rma) => rma.info(),
        }
    }
}

/// A message whose receiver has been asked for leave to send the payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct RtsEntry<B> {
    iov: Iov<B>,
    info: TxInfo,
}

impl<B: Buffer> Send<B> {
    #[inline]
    fn info(&self) -> TxInfo {
        TxInfo {
            context: self.context,
            flags: tx_flags(self.tag.is_some()),
            completion: self.completion,
            ack: self.ack,
            len: self.iov.len(),
        }
    }
}

impl<B: Buffer> Engine<B> {
    /// Accepts a message for a connection.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when a queue is full, [`Errno::ENOTCONN`] for an unknown connection,
    /// [`Errno::ENOMEM`]. Nothing is queued then.
    #[inline]
    pub fn send(&mut self, conn_id: u32, send: &Send<B>) -> Result<SendPlan> {
        let Self {
            conns, eps, limits, ..
        } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        if ep.outstanding >= ep.config.tx_size {
            return Err(Errno::EAGAIN);
        }
        if !conn.direct {
            let slot = self.defer(conn_id, Posted::Send(*send))?;
            return Ok(SendPlan::Defer { slot });
        }
        match Self::stage(conn, ep, limits, send) {
            Ok(None) => self.send_rts(conn_id, send),
            Ok(Some(plan)) => Ok(plan),
            Err(error) => Err(error),
        }
    }

    fn send_now(&mut self, conn_id: u32, send: &Send<B>) -> Result<SendPlan> {
        let Self {
            conns, eps, limits, ..
        } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        match Self::stage(conn, ep, limits, send)? {
            None => self.send_rts(conn_id, send),
            Some(plan) => Ok(plan),
        }
    }

    /// Queues an eager message; `None` for one that needs a rendezvous.
    #[inline]
    pub(super) fn stage(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        send: &Send<B>,
    ) -> Result<Option<SendPlan>> {
        let len = send.iov.len();
        let room = limits.stage.saturating_sub(conn.staged);
        if room < SEND_HEADER {
            return Err(Errno::EAGAIN);
        }
        if len > limits.rendezvous && conn.rendezvous && send.tag.is_some() && !send.inject {
            return Ok(None);
        }
        let inline = send.inject || len <= limits.inline as u64;
        let fits = len <= room.saturating_sub(SEND_HEADER) as u64;
        if send.inject && !fits {
            return Err(Errno::EAGAIN);
        }
        let inline = inline && fits;

        let mut header = [0; SEND_HEADER];
        let header_len = put_header(conn.order, send.tag, send.data, send.ack, len, &mut header)
            .ok_or(Errno::EMSGSIZE)?;
        let inline_len = if inline { len } else { 0 };
        let staged = inline_len.saturating_add(header_len as u64);
        let silent = send.inject && !send.completion && !ep.counts_sends() && !send.ack;
        if !silent {
            let user = if inline { 0 } else { len };
            let end = conn.queued.wrapping_add(staged).wrapping_add(user);
            let info = send.info();
            conn.dones.push(TxDone { end, info })?;
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        let queued = if inline {
            conn.queue_staged(staged)
        } else {
            conn.queue(staged, Some(&send.iov))
        };
        if let Err(error) = queued {
            if !silent {
                conn.dones.pop_back();
                ep.outstanding = ep.outstanding.wrapping_sub(1);
            }
            return Err(error);
        }
        Ok(Some(SendPlan::Stage {
            header,
            header_len: header_len as u8,
            inline,
        }))
    }

    /// Puts an operation off; returns the slot for its payload, or [`NIL`].
    #[cold]
    pub(super) fn defer(&mut self, conn_id: u32, posted: Posted<B>) -> Result<u32> {
        let inline = posted.is_injected() && !posted.iov().is_empty();
        let slot = if inline { self.slots.insert(())? } else { NIL };
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let deferred = Deferred { posted, slot };
        if let Err(error) = conn.deferred.push(deferred) {
            self.slots.remove(slot);
            return Err(error);
        }
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        Ok(slot)
    }

    /// On a connection that is up, sends the next message that was accepted before it was, or
    /// starts the next such read or write. The driver stages the header, which is put into
    /// `header`, and the payload if so told, from the slot if there is one, and then calls
    /// [`Engine::free_slot`]. `None` when none is left, or the next one waits for answers that
    /// are under way. Operations go out directly once the last one has, so that none overtakes
    /// another.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the staging buffer is full, or too many rendezvous wait: write
    /// what there is, and come again when the connection had output.
    pub fn replay(
        &mut self,
        conn_id: u32,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Option<Replayed<B>>> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.up {
            return Ok(None);
        }
        let Some(deferred) = conn.deferred.front().copied() else {
            return Ok(None);
        };
        let (header_len, inline) = match &deferred.posted {
            Posted::Send(send) => match self.send_now(conn_id, send)? {
                SendPlan::Stage {
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
                SendPlan::Defer { .. } => return Ok(None),
            },
            Posted::Rma(rma) if rma.fence && conn.is_fenced() => return Ok(None),
            Posted::Rma(rma) => {
                let staged = self.rma_now(conn_id, rma, header)?;
                (staged.header_len, staged.inline)
            }
        };
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return Err(Errno::ENOTCONN);
        };
        conn.deferred.pop();
        conn.direct = conn.deferred.is_empty();
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
        Ok(Some(Replayed {
            deferred,
            header_len,
            inline,
        }))
    }

    /// Takes back the message that [`Engine::send`] just deferred: the driver has no memory
    /// for its slot. The call that posted it fails, and nothing is reported.
    pub fn take_back(&mut self, conn_id: u32) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let Some(deferred) = conn.deferred.pop_back() else {
            return;
        };
        conn.direct = conn.up && conn.deferred.is_empty();
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_sub(1);
        }
        self.free_slot(deferred.slot);
    }

    /// Moves what waits for `from` to come up behind what waits for `to`.
    pub fn move_deferred(&mut self, from: u32, to: u32) {
        while let Some(deferred) = self.conns.get_mut(from).and_then(|c| c.deferred.pop()) {
            let moved = match self.conns.get_mut(to) {
                Some(conn) => {
                    conn.direct = false;
                    conn.deferred.push(deferred)
                }
                None => Err(Errno::ENOTCONN),
            };
            if let Err(error) = moved {
                self.fail_deferred(from, deferred, error);
            }
        }
    }

    #[cold]
    fn send_rts(&mut self, conn_id: u32, send: &Send<B>) -> Result<SendPlan> {
        let Self { conns, eps, .. } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let entry = RtsEntry {
            iov: send.iov,
            info: send.info(),
        };
        let index = conn.rts.insert(|_| entry)?;
        let full = Header {
            op_data: index,
            flags: if send.ack {
                BaseFlags::DELIVERY_COMPLETE
            } else {
                BaseFlags::NONE
            },
            cq_data: send.data,
            tag: send.tag.unwrap_or_default(),
            rts_size: send.iov.len(),
            ..Header::new(Op::TagRts, 0)
        };
        let mut header = [0; SEND_HEADER];
        let queued = full
            .emit(conn.order, &mut header)
            .map_err(|e| e.errno())
            .and_then(|len| conn.queue(len as u64, None).map(|()| len));
        let header_len = match queued {
            Ok(len) => len,
            Err(error) => {
                conn.rts.take(index);
                return Err(error);
            }
        };
        if let Some(ep) = eps.get_mut(conn.config.ep) {
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        Ok(SendPlan::Stage {
            header,
            header_len: header_len as u8,
            inline: false,
        })
    }

    /// The receiver of a rendezvous is ready: queue its payload behind what is queued.
    pub(super) fn handle_cts(&mut self, conn_id: u32, index: u8) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let RtsEntry { iov, info } = *conn.rts.get(index).ok_or(Errno::EPROTO)?;
        let full = Header {
            op_data: index,
            ..Header::new(Op::Data, iov.len())
        };
        let mut header = [0; SEND_HEADER];
        let len = full.emit(conn.order, &mut header).map_err(|e| e.errno())?;
        let bytes: [u8; BASE_LEN] = header.first_chunk().copied().ok_or(Errno::EPROTO)?;
        debug_assert_eq!(len, bytes.len());
        conn.queue_data(bytes, &iov)?;
        let end = conn.queued;
        conn.dones.push(TxDone { end, info })?;
        // Only now: whatever failed before, closing the connection reports the message.
        conn.rts.take(index);
        self.mark_output(conn_id);
        Ok(())
    }

    /// Lists what to write next, at most `chunks.len()` pieces; returns how many there are.
    #[inline]
    #[must_use]
    pub fn transmit(&self, conn_id: u32, chunks: &mut [Chunk<B>]) -> usize {
        let Some(conn) = self.conns.get(conn_id) else {
            return 0;
        };
        conn.transmit(chunks)
    }

    /// Takes how many bytes of [`Engine::transmit`]'s list were written. Returns how many of
    /// them came from the staging buffer.
    #[inline]
    pub fn sent(&mut self, conn_id: u32, bytes: usize) -> usize {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return 0;
        };
        let staged = if conn.only_staged() && bytes == conn.staged {
            // The frequent case: small messages, and all of them were written.
            conn.segments.pop();
            conn.front_sent = 0;
            conn.sent = conn.queued;
            conn.staged = 0;
            bytes
        } else {
            conn.consume(bytes as u64)
        };
        if !conn.dones.is_empty() {
            self.finish_due(conn_id);
        }
        staged
    }

    /// Finishes the operations whose last byte has been written.
    fn finish_due(&mut self, conn_id: u32) {
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
    fn finish_plain(&mut self, conn_id: u32) {
        let Self {
            conns,
            eps,
            cqs,
            counters,
            ..
        } = self;
        let Some(conn) = conns.get_mut(conn_id) else {
            return;
        };
        let Some(ep) = eps.get_mut(conn.config.ep) else {
            return;
        };
        let mut cq = cqs.get_mut(ep.config.tx_cq);
        let mut counter = counters.get_mut(ep.config.tx_counter);
        while let Some(TxDone { end, info }) = conn.dones.front() {
            if *end > conn.sent || info.ack || info.flags.contains(Flags::RMA) {
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
                    ..super::engine::NO_COMPLETION
                });
            }
            conn.dones.skip();
        }
    }

    #[inline]
    fn finish(&mut self, conn_id: u32, info: &TxInfo) {
        if info.flags.contains(Flags::RMA) {
            self.finish_rma(conn_id, info);
        } else {
            self.finish_tx(conn_id, info);
        }
    }

    /// The peer acknowledged the oldest message that waits for it.
    pub(super) fn handle_ack(&mut self, conn_id: u32) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let info = conn.acks.pop().ok_or(Errno::EPROTO)?;
        self.finish(conn_id, &info);
        Ok(())
    }

    #[inline]
    fn finish_tx(&mut self, conn_id: u32, info: &TxInfo) {
        let Self {
            conns,
            eps,
            cqs,
            counters,
            ..
        } = self;
        let Some(ep) = conns.get(conn_id).and_then(|c| eps.get_mut(c.config.ep)) else {
            return;
        };
        ep.outstanding = ep.outstanding.wrapping_sub(1);
        if let Some(counter) = counters.get_mut(ep.config.tx_counter) {
            counter.success(info.len);
        }
        if info.completion
            && let Some(cq) = cqs.get_mut(ep.config.tx_cq)
        {
            cq.push(Completion {
                context: info.context,
                flags: info.flags,
                ..super::engine::NO_COMPLETION
            });
        }
    }

    pub(super) fn fail_tx(&mut self, conn_id: u32, info: &TxInfo, error: Errno) {
        let Self {
            conns,
            eps,
            cqs,
            counters,
            ..
        } = self;
        let Some(conn) = conns.get(conn_id) else {
            return;
        };
        let Some(ep) = eps.get_mut(conn.config.ep) else {
            return;
        };
        ep.outstanding = ep.outstanding.wrapping_sub(1);
        if let Some(counter) = counters.get_mut(ep.config.counter_of(info.flags)) {
            counter.failure();
        }
        if let Some(cq) = cqs.get_mut(ep.config.tx_cq) {
            let completion = Completion {
                context: info.context,
                flags: info.flags,
                ..super::engine::NO_COMPLETION
            };
            cq.push_error(super::engine::error_entry(completion, error, conn));
        }
    }

    pub(super) fn fail_deferred(&mut self, conn_id: u32, deferred: Deferred<B>, error: Errno) {
        if is_slot(deferred.slot) {
            self.free_slot(deferred.slot);
        }
        let info = deferred.posted.info();
        self.fail_tx(conn_id, &info, error);
    }

    /// Everything waiting to be sent, or sent and not acknowledged, fails.
    pub(super) fn fail_all_tx(&mut self, conn_id: u32, error: Errno) {
        while let Some(info) = self.conns.get_mut(conn_id).and_then(Conn::pop_unfinished) {
            if info.flags.contains(Flags::REMOTE_READ) {
                self.release_response(conn_id, info.context);
            } else {
                self.fail_tx(conn_id, &info, error);
            }
        }
        while let Some(deferred) = self.conns.get_mut(conn_id).and_then(|c| c.deferred.pop()) {
            self.fail_deferred(conn_id, deferred, error);
        }
    }
}

#[inline]
pub(super) const fn tx_flags(tagged: bool) -> Flags {
    if tagged {
        Flags::SEND.union(Flags::TAGGED)
    } else {
        Flags::SEND.union(Flags::MSG)
    }
}

impl<B: Buffer> Conn<B> {
    /// Queues one message that is wholly in the staging buffer.
    #[inline]
    pub(super) fn queue_staged(&mut self, staged: u64) -> Result<()> {
        match self.segments.back_mut() {
            Some(back) if matches!(back.source, Source::Stage) => {
                back.len = back.len.wrapping_add(staged);
            }
            _ => self.segments.push(Segment {
                source: Source::Stage,
                len: staged,
                start: true,
            })?,
        }
        self.staged = self.staged.wrapping_add(staged as usize);
        self.queued = self.queued.wrapping_add(staged);
        Ok(())
    }

    /// Queues one message: `staged` bytes of the staging buffer, then user memory.
    #[inline]
    pub(super) fn queue(&mut self, staged: u64, user: Option<&Iov<B>>) -> Result<()> {
        self.reserve(user.map_or(0, |iov| iov.segments().len()))?;
        match self.segments.back_mut() {
            Some(back) if matches!(back.source, Source::Stage) => {
                back.len = back.len.wrapping_add(staged);
            }
            _ => self.segments.push(Segment {
                source: Source::Stage,
                len: staged,
                start: true,
            })?,
        }
        self.staged = self.staged.wrapping_add(staged as usize);
        self.queued = self.queued.wrapping_add(staged);
        if let Some(payload) = user {
            self.queue_user(payload)?;
        }
        Ok(())
    }

    /// Queues the payload of a rendezvous behind its header.
    pub(super) fn queue_data(&mut self, header: [u8; BASE_LEN], payload: &Iov<B>) -> Result<()> {
        self.reserve(payload.segments().len())?;
        self.segments.push(Segment {
            source: Source::Header(header),
            len: BASE_LEN as u64,
            start: true,
        })?;
        self.queued = self.queued.wrapping_add(BASE_LEN as u64);
        self.queue_user(payload)
    }

    fn queue_user(&mut self, payload: &Iov<B>) -> Result<()> {
        for segment in payload.segments() {
            if !segment.is_empty() {
                self.segments.push(Segment {
                    source: Source::User(*segment),
                    len: segment.len() as u64,
                    start: false,
                })?;
            }
        }
        self.queued = self.queued.wrapping_add(payload.len());
        Ok(())
    }

    /// Makes sure that queuing a message cannot fail half-way.
    #[inline]
    fn reserve(&mut self, user: usize) -> Result<()> {
        let blank = Segment {
            source: Source::Stage,
            len: 0,
            start: false,
        };
        let segments = self.segments.len().wrapping_add(user).wrapping_add(1);
        self.segments.reserve(segments, blank)?;
        let dones = self.dones.len().wrapping_add(1);
        self.dones.reserve(dones, TxDone::BLANK)
    }

    #[inline]
    fn at_boundary(&self) -> bool {
        self.front_sent == 0 && self.segments.front().is_none_or(|front| front.start)
    }

    fn transmit(&self, chunks: &mut [Chunk<B>]) -> usize {
        let mut count = 0usize;
        let mut put = |chunk| match chunks.get_mut(count) {
            Some(slot) => {
                *slot = chunk;
                count = count.wrapping_add(1);
                true
            }
            None => false,
        };
        let control_waits = !self.control.is_empty();
        if control_waits && self.at_boundary() {
            for index in 0..self.control.len() {
                let Some(bytes) = self.control.get(index) else {
                    break;
                };
                let skip = if index == 0 { self.control_sent } else { 0 };
                if !put(Chunk::Control(bytes, skip)) {
                    return count;
                }
            }
        }
        let stop_at_boundary = control_waits && !self.at_boundary();
        for index in 0..self.segments.len() {
            let Some(segment) = self.segments.get(index) else {
                break;
            };
            let skip = if index == 0 { self.front_sent } else { 0 };
            if stop_at_boundary && index > 0 && segment.start {
                break;
            }
            let left = segment.len.saturating_sub(skip) as usize;
            let chunk = match segment.source {
                Source::Stage | Source::Sealed => Chunk::Stage(left),
                Source::User(buffer) => Chunk::User(buffer, skip as usize, left),
                Source::Header(bytes) => Chunk::Control(bytes, skip as u8),
            };
            if !put(chunk) {
                break;
            }
        }
        count
    }

    /// Drops `bytes` from the front of the output; returns how many were staged ones.
    #[inline]
    fn consume(&mut self, bytes: u64) -> usize {
        let mut bytes = bytes;
        let mut staged = 0u64;
        while bytes > 0 {
            if !self.control.is_empty() && self.at_boundary() {
                let left = 16u64.saturating_sub(u64::from(self.control_sent));
                let step = left.min(bytes);
                bytes = bytes.wrapping_sub(step);
                if step == left {
                    self.control.pop();
                    self.control_sent = 0;
                } else {
                    self.control_sent = self.control_sent.wrapping_add(step as u8);
                }
                continue;
            }
            let Some(front) = self.segments.front() else {
                break;
            };
            let left = front.len.saturating_sub(self.front_sent);
            let step = left.min(bytes);
            if matches!(front.source, Source::Stage | Source::Sealed) {
                staged = staged.wrapping_add(step);
            }
            bytes = bytes.wrapping_sub(step);
            self.sent = self.sent.wrapping_add(step);
            if step == left {
                self.segments.pop();
                self.front_sent = 0;
            } else {
                self.front_sent = self.front_sent.wrapping_add(step);
            }
        }
        self.staged = self.staged.wrapping_sub(staged as usize);
        staged as usize
    }

    #[inline]
    fn dones_due(&mut self) -> Option<TxDone> {
        let due = self.dones.front()?.end <= self.sent;
        if due { self.dones.pop() } else { None }
    }

    fn pop_unfinished(&mut self) -> Option<TxInfo> {
        self.acks
            .pop()
            .or_else(|| self.dones.pop().map(|done| done.info))
            .or_else(|| self.rts.take_any().map(|entry| entry.info))
            .or_else(|| self.reads.pop().map(|entry| entry.info))
    }
}
