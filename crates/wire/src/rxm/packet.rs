//! Packets: what one message of a connected endpoint holds.

use ripstop_types::numbered;

use crate::cursor::{Reader, Writer};
use crate::xnet::base::{MAX_RMA, RmaIovs};
use crate::{ByteOrder, WireError};

use super::atomic::{ATOMIC_LEN, AtomicHead, AtomicResult, RESULT_LEN, kind_number, kind_of};
use super::cm::{CONTROL_VERSION, check_version};
use super::pieces::{piece_count, read_pieces, write_pieces};

pub use crate::packet_kind::PacketKind;

/// Length in bytes of the part every packet starts with.
pub const BASE_LEN: usize = 64;

/// The longest header of a packet in bytes: that of a rendezvous.
pub const MAX_PACKET_HEADER: usize = BASE_LEN + RENDEZVOUS_LEN;

/// Bytes of the pieces of memory of a rendezvous, and their count.
const RENDEZVOUS_LEN: usize = 4 * 24 + 8;

/// The only version of the second half of the header.
pub(super) const OP_VERSION: u8 = 2;

/// The flag of completion data, `FI_REMOTE_CQ_DATA`.
pub(super) const REMOTE_CQ_DATA: u32 = 1 << 17;

numbered! {
    /// Where a segment is in its message.
    #[derive(PartialOrd, Ord)]
    pub enum Part: u8 as u8 {
        /// The first.
        First = 1 => "first",
        /// Neither the first nor the last.
        Middle = 2 => "middle",
        /// The last.
        Last = 3 => "last",
    }
}

numbered! {
    /// What is said of the end of a connection that has nothing to do.
    #[derive(PartialOrd, Ord)]
    pub enum Parting: u8 as u8 {
        /// Its sender has nothing under way and sends nothing more, until it is answered.
        Ask = 1 => "asked",
        /// Nor has this side: the connection ends, and the sender of the question closes it.
        Agree = 2 => "agreed",
        /// This side has something under way: all goes on.
        Stay = 3 => "refused",
    }
}

/// What every packet of a message says of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Message {
    /// The tag of a tagged one.
    pub tag: Option<u64>,
    /// Remote completion data.
    pub data: Option<u64>,
    /// Its length in bytes.
    pub len: u64,
}

/// Which part of a message a packet holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Names the message among those of its sender.
    pub id: u64,
    /// Which part it is, from 0.
    pub number: u32,
    /// Where that is.
    pub part: Part,
    /// Its length in bytes.
    pub len: u16,
}

/// The header of a packet, as a plain value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packet {
    /// What the receiver calls the connection, see
    /// [`Number::in_packets`](super::cm::Number::in_packets).
    pub conn: u64,
    /// What it says.
    pub body: Body,
}

/// What a packet says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// A whole message, the payload of which follows.
    Eager(Message),
    /// A part of one, which follows. Parts of several may alternate.
    Segment(Message, Segment),
    /// A message whose payload is to be read from this memory of its sender, 1 to 4 pieces as long as
    /// the message.
    Rendezvous {
        /// The message.
        message: Message,
        /// Names it in the answer.
        id: u64,
        /// Where its payload is.
        memory: RmaIovs,
    },
    /// The payload of this message was read: it is done.
    ReadDone(u64),
    /// An atomic.
    Atomic(AtomicHead),
    /// What came of an atomic.
    AtomicResult(AtomicResult),
    /// Leave to send so many packets more.
    Credit(u64),
    /// Where the payload of this message is to be written.
    WriteReady {
        /// The message.
        id: u64,
        /// The receiver's memory, 1 to 4 pieces.
        memory: RmaIovs,
    },
    /// The payload of this message was written.
    WriteDone(u64),
    /// Of the end of the connection.
    Part(Parting),
    /// So many bytes of a unit that is in no packet over tcp, such as those of collectives. A unit begins with the
    /// first packet that has its bytes, and no other packet has those of two.
    Unit(u64),
}

