//! Posting sends and receives: the way of a message from the caller to the link.

use ripstop_core::provider::{RecvKind, SendKind};
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, CqId, EpId, RecvId, SlotId, SrxId, WorkId};
use ripstop_engine::matching::{Recv, Want};
use ripstop_engine::stream::{CopyOut, RecvFlags, Replayed, SEND_HEADER, Send, SendPlan};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, Errno, FiAddr, Flags, Result};

use crate::conn::rdm::Named;
use crate::state::{EpState, State};
use crate::transport::Transport;

/// Flags that ask for the peer's acknowledgement.
pub(crate) const ACKED: Flags = Flags::TRANSMIT_COMPLETE
    .union(Flags::DELIVERY_COMPLETE)
    .union(Flags::COMMIT_COMPLETE);

/// Flags that make more of a receive than one message into one buffer.
pub(crate) const SPECIAL: Flags = Flags::PEEK
    .union(Flags::CLAIM)
    .union(Flags::DISCARD)
    .union(Flags::MULTI_RECV);

/// Messages that are not copied are coalesced up to this many bytes, see [`State::in_burst`].
const MAX_COALESCED_UNCOPIED: u64 = 128 * 1024;

/// Most bytes of one connection that are coalesced.
const MAX_COALESCED_BYTES: u64 = 384 * 1024;

/// The longest header of a message.
const MAX_HEADER: usize = ripstop_wire::xnet::base::MAX_HEADER;

