//! Sends: the way of a message from the caller to the link, or to the queue of its connection.

use ripstop_core::provider::SendKind;
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, EpId, SlotId};
use ripstop_engine::stream::{Engine, SEND_HEADER, Send, SendPlan, StartedPostponed};
use ripstop_mem::{UserBuf, copy_in};
use ripstop_types::{Context, Errno, FiAddr, Flags, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{Body, MAX_UNIT_HEADER, Packet, Unit, emit_packet};

use crate::state::State;
use crate::state::fast_path::ACKED;
use crate::state::slots::Slots;
use crate::transport::registering::Registering as _;
use crate::transport::{RegisteringOf, Transport};

/// Messages that are not copied are coalesced up to this many bytes, see [`State::continue_burst`].
const MAX_COALESCED_UNCOPIED: u64 = 128 * 1024;

/// Most bytes of one connection that are coalesced.
const MAX_COALESCED_BYTES: u64 = 384 * 1024;

/// What a message is sent with, but for its buffers (`fi_tsendmsg(3)`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendArgs {
    pub(crate) kind: SendKind,
    /// Completion data for the peer.
    pub(crate) data: Option<u64>,
    pub(crate) dest: FiAddr,
    pub(crate) context: Context,
    /// `None` is those of the endpoint.
    pub(crate) flags: Option<Flags>,
}

impl<T: Transport> State<T> {
    /// Posts a message. Of one that [`State::send_now`] began, `written` bytes are with the
    /// kernel.
    #[inline(never)]
    pub(crate) fn send(
        &mut self,
        ep: EpId,
        iov: &Iov<UserBuf>,
        args: &SendArgs,
        written: usize,
    ) -> Result<()> {
        let (send, given) = self.message(ep, iov, args)?;
        self.obey_fence_and_trigger(ep, args.dest, given)?;
        self.post(ep, args.dest, &send, given.contains(Flags::MORE), written)
    }

    /// Posts a message that [`State::message`] has made.
    pub(crate) fn send_message(
        &mut self,
        ep: EpId,
        dest: FiAddr,
        send: &Send<UserBuf>,
        given: Flags,
    ) -> Result<()> {
        self.obey_fence_and_trigger(ep, dest, given)?;
        self.post(ep, dest, send, given.contains(Flags::MORE), 0)
    }