impl Body {
    /// What kind of packet says that.
    #[must_use]
    pub const fn kind(&self) -> PacketKind {
        match self {
            Self::Eager(_) => PacketKind::Eager,
            Self::Segment(..) => PacketKind::Segment,
            Self::Rendezvous { .. } => PacketKind::Rendezvous,
            Self::ReadDone(_) => PacketKind::ReadDone,
            Self::Atomic(_) => PacketKind::Atomic,
            Self::AtomicResult(_) => PacketKind::AtomicResult,
            Self::Credit(_) => PacketKind::Credit,
            Self::WriteReady { .. } => PacketKind::WriteReady,
            Self::WriteDone(_) => PacketKind::WriteDone,
            Self::Part(_) => PacketKind::Part,
            Self::Unit(_) => PacketKind::Unit,
        }
    }

    /// How many bytes follow the header.
    #[must_use]
    pub const fn payload_len(&self) -> u64 {
        match self {
            Self::Eager(message) => message.len,
            Self::Segment(_, segment) => segment.len as u64,
            Self::Atomic(atomic) => atomic.operands_len,
            Self::AtomicResult(result) => result.len as u64,
            Self::Unit(len) => *len,
            Self::Rendezvous { .. }
            | Self::ReadDone(_)
            | Self::Credit(_)
            | Self::WriteReady { .. }
            | Self::WriteDone(_)
            | Self::Part(_) => 0,
        }
    }
}

impl PacketKind {
    /// How long the header of such packets is.
    #[must_use]
    pub const fn header_len(self) -> usize {
        match self {
            Self::Rendezvous | Self::WriteReady => MAX_PACKET_HEADER,
            Self::Atomic => BASE_LEN + ATOMIC_LEN,
            Self::AtomicResult => BASE_LEN + RESULT_LEN,
            Self::Eager
            | Self::Segment
            | Self::ReadDone
            | Self::Credit
            | Self::WriteDone
            | Self::Part
            | Self::Unit => BASE_LEN,
        }
    }
}

/// How long the header of a packet is that begins with these two bytes: between [`BASE_LEN`] and
/// [`MAX_PACKET_HEADER`].
///
/// # Errors
///
/// [`WireError::RxmVersion`], [`WireError::PacketKind`].
pub fn packet_len([version, kind]: [u8; 2]) -> Result<usize, WireError> {
    Ok(kind_of_packet(version, kind)?.header_len())
}

fn kind_of_packet(version: u8, kind: u8) -> Result<PacketKind, WireError> {
    check_version("control headers", version, CONTROL_VERSION)?;
    PacketKind::from_number(kind).ok_or(WireError::PacketKind { found: kind })
}

/// The fields that packets have at the same place, whether or not they have a use for them.
#[derive(Clone, Copy, Default)]
struct Fields {
    segment_len: u16,
    segment_number: u32,
    id: u64,
    control: [u8; 8],
    op: u8,
    flags: u32,
    size: u64,
    data: u64,
    last: [u8; 8],
}

impl Packet {
    /// Its header's length in bytes.
    #[must_use]
    pub const fn header_len(&self) -> usize {
        self.body.kind().header_len()
    }

    /// Reads the header at the front of `bytes`, which may go on after it, of a packet of `len` bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`] if not all of the header is there; any other means the stream is of
    /// no more use.
    pub fn parse(order: ByteOrder, bytes: &[u8], len: u64) -> Result<Self, WireError> {
        let mut rest = Reader::new(order, bytes);
        let [version, kind] = rest.array()?;
        let kind = kind_of_packet(version, kind)?;
        let (conn, fields) = read_fields(order, &mut rest)?;
        let body = fields.body(kind, order, &mut rest)?;
        let expected = (kind.header_len() as u64)
            .checked_add(body.payload_len())
            .ok_or(WireError::PayloadTooLong {
                found: body.payload_len(),
                max: MAX_PAYLOAD,
            })?;
        if len != expected {
            return Err(WireError::PacketLength {
                kind,
                found: len,
                expected,
            });
        }
        Ok(Self { conn, body })
    }

