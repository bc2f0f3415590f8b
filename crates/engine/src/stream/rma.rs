//! Reads and writes of a peer's memory (man page `fi_rma(3)`): both ends of them.
//!
//! The initiator's side is like that of a message, except that a read is done when its
//! response has come. The target checks key, access and bounds of every segment before the
//! first byte moves. What it denies is answered by a refusal where the peers agreed on that,
//! and else ends the connection, which is all the C library's protocol has for it.

use ripstop_types::{Errno, FiAddr, Flags, Result};
use ripstop_wire::xnet::base::{Answer, BaseFlags, Header, MAX_HEADER, Op, Reason};
use ripstop_wire::xnet::cm::Extensions;

use crate::id::{ConnId, CounterId, SlotId};
use crate::matching::Envelope;
use crate::mr::Denied;
use crate::stream::arriving::Target;
use crate::stream::awaited::{IndexedTx, ReadEntry, Until};
use crate::stream::conn::Conn;
use crate::stream::engine::{Engine, Ep, EpConfig, Limits};
use crate::stream::request::{Level, ONE_SIDED, Posted, Rma, RmaKind, TxDone};
use crate::{Buffer, Iov};

/// What a plain write is reported as.
pub(super) const WRITTEN: Flags = Flags::RMA.union(Flags::WRITE);

/// Most responses to reads that wait to be sent on one connection: a peer that asks for more
/// and takes none is dropped. No endpoint has room for so many reads.
pub(super) const MAX_OWED: u32 = 1 << 17;

/// Refusals kept for the log until the driver takes them.
pub(super) const MAX_REFUSALS: usize = 16;

/// What the driver must do for a read or write that was accepted.
#[derive(Clone, Copy, Debug)]
pub enum RmaPlan {
    /// Append it to the transmit buffer.
    Append(Appended),
    /// As [`SendPlan::Postpone`](super::SendPlan::Postpone).
    Postpone {
        /// The slot for the payload, if it is copied.
        slot: Option<SlotId>,
    },
}

/// What to put into the connection's transmit buffer.
#[derive(Clone, Copy, Debug)]
pub struct Appended {
    /// Length of the header in bytes.
    pub header_len: usize,
    /// Whether the payload follows in the transmit buffer.
    pub inline: bool,
}

/// Queues an operation with its payload behind the header, and notes when it will be done.
/// Nothing is left of it if that fails.
pub(super) fn post<B: Buffer>(
    conn: &mut Conn<B>,
    ep: &mut Ep,
    buffered: Appended,
    payload: [&Iov<B>; 2],
    until: Until<B>,
) -> Result<Appended> {
    let [first, second] = payload;
    let len = first.len().saturating_add(second.len());
    let header_len = buffered.header_len as u64;
    let end = conn.queued.wrapping_add(header_len).wrapping_add(len);
    match until {
        Until::Nothing => {}
        Until::Written(info) => conn.dones.push(TxDone { end, info })?,
        Until::Answered(read) => conn.reads.push(ReadEntry { end, ..read })?,
        Until::Result(index) => {
            if let Some(IndexedTx::Atomic(entry)) = conn.indexed.get_mut(index) {
                entry.end = end;
            }
        }
    }
    let queued = if buffered.inline {
        conn.queue_buffered(header_len.saturating_add(len))
    } else {
        conn.queue_both(header_len, first, second)
    };
    if let Err(error) = queued {
        match until {
            Until::Nothing => {}
            Until::Written(_) => drop(conn.dones.pop_back()),
            Until::Answered(_) => drop(conn.reads.pop_back()),
            Until::Result(index) => drop(conn.indexed.take(index)),
        }
        return Err(error);
    }
    if !matches!(until, Until::Nothing) {
        ep.outstanding = ep.outstanding.wrapping_add(1);
    }
    Ok(buffered)
}

impl From<Denied> for Reason {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Key => Self::Key,
            Denied::Access => Self::Access,
            Denied::Bounds => Self::Bounds,
        }
    }
}

impl EpConfig {
    /// The counter of a posted operation with these completion flags.
    #[inline]
    pub(super) fn counter_of(&self, flags: Flags) -> Option<CounterId> {
        if flags.intersects(ONE_SIDED) {
            return if flags.contains(Flags::READ) {
                self.read_counter
            } else {
                self.write_counter
            };
        }
        self.tx_counter
    }
}

impl<B: Buffer> Conn<B> {
    /// Whether earlier operations are not done at the peer, though later ones could be.
    pub(super) const fn is_fenced(&self) -> bool {
        !self.reads.is_empty() || !self.indexed.is_empty()
    }
}

