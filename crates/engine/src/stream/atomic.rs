//! Atomics on a peer's memory (man page `fi_atomic(3)`): both ends of them.
//!
//! They are an extension of the protocol ([`Extensions::ATOMIC`]). The operands are collected
//! in a slot; then the driver, which has the memory, carries the operation out at once
//! ([`Job`]), before anything that follows in the stream. What is fetched goes back as the
//! response to a read does.

use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Result};
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::{Answer, BaseFlags, Header, MAX_HEADER, Op, Reason};
use ripstop_wire::xnet::cm::Extensions;

use crate::id::{ConnId, SlotId};
use crate::mr::Access;
use crate::stream::arriving::{ArrivingAtomic, RxState, Target};
use crate::stream::awaited::{ReadEntry, Until};
use crate::stream::conn::Conn;
use crate::stream::engine::{Engine, Ep, Limits};
use crate::stream::records::Response;
use crate::stream::request::{Atomic, Level, MAX_ATOMIC, NO_REGIONS, Posted, RmaKind};
use crate::stream::rma::{Appended, RmaPlan, one_sided, post};
use crate::{Buffer, Reached};

/// Most fetched bytes that wait to be sent on one connection; more is refused.
const MAX_FETCHED: u64 = 64 << 20;

/// What the driver is to do at once, before it reads on; then [`Engine::job_done`].
#[derive(Debug)]
pub enum Job<'a, B> {
    /// Carry out an atomic.
    Atomic {
        /// The memory, which is registered; each segment a whole number of aligned elements.
        target: &'a Reached<B>,
        /// What it holds.
        datatype: Datatype,
        /// What to do.
        op: AtomicOp,
        /// The slot with the operands, as many bytes as the target, and behind them those to
        /// compare with if `compare`, if there are any.
        operands: Option<SlotId>,
        /// Whether the slot has the second half.
        compare: bool,
        /// Whether what was there before is fetched, into a new slot.
        fetch: bool,
    },
    /// Make what was written durable; after an atomic, what that has changed.
    Commit(&'a Reached<B>),
    /// Do what [`Engine::coll_next`] says until it says nothing, and then call
    /// [`Engine::coll_job_done`] instead.
    Collective,
}

