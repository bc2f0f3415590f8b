//! What a link is read by: packets that have arrived, and the outcomes of requests, as units of the
//! engine's stream.

use std::collections::VecDeque;
use std::ops::Range;

use ripstop_os::IoVecMut;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm;
use ripstop_wire::xnet::base::{
    BASE_LEN, BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs, emit_msg, emit_response,
};

/// Bytes at the front of a packet that are the header of a message, or come before bytes of a unit.
const FRONT: usize = rxm::BASE_LEN;

/// What has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A packet of `len` bytes, in the receive with this number. With `alone` a read ends behind its front, of
    /// [`FRONT`] bytes: with them the reader learns where the others go.
    Packet { slot: u16, len: usize, alone: bool },
    /// The `len` bytes of a unit behind the header of the packet in the receive with this number: those of one unit come one
    /// after the other.
    Unit { slot: u16, len: usize },
    /// What was sent or written is with the peer, of those that the engine waits for.
    Acknowledgement,
    /// The peer has written memory of this side, and says so with this data, which has used the receive with
    /// this number. So many bytes, which are there: none of them are read.
    Written(u16, u32, usize),
    /// The peer's memory was read, to where the engine wants it: none of it follows.
    Read,
}

impl Incoming {
    /// The header of the unit; `None` of one that is there with its header.
    fn header(self) -> Option<Header> {
        let header = match self {
            Self::Packet { len, .. } => Header::new(Op::Msg, len as u64),
            Self::Unit { .. } => return None,
            Self::Acknowledgement => Header::ack(),
            Self::Written(_, data, len) => {
                let to = RmaIov {
                    len: len as u64,
                    ..RmaIov::default()
                };
                Header {
                    cq_data: Some(data.into()),
                    rma: RmaIovs::one(to),
                    ..Header::new(Op::Write, len as u64)
                }
            }
            Self::Read => Header::new(Op::ReadRsp, 0),
        };
        Some(header)
    }

    const fn len(self) -> u64 {
        match self {
            Self::Packet { len, .. } | Self::Unit { len, .. } => len as u64,
            Self::Acknowledgement | Self::Written(..) | Self::Read => 0,
        }
    }
}

