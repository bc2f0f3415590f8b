//! Operations on one element, in private memory.

use core::ops::{BitAnd, BitOr, BitXor, Not};

use ripstop_types::{AtomicOp, Datatype};

use super::number::{Number, apply_number};

/// Applies `op` to the element `t`, with operand `b` and comparison `c`: each one element of `datatype`
/// in this machine's byte order, at any alignment, or empty where the operation takes none. The
/// datatype must be [supported](super::supported); otherwise `t` is not changed.
#[inline]
pub(super) fn apply(datatype: Datatype, op: AtomicOp, b: &[u8], c: &[u8], t: &mut [u8]) {
    match datatype {
        Datatype::Int8 => apply_integer::<i8>(op, b, c, t),
        Datatype::Uint8 => apply_integer::<u8>(op, b, c, t),
        Datatype::Int16 => apply_integer::<i16>(op, b, c, t),
        Datatype::Uint16 => apply_integer::<u16>(op, b, c, t),
        Datatype::Int32 => apply_integer::<i32>(op, b, c, t),
        Datatype::Uint32 => apply_integer::<u32>(op, b, c, t),
        Datatype::Int64 => apply_integer::<i64>(op, b, c, t),
        Datatype::Uint64 => apply_integer::<u64>(op, b, c, t),
        Datatype::Int128 => apply_integer::<i128>(op, b, c, t),
        Datatype::Uint128 => apply_integer::<u128>(op, b, c, t),
        #[cfg(not(target_os = "none"))]
        _ => super::float::apply(datatype, op, b, c, t),
        #[cfg(target_os = "none")]
        _ => {}
    }
}

/// [`apply`] for an integer.
fn apply_integer<T>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8])
where
    T: Number + BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T> + Not<Output = T>,
{
    let (t, b) = (T::get(target), T::get(operand));
    let c = || T::get(compare);
    let new = match op {
        AtomicOp::Bor => t | b,
        AtomicOp::Band => t & b,
        AtomicOp::Bxor => t ^ b,
        AtomicOp::Mswap => (b & c()) | (t & !c()),
        _ => return apply_number::<T>(op, operand, compare, target),
    };
    new.put(target);
}
