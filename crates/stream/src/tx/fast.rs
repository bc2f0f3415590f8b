//! The fast path of posts: messages and receives of one buffer.
//!
//! What the fast paths need to know of an endpoint is worked out whenever the endpoint changes, into
//! [`FastPath`], so that a call compares a length and goes. Every other post is in `post.rs`.

use ripstop_core::provider::{RecvKind, SendKind};
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, CqId, EpId};
use ripstop_engine::matching::Want;
use ripstop_engine::pool::Place;
use ripstop_engine::stream::{SEND_HEADER, SmallMessage};
use ripstop_mem::{UserBuf, copy_in};
use ripstop_types::{Context, FiAddr, Flags, Result};

use crate::state::tx_buffer::TX_BUFFER;
use crate::state::{EpState, State};
use crate::transport::{Link as _, Transport};
use crate::tx::send::{ACKED, SPECIAL};

/// Bytes of the buffer in which a small message is put together.
pub(crate) const FAST_SEND_BUFFER: usize = SEND_HEADER + TX_BUFFER / 2;

/// Flags of a send or write that keep it off the fast path. An injected one has a limit of its own.
pub(crate) const SLOW_FLAGS: Flags = ACKED
    .union(Flags::MORE)
    .union(Flags::INJECT)
    .union(Flags::FENCE)
    .union(Flags::TRIGGER);

/// What the fast paths of an endpoint need to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastPath {
    /// Injected messages shorter than this many bytes are small; 0 when none are.
    pub(crate) inject: usize,
    /// The same for messages that are sent.
    send: usize,
    /// The same for those sent without flags of their own.
    plain_send: usize,
    /// Those complete with an entry, and so do writes.
    pub(crate) send_completes: bool,
    /// Somebody counts sends.
    pub(crate) counted: bool,
    /// Writes shorter than this many bytes may be written at once; 0 when none may, or somebody
    /// counts them.
    pub(crate) write: usize,
    /// The same for those without flags of their own.
    pub(crate) plain_write: usize,
    /// Where writes complete.
    pub(crate) write_cq: Place<CqId>,
    /// Receives without flags of their own are for one message, and name no context.
    pub(crate) plain_recv: bool,
    /// Those complete with an entry.
    recv_completes: bool,
}

impl FastPath {
    /// For an endpoint as it is now, whose sends and writes complete in `cq`; injected and other
    /// messages are small up to these lengths in bytes.
    pub(crate) fn of<T: Transport>(
        ep: &EpState<T>,
        inject: u64,
        send: u64,
        cq: Place<CqId>,
    ) -> Self {
        let bound = |longest: u64, most: usize| {
            let longest = usize::try_from(longest).unwrap_or(usize::MAX);
            longest.min(most).min(max_copied::<T>()) + 1
        };
        let mut small = Self {
            send_completes: !ep.tx_selective || ep.tx_flags.contains(Flags::COMPLETION),
            counted: ep.counted,
            plain_recv: ep.has_rx
                && !ep.rx_flags.intersects(SPECIAL)
                && ep.rdm.as_ref().is_none_or(|rdm| rdm.ctx_bits == 0),
            recv_completes: !ep.rx_selective || ep.rx_flags.contains(Flags::COMPLETION),
            write_cq: cq,
            ..Self::default()
        };
        if ep.has_tx {
            // What is counted once the peer has it is noted before it is written.
            if !(ep.counted && ep.tx_flags.intersects(ACKED)) {
                small.inject = bound(inject, ep.inject_size);
            }
            small.send = bound(send, ep.max_msg_size);
        }
        if ep.tx_ready && ep.has_rma && !ep.writes_counted && T::Link::IN_PLACE {
            small.write = bound(send, ep.max_msg_size);
        }
        if !ep.tx_flags.intersects(SLOW_FLAGS) {
            (small.plain_send, small.plain_write) = (small.send, small.write);
        }
        small
    }
}

impl<T: Transport> State<T> {
    /// Works out [`FastPath`] of an endpoint, after the endpoint has changed.
    pub(crate) fn update_fast_path(&mut self, ep: EpId) {
        let (inject, send) = (
            self.engine.longest_sent_now(true),
            match T::Link::IN_PLACE {
                true => self.engine.longest_sent_in_place(),
                false => self.engine.longest_sent_now(false),
            },
        );
        let cq = Place::of(self.engine.ep(ep).and_then(|config| config.tx_cq));
        if let Some(state) = self.ep(ep) {
            state.fast = FastPath::of(state, inject, send, cq);
        }
    }

