//! Records on the socket of a pair: which regions of their sender the peer may map
//! ([`windows`](crate::windows)) or access by address ([`attach`](crate::attach)).
//!
//! A record has 48 bytes; numbers are little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0 | kind. 1, offer: the receiver may map the region. 2, revoke: the grant has ended. 3, address: the receiver may access the region by address. 4, request: the sender asks for a record of kind 3. A byte of 0 in this place is a doorbell |
//! | 1 | in kind 3: rights, 1 read, 2 write, 3 both; else 0 |
//! | 2..4 | 0 |
//! | 4..8 | the grant's slot in the sender's status page, below 64 |
//! | 8..16 | the grant's generation, odd: the value of the slot as long as the grant is valid |
//! | 16..24 | the key of the region |
//! | 24..32 | the address of its first byte in remote operations |
//! | 32..40 | its length, at least 1 |
//! | 40..48 | where it begins: the offset in the descriptor's memory (kind 1), or the address in the sender's process (kind 3) |
//!
//! An offer carries exactly one descriptor, the other kinds none. A revocation has only slot and
//! generation, the rest is 0; it lets the peer unmap sooner, while the slot itself says that the grant
//! has ended. A request has only the key, and is answered by a record of kind 3 or not at all.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use ripstop_mem::ring::Grant;
use ripstop_types::RmaIov;

/// Bytes of a record.
pub(crate) const RECORD_BYTES: usize = 48;

/// The reason given for bytes that are no record.
const UNKNOWN_RECORD: &str = "a record of no known kind";

/// The reason given for descriptors that belong to no record.
const TOO_MANY_FDS: &str = "more descriptors than records";

/// The kinds of records, and the byte that is a doorbell.
const OFFER: u8 = 1;
const REVOKE: u8 = 2;
const ADDRESS: u8 = 3;
const REQUEST: u8 = 4;
const DOORBELL: u8 = 0;

/// A record, as sent to a peer or received from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The receiver may map the region, whose descriptor comes with the record.
    Offer(OfferedRegion),
    /// The grant has ended.
    Revoke(Grant),
    /// The receiver may access the region by address.
    Address(AddressedRegion),
    /// The sender asks for the address of the region with this key.
    Request(u64),
}

/// The accesses that a region permits by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rights {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// The description of a region in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegionInfo {
    pub(crate) grant: Grant,
    pub(crate) key: u64,
    pub(crate) base: u64,
    pub(crate) len: u64,
}

/// A region that the receiver of the record may map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OfferedRegion {
    pub(crate) info: RegionInfo,
    /// Where it begins in the memory of the descriptor.
    pub(crate) offset: u64,
}

/// A region that the receiver of the record may access by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressedRegion {
    pub(crate) info: RegionInfo,
    /// Where it begins in the owner's process.
    pub(crate) addr: u64,
    pub(crate) rights: Rights,
}

impl RegionInfo {
    /// The last words of its record; it begins at `start`.
    const fn words(&self, start: u64) -> [u64; 4] {
        [self.key, self.base, self.len, start]
    }

    /// Whether both can be there at once: a slot has one region, and a key.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.grant.slot() != other.grant.slot() && self.key != other.key
    }

    /// Where `place` begins in the region; `None` unless all of it is inside, at least a byte.
    pub(crate) fn find(&self, place: &RmaIov) -> Option<u64> {
        let at = place.addr.checked_sub(self.base)?;
        let end = at.checked_add(place.len)?;
        (place.len > 0 && end <= self.len).then_some(at)
    }
}

impl Record {
    pub(crate) fn emit(&self) -> [u8; RECORD_BYTES] {
        let (kind, rights, grant, rest) = match self {
            Self::Offer(OfferedRegion { info, offset }) => {
                (OFFER, 0, Some(info.grant), info.words(*offset))
            }
            Self::Revoke(grant) => (REVOKE, 0, Some(*grant), [0; 4]),
            Self::Address(AddressedRegion { info, addr, rights }) => {
                let rights = u8::from(rights.read) | u8::from(rights.write) << 1;
                (ADDRESS, rights, Some(info.grant), info.words(*addr))
            }
            Self::Request(key) => (REQUEST, 0, None, [*key, 0, 0, 0]),
        };
        let (slot, generation) = grant.map_or((0, 0), |g| (g.slot(), g.generation()));
        let mut bytes = [0; RECORD_BYTES];
        [bytes[0], bytes[1]] = [kind, rights];
        bytes[4..8].copy_from_slice(&slot.to_le_bytes());
        let words = std::iter::once(generation).chain(rest);
        for (place, word) in bytes[8..].as_chunks_mut().0.iter_mut().zip(words) {
            *place = word.to_le_bytes();
        }
        bytes
    }

