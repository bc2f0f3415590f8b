//! The fast path of sends: messages of one buffer.
//!
//! What it needs to know of an endpoint is worked out whenever the endpoint changes, into
//! [`FastPath`](crate::state::fast_path::FastPath), so that a call compares a length and goes. Every
//! other send is in [`send`](crate::tx::send).

use ripstop_core::provider::SendKind;
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::pool::Place;
use ripstop_engine::stream::{SEND_HEADER, SmallMessage};
use ripstop_mem::{UserBuf, copy_in};
use ripstop_types::{Context, Errno, Flags, Result};
use ripstop_wire::rxm::MESSAGE_LEN;

use crate::region::attach::MIN_ATTACH_BYTES;
use crate::state::State;
use crate::state::fast_path::{
    FastPath, MAX_COPIED, MAX_COPIED_IN_PACKET, SLOW_SEND_FLAGS, off_fast_path,
};
use crate::state::tx_buffer::FAST_SEND_BUFFER;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::link::Link as _;
use crate::transport::registering::Registering as _;
use crate::transport::{DirectOf, InPlaceOf, RegisteringOf, Transport};
use crate::tunables::TX_BUFFER;
use crate::tx::send::{SendArgs, tag_of};

/// The longest message in bytes that is coalesced with others of its burst where a message can be
/// sent in place: sending a longer one alone costs less than the copy.
const MAX_COALESCED: usize = 256;

/// A message that [`State::send_now`] has not sent whole: it is to be posted the usual way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotSent {
    /// How many bytes of header and payload are with the kernel, of a message that was begun; else 0.
    pub(crate) written: usize,
}

impl NotSent {
    const NOTHING: Self = Self { written: 0 };
}

impl<T: Transport> State<T> {
    /// Works out [`FastPath`] of an endpoint, after the endpoint has changed.
    pub(crate) fn update_fast_path(&mut self, ep: EpId) {
        let (inject, send) = (
            self.engine.longest_sent_now(true),
            match (InPlaceOf::<T>::SUPPORTED, RegisteringOf::<T>::SUPPORTED) {
                (true, _) => self.engine.longest_sent_in_place(),
                // A device gets all of a packet or nothing. How long that may be the connection says.
                (false, true) => u64::from(u32::MAX),
                (false, false) => self.engine.longest_sent_now(false),
            },
        );
        let cq = Place::of(self.engine.ep(ep).and_then(|config| config.tx_cq));
        let min_attach = match DirectOf::<T>::SUPPORTED && T::uses_attach(&self.params) {
            true => MIN_ATTACH_BYTES as usize,
            false => usize::MAX,
        };
        // Packets have longer headers.
        let in_packets = T::is_in_packets(&self.params);
        if let Some(state) = self.ep(ep) {
            let mut fast = FastPath::of(state, inject, send, cq);
            fast.min_attach = min_attach;
            if in_packets {
                fast.inject_below = fast.inject_below.min(MAX_COPIED_IN_PACKET + 1);
            }
            if in_packets && !RegisteringOf::<T>::SUPPORTED {
                for limit in [&mut fast.send_below, &mut fast.plain_send_below] {
                    *limit = (*limit).min(MAX_COPIED_IN_PACKET + 1);
                }
            }
            state.fast = fast;
        }
    }

    /// Posts a message of one buffer.
    #[inline(always)]
    pub(crate) fn send_one(&mut self, ep: EpId, buf: UserBuf, args: SendArgs) -> Result<()> {
        match (args.data, args.flags) {
            (None, None) => {
                let plain = SendArgs {
                    data: None,
                    flags: None,
                    ..args
                };
                self.try_fast_send(ep, buf, plain)
            }
            _ => self.send_with_flags(ep, buf, &args),
        }
    }

    /// As [`State::send_one`], with data or flags of its own.
    #[inline(never)]
    fn send_with_flags(&mut self, ep: EpId, buf: UserBuf, args: &SendArgs) -> Result<()> {
        self.try_fast_send(ep, buf, *args)
    }

    #[inline(always)]
    fn try_fast_send(&mut self, ep: EpId, buf: UserBuf, args: SendArgs) -> Result<()> {
        let mut written = 0;
        if let Some(state) = self.eps.get(ep) {
            let fast = &state.fast;
            let (limit, completes) = match args.flags {
                None => (fast.plain_send_below, fast.send_completes),
                Some(flags) if flags.intersects(SLOW_SEND_FLAGS) => (0, false),
                Some(flags) => {
                    let completes = !state.tx_selective || flags.contains(Flags::COMPLETION);
                    (fast.send_below, completes)
                }
            };
            let (noted, id) = (completes || fast.counted, state.route(args.dest));
            if buf.len() >= limit {
                // It goes the usual way.
            } else if !RegisteringOf::<T>::SUPPORTED
                && self.burst_open
                && self.is_coalesced(id, buf)
                && self.continue_burst(id)
            {
                if self.coalesce(id, buf, &args, completes) {
                    return Ok(());
                }
            } else {
                match self.send_now::<false>(id, args.kind, buf, args.data, false) {
                    Ok(()) => {
                        if noted {
                            self.note_sent(ep, args.kind, buf.len(), args.context, completes);
                        }
                        return Ok(());
                    }
                    Err(not_sent) => written = not_sent.written,
                }
            }
        }
        // Of a message that was begun, `written` bytes are under way.
        off_fast_path(move || self.send(ep, &Iov::one(buf), &args, written))
    }

