//! Posting receives, looking at unexpected messages, and finishing receives.

use ripstop_types::{Completion, Context, Errno, FiAddr, Flags, Result};

use crate::cq::ErrorEntry;
use crate::id::{
    ConnId, CounterId, CqId, EpId, MessageId, RecvId, SlotId, SrxId, UserIdsId, WorkId,
};
use crate::ids::UserIds;
use crate::matching::{Envelope, Matcher, Recv, Unexpected, Want};
use crate::pool::Pool;
use crate::stream::arriving::Target;
use crate::stream::engine::{Engine, EpConfig, error_entry, named_error};
use crate::stream::records::Origin;
use crate::{Buffer, Iov};

/// Payload the driver copies from a slot to user memory, at once.
#[derive(Clone, Copy, Debug)]
pub struct CopyOut<B> {
    /// The slot.
    pub slot: SlotId,
    /// User memory.
    pub iov: Iov<B>,
    /// Offset in the user memory.
    pub at: u64,
    /// How many bytes, from the front of the slot.
    pub len: u64,
}

/// What a receive call asks for besides a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvFlags {
    /// Report a message without receiving it.
    pub peek: bool,
    /// With `peek`: set the message aside. Without: receive the one set aside.
    pub claim: bool,
    /// Drop the message.
    pub discard: bool,
}

impl<B: Buffer> Engine<B> {
    /// Posts a receive. If it returns an id, call [`Engine::next_match`] with it until that
    /// gives `None`: messages may be waiting for it.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    #[inline]
    pub fn post_recv(&mut self, srx: SrxId, mut recv: Recv<B>) -> Result<Option<RecvId>> {
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        if !matcher.directed {
            recv.want.src = FiAddr::UNSPEC;
        }
        if matcher.nothing_unexpected() {
            matcher.post(recv)?;
            return Ok(None);
        }
        matcher.hold(recv).map(Some)
    }

    /// Posts a receive of one segment where no message waits for it; `false` says that
    /// [`Engine::post_recv`] is the way.
    ///
    /// # Errors
    /// As for [`Engine::post_recv`].
    #[inline(always)]
    pub fn post_one(
        &mut self,
        srx: SrxId,
        segment: B,
        mut want: Want,
        context: Context,
        completion: bool,
    ) -> Result<bool> {
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        if !matcher.nothing_unexpected() {
            return Ok(false);
        }
        if !matcher.directed {
            want.src = FiAddr::UNSPEC;
        }
        let mut recv = Recv::new(Iov::one(segment), want, context);
        recv.completion = completion;
        matcher.post(recv)?;
        Ok(true)
    }

    /// Gives a receive that was just posted the next message that was waiting. The driver
    /// copies what this says before it does anything else. With `None` the receive takes its
    /// place behind those posted before: only then it takes messages as they arrive, so that
    /// none overtakes one that waits.
    pub fn next_match(&mut self, srx: SrxId, recv_id: RecvId) -> Option<CopyOut<B>> {
        loop {
            let matcher = self.srxs.get_mut(srx)?;
            let recv = matcher.recv(recv_id)?;
            if recv.released || recv.is_listed() {
                return None;
            }
            let want = recv.want;
            let Some(id) = matcher.find_unexpected(&mut self.unexpected, want, None) else {
                matcher.post_held(recv_id);
                return None;
            };
            matcher.remove_unexpected(&mut self.unexpected, id);
            if let Some(recv) = matcher.recv_mut(recv_id) {
                recv.released = !recv.multi;
            }
            if let Some(copy) = self.bind(srx, recv_id, id) {
                return Some(copy);
            }
        }
    }

