//! Headers of all operations, parsed and emitted.

use crate::cursor::{Reader, Writer};
use crate::{ByteOrder, WireError};

use super::{
    Answer, BASE_LEN, BaseFlags, Coll, CollKind, MAX_RMA, OP_ACK, Op, Reason, RmaIov, RmaIovs,
    VERSION, coll, refusal,
};

/// A data header, as a plain value.
///
/// Fields the operation does not have are zero after [`Header::parse`] and are not looked at
/// by [`Header::emit`], except that it refuses completion data or RMA segments the operation
/// has no place for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// What it announces.
    pub op: Op,
    /// Flags. [`BaseFlags::REMOTE_CQ_DATA`] is never among them after parsing, and is
    /// ignored in emitting: see [`Header::cq_data`].
    pub flags: BaseFlags,
    /// For `Msg`, [`OP_ACK`] marks an acknowledgement. For `TagRts`, `Cts`, `Data`, `MsgGet`, `TagGet`
    /// and `Ats` the index that ties those of one message together, chosen by the sender of the
    /// message, never 0: see [`Header::index`]. For atomics the datatype (`enum fi_datatype`). For
    /// `EagerLimit` see [`Header::eager_limit`], for `GetLimit` [`Header::get_limit`].
    pub op_data: u8,
    /// The high byte of the index. C peers leave anything here.
    pub index_high: u8,
    /// The operation of an atomic (`enum fi_op`).
    pub atomic: u8,
    /// How many headers went before it in this direction of the connection, modulo 256. C
    /// peers built for debugging close the connection if it is wrong; others leave it unset,
    /// so it cannot be relied on.
    pub id: u8,
    /// Remote completion data of `Msg`, `Tag`, `Write`, `TagRts`, `MsgGet` and `TagGet`.
    pub cq_data: Option<u64>,
    /// The tag of `Tag`, `TagRts` and `TagGet`.
    pub tag: u64,
    /// Where the payload of a `MsgGet` or `TagGet` is, in the process of its sender.
    pub address: u64,
    /// The payload length in bytes `TagRts` announces.
    pub rts_size: u64,
    /// The segments of `ReadReq`, `Write` and atomics.
    pub rma: RmaIovs,
    /// What a `Refuse` stands for, and why.
    pub refusal: Option<(Answer, Reason)>,
    /// What a `Coll` says.
    pub coll: Option<Coll>,
    /// How many bytes of payload follow the header; of `MsgGet` and `TagGet`, how many are at the address.
    pub payload_len: u64,
}

impl Header {
    /// A header with nothing but a payload of this many bytes.
    #[must_use]
    pub const fn new(op: Op, payload_len: u64) -> Self {
        Self {
            op,
            flags: BaseFlags::empty(),
            op_data: 0,
            index_high: 0,
            atomic: 0,
            id: 0,
            cq_data: None,
            tag: 0,
            address: 0,
            rts_size: 0,
            rma: RmaIovs::NONE,
            refusal: None,
            coll: None,
            payload_len,
        }
    }

    /// An acknowledgement of the oldest transfer that waits for one.
    #[must_use]
    pub const fn ack() -> Self {
        Self {
            op_data: OP_ACK,
            ..Self::new(Op::Msg, 0)
        }
    }

    /// Leave to send the payload of the `TagRts` with this index.
    #[must_use]
    pub const fn cts(index: u16) -> Self {
        Self::new(Op::Cts, 0).with_index(index)
    }

    /// The payload of the `MsgGet` or `TagGet` with this index was got.
    #[must_use]
    pub const fn ats(index: u16) -> Self {
        Self::new(Op::Ats, 0).with_index(index)
    }

    /// The same with this index, the low byte of which is not 0.
    #[must_use]
    pub const fn with_index(self, index: u16) -> Self {
        let [index_high, op_data] = index.to_be_bytes();
        Self {
            op_data,
            index_high,
            ..self
        }
    }

    /// The index of an operation that [has one](Op::has_index); `wide` between peers that agreed on
    /// [`Extensions::INDEX`](crate::xnet::cm::Extensions::INDEX).
    #[must_use]
    pub const fn index(&self, wide: bool) -> u16 {
        let high = if wide { self.index_high } else { 0 };
        u16::from_be_bytes([high, self.op_data])
    }

    /// The refusal of a one-sided operation.
    #[must_use]
    pub const fn refuse(answer: Answer, reason: Reason) -> Self {
        Self {
            refusal: Some((answer, reason)),
            ..Self::new(Op::Refuse, 0)
        }
    }

