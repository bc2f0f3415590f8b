//! Writes: by a buffer of the connection, or straight from a region of the program.

use ripstop_ibverbs::{Access, Operation, Remote};
use ripstop_mem::UserBuf;
use ripstop_os::IoVec;
use ripstop_types::{Errno, Result, RmaIov};
use ripstop_wire::xnet::base::RmaIovs;

use crate::rxm::pipe::{ACKED, DIRECT, Outgoing, Pipe, remote};

/// From so many bytes on in one piece, memory of the program is written from where it is. It is more than a
/// transmit buffer of the driver holds, so that memory which is used again at once is never taken for the program's.
pub(crate) const DIRECT_MIN: usize = (16 << 10) + 1;

/// Most bytes that one request writes from memory of the program. Devices take more.
const DIRECT_MAX: usize = 1 << 20;

/// A write of which not all has been taken.
#[derive(Debug)]
pub(super) struct Writing {
    to: RmaIovs,
    /// The piece of `to` that is being written.
    piece: usize,
    /// Bytes of that piece that have been taken into requests.
    done: u64,
    pub(super) slot: Option<u16>,
    /// Bytes in the buffer.
    have: usize,
    /// The engine waits for the end of the last request, and keeps the memory until then.
    ack: bool,
    pub(super) data: Option<u32>,
}

impl Writing {
    pub(super) fn new(to: RmaIovs, len: u64, ack: bool, data: Option<u32>) -> Self {
        let mut writing = Self {
            to,
            piece: 0,
            done: 0,
            slot: None,
            have: 0,
            ack,
            data,
        };
        // A write of nothing has a piece of nothing.
        if len > 0 {
            writing.advance(0);
        }
        writing
    }

    /// Whether it is of no bytes.
    pub(super) fn is_empty(&self) -> bool {
        self.to.as_slice().iter().all(|piece| piece.len == 0)
    }

    /// What is left of the piece that is being written.
    fn front(&self) -> Option<RmaIov> {
        let piece = self.to.as_slice().get(self.piece)?;
        Some(RmaIov {
            addr: piece.addr.wrapping_add(self.done),
            len: piece.len.saturating_sub(self.done),
            key: piece.key,
        })
    }

    /// So many bytes more are in a request.
    fn advance(&mut self, by: u64) {
        self.done += by;
        while self.front().is_some_and(|piece| piece.len == 0) {
            (self.piece, self.done) = (self.piece + 1, 0);
        }
    }
}

/// The end of a request that is made.
struct Made {
    to: Remote,
    /// Marks for its number.
    mark: u64,
    data: Option<u32>,
}

impl Pipe {
    /// Writes a short piece of memory of the program at once, by a buffer; `false` says that nothing was done: there is
    /// no room, or something is being written to the link.
    pub(crate) fn write_now(&mut self, to: &RmaIov, memory: UserBuf) -> bool {
        let Ok(to) = remote(to.addr, to.key) else {
            return false;
        };
        let len = memory.len();
        let fits = 0 < len && len <= self.shape.packet_max;
        if !fits {
            return false;
        }
        let Some(slot) = self.take_slot_now(false) else {
            return false;
        };
        let room = self.sends.bytes(self.shape.buffer_at(slot), len);
        IoVec::from_user(memory).copy_part(0, room);
        let posted = self.post_buffer(slot, len, Operation::Write(to, None), 0);
        let is_posted = posted.is_ok();
        self.note_failure(posted);
        is_posted
    }

    /// Takes bytes of `vec` behind the first `skip` for the write that is being written to the link.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] while there is no room.
    pub(super) fn fill_write(&mut self, vec: &IoVec<'_>, skip: usize) -> Result<usize> {
        let Outgoing::Write(writing) = &self.outgoing else {
            return Ok(0);
        };
        // The last request of it takes a receive of the peer.
        if writing.slot.is_none() && writing.data.is_some() && !self.credits.may_send() {
            return Err(Errno::EAGAIN);
        }
        let piece = writing.front().ok_or(Errno::EPROTO)?;
        if writing.ack
            && writing.slot.is_none()
            && let Some(used) = self.write_direct(vec, skip, &piece)?
        {
            return Ok(used);
        }
        self.write_copied(vec, skip, &piece)
    }