    /// An unexpected message, taken from its queue, has found its receive.
    pub(super) fn bind(
        &mut self,
        srx: SrxId,
        recv_id: RecvId,
        id: MessageId,
    ) -> Option<CopyOut<B>> {
        let message = *self.unexpected.get(id)?;
        let Unexpected {
            envelope,
            conn,
            ep,
            slot,
            kept,
            ..
        } = message;
        if message.parked {
            self.forget_unexpected(id);
            if let Some(conn) = conn {
                self.start_matched(conn, recv_id, message.rts);
                self.resume(conn);
            }
            return None;
        }
        let base = self.claim_space(Some(srx), recv_id, envelope.len)?;
        let iov = self.srxs.get(srx)?.recv(recv_id)?.iov;
        if let Some(rts) = message.rts {
            self.forget_unexpected(id);
            if let Some(conn) = conn {
                self.request_payload(conn, rts, Target::Recv(recv_id, base), envelope);
            }
            return None;
        }
        let room = iov.len().saturating_sub(base);
        let copy = slot.map(|slot| CopyOut {
            slot,
            iov,
            at: base,
            len: kept.min(room),
        });
        if kept < envelope.len {
            // Still arriving: the rest goes straight to the receive.
            if let Some(conn) = self.conns.find_mut(conn) {
                conn.redirect(id, Target::Recv(recv_id, base));
            }
        } else {
            let origin = Origin {
                conn,
                departed: message.departed,
            };
            self.finish_recv(ep, Some(srx), origin, recv_id, base, &envelope);
        }
        self.forget_unexpected(id);
        copy
    }

    /// Looks for an unexpected message (`FI_PEEK`), reports it as a completion of `context`,
    /// or [`Errno::ENOMSG`] as an error entry, and sets it aside or drops it as `flags` say.
    /// Returns whether there was one.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an unknown endpoint.
    pub fn peek(
        &mut self,
        ep: EpId,
        want: Want,
        context: Context,
        flags: RecvFlags,
    ) -> Result<bool> {
        let EpConfig {
            srx, rx_cq, source, ..
        } = *self.ep(ep).ok_or(Errno::EINVAL)?;
        let srx = srx.ok_or(Errno::EINVAL)?;
        self.peek_in(srx, rx_cq, source, want, context, flags)
    }

    /// As [`Engine::peek`], on a receive context; reports to the queue `rx_cq`, with the
    /// source of the message if `source` is set.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an unknown receive context.
    pub fn peek_in(
        &mut self,
        srx: SrxId,
        rx_cq: Option<CqId>,
        source: bool,
        mut want: Want,
        context: Context,
        flags: RecvFlags,
    ) -> Result<bool> {
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        if !matcher.directed {
            want.src = FiAddr::UNSPEC;
        }
        let found = matcher.find_unexpected(&mut self.unexpected, want, None);
        let Some(id) = found else {
            let entry = without_message(context, &want);
            self.push_error(rx_cq, entry, Errno::ENOMSG);
            return Ok(false);
        };
        let message = self.unexpected.get(id).ok_or(Errno::EINVAL)?;
        let envelope = message.envelope;
        let src = self.source_of(message.ep, source, envelope.src);
        if flags.discard {
            self.discard(srx, id);
        } else if flags.claim
            && let Some(message) = self.unexpected.get_mut(id)
        {
            message.claimed = Some(context);
        }
        if let Some(cq) = self.cqs.find_mut(rx_cq) {
            cq.push(completion(context, &envelope, src, envelope.len));
        }
        Ok(true)
    }

    /// Receives the message set aside by a peek with the same context (`FI_CLAIM`), or drops
    /// it (`FI_DISCARD`) and reports that.
    ///
    /// # Errors
    /// [`Errno::ENOMSG`] when none is set aside; [`Errno::ENOMEM`].
    pub fn claim(
        &mut self,
        ep: EpId,
        recv: Recv<B>,
        flags: RecvFlags,
    ) -> Result<Option<CopyOut<B>>> {
        let EpConfig {
            srx, rx_cq, source, ..
        } = *self.ep(ep).ok_or(Errno::EINVAL)?;
        let srx = srx.ok_or(Errno::EINVAL)?;
        self.claim_in(srx, rx_cq, source, recv, flags)
    }