    /// Parses a record; the error says what is wrong with it.
    fn parse(bytes: &[u8; RECORD_BYTES]) -> Result<Self, &'static str> {
        let (head, rest) = bytes.split_at(8);
        let &[kind, rights, 0, 0, s0, s1, s2, s3] = head else {
            return Err(UNKNOWN_RECORD);
        };
        let slot = u32::from_le_bytes([s0, s1, s2, s3]);
        let &[generation, key, base, len, start] = rest.as_chunks().0 else {
            return Err(UNKNOWN_RECORD);
        };
        let [generation, key, base, len, start] =
            [generation, key, base, len, start].map(u64::from_le_bytes);
        match (kind, rights, slot) {
            (OFFER | REVOKE, 0, _) | (ADDRESS, 1..4, _) => {}
            (REQUEST, 0, 0) if generation == 0 => return Ok(Self::Request(key)),
            _ => return Err(UNKNOWN_RECORD),
        }
        let grant = Grant::new(slot, generation).ok_or("a region in a slot that cannot be")?;
        let info = RegionInfo {
            grant,
            key,
            base,
            len,
        };
        if kind == REVOKE {
            return Ok(Self::Revoke(grant));
        }
        if info.len == 0 || info.base.checked_add(info.len - 1).is_none() {
            return Err("a region of a length that cannot be");
        }
        if kind == ADDRESS {
            let rights = Rights {
                read: rights & 1 != 0,
                write: rights & 2 != 0,
            };
            let region = AddressedRegion {
                info,
                addr: start,
                rights,
            };
            return match region.addr.checked_add(info.len) {
                Some(_) => Ok(Self::Address(region)),
                None => Err("a region at an address that cannot be"),
            };
        }
        Ok(Self::Offer(OfferedRegion {
            info,
            offset: start,
        }))
    }
}

/// Assembles records from the bytes and descriptors that reads of the socket bring.
#[derive(Debug, Default)]
pub(crate) struct RecordReader {
    bytes: Vec<u8>,
    /// The descriptor of the record that is arriving, and perhaps that of the next: the kernel ends a
    /// read after bytes that carry descriptors, not before them.
    descriptors: VecDeque<OwnedFd>,
    /// Descriptors were lost, so it is unknown which record the others belong to: none is used any more.
    descriptors_lost: bool,
}

impl RecordReader {
    /// Whether a part of a record has arrived, and its rest has not.
    pub(crate) const fn is_partial(&self) -> bool {
        !self.bytes.is_empty()
    }

