//! Atomics in packets, both ends of them (`docs/design/rxm.md`).
//!
//! Each is answered by a packet, which also says what has failed. The memory is found and changed as for
//! any other atomic ([`Job`](super::Job)).

use ripstop_types::{AtomicKind, Datatype, Errno, Result};
use ripstop_wire::rxm::{AtomicHead, AtomicResult, Body, MAX_UNIT_HEADER};
use ripstop_wire::xnet::base::{
    Answer, BASE_LEN, BaseFlags, Header, MAX_RMA, Reason, RmaIov, RmaIovs,
};
use ripstop_wire::xnet::cm::Extensions;

use crate::Buffer;
use crate::id::{ConnId, SlotId};
use crate::matching::Envelope;
use crate::stream::arriving::Target;
use crate::stream::atomic::op_of;
use crate::stream::awaited::{AtomicEntry, IndexedTx, Until};
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::packet_state::{Packets, Served};
use crate::stream::records::Response;
use crate::stream::request::{Atomic, NO_REGIONS, RmaKind};

/// Most pieces of output that wait on a connection when another atomic is taken from its peer: one that
/// posts atomics and takes no results is dropped. No endpoint has room for so many atomics.
const MAX_OUTPUT_PIECES: usize = 1 << 20;

impl<B: Buffer> Conn<B> {
    /// Whether the peer has atomics.
    pub(super) const fn has_atomics(&self) -> bool {
        self.packets.is_some() || self.extensions.contains(Extensions::ATOMIC)
    }

    /// Whether the peer is told what of its operation is denied, so that the connection lives on.
    pub(super) fn may_refuse(&self) -> bool {
        let serves = |packets: &Packets| packets.served.is_some();
        self.extensions.contains(Extensions::REFUSE) || self.packets.as_ref().is_some_and(serves)
    }

    /// Puts the packet of an atomic with so many bytes of operands into `header`, and notes that its result is
    /// awaited. Returns the length of the header, and what ends the atomic.
    pub(super) fn emit_packet_atomic(
        &mut self,
        atomic: &Atomic<B>,
        operands_len: u64,
        header: &mut [u8; MAX_UNIT_HEADER],
    ) -> Result<(usize, Until<B>)> {
        let size = atomic.datatype.size() as u64;
        let memory = scaled(&atomic.remote, |len| len.checked_div(size))?;
        let entry = AtomicEntry {
            end: 0,
            result: atomic.result,
            info: atomic.info(),
        };
        let index = self.indexed.insert(IndexedTx::Atomic(entry), true)?;
        let body = Body::Atomic(AtomicHead {
            id: index.into(),
            kind: atomic.kind,
            datatype: atomic.datatype as u8,
            op: atomic.op as u8,
            memory,
            operands_len,
        });
        match self.emit_packet(BaseFlags::empty(), body, header) {
            Ok(header_len) => Ok((header_len, Until::Result(index))),
            Err(error) => {
                self.indexed.take(index);
                Err(error)
            }
        }
    }

    /// Queues what came of an atomic of the peer.
    fn queue_result(
        &mut self,
        served: Served,
        status: i32,
        fetched: Option<(SlotId, u64)>,
    ) -> Result<()> {
        let len = fetched.map_or(0, |(_, len)| len);
        let body = Body::AtomicResult(AtomicResult {
            id: served.id,
            kind: served.kind,
            datatype: served.datatype,
            op: served.op,
            status,
            len: u32::try_from(len).map_err(|_| Errno::EMSGSIZE)?,
        });
        self.reserve(MAX_UNIT_HEADER.div_ceil(BASE_LEN).wrapping_add(1))?;
        self.queue_packet(body)?;
        match fetched {
            Some((slot, len)) => self.queue_slot(slot, len),
            None => Ok(()),
        }
    }
}

// The initiator.
impl<B: Buffer> Engine<B> {
    /// The result of an atomic has come. One before the atomic has left is none: its operands are still
    /// to be read.
    pub(super) fn start_result(
        &mut self,
        conn_id: ConnId,
        result: &AtomicResult,
        ack: bool,
    ) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let index = u16::try_from(result.id).map_err(|_| Errno::EPROTO)?;
        let entry = conn.indexed.get(index).and_then(IndexedTx::atomic);
        let entry = *entry.ok_or(Errno::EPROTO)?;
        let expected = match result.status {
            0 => entry.result.len(),
            _ => 0,
        };
        if !conn.has_sent(entry.end) || u64::from(result.len) != expected {
            return Err(Errno::EPROTO);
        }
        conn.envelope = Envelope {
            tag: None,
            src: conn.config.src,
            data: None,
            len: expected,
            ack,
        };
        if result.status == 0 {
            self.start_payload(conn_id, Target::Result(index), None);
            return Ok(());
        }
        conn.indexed.take(index);
        self.fail_tx(conn_id, &entry.info, error_of(result.status));
        self.wake_postponed(conn_id);
        if ack {
            self.acknowledge(conn_id);
        }
        Ok(())
    }

    /// What an atomic has fetched is in its place.
    pub(super) fn finish_result(&mut self, conn_id: ConnId, index: u16) {
        let conn = self.conns.get_mut(conn_id);
        if let Some(entry) = conn.and_then(|conn| conn.indexed.take(index)) {
            self.finish(conn_id, &entry.info());
            self.wake_postponed(conn_id);
        }
    }
}

