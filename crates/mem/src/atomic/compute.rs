//! What an operation makes of one element.

use core::cmp::Ordering;

use ripstop_types::{AtomicOp, Datatype};

use super::{AtomicError, check};

/// Computes what `op` makes of the element `old`, and puts it into `new`.
///
/// All slices hold one element of `datatype` in this machine's byte order, at any alignment.
/// `operand` may be empty for [`AtomicOp::AtomicRead`], and `compare` for an operation without
/// comparison. Touches no other memory; [`execute`](super::execute) is the one that is atomic.
/// What is computed is said in the [module's documentation](super).
///
/// # Errors
///
/// [`AtomicError::Length`] for a slice of another length, [`AtomicError::Unsupported`],
/// [`AtomicError::Invalid`]. `new` is as it was then.
pub fn compute(
    datatype: Datatype,
    op: AtomicOp,
    old: &[u8],
    operand: &[u8],
    compare: &[u8],
    new: &mut [u8],
) -> Result<(), AtomicError> {
    check(op, datatype)?;
    let whole = |bytes: &[u8]| bytes.len() == datatype.size();
    if !whole(old)
        || !whole(new)
        || (op.takes_operand() && !whole(operand))
        || (op.takes_comparison() && !whole(compare))
    {
        return Err(AtomicError::Length);
    }
    new.copy_from_slice(old);
    element(datatype, op, operand, compare, new);
    Ok(())
}

/// Applies `op` to the element `t`. The slices have the lengths that [`compute`] demands, and
/// the datatype is supported; otherwise `t` stays as it is.
#[inline]
pub(super) fn element(datatype: Datatype, op: AtomicOp, b: &[u8], c: &[u8], t: &mut [u8]) {
    match datatype {
        Datatype::Int8 => integer::<i8>(op, b, c, t),
        Datatype::Uint8 => integer::<u8>(op, b, c, t),
        Datatype::Int16 => integer::<i16>(op, b, c, t),
        Datatype::Uint16 => integer::<u16>(op, b, c, t),
        Datatype::Int32 => integer::<i32>(op, b, c, t),
        Datatype::Uint32 => integer::<u32>(op, b, c, t),
        Datatype::Int64 => integer::<i64>(op, b, c, t),
        Datatype::Uint64 => integer::<u64>(op, b, c, t),
        Datatype::Int128 => integer::<i128>(op, b, c, t),
        Datatype::Uint128 => integer::<u128>(op, b, c, t),
        #[cfg(not(target_os = "none"))]
        _ => super::float::element(datatype, op, b, c, t),
        #[cfg(target_os = "none")]
        _ => {}
    }
}

/// An integer as the operations need it.
trait Integer: Copy + Ord {
    const ZERO: Self;
    const ONE: Self;
    /// Reads the first bytes; 0 where there are too few.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the first bytes; nothing where there are too few.
    fn put(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn not(self) -> Self;
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl Integer for $int {
            const ZERO: Self = 0;
            const ONE: Self = 1;

            #[inline]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |bytes| Self::from_ne_bytes(*bytes))
            }

            #[inline]
            fn put(self, bytes: &mut [u8]) {
                if let Some(bytes) = bytes.first_chunk_mut() {
                    *bytes = self.to_ne_bytes();
                }
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }

            #[inline]
            fn not(self) -> Self {
                !self
            }
        }
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 u128 }

/// [`element`] for an integer.
fn integer<T: Integer>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8]) {
    let (t, b) = (T::get(target), T::get(operand));
    let c = || T::get(compare);
    let logical = |truth| if truth { T::ONE } else { T::ZERO };
    let new = match op {
        AtomicOp::Sum => t.plus(b),
        AtomicOp::Diff => t.minus(b),
        AtomicOp::Prod => t.times(b),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => {
            logical(connect(op, t != T::ZERO, b != T::ZERO))
        }
        AtomicOp::Bor => t.or(b),
        AtomicOp::Band => t.and(b),
        AtomicOp::Bxor => t.xor(b),
        AtomicOp::Mswap => b.and(c()).or(t.and(c().not())),
        AtomicOp::AtomicWrite => b,
        AtomicOp::AtomicRead => t,
        AtomicOp::Min | AtomicOp::Max => {
            if replaces(op, Some(b.cmp(&t))) {
                b
            } else {
                t
            }
        }
        AtomicOp::Cswap
        | AtomicOp::CswapNe
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt => {
            if replaces(op, Some(c().cmp(&t))) {
                b
            } else {
                t
            }
        }
    };
    new.put(target);
}

/// What a logical operation makes of the truth of the target and of the operand.
#[inline]
pub(super) fn connect(op: AtomicOp, t: bool, b: bool) -> bool {
    match op {
        AtomicOp::Lor => t || b,
        AtomicOp::Land => t && b,
        _ => t != b,
    }
}

/// Whether a conditional operation replaces the target, by how the operand (of a minimum or
/// maximum) or the comparison (of a swap) stands to it. `None` is unordered: a NaN.
#[inline]
pub(super) fn replaces(op: AtomicOp, order: Option<Ordering>) -> bool {
    match op {
        AtomicOp::Min | AtomicOp::CswapLt => order == Some(Ordering::Less),
        AtomicOp::Max | AtomicOp::CswapGt => order == Some(Ordering::Greater),
        AtomicOp::Cswap => order == Some(Ordering::Equal),
        AtomicOp::CswapNe => order != Some(Ordering::Equal),
        AtomicOp::CswapLe => order.is_some_and(Ordering::is_le),
        AtomicOp::CswapGe => order.is_some_and(Ordering::is_ge),
        _ => false,
    }
}