    /// Adds what one read has brought, and calls `complete` for each whole record. `descriptors` is `None`
    /// if the kernel dropped some for lack of room. The error says how the peer broke the protocol.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        descriptors: Option<Vec<OwnedFd>>,
        mut complete: impl FnMut(Record, Option<OwnedFd>),
    ) -> Result<(), &'static str> {
        self.descriptors_lost |= descriptors.is_none();
        self.descriptors.extend(descriptors.into_iter().flatten());
        if self.descriptors_lost {
            self.descriptors.clear();
        }
        if self.descriptors.len() > 2 {
            return Err(TOO_MANY_FDS);
        }
        for &byte in bytes {
            if self.bytes.is_empty() && byte == DOORBELL {
                continue;
            }
            self.bytes.push(byte);
            if let Ok(record) = <&[u8; RECORD_BYTES]>::try_from(&self.bytes[..]) {
                let record = Record::parse(record)?;
                let offered = matches!(record, Record::Offer(_));
                let descriptor = match offered {
                    true => self.descriptors.pop_front(),
                    false => None,
                };
                if offered && descriptor.is_none() && !self.descriptors_lost {
                    return Err("a record without its descriptor");
                }
                complete(record, descriptor);
                self.bytes.clear();
            } else if !matches!(self.bytes[0], OFFER..=REQUEST) {
                return Err(UNKNOWN_RECORD);
            }
        }
        match self.descriptors.len() > usize::from(!self.bytes.is_empty()) {
            true => Err(TOO_MANY_FDS),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use ripstop_os::MemFd;

    use super::*;

    /// A region of 4 KiB.
    pub(crate) fn info() -> RegionInfo {
        RegionInfo {
            grant: Grant::new(5, 7).unwrap(),
            key: 0x1122_3344_5566_7788,
            base: 0x1000,
            len: 4096,
        }
    }

    /// The same, as its peer may map it.
    pub(crate) fn offered() -> OfferedRegion {
        OfferedRegion {
            info: info(),
            offset: 0,
        }
    }

    /// The same, as its peer may access it by its address.
    pub(crate) fn addressed(rights: Rights) -> AddressedRegion {
        AddressedRegion {
            info: info(),
            addr: 0x7000,
            rights,
        }
    }

    fn offer() -> Record {
        Record::Offer(offered())
    }

    /// Memory that a peer may map.
    pub(crate) fn memory(len: usize) -> OwnedFd {
        let memory = MemFd::create("test", len).unwrap();
        memory.seal().unwrap();
        memory.into()
    }

    #[test]
    fn records_arrive_in_parts_among_doorbells() {
        let stream = [&[0, 0][..], &offer().emit(), &[0], &offer().emit(), &[0]].concat();
        for step in 1..stream.len() {
            let mut record_reader = RecordReader::default();
            let mut got = Vec::new();
            for (index, part) in stream.chunks(step).enumerate() {
                // A descriptor comes with the first byte of its record.
                let range = index * step..index * step + part.len();
                let starts = [2, 3 + RECORD_BYTES].iter().filter(|at| range.contains(at));
                let fds: Vec<_> = starts.map(|_| memory(64)).collect();
                if fds.len() > 1 {
                    // The kernel ends a read behind bytes that have some.
                    got.extend([offer(); 2]);
                    break;
                }
                record_reader
                    .push(part, Some(fds), |r, _| got.push(r))
                    .unwrap();
            }
            assert_eq!(got, [offer(); 2], "in steps of {step}");
        }
    }

    #[test]
    fn malformed_records_are_refused() {
        let take = |bytes: &[u8], fds| RecordReader::default().push(bytes, Some(fds), |_, _| ());
        let good = offer().emit();
        assert_eq!(take(&good, vec![memory(64)]), Ok(()));
        assert!(take(&good, vec![]).is_err());
        assert!(take(&good, vec![memory(64), memory(64)]).is_err());
        assert!(take(&[0], vec![memory(64)]).is_err());
        assert!(take(&[5], vec![]).is_err());
        let ended = Record::Revoke(info().grant).emit();
        assert_eq!(take(&ended, vec![]), Ok(()));
        assert!(take(&ended, vec![memory(64)]).is_err());
        for (at, value) in [(1, 1), (3, 1), (4, 64), (7, 1), (8, 6)] {
            let mut bad = good;
            bad[at] = value;
            assert!(take(&bad, vec![memory(64)]).is_err(), "byte {at}");
        }
        let lengths = [(0, 0), (u64::MAX, 2), (2, u64::MAX)];
        for (base, len) in lengths {
            let info = RegionInfo {
                base,
                len,
                ..info()
            };
            let bad = Record::Offer(OfferedRegion { info, ..offered() });
            assert!(take(&bad.emit(), vec![memory(64)]).is_err());
        }
    }

    #[test]
    fn address_and_request_records_round_trip() {
        let parse = |bytes: &[u8; RECORD_BYTES]| Record::parse(bytes);
        let both = Rights {
            read: true,
            write: true,
        };
        for rights in [
            both,
            Rights {
                read: false,
                ..both
            },
            Rights {
                write: false,
                ..both
            },
        ] {
            let sent = Record::Address(addressed(rights));
            assert_eq!(parse(&sent.emit()), Ok(sent));
        }
        let asked = Record::Request(u64::MAX);
        assert_eq!(parse(&asked.emit()), Ok(asked));
        let good = Record::Address(addressed(both)).emit();
        for (at, value) in [(1, 0), (1, 4), (2, 1), (4, 64), (8, 6)] {
            let mut bad = good;
            bad[at] = value;
            assert!(parse(&bad).is_err(), "byte {at}");
        }
        for (at, value) in [(1, 1), (4, 1), (8, 1)] {
            let mut bad = asked.emit();
            bad[at] = value;
            assert!(parse(&bad).is_err(), "byte {at}");
        }
        let beyond = AddressedRegion {
            addr: u64::MAX - 5,
            ..addressed(both)
        };
        assert!(parse(&Record::Address(beyond).emit()).is_err());
        let mut record_reader = RecordReader::default();
        let lent = record_reader.push(&good, Some(vec![memory(64)]), |_, _| ());
        assert!(lent.is_err(), "no descriptor comes with it");
    }

    /// A process without free descriptors goes on by the ring.
    #[test]
    fn lost_descriptors_are_no_error() {
        let mut record_reader = RecordReader::default();
        let mut got = Vec::new();
        for fds in [None, Some(vec![memory(64)]), Some(vec![])] {
            let taken =
                record_reader.push(&offer().emit(), fds, |record, fd| got.push((record, fd)));
            assert_eq!(taken, Ok(()));
        }
        assert!(got.iter().all(|(_, fd)| fd.is_none()));
        assert_eq!(got.len(), 3);
    }
}
