//! Receives of packets, and the credits that tell the peer of them.

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::{Operation, RecvRequest, Sge};
use ripstop_types::Result;
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{BASE_LEN, Body, Packet, PacketKind};

use crate::rxm::NAME;
use crate::rxm::pipe::Pipe;

/// Receives that are posted at a time, at most.
pub(super) const RECEIVES: usize = 8;

/// From so many bytes of payload on, the header of a message is read alone, so that the payload is copied once, to where
/// it goes. Shorter ones are read with their header and what follows, which costs less than another read.
const PAYLOAD_ALONE_MIN: usize = 8192;

/// Whether the header of a packet is read alone. `front` is its beginning, `len` its length in bytes.
#[inline]
pub(super) fn front_alone(front: &[u8; BASE_LEN], len: usize) -> bool {
    if len < BASE_LEN + PAYLOAD_ALONE_MIN {
        return false;
    }
    let [_, kind, ..] = *front;
    let kind = PacketKind::from_number(kind);
    matches!(kind, Some(PacketKind::Eager | PacketKind::Segment))
}

impl Pipe {
    /// Posts at most [`RECEIVES`].
    pub(super) fn post_receives(&self, slots: &[u16]) -> Result<()> {
        let mut memory = [Sge::default(); RECEIVES];
        for (memory, slot) in memory.iter_mut().zip(slots) {
            let at = self.shape.buffer_at(*slot);
            *memory = self.receives.sge(at, self.shape.packet_max)?;
        }
        let mut requests: [_; RECEIVES] = std::array::from_fn(|at| {
            let slot = slots.get(at).copied().unwrap_or_default();
            RecvRequest::one(slot.into(), &memory[at])
        });
        let requests = requests.get_mut(..slots.len()).unwrap_or_default();
        self.qp.post_recv(requests).map_err(|error| error.errno)
    }

    /// Posts the receives again whose packets were read, once they are worth a call.
    #[inline]
    pub(super) fn post_again(&mut self) {
        if self.done.len() >= self.shape.posted_again_at_once() {
            self.post_done();
        }
    }

    #[inline(never)]
    fn post_done(&mut self) {
        for slots in self.done.chunks(RECEIVES) {
            if let Err(error) = self.post_receives(slots) {
                fi_warn!(NAME, Subsys::EpData, "a receive is not posted: {error}");
                self.ended = true;
                break;
            }
        }
        self.credits.owe(self.done.len() as u64);
        self.done.clear();
        self.give_credits();
    }

    pub(super) fn give_credits(&mut self) {
        if self.ended || !self.credit_free {
            return;
        }
        let Some(more) = self.credits.give() else {
            return;
        };
        let packet = Packet {
            conn: self.to,
            body: Body::Credit(more),
        };
        self.credit_free = false;
        let slot = self.shape.credit_send();
        let bytes = self.sends.bytes(self.shape.buffer_at(slot), BASE_LEN);
        let emitted = packet.emit(ByteOrder::NATIVE, bytes);
        let posted = emitted
            .map_err(|error| error.errno())
            .and_then(|_| self.post_buffer(slot, BASE_LEN, Operation::Send(None), 0));
        self.note_failure(posted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_long_messages_are_read_behind_their_headers() {
        let front = |kind: PacketKind| {
            let mut front = [0; BASE_LEN];
            front[1] = kind.number();
            front
        };
        let long = BASE_LEN + PAYLOAD_ALONE_MIN;
        assert!(front_alone(&front(PacketKind::Eager), long));
        assert!(front_alone(&front(PacketKind::Segment), long));
        assert!(!front_alone(&front(PacketKind::Eager), long - 1));
        assert!(!front_alone(&front(PacketKind::Atomic), long));
    }
}
