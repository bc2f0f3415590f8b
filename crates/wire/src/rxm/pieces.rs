//! The pieces of memory that packets name: four places, of which some are used.

use crate::WireError;
use crate::cursor::{Reader, Writer};
use crate::packet_kind::PacketKind;
use crate::xnet::base::{MAX_RMA, RmaIov, RmaIovs};

/// A piece of memory that is none, for the places that a packet does not use.
const NO_PIECE: RmaIov = RmaIov {
    addr: 0,
    len: 0,
    key: 0,
};

/// Checks the count of a packet's pieces of memory.
pub(super) const fn piece_count(kind: PacketKind, found: u8) -> Result<(), WireError> {
    if found == 0 || found > MAX_RMA {
        return Err(WireError::PacketSegments { kind, found });
    }
    Ok(())
}

/// Four places, of which `count` are used.
pub(super) fn read_pieces(count: u8, rest: &mut Reader<'_>) -> Result<RmaIovs, WireError> {
    let mut all = [NO_PIECE; MAX_RMA as usize];
    for piece in &mut all {
        *piece = RmaIov {
            addr: rest.u64()?,
            len: rest.u64()?,
            key: rest.u64()?,
        };
    }
    RmaIovs::read(count, all.iter().map(|piece| Ok(*piece)))
}

/// Four places, those that are not used filled with zeros.
pub(super) fn write_pieces(memory: &RmaIovs, out: &mut Writer<'_>) -> Result<(), WireError> {
    let used = memory.as_slice().iter().copied();
    for piece in used
        .chain(core::iter::repeat(NO_PIECE))
        .take(usize::from(MAX_RMA))
    {
        out.u64(piece.addr)?;
        out.u64(piece.len)?;
        out.u64(piece.key)?;
    }
    Ok(())
}
