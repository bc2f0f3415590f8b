//! The fast path of small messages: where nothing else waits to be written, the driver sends a
//! message before the engine has noted anything of it, or coalesces it with those before it.

use ripstop_types::{Completion, Context, Result};
use ripstop_wire::rxm::{MESSAGE_LEN, emit_message};

use crate::Buffer;
use crate::id::{ConnId, EpId};
use crate::stream::engine::{Engine, Limits};
use crate::stream::message_header::put_header;
use crate::stream::request::{SEND_HEADER, Send, SendPlan, TxDone, TxInfo, tx_flags};

/// A small message for [`Engine::coalesce`].
#[derive(Clone, Copy, Debug)]
pub struct SmallMessage {
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Bytes of payload.
    pub len: u64,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
}

impl<B: Buffer> Engine<B> {
    /// The longest payload in bytes for [`Engine::try_send_now`]: it fits the transmit buffer if only
    /// a part is written, and needs no rendezvous.
    #[must_use]
    pub fn longest_sent_now(&self, inject: bool) -> u64 {
        let Limits {
            tx_buffer,
            inline,
            eager_max,
            ..
        } = self.limits;
        let fits = tx_buffer.saturating_sub(SEND_HEADER) as u64;
        if inject {
            return fits;
        }
        fits.min(inline as u64).min(eager_max)
    }

    /// The longest payload in bytes for [`Engine::try_send_now`] of a driver that sends payloads in
    /// place: what is left of one fits the transmit buffer.
    #[must_use]
    pub fn longest_sent_in_place(&self) -> u64 {
        self.longest_sent_now(true).min(self.limits.eager_max)
    }

    /// Writes the header of a message that may be written to the stream before the engine
    /// notes anything of it, and returns its length in bytes: the connection is up and nothing
    /// else waits to be written. `None` says that [`Engine::send`] is the way.
    ///
    /// If all of header and payload was written, [`Engine::sent_now`] reports it, and for
    /// an injected message on an endpoint without a counter nothing is to be done. If only a
    /// part was, [`Engine::send_partly_written`] queues the message and [`Engine::sent`] takes the part.
    /// If nothing was, [`Engine::send`] is the way. The message must be no longer than
    /// [`Engine::longest_sent_now`] and need no acknowledgement. That there is no connection yet is
    /// found by the same look-up. `INJECT` says that it is injected: none of those is got.
    #[inline(always)]
    #[must_use]
    pub fn try_send_now<const INJECT: bool>(
        &mut self,
        conn_id: Option<ConnId>,
        tag: Option<u64>,
        data: Option<u64>,
        len: u64,
        header: &mut [u8; SEND_HEADER],
    ) -> Option<usize> {
        let conn = self.conns.find_mut(conn_id)?;
        let limit = match INJECT {
            true => conn.inject_now_limit,
            false => conn.send_now_limit,
        };
        if len >= limit || conn.has_output() {
            return None;
        }
        if !INJECT {
            conn.count_sent_now(len);
        }
        put_header(conn.order, tag, data, false, len, header)
    }

    /// As [`Engine::try_send_now`], on a connection for packets: the header is as long as its room.
    #[inline(always)]
    #[must_use]
    pub fn try_send_packet_now(
        &self,
        conn_id: Option<ConnId>,
        tag: Option<u64>,
        data: Option<u64>,
        len: u64,
        header: &mut [u8; MESSAGE_LEN],
    ) -> bool {
        let Some(conn) = self.conns.find(conn_id) else {
            return false;
        };
        let Some(packets) = &conn.packets else {
            return false;
        };
        if len >= conn.packet_now_limit || conn.has_output() {
            return false;
        }
        *header = emit_message(conn.order, packets.to, tag, data, len);
        true
    }

    /// Says that a connection is the sending end of an endpoint's connection to itself. Its messages are not
    /// for [`Engine::try_send_now`] or [`Engine::try_send_packet_now`]: the driver is to know of each.
    pub fn note_to_itself(&mut self, conn_id: ConnId) {
        if let Some(conn) = self.conns.get_mut(conn_id) {
            conn.to_itself = true;
            conn.set_ready_to_send(conn.ready_to_send);
        }
    }

    /// Reports a message of [`Engine::try_send_now`] that was written whole.
    #[inline(always)]
    pub fn sent_now(
        &mut self,
        ep: EpId,
        tagged: bool,
        context: Context,
        len: u64,
        completion: bool,
    ) {
        let Some(ep) = self.eps.get(ep) else { return };
        if let Some(counter) = self.counters.find_mut(ep.config.tx_counter) {
            counter.success(len);
        }
        if completion && let Some(cq) = self.cqs.at_mut(ep.tx_cq) {
            cq.push(Completion {
                context,
                flags: tx_flags(tagged),
                ..Completion::BLANK
            });
        }
    }

    /// Coalesces a small message with others that wait to be written: queues it, and writes its header to the front
    /// of the free room of the connection's transmit buffer; the payload belongs behind it.
    /// Returns the header's length in bytes. `None` says that [`Engine::send`] is the way.
    ///
    /// The message must be no longer than [`Engine::longest_sent_now`] and need no
    /// acknowledgement.
    #[inline(always)]
    #[must_use]
    pub fn coalesce(
        &mut self,
        conn_id: Option<ConnId>,
        message: &SmallMessage,
        header: &mut [u8; SEND_HEADER],
    ) -> Option<usize> {
        let conn = self.conns.find_mut(conn_id)?;
        let ep = self.eps.get_mut(conn.config.ep)?;
        let room = self.limits.tx_buffer.saturating_sub(conn.buffered) as u64;
        let full = !ep.has_room();
        if !conn.ready_to_send
            || conn.packets.is_some()
            || full
            || room < message.len.saturating_add(SEND_HEADER as u64)
        {
            return None;
        }
        let (tag, len) = (message.tag, message.len);
        let header_len = put_header(conn.order, tag, message.data, false, len, header)?;
        let buffered = len.wrapping_add(header_len as u64);
        let noted = message.completion || ep.counts_sends();
        if noted {
            let end = conn.queued.wrapping_add(buffered);
            let info = TxInfo {
                context: message.context,
                flags: tx_flags(tag.is_some()),
                completion: message.completion,
                ack: false,
                len,
            };
            conn.dones.push(TxDone { end, info }).ok()?;
        }
        if conn.queue_buffered(buffered).is_err() {
            if noted {
                conn.dones.pop_back();
            }
            return None;
        }
        ep.outstanding = ep.outstanding.wrapping_add(u32::from(noted));
        Some(header_len)
    }

    /// Queues a message of [`Engine::try_send_now`] of which the front has been written. As
    /// [`Engine::send`], whatever the number of sends not yet completed.
    ///
    /// # Errors
    /// [`ripstop_types::Errno::ENOTCONN`] for an unknown connection, [`ripstop_types::Errno::ENOMEM`]: the stream has ended
    /// in the middle of a message, and the connection is to be closed.
    pub fn send_partly_written(&mut self, conn_id: ConnId, send: &Send<B>) -> Result<SendPlan> {
        let (conn, ep, limits) = self.parts(conn_id)?;
        Self::append_eager(conn, ep, limits, send)
    }
}
