//! The target of reads and writes: regions, checks, responses and refusals.

use ripstop_types::{AtomicKind, Completion, Context, Errno, Flags, Result, RmaIov};
use ripstop_wire::xnet::base::{Answer, BASE_LEN, BaseFlags, Header, Op, Reason, RmaIovs};
use ripstop_wire::xnet::cm::Extensions;

use crate::id::{ConnId, MrId, ResponseId};
use crate::mr::{Access, Mr};
use crate::stream::arriving::{RxState, Target};
use crate::stream::conn::Conn;
use crate::stream::engine::Engine;
use crate::stream::records::{Refusal, Response};
use crate::stream::request::{NO_REGIONS, Regions, RmaKind, TxDone, TxInfo};
use crate::stream::rma::{MAX_OWED, MAX_REFUSALS, one_sided};
use crate::{Buffer, Iov, Reached};

impl<B: Buffer> Engine<B> {
    /// Lets peers reach memory; returns the region's id.
    ///
    /// # Errors
    /// [`Errno::ENOKEY`] when the key is in use, [`Errno::ENOMEM`].
    pub fn open_mr(&mut self, mr: Mr<B>) -> Result<MrId> {
        self.regions.insert(mr)
    }

    /// A region, to be changed. Its key is not for changing.
    pub fn mr_mut(&mut self, id: MrId) -> Option<&mut Mr<B>> {
        self.regions.get_mut(id)
    }

    /// The region that has a key, and its id.
    #[must_use]
    pub fn mr_named(&self, key: u64) -> Option<(MrId, &Mr<B>)> {
        self.regions.named(key)
    }

    /// Whether operations of peers use a region's memory now.
    #[must_use]
    pub fn mr_is_busy(&self, id: MrId) -> bool {
        self.regions.get(id).is_some_and(|mr| mr.users > 0)
    }

