//! The three most frequent headers, without the general header's moves and branches.

use ripstop_types::RmaIov;

use crate::ByteOrder;
use crate::cursor::join;

use super::{BASE_LEN, BaseFlags, Op, VERSION};

/// Length of a tagged header without completion data, in bytes.
const TAG_LEN: usize = 24;

/// The header of a message without completion data.
///
/// The flag [`BaseFlags::REMOTE_CQ_DATA`] is left out. `payload_len` is in bytes; above
/// 2⁶⁴ − 17, more than any memory holds, it counts as that.
#[inline]
#[must_use]
pub const fn emit_msg(
    order: ByteOrder,
    flags: BaseFlags,
    id: u8,
    payload_len: u64,
) -> [u8; BASE_LEN] {
    join(base(order, Op::Msg, flags, BASE_LEN as u8, id, payload_len))
}

/// The header of a tagged message without completion data.
///
/// The flag [`BaseFlags::REMOTE_CQ_DATA`] is left out. `payload_len` is in bytes; above
/// 2⁶⁴ − 25, more than any memory holds, it counts as that.
#[inline]
#[must_use]
pub const fn emit_tag(
    order: ByteOrder,
    flags: BaseFlags,
    id: u8,
    tag: u64,
    payload_len: u64,
) -> [u8; TAG_LEN] {
    let [first, size] = base(order, Op::Tag, flags, TAG_LEN as u8, id, payload_len);
    join([first, size, order.bytes64(tag)])
}

/// Length of the header of a write to one segment without completion data, in bytes.
pub const WRITE_LEN: usize = 40;

/// The header of a write to one segment that is as long as the payload, without completion data.
///
/// The segment is at most 2⁶⁴ − 41 bytes; a longer one, more than any memory holds, counts as that.
#[inline]
#[must_use]
pub const fn emit_write(order: ByteOrder, to: RmaIov) -> [u8; WRITE_LEN] {
    const FIRST: u64 = fixed(VERSION, Op::Write as u8, 0, WRITE_LEN as u8) | ONE_SEGMENT;
    join([
        FIRST.to_le_bytes(),
        order.bytes64(to.len.saturating_add(WRITE_LEN as u64)),
        order.bytes64(to.addr),
        order.bytes64(to.len),
        order.bytes64(to.key),
    ])
}

/// Reads the header of a write to one segment, if it is all there, asks for nothing more (no
/// flags, no completion data), and its payload is as long as the segment. `None` is as for
/// [`parse_small`].
#[inline]
#[must_use]
pub fn parse_write(order: ByteOrder, bytes: &[u8]) -> Option<RmaIov> {
    const FIRST: u64 = fixed(VERSION, Op::Write as u8, 0, WRITE_LEN as u8) | ONE_SEGMENT;
    /// All but the sequence number.
    const CHECKED: u64 = u64::MAX >> 8;
    let (&[first, size, addr, len, key], _) = bytes.as_chunks::<8>().0.split_first_chunk()?;
    if u64::from_le_bytes(first) & CHECKED != FIRST {
        return None;
    }
    let len = order.u64(len);
    let payload_len = order.u64(size).checked_sub(WRITE_LEN as u64)?;
    (payload_len == len).then_some(RmaIov {
        addr: order.u64(addr),
        len,
        key: order.u64(key),
    })
}

/// One segment, in the first eight bytes of a header.
const ONE_SEGMENT: u64 = 1 << 40;

/// The two words that every header starts with.
#[inline]
const fn base(
    order: ByteOrder,
    op: Op,
    flags: BaseFlags,
    len: u8,
    id: u8,
    payload_len: u64,
) -> [[u8; 8]; 2] {
    let [f0, f1] = order.bytes16(flags.difference(BaseFlags::REMOTE_CQ_DATA).bits());
    [
        [VERSION, op as u8, f0, f1, 0, 0, len, id],
        order.bytes64(payload_len.saturating_add(len as u64)),
    ]
}

/// A message or tagged message without completion data, and not an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Small {
    /// Flags, never with [`BaseFlags::REMOTE_CQ_DATA`].
    pub flags: BaseFlags,
    /// The tag of a tagged message.
    pub tag: Option<u64>,
    /// Length of the payload in bytes.
    pub payload_len: u64,
}

