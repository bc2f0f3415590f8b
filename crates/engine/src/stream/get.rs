//! Messages whose payload the receiver gets from the sender's memory, in one copy ([`Extensions::GET`]).
//!
//! The sender announces address and length ([`Op::MsgGet`], [`Op::TagGet`]) and leaves the payload where
//! it is. When a receive matches, the driver of the receiver gets it from there ([`Engine::get`]) and the
//! sender is told ([`Op::Ats`]); or, where that fails, the sender is asked to send it ([`Op::Cts`]), as
//! for a rendezvous. The receiver, which sees what both ways cost, says whether it gets messages, and
//! from which length on ([`Op::GetLimit`]); now and then one goes the other way, so that it sees more.
//!
//! A message that finds no receive is got at once and kept, if there is room and it would have been sent
//! eagerly, so that its send is done whenever an eager one would be. Any other waits for its receive.
//!
//! [`Op::MsgGet`]: ripstop_wire::xnet::base::Op::MsgGet
//! [`Op::TagGet`]: ripstop_wire::xnet::base::Op::TagGet
//! [`Op::Ats`]: ripstop_wire::xnet::base::Op::Ats
//! [`Op::Cts`]: ripstop_wire::xnet::base::Op::Cts
//! [`Op::GetLimit`]: ripstop_wire::xnet::base::Op::GetLimit

use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::base::{GetHeader, Header, parse_get};
use ripstop_wire::xnet::cm::Extensions;

use crate::id::{ConnId, MessageId, SlotId};
use crate::matching::{Envelope, Rts};
use crate::stream::arriving::Target;
use crate::stream::awaited::{CtsEntry, IndexedTx};
use crate::stream::conn::Conn;
use crate::stream::eager::hold_back_bytes;
use crate::stream::engine::{Engine, Limits};
use crate::stream::records::{Origin, Output};
use crate::stream::request::Send;
use crate::{Buffer, Iov};

/// No shorter message is got, whatever the receiver says. From this many bytes on, some are got now and then also where
/// the receiver wants longer ones only.
const MIN_GET_BYTES: u64 = 4 << 10;

/// Messages until some are trials, which go the other way: they are got although they are too short, or sent
/// eagerly although they are to be got. At first, and at most, after doubling each time.
const MIN_BETWEEN_TRIALS: u32 = 4;
const MAX_BETWEEN_TRIALS: u32 = 4096;

/// Trials in a row: as many as receivers get by one call, where they come so fast. One alone would show what
/// that costs where they do not.
const TRIALS_IN_A_ROW: u32 = 8;

/// Payloads that the peer gets until the driver is told, unless that calls [`Engine::take_has_peer_got`] before. It must
/// know before what it has measured of its own copies is old.
const GOT_UNTIL_TOLD: u8 = 16;

/// A payload to be got from the peer's memory, see [`Output::Get`].
#[derive(Clone, Copy, Debug)]
pub struct Get<B> {
    /// Where it is in the peer's process.
    pub address: u64,
    /// How many bytes of it there is room for.
    pub len: u64,
    /// Where it goes.
    pub place: GetPlace<B>,
}

/// Where a payload goes.
#[derive(Clone, Copy, Debug)]
pub enum GetPlace<B> {
    /// Into user memory, from this offset on.
    Memory(Iov<B>, u64),
    /// Into a slot.
    Slot(SlotId),
}

impl<B: Buffer> Conn<B> {
    /// Whether the receiver is to get a message that is not injected.
    #[inline]
    pub(super) fn is_to_get(&mut self, send: &Send<B>, limits: &Limits) -> bool {
        let len = send.iov.len();
        len >= MIN_GET_BYTES && self.can_get && self.chooses_get(send, limits)
    }

    #[inline(never)]
    fn chooses_get(&mut self, send: &Send<B>, limits: &Limits) -> bool {
        if self.get_address(send).is_none() || !self.has_index() {
            return false;
        }
        let wanted = send.iov.len() >= self.get_min;
        if wanted && send.tag.is_some() && send.iov.len() > limits.eager_max {
            // It is never sent eagerly.
            return true;
        }
        if self.get_countdown > 0 {
            self.count_down();
            return wanted;
        }
        self.trials_left = self.trials_left.saturating_sub(1);
        if self.trials_left == 0 {
            let next = self.between_trials.saturating_mul(2);
            self.between_trials = next.min(MAX_BETWEEN_TRIALS);
            self.start_countdown();
        }
        !wanted
    }

    /// The next messages that go the other way are so many messages away.
    const fn start_countdown(&mut self) {
        (self.get_countdown, self.trials_left) = (self.between_trials, TRIALS_IN_A_ROW);
        self.set_ready_to_send(self.ready_to_send);
    }

    /// One more message of a length that may be got goes the way that is faster for it.
    const fn count_down(&mut self) {
        self.get_countdown = self.get_countdown.saturating_sub(1);
        if self.get_countdown == 0 {
            self.set_ready_to_send(self.ready_to_send);
        }
    }

    /// A message is written before the engine has noted anything of it: it counts until the next ones that go the
    /// other way.
    #[inline(always)]
    pub(super) const fn count_sent_now(&mut self, len: u64) {
        if len >= MIN_GET_BYTES && self.can_get {
            self.count_down();
        }
    }