impl<T: Transport> State<T> {
    /// Posts a message. Of one that [`State::send_now`] began, `written` bytes are with the
    /// kernel.
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_tsendmsg; a struct would be built and taken apart"
    )]
    pub(crate) fn send(
        &mut self,
        ep: EpId,
        kind: SendKind,
        iov: &Iov<UserBuf>,
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
        written: usize,
    ) -> Result<()> {
        let (send, given) = self.message(ep, kind, iov, data, context, flags)?;
        self.fence(ep, dest, given)?;
        self.post(ep, dest, &send, given.contains(Flags::MORE), written)
    }

    /// Posts a message that [`State::message`] has made.
    pub(crate) fn send_message(
        &mut self,
        ep: EpId,
        dest: FiAddr,
        send: &Send<UserBuf>,
        given: Flags,
    ) -> Result<()> {
        self.fence(ep, dest, given)?;
        self.post(ep, dest, send, given.contains(Flags::MORE), 0)
    }

    /// A message as the engine takes it, and its flags.
    #[inline(always)]
    pub(crate) fn message(
        &self,
        ep: EpId,
        kind: SendKind,
        iov: &Iov<UserBuf>,
        data: Option<u64>,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<(Send<UserBuf>, Flags)> {
        let Some(Some(state)) = self.eps.get(ep.index()) else {
            return Err(Errno::EOPBADSTATE);
        };
        if !state.has_tx {
            return Err(state.no_send());
        }
        let given = flags.unwrap_or(state.tx_flags);
        if iov.len() > state.max_msg_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let inject = given.contains(Flags::INJECT);
        if inject && iov.len() > state.inject_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let send = Send {
            tag: match kind {
                SendKind::Msg => None,
                SendKind::Tagged(tag) => Some(tag),
            },
            data,
            iov: *iov,
            context,
            completion: !state.tx_selective || given.contains(Flags::COMPLETION),
            inject,
            ack: given.intersects(ACKED),
            work: false,
        };
        Ok((send, given))
    }

    #[inline]
    pub(crate) fn post(
        &mut self,
        ep: EpId,
        dest: FiAddr,
        send: &Send<UserBuf>,
        more: bool,
        written: usize,
    ) -> Result<()> {
        let Some(Some(state)) = self.eps.get(ep.index()) else {
            return Err(Errno::EOPBADSTATE);
        };
        let silent = send.inject && !send.completion;
        let id = match state.route(dest) {
            Some(id) => id,
            None if silent => self.open_silent_route(ep, dest)?,
            None => self.open_route(ep, dest)?,
        };
        if written > 0 {
            return self.post_begun(id, send, written);
        }
        if silent {
            self.admit_silent(id)?;
        }
        let plan = match self.engine.send(id, send) {
            Err(Errno::EAGAIN) => {
                // The queue may be full only because writing was put off.
                self.flush_dirty();
                match self.engine.send(id, send) {
                    Err(Errno::EAGAIN) => {
                        self.make_room();
                        return Err(Errno::EAGAIN);
                    }
                    plan => plan?,
                }
            }
            plan => plan?,
        };
        self.carry_out(id, send, &plan, more && !silent)?;
        if silent {
            self.hand_over(id);
        }
        Ok(())
    }

    /// Queues a message of which the kernel took the front only.
    #[cold]
    fn post_begun(&mut self, id: ConnId, send: &Send<UserBuf>, written: usize) -> Result<()> {
        let plan = match self.engine.send_partly_written(id, send) {
            Ok(plan) => plan,
            Err(error) => {
                self.lost(id, error);
                return Err(error);
            }
        };
        self.append(id, send, &plan)?;
        let buffered = self.engine.sent(id, written);
        if let Some(connection) = self.connection(id) {
            connection.tx_buffer.advance(buffered);
        }
        self.flush(id);
        if send.inject && !send.completion {
            self.hand_over(id);
        }
        Ok(())
    }

    #[inline]
    fn carry_out(
        &mut self,
        id: ConnId,
        send: &Send<UserBuf>,
        plan: &SendPlan,
        more: bool,
    ) -> Result<()> {
        let inline = match plan {
            SendPlan::Append { inline, .. } => *inline,
            SendPlan::Defer { slot } => return self.defer(id, [&send.iov, &Iov::EMPTY], *slot),
        };
        self.append(id, send, plan)?;
        // What is not copied goes out with others as well, as long as it is not much.
        let short = inline || self.is_short(id, send.iov.len());
        self.write_out(id, short, more);
        Ok(())
    }

    /// Whether a message that is not copied may wait behind others of its connection.
    #[inline]
    fn is_short(&self, id: ConnId, len: u64) -> bool {
        let conn = self.engine.conn(id);
        len <= MAX_COALESCED_UNCOPIED
            && conn.is_some_and(|conn| conn.unsent() <= MAX_COALESCED_BYTES)
    }

    /// Puts what a plan says into the transmit buffer.
    #[inline]
    fn append(&mut self, id: ConnId, send: &Send<UserBuf>, plan: &SendPlan) -> Result<()> {
        let SendPlan::Append {
            header,
            header_len,
            inline,
        } = plan
        else {
            return Ok(());
        };
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return Err(Errno::ENOTCONN);
        };
        let payload = if *inline { send.iov.len() as usize } else { 0 };
        if let Err(error) = connection.tx_buffer.reserve(SEND_HEADER + payload) {
            self.lost(id, error);
            // The message is queued, so its loss is reported once: in the completion queue,
            // or here when it has no entry there.
            let silent = send.inject && !send.completion;
            return if silent { Err(error) } else { Ok(()) };
        }
        connection
            .tx_buffer
            .push_header(header, usize::from(*header_len));
        if *inline {
            connection.tx_buffer.push_user(send.iov.segments());
        }
        Ok(())
    }

    /// Writes what a connection has, now that there is more of it, or puts that off.
    #[inline]
    pub(crate) fn write_out(&mut self, id: ConnId, small: bool, more: bool) {
        // Whoever sleeps makes no progress that would write what is put off.
        let asleep = self.unattended || !self.waiters.is_empty();
        let wait = more || (self.burst && small && !asleep && self.in_burst(Some(id)));
        let round = self.begin_burst();
        if let Some(connection) = self.connection(id) {
            connection.round = round;
        }
        match self.connection(id) {
            // The kernel said no; it will say when.
            Some(connection) if connection.interest.write => return,
            _ if wait => return self.put_off(id),
            _ => self.flush(id),
        }
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
    }

    /// Keeps a message until its connection is up, with copies of both parts of its payload where
    /// there is a slot for them. A connected endpoint sends none before.
    #[cold]
    pub(crate) fn defer(
        &mut self,
        id: ConnId,
        [first, second]: [&Iov<UserBuf>; 2],
        slot: Option<SlotId>,
    ) -> Result<()> {
        let ep = self.connection(id).map(|connection| connection.ep);
        let is_msg = ep.and_then(|ep| self.ep(ep)).is_some_and(|ep| ep.is_msg);
        if is_msg && !self.engine.conn(id).is_some_and(|conn| conn.is_up()) {
            self.engine.take_back(id);
            return Err(Errno::ENOTCONN);
        }
        if let Some(slot) = slot
            && let Err(error) = self.fill_slot(slot, [first.segments(), second.segments()])
        {
            self.engine.take_back(id);
            return Err(error);
        }
        if self.engine.conn(id).is_some_and(|conn| conn.is_up()) {
            // Its turn may have come already.
            self.flush(id);
        }
        self.make_room();
        Ok(())
    }

    /// Makes progress for a caller who finds no room, unless it is progress that posts.
    #[cold]
    pub(crate) fn make_room(&mut self) {
        if !self.works.busy {
            self.progress();
        }
    }

    /// Sends the next message that waited for its connection; returns whether there was one
    /// and it could be.
    #[cold]
    pub(crate) fn replay(&mut self, id: ConnId) -> bool {
        let mut header = [0; MAX_HEADER];
        let Ok(Some(replayed)) = self.engine.replay(id, &mut header) else {
            return false;
        };
        let Replayed {
            deferred,
            header_len,
            inline,
        } = replayed;
        let (iov, behind) = (deferred.posted.iov(), deferred.posted.more());
        if let Some((slot, at, len)) = deferred.posted.kept() {
            let header = header.get(..header_len).unwrap_or_default();
            let payload = if inline { len } else { 0 };
            let buffered = self.append_coll(id, header, payload, iov, Some((slot, at)));
            if let Err(error) = buffered {
                self.lost(id, error);
            }
            return buffered.is_ok();
        }
        let payload = match inline {
            true => iov.len() as usize + behind.iter().map(|buf| buf.len()).sum::<usize>(),
            false => 0,
        };
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return false;
        };
        if let Err(error) = connection.tx_buffer.reserve(MAX_HEADER + payload) {
            self.lost(id, error);
            return false;
        }
        connection
            .tx_buffer
            .push(header.get(..header_len).unwrap_or_default());
        match deferred.slot {
            Some(slot) if inline => {
                let mut buffer = std::mem::take(&mut connection.tx_buffer);
                buffer.push(self.slot(slot));
                if let Some(connection) = self.connection(id) {
                    connection.tx_buffer = buffer;
                }
            }
            None if inline => {
                connection.tx_buffer.push_user(iov.segments());
                connection.tx_buffer.push_user(behind);
            }
            _ => {}
        }
        self.engine.free_slot(deferred.slot);
        true
    }

    /// Posts a receive on an endpoint.
    #[inline(never)]
    pub(crate) fn recv(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        iov: Iov<UserBuf>,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        self.recv_for(ep, kind, iov, src, context, flags, None)
    }

    /// As [`State::recv`], for deferred work if its id is given.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_trecvmsg; a struct would be built and taken apart"
    )]
    pub(crate) fn recv_for(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        iov: Iov<UserBuf>,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
        work: Option<WorkId>,
    ) -> Result<()> {
        let Some(Some(state)) = self.eps.get(ep.index()) else {
            return Err(Errno::EOPBADSTATE);
        };
        let given = flags.unwrap_or(state.rx_flags);
        let completion = !state.rx_selective || given.contains(Flags::COMPLETION);
        let src = match &state.rdm {
            Some(rdm) => Named::source(src, rdm.ctx_bits),
            None => src,
        };
        let mut recv = new_recv(kind, iov, src, context);
        recv.completion = completion;
        if let Some(work) = work {
            recv = recv.for_work(work);
        }
        if !state.has_rx {
            return self.recv_late(ep, recv, given);
        }
        let srx = state.srx;
        if given.intersects(SPECIAL | Flags::TRIGGER) {
            return self.recv_special(ep, srx, recv, given);
        }
        self.post_recv(srx, recv)
    }

    /// Receives what had arrived whole before the connection ended; nothing else will come.
    #[cold]
    #[inline(never)]
    fn recv_late(&mut self, ep: EpId, recv: Recv<UserBuf>, flags: Flags) -> Result<()> {
        let Some(state) = self.ep(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        if !state.msg.ended {
            return Err(Errno::EOPBADSTATE);
        }
        let (srx, context) = (state.srx, recv.context);
        if state.shared_srx || flags.intersects(SPECIAL) {
            return Err(Errno::ENOTCONN);
        }
        self.post_recv(srx, recv)?;
        // The end of the connection has left no other receive there. A program may not know of
        // the end yet: where nothing had arrived, the receive fails as those do that were posted
        // before it.
        let rx_cq = self.engine.ep(ep).and_then(|config| config.rx_cq);
        let ended = self.engine.end_recv(srx, rx_cq, context, Errno::ENOTCONN);
        if ended.is_ok() {
            self.after();
        }
        Ok(())
    }

    /// Posts a receive on a receive context.
    #[inline]
    pub(crate) fn post_recv(&mut self, srx: SrxId, recv: Recv<UserBuf>) -> Result<()> {
        if let Some(id) = self.engine.post_recv(srx, recv)? {
            self.match_waiting(srx, id);
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn match_waiting(&mut self, srx: SrxId, recv: RecvId) {
        // Nobody else takes a message from between those of this receive.
        let busy = std::mem::replace(&mut self.works.busy, true);
        while let Some(copy) = self.engine.next_match(srx, recv) {
            self.copy_kept(&copy);
            self.after();
        }
        self.works.busy = busy;
        self.after();
    }

    pub(crate) fn copy_kept(&mut self, copy: &CopyOut<UserBuf>) {
        let kept = self.slot(copy.slot);
        let len = (copy.len as usize).min(kept.len());
        crate::state::place::copy_user(&copy.iov, copy.at, len as u64, &kept[..len]);
    }

    #[cold]
    fn recv_special(
        &mut self,
        ep: EpId,
        srx: SrxId,
        recv: Recv<UserBuf>,
        flags: Flags,
    ) -> Result<()> {
        let config = *self.engine.ep(ep).ok_or(Errno::EOPBADSTATE)?;
        self.recv_shared(srx, config.rx_cq, config.source, recv, flags)
    }

    /// Posts a receive on a receive context, or looks at its unexpected messages; `cq` is
    /// where peeks and discards are reported.
    pub(crate) fn recv_shared(
        &mut self,
        srx: SrxId,
        cq: Option<CqId>,
        source: bool,
        mut recv: Recv<UserBuf>,
        flags: Flags,
    ) -> Result<()> {
        if flags.contains(Flags::TRIGGER) {
            // As for a send.
            return Err(Errno::EINVAL);
        }
        let asked = RecvFlags {
            peek: flags.contains(Flags::PEEK),
            claim: flags.contains(Flags::CLAIM),
            discard: flags.contains(Flags::DISCARD),
        };
        if asked.peek {
            // It says what has come so far. A program that also looks elsewhere, first there and
            // then here, must not find here what came after it looked there.
            let found = self
                .engine
                .peek_in(srx, cq, source, recv.want, recv.context, asked)?;
            if !found {
                self.make_room();
            }
        } else if asked.claim {
            if let Some(copy) = self.engine.claim_in(srx, cq, source, recv, asked)? {
                self.copy_kept(&copy);
            }
        } else if asked.discard {
            return Err(Errno::EINVAL);
        } else {
            if flags.contains(Flags::MULTI_RECV) {
                if recv.want.tag.is_some() || recv.iov.segments().len() > 1 {
                    return Err(Errno::EINVAL);
                }
                recv.multi = true;
            }
            return self.post_recv(srx, recv);
        }
        self.after();
        Ok(())
    }
}

/// A receive as the engine takes it.
#[inline]
pub(crate) fn new_recv(
    kind: RecvKind,
    iov: Iov<UserBuf>,
    src: FiAddr,
    context: Context,
) -> Recv<UserBuf> {
    let tag = match kind {
        RecvKind::Msg => None,
        RecvKind::Tagged { tag, ignore } => Some((tag, ignore)),
    };
    Recv::new(iov, Want { tag, src }, context)
}

impl<T: Transport> EpState<T> {
    /// The connection has ended: no message will come any more.
    pub(crate) fn end(&mut self) {
        self.msg.ended = true;
        self.has_rx = false;
        self.fast.plain_recv = false;
    }

    /// Whether it has a connection or can make one.
    pub(crate) fn connection(&self) -> Option<ConnId> {
        self.routes
            .first()
            .copied()
            .flatten()
            .filter(|_| self.is_msg)
    }
}

const _: () = assert!(MAX_HEADER < crate::state::tx_buffer::TX_BUFFER);
