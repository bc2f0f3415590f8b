//! Messages nobody waits for yet: kept within bounds, or left in the stream.

use ripstop_types::Errno;
use ripstop_wire::xnet::base::Reason;

use crate::Buffer;
use crate::id::{ConnId, MessageId};
use crate::matching::{Rts, Unexpected};
use crate::stream::arriving::{RxState, Target};
use crate::stream::engine::Engine;

impl<B: Buffer> Engine<B> {
    /// A message nobody waits for takes its place among the unexpected ones.
    #[cold]
    #[inline(never)]
    pub(super) fn start_unexpected(&mut self, conn_id: ConnId, rts: Option<Rts>) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let message = Unexpected {
            envelope: conn.envelope,
            ep: Some(conn.config.ep),
            conn: Some(conn_id),
            departed: None,
            slot: None,
            kept: 0,
            parked: true,
            rts,
            claimed: None,
            holder: None,
            ask_first: false,
            lost: None,
        };
        let Ok(id) = self.unexpected.insert(message) else {
            conn.rx = RxState::Blocked(None);
            return self.break_conn(conn_id, Errno::ENOMEM);
        };
        conn.rx = RxState::Blocked(Some(id));
        let Some(matcher) = self.srxs.find_mut(conn.srx) else {
            return self.keep(conn_id, id);
        };
        matcher.add_unexpected(&mut self.unexpected, id);
        match matcher.is_owned() {
            true => self.announce(conn_id, id),
            false => self.keep(conn_id, id),
        }
    }

    /// Keeps the message a connection is blocked on, if there is room. Without, the
    /// connection waits until a receive takes the message, earlier ones of the connection are
    /// taken, or, where all connections together have too many, any.
    pub(super) fn keep(&mut self, conn_id: ConnId, id: MessageId) {
        let (Some(conn), Some(message)) =
            (self.conns.get_mut(conn_id), self.unexpected.get_mut(id))
        else {
            return;
        };
        let (payload, weight) = (message.payload(), message.weight());
        let own = conn.kept.saturating_add(weight);
        let full = own > self.limits.kept_bytes || conn.kept_count >= self.limits.kept_messages;
        if full || payload > self.limits.kept_longest {
            return;
        }
        let all = self.kept.saturating_add(weight);
        if all > self.limits.kept_total {
            // Without memory for the note, only its own messages can make room.
            conn.starved = conn.starved || self.starved.push(conn_id).is_ok();
            return;
        }
        if payload > 0 {
            let Ok(slot) = self.slots.insert(()) else {
                return;
            };
            message.slot = Some(slot);
        }
        message.parked = false;
        self.kept = all;
        conn.kept = own;
        conn.kept_count = conn.kept_count.saturating_add(1);
        if payload > 0 {
            conn.rx = RxState::Payload {
                target: Target::Unexpected(id),
                done: 0,
                left: conn.payload_len(payload),
            };
            return self.lower_eager_limit(conn_id);
        }
        conn.rx = RxState::Header;
        if message.rts.is_some() {
            self.keep_by_get(conn_id, id);
        } else if message.envelope.ack {
            self.acknowledge(conn_id);
        }
    }

    /// The driver has no memory for the slot it was told to fill: nothing of it has been
    /// kept, and the connection is blocked on the message. An atomic without memory for its
    /// operands is refused.
    pub fn rx_no_memory(&mut self, conn_id: ConnId) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let id = match conn.rx {
            RxState::Payload {
                target: Target::Unexpected(id),
                done: 0,
                ..
            } => id,
            RxState::Payload {
                target: Target::Operands,
                ..
            } => {
                conn.write.refusal.1 = Reason::Failed;
                conn.envelope.ack = false;
                conn.refuse_rest();
                return self.release_write(conn_id);
            }
            RxState::Payload {
                target: Target::Coll,
                ..
            } => return self.coll_rx_no_memory(conn_id),
            _ => return,
        };
        let Some(message) = self.unexpected.get_mut(id) else {
            return;
        };
        let weight = message.weight();
        conn.rx = RxState::Blocked(Some(id));
        conn.kept = conn.kept.saturating_sub(weight);
        conn.kept_count = conn.kept_count.saturating_sub(1);
        message.parked = true;
        let slot = message.slot.take();
        self.free_slot(slot);
        self.make_room(weight);
    }

    /// Forgets an unexpected message that is in no queue, and what it kept.
    pub(super) fn forget_unexpected(&mut self, id: MessageId) {
        let Some(message) = self.unexpected.remove(id) else {
            return;
        };
        self.free_slot(message.slot);
        if let Some(departed) = message.departed {
            self.leave_departed(departed);
        }
        if message.parked {
            return;
        }
        if let Some(conn_id) = message.conn
            && let Some(conn) = self.conns.get_mut(conn_id)
        {
            conn.kept = conn.kept.saturating_sub(message.weight());
            conn.kept_count = conn.kept_count.saturating_sub(1);
            if matches!(conn.rx, RxState::Blocked { .. }) {
                self.resume(conn_id);
            }
            self.lift_eager_limit(conn_id);
        }
        self.make_room(message.weight());
    }

    /// Less is kept: connections that wait for that try again.
    pub(super) fn make_room(&mut self, weight: u64) {
        self.kept = self.kept.saturating_sub(weight);
        for _ in 0..self.starved.len() {
            let Some(id) = self.starved.pop() else { break };
            let Some(conn) = self.conns.get_mut(id) else {
                continue;
            };
            conn.starved = false;
            if matches!(conn.rx, RxState::Blocked { .. }) {
                self.resume(id);
            }
        }
    }
}