    /// A message between members of a collective group.
    #[must_use]
    pub const fn coll(coll: Coll) -> Self {
        Self {
            coll: Some(coll),
            ..Self::new(Op::Coll, coll.len)
        }
    }

    /// An `EagerLimit` of `1 << exponent` bytes, at most 63, or none if that is 0.
    #[must_use]
    pub const fn with_eager_limit(exponent: u8) -> Self {
        Self {
            op_data: exponent,
            ..Self::new(Op::EagerLimit, 0)
        }
    }

    /// The longest tagged message in bytes that the sender of an `EagerLimit` wants to get before
    /// a receive matches; [`u64::MAX`] if it leaves that to its peer.
    #[must_use]
    pub const fn eager_limit(&self) -> u64 {
        match (self.op_data, 1u64.checked_shl(self.op_data as u32)) {
            (0, _) | (_, None) => u64::MAX,
            (_, Some(limit)) => limit,
        }
    }

    /// A `GetLimit` of `1 << exponent` bytes, at most 63, or none if that is 0.
    #[must_use]
    pub const fn with_get_limit(exponent: u8) -> Self {
        Self {
            op_data: exponent,
            ..Self::new(Op::GetLimit, 0)
        }
    }

    /// The length in bytes from which the sender of a `GetLimit` gets messages itself; [`u64::MAX`] if
    /// it cannot get any.
    #[must_use]
    pub const fn get_limit(&self) -> u64 {
        self.eager_limit()
    }

    /// A `Joint`.
    #[must_use]
    pub const fn joint() -> Self {
        Self::new(Op::Joint, 0)
    }

    /// Whether this is an acknowledgement.
    #[must_use]
    pub const fn is_ack(&self) -> bool {
        matches!(self.op, Op::Msg) && self.op_data == OP_ACK
    }