    /// Writes the header to the front of `out` and returns its length in bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`], [`WireError::PacketSegments`].
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) -> Result<usize, WireError> {
        let len = self.header_len();
        let room = out.len();
        let out = out.get_mut(..len).ok_or(WireError::NoRoom {
            found: room,
            needed: len,
        })?;
        let mut out = Writer::new(order, out);
        let f = Fields::of(&self.body, order);
        out.array([CONTROL_VERSION, self.body.kind().number()])?;
        out.u16(f.segment_len)?;
        out.u32(f.segment_number)?;
        out.u64(self.conn)?;
        out.u64(f.id)?;
        out.array(f.control)?;
        out.array([OP_VERSION, 0, f.op, 0])?;
        out.u32(f.flags)?;
        out.u64(f.size)?;
        out.u64(f.data)?;
        out.array(f.last)?;
        match &self.body {
            Body::Rendezvous { memory, .. } | Body::WriteReady { memory, .. } => {
                piece_count(self.body.kind(), memory.count())?;
                write_pieces(memory, &mut out)?;
                out.array([memory.count(), 0, 0, 0, 0, 0, 0, 0])?;
            }
            Body::Atomic(atomic) => atomic.write(&mut out)?,
            Body::AtomicResult(result) => result.write(&mut out)?,
            Body::Eager(_)
            | Body::Segment(..)
            | Body::ReadDone(_)
            | Body::Credit(_)
            | Body::WriteDone(_)
            | Body::Part(_)
            | Body::Unit(_) => {}
        }
        Ok(len)
    }
}

fn read_fields(order: ByteOrder, rest: &mut Reader<'_>) -> Result<(u64, Fields), WireError> {
    let segment_len = rest.u16()?;
    let segment_number = rest.u32()?;
    let conn = rest.u64()?;
    let id = rest.u64()?;
    let control = rest.array()?;
    let [version, _, op, _, f0, f1, f2, f3] = rest.array()?;
    check_version("the packet", version, OP_VERSION)?;
    let fields = Fields {
        segment_len,
        segment_number,
        id,
        control,
        op,
        flags: order.u32([f0, f1, f2, f3]),
        size: rest.u64()?,
        data: rest.u64()?,
        last: rest.array()?,
    };
    Ok((conn, fields))
}

impl Fields {
    fn of(body: &Body, order: ByteOrder) -> Self {
        let nothing = Self::default();
        match *body {
            Body::Eager(message) => Self::of_message(order, &message),
            Body::Segment(message, segment) => Self {
                segment_len: segment.len,
                segment_number: segment.number,
                id: segment.id,
                control: [part_bits(order, segment.part), 0, 0, 0, 0, 0, 0, 0],
                ..Self::of_message(order, &message)
            },
            Body::Rendezvous { message, id, .. } => Self {
                id,
                ..Self::of_message(order, &message)
            },
            Body::ReadDone(id) | Body::WriteReady { id, .. } | Body::WriteDone(id) => {
                Self { id, ..nothing }
            }
            Body::Atomic(atomic) => Self {
                id: atomic.id,
                op: kind_number(atomic.kind),
                size: atomic.operands_len.saturating_add(ATOMIC_LEN as u64),
                last: atomic.last_word(),
                ..nothing
            },
            Body::AtomicResult(result) => Self {
                id: result.id,
                op: kind_number(result.kind),
                size: u64::from(result.len).saturating_add(RESULT_LEN as u64),
                last: result.last_word(),
                ..nothing
            },
            Body::Credit(count) => Self {
                control: order.bytes64(count),
                ..nothing
            },
            Body::Part(parting) => Self {
                op: parting.number(),
                ..nothing
            },
            Body::Unit(size) => Self { size, ..nothing },
        }
    }

    fn of_message(order: ByteOrder, message: &Message) -> Self {
        Self {
            op: u8::from(message.tag.is_some()),
            flags: match message.data {
                Some(_) => REMOTE_CQ_DATA,
                None => 0,
            },
            size: message.len,
            data: message.data.unwrap_or_default(),
            last: order.bytes64(message.tag.unwrap_or_default()),
            ..Self::default()
        }
    }