// The initiator.
impl<B: Buffer> Engine<B> {
    /// Accepts a read or write for a connection. Its header is put into `header`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] unless both sides are equally long, no pieces at the peer being of no bytes; otherwise as [`Engine::send`].
    pub fn rma(
        &mut self,
        conn_id: ConnId,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<RmaPlan> {
        if rma.remote.total_len() != Ok(rma.iov.len()) {
            return Err(Errno::EINVAL);
        }
        let (conn, ep, limits) = self.with_room(conn_id)?;
        let goes_now = match rma.kind {
            RmaKind::Read => conn.may_read(),
            RmaKind::Write | RmaKind::Atomic => conn.ready_to_send,
        };
        if !goes_now {
            let slot = self.postpone(conn_id, Posted::Rma(*rma))?;
            return Ok(RmaPlan::Postpone { slot });
        }
        Self::append_rma(conn, ep, limits, rma, header).map(RmaPlan::Append)
    }

    /// As [`Engine::rma`], whatever waits on the connection.
    pub(super) fn queue_rma(
        &mut self,
        conn_id: ConnId,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Appended> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        Self::append_rma(conn, ep, limits, rma, header)
    }

    fn append_rma(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Appended> {
        if rma.kind == RmaKind::Read {
            conn.copies_payload(limits, MAX_HEADER, 0, false)?;
            return Self::stage_read(conn, ep, rma, header);
        }
        let len = rma.iov.len();
        let inline = conn.copies_payload(limits, MAX_HEADER, len, rma.inject)?;
        let full = Header {
            flags: match rma.level {
                Level::Sent => BaseFlags::empty(),
                Level::Delivered => BaseFlags::DELIVERY_COMPLETE,
                Level::Committed => BaseFlags::COMMIT_COMPLETE,
            },
            cq_data: rma.data,
            rma: rma.remote,
            ..Header::new(Op::Write, len)
        };
        let header_len = full.emit(conn.order, header)?;
        let uncounted = ep.config.write_counter.is_none() && rma.level == Level::Sent;
        let until = if rma.is_silent() && uncounted {
            Until::Nothing
        } else {
            Until::Written(rma.info())
        };
        let buffered = Appended { header_len, inline };
        post(conn, ep, buffered, [&rma.iov, &Iov::EMPTY], until)
    }

    fn stage_read(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Appended> {
        // Without flags: C peers copy them into the response, and would then be sent an
        // acknowledgement they do not wait for.
        let full = Header {
            rma: rma.remote,
            ..Header::new(Op::ReadReq, 0)
        };
        let header_len = full.emit(conn.order, header)?;
        let until = Until::Answered(ReadEntry::posted(rma.iov, rma.info()));
        let buffered = Appended {
            header_len,
            inline: false,
        };
        let posted = post(conn, ep, buffered, [&Iov::EMPTY; 2], until)?;
        if conn.after_reads {
            conn.settle_ready();
        }
        Ok(posted)
    }

    /// The response to the oldest read starts.
    pub(super) fn start_read(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let read = conn.reads.front().ok_or(Errno::EPROTO)?;
        if read.iov.len() != header.payload_len || !conn.has_sent(read.end) {
            return Err(Errno::EPROTO);
        }
        conn.envelope = Envelope {
            ack: false,
            ..one_sided(header, conn.config.src)
        };
        self.start_payload(conn_id, Target::Read, None);
        Ok(())
    }

    pub(super) fn finish_read(&mut self, conn_id: ConnId) {
        match self.take_read(conn_id) {
            Some(ReadEntry {
                message: Some(index),
                ..
            }) => self.finish_announced(conn_id, index),
            Some(read) => self.finish(conn_id, &read.info),
            None => {}
        }
    }

    /// Takes the oldest read; what waited for it can go on.
    fn take_read(&mut self, conn_id: ConnId) -> Option<ReadEntry<B>> {
        let conn = self.conns.get_mut(conn_id)?;
        let read = conn.reads.pop();
        conn.told_reads = conn.told_reads.saturating_sub(1);
        if conn.after_reads {
            conn.settle_ready();
        }
        self.wake_postponed(conn_id);
        read
    }

    /// The peer refused an operation.
    pub(super) fn handle_refusal(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.extensions.contains(Extensions::REFUSE) {
            return Err(Errno::EPROTO);
        }
        let (answer, reason) = header.refusal.ok_or(Errno::EPROTO)?;
        match answer {
            Answer::Ack => {
                let info = conn.acks.pop().ok_or(Errno::EPROTO)?;
                self.fail_tx(conn_id, &info, reason.errno());
            }
            Answer::Response => {
                let read = conn.reads.front().ok_or(Errno::EPROTO)?;
                if conn.rx_is_read() || read.message.is_some() || !conn.has_sent(read.end) {
                    return Err(Errno::EPROTO);
                }
                let read = self.take_read(conn_id).ok_or(Errno::EPROTO)?;
                self.fail_tx(conn_id, &read.info, reason.errno());
            }
            // That write was done long ago as far as the caller knows: no context is his.
            Answer::None => self.fail_late(conn_id, reason.errno()),
        }
        Ok(())
    }

    fn fail_late(&mut self, conn_id: ConnId, error: Errno) {
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let Some(ep) = self.eps.get(conn.config.ep) else {
            return;
        };
        ep.config
            .fail(&mut self.cqs, &mut self.counters, (WRITTEN, 0), error, conn);
    }
}

/// What is known of a one-sided operation, in the terms of a message.
pub(super) const fn one_sided(header: &Header, src: FiAddr) -> Envelope {
    Envelope {
        tag: None,
        src,
        data: header.cq_data,
        len: header.payload_len,
        ack: header.flags.wants_ack(),
    }
}