// The initiator.
impl<B: Buffer> Engine<B> {
    /// Accepts an atomic for a connection. Its header is put into `header`; the payload is the
    /// operands and then those to compare with.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] for an operation that the datatype does not have, or if the peer
    /// has no atomics; [`Errno::EINVAL`] for lengths that do not fit each other;
    /// [`Errno::EMSGSIZE`] above [`MAX_ATOMIC`]; otherwise as [`Engine::send`].
    pub fn atomic(
        &mut self,
        conn_id: ConnId,
        atomic: &Atomic<B>,
        header: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<RmaPlan> {
        atomic.check()?;
        let (conn, ep, limits) = self.with_room(conn_id)?;
        if conn.up && !conn.has_atomics() {
            return Err(Errno::EOPNOTSUPP);
        }
        if !conn.ready_to_send {
            let slot = self.postpone(conn_id, Posted::Atomic(*atomic))?;
            return Ok(RmaPlan::Postpone { slot });
        }
        Self::append_atomic(conn, ep, limits, atomic, header).map(RmaPlan::Append)
    }

    /// As [`Engine::atomic`], whatever waits on the connection.
    pub(super) fn queue_atomic(
        &mut self,
        conn_id: ConnId,
        atomic: &Atomic<B>,
        header: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<Appended> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        if !conn.has_atomics() {
            return Err(Errno::EOPNOTSUPP);
        }
        Self::append_atomic(conn, ep, limits, atomic, header)
    }

    /// Queues an atomic, with its header in `header`: in a packet where the connection has packets.
    fn append_atomic(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        atomic: &Atomic<B>,
        header: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<Appended> {
        let in_packet = conn.packets.is_some();
        if in_packet && (atomic.data.is_some() || atomic.level == Level::Committed) {
            return Err(Errno::EOPNOTSUPP);
        }
        let header_max = match in_packet {
            true => MAX_UNIT_HEADER,
            false => MAX_HEADER,
        };
        let len = atomic.operand.len().saturating_add(atomic.compare.len());
        let inline = conn.copies_payload(limits, header_max, len, atomic.inject)?;
        let (header_len, until) = match in_packet {
            true => conn.emit_packet_atomic(atomic, len, header)?,
            false => {
                let header_len = unit(atomic, len).emit(conn.order, header)?;
                (header_len, end_of(ep, atomic))
            }
        };
        let buffered = Appended { header_len, inline };
        let payload = [&atomic.operand, &atomic.compare];
        post(conn, ep, buffered, payload, until)
    }
}

/// The header of an atomic with so many bytes of operands, on a connection without packets.
fn unit<B: Buffer>(atomic: &Atomic<B>, operands_len: u64) -> Header {
    let fetches = atomic.kind != AtomicKind::Plain;
    Header {
        op_data: atomic.datatype as u8,
        atomic: atomic.op as u8,
        flags: match atomic.level {
            Level::Committed => BaseFlags::COMMIT_COMPLETE,
            Level::Delivered if !fetches => BaseFlags::DELIVERY_COMPLETE,
            Level::Delivered | Level::Sent => BaseFlags::empty(),
        },
        cq_data: atomic.data,
        rma: atomic.remote,
        ..Header::new(op_of(atomic.kind), operands_len)
    }
}

/// When an atomic of that header is done.
fn end_of<B: Buffer>(ep: &Ep, atomic: &Atomic<B>) -> Until<B> {
    let info = atomic.info();
    let is_counted = ep.config.write_counter.is_some() || atomic.level != Level::Sent;
    if atomic.kind != AtomicKind::Plain {
        Until::Answered(ReadEntry::posted(atomic.result, info))
    } else if atomic.is_silent() && !is_counted {
        Until::Nothing
    } else {
        Until::Written(info)
    }
}

pub(super) const fn op_of(kind: AtomicKind) -> Op {
    match kind {
        AtomicKind::Plain => Op::Atomic,
        AtomicKind::Fetch => Op::FetchAtomic,
        AtomicKind::Compare => Op::CompareAtomic,
    }
}

const fn kind_of(op: Op) -> Option<AtomicKind> {
    match op {
        Op::Atomic => Some(AtomicKind::Plain),
        Op::FetchAtomic => Some(AtomicKind::Fetch),
        Op::CompareAtomic => Some(AtomicKind::Compare),
        _ => None,
    }
}

/// What peers must be allowed to do with memory for this.
const fn access_of(kind: AtomicKind, op: AtomicOp) -> Access {
    match (kind, op) {
        (AtomicKind::Plain, _) => Access::WRITE,
        (AtomicKind::Fetch, AtomicOp::AtomicRead) => Access::READ,
        _ => Access {
            read: true,
            write: true,
        },
    }
}

/// What a header asks for, if it makes sense.
fn arriving_atomic(header: &Header) -> Option<ArrivingAtomic> {
    let kind = kind_of(header.op)?;
    let datatype = Datatype::from_number(header.op_data.into())?;
    let op = AtomicOp::from_number(header.atomic.into())?;
    let fetches_only = matches!(op, AtomicOp::AtomicRead);
    if !kind.allows(op, datatype) || fetches_only != (header.payload_len == 0) {
        return None;
    }
    Some(ArrivingAtomic {
        kind,
        datatype,
        op,
        slot: None,
    })
}

// The target.
impl<B: Buffer> Engine<B> {
    /// An atomic of a peer starts.
    pub(super) fn start_atomic(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.extensions.contains(Extensions::ATOMIC) {
            return Err(Errno::EPROTO);
        }
        let fetches = header.op != Op::Atomic;
        conn.envelope = one_sided(header, conn.config.src);
        let ack = !fetches && conn.envelope.ack;
        conn.envelope.ack = ack;
        let answer = match (fetches, ack) {
            (true, _) => Answer::Response,
            (false, true) => Answer::Ack,
            (false, false) => Answer::None,
        };
        conn.write.refusal = (answer, Reason::Key);
        let target = match self.admit(conn_id, header) {
            Ok(()) => Target::Operands,
            Err(reason) => {
                if let Some(conn) = self.conns.get_mut(conn_id) {
                    conn.write.refusal.1 = reason;
                    conn.envelope.ack = false;
                }
                let first = header.rma.as_slice().first().copied().unwrap_or_default();
                self.note_refusal(conn_id, RmaKind::Atomic, first, reason);
                Target::Refused
            }
        };
        self.start_payload(conn_id, target, None);
        Ok(())
    }

    /// Finds the memory of an atomic, and a slot for its operands.
    pub(super) fn admit(
        &mut self,
        conn_id: ConnId,
        header: &Header,
    ) -> core::result::Result<(), Reason> {
        let mut atomic = arriving_atomic(header).ok_or(Reason::Unsupported)?;
        let len = header.rma.total_len().map_err(|_| Reason::Bounds)?;
        let fetched = self.conns.get(conn_id).map_or(0, |conn| conn.fetched);
        if len == 0 || len > MAX_ATOMIC as u64 || fetched > MAX_FETCHED {
            return Err(Reason::Failed);
        }
        let access = access_of(atomic.kind, atomic.op);
        let (iov, regions) = self
            .resolve(&header.rma, access)
            .map_err(|(_, reason)| reason)?;
        let (align, size) = (atomic.datatype.align(), atomic.datatype.size());
        let fits = |part: &B| {
            part.address().checked_rem(align) == Some(0) && part.len().checked_rem(size) == Some(0)
        };
        if !iov.segments().iter().all(fits) {
            self.release(regions);
            return Err(Reason::Misaligned);
        }
        if header.payload_len > 0 {
            let Ok(slot) = self.slots.insert(()) else {
                self.release(regions);
                return Err(Reason::Failed);
            };
            atomic.slot = Some(slot);
        }
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.write.iov = iov;
            conn.write.regions = regions;
            conn.write.atomic = Some(atomic);
            conn.write.commit = header.flags.contains(BaseFlags::COMMIT_COMPLETE);
        }
        Ok(())
    }

    /// The operands are there: the driver's turn.
    pub(super) fn await_job(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.rx = RxState::Job;
        }
    }