/// The units that are to be read, of the first one part may be gone.
#[derive(Debug)]
pub(crate) struct Inbox {
    units: VecDeque<Incoming>,
    /// Bytes of the first unit that were read, its header among them.
    read: u64,
    /// The header of the first unit, once it was begun.
    header: [u8; MAX_HEADER],
    /// How long that is.
    header_len: u64,
}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self {
            units: VecDeque::new(),
            read: 0,
            header: [0; MAX_HEADER],
            header_len: 0,
        }
    }

    pub(crate) fn push(&mut self, unit: Incoming) {
        self.units.push_back(unit);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// What is left of a packet of which the front alone was read.
    pub(crate) fn payload_ready(&self) -> usize {
        match self.units.front() {
            Some(Incoming::Packet {
                len, alone: true, ..
            }) if self.read == self.header_len + FRONT as u64 => len.saturating_sub(FRONT),
            _ => 0,
        }
    }

    /// Reads into `vecs`, of packets by `copy`: the receive, the range of its bytes, where to, and behind how
    /// many bytes there. `done` gets the number of each receive that was read to its end. Returns how many bytes.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there is nothing.
    pub(crate) fn read(
        &mut self,
        copy: impl Fn(u16, Range<usize>, &mut IoVecMut<'_>, usize) -> usize,
        vecs: &mut [IoVecMut<'_>],
        done: &mut Vec<u16>,
    ) -> Result<usize> {
        let (mut total, mut filled, mut at) = (0, 0, 0);
        while let (Some(unit), Some(vec)) = (self.units.front().copied(), vecs.get_mut(at)) {
            if filled == vec.len() {
                (at, filled) = (at + 1, 0);
                continue;
            }
            if let Incoming::Packet {
                slot,
                len,
                alone: false,
            } = unit
                && self.read == 0
                && vec.len() - filled >= BASE_LEN + len
            {
                // All at once, as most of them.
                let header = emit_msg(ByteOrder::NATIVE, BaseFlags::empty(), 0, len as u64);
                vec.copy_part_from(filled, &header);
                copy(slot, 0..len, vec, filled + BASE_LEN);
                (filled, total) = (filled + BASE_LEN + len, total + BASE_LEN + len);
                self.units.pop_front();
                done.push(slot);
                continue;
            }
            if unit == Incoming::Read && self.read == 0 && vec.len() - filled >= BASE_LEN {
                const DONE: [u8; BASE_LEN] = emit_response(ByteOrder::NATIVE, 0);
                vec.copy_part_from(filled, &DONE);
                (filled, total) = (filled + BASE_LEN, total + BASE_LEN);
                self.units.pop_front();
                continue;
            }
            if self.read == 0 {
                let emit = |header: Header| header.emit(ByteOrder::NATIVE, &mut self.header);
                let emitted = unit.header().map_or(Ok(0), emit);
                self.header_len = emitted.map_err(|error| error.errno())? as u64;
            }
            let base = self.header_len;
            let end = base + unit.len();
            let copied = if self.read < base {
                vec.copy_part_from(filled, &self.header[self.read as usize..base as usize])
            } else {
                let at = (self.read - base) as usize;
                match unit {
                    Incoming::Packet { slot, len, alone } => {
                        let end = if alone && at < FRONT { FRONT } else { len };
                        copy(slot, at..end, vec, filled)
                    }
                    Incoming::Unit { slot, len } => {
                        copy(slot, FRONT + at..FRONT + len, vec, filled)
                    }
                    Incoming::Acknowledgement | Incoming::Written(..) | Incoming::Read => 0,
                }
            };
            (filled, total) = (filled + copied, total + copied);
            let stop = match unit {
                Incoming::Packet { alone: true, .. } => base + FRONT as u64,
                _ => u64::MAX,
            };
            let was_before = self.read < stop;
            self.advance(copied as u64, end, unit, done);
            if was_before && self.read == stop {
                break;
            }
            if copied == 0 && self.units.front() == Some(&unit) {
                break;
            }
        }
        match total {
            0 => Err(Errno::EAGAIN),
            total => Ok(total),
        }
    }

    fn advance(&mut self, by: u64, end: u64, unit: Incoming, done: &mut Vec<u16>) {
        self.read += by;
        if self.read >= end {
            self.read = 0;
            self.units.pop_front();
            if let Incoming::Packet { slot, .. }
            | Incoming::Unit { slot, .. }
            | Incoming::Written(slot, ..) = unit
            {
                done.push(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn packet(slot: u16, len: usize, alone: bool) -> Incoming {
        Incoming::Packet { slot, len, alone }
    }

    /// Reads all there is with so much room at a time.
    fn all(inbox: &mut Inbox, step: usize) -> (Vec<u8>, Vec<u16>) {
        let (mut bytes, mut done) = (Vec::new(), Vec::new());
        let unit = [&[7; FRONT][..], b"a unit"].concat();
        let packets = [b"first".to_vec(), b"second one".to_vec(), Vec::new(), unit];
        loop {
            let mut room = vec![0; step];
            let (front, back) = room.split_at_mut(step / 2);
            let mut vecs = [IoVecMut::from_slice(front), IoVecMut::from_slice(back)];
            let copy = |slot: u16, range: Range<usize>, vec: &mut IoVecMut<'_>, skip: usize| {
                vec.copy_part_from(skip, &packets[usize::from(slot)][range])
            };
            match inbox.read(copy, &mut vecs, &mut done) {
                Ok(count) => bytes.extend_from_slice(&room[..count]),
                Err(error) => {
                    assert_eq!(error, Errno::EAGAIN);
                    return (bytes, done);
                }
            }
        }
    }

    #[test]
    fn units_come_whole_whatever_room_there_is() {
        let units = [
            packet(0, 5, false),
            Incoming::Read,
            Incoming::Acknowledgement,
            Incoming::Written(2, 3, 1000),
            packet(1, 10, false),
            Incoming::Unit { slot: 3, len: 6 },
            Incoming::Read,
        ];
        let header = |unit: Incoming| {
            let mut bytes = [0; MAX_HEADER];
            let Some(header) = unit.header() else {
                return Vec::new();
            };
            let emitted = header.emit(ByteOrder::NATIVE, &mut bytes);
            bytes[..emitted.expect("fits")].to_vec()
        };
        let parts = [&b"first"[..], b"", b"", b"", b"second one", b"a unit", b""];
        let expected: Vec<u8> = units
            .iter()
            .zip(parts)
            .flat_map(|(unit, part)| [header(*unit), part.to_vec()].concat())
            .collect();
        for step in [2, 3, 16, 17, 40, 4096] {
            let mut inbox = Inbox::new();
            units.iter().for_each(|unit| inbox.push(*unit));
            let (bytes, done) = all(&mut inbox, step);
            assert_eq!(bytes, expected, "{step}");
            assert_eq!(done, [0, 2, 1, 3], "{step}");
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn the_front_of_a_long_packet_comes_alone() {
        let mut inbox = Inbox::new();
        for unit in [
            packet(0, 5, false),
            packet(1, FRONT + 4, true),
            packet(0, 5, false),
        ] {
            inbox.push(unit);
        }
        let long = [&[7; FRONT][..], b" one"].concat();
        let read = |inbox: &mut Inbox, room: usize| {
            let mut room = vec![0; room];
            let mut vecs = [IoVecMut::from_slice(&mut room)];
            let copy = |slot: u16, range: Range<usize>, vec: &mut IoVecMut<'_>, skip: usize| {
                let bytes = [&b"first"[..], &long][usize::from(slot)];
                vec.copy_part_from(skip, &bytes[range])
            };
            let count = inbox.read(copy, &mut vecs, &mut Vec::new());
            let count = count.unwrap_or_default();
            room[..count].to_vec()
        };
        let header = |len| emit_msg(ByteOrder::NATIVE, BaseFlags::empty(), 0, len).to_vec();
        let first = [header(5), b"first".to_vec()].concat();
        assert_eq!(inbox.payload_ready(), 0);
        let front = [first.clone(), header(FRONT as u64 + 4), vec![7; FRONT]].concat();
        assert_eq!(read(&mut inbox, 200), front);
        assert_eq!(inbox.payload_ready(), 4);
        // What goes elsewhere is read alone, or with what follows.
        assert_eq!(read(&mut inbox, 2), b" o");
        assert_eq!(inbox.payload_ready(), 0);
        let rest = [b"ne".to_vec(), first].concat();
        assert_eq!(read(&mut inbox, 64), rest);
        assert_eq!(read(&mut inbox, 64), b"");
    }
}