    /// Sends a message before anything is noted of it, if its connection has nothing else to write.
    /// With `hold` the kernel has the bytes, but may keep them back for others of the same burst until
    /// [`Link::push`](crate::Link::push).
    ///
    /// # Errors
    /// [`NotSent`] when that was not possible, or header and payload were written in part.
    #[inline(always)]
    pub(crate) fn send_now<const INJECT: bool>(
        &mut self,
        id: Option<ConnId>,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        hold: bool,
    ) -> core::result::Result<(), NotSent> {
        let Self {
            engine,
            connections,
            scratch,
            params,
            ..
        } = self;
        let Some(connection) = connections.find(id) else {
            return Err(NotSent::NOTHING);
        };
        let Some(link) = &connection.link else {
            return Err(NotSent::NOTHING);
        };
        let (tag, len) = (tag_of(kind), buf.len());
        let written = if InPlaceOf::<T>::applies(link) {
            let mut header = [0; SEND_HEADER];
            let Some(header_len) =
                engine.try_send_now::<INJECT>(id, tag, data, len as u64, &mut header)
            else {
                return Err(NotSent::NOTHING);
            };
            let written = InPlaceOf::<T>::send_message(link, &header, header_len, buf);
            written.map(|written| (written, header_len + len))
        } else if RegisteringOf::<T>::SUPPORTED {
            let mut header = [0; MESSAGE_LEN];
            let sent = engine.try_send_packet_now(id, tag, data, len as u64, &mut header)
                && RegisteringOf::<T>::send_now(link, &header, buf);
            sent.then_some((len, len)).ok_or(Errno::EAGAIN)
        } else {
            // Where there are links in place, the endpoint's limit is that of those.
            if InPlaceOf::<T>::SUPPORTED && len > MAX_COPIED {
                return Err(NotSent::NOTHING);
            }
            let Some(header_len) = (match T::is_in_packets(params) {
                true => scratch.first_chunk_mut().and_then(|header| {
                    let sent = engine.try_send_packet_now(id, tag, data, len as u64, header);
                    sent.then_some(MESSAGE_LEN)
                }),
                false => scratch.first_chunk_mut().and_then(|header| {
                    engine.try_send_now::<INJECT>(id, tag, data, len as u64, header)
                }),
            }) else {
                return Err(NotSent::NOTHING);
            };
            let Some(room) = scratch.get_mut(header_len..) else {
                return Err(NotSent::NOTHING);
            };
            copy_in(room, buf);
            let Some(bytes) = scratch.get(..header_len + len) else {
                return Err(NotSent::NOTHING);
            };
            let written = match hold {
                true => link.send_held(bytes),
                false => link.send(bytes),
            };
            written.map(|written| (written, bytes.len()))
        };
        match written {
            Ok((written, all)) if written == all => {
                let burst = self.begin_burst();
                if let Some(connection) = self.connections.find_mut(id) {
                    connection.last_burst = burst;
                }
                Ok(())
            }
            Ok((written, _)) => Err(NotSent { written }),
            // It shows again when the message is sent the usual way.
            Err(_) => Err(NotSent::NOTHING),
        }
    }

    /// Whether a message that follows another of the same burst is coalesced with it.
    #[inline(always)]
    fn is_coalesced(&self, id: Option<ConnId>, buf: UserBuf) -> bool {
        buf.len() <= MAX_COALESCED || !self.sends_in_place(id)
    }

    /// Whether messages of a connection are sent from where they are.
    #[inline(always)]
    pub(crate) fn sends_in_place(&self, id: Option<ConnId>) -> bool {
        InPlaceOf::<T>::SUPPORTED
            && self
                .connections
                .find(id)
                .and_then(|connection| connection.link.as_ref())
                .is_none_or(|link| InPlaceOf::<T>::applies(link))
    }

    /// Coalesces a message with another of the same burst; `false` when it cannot be.
    #[inline(never)]
    fn coalesce(
        &mut self,
        id: Option<ConnId>,
        buf: UserBuf,
        args: &SendArgs,
        completion: bool,
    ) -> bool {
        if self.unattended || !self.waiters.is_empty() {
            // Whoever sleeps makes no progress that would write it.
            return false;
        }
        let (engine, connections) = (&mut self.engine, &mut self.connections);
        let Some(connection) = connections.find_mut(id) else {
            return false;
        };
        let room = connection.tx_buffer.room();
        let enough = room.len() >= SEND_HEADER + buf.len();
        let (true, Some(header)) = (enough, room.first_chunk_mut()) else {
            return false;
        };
        let message = SmallMessage {
            tag: tag_of(args.kind),
            data: args.data,
            len: buf.len() as u64,
            context: args.context,
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
        self.wake_any_waiters();
    }
}

const _: () = assert!(
    FAST_SEND_BUFFER <= TX_BUFFER,
    "a message of which a part was written must fit the transmit buffer"
);