    /// The connections there are.
    pub fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.conns.ids()
    }

    /// Takes a region away from peers. A write that is arriving there is refused from here
    /// on; a connection on which a response from there waits breaks. Wait until
    /// [`Engine::mr_is_busy`] says no, to lose nothing. Handle [`Engine::pop_broken`] before
    /// the memory is given back.
    pub fn close_mr(&mut self, id: MrId) {
        if self.mr_is_busy(id) {
            self.evict(id);
        }
        self.regions.remove(id);
    }

    #[cold]
    fn evict(&mut self, id: MrId) {
        for conn_id in self.conns.every_id() {
            let Some(conn) = self.conns.get_mut(conn_id) else {
                continue;
            };
            if conn.write.regions.contains(&Some(id)) {
                conn.envelope.ack = false;
                conn.write.refusal.1 = Reason::Key;
                conn.refuse_rest();
                let spoken = conn.may_refuse();
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
                .filter_map(|done| self.responses.find(response_of(done.info.context)))
                .any(|response| response.regions.contains(&Some(id)));
            if answers {
                self.break_conn(conn_id, Errno::ECANCELED);
            }
        }
    }

    /// The memory that the segments name, counted as used.
    pub(super) fn resolve(
        &mut self,
        remote: &RmaIovs,
        access: Access,
    ) -> core::result::Result<(Reached<B>, Regions), (RmaIov, Reason)> {
        let mut memory = Reached::EMPTY;
        let mut regions = NO_REGIONS;
        for (iov, region) in remote.as_slice().iter().zip(&mut regions) {
            *region = self
                .regions
                .resolve(iov, access, &mut memory)
                .map_err(|denied| (*iov, denied.into()))?;
        }
        for id in regions.into_iter().flatten() {
            if let Some(mr) = self.regions.get_mut(id) {
                mr.users = mr.users.saturating_add(1);
            }
        }
        Ok((memory, regions))
    }

    pub(super) fn release(&mut self, regions: Regions) {
        for id in regions.into_iter().flatten() {
            if let Some(mr) = self.regions.get_mut(id) {
                mr.users = mr.users.saturating_sub(1);
            }
        }
    }

    /// A peer writes.
    pub(super) fn start_write(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let found = self.resolve(&header.rma, Access::WRITE);
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        conn.envelope = one_sided(header, conn.config.src);
        let answer = if conn.envelope.ack {
            Answer::Ack
        } else {
            Answer::None
        };
        conn.write.refusal = (answer, Reason::Key);
        let target = match found {
            Ok((iov, regions)) => {
                conn.write.iov = iov;
                conn.write.regions = regions;
                conn.write.atomic = None;
                conn.write.commit = header.flags.contains(BaseFlags::COMMIT_COMPLETE);
                Target::Write
            }
            Err((iov, reason)) => {
                conn.envelope.ack = false;
                conn.write.refusal.1 = reason;
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

    /// A peer's device has written memory of this side, and says so: all of it is there.
    pub(super) fn note_written(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        conn.envelope = one_sided(header, conn.config.src);
        conn.rx = RxState::Header;
        self.finish_write(conn_id, None);
        Ok(())
    }

    pub(super) fn note_refusal(
        &mut self,
        conn: ConnId,
        kind: RmaKind,
        iov: RmaIov,
        reason: Reason,
    ) {
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

    pub(super) fn finish_refused(&mut self, conn_id: ConnId) {
        let Some((answer, reason)) = self.conns.get(conn_id).map(|conn| conn.write.refusal) else {
            return;
        };
        if self.answer_packet_atomic(conn_id, Err(reason)) {
            return;
        }
        if answer != Answer::Response {
            return self.refuse(conn_id, answer, reason);
        }
        if let Err(error) = self.queue_refusal(conn_id, reason) {
            self.break_conn(conn_id, error);
        }
    }

    /// Whether the write that has arrived is yet to be made durable.
    pub(super) fn is_to_commit(&self, conn_id: ConnId) -> bool {
        self.conns
            .get(conn_id)
            .is_some_and(|conn| conn.write.commit)
    }

    fn refuse(&mut self, conn_id: ConnId, answer: Answer, reason: Reason) {
        self.send_control(conn_id, &Header::refuse(answer, reason));
    }

    /// A peer's write is in place, or its atomic is done.
    pub(super) fn finish_write(&mut self, conn_id: ConnId, atomic: Option<AtomicKind>) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let written = core::mem::replace(&mut conn.write.regions, NO_REGIONS);
        let envelope = conn.envelope;
        conn.write.commit = false;
        let len = match atomic {
            None => envelope.len,
            Some(_) => conn.write.iov.len(),
        };
        let mut before = None;
        for id in written.into_iter().flatten() {
            let Some(mr) = self.regions.get_mut(id) else {
                continue;
            };
            mr.users = mr.users.saturating_sub(1);
            // Once for each operation: segments of one region are mostly neighbours.
            if before != Some(id)
                && let Some(counter) = self.counters.find_mut(mr.counter)
            {
                counter.success(len);
            }
            before = Some(id);
        }
        let Some(ep) = self.eps.get(conn.config.ep) else {
            return;
        };
        // What is fetched counts as a read, when it has left.
        if matches!(atomic, None | Some(AtomicKind::Plain))
            && let Some(counter) = self.counters.find_mut(ep.config.remote_write_counter)
        {
            counter.success(len);
        }
        if let Some(data) = envelope.data
            && let Some(cq) = self.cqs.at_mut(ep.rx_cq)
        {
            let what = match atomic {
                None => Flags::RMA,
                Some(_) => Flags::ATOMIC,
            };
            cq.push(Completion {
                flags: what | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA,
                len: usize::try_from(len).unwrap_or(usize::MAX),
                data,
                src: ep.config.reported(&self.ids, envelope.src),
                ..Completion::BLANK
            });
        }
    }

    /// A write that was arriving will not come whole.
    pub(super) fn release_write(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.get_mut(conn_id) {
            let regions = core::mem::replace(&mut conn.write.regions, NO_REGIONS);
            conn.write.commit = false;
            let atomic = conn.write.atomic.take();
            let carried_out = conn.write.carried_out.take();
            self.release(regions);
            if let Some((_, fetched)) = carried_out {
                self.free_slot(fetched);
            }
            if let Some(atomic) = atomic {
                self.free_slot(atomic.slot);
            }
        }
    }

    /// A peer reads: queue the response.
    pub(super) fn start_response(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        if let Some(answered) = self.respond_announced(conn_id, header) {
            return answered;
        }
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

    fn respond(&mut self, conn_id: ConnId, memory: &Reached<B>, regions: Regions) -> Result<()> {
        let response = Response {
            regions,
            slot: None,
            fetched: 0,
        };
        self.queue_response(conn_id, response, memory.len(), |conn, header| {
            conn.queue_data(header, memory)
        })
    }

    /// Queues the response to a read or fetching atomic: its header and, by `queue`, `len` bytes of
    /// payload. Nothing is left of it if that fails.
    pub(super) fn queue_response(
        &mut self,
        conn_id: ConnId,
        response: Response,
        len: u64,
        queue: impl FnOnce(&mut Conn<B>, [u8; BASE_LEN]) -> Result<()>,
    ) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let header = conn.base_header(&Header::new(Op::ReadRsp, len))?;
        let fetched = response.fetched;
        let id = self.responses.insert(response)?;
        let queued = queue(conn, header).and_then(|()| {
            let info = TxInfo {
                context: id.index(),
                flags: Flags::RMA.union(Flags::REMOTE_READ),
                completion: false,
                ack: false,
                len,
            };
            let end = conn.queued;
            conn.dones.push(TxDone { end, info })
        });
        if let Err(error) = queued {
            self.responses.remove(id);
            return Err(error);
        }
        conn.owed = conn.owed.saturating_add(1);
        conn.fetched = conn.fetched.saturating_add(fetched);
        self.mark_output(conn_id);
        Ok(())
    }

    /// Refuses a read in its place among the responses: they have no numbers.
    fn queue_refusal(&mut self, conn_id: ConnId, reason: Reason) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let header = conn.base_header(&Header::refuse(Answer::Response, reason))?;
        conn.queue_data(header, &Iov::<B>::EMPTY)?;
        self.mark_output(conn_id);
        Ok(())
    }

    /// A response has left whole.
    pub(super) fn finish_response(&mut self, conn_id: ConnId, info: &TxInfo) {
        self.release_response(conn_id, info.context);
        let config = self
            .conns
            .get(conn_id)
            .and_then(|conn| Some(&self.eps.get(conn.config.ep)?.config));
        if let Some(counter) = config.and_then(|c| self.counters.find_mut(c.remote_read_counter)) {
            counter.success(info.len);
        }
    }

    pub(super) fn release_response(&mut self, conn_id: ConnId, id: Context) {
        let response = response_of(id).and_then(|id| self.responses.remove(id));
        let Some(response) = response else { return };
        self.release(response.regions);
        self.free_slot(response.slot);
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.owed = conn.owed.saturating_sub(1);
            conn.fetched = conn.fetched.saturating_sub(response.fetched);
        }
    }
}

/// The response with this context.
fn response_of(context: Context) -> Option<ResponseId> {
    ResponseId::new(u32::try_from(context).ok()?)
}