    /// A message as the engine takes it, and its flags.
    #[inline(always)]
    pub(crate) fn message(
        &self,
        ep: EpId,
        iov: &Iov<UserBuf>,
        args: &SendArgs,
    ) -> Result<(Send<UserBuf>, Flags)> {
        let Some(state) = self.eps.get(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        if !state.has_tx {
            return Err(state.no_send());
        }
        let given = args.flags.unwrap_or(state.tx_flags);
        if iov.len() > state.max_msg_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let inject = given.contains(Flags::INJECT);
        if inject && iov.len() > state.inject_size as u64 {
            return Err(Errno::EMSGSIZE);
        }
        let send = Send {
            tag: tag_of(args.kind),
            data: args.data,
            iov: *iov,
            context: args.context,
            completion: !state.tx_selective || given.contains(Flags::COMPLETION),
            inject,
            ack: given.intersects(ACKED),
            work: false,
        };
        Ok((send, given))
    }

    /// Posts a message as the engine takes it: finds the connection, has the engine plan it, and carries the plan out.
    /// Of the message `written` bytes are with the kernel already.
    #[inline]
    pub(crate) fn post(
        &mut self,
        ep: EpId,
        dest: FiAddr,
        send: &Send<UserBuf>,
        more: bool,
        written: usize,
    ) -> Result<()> {
        let silent = send.is_silent();
        let id = self.route(ep, dest, silent)?;
        if written > 0 {
            return self.post_begun(id, send, written);
        }
        if silent {
            self.admit_silent(id)?;
        }
        let plan = self.accept(|engine| engine.send(id, send))?;
        self.carry_out(id, send, &plan, more && !silent)?;
        if silent {
            self.hand_over(id);
        }
        if !self.loopbacks.is_empty() {
            self.note_posted(id);
        }
        Ok(())
    }

    /// Lets the engine accept an operation: once more if its queue was full, which may be so only
    /// because writing was put off.
    #[inline(always)]
    pub(crate) fn accept<P>(
        &mut self,
        mut attempt: impl FnMut(&mut Engine<UserBuf>) -> Result<P>,
    ) -> Result<P> {
        match attempt(&mut self.engine) {
            Err(Errno::EAGAIN) => {}
            plan => return plan,
        }
        self.flush_dirty();
        let plan = attempt(&mut self.engine);
        if matches!(plan, Err(Errno::EAGAIN)) {
            self.make_room();
        }
        plan
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
        if send.is_silent() {
            self.hand_over(id);
        }
        Ok(())
    }

    /// Does what the engine has planned for a message: postpones it, or puts it into the transmit buffer and writes it.
    #[inline]
    fn carry_out(
        &mut self,
        id: ConnId,
        send: &Send<UserBuf>,
        plan: &SendPlan,
        more: bool,
    ) -> Result<()> {
        let inline = match plan {
            SendPlan::Append { inline, .. } | SendPlan::Packet { inline, .. } => *inline,
            SendPlan::Postpone { slot } => {
                return self.postpone(id, [&send.iov, &Iov::EMPTY], *slot);
            }
        };
        self.append(id, send, plan)?;
        // What is not copied goes out with others as well, as long as it is not much.
        let may_wait = inline || self.may_wait_uncopied(id, send.iov.len());
        self.write_out(id, may_wait, more);
        Ok(())
    }

    /// Whether a message that is not copied may wait behind others of its connection.
    #[inline]
    pub(crate) fn may_wait_uncopied(&self, id: ConnId, len: u64) -> bool {
        let conn = self.engine.conn(id);
        len <= MAX_COALESCED_UNCOPIED
            && conn.is_some_and(|conn| conn.unsent() <= MAX_COALESCED_BYTES)
    }

    /// Puts what a plan says into the transmit buffer.
    #[inline]
    fn append(&mut self, id: ConnId, send: &Send<UserBuf>, plan: &SendPlan) -> Result<()> {
        let (header, header_len, inline) = match plan {
            SendPlan::Append {
                header,
                header_len,
                inline,
            } => (header, header_len, inline),
            SendPlan::Packet { index, inline } => {
                return self.append_packet(id, send, *index, *inline);
            }
            SendPlan::Postpone { .. } => return Ok(()),
        };
        let Some(connection) = self.connections.get_mut(id) else {
            return Err(Errno::ENOTCONN);
        };
        let payload = if *inline { send.iov.len() as usize } else { 0 };
        if let Err(error) = connection.tx_buffer.reserve(SEND_HEADER + payload) {
            return self.lose_queued(id, error, send.is_silent());
        }
        connection
            .tx_buffer
            .push_header(header, usize::from(*header_len));
        if *inline {
            connection.tx_buffer.push_user(send.iov.segments());
        }
        Ok(())
    }

    /// Ends a connection whose transmit buffer has no memory for an operation that the engine has queued. The loss of
    /// that operation is reported once: in the completion queue, or by its call if it is `silent`.
    #[cold]
    pub(crate) fn lose_queued(&mut self, id: ConnId, error: Errno, silent: bool) -> Result<()> {
        self.lost(id, error);
        if silent { Err(error) } else { Ok(()) }
    }

    /// Puts a message in a packet, or its announcement, into the transmit buffer.
    fn append_packet(
        &mut self,
        id: ConnId,
        send: &Send<UserBuf>,
        index: Option<u16>,
        inline: bool,
    ) -> Result<()> {
        let mut header = [0; MAX_UNIT_HEADER];
        let len = self.engine.packet(id, send, index, &mut header);
        let all = CopiedPayload::User([send.iov.segments(), &[]]);
        let copied = send.inject.then_some(&all);
        if let Err(error) = self.name_memory(id, &mut header, copied) {
            self.lost(id, error);
            return Ok(());
        }
        let header = header.get(..len).unwrap_or_default();
        let payload = match inline {
            true => all,
            false => CopiedPayload::NOTHING,
        };
        if let Err(error) = self.stage(id, header, &payload) {
            return self.lose_queued(id, error, send.is_silent());
        }
        Ok(())
    }

    /// Writes what a connection has, now that there is more of it, or puts that off: if `more` is to
    /// follow, or what was added may wait behind others of its burst.
    #[inline]
    pub(crate) fn write_out(&mut self, id: ConnId, may_wait: bool, more: bool) {
        // Whoever sleeps makes no progress that would write what is put off.
        let asleep = self.unattended || !self.waiters.is_empty();
        let wait =
            more || (self.burst_open && may_wait && !asleep && self.continue_burst(Some(id)));
        let burst = self.begin_burst();
        if let Some(connection) = self.connection(id) {
            connection.last_burst = burst;
        }
        match self.connection(id) {
            // The kernel said no; it will say when.
            Some(connection) if connection.interest.write => return,
            _ if wait => return self.put_off(id),
            _ => self.flush(id),
        }
        self.wake_any_waiters();
    }

    /// Keeps a message until its connection is up, with copies of both parts of its payload where
    /// there is a slot for them. A connected endpoint sends none before.
    #[cold]
    pub(crate) fn postpone(
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

    /// Queues the oldest postponed operation of a connection; returns whether there was one and it could be queued.
    #[cold]
    pub(crate) fn start_postponed(&mut self, id: ConnId) -> bool {
        let mut header = [0; MAX_UNIT_HEADER];
        let Ok(Some(started)) = self.engine.start_postponed(id, &mut header) else {
            return false;
        };
        let StartedPostponed {
            postponed,
            header_len,
            inline,
        } = started;
        let posted = &postponed.posted;
        let injected = postponed.slot.map(|slot| CopiedPayload::Slot {
            slot,
            at: 0,
            len: self.slots.get(slot).len() as u64,
        });
        if let Err(error) = self.name_memory(id, &mut header, injected.as_ref()) {
            self.lost(id, error);
            return false;
        }
        let payload = match (posted.kept(), injected) {
            _ if !inline => CopiedPayload::NOTHING,
            (Some((slot, at, len)), _) => CopiedPayload::Slot { slot, at, len },
            (None, Some(injected)) => injected,
            (None, None) => CopiedPayload::User([posted.iov().segments(), posted.more()]),
        };
        let header = header.get(..header_len).unwrap_or_default();
        if let Err(error) = self.stage(id, header, &payload) {
            self.lost(id, error);
            return false;
        }
        self.engine.free_slot(postponed.slot);
        true
    }

    /// Of an announcement, names the memory that the peer's device reads, where links let it do that: that of the message,
    /// or a copy of `injected`.
    fn name_memory(
        &mut self,
        id: ConnId,
        header: &mut [u8],
        injected: Option<&CopiedPayload<'_>>,
    ) -> Result<()> {
        if !RegisteringOf::<T>::SUPPORTED {
            return Ok(());
        }
        let order = ByteOrder::NATIVE;
        let Ok(Unit::Packet(packet, flags)) = Unit::parse(order, header) else {
            return Ok(());
        };
        let Body::Rendezvous {
            message, id: name, ..
        } = packet.body
        else {
            return Ok(());
        };
        let link = self.connections.get(id).and_then(|c| c.link.as_ref());
        let index = u16::try_from(name).map_err(|_| Errno::EPROTO)?;
        let memory = self.engine.announced_memory(id, index);
        let (Some(link), Some(memory)) = (link, memory) else {
            return Err(Errno::ENOTCONN);
        };
        let memory = match injected {
            None => RegisteringOf::<T>::announce(link, index, memory.segments())?,
            Some(payload) => {
                let len = usize::try_from(message.len).map_err(|_| Errno::EMSGSIZE)?;
                let fill = |copy: &mut [u8]| payload.copy_to(copy, &self.slots);
                RegisteringOf::<T>::announce_copy(link, index, len, fill)?
            }
        };
        let body = Body::Rendezvous {
            message,
            id: name,
            memory,
        };
        emit_packet(order, flags, &Packet { body, ..packet }, header)
            .map_err(|error| error.errno())?;
        Ok(())
    }

    /// Puts a header into the transmit buffer of a connection, and the payload that is copied behind it.
    pub(crate) fn stage(
        &mut self,
        id: ConnId,
        header: &[u8],
        payload: &CopiedPayload<'_>,
    ) -> Result<()> {
        let Self {
            connections, slots, ..
        } = self;
        let Some(connection) = connections.get_mut(id) else {
            return Err(Errno::ENOTCONN);
        };
        let buffer = &mut connection.tx_buffer;
        match *payload {
            CopiedPayload::User(parts) => {
                let len: usize = parts.iter().copied().flatten().map(|buf| buf.len()).sum();
                buffer.reserve(header.len() + len)?;
                buffer.push(header);
                for part in parts {
                    buffer.push_user(part);
                }
            }
            CopiedPayload::Slot { slot, at, len } => {
                let (at, len) = (at as usize, len as usize);
                let bytes = match len {
                    0 => &[],
                    _ => slots.get(slot).get(at..at + len).ok_or(Errno::ENOMEM)?,
                };
                buffer.reserve(header.len() + len)?;
                buffer.push(header);
                buffer.push(bytes);
            }
        }
        Ok(())
    }
}

/// The tag of a tagged message.
#[inline(always)]
pub(crate) const fn tag_of(kind: SendKind) -> Option<u64> {
    match kind {
        SendKind::Msg => None,
        SendKind::Tagged(tag) => Some(tag),
    }
}

/// The part of a payload that is copied into the transmit buffer.
pub(crate) enum CopiedPayload<'a> {
    /// These buffers, all of the first part before the second.
    User([&'a [UserBuf]; 2]),
    /// Bytes of a slot.
    Slot {
        /// Which one.
        slot: SlotId,
        /// Where in it they start.
        at: u64,
        /// How many there are.
        len: u64,
    },
}

impl CopiedPayload<'_> {
    /// Nothing: the payload is written from where it is, or there is none.
    pub(crate) const NOTHING: Self = Self::User([&[], &[]]);

    /// Copies the payload to the front of `copy`, as far as that has room.
    fn copy_to(&self, copy: &mut [u8], slots: &Slots) {
        match *self {
            Self::User(parts) => {
                let mut at = 0;
                for part in parts.into_iter().flatten() {
                    at += copy_in(copy.get_mut(at..).unwrap_or_default(), *part);
                }
            }
            Self::Slot { slot, at, len } => {
                let kept = slots.get(slot).get(at as usize..).unwrap_or_default();
                let len = copy.len().min(len as usize).min(kept.len());
                copy[..len].copy_from_slice(&kept[..len]);
            }
        }
    }
}

const _: () = assert!(MAX_UNIT_HEADER < crate::tunables::TX_BUFFER);