    /// As [`Engine::claim`], on a receive context; see [`Engine::peek_in`].
    ///
    /// # Errors
    /// As for [`Engine::claim`].
    pub fn claim_in(
        &mut self,
        srx: SrxId,
        rx_cq: Option<CqId>,
        source: bool,
        recv: Recv<B>,
        flags: RecvFlags,
    ) -> Result<Option<CopyOut<B>>> {
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        let any = Want {
            src: FiAddr::UNSPEC,
            ..recv.want
        };
        let id = matcher
            .find_unexpected(&mut self.unexpected, any, Some(recv.context))
            .ok_or(Errno::ENOMSG)?;
        if flags.discard {
            let message = self.unexpected.get(id).ok_or(Errno::ENOMSG)?;
            let envelope = message.envelope;
            let src = self.source_of(message.ep, source, envelope.src);
            self.discard(srx, id);
            if let Some(cq) = self.cqs.find_mut(rx_cq) {
                cq.push(completion(recv.context, &envelope, src, envelope.len));
            }
            return Ok(None);
        }
        let held = Recv {
            released: true,
            ..recv
        };
        let recv_id = matcher.hold(held)?;
        matcher.remove_unexpected(&mut self.unexpected, id);
        Ok(self.bind(srx, recv_id, id))
    }

    pub(super) fn discard(&mut self, srx: SrxId, id: MessageId) {
        let Some(message) = self.unexpected.get(id).copied() else {
            return;
        };
        if let Some(matcher) = self.srxs.get_mut(srx) {
            matcher.remove_unexpected(&mut self.unexpected, id);
        }
        self.forget_unexpected(id);
        let Some(conn_id) = message.conn else {
            return;
        };
        if message.parked {
            self.start_payload(conn_id, Target::Discard, message.rts);
            self.resume(conn_id);
        } else if let Some(rts) = message.rts {
            self.request_payload(conn_id, rts, Target::Discard, message.envelope);
        } else if message.kept < message.envelope.len
            && let Some(conn) = self.conns.get_mut(conn_id)
        {
            conn.redirect(id, Target::Discard);
        }
    }

    /// Ends the oldest receive posted with this context, with this error.
    ///
    /// # Errors
    /// [`Errno::ENOENT`] when none is posted.
    pub fn end_recv(
        &mut self,
        srx: SrxId,
        rx_cq: Option<CqId>,
        context: Context,
        error: Errno,
    ) -> Result<()> {
        let matcher = self.srxs.get_mut(srx).ok_or(Errno::EINVAL)?;
        let id = matcher.cancel(context).ok_or(Errno::ENOENT)?;
        self.fail_posted(srx, (rx_cq, None), id, error);
        Ok(())
    }

    /// Whether a posted receive names this peer as its only source.
    #[must_use]
    pub fn waits_for(&self, ep: EpId, src: FiAddr) -> bool {
        let srx = self.ep(ep).and_then(|config| self.srxs.find(config.srx));
        src.is_specified()
            && srx.is_some_and(|matcher| matcher.any_posted(|recv| recv.want.src == src))
    }

    /// Fails all posted receives that name this peer as their only source.
    pub fn fail_directed(&mut self, ep: EpId, src: FiAddr, error: Errno) {
        let Some(config) = self.ep(ep).copied() else {
            return;
        };
        let Some(srx) = config.srx else { return };
        let to = (config.rx_cq, config.rx_counter);
        self.fail_each(srx, to, error, |recv| {
            src.is_specified() && recv.want.src == src
        });
    }

    /// Fails all posted receives of a context, and tells this queue and counter.
    pub fn fail_receives(
        &mut self,
        srx: SrxId,
        to: (Option<CqId>, Option<CounterId>),
        error: Errno,
    ) {
        self.fail_each(srx, to, error, |_| true);
    }

    /// Fails all posted receives of a context for which `wanted` holds.
    pub(super) fn fail_each(
        &mut self,
        srx: SrxId,
        to: (Option<CqId>, Option<CounterId>),
        error: Errno,
        wanted: impl Fn(&Recv<B>) -> bool,
    ) {
        let Some(matcher) = self.srxs.get_mut(srx) else {
            return;
        };
        let mut failed = matcher.split_posted(wanted);
        while let Some(id) = self.srxs.get_mut(srx).and_then(|m| m.next_of(&mut failed)) {
            self.fail_posted(srx, to, id, error);
        }
    }

