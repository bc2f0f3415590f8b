//! Units of collectives, which are in no packet over tcp: here they go in packets of their own kind, between two of this
//! library (`docs/design/rxm.md`).

use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;
use ripstop_ibverbs::Operation;
use ripstop_os::IoVec;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{BASE_LEN, Body, Packet};
use ripstop_wire::xnet::base::{Header, MAX_HEADER, Op};

use crate::rxm::NAME;
use crate::rxm::incoming::Incoming;
use crate::rxm::pipe::{Outgoing, Pipe};

/// A unit of which not all has gone out.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendingUnit {
    /// Bytes of its header that are in no packet: all or none of them.
    header: usize,
    /// Bytes of its payload that were not taken from the stream.
    left: u64,
    slot: Option<u16>,
    /// Bytes of the packet that is being filled, its header among them.
    have: usize,
}

impl SendingUnit {
    /// A unit with a header of so many bytes, which was taken, and so much payload.
    pub(super) const fn new(header: usize, payload: u64) -> Self {
        Self {
            header,
            left: payload,
            slot: None,
            have: BASE_LEN,
        }
    }

    /// Whether all of it was taken from the stream.
    pub(super) const fn is_read(&self) -> bool {
        self.left == 0
    }

    /// Whether bytes for it are taken in any case.
    pub(super) const fn has_slot(&self) -> bool {
        self.slot.is_some()
    }
}

/// How much is missing of the unit that is arriving.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ComingUnit {
    left: u64,
}

impl ComingUnit {
    /// Takes the `len` bytes of a packet, which begin with `front`.
    ///
    /// # Errors
    /// [`Errno::EPROTO`] for a unit that is not of a collective, and for bytes behind one.
    fn take(&mut self, front: &[u8], len: u64) -> Result<()> {
        let all = match self.left {
            0 => {
                let header = Header::parse(ByteOrder::NATIVE, front).map_err(|e| e.errno())?;
                if header.op != Op::Coll {
                    return Err(Errno::EPROTO);
                }
                header.payload_len.saturating_add(header.len() as u64)
            }
            left => left,
        };
        let taken = (len > 0).then(|| all.checked_sub(len)).flatten();
        self.left = taken.ok_or(Errno::EPROTO)?;
        Ok(())
    }
}

impl Pipe {
    /// Takes bytes of `vec` behind the first `skip` for the unit that is being written to the link.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while there is no room.
    #[cold]
    #[inline(never)]
    pub(super) fn fill_unit(&mut self, vec: &IoVec<'_>, skip: usize) -> Result<usize> {
        let Outgoing::Unit(mut unit) = self.outgoing else {
            return Ok(0);
        };
        let slot = match unit.slot {
            Some(slot) => slot,
            None if !self.credits.may_send() => return Err(Errno::EAGAIN),
            None => {
                let slot = self.take_slot().ok_or(Errno::EAGAIN)?;
                self.credits.spend();
                slot
            }
        };
        unit.slot = Some(slot);
        let start = self.shape.buffer_at(slot);
        let header = self.header.last(std::mem::take(&mut unit.header));
        if !header.is_empty() {
            let room = self.sends.bytes(start + unit.have, header.len());
            room.copy_from_slice(header);
            unit.have += header.len();
        }
        let room = self.shape.packet_max - unit.have;
        let len = usize::try_from(unit.left).map_or(room, |left| left.min(room));
        let used = vec.copy_part(skip, self.sends.bytes(start + unit.have, len));
        unit.have += used;
        unit.left -= used as u64;
        self.outgoing = Outgoing::Unit(unit);
        if unit.left == 0 || unit.have == self.shape.packet_max {
            self.post_unit(slot, unit)?;
        }
        Ok(used)
    }

    /// Posts a packet that is whole.
    fn post_unit(&mut self, slot: u16, unit: SendingUnit) -> Result<()> {
        let packet = Packet {
            conn: self.to,
            body: Body::Unit((unit.have - BASE_LEN) as u64),
        };
        let front = self.sends.bytes(self.shape.buffer_at(slot), BASE_LEN);
        let emitted = packet.emit(ByteOrder::NATIVE, front);
        emitted.map_err(|error| error.errno())?;
        self.outgoing = match unit.left {
            0 => Outgoing::Header,
            left => Outgoing::Unit(SendingUnit::new(0, left)),
        };
        self.post_buffer(slot, unit.have, Operation::Send(None), 0)
    }

    /// A packet of units has arrived, of so many bytes and with this front. Only units of collectives are passed on: what
    /// others say, the link itself knows from its device.
    #[cold]
    #[inline(never)]
    pub(super) fn received_unit(&mut self, slot: u16, len: usize, front: &[u8; BASE_LEN]) {
        let mut header = [0; MAX_HEADER];
        let there = len.saturating_sub(BASE_LEN);
        let header = &mut header[..there.min(MAX_HEADER)];
        self.receives
            .read(self.shape.buffer_at(slot) + BASE_LEN, header);
        let taken = Packet::parse(ByteOrder::NATIVE, front, len as u64)
            .map_err(|error| error.errno())
            .and_then(|_| self.coming.take(header, there as u64));
        match taken {
            Ok(()) => self.inbox.push(Incoming::Unit { slot, len: there }),
            Err(error) => {
                fi_warn!(
                    NAME,
                    Subsys::EpData,
                    "a connection ends, a packet of {len} bytes has no unit of a collective: {error}"
                );
                self.ended = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_wire::xnet::base::{Coll, CollKind};

    fn header(header: &Header) -> Vec<u8> {
        let mut bytes = [0; MAX_HEADER];
        let len = header.emit(ByteOrder::NATIVE, &mut bytes).expect("fits");
        bytes[..len].to_vec()
    }

    fn coll(len: u64) -> Vec<u8> {
        header(&Header::coll(Coll {
            kind: CollKind::Data,
            len,
            ..Coll::default()
        }))
    }

    #[test]
    fn units_of_collectives_come_whole_one_after_the_other() {
        let mut coming = ComingUnit::default();
        let front = coll(100);
        let len = front.len() as u64;
        assert_eq!(coming.take(&front, len + 40), Ok(()));
        // What is in the middle is not looked at.
        assert_eq!(coming.take(&[0; 4], 60), Ok(()));
        assert_eq!(coming.take(&coll(0), len), Ok(()));
        assert_eq!(coming.take(&front, len + 99), Ok(()));
        assert_eq!(coming.take(&[0; 4], 2), Err(Errno::EPROTO));
    }

    #[test]
    fn nothing_else_comes_in_these_packets() {
        let take = |front: &[u8], len| ComingUnit::default().take(front, len);
        let front = coll(100);
        let len = front.len() as u64;
        assert_eq!(take(&front, len + 101), Err(Errno::EPROTO));
        assert!(take(&[], 0).is_err());
        assert!(take(&front[..20], 20).is_err());
        for op in [Op::ReadRsp, Op::Msg] {
            let front = header(&Header::new(op, 0));
            assert_eq!(take(&front, front.len() as u64), Err(Errno::EPROTO));
        }
        let mut coming = ComingUnit { left: 5 };
        assert_eq!(coming.take(&[], 0), Err(Errno::EPROTO));
    }
}