    /// Posts a message of one buffer.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_tsendmsg; a struct would be built and taken apart"
    )]
    pub(crate) fn send_one(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        match (data, flags) {
            (None, None) => self.try_fast_send(ep, kind, buf, None, dest, context, None),
            _ => self.send_with_flags(ep, kind, buf, data, dest, context, flags),
        }
    }

    /// As [`State::send_one`], with data or flags of its own.
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_tsendmsg; a struct would be built and taken apart"
    )]
    fn send_with_flags(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        self.try_fast_send(ep, kind, buf, data, dest, context, flags)
    }

    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_tsendmsg; a struct would be built and taken apart"
    )]
    fn try_fast_send(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        let mut written = 0;
        if let Some(Some(state)) = self.eps.get(ep.index()) {
            let fast = &state.fast;
            let (limit, completes) = match flags {
                None => (fast.plain_send, fast.send_completes),
                Some(flags) if flags.intersects(SLOW_FLAGS) => (0, false),
                Some(flags) => {
                    let completes = !state.tx_selective || flags.contains(Flags::COMPLETION);
                    (fast.send, completes)
                }
            };
            let (noted, id) = (completes || fast.counted, state.route(dest));
            if buf.len() >= limit {
                // It goes the usual way.
            } else if self.burst && is_coalesced::<T>(buf) && self.in_burst(id) {
                if self.coalesce(id, kind, buf, data, context, completes) {
                    return Ok(());
                }
            } else {
                match self.send_now(id, kind, buf, data, false) {
                    Ok(()) => {
                        if noted {
                            self.note_sent(ep, kind, buf.len(), context, completes);
                        }
                        return Ok(());
                    }
                    Err(part) => written = part,
                }
            }
        }
        self.send_slow(ep, kind, buf, data, dest, context, flags, written)
    }

    /// Posts a message that the fast path could not send; `written` bytes of it are under way.
    #[inline(never)]
    #[expect(
        clippy::too_many_arguments,
        reason = "the arguments of fi_tsendmsg; a struct would be built and taken apart"
    )]
    fn send_slow(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
        context: Context,
        flags: Option<Flags>,
        written: usize,
    ) -> Result<()> {
        let iov = Iov::one(buf);
        self.send(ep, kind, &iov, data, dest, context, flags, written)
    }

    /// Sends a message before anything is noted of it, if its connection has nothing else to write. With `hold` the kernel has the bytes, but may keep them back for others of the same
    /// burst until [`Link::push`].
    ///
    /// # Errors
    /// How many bytes of header and payload were written, when that is not all.
    #[inline(always)]
    pub(crate) fn send_now(
        &mut self,
        id: Option<ConnId>,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        hold: bool,
    ) -> core::result::Result<(), usize> {
        let Self {
            engine,
            connections,
            scratch,
            ..
        } = self;
        let Some(Some(connection)) = connections.get(ConnId::place(id)) else {
            return Err(0);
        };
        let Some(link) = &connection.link else {
            return Err(0);
        };
        let (tag, len) = (tag_of(kind), buf.len());
        let written = if T::Link::IN_PLACE {
            let mut header = [0; SEND_HEADER];
            let Some(header_len) = engine.try_send_now(id, tag, data, len as u64, &mut header)
            else {
                return Err(0);
            };
            let written = link.send_message(&header, header_len, buf);
            written.map(|written| (written, header_len + len))
        } else {
            let Some(header) = scratch.first_chunk_mut() else {
                return Err(0);
            };
            let Some(header_len) = engine.try_send_now(id, tag, data, len as u64, header) else {
                return Err(0);
            };
            let Some(room) = scratch.get_mut(header_len..) else {
                return Err(0);
            };
            copy_in(room, buf);
            let Some(bytes) = scratch.get(..header_len + len) else {
                return Err(0);
            };
            let written = match hold {
                true => link.send_held(bytes),
                false => link.send(bytes),
            };
            written.map(|written| (written, bytes.len()))
        };
        match written {
            Ok((written, all)) if written == all => {
                let round = self.begin_burst();
                if let Some(Some(connection)) = self.connections.get_mut(ConnId::place(id)) {
                    connection.round = round;
                }
                Ok(())
            }
            Ok((part, _)) => Err(part),
            // It shows again when the message is sent the usual way.
            Err(_) => Err(0),
        }
    }

    /// Coalesces a message with another of the same burst; `false` when it cannot be.
    #[inline(never)]
    fn coalesce(
        &mut self,
        id: Option<ConnId>,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        context: Context,
        completion: bool,
    ) -> bool {
        if self.unattended || !self.waiters.is_empty() {
            // Whoever sleeps makes no progress that would write it.
            return false;
        }
        let Self {
            engine,
            connections,
            ..
        } = self;
        let Some(Some(connection)) = connections.get_mut(ConnId::place(id)) else {
            return false;
        };
        let room = connection.tx_buffer.room();
        let enough = room.len() >= SEND_HEADER + buf.len();
        let (true, Some(header)) = (enough, room.first_chunk_mut()) else {
            return false;
        };
        let message = SmallMessage {
            tag: tag_of(kind),
            data,
            len: buf.len() as u64,
            context,
            completion,
        };
        let Some(header_len) = engine.coalesce(id, &message, header) else {
            return false;
        };
        let copied = room.get_mut(header_len..).map(|room| copy_in(room, buf));
        connection.tx_buffer.grow(header_len + copied.unwrap_or(0));
        // A kernel that said no will say when.
        if !connection.dirty
            && !connection.interest.write
            && let Some(id) = id
        {
            self.put_off(id);
        }
        true
    }

    /// Reports a message that [`State::send_now`] has sent.
    #[inline(always)]
    pub(crate) fn note_sent(
        &mut self,
        ep: EpId,
        kind: SendKind,
        len: usize,
        context: Context,
        entry: bool,
    ) {
        let tagged = matches!(kind, SendKind::Tagged(_));
        self.engine.sent_now(ep, tagged, context, len as u64, entry);
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
    }

    /// Posts a receive of one buffer on an endpoint.
    #[inline(always)]
    pub(crate) fn recv_one(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        buf: UserBuf,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        if flags.is_none()
            && let Some(Some(state)) = self.eps.get(ep.index())
            && state.fast.plain_recv
        {
            let tag = match kind {
                RecvKind::Msg => None,
                RecvKind::Tagged { tag, ignore } => Some((tag, ignore)),
            };
            let (want, completes) = (Want { tag, src }, state.fast.recv_completes);
            match self
                .engine
                .post_one(state.srx, buf, want, context, completes)
            {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(error),
            }
        }
        self.recv_slow(ep, kind, buf, src, context, flags)
    }

    /// As [`State::recv_one`], off the fast path.
    #[inline(never)]
    fn recv_slow(
        &mut self,
        ep: EpId,
        kind: RecvKind,
        buf: UserBuf,
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        self.recv(ep, kind, Iov::one(buf), src, context, flags)
    }
}