    /// Its length in bytes, at most [`MAX_HEADER`](super::MAX_HEADER).
    #[expect(
        clippy::len_without_is_empty,
        reason = "a header is never empty: it is at least 16 bytes"
    )]
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.len_byte())
    }

    fn len_byte(&self) -> u8 {
        header_len(self.op, self.cq_data.is_some(), self.rma.count())
    }

    /// Writes the header to the front of `out` and returns its length in bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::NoRoom`]; or the variant that names the field which contradicts the
    /// operation. `out` is untouched by an error.
    pub fn emit(&self, order: ByteOrder, out: &mut [u8]) -> Result<usize, WireError> {
        self.check()?;
        let len = self.len_byte();
        let size =
            self.payload_len
                .checked_add(u64::from(len))
                .ok_or(WireError::PayloadTooLong {
                    found: self.payload_len,
                    max: u64::MAX.saturating_sub(u64::from(len)),
                })?;
        let [f0, f1] = order.bytes16(self.wire_flags());
        let op = self.op as u8;
        // A refusal has no segments, and its two numbers stand where those of others are.
        let (op_data, rma_count) = match (self.op, self.refusal) {
            (Op::Refuse, Some((answer, reason))) => (answer as u8, reason as u8),
            // Nor has a rendezvous.
            (op, _) if op.has_index() => (self.op_data, self.index_high),
            _ => (self.op_data, self.rma.count()),
        };
        let coll = self.coll.filter(|_| self.op == Op::Coll);
        let op_data = coll.map_or(op_data, |coll| coll.kind as u8);

        let room = out.len();
        let out = out.get_mut(..usize::from(len)).ok_or(WireError::NoRoom {
            found: room,
            needed: usize::from(len),
        })?;
        let mut out = Writer::new(order, out);
        out.array([VERSION, op, f0, f1, op_data, rma_count, len, self.id])?;
        out.u64(size)?;
        if let Some(data) = self.cq_data {
            out.u64(data)?;
        }
        if self.op.has_tag() {
            out.u64(self.tag)?;
        }
        if self.op == Op::TagRts {
            out.u64(self.rts_size)?;
        }
        if self.op.is_get() {
            out.u64(self.address)?;
        }
        for iov in self.rma.as_slice() {
            out.u64(iov.addr)?;
            out.u64(iov.len)?;
            out.u64(iov.key)?;
        }
        if let Some(coll) = coll {
            coll.emit(&mut out)?;
        }
        Ok(usize::from(len))
    }

    fn wire_flags(&self) -> u16 {
        let flags = self.flags.difference(BaseFlags::REMOTE_CQ_DATA);
        let flags = if self.cq_data.is_some() {
            flags | BaseFlags::REMOTE_CQ_DATA
        } else {
            flags
        };
        if self.op.is_atomic() {
            // The upper half holds the operation.
            let [_, low] = flags.bits().to_be_bytes();
            return u16::from_be_bytes([self.atomic, low]);
        }
        flags.bits()
    }

    /// Reads the header at the front of `bytes`, which may go on after it: [`Header::len`]
    /// bytes are its own.
    ///
    /// # Errors
    ///
    /// [`WireError::Truncated`] if not all of it is there yet; any other means the stream is
    /// of no more use.
    pub fn parse(order: ByteOrder, bytes: &[u8]) -> Result<Self, WireError> {
        require(bytes, BASE_LEN)?;
        let mut rest = Reader::new(order, bytes);
        let [version, op, f0, f1, op_data, rma_count, len, id] = rest.array()?;
        let size = rest.u64()?;

        check_version(version)?;
        let op = Op::from_byte(op)?;
        let (atomic, flags) = split_flags(op, order.u16([f0, f1]));
        let has_cq_data = op.may_carry_cq_data() && flags.contains(BaseFlags::REMOTE_CQ_DATA);
        let (refusal, kind, op_data) = match op {
            Op::Refuse => (Some(refusal::parse(op_data, rma_count)?), None, 0),
            Op::Coll => (
                None,
                Some(CollKind::from_number(op_data).ok_or(WireError::CollKind { found: op_data })?),
                0,
            ),
            _ => (None, None, op_data),
        };
        let index_high = if op.has_index() { rma_count } else { 0 };
        let rma_count = if op.has_rma() { rma_count } else { 0 };
        check_len(op, has_cq_data, rma_count, len)?;
        let payload_len = size.checked_sub(u64::from(len)).ok_or(WireError::Size {
            found: size,
            header: len,
        })?;
        require(bytes, usize::from(len))?;
        let header = Self {
            op,
            flags: flags.difference(BaseFlags::REMOTE_CQ_DATA),
            op_data,
            index_high,
            atomic,
            id,
            cq_data: optional(has_cq_data, &mut rest)?,
            tag: optional(op.has_tag(), &mut rest)?.unwrap_or(0),
            rts_size: optional(op == Op::TagRts, &mut rest)?.unwrap_or(0),
            address: optional(op.is_get(), &mut rest)?.unwrap_or(0),
            rma: RmaIovs::read(rma_count, core::iter::repeat_with(|| read_iov(&mut rest)))?,
            refusal,
            coll: kind
                .map(|kind| Coll::read(kind, payload_len, &mut rest))
                .transpose()?,
            payload_len,
        };
        header.check()?;
        Ok(header)
    }

    /// What must hold of every header, whichever side made it.
    fn check(&self) -> Result<(), WireError> {
        let op = self.op;
        if self.cq_data.is_some() && (!op.may_carry_cq_data() || self.is_ack()) {
            return Err(WireError::UnexpectedCqData { op });
        }
        if !self.rma.is_empty() && !op.has_rma() {
            return Err(WireError::UnexpectedRma {
                op,
                found: self.rma.count(),
            });
        }
        if self.payload_len != 0 && (!op.may_have_payload() || self.is_ack()) {
            return Err(WireError::UnexpectedPayload {
                op,
                found: self.payload_len,
            });
        }
        if op.has_index() && self.op_data == 0 {
            return Err(WireError::Index { op });
        }
        match op {
            Op::TagRts => check_room_for_base(self.rts_size).ok_or(WireError::PayloadTooLong {
                found: self.rts_size,
                max: MAX_AFTER_BASE,
            }),
            Op::ReadReq => check_room_for_base(self.rma.total_len()?).ok_or(WireError::RmaOverflow),
            Op::Write | Op::Atomic => self.check_write(1),
            Op::FetchAtomic if self.payload_len == 0 => self.rma.total_len().map(|_| ()),
            Op::FetchAtomic => self.check_write(1),
            Op::CompareAtomic => self.check_write(2),
            Op::Coll => match self.coll {
                None => Err(WireError::CollKind { found: 0 }),
                Some(coll) if self.payload_len != 0 && coll.kind != CollKind::Data => {
                    Err(WireError::UnexpectedPayload {
                        op,
                        found: self.payload_len,
                    })
                }
                Some(_) => Ok(()),
            },
            Op::Refuse if self.refusal.is_none() => Err(WireError::Refusal {
                answer: 0,
                reason: 0,
            }),
            Op::EagerLimit | Op::GetLimit if self.op_data >= 64 => Err(WireError::Limit {
                op,
                found: self.op_data,
            }),
            Op::Msg
            | Op::Tag
            | Op::ReadRsp
            | Op::Cts
            | Op::Data
            | Op::Refuse
            | Op::EagerLimit
            | Op::MsgGet
            | Op::TagGet
            | Op::Ats
            | Op::GetLimit
            | Op::Joint => Ok(()),
        }
    }

    /// Whether the payload is `times` as long as the segments together.
    fn check_write(&self, times: u64) -> Result<(), WireError> {
        let len = self.rma.total_len()?;
        let expected = len.checked_mul(times).ok_or(WireError::RmaOverflow)?;
        if self.payload_len != expected {
            return Err(WireError::RmaLength {
                found: self.payload_len,
                expected,
            });
        }
        Ok(())
    }
}