// The target.
impl<B: Buffer> Engine<B> {
    /// An atomic of a peer starts.
    pub(super) fn start_packet_atomic(
        &mut self,
        conn_id: ConnId,
        atomic: &AtomicHead,
        ack: bool,
    ) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if conn.segments.len() > MAX_OUTPUT_PIECES {
            return Err(Errno::ENOBUFS);
        }
        let packets = conn.packets.as_mut().ok_or(Errno::EPROTO)?;
        packets.served = Some(Served {
            id: atomic.id,
            kind: atomic.kind,
            datatype: atomic.datatype,
            op: atomic.op,
        });
        conn.envelope = Envelope {
            tag: None,
            src: conn.config.src,
            data: None,
            len: atomic.operands_len,
            ack: false,
        };
        conn.write.refusal = (Answer::None, Reason::Key);
        let request = request(atomic);
        // In bytes, if that can be said.
        let memory = request.map_or(atomic.memory, |request| request.rma);
        let admitted = request.and_then(|request| self.admit(conn_id, &request));
        let target = match admitted {
            Ok(()) => Target::Operands,
            Err(reason) => {
                if let Some(conn) = self.conns.get_mut(conn_id) {
                    conn.write.refusal.1 = reason;
                }
                let first = memory.as_slice().first().copied().unwrap_or_default();
                self.note_refusal(conn_id, RmaKind::Atomic, first, reason);
                Target::Refused
            }
        };
        if ack {
            self.acknowledge(conn_id);
        }
        self.start_payload(conn_id, target, None);
        Ok(())
    }

    /// Answers the atomic that was served, if it was in a packet: with what it has fetched, if it fetches,
    /// or why it was refused. Returns whether it was.
    pub(super) fn answer_packet_atomic(
        &mut self,
        conn_id: ConnId,
        outcome: core::result::Result<Option<SlotId>, Reason>,
    ) -> bool {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return false;
        };
        let packets = conn.packets.as_mut();
        let Some(served) = packets.and_then(|packets| packets.served.take()) else {
            return false;
        };
        let len = conn.write.iov.len();
        let queued = match outcome {
            Ok(Some(slot)) => {
                let response = Response {
                    regions: NO_REGIONS,
                    slot: Some(slot),
                    fetched: len,
                };
                let queued = self.queue_response(conn_id, response, len, |conn, _| {
                    conn.queue_result(served, 0, Some((slot, len)))
                });
                if queued.is_err() {
                    self.release_slot(slot);
                }
                queued
            }
            Ok(None) => conn.queue_result(served, 0, None),
            Err(reason) => conn.queue_result(served, reason.errno().0.wrapping_neg(), None),
        };
        self.mark_output(conn_id);
        if let Err(error) = queued {
            self.break_conn(conn_id, error);
        }
        true
    }
}

/// The error that a result tells, of those that have a number in `fi_errno(3)`.
const fn error_of(status: i32) -> Errno {
    match status.wrapping_neg() {
        error @ 1..4096 => Errno(error),
        _ => Errno::EREMOTEIO,
    }
}

/// An atomic in the terms of the extension, if its lengths make sense: those of its memory are numbers
/// of elements.
fn request(atomic: &AtomicHead) -> core::result::Result<Header, Reason> {
    let datatype = Datatype::from_number(atomic.datatype.into()).ok_or(Reason::Unsupported)?;
    let size = datatype.size() as u64;
    let memory = scaled(&atomic.memory, |len| len.checked_mul(size)).map_err(|_| Reason::Bounds)?;
    let len = memory.total_len().map_err(|_| Reason::Bounds)?;
    let request = Header {
        op_data: atomic.datatype,
        atomic: atomic.op,
        rma: memory,
        ..Header::new(op_of(atomic.kind), atomic.operands_len)
    };
    let halves = match atomic.kind {
        // Only to read there is none.
        AtomicKind::Fetch if atomic.operands_len == 0 => 0,
        AtomicKind::Plain | AtomicKind::Fetch => 1,
        AtomicKind::Compare => 2,
    };
    match len.checked_mul(halves) == Some(atomic.operands_len) {
        true => Ok(request),
        false => Err(Reason::Unsupported),
    }
}

/// The same pieces of memory with other lengths.
fn scaled(memory: &RmaIovs, scale: impl Fn(u64) -> Option<u64>) -> Result<RmaIovs> {
    let mut pieces = [RmaIov::default(); MAX_RMA as usize];
    for (to, from) in pieces.iter_mut().zip(memory.as_slice()) {
        let len = scale(from.len).ok_or(Errno::EOVERFLOW)?;
        *to = RmaIov { len, ..*from };
    }
    let used = pieces.get(..memory.as_slice().len());
    Ok(RmaIovs::new(used.unwrap_or_default())?)
}
