//! Messages that come in several packets, the segments (`docs/design/rxm.md`). The engine sends
//! none: over devices the link makes them of packets that are too long for one.
//!
//! Between two of its segments a message is among those whose payload is awaited, as a rendezvous is.

use ripstop_types::{Errno, Result};
use ripstop_wire::rxm::{Part, Segment};

use crate::Buffer;
use crate::id::ConnId;
use crate::matching::Envelope;
use crate::ring::try_push;
use crate::stream::arriving::{RxState, Target};
use crate::stream::awaited::CtsEntry;
use crate::stream::engine::Engine;
use crate::stream::packet_state::{ArrivingSegment, Expected, Packets, Received};

/// How many messages of one connection may be there in part. Senders of the C library send one after
/// the other.
const MAX_SEGMENTED: usize = 256;

impl Packets {
    /// The message in segments that the sender calls so.
    fn segmented(&self, id: u64) -> Option<(u16, Received)> {
        self.segmented.iter().find_map(|index| {
            let Some(Expected::Segments(received)) = self.expected.get(*index) else {
                return None;
            };
            (received.id == id).then_some((*index, *received))
        })
    }

    /// The message that begins with this segment.
    fn add_segmented(&mut self, segment: &Segment) -> Result<u16> {
        if self.segmented.len() >= MAX_SEGMENTED || self.segmented(segment.id).is_some() {
            return Err(Errno::EPROTO);
        }
        let received = Received {
            id: segment.id,
            next: 0,
            have: 0,
        };
        let index = self.expected.insert(Expected::Segments(received), true)?;
        if let Err(error) = try_push(&mut self.segmented, index) {
            self.expected.take(index);
            return Err(error);
        }
        Ok(index)
    }

    /// Takes note of the segment that has come; returns its message's index, if more of that follow.
    fn end_segment(&mut self, segment: ArrivingSegment, len: u64) -> Option<u16> {
        let ArrivingSegment { index, len: more } = segment;
        if let Some(Expected::Segments(received)) = self.expected.get_mut(index) {
            received.have = received.have.saturating_add(more);
            received.next = received.next.wrapping_add(1);
            if received.have < len {
                return Some(index);
            }
        }
        self.expected.take(index);
        self.segmented.retain(|other| *other != index);
        None
    }
}

impl<B: Buffer> Engine<B> {
    /// The header of a segment has come. `envelope` is that of its message.
    pub(super) fn start_segment(
        &mut self,
        conn_id: ConnId,
        envelope: Envelope,
        segment: &Segment,
    ) -> Result<()> {
        let conn = self.conns.get_mut(conn_id).ok_or(Errno::ENOTCONN)?;
        let packets = conn.packets.as_mut().ok_or(Errno::EPROTO)?;
        let len = u64::from(segment.len);
        let is_first = segment.part == Part::First;
        let (index, received) = match is_first {
            true => {
                let index = packets.add_segmented(segment)?;
                (index, packets.segmented(segment.id).ok_or(Errno::EPROTO)?.1)
            }
            false => packets.segmented(segment.id).ok_or(Errno::EPROTO)?,
        };
        let have = received.have.checked_add(len).ok_or(Errno::EPROTO)?;
        let fits = match segment.part {
            Part::First | Part::Middle => have < envelope.len,
            Part::Last => have == envelope.len,
        };
        if len == 0 || !fits || segment.number != received.next {
            return Err(Errno::EPROTO);
        }
        packets.segment = Some(ArrivingSegment { index, len });
        if is_first {
            self.start_message(conn_id, envelope, None);
            return Ok(());
        }
        let begun = conn.cts.get(index).ok_or(Errno::EPROTO)?;
        if begun.envelope.len != envelope.len {
            return Err(Errno::EPROTO);
        }
        conn.envelope = Envelope {
            ack: envelope.ack,
            ..begun.envelope
        };
        let target = begun.target;
        conn.cts.take(index);
        conn.rx = RxState::Payload {
            target,
            done: received.have,
            left: len,
        };
        Ok(())
    }

    /// The payload of a packet, or of another unit of a connection for packets, is in its place.
    pub(super) fn finish_unit(&mut self, conn_id: ConnId, target: Target) {
        let Some(conn) = self.conns.get_mut(conn_id) else {
            return;
        };
        let envelope = conn.envelope;
        let packets = conn.packets.as_mut();
        let more = packets.and_then(|packets| {
            let segment = packets.segment.take()?;
            packets.end_segment(segment, envelope.len)
        });
        let Some(index) = more else {
            return self.finish_payload(conn_id, target);
        };
        let entry = CtsEntry {
            address: None,
            target,
            envelope,
        };
        if let Err(error) = conn.cts.set(index, entry) {
            if let Target::Recv(recv, _) = target {
                self.fail_recv(conn_id, recv, &envelope, error);
            }
            return self.break_conn(conn_id, error);
        }
        if envelope.ack {
            self.acknowledge(conn_id);
        }
    }
}