    /// Fails a receive, and tells this queue and counter; what the program itself cancels is not
    /// counted.
    pub(super) fn fail_posted(
        &mut self,
        srx: SrxId,
        to: (Option<CqId>, Option<CounterId>),
        id: RecvId,
        error: Errno,
    ) {
        let Some(matcher) = self.srxs.get_mut(srx) else {
            return;
        };
        let Some(recv) = matcher.recv_mut(id) else {
            return;
        };
        recv.released = true;
        if recv.filling > 0 {
            // The last message on its way reports the buffer as released.
            recv.cancelled |= error == Errno::ECANCELED;
            return;
        }
        let mut entry = without_message(recv.context, &recv.want);
        entry.flags.set(Flags::MULTI_RECV, recv.multi);
        let work = recv.work();
        matcher.finish(id);
        self.end_failed_recv(work, to, ErrorEntry::new(entry, error));
    }

    /// Counts and reports a receive that has failed, at this queue and counter or as deferred work
    /// says.
    fn end_failed_recv(
        &mut self,
        work: Option<WorkId>,
        to: (Option<CqId>, Option<CounterId>),
        failed: ErrorEntry,
    ) {
        if let Some(work) = work {
            return self.end_recv_work(work, to, 0, Err(failed));
        }
        let (cq, counter) = to;
        if let Some(counter) = self.counters.find_mut(counter) {
            counter.failure();
        }
        self.report(cq, Err(failed));
    }

    /// What is reported as the source of a message that an endpoint has got.
    pub(super) fn source_of(&self, ep: Option<EpId>, wanted: bool, src: FiAddr) -> FiAddr {
        match self.eps.find(ep) {
            Some(ep) if wanted => reported(&self.ids, ep.config.ids, src),
            _ if wanted => src,
            _ => FiAddr::NOTAVAIL,
        }
    }

    /// The whole message is in place.
    #[inline]
    pub(super) fn finish_recv(
        &mut self,
        ep: Option<EpId>,
        srx: Option<SrxId>,
        origin: Origin,
        recv_id: RecvId,
        base: u64,
        envelope: &Envelope,
    ) {
        let matcher = self.srxs.find_mut(srx);
        let Some(recv) = matcher.and_then(|matcher| matcher.end_message(recv_id)) else {
            return;
        };
        let Some(ep) = self.eps.find(ep) else { return };
        let config = &ep.config;
        let room = recv.len.saturating_sub(base);
        let placed = envelope.len.min(room);
        let src = config.reported(&self.ids, envelope.src);
        let mut entry = completion(recv.context, envelope, src, placed);
        entry.buf = recv.address.wrapping_add(base as usize);
        if recv.last {
            entry.flags |= Flags::MULTI_RECV;
        }
        let truncated = envelope.len > room;
        let stranger = config.source_err && !envelope.src.is_specified();
        if truncated || stranger || recv.work.is_some() {
            let error = match (truncated, stranger) {
                (true, _) => Some(Errno::ETRUNC),
                (false, true) => Some(Errno::EADDRNOTAVAIL),
                (false, false) => None,
            };
            let (to, missing) = (
                (config.rx_cq, config.rx_counter),
                envelope.len.saturating_sub(placed),
            );
            let entry = match error {
                None => Ok(entry),
                Some(error) => Err(self.recv_error(origin, entry, error, missing)),
            };
            return self.end_rare_recv(recv.work, to, (placed, truncated), entry);
        }
        if let Some(counter) = self.counters.find_mut(config.rx_counter) {
            counter.success(placed);
        }
        if (recv.completion || recv.last)
            && let Some(cq) = self.cqs.at_mut(ep.rx_cq)
        {
            cq.push(entry);
        }
    }

    /// Counts and reports a receive with a message that did not fit or is of a stranger, or that
    /// is deferred work.
    #[cold]
    fn end_rare_recv(
        &mut self,
        work: Option<WorkId>,
        to: (Option<CqId>, Option<CounterId>),
        (placed, truncated): (u64, bool),
        entry: core::result::Result<Completion, ErrorEntry>,
    ) {
        if let Some(work) = work {
            return self.end_recv_work(work, to, placed, entry);
        }
        let (cq, counter) = to;
        if let Some(counter) = self.counters.find_mut(counter) {
            match truncated {
                true => counter.failure(),
                false => counter.success(placed),
            }
        }
        self.report(cq, entry);
    }

    /// An error entry of a receive that has got its message, which lacks `missing` bytes.
    #[cold]
    fn recv_error(
        &self,
        origin: Origin,
        entry: Completion,
        err: Errno,
        missing: u64,
    ) -> ErrorEntry {
        let mut error = named_error(entry, err, self.name_of(origin));
        error.error.olen = missing as usize;
        error
    }