/// The longest payload that may stand behind a bare base header.
const MAX_AFTER_BASE: u64 = u64::MAX - BASE_LEN as u64;

/// Whether the answer to this header, a bare base header and `payload_len` bytes, can be.
fn check_room_for_base(payload_len: u64) -> Option<()> {
    (payload_len <= MAX_AFTER_BASE).then_some(())
}

/// How long the header is that starts with these bytes: between [`BASE_LEN`] and
/// [`MAX_HEADER`](super::MAX_HEADER). Its byte order does not matter.
///
/// This is what a receiver may safely wait for; [`Header::parse`] checks the rest.
///
/// # Errors
///
/// [`WireError::Truncated`] for less than [`BASE_LEN`] bytes, [`WireError::Version`],
/// [`WireError::Op`], [`WireError::HeaderRange`].
pub fn peek_len(first: &[u8]) -> Result<usize, WireError> {
    require(first, BASE_LEN)?;
    let [version, op, _, _, _, _, len, _] = Reader::new(ByteOrder::NATIVE, first).array()?;
    check_version(version)?;
    let op = Op::from_byte(op)?;
    let min = header_len(op, false, 0);
    let max = header_len(op, op.may_carry_cq_data(), MAX_RMA);
    if len < min || len > max || len % 8 != 0 {
        return Err(WireError::HeaderRange {
            op,
            found: len,
            min,
            max,
        });
    }
    Ok(usize::from(len))
}

/// Whether so many bytes are there.
const fn require(bytes: &[u8], needed: usize) -> Result<(), WireError> {
    if bytes.len() < needed {
        return Err(WireError::Truncated {
            found: bytes.len(),
            needed,
        });
    }
    Ok(())
}

/// The operation of an atomic, which is the upper half of its flags, and the flags.
const fn split_flags(op: Op, bits: u16) -> (u8, BaseFlags) {
    let [high, low] = bits.to_be_bytes();
    if op.is_atomic() {
        (high, BaseFlags::from_bits_retain(low as u16))
    } else {
        (0, BaseFlags::from_bits_retain(bits))
    }
}

/// Whether the count of segments is allowed, and the length of the header follows from it.
fn check_len(op: Op, has_cq_data: bool, rma_count: u8, found: u8) -> Result<(), WireError> {
    if rma_count > MAX_RMA {
        return Err(WireError::RmaCount {
            found: rma_count,
            max: MAX_RMA,
        });
    }
    let expected = header_len(op, has_cq_data, rma_count);
    if found != expected {
        return Err(WireError::HeaderSize {
            op,
            found,
            expected,
        });
    }
    Ok(())
}

const fn check_version(found: u8) -> Result<(), WireError> {
    if found != VERSION {
        return Err(WireError::Version {
            found,
            expected: VERSION,
        });
    }
    Ok(())
}

/// The length in bytes that follows from the other fields: at most 120 for at most four
/// segments, which callers see to.
fn header_len(op: Op, has_cq_data: bool, rma_count: u8) -> u8 {
    let cq_data: u8 = if has_cq_data { 8 } else { 0 };
    let rest = match op {
        Op::Msg
        | Op::ReadRsp
        | Op::Cts
        | Op::Data
        | Op::Refuse
        | Op::EagerLimit
        | Op::Ats
        | Op::GetLimit
        | Op::Joint => 0,
        Op::Tag | Op::MsgGet => 8,
        Op::TagRts | Op::TagGet => 16,
        Op::Coll => coll::COLL_LEN,
        Op::ReadReq | Op::Write | Op::Atomic | Op::FetchAtomic | Op::CompareAtomic => {
            rma_count.saturating_mul(24)
        }
    };
    cq_data.saturating_add(rest).saturating_add(BASE_LEN as u8)
}

fn optional(present: bool, bytes: &mut Reader<'_>) -> Result<Option<u64>, WireError> {
    present.then(|| bytes.u64()).transpose()
}

fn read_iov(bytes: &mut Reader<'_>) -> Result<RmaIov, WireError> {
    Ok(RmaIov {
        addr: bytes.u64()?,
        len: bytes.u64()?,
        key: bytes.u64()?,
    })
}