    /// Messages from this many bytes on are not sent before the engine has noted anything of them: they
    /// are to be got, or the next one of them may be.
    pub(super) const fn get_attention_min(&self) -> u64 {
        match (self.can_get, self.get_countdown) {
            (false, _) => u64::MAX,
            (true, 0) => MIN_GET_BYTES,
            (true, _) => self.get_min,
        }
    }

    /// Where the payload of a message is, if the receiver can get it: it is in one piece.
    pub(super) fn get_address(&self, send: &Send<B>) -> Option<u64> {
        match send.iov.segments() {
            [segment] if self.extensions.contains(Extensions::GET) => {
                Some(segment.address() as u64)
            }
            _ => None,
        }
    }
}

impl<B: Buffer> Engine<B> {
    /// The frequent headers of messages that are got, in a few instructions: takes one that is whole
    /// at the front of `bytes`, and returns its length. 0 says no more than that it is another case.
    ///
    /// # Errors
    /// As for [`Engine::rx_header`].
    #[inline(never)]
    pub(super) fn rx_get_header(&mut self, conn_id: ConnId, bytes: &[u8]) -> Result<usize> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if conn.header_have > 0 || !conn.extensions.contains(Extensions::GET) {
            return Ok(0);
        }
        let Some(header) = parse_get(conn.order, conn.has_wide_indices(), bytes) else {
            return Ok(0);
        };
        match header {
            GetHeader::Announced {
                flags,
                tag,
                payload_len,
                address,
                index,
            } => {
                let envelope = Envelope {
                    tag,
                    src: conn.config.src,
                    data: None,
                    len: payload_len,
                    ack: flags.wants_ack(),
                };
                let address = Some(address);
                self.start_message(conn_id, envelope, Some(Rts { index, address }));
            }
            GetHeader::Got { index } => self.handle_ats(conn_id, index)?,
        }
        Ok(header.len_bytes())
    }

    /// A message that nobody waits for, of which the header is kept: has its payload got, if it is one
    /// that is kept.
    #[cold]
    pub(super) fn keep_by_get(&mut self, conn_id: ConnId, id: MessageId) {
        let (Some(conn), Some(message)) =
            (self.conns.get_mut(conn_id), self.unexpected.get_mut(id))
        else {
            return;
        };
        let Some(Rts {
            index,
            address: address @ Some(_),
        }) = message.rts
        else {
            return;
        };
        let envelope = message.envelope;
        let longest = match envelope.tag {
            Some(_) => self.limits.eager_max.min(self.limits.kept_longest),
            None => self.limits.kept_longest,
        };
        // The rest of the room is for the headers of those that follow: without, what is behind them, such
        // as a barrier, would be held up.
        let fits = envelope.len <= longest
            && conn.kept.saturating_add(envelope.len) <= hold_back_bytes(self.limits.kept_bytes)
            && self.kept.saturating_add(envelope.len) <= hold_back_bytes(self.limits.kept_total);
        if !fits {
            return;
        }
        let entry = CtsEntry {
            address,
            target: Target::Unexpected(id),
            envelope,
        };
        if let Err(error) = conn.cts.set(index, entry) {
            return self.break_conn(conn_id, error);
        }
        match self.slots.insert(()) {
            Ok(slot) => message.slot = Some(slot),
            // It waits for its receive.
            Err(_) => _ = conn.cts.take(index),
        }
        if self.output_push(Output::Get(conn_id, index)).is_err() {
            self.not_got(conn_id, index);
        }
    }

    /// The payload of a rendezvous that is to be got; `None` if it is no more. The driver then calls
    /// [`Engine::got`] or [`Engine::not_got`].
    #[must_use]
    pub fn get(&self, conn_id: ConnId, index: u16) -> Option<Get<B>> {
        let conn = self.conns.get(conn_id)?;
        let entry = conn.cts.get(index)?;
        let len = entry.envelope.len;
        let (place, len) = match entry.target {
            Target::Recv(recv, at) => {
                let iov = self.srxs.find(conn.srx)?.recv(recv)?.iov;
                let room = iov.len().saturating_sub(at);
                (GetPlace::Memory(iov, at), len.min(room))
            }
            Target::Unexpected(id) => (GetPlace::Slot(self.unexpected.get(id)?.slot?), len),
            _ => return None,
        };
        Some(Get {
            address: entry.address?,
            len,
            place,
        })
    }

    /// The index of the next payload of a connection that is to be got, if that is what is to be done
    /// next, as [`Engine::pop_output`] would say; `None` leaves that as it is.
    pub fn pop_get(&mut self, conn_id: ConnId) -> Option<u16> {
        match self.output.front() {
            Some(&Output::Get(id, index)) if id == conn_id => {
                self.output.pop();
                Some(index)
            }
            _ => None,
        }
    }

    /// A payload of [`Engine::get`] is in its place: the receive is done or the message is kept, and the
    /// sender is told by what the driver is to write next.
    pub fn got(&mut self, conn_id: ConnId, index: u16) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let (ep, srx) = (conn.config.ep, conn.srx);
        let Some(CtsEntry {
            target, envelope, ..
        }) = conn.cts.take(index)
        else {
            return;
        };
        match target {
            Target::Recv(recv, at) => {
                self.finish_recv(Some(ep), srx, Origin::conn(conn_id), recv, at, &envelope);
            }
            Target::Unexpected(id) => {
                if let Some(message) = self.unexpected.get_mut(id) {
                    (message.rts, message.kept) = (None, envelope.len);
                    conn.kept = conn.kept.saturating_add(envelope.len);
                    self.kept = self.kept.saturating_add(envelope.len);
                    self.lower_eager_limit(conn_id);
                }
            }
            _ => {}
        }
        self.acknowledge_get(conn_id, index);
    }

    /// A payload of [`Engine::get`] is not got: the sender is asked to send it, or the message waits for
    /// its receive.
    pub fn not_got(&mut self, conn_id: ConnId, index: u16) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        match conn.cts.get(index).map(|entry| entry.target) {
            Some(Target::Unexpected(id)) => {
                conn.cts.take(index);
                let message = self.unexpected.get_mut(id);
                let slot = message.and_then(|message| message.slot.take());
                self.free_slot(slot);
            }
            Some(_) => self.send_control(conn_id, &Header::cts(index)),
            None => {}
        }
    }

    /// Whether the peer has got payloads of this side since this was asked last.
    pub fn take_has_peer_got(&mut self, conn_id: ConnId) -> bool {
        let conn = self.conns.get_mut(conn_id);
        conn.is_some_and(|conn| core::mem::take(&mut conn.got_by_peer) > 0)
    }

    /// Tells the peer from which length on this side gets messages: `1 << exponent` bytes, or none at all
    /// if that is 0.
    pub fn tell_get_limit(&mut self, conn_id: ConnId, exponent: u8) {
        let conn = self.conns.get(conn_id);
        if conn.is_some_and(|conn| conn.extensions.contains(Extensions::GET)) {
            self.send_control(conn_id, &Header::with_get_limit(exponent));
        }
    }

    /// The peer says from which length on it gets messages.
    #[cold]
    pub(super) fn handle_get_limit(&mut self, conn_id: ConnId, header: &Header) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        if !conn.extensions.contains(Extensions::GET) {
            return Err(Errno::EPROTO);
        }
        conn.can_get = header.get_limit() != u64::MAX;
        conn.get_min = header.get_limit().max(MIN_GET_BYTES);
        conn.between_trials = MIN_BETWEEN_TRIALS;
        conn.start_countdown();
        Ok(())
    }

    /// Whether both sides of a connection may copy a payload that is got.
    fn has_joint_copies(&self, conn_id: ConnId) -> bool {
        let conn = self.conns.get(conn_id);
        conn.is_some_and(|conn| conn.extensions.contains(Extensions::JOINT))
    }

    /// Whether a payload that is to be got should be copied by both sides: not where the peer has one of
    /// this side to get, as it then copies that, and does not look for work here.
    #[must_use]
    pub fn wants_joint_copy(&self, conn_id: ConnId) -> bool {
        let conn = self.conns.get(conn_id);
        self.has_joint_copies(conn_id) && conn.is_some_and(|conn| conn.indexed.is_empty())
    }

    /// Tells the peer that a joint copy was begun, or that this side has copied its parts of one: the
    /// peer's driver gets [`Output::Joint`].
    pub fn tell_joint(&mut self, conn_id: ConnId) {
        if self.has_joint_copies(conn_id) {
            self.send_control(conn_id, &Header::joint());
        }
    }

    /// The payload of a message that the peer may be getting.
    #[must_use]
    pub fn announced(&self, conn_id: ConnId, index: u16) -> Option<B> {
        let entry = self.conns.get(conn_id)?.indexed.get(index)?;
        let entry = entry.message()?;
        match entry.iov.segments() {
            [segment] if entry.is_get => Some(*segment),
            _ => None,
        }
    }

    pub(super) fn handle_joint(&mut self, conn_id: ConnId) -> Result<()> {
        match self.has_joint_copies(conn_id) {
            true => self.output_push(Output::Joint(conn_id)),
            false => Err(Errno::EPROTO),
        }
    }

    /// The peer has got the payload of a message.
    pub(super) fn handle_ats(&mut self, conn_id: ConnId, index: u16) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let entry = conn.indexed.get(index).and_then(IndexedTx::message);
        let entry = entry.filter(|entry| entry.is_get);
        let info = entry.ok_or(Errno::EPROTO)?.info;
        conn.indexed.take(index);
        conn.got_by_peer = conn.got_by_peer.saturating_add(1);
        let is_told = conn.got_by_peer == GOT_UNTIL_TOLD;
        if let Some(ep) = self.eps.get_mut(conn.config.ep) {
            ep.end_waiting(1);
        }
        self.finish(conn_id, &info);
        self.wake_postponed(conn_id);
        if is_told {
            // Without memory for it the driver knows less, and no message suffers.
            let _ = self.output_push(Output::PeerGot(conn_id));
        }
        Ok(())
    }
}