    /// A message on its way into a receive will not arrive.
    pub(super) fn fail_recv(
        &mut self,
        conn_id: ConnId,
        recv_id: RecvId,
        envelope: &Envelope,
        error: Errno,
    ) {
        let Some(conn) = self.conns.get(conn_id) else {
            return;
        };
        let matcher = self.srxs.find_mut(conn.srx);
        let Some(recv) = matcher.and_then(|matcher| matcher.end_message(recv_id)) else {
            return;
        };
        let ep = self.eps.get(conn.config.ep);
        let config = ep.map_or(EpConfig::NONE, |ep| ep.config);
        let src = config.reported(&self.ids, envelope.src);
        let mut entry = completion(recv.context, envelope, src, 0);
        entry.flags.set(Flags::MULTI_RECV, recv.last);
        let error = match recv.cancelled {
            true => Errno::ECANCELED,
            false => error,
        };
        let failed = error_entry(entry, error, conn);
        self.end_failed_recv(recv.work, (config.rx_cq, config.rx_counter), failed);
    }
}

/// What a receive says when a message that was on its way into it has ended.
struct EndedMessage {
    context: Context,
    completion: bool,
    work: Option<WorkId>,
    /// Where its memory starts, and how long it is.
    address: usize,
    len: u64,
    /// It was the last of a multi-receive buffer.
    last: bool,
    /// As [`Recv::cancelled`].
    cancelled: bool,
}

impl<B: Buffer> Matcher<B> {
    /// A message that was on its way into a receive has come, or will not: forgets the receive,
    /// unless others are on their way or may come.
    #[inline]
    fn end_message(&mut self, id: RecvId) -> Option<EndedMessage> {
        let recv = self.recv_mut(id)?;
        let mut ended = EndedMessage {
            context: recv.context,
            completion: recv.completion,
            work: recv.work(),
            address: recv.iov.address(),
            len: recv.iov.len(),
            last: false,
            cancelled: recv.cancelled,
        };
        if recv.multi {
            recv.filling = recv.filling.wrapping_sub(1);
            ended.last = recv.released && recv.filling == 0;
        }
        if !recv.multi || ended.last {
            self.finish(id);
        }
        Some(ended)
    }
}

#[inline]
pub(super) const fn rx_flags(tagged: bool) -> Flags {
    if tagged {
        Flags::RECV.union(Flags::TAGGED)
    } else {
        Flags::RECV.union(Flags::MSG)
    }
}

/// What is reported of a receive, or of a look for a message, that has got none.
#[inline]
fn without_message(context: Context, want: &Want) -> Completion {
    Completion {
        context,
        flags: rx_flags(want.tag.is_some()),
        tag: want.tag.map_or(0, |(tag, _)| tag),
        ..Completion::BLANK
    }
}

impl EpConfig {
    /// What the endpoint reports as the source of a message.
    #[inline]
    pub(super) fn reported(&self, ids: &Pool<UserIdsId, UserIds>, src: FiAddr) -> FiAddr {
        if self.source {
            reported(ids, self.ids, src)
        } else {
            FiAddr::NOTAVAIL
        }
    }
}

#[inline]
fn reported(ids: &Pool<UserIdsId, UserIds>, id: Option<UserIdsId>, src: FiAddr) -> FiAddr {
    match id {
        Some(id) => by_id(ids, id, src),
        None => src,
    }
}

#[cold]
#[inline(never)]
fn by_id(ids: &Pool<UserIdsId, UserIds>, id: UserIdsId, src: FiAddr) -> FiAddr {
    ids.get(id).map_or(src, |ids| ids.reported(src))
}

#[inline]
fn completion(context: Context, envelope: &Envelope, src: FiAddr, len: u64) -> Completion {
    let mut flags = rx_flags(envelope.tag.is_some());
    if envelope.data.is_some() {
        flags |= Flags::REMOTE_CQ_DATA;
    }
    Completion {
        context,
        flags,
        len: len as usize,
        buf: 0,
        data: envelope.data.unwrap_or_default(),
        tag: envelope.tag.unwrap_or_default(),
        src,
    }
}