    /// Posts a part of the write from where it is, if that is in a region of the program; returns its length.
    fn write_direct(
        &mut self,
        vec: &IoVec<'_>,
        skip: usize,
        piece: &RmaIov,
    ) -> Result<Option<usize>> {
        let left = usize::try_from(piece.len).unwrap_or(usize::MAX);
        let len = (vec.len() - skip).min(left).min(DIRECT_MAX);
        if len < DIRECT_MIN {
            return Ok(None);
        }
        let addr = vec.addr() + skip;
        let found = self.device.registered.find(addr, len, Access::empty());
        let Some((region, memory)) = found else {
            return Ok(None);
        };
        if self.room == 0 {
            return Err(Errno::EAGAIN);
        }
        self.room -= 1;
        self.lent.push_back(region);
        let made = self.take_made(piece, len)?;
        let operation = Operation::Write(made.to, made.data);
        self.post(DIRECT | made.mark, operation, &[memory])?;
        Ok(Some(len))
    }

    /// Copies to a buffer, which is posted when it is full or has the last bytes of the piece.
    fn write_copied(&mut self, vec: &IoVec<'_>, skip: usize, piece: &RmaIov) -> Result<usize> {
        let slot = match &self.outgoing {
            Outgoing::Write(Writing {
                slot: Some(slot), ..
            }) => *slot,
            _ => self.take_slot().ok_or(Errno::EAGAIN)?,
        };
        let Outgoing::Write(writing) = &mut self.outgoing else {
            return Ok(0);
        };
        writing.slot = Some(slot);
        let left = usize::try_from(piece.len).unwrap_or(usize::MAX);
        let whole = left.min(self.shape.packet_max);
        let at = self.shape.buffer_at(slot) + writing.have;
        let used = vec.copy_part(skip, self.sends.bytes(at, whole - writing.have));
        writing.have += used;
        if writing.have < whole {
            return Ok(used);
        }
        (writing.slot, writing.have) = (None, 0);
        let made = self.take_made(piece, whole)?;
        let operation = Operation::Write(made.to, made.data);
        self.post_buffer(slot, whole, operation, made.mark)?;
        Ok(used)
    }

    /// Takes a part of the piece into a request, and ends the write with the last one.
    fn take_made(&mut self, piece: &RmaIov, len: usize) -> Result<Made> {
        let to = remote(piece.addr, piece.key)?;
        let Outgoing::Write(writing) = &mut self.outgoing else {
            return Err(Errno::EPROTO);
        };
        writing.advance(len as u64);
        if writing.front().is_some_and(|piece| piece.len > 0) {
            return Ok(Made {
                to,
                mark: 0,
                data: None,
            });
        }
        let made = Made {
            to,
            mark: if writing.ack { ACKED } else { 0 },
            data: writing.data,
        };
        self.outgoing = Outgoing::Header;
        if made.data.is_some() {
            self.credits.spend();
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(pieces: &[(u64, u64)]) -> RmaIovs {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|&(addr, len)| RmaIov { addr, len, key: 5 })
            .collect();
        RmaIovs::new(&pieces).expect("few")
    }

    #[test]
    fn pieces_of_nothing_are_left_out() {
        let mut writing = Writing::new(
            to(&[(1, 0), (0x100, 30), (2, 0), (0x200, 5)]),
            35,
            true,
            None,
        );
        assert!(!writing.is_empty());
        let front = |writing: &Writing| writing.front().map(|piece| (piece.addr, piece.len));
        assert_eq!(front(&writing), Some((0x100, 30)));
        writing.advance(10);
        assert_eq!(front(&writing), Some((0x10a, 20)));
        writing.advance(20);
        assert_eq!(front(&writing), Some((0x200, 5)));
        writing.advance(5);
        assert_eq!(front(&writing), None);
    }

    #[test]
    fn a_write_of_nothing_has_one_piece() {
        let writing = Writing::new(to(&[(0x100, 0)]), 0, false, Some(3));
        assert!(writing.is_empty());
        let piece = writing.front().expect("one");
        assert_eq!((piece.addr, piece.len, piece.key), (0x100, 0, 5));
    }
}