    fn body(
        &self,
        kind: PacketKind,
        order: ByteOrder,
        rest: &mut Reader<'_>,
    ) -> Result<Body, WireError> {
        let id = self.id;
        Ok(match kind {
            PacketKind::Eager => Body::Eager(self.message(kind, order)?),
            PacketKind::Segment => self.segment(order)?,
            PacketKind::Rendezvous => {
                let message = self.message(kind, order)?;
                let memory = read_memory(kind, rest)?;
                let found = memory.total_len()?;
                if found != message.len {
                    return Err(WireError::PacketMemory {
                        found,
                        expected: message.len,
                    });
                }
                Body::Rendezvous {
                    message,
                    id,
                    memory,
                }
            }
            PacketKind::WriteReady => {
                let memory = read_memory(kind, rest)?;
                memory.total_len()?;
                Body::WriteReady { id, memory }
            }
            PacketKind::ReadDone => Body::ReadDone(id),
            PacketKind::WriteDone => Body::WriteDone(id),
            PacketKind::Part => {
                let parting = Parting::from_number(self.op);
                let found = self.op;
                Body::Part(parting.ok_or(WireError::PacketOp { kind, found })?)
            }
            PacketKind::Unit => Body::Unit(self.size),
            PacketKind::Credit => Body::Credit(order.u64(self.control)),
            PacketKind::Atomic => {
                let [datatype, op, pieces, ..] = self.last;
                Body::Atomic(AtomicHead {
                    id,
                    kind: kind_of(self.op)?,
                    datatype,
                    op,
                    memory: AtomicHead::read_memory(pieces, rest)?,
                    operands_len: self.behind(kind, ATOMIC_LEN)?,
                })
            }
            PacketKind::AtomicResult => {
                let [datatype, op, ..] = self.last;
                let (status, len) = AtomicResult::read(rest)?;
                let expected = u64::from(len).saturating_add(RESULT_LEN as u64);
                if self.size != expected {
                    return Err(WireError::PacketLength {
                        kind,
                        found: self.size,
                        expected,
                    });
                }
                Body::AtomicResult(AtomicResult {
                    id,
                    kind: kind_of(self.op)?,
                    datatype,
                    op,
                    status,
                    len,
                })
            }
        })
    }

    fn message(&self, kind: PacketKind, order: ByteOrder) -> Result<Message, WireError> {
        let tag = match self.op {
            0 => None,
            1 => Some(order.u64(self.last)),
            found => return Err(WireError::PacketOp { kind, found }),
        };
        Ok(Message {
            tag,
            data: (self.flags & REMOTE_CQ_DATA != 0).then_some(self.data),
            len: self.size,
        })
    }

    fn segment(&self, order: ByteOrder) -> Result<Body, WireError> {
        let message = self.message(PacketKind::Segment, order)?;
        let [first, ..] = self.control;
        let bits = match order {
            ByteOrder::Little => first & 3,
            ByteOrder::Big => first >> 6,
        };
        let part = Part::from_number(bits).ok_or(WireError::PacketPart { found: bits })?;
        Ok(Body::Segment(
            message,
            Segment {
                id: self.id,
                number: self.segment_number,
                part,
                len: self.segment_len,
            },
        ))
    }

    /// What is left of the size behind so many bytes of header.
    fn behind(&self, kind: PacketKind, header: usize) -> Result<u64, WireError> {
        let expected = header as u64;
        self.size
            .checked_sub(expected)
            .ok_or(WireError::PacketLength {
                kind,
                found: self.size,
                expected,
            })
    }
}

/// The byte that says where a segment is: a bit field of C, the lowest bits of the first byte on a
/// little endian machine, the highest on a big endian one.
const fn part_bits(order: ByteOrder, part: Part) -> u8 {
    match order {
        ByteOrder::Little => part.number(),
        ByteOrder::Big => part.number() << 6,
    }
}

/// The longest payload that may stand behind any header of a packet.
const MAX_PAYLOAD: u64 = u64::MAX - MAX_PACKET_HEADER as u64;

/// Four places, and behind them how many are used.
fn read_memory(kind: PacketKind, rest: &mut Reader<'_>) -> Result<RmaIovs, WireError> {
    let all = read_pieces(MAX_RMA, rest)?;
    let [count, ..] = rest.array::<8>()?;
    piece_count(kind, count)?;
    RmaIovs::read(count, all.as_slice().iter().map(|piece| Ok(*piece)))
}