impl Small {
    /// Length of its header in bytes.
    #[inline]
    #[must_use]
    pub const fn header_len(&self) -> usize {
        match self.tag {
            None => BASE_LEN,
            Some(_) => TAG_LEN,
        }
    }
}

/// Reads a header that is all there and is one of the two frequent ones.
///
/// `None` says no more than "not here": the header may be incomplete, of another kind or
/// malformed. [`Header::parse`](super::Header::parse) tells.
#[inline]
#[must_use]
pub fn parse_small(order: ByteOrder, bytes: &[u8]) -> Option<Small> {
    let (&[first, size], rest) = bytes.as_chunks::<8>().0.split_first_chunk::<2>()?;
    let first = u64::from_le_bytes(first);
    // One comparison for version, operation, `op_data` and header length; byte order does not
    // touch them.
    const CHECKED: u64 = fixed(0xff, 0xff, 0xff, 0xff);
    const MSG: u64 = fixed(VERSION, Op::Msg as u8, 0, BASE_LEN as u8);
    const TAG: u64 = fixed(VERSION, Op::Tag as u8, 0, TAG_LEN as u8);
    let (tag, len) = match first & CHECKED {
        TAG => (Some(order.u64(*rest.first()?)), TAG_LEN),
        MSG => (None, BASE_LEN),
        _ => return None,
    };
    let [_, _, f0, f1, ..] = first.to_le_bytes();
    let flags = BaseFlags::from_bits_retain(order.u16([f0, f1]));
    if flags.contains(BaseFlags::REMOTE_CQ_DATA) {
        return None;
    }
    Some(Small {
        flags,
        tag,
        payload_len: order.u64(size).checked_sub(len as u64)?,
    })
}

/// A header that concerns a message whose payload is got from its sender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GetHeader {
    /// An announcement ([`Op::MsgGet`], [`Op::TagGet`]), without completion data.
    Announced {
        /// Flags, never with [`BaseFlags::REMOTE_CQ_DATA`].
        flags: BaseFlags,
        /// The tag of a tagged message.
        tag: Option<u64>,
        /// Length of the payload in bytes.
        payload_len: u64,
        /// Where the payload is, in the process of its sender.
        address: u64,
        /// The index, as [`Header::index`](super::Header::index).
        index: u16,
    },
    /// The payload of this index was got ([`Op::Ats`]).
    Got {
        /// The index, as [`Header::index`](super::Header::index).
        index: u16,
    },
}

impl GetHeader {
    /// Its length in bytes.
    #[inline]
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        match self {
            Self::Announced { tag: Some(_), .. } => TAG_GET_LEN,
            Self::Announced { tag: None, .. } => MSG_GET_LEN,
            Self::Got { .. } => BASE_LEN,
        }
    }
}

/// Lengths of announcements without completion data, in bytes.
const MSG_GET_LEN: usize = 24;
/// That of a tagged message, which is the longer one.
pub const TAG_GET_LEN: usize = 32;

/// The header of an announcement without completion data, and how many of the bytes it has. The low byte of the index is not 0.
///
/// The payload is at most 2⁶⁴ − 33 bytes; a longer one, more than any memory holds, counts as that.
#[inline]
#[must_use]
pub const fn emit_announced(
    order: ByteOrder,
    flags: BaseFlags,
    tag: Option<u64>,
    payload_len: u64,
    address: u64,
    index: u16,
) -> ([u8; TAG_GET_LEN], usize) {
    let address = order.bytes64(address);
    let (op, len, third, fourth) = match tag {
        Some(tag) => (Op::TagGet, TAG_GET_LEN, order.bytes64(tag), address),
        None => (Op::MsgGet, MSG_GET_LEN, address, [0; 8]),
    };
    let [first, size] = base(order, op, flags, len as u8, 0, payload_len);
    (join([with_index(first, index), size, third, fourth]), len)
}

/// The header that says that the payload of this index was got. The low byte of the index is not 0.
#[inline]
#[must_use]
pub const fn emit_got(order: ByteOrder, index: u16) -> [u8; BASE_LEN] {
    let none = BaseFlags::empty();
    let [first, size] = base(order, Op::Ats, none, BASE_LEN as u8, 0, 0);
    join([with_index(first, index), size])
}

