//! Packets over xnet: a header of [`xnet`](crate::xnet) with the packet's behind it.

use crate::xnet::base::{self, BaseFlags, Header, OP_ACK, Op};
use crate::{ByteOrder, WireError};

use super::packet::{MAX_PACKET_HEADER, Packet, packet_len};

/// The longest header of a unit in bytes: that of xnet, and that of a packet.
pub const MAX_UNIT_HEADER: usize = base::BASE_LEN + MAX_PACKET_HEADER;

/// The flag of C libfabric 1.17 for a tagged message that is in no packet.
const TAGGED: u16 = 1 << 7;

/// What a connection for packets carries: a packet, or a unit that has nothing to do with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A packet. Of its message's flags only those that ask for an acknowledgement mean something.
    Packet(Packet, BaseFlags),
    /// An acknowledgement, or a unit of reads and writes; or, as a `Tag`, a message of C libfabric
    /// 1.17 that is in no packet.
    Plain(Header),
}

/// How the header of a unit goes on behind its first 16 bytes.
enum Layout {
    /// With a packet of so many bytes in all.
    Packet(u64, BaseFlags),
    /// As the header of a tagged message.
    Tagged,
    /// As that of the operation.
    Plain,
}

impl Layout {
    fn of(order: ByteOrder, first: &[u8]) -> Result<Self, WireError> {
        let Some(
            &[
                version,
                op,
                f0,
                f1,
                op_data,
                _,
                len,
                _,
                s0,
                s1,
                s2,
                s3,
                s4,
                s5,
                s6,
                s7,
            ],
        ) = first.first_chunk::<{ base::BASE_LEN }>()
        else {
            return Err(WireError::Truncated {
                found: first.len(),
                needed: base::BASE_LEN,
            });
        };
        if version != base::VERSION {
            return Err(WireError::Version {
                found: version,
                expected: base::VERSION,
            });
        }
        if op != Op::Msg as u8 || op_data == OP_ACK {
            return Ok(Self::Plain);
        }
        let flags = order.u16([f0, f1]);
        if flags & TAGGED != 0 {
            return Ok(Self::Tagged);
        }
        let flags = BaseFlags::from_bits_retain(flags);
        if len != base::BASE_LEN as u8 || flags.contains(BaseFlags::REMOTE_CQ_DATA) {
            return Err(WireError::HeaderSize {
                op: Op::Msg,
                found: len,
                expected: base::BASE_LEN as u8,
            });
        }
        let size = order.u64([s0, s1, s2, s3, s4, s5, s6, s7]);
        let packet = size
            .checked_sub(base::BASE_LEN as u64)
            .ok_or(WireError::Size {
                found: size,
                header: len,
            })?;
        Ok(Self::Packet(packet, flags))
    }
}

/// As a `Tag`, whose header has the same layout.
fn as_tag<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut header: [u8; N] = *bytes.first_chunk()?;
    if let Some(op) = header.get_mut(1) {
        *op = Op::Tag as u8;
    }
    Some(header)
}

impl Unit {
    /// How many bytes of a unit's header a receiver may safely wait for, of which these are there. It
    /// is more than there are until the header is whole, and never more than [`MAX_UNIT_HEADER`].
    ///
    /// # Errors
    ///
    /// The header is none, as for [`Unit::parse`].
    pub fn need(order: ByteOrder, bytes: &[u8]) -> Result<usize, WireError> {
        if bytes.len() < base::BASE_LEN {
            return Ok(base::BASE_LEN);
        }
        match Layout::of(order, bytes)? {
            Layout::Plain => base::peek_len(bytes),
            Layout::Tagged => match as_tag::<{ base::BASE_LEN }>(bytes) {
                Some(first) => base::peek_len(&first),
                None => Ok(base::BASE_LEN),
            },
            Layout::Packet(..) => match bytes.get(base::BASE_LEN..).and_then(<[u8]>::first_chunk) {
                Some(first) => Ok(base::BASE_LEN.saturating_add(packet_len(*first)?)),
                None => Ok(base::BASE_LEN.saturating_add(super::packet::BASE_LEN)),
            },
        }
    }

    /// Reads the header at the front of `bytes`, which may go on after it: [`Unit::header_len`] bytes
    /// are its own.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`] if not all of it is there yet; any other means the stream is of no
    /// more use.
    pub fn parse(order: ByteOrder, bytes: &[u8]) -> Result<Self, WireError> {
        match Layout::of(order, bytes)? {
            Layout::Plain => Header::parse(order, bytes).map(Self::Plain),
            Layout::Tagged => {
                // 32 bytes with completion data; of 24 the rest is not looked at.
                let header = match (as_tag::<32>(bytes), as_tag::<24>(bytes)) {
                    (Some(long), _) => Header::parse(order, &long)?,
                    (None, Some(short)) => Header::parse(order, &short)?,
                    (None, None) => {
                        return Err(WireError::Truncated {
                            found: bytes.len(),
                            needed: 24,
                        });
                    }
                };
                Ok(Self::Plain(header))
            }
            Layout::Packet(len, flags) => {
                let rest = bytes.get(base::BASE_LEN..).unwrap_or_default();
                Ok(Self::Packet(Packet::parse(order, rest, len)?, flags))
            }
        }
    }

    /// The length of its header in bytes.
    #[must_use]
    pub fn header_len(&self) -> usize {
        match self {
            Self::Packet(packet, _) => base::BASE_LEN.saturating_add(packet.header_len()),
            Self::Plain(header) => header.len(),
        }
    }

    /// How many bytes of payload follow.
    #[must_use]
    pub const fn payload_len(&self) -> u64 {
        match self {
            Self::Packet(packet, _) => packet.body.payload_len(),
            Self::Plain(header) => header.payload_len,
        }
    }
}

/// Writes the header of a unit with a packet to the front of `out` and returns its length in bytes.
/// `flags` ask for an acknowledgement.
///
/// # Errors
///
/// [`WireError::NoRoom`], [`WireError::PacketSegments`], [`WireError::PayloadTooLong`].
pub fn emit_packet(
    order: ByteOrder,
    flags: BaseFlags,
    packet: &Packet,
    out: &mut [u8],
) -> Result<usize, WireError> {
    let found = packet.body.payload_len();
    let header_len = packet.header_len();
    let len = found
        .checked_add(header_len as u64)
        .ok_or(WireError::PayloadTooLong {
            found,
            max: u64::MAX.saturating_sub(header_len as u64),
        })?;
    let header = Header {
        flags,
        ..Header::new(Op::Msg, len)
    };
    let room = out.len();
    let Some((front, rest)) = out.split_first_chunk_mut::<{ base::BASE_LEN }>() else {
        return Err(WireError::NoRoom {
            found: room,
            needed: base::BASE_LEN,
        });
    };
    let packet = packet.emit(order, rest)?;
    header.emit(order, front)?;
    Ok(base::BASE_LEN.saturating_add(packet))
}
