//! What packets say of atomics.

use ripstop_types::AtomicKind;

use crate::cursor::{Reader, Writer};
use crate::packet_kind::PacketKind;
use crate::xnet::base::RmaIovs;
use crate::{ByteOrder, WireError};

use super::pieces::{piece_count, read_pieces, write_pieces};

/// An atomic, the operands of which follow its header, and then as many to compare with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicHead {
    /// Names it in the answer.
    pub id: u64,
    /// Whether it fetches, and compares.
    pub kind: AtomicKind,
    /// What the memory holds (`enum fi_datatype`).
    pub datatype: u8,
    /// What is done with it (`enum fi_op`).
    pub op: u8,
    /// The memory, 1 to 4 pieces. Their `len` is a number of elements.
    pub memory: RmaIovs,
    /// Bytes of all that follows.
    pub operands_len: u64,
}

/// What came of an atomic. The bytes it fetched follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AtomicResult {
    /// That of the atomic.
    pub id: u64,
    /// As the atomic's.
    pub kind: AtomicKind,
    /// As the atomic's.
    pub datatype: u8,
    /// As the atomic's.
    pub op: u8,
    /// 0, or a negative error number.
    pub status: i32,
    /// How many bytes follow.
    pub len: u32,
}

/// Bytes of an atomic's header behind those that all packets have.
pub const ATOMIC_LEN: usize = 4 * 24;

/// The same of a result.
pub(super) const RESULT_LEN: usize = 8;

pub(super) const fn kind_number(kind: AtomicKind) -> u8 {
    match kind {
        AtomicKind::Plain => 6,
        AtomicKind::Fetch => 7,
        AtomicKind::Compare => 8,
    }
}

pub(super) fn kind_of(op: u8) -> Result<AtomicKind, WireError> {
    match op {
        6 => Ok(AtomicKind::Plain),
        7 => Ok(AtomicKind::Fetch),
        8 => Ok(AtomicKind::Compare),
        found => Err(WireError::PacketOp {
            kind: PacketKind::Atomic,
            found,
        }),
    }
}

impl AtomicHead {
    /// The last eight bytes of the common header.
    pub(super) const fn last_word(&self) -> [u8; 8] {
        [self.datatype, self.op, self.memory.count(), 0, 0, 0, 0, 0]
    }

    pub(super) fn read_memory(count: u8, rest: &mut Reader<'_>) -> Result<RmaIovs, WireError> {
        piece_count(PacketKind::Atomic, count)?;
        read_pieces(count, rest)
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        piece_count(PacketKind::Atomic, self.memory.count())?;
        write_pieces(&self.memory, out)
    }
}

impl AtomicResult {
    /// The last eight bytes of the common header.
    pub(super) const fn last_word(&self) -> [u8; 8] {
        [self.datatype, self.op, 0, 0, 0, 0, 0, 0]
    }

    /// Status and length, which have network order whatever the rest has.
    pub(super) fn read(rest: &mut Reader<'_>) -> Result<(i32, u32), WireError> {
        let status = ByteOrder::Big.u32(rest.array()?).cast_signed();
        Ok((status, ByteOrder::Big.u32(rest.array()?)))
    }

    pub(super) fn write(&self, out: &mut Writer<'_>) -> Result<(), WireError> {
        out.array(ByteOrder::Big.bytes32(self.status.cast_unsigned()))?;
        out.array(ByteOrder::Big.bytes32(self.len))
    }
}