/// The tag of a tagged message.
#[inline(always)]
const fn tag_of(kind: SendKind) -> Option<u64> {
    match kind {
        SendKind::Msg => None,
        SendKind::Tagged(tag) => Some(tag),
    }
}

/// The longest message in bytes that is copied to be sent; what is sent in place has no such bound.
const fn max_copied<T: Transport>() -> usize {
    match T::Link::IN_PLACE {
        true => usize::MAX - 1,
        false => FAST_SEND_BUFFER - SEND_HEADER,
    }
}

/// The longest message in bytes that is coalesced with others of its burst where a message can be
/// sent in place: sending a longer one alone costs less than the copy.
const MAX_COALESCED: usize = 256;

/// Whether a message that follows another of the same burst is coalesced with it.
#[inline(always)]
const fn is_coalesced<T: Transport>(buf: UserBuf) -> bool {
    !T::Link::IN_PLACE || buf.len() <= MAX_COALESCED
}

impl<T: Transport> EpState<T> {
    /// The connection to a peer, where there is one.
    #[inline]
    pub(crate) fn route(&self, dest: FiAddr) -> Option<ConnId> {
        let index = if self.is_msg { 0 } else { dest.0 as usize };
        self.routes.get(index).copied().flatten()
    }
}

const _: () = assert!(
    FAST_SEND_BUFFER <= TX_BUFFER,
    "a message of which a part was written must fit the transmit buffer"
);