/// The header of the response to a read, whose payload follows.
///
/// `payload_len` is as for [`emit_msg`].
#[inline]
#[must_use]
pub const fn emit_response(order: ByteOrder, payload_len: u64) -> [u8; BASE_LEN] {
    let none = BaseFlags::empty();
    join(base(
        order,
        Op::ReadRsp,
        none,
        BASE_LEN as u8,
        0,
        payload_len,
    ))
}

/// The first word of a header with an index.
const fn with_index(first: [u8; 8], index: u16) -> [u8; 8] {
    let [version, op, f0, f1, _, _, len, id] = first;
    let [high, low] = index.to_be_bytes();
    [version, op, f0, f1, low, high, len, id]
}

/// Reads a [`GetHeader`] that is all there. `wide` is as for [`Header::index`](super::Header::index).
///
/// `None` is as for [`parse_small`].
#[inline]
#[must_use]
pub fn parse_get(order: ByteOrder, wide: bool, bytes: &[u8]) -> Option<GetHeader> {
    // All of the first word but flags, index and sequence number.
    const CHECKED: u64 = fixed(0xff, 0xff, 0, 0xff);
    const GOT: u64 = fixed(VERSION, Op::Ats as u8, 0, BASE_LEN as u8);
    const MSG: u64 = fixed(VERSION, Op::MsgGet as u8, 0, MSG_GET_LEN as u8);
    const TAG: u64 = fixed(VERSION, Op::TagGet as u8, 0, TAG_GET_LEN as u8);
    let (&[first, size], rest) = bytes.as_chunks::<8>().0.split_first_chunk::<2>()?;
    let [_, _, f0, f1, low, high, ..] = first;
    let index = u16::from_be_bytes([if wide { high } else { 0 }, low]);
    let flags = BaseFlags::from_bits_retain(order.u16([f0, f1]));
    if low == 0 || flags.contains(BaseFlags::REMOTE_CQ_DATA) {
        return None;
    }
    let (tag, address, len) = match u64::from_le_bytes(first) & CHECKED {
        TAG => match rest {
            [tag, address, ..] => (Some(order.u64(*tag)), *address, TAG_GET_LEN),
            _ => return None,
        },
        MSG => (None, *rest.first()?, MSG_GET_LEN),
        GOT if order.u64(size) == BASE_LEN as u64 => return Some(GetHeader::Got { index }),
        _ => return None,
    };
    Some(GetHeader::Announced {
        flags,
        tag,
        payload_len: order.u64(size).checked_sub(len as u64)?,
        address: order.u64(address),
        index,
    })
}

/// All of the first word but the sequence number.
const CHECKED: u64 = u64::MAX >> 8;
const SOLE_MSG: u64 = fixed(VERSION, Op::Msg as u8, 0, BASE_LEN as u8);
const SOLE_TAG: u64 = fixed(VERSION, Op::Tag as u8, 0, TAG_LEN as u8);

/// Whether a header whose first word this is may be one for [`parse_sole`], in any byte order.
#[inline(always)]
#[must_use]
pub const fn may_be_sole(first: [u8; 8]) -> bool {
    matches!(u64::from_le_bytes(first) & CHECKED, SOLE_MSG | SOLE_TAG)
}

/// Reads the header of a message that is `len` bytes with its payload, from its first three words
/// of eight bytes, if it is one of the two frequent ones and has no flags. Behind a header of 16
/// bytes the third word is not looked at.
///
/// `None` is as for [`parse_small`].
#[inline(always)]
#[must_use]
pub fn parse_sole(order: ByteOrder, words: [[u8; 8]; 3], len: usize) -> Option<Small> {
    let [first, size, tag] = words;
    if order.u64(size) != len as u64 {
        return None;
    }
    let (tag, header_len) = match u64::from_le_bytes(first) & CHECKED {
        SOLE_TAG => (Some(order.u64(tag)), TAG_LEN),
        SOLE_MSG => (None, BASE_LEN),
        _ => return None,
    };
    Some(Small {
        flags: BaseFlags::empty(),
        tag,
        payload_len: len.checked_sub(header_len)? as u64,
    })
}

/// The first eight bytes of a header as a little-endian number, without flags, segment count
/// and sequence number.
const fn fixed(version: u8, op: u8, op_data: u8, len: u8) -> u64 {
    u64::from_le_bytes([version, op, 0, 0, op_data, 0, len, 0])
}
