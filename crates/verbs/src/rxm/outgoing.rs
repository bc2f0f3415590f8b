//! What is written to a link: units of the engine's stream, of which each becomes a request or several.
//!
//! The stream is that of `tcp;ofi_rxm`. Its unit headers go nowhere: they say where a packet ends, and what
//! is to be read or written.

use ripstop_os::IoVec;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{
    self, BASE_LEN, BaseFlags, Header, MAX_HEADER, OP_ACK, Op, RmaIovs,
};

/// What follows a unit header, which has been taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Started {
    /// A packet of so many bytes, to be sent as one message. Whether the engine waits until the peer has it.
    Packet(usize, bool),
    /// Nothing; the peer's memory is to be read.
    Read(RmaIovs),
    /// So many bytes for the peer's memory. As for a packet. With data that the peer is told of then.
    Write(RmaIovs, u64, bool, Option<u32>),
    /// So many bytes, which with the header, of so many bytes, go in packets of units: of a collective.
    Unit(usize, u64),
    /// Nothing, and nothing is to be done: peers are told by their devices what has arrived.
    Acknowledgement,
}

/// The header of a unit as far as it has come.
#[derive(Debug)]
pub(crate) struct UnitHeader {
    bytes: [u8; MAX_HEADER],
    have: usize,
}

impl UnitHeader {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: [0; MAX_HEADER],
            have: 0,
        }
    }

    /// Takes bytes from `vec` behind its first `skip`; returns how many, and what follows once the header is
    /// whole.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for a unit that this side does not send.
    pub(crate) fn take(
        &mut self,
        vec: &IoVec<'_>,
        skip: usize,
    ) -> Result<(usize, Option<Started>)> {
        let mut used = 0;
        loop {
            let need = match self.have {
                ..BASE_LEN => BASE_LEN,
                _ => self.len()?,
            };
            if self.have == need {
                let started = self.parse(need)?;
                self.have = 0;
                return Ok((used, Some(started)));
            }
            let room = self.bytes.get_mut(self.have..need).unwrap_or_default();
            let taken = vec.copy_part(skip + used, room);
            if taken == 0 {
                return Ok((used, None));
            }
            used += taken;
            self.have += taken;
        }
    }

    /// The front of the header that was taken last, while nothing of the next one has come.
    pub(crate) fn last(&self, len: usize) -> &[u8] {
        self.bytes.get(..len).unwrap_or_default()
    }

    /// Whether nothing of the next one has come.
    pub(crate) const fn is_empty(&self) -> bool {
        self.have == 0
    }

    fn is_packet(&self) -> bool {
        let [_, op, _, _, op_data, ..] = self.bytes;
        op == Op::Msg as u8 && op_data != OP_ACK
    }

    /// How long it is, of which the front is there.
    fn len(&self) -> Result<usize> {
        match self.is_packet() {
            true => Ok(BASE_LEN),
            false => base::peek_len(&self.bytes).map_err(|error| error.errno()),
        }
    }

    fn parse(&self, len: usize) -> Result<Started> {
        let bytes = self.bytes.get(..len).unwrap_or_default();
        let header = Header::parse(ByteOrder::NATIVE, bytes).map_err(|error| error.errno())?;
        let ack = header.flags.contains(BaseFlags::DELIVERY_COMPLETE);
        let payload = header.payload_len;
        match header.op {
            Op::Msg if header.is_ack() => Ok(Started::Acknowledgement),
            Op::Msg => {
                let len = usize::try_from(payload).map_err(|_| Errno::EPROTO)?;
                Ok(Started::Packet(len, ack))
            }
            Op::Coll => Ok(Started::Unit(len, payload)),
            Op::ReadReq => Ok(Started::Read(header.rma)),
            Op::Write => {
                // There are 32 bits in immediate data, as the domain says.
                let data = header.cq_data.map(|data| data as u32);
                Ok(Started::Write(header.rma, payload, ack, data))
            }
            _ => Err(Errno::EPROTO),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_wire::xnet::base::{Coll, CollKind, RmaIov};

    /// The header in pieces of `step` bytes, with bytes behind it that are not its own.
    fn started(header: &Header, step: usize) -> Result<Started> {
        let mut bytes = [7; MAX_HEADER + 9];
        let len = header.emit(ByteOrder::NATIVE, &mut bytes).expect("fits");
        let mut unit = UnitHeader::new();
        let mut at = 0;
        while at < len {
            let end = (at + step).min(bytes.len());
            let (used, started) = unit.take(&IoVec::from_slice(&bytes[..end]), at)?;
            at += used;
            if let Some(started) = started {
                assert_eq!(at, len);
                return Ok(started);
            }
            assert_eq!(at, end);
        }
        panic!("the header is whole");
    }

    #[test]
    fn headers_say_what_follows_in_whatever_pieces_they_come() {
        let to = RmaIovs::new(&[
            RmaIov {
                addr: 0x1000,
                len: 70,
                key: 5,
            },
            RmaIov {
                addr: 0x2000,
                len: 30,
                key: 6,
            },
        ])
        .expect("two");
        let packet = Header {
            flags: BaseFlags::DELIVERY_COMPLETE,
            ..Header::new(Op::Msg, 80)
        };
        let read = Header {
            rma: to,
            ..Header::new(Op::ReadReq, 0)
        };
        let write = Header {
            rma: to,
            cq_data: Some(9),
            ..Header::new(Op::Write, 100)
        };
        for step in [1, 3, 16, 200] {
            assert_eq!(started(&packet, step), Ok(Started::Packet(80, true)));
            assert_eq!(started(&read, step), Ok(Started::Read(to)));
            assert_eq!(
                started(&write, step),
                Ok(Started::Write(to, 100, false, Some(9)))
            );
            let ack = Header::ack();
            assert_eq!(started(&ack, step), Ok(Started::Acknowledgement));
            let coll = Header::coll(Coll {
                kind: CollKind::Data,
                len: 12,
                ..Coll::default()
            });
            assert_eq!(started(&coll, step), Ok(Started::Unit(48, 12)));
            let other = Header::new(Op::ReadRsp, 4);
            assert_eq!(started(&other, step), Err(Errno::EPROTO));
        }
    }
}
