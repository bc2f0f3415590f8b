//! Reads, and the memory of the program that devices reach.

use std::collections::VecDeque;

use ripstop_ibverbs::{Access, Operation, Remote, SendArea, Sge};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result, RmaIov};
use ripstop_wire::xnet::base::RmaIovs;

use crate::rxm::cache;
use crate::rxm::incoming::Incoming;
use crate::rxm::pipe::{Announced, LAST, Outgoing, Pipe, READ, Regions, remote};

/// The longest piece of memory that one request reads. Devices take more.
const READ_MAX: usize = 1 << 20;

impl Pipe {
    /// Where the next read goes whose request comes by the stream. The memory is registered until it is done at least, unless
    /// the program has registered it.
    ///
    /// # Errors
    /// As for [`Opened::register`](crate::rxm::devices::Opened::register).
    pub(crate) fn tell_read(&mut self, memory: &[UserBuf]) -> Result<()> {
        let mut place = self.spare.places.pop().unwrap_or_default();
        for part in memory.iter().filter(|part| !part.is_empty()) {
            place.memory.push(*part);
            let access = Access::LOCAL_WRITE;
            let registered = &self.device.registered;
            let region = match registered.find(part.addr(), part.len(), access) {
                Some((region, _)) => region,
                None => self.device.register(*part, access)?,
            };
            place.regions.push(region);
        }
        self.places.push_back(place);
        Ok(())
    }

    /// Lets the peer read a message, until it says that it has, and returns where that is.
    ///
    /// # Errors
    /// As for [`Pipe::tell_read`]; [`Errno::EINVAL`] for more pieces than an announcement names.
    pub(crate) fn announce(&mut self, index: u16, memory: &[UserBuf]) -> Result<RmaIovs> {
        let mut regions = Vec::new();
        let mut pieces = Vec::new();
        for part in memory.iter().filter(|part| !part.is_empty()) {
            let region = self.device.register(*part, Access::REMOTE_READ)?;
            pieces.push(RmaIov {
                addr: part.addr() as u64,
                len: part.len() as u64,
                key: region.rkey().into(),
            });
            regions.push(region);
        }
        let pieces = RmaIovs::new(&pieces).map_err(|_| Errno::EINVAL)?;
        let regions = Announced::Lent { _regions: regions };
        self.announced.insert(index, regions);
        Ok(pieces)
    }

    /// As [`Pipe::announce`], of a copy of `len` bytes that `fill` makes.
    ///
    /// # Errors
    /// As for [`SendArea::readable`].
    pub(crate) fn announce_copy(
        &mut self,
        index: u16,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<RmaIovs> {
        let mut copy = cache::with_room(|| SendArea::readable(&self.device.pd, len))?;
        fill(copy.bytes(0, len));
        let piece = RmaIov {
            addr: copy.addr() as u64,
            len: len as u64,
            key: copy.rkey().into(),
        };
        let copy = Announced::Copied { _copy: copy };
        self.announced.insert(index, copy);
        Ok(RmaIovs::one(piece))
    }

    /// The requests of a read of `from`, into the place that was told for it.
    pub(super) fn requests(&mut self, from: &RmaIovs) -> Result<VecDeque<(Option<Sge>, Remote)>> {
        let place = self.places.pop_front().ok_or(Errno::EPROTO)?;
        let mut parts = place.memory.iter().copied().zip(&place.regions);
        let mut here = parts.next();
        let mut requests = std::mem::take(&mut self.spare.requests);
        for piece in from.as_slice() {
            let (mut addr, mut left) = (piece.addr, piece.len);
            while left > 0 {
                let (part, region) = here.ok_or(Errno::EPROTO)?;
                let len = (left.min(READ_MAX as u64) as usize).min(part.len());
                let sge = Sge::new(part.first(len), region.lkey())?;
                requests.push_back((Some(sge), remote(addr, piece.key)?));
                addr = addr.wrapping_add(len as u64);
                left -= len as u64;
                here = match part.skip(len) {
                    rest if rest.is_empty() => parts.next(),
                    rest => Some((rest, region)),
                };
            }
        }
        if let ([piece, ..], true) = (from.as_slice(), requests.is_empty()) {
            requests.push_back((None, remote(piece.addr, piece.key)?));
        }
        self.reading.push_back(Regions::All(place));
        Ok(requests)
    }

    /// The oldest read is done: its memory is the program's alone again.
    pub(super) fn end_read(&mut self) {
        match self.reading.pop_front() {
            Some(Regions::One { .. }) => {}
            Some(Regions::All(mut place)) => {
                place.memory.clear();
                place.regions.clear();
                self.spare.places.push(place);
            }
            None => return,
        }
        self.inbox.push(Incoming::Read);
    }

    /// Posts the read of a short piece to memory in a region of the program at once; `false` says that nothing was done: the
    /// memory is in no region, there is no room, or something is being written to the link.
    pub(crate) fn read_now(&mut self, from: &RmaIov, memory: UserBuf) -> bool {
        let Ok(from) = remote(from.addr, from.key) else {
            return false;
        };
        let (addr, len) = (memory.addr(), memory.len());
        if len == 0 || len > READ_MAX {
            return false;
        }
        if self.room == 0 {
            self.poll();
        }
        if self.ended || self.room == 0 || !self.is_between_units() {
            return false;
        }
        let found = self.device.registered.find(addr, len, Access::LOCAL_WRITE);
        let Some((region, memory)) = found else {
            return false;
        };
        self.room -= 1;
        self.reading.push_back(Regions::One { _region: region });
        let posted = self.post(READ | LAST, Operation::Read(from), &[memory]);
        let is_posted = posted.is_ok();
        self.note_failure(posted);
        is_posted
    }

    /// Posts the requests of the read that is being written to the link, as far as there is room.
    pub(super) fn post_reads(&mut self) {
        while self.room > 0 && !self.ended {
            let Outgoing::Read(requests) = &mut self.outgoing else {
                return;
            };
            let Some((memory, from)) = requests.pop_front() else {
                self.outgoing = Outgoing::Header;
                return;
            };
            let last = match requests.is_empty() {
                true => LAST,
                false => 0,
            };
            if last != 0 {
                self.spare.requests = std::mem::take(requests);
                self.outgoing = Outgoing::Header;
            }
            self.room -= 1;
            let posted = self.post(READ | last, Operation::Read(from), memory.as_slice());
            self.note_failure(posted);
        }
    }
}
