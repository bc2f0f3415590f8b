//! Messages: in one packet each, or in segments, as many packets as it takes.
//!
//! The engine knows packets of any length. A longer one than the peer has room for is cut up here: its header is that of
//! each segment, with what tells segments apart. The peer puts them together, whatever its library.

use ripstop_ibverbs::Operation;
use ripstop_os::IoVec;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{BASE_LEN, Body, Message, Packet, Part, Segment};

use crate::rxm::pipe::{ACKED, Outgoing, Pipe};

/// A message of which not all has been taken from the stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Bytes of the packet that is being filled.
    len: usize,
    slot: Option<u16>,
    /// Bytes of it that are in its buffer.
    have: usize,
    /// Bytes of the message that go into later packets.
    left: usize,
    /// The message and the segment that is being filled, once the first is whole.
    segment: Option<(Message, Segment)>,
    /// The engine waits until the peer has it.
    ack: bool,
}

impl Sending {
    /// A message that is a packet of `len` bytes to the engine; `None` if it has no header.
    pub(super) fn new(len: usize, ack: bool, packet_max: usize) -> Option<Self> {
        (len >= BASE_LEN).then_some(Self {
            len: len.min(packet_max),
            slot: None,
            have: 0,
            left: len.saturating_sub(packet_max),
            segment: None,
            ack,
        })
    }

    /// Whether bytes for it are taken in any case.
    pub(super) const fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Whether it is in more than one packet.
    const fn is_segmented(&self) -> bool {
        self.left > 0 || self.segment.is_some()
    }

    /// What follows the segment that is whole, if anything.
    fn next(&self, packet_max: usize) -> Option<Self> {
        let (message, segment) = self.segment?;
        if self.left == 0 {
            return None;
        }
        let len = self.left.min(packet_max - BASE_LEN);
        let left = self.left - len;
        let part = match left {
            0 => Part::Last,
            _ => Part::Middle,
        };
        let segment = Segment {
            number: segment.number.wrapping_add(1),
            part,
            // As no packet is longer: messages are in segments only where that holds.
            len: len as u16,
            ..segment
        };
        Some(Self {
            len: BASE_LEN + len,
            slot: None,
            have: BASE_LEN,
            left,
            segment: Some((message, segment)),
            ack: self.ack,
        })
    }
}

impl Pipe {
    /// Takes bytes of `vec` behind the first `skip` for the message that is being written to the link.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while there is no room.
    pub(super) fn fill_packet(&mut self, vec: &IoVec<'_>, skip: usize) -> Result<usize> {
        let Outgoing::Message(mut sending) = self.outgoing else {
            return Ok(0);
        };
        let slot = match sending.slot {
            Some(slot) => slot,
            None if !self.credits.may_send() => return Err(Errno::EAGAIN),
            None => {
                let slot = self.take_slot().ok_or(Errno::EAGAIN)?;
                self.credits.spend();
                slot
            }
        };
        let at = self.shape.buffer_at(slot) + sending.have;
        let room = self.sends.bytes(at, sending.len - sending.have);
        let used = vec.copy_part(skip, room);
        sending.slot = Some(slot);
        sending.have += used;
        self.outgoing = Outgoing::Message(sending);
        if sending.have == sending.len {
            self.post_packet(slot, sending)?;
        }
        Ok(used)
    }

    /// Posts a packet that is whole.
    fn post_packet(&mut self, slot: u16, mut sending: Sending) -> Result<()> {
        if sending.is_segmented() {
            self.put_segment_header(slot, &mut sending)?;
        }
        let next = sending.next(self.shape.packet_max);
        let mark = match next {
            None if sending.ack => ACKED,
            _ => 0,
        };
        self.outgoing = next.map_or(Outgoing::Header, Outgoing::Message);
        self.post_buffer(slot, sending.len, Operation::Send(None), mark)
    }

    /// Writes the header of a segment to the front of its buffer; in that of the first is the header of the message.
    #[inline(never)]
    fn put_segment_header(&mut self, slot: u16, sending: &mut Sending) -> Result<()> {
        let order = ByteOrder::NATIVE;
        let front = self.sends.bytes(self.shape.buffer_at(slot), BASE_LEN);
        let (message, segment) = match sending.segment {
            Some(said) => said,
            None => {
                let whole = (sending.len + sending.left) as u64;
                let packet = Packet::parse(order, front, whole).map_err(|error| error.errno())?;
                let Body::Eager(message) = packet.body else {
                    return Err(Errno::EMSGSIZE);
                };
                let len = sending.len - BASE_LEN;
                let segment = Segment {
                    id: self.next_segmented,
                    number: 0,
                    part: Part::First,
                    len: u16::try_from(len).map_err(|_| Errno::EMSGSIZE)?,
                };
                self.next_segmented = self.next_segmented.wrapping_add(1);
                (message, segment)
            }
        };
        sending.segment = Some((message, segment));
        let packet = Packet {
            conn: self.to,
            body: Body::Segment(message, segment),
        };
        packet.emit(order, front).map_err(|error| error.errno())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lengths and parts of the packets of a message whose first segment is said to be one.
    fn packets(len: usize, packet_max: usize) -> Vec<(usize, Option<Part>)> {
        let mut sending = Sending::new(len, false, packet_max).expect("a header");
        let mut packets = Vec::new();
        if !sending.is_segmented() {
            return vec![(sending.len, None)];
        }
        let first = Segment {
            id: 3,
            number: 0,
            part: Part::First,
            len: (sending.len - BASE_LEN) as u16,
        };
        sending.segment = Some((Message::default(), first));
        loop {
            let (_, segment) = sending.segment.expect("said");
            assert_eq!(sending.len, BASE_LEN + usize::from(segment.len));
            assert_eq!((segment.id, segment.number as usize), (3, packets.len()));
            packets.push((sending.len, Some(segment.part)));
            match sending.next(packet_max) {
                Some(next) => sending = next,
                None => return packets,
            }
        }
    }

    #[test]
    fn messages_longer_than_a_packet_are_segments() {
        use Part::{First, Last, Middle};
        let max = BASE_LEN + 100;
        assert_eq!(packets(BASE_LEN, max), [(BASE_LEN, None)]);
        assert_eq!(packets(max, max), [(max, None)]);
        let expected = [(max, Some(First)), (BASE_LEN + 1, Some(Last))];
        assert_eq!(packets(max + 1, max), expected);
        let expected = [(max, Some(First)), (max, Some(Last))];
        assert_eq!(packets(max + 100, max), expected);
        let last = (BASE_LEN + 50, Some(Last));
        let expected = [(max, Some(First)), (max, Some(Middle)), last];
        assert_eq!(packets(max + 150, max), expected);
        assert!(Sending::new(BASE_LEN - 1, false, max).is_none());
    }
}