    /// What is to be done on a connection whose [`RxWant`](super::RxWant) is a job.
    #[must_use]
    pub fn job(&self, conn_id: ConnId) -> Option<Job<'_, B>> {
        let conn = self.conns.get(conn_id)?;
        if conn.rx != RxState::Job {
            return None;
        }
        if conn.incoming.waits.is_some() {
            return Some(Job::Collective);
        }
        let target = &conn.write.iov;
        let Some(atomic) = conn.write.atomic else {
            return Some(Job::Commit(target));
        };
        Some(Job::Atomic {
            target,
            datatype: atomic.datatype,
            op: atomic.op,
            operands: atomic.slot,
            compare: atomic.kind == AtomicKind::Compare,
            fetch: atomic.kind != AtomicKind::Plain,
        })
    }

    /// A slot for what an atomic fetches; give it to [`Engine::job_done`].
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub fn fetched_slot(&mut self) -> Result<SlotId> {
        self.slots.insert(())
    }

    /// The job is done, or could not be. `fetched` is the slot with what an atomic found, as
    /// many bytes as its target, if there is one.
    pub fn job_done(&mut self, conn_id: ConnId, done: bool, fetched: Option<SlotId>) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return self.free_slot(fetched);
        };
        if conn.rx != RxState::Job || conn.incoming.waits.is_some() {
            return self.free_slot(fetched);
        }
        if !done {
            conn.rx = RxState::Header;
            conn.envelope.ack = false;
            conn.write.refusal.1 = Reason::Failed;
            self.release_write(conn_id);
            self.free_slot(fetched);
            return self.finish_refused(conn_id);
        }
        if let Some(atomic) = conn.write.atomic.take() {
            conn.write.carried_out = Some((atomic.kind, fetched));
            if conn.write.commit {
                // The next job; it is answered after that.
                return self.free_slot(atomic.slot);
            }
            self.free_slot(atomic.slot);
        }
        self.finish_job(conn_id);
    }

    /// All that an atomic or a durable write asked for is done.
    fn finish_job(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        conn.rx = RxState::Header;
        let ack = core::mem::take(&mut conn.envelope.ack);
        let (kind, fetched) = match conn.write.carried_out.take() {
            Some((kind, fetched)) => (Some(kind), fetched),
            None => (None, None),
        };
        self.finish_write(conn_id, kind);
        if kind.is_some() && self.answer_packet_atomic(conn_id, Ok(fetched)) {
            return;
        }
        if let Some(slot) = fetched {
            if let Err(error) = self.respond_fetched(conn_id, slot) {
                self.release_slot(slot);
                self.break_conn(conn_id, error);
            }
        } else if ack {
            self.acknowledge(conn_id);
        }
    }

    fn respond_fetched(&mut self, conn_id: ConnId, slot: SlotId) -> Result<()> {
        let conn = self.conns.get(conn_id).ok_or(Errno::ENOTCONN)?;
        let len = conn.write.iov.len();
        let response = Response {
            regions: NO_REGIONS,
            slot: Some(slot),
            fetched: len,
        };
        self.queue_response(conn_id, response, len, |conn, header| {
            conn.queue_kept(header, slot, len)
        })
    }
}
