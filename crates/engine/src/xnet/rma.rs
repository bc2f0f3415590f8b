//! Reads and writes of a peer's memory (man page `fi_rma(3)`): both ends of them.
//!
//! The initiator's side is like that of a message, except that a read is done when its
//! response has come. The target checks key, access and bounds of every segment before the
//! first byte moves. What it denies is answered by a refusal where the peers agreed on that,
//! and else ends the connection, which is all the C library's protocol has for it.

use ripstop_types::{Completion, Context, Errno, FiAddr, Flags, Result, RmaIov};
use ripstop_wire::xnet::base::{
    Answer, BASE_LEN, BaseFlags, Header, MAX_HEADER, MAX_RMA, Op, Reason, RmaIovs,
};
use ripstop_wire::xnet::cm::Extensions;

use super::conn::{Conn, TxDone, TxInfo};
use super::engine::{Engine, Ep, EpConfig, Limits, NO_COMPLETION};
use super::rx::Target;
use super::tx::Posted;
use crate::matching::Envelope;
use crate::mr::{Access, Denied, Mr};
use crate::pool::NIL;
use crate::{Buffer, Iov};

/// Most responses to reads that wait to be sent on one connection: a peer that asks for more
/// and takes none is dropped. No endpoint has room for so many reads.
const MAX_OWED: u32 = 1 << 17;

/// Refusals kept for the log until the driver takes them.
const MAX_REFUSALS: usize = 16;

/// What a one-sided operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RmaKind {
    /// Fetches the peer's memory.
    Read,
    /// Changes the peer's memory.
    Write,
}

/// When a write is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Level {
    /// When its last byte has been given to the stream.
    #[default]
    Sent,
    /// When the peer has placed it.
    Delivered,
    /// When the peer has made it durable.
    Committed,
}

/// A read or write to be posted.
#[derive(Clone, Copy, Debug)]
pub struct Rma<B> {
    /// Which of the two.
    pub kind: RmaKind,
    /// The local memory.
    pub iov: Iov<B>,
    /// The peer's, of the same length in all.
    pub remote: RmaIovs,
    /// Remote CQ data of a write.
    pub data: Option<u64>,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// The payload of a write must be copied before the call returns.
    pub inject: bool,
    /// When a write is done.
    pub level: Level,
    /// Wait until what was posted before is done (`FI_FENCE`).
    pub fence: bool,
}

impl<B: Buffer> Rma<B> {
    pub(super) fn info(&self) -> TxInfo {
        TxInfo {
            context: self.context,
            flags: match self.kind {
                RmaKind::Read => Flags::RMA.union(Flags::READ),
                RmaKind::Write => Flags::RMA.union(Flags::WRITE),
            },
            completion: self.completion,
            ack: self.level != Level::Sent,
            len: self.iov.len(),
        }
    }
}

/// What the driver must do for a read or write that was accepted.
#[derive(Clone, Copy, Debug)]
pub enum RmaPlan {
    /// Stage it.
    Stage(Staged),
    /// As [`SendPlan::Defer`](super::SendPlan::Defer).
    Defer {
        /// The slot for the payload, or [`NIL`].
        slot: u32,
    },
}

/// What to put into the connection's staging buffer.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Length of the header in bytes.
    pub header_len: usize,
    /// Whether the payload follows in the staging buffer.
    pub inline: bool,
}

/// A read that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadEntry<B> {
    pub(super) iov: Iov<B>,
    pub(super) info: TxInfo,
}

/// The regions that one operation of a peer uses.
type Regions = [u32; MAX_RMA as usize];

const NO_REGIONS: Regions = [NIL; MAX_RMA as usize];

/// A write that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arriving<B> {
    pub(super) iov: Iov<B>,
    regions: Regions,
    refusal: (Answer, Reason),
}

impl<B: Buffer> Arriving<B> {
    pub(super) const NOTHING: Self = Self {
        iov: Iov::EMPTY,
        regions: NO_REGIONS,
        refusal: (Answer::None, Reason::Key),
    };
}

/// A read by a peer that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    regions: Regions,
}

/// A one-sided operation of a peer that was refused, for the log.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The connection it came on.
    pub conn: u32,
    /// What it was.
    pub kind: RmaKind,
    /// The first segment that was denied.
    pub iov: RmaIov,
    /// Why.
    pub reason: Reason,
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
    pub(super) fn counter_of(&self, flags: Flags) -> u32 {
        if flags.contains(Flags::RMA) {
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
        !self.reads.is_empty() || !self.rts.is_empty()
    }
}

// The initiator.
impl<B: Buffer> Engine<B> {
    /// Accepts a read or write for a connection. Its header is put into `header`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] unless both sides are equally long; otherwise as [`Engine::send`].
    pub fn rma(
        &mut self,
        conn_id: u32,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<RmaPlan> {
        if rma.remote.is_empty() || rma.remote.total_len() != Ok(rma.iov.len()) {
            return Err(Errno::EINVAL);
        }
        let Self {
            conns, eps, limits, ..
        } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        if ep.outstanding >= ep.config.tx_size {
            return Err(Errno::EAGAIN);
        }
        if !conn.direct || (rma.fence && conn.is_fenced()) {
            let slot = self.defer(conn_id, Posted::Rma(*rma))?;
            if let Some(conn) = self.conns.get_mut(conn_id) {
                conn.direct = false;
            }
            return Ok(RmaPlan::Defer { slot });
        }
        Self::stage_rma(conn, ep, limits, rma, header).map(RmaPlan::Stage)
    }

    /// As [`Engine::rma`], whatever waits on the connection.
    pub(super) fn rma_now(
        &mut self,
        conn_id: u32,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Staged> {
        let Self {
            conns, eps, limits, ..
        } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let ep = eps.get_mut(conn.config.ep).ok_or(Errno::ENOTCONN)?;
        Self::stage_rma(conn, ep, limits, rma, header)
    }

    fn stage_rma(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        limits: &Limits,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Staged> {
        let room = limits.stage.saturating_sub(conn.staged);
        let room = room.checked_sub(MAX_HEADER).ok_or(Errno::EAGAIN)?;
        if rma.kind == RmaKind::Read {
            return Self::stage_read(conn, ep, rma, header);
        }
        let len = rma.iov.len();
        let fits = len <= room as u64;
        if rma.inject && !fits {
            return Err(Errno::EAGAIN);
        }
        let inline = (rma.inject || len <= limits.inline as u64) && fits;
        let full = Header {
            flags: match rma.level {
                Level::Sent => BaseFlags::NONE,
                Level::Delivered => BaseFlags::DELIVERY_COMPLETE,
                Level::Committed => BaseFlags::COMMIT_COMPLETE,
            },
            cq_data: rma.data,
            rma: rma.remote,
            ..Header::new(Op::Write, len)
        };
        let header_len = full.emit(conn.order, header).map_err(|e| e.errno())?;
        let info = rma.info();
        let (staged, user) = if inline {
            (len.saturating_add(header_len as u64), 0)
        } else {
            (header_len as u64, len)
        };
        let uncounted = ep.config.write_counter == NIL && rma.level == Level::Sent;
        let silent = rma.inject && !rma.completion && uncounted;
        if !silent {
            let end = conn.queued.wrapping_add(staged).wrapping_add(user);
            conn.dones.push(TxDone { end, info })?;
        }
        let queued = if inline {
            conn.queue_staged(staged)
        } else {
            conn.queue(staged, Some(&rma.iov))
        };
        if let Err(error) = queued {
            if !silent {
                conn.dones.pop_back();
            }
            return Err(error);
        }
        if !silent {
            ep.outstanding = ep.outstanding.wrapping_add(1);
        }
        Ok(Staged { header_len, inline })
    }

    fn stage_read(
        conn: &mut Conn<B>,
        ep: &mut Ep,
        rma: &Rma<B>,
        header: &mut [u8; MAX_HEADER],
    ) -> Result<Staged> {
        // Without flags: C peers copy them into the response, and would then be sent an
        // acknowledgement they do not wait for.
        let full = Header {
            rma: rma.remote,
            ..Header::new(Op::ReadReq, 0)
        };
        let header_len = full.emit(conn.order, header).map_err(|e| e.errno())?;
        conn.reads.push(ReadEntry {
            iov: rma.iov,
            info: rma.info(),
        })?;
        if let Err(error) = conn.queue_staged(header_len as u64) {
            conn.reads.pop_back();
            return Err(error);
        }
        ep.outstanding = ep.outstanding.wrapping_add(1);
        Ok(Staged {
            header_len,
            inline: false,
        })
    }

    /// The response to the oldest read starts.
    pub(super) fn start_read(&mut self, conn_id: u32, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let read = conn.reads.front().ok_or(Errno::EPROTO)?;
        if read.iov.len() != header.payload_len {
            return Err(Errno::EPROTO);
        }
        conn.envelope = Envelope {
            ack: false,
            ..one_sided(header, conn.config.src)
        };
        self.start_payload(conn_id, Target::Read, None);
        Ok(())
    }

    pub(super) fn finish_read(&mut self, conn_id: u32) {
        if let Some(read) = self.take_read(conn_id) {
            self.finish_rma(conn_id, &read.info);
        }
    }

    /// A read or write is done, or a response has left whole.
    #[cold]
    #[inline(never)]
    pub(super) fn finish_rma(&mut self, conn_id: u32, info: &TxInfo) {
        if info.flags.contains(Flags::REMOTE_READ) {
            return self.finish_response(conn_id, info);
        }
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
        if let Some(counter) = counters.get_mut(ep.config.counter_of(info.flags)) {
            counter.success(info.len);
        }
        if info.completion
            && let Some(cq) = cqs.get_mut(ep.config.tx_cq)
        {
            cq.push(Completion {
                context: info.context,
                flags: info.flags,
                ..NO_COMPLETION
            });
        }
    }

    /// Takes the oldest read; what waited for it can go on.
    fn take_read(&mut self, conn_id: u32) -> Option<ReadEntry<B>> {
        let conn = self.conns.get_mut(conn_id)?;
        let read = conn.reads.pop();
        if conn.has_deferred() && !conn.is_fenced() {
            self.mark_output(conn_id);
        }
        read
    }

    /// The peer refused an operation.
    pub(super) fn handle_refusal(&mut self, conn_id: u32, header: &Header) -> Result<()> {
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
                if conn.rx_is_read() {
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

    fn fail_late(&mut self, conn_id: u32, error: Errno) {
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
        let Some(ep) = eps.get(conn.config.ep) else {
            return;
        };
        if let Some(counter) = counters.get_mut(ep.config.write_counter) {
            counter.failure();
        }
        if let Some(cq) = cqs.get_mut(ep.config.tx_cq) {
            let entry = Completion {
                flags: Flags::RMA.union(Flags::WRITE),
                ..NO_COMPLETION
            };
            cq.push_error(super::engine::error_entry(entry, error, conn));
        }
    }
}

// The target.
impl<B: Buffer> Engine<B> {
    /// Lets peers reach memory; returns the region's id.
    ///
    /// # Errors
    /// [`Errno::ENOKEY`] when the key is in use, [`Errno::ENOMEM`].
    pub fn open_mr(&mut self, mr: Mr<B>) -> Result<u32> {
        self.regions.insert(mr)
    }

    /// A region, to be changed. Its key is not for changing.
    pub fn mr_mut(&mut self, id: u32) -> Option<&mut Mr<B>> {
        self.regions.get_mut(id)
    }

    /// Whether operations of peers use a region's memory now.
    #[must_use]
    pub fn mr_is_busy(&self, id: u32) -> bool {
        self.regions.get(id).is_some_and(|mr| mr.users > 0)
    }

    /// The connections there are.
    pub fn conns(&self) -> impl Iterator<Item = u32> + '_ {
        self.conns.ids()
    }

    /// Takes a region away from peers. A write that is arriving there is refused from here
    /// on; a connection on which a response from there waits breaks. Wait until
    /// [`Engine::mr_is_busy`] says no, to lose nothing. Handle [`Engine::pop_broken`] before
    /// the memory is given back.
    pub fn close_mr(&mut self, id: u32) {
        if self.mr_is_busy(id) {
            self.evict(id);
        }
        self.regions.remove(id);
    }

    #[cold]
    fn evict(&mut self, id: u32) {
        for conn_id in 0..self.conns.end() {
            let Some(conn) = self.conns.get_mut(conn_id) else {
                continue;
            };
            if conn.write.regions.contains(&id) {
                let ack = core::mem::take(&mut conn.envelope.ack);
                conn.write.refusal = (answer_to_write(ack), Reason::Key);
                conn.refuse_rest();
                let spoken = conn.extensions.contains(Extensions::REFUSE);
                self.release_write(conn_id);
                if !spoken {
                    self.break_conn(conn_id, Errno::EKEYREJECTED);
                }
            }
            let Some(conn) = self.conns.get(conn_id) else {
                continue;
            };
            let answers = (0..conn.dones.len())
                .filter_map(|index| conn.dones.get(index))
                .filter(|done| done.info.flags.contains(Flags::REMOTE_READ))
                .filter_map(|done| self.responses.get(u32::try_from(done.info.context).ok()?))
                .any(|response| response.regions.contains(&id));
            if answers {
                self.break_conn(conn_id, Errno::ECANCELED);
            }
        }
    }

    /// The memory that the segments name, counted as used.
    fn resolve(
        &mut self,
        remote: &RmaIovs,
        access: Access,
    ) -> core::result::Result<(Iov<B>, Regions), (RmaIov, Reason)> {
        let mut parts = [B::EMPTY; MAX_RMA as usize];
        let mut regions = NO_REGIONS;
        let places = parts.iter_mut().zip(&mut regions);
        for (iov, (part, region)) in remote.as_slice().iter().zip(places) {
            (*part, *region) = self
                .regions
                .resolve(iov, access)
                .map_err(|denied| (*iov, denied.into()))?;
        }
        let count = usize::from(remote.count());
        let Ok(memory) = Iov::new(parts.get(..count).unwrap_or_default()) else {
            let first = remote.as_slice().first().copied().unwrap_or_default();
            return Err((first, Reason::Bounds));
        };
        for id in regions {
            if let Some(mr) = self.regions.get_mut(id) {
                mr.users = mr.users.saturating_add(1);
            }
        }
        Ok((memory, regions))
    }

    fn release(&mut self, regions: Regions) {
        for id in regions {
            if let Some(mr) = self.regions.get_mut(id) {
                mr.users = mr.users.saturating_sub(1);
            }
        }
    }

    /// A peer writes.
    pub(super) fn start_write(&mut self, conn_id: u32, header: &Header) -> Result<()> {
        let found = self.resolve(&header.rma, Access::WRITE);
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        conn.envelope = one_sided(header, conn.config.src);
        let target = match found {
            Ok((iov, regions)) => {
                conn.write = Arriving {
                    iov,
                    regions,
                    ..Arriving::NOTHING
                };
                Target::Write
            }
            Err((iov, reason)) => {
                let ack = core::mem::take(&mut conn.envelope.ack);
                conn.write.refusal = (answer_to_write(ack), reason);
                let spoken = conn.extensions.contains(Extensions::REFUSE);
                self.note_refusal(conn_id, RmaKind::Write, iov, reason);
                if !spoken {
                    return Err(reason.errno());
                }
                Target::Refused
            }
        };
        self.start_payload(conn_id, target, None);
        Ok(())
    }

    fn note_refusal(&mut self, conn: u32, kind: RmaKind, iov: RmaIov, reason: Reason) {
        if self.refusals.len() < MAX_REFUSALS {
            // Only a line in the log is lost.
            let _ = self.refusals.push(Refusal {
                conn,
                kind,
                iov,
                reason,
            });
        }
    }

    /// An operation of a peer that was refused, to be told to the target's user. Not all of
    /// them, if there are many; those of a connection are gone when that is closed.
    pub fn pop_refusal(&mut self) -> Option<Refusal> {
        self.refusals.pop()
    }

    pub(super) fn finish_refused(&mut self, conn_id: u32) {
        if let Some((answer, reason)) = self.conns.get(conn_id).map(|conn| conn.write.refusal) {
            self.refuse(conn_id, answer, reason);
        }
    }

    fn refuse(&mut self, conn_id: u32, answer: Answer, reason: Reason) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let mut bytes = [0; BASE_LEN];
        let queued = Header::refuse(answer, reason)
            .emit(conn.order, &mut bytes)
            .map_err(|e| e.errno())
            .and_then(|_| conn.queue_control(bytes));
        self.mark_output(conn_id);
        if let Err(error) = queued {
            self.break_conn(conn_id, error);
        }
    }

    /// A peer's write is in place.
    pub(super) fn finish_write(&mut self, conn_id: u32) {
        let Self {
            conns,
            eps,
            cqs,
            counters,
            regions,
            ..
        } = self;
        let Some(conn) = conns.get_mut(conn_id) else {
            return;
        };
        let written = core::mem::replace(&mut conn.write.regions, NO_REGIONS);
        let envelope = conn.envelope;
        let mut before = NIL;
        for id in written {
            let Some(mr) = regions.get_mut(id) else {
                continue;
            };
            mr.users = mr.users.saturating_sub(1);
            // Once for each operation: segments of one region are mostly neighbours.
            if id != before
                && let Some(counter) = counters.get_mut(mr.counter)
            {
                counter.success(envelope.len);
            }
            before = id;
        }
        let Some(ep) = eps.get(conn.config.ep) else {
            return;
        };
        if let Some(counter) = counters.get_mut(ep.config.remote_write_counter) {
            counter.success(envelope.len);
        }
        if let Some(data) = envelope.data
            && let Some(cq) = cqs.get_mut(ep.config.rx_cq)
        {
            let flags = Flags::RMA | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
            cq.push(Completion {
                flags,
                len: usize::try_from(envelope.len).unwrap_or(usize::MAX),
                data,
                src: if ep.config.source {
                    envelope.src
                } else {
                    FiAddr::NOTAVAIL
                },
                ..NO_COMPLETION
            });
        }
    }

    /// A write that was arriving will not come whole.
    pub(super) fn release_write(&mut self, conn_id: u32) {
        if let Some(conn) = self.conns.get_mut(conn_id) {
            let regions = core::mem::replace(&mut conn.write.regions, NO_REGIONS);
            self.release(regions);
        }
    }

    /// A peer reads: queue the response.
    pub(super) fn start_response(&mut self, conn_id: u32, header: &Header) -> Result<()> {
        let conn = self.conns.get(conn_id).ok_or(Errno::ENOTCONN)?;
        if conn.owed >= MAX_OWED {
            return Err(Errno::ENOBUFS);
        }
        let spoken = conn.extensions.contains(Extensions::REFUSE);
        match self.resolve(&header.rma, Access::READ) {
            Ok((memory, regions)) => {
                let queued = self.respond(conn_id, &memory, regions);
                if queued.is_err() {
                    self.release(regions);
                }
                queued
            }
            Err((iov, reason)) => {
                self.note_refusal(conn_id, RmaKind::Read, iov, reason);
                if !spoken {
                    return Err(reason.errno());
                }
                self.queue_refusal(conn_id, reason)
            }
        }
    }

    fn respond(&mut self, conn_id: u32, memory: &Iov<B>, regions: Regions) -> Result<()> {
        let Self {
            conns, responses, ..
        } = self;
        let conn = conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let mut bytes = [0; BASE_LEN];
        Header::new(Op::ReadRsp, memory.len())
            .emit(conn.order, &mut bytes)
            .map_err(|e| e.errno())?;
        let id = responses.insert(Response { regions })?;
        let queued = conn.queue_data(bytes, memory).and_then(|()| {
            let info = TxInfo {
                context: id as Context,
                flags: Flags::RMA.union(Flags::REMOTE_READ),
                completion: false,
                ack: false,
                len: memory.len(),
            };
            let end = conn.queued;
            conn.dones.push(TxDone { end, info })
        });
        if let Err(error) = queued {
            responses.remove(id);
            return Err(error);
        }
        conn.owed = conn.owed.saturating_add(1);
        self.mark_output(conn_id);
        Ok(())
    }

    /// Refuses a read in its place among the responses: they have no numbers.
    fn queue_refusal(&mut self, conn_id: u32, reason: Reason) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let mut bytes = [0; BASE_LEN];
        Header::refuse(Answer::Response, reason)
            .emit(conn.order, &mut bytes)
            .map_err(|e| e.errno())?;
        conn.queue_data(bytes, &Iov::EMPTY)?;
        self.mark_output(conn_id);
        Ok(())
    }

    /// A response has left whole.
    fn finish_response(&mut self, conn_id: u32, info: &TxInfo) {
        self.release_response(conn_id, info.context);
        let Self {
            conns,
            eps,
            counters,
            ..
        } = self;
        let config = conns
            .get(conn_id)
            .and_then(|conn| Some(&eps.get(conn.config.ep)?.config));
        if let Some(counter) = config.and_then(|c| counters.get_mut(c.remote_read_counter)) {
            counter.success(info.len);
        }
    }

    pub(super) fn release_response(&mut self, conn_id: u32, id: Context) {
        let response = u32::try_from(id)
            .ok()
            .and_then(|id| self.responses.remove(id));
        let Some(response) = response else { return };
        self.release(response.regions);
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.owed = conn.owed.saturating_sub(1);
        }
    }
}

/// What is known of a one-sided operation, in the terms of a message.
const fn one_sided(header: &Header, src: FiAddr) -> Envelope {
    Envelope {
        tag: None,
        src,
        data: header.cq_data,
        len: header.payload_len,
        ack: header.flags.wants_ack(),
    }
}

const fn answer_to_write(ack: bool) -> Answer {
    if ack { Answer::Ack } else { Answer::None }
}
