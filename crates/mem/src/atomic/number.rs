//! Arithmetic on one element, the same for every datatype.

use core::cmp::Ordering;

use ripstop_types::AtomicOp;

/// The arithmetic that the operations need of a number. Copies keep all bits, also those of a NaN.
pub(super) trait Number: Copy {
    const ZERO: Self;
    const ONE: Self;
    /// Reads the first bytes; 0 where there are too few.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the first bytes, but no padding; nothing where there are too few.
    fn put(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Compares; `None` if one of them is a NaN.
    fn order(self, other: Self) -> Option<Ordering>;
}

/// Implements [`Number`] for primitive types, by these methods.
macro_rules! numbers {
    ($zero:literal $one:literal $plus:ident $minus:ident $times:ident: $($number:ty)*) => {$(
        impl Number for $number {
            const ZERO: Self = $zero;
            const ONE: Self = $one;

            #[inline]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or($zero, |bytes| Self::from_ne_bytes(*bytes))
            }

            #[inline]
            fn put(self, bytes: &mut [u8]) {
                if let Some(bytes) = bytes.first_chunk_mut() {
                    *bytes = self.to_ne_bytes();
                }
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self.$plus(other)
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self.$minus(other)
            }

            #[inline]
            fn times(self, other: Self) -> Self {
                self.$times(other)
            }

            #[inline]
            fn order(self, other: Self) -> Option<Ordering> {
                self.partial_cmp(&other)
            }
        }
    )*};
}

#[cfg(not(target_os = "none"))]
pub(super) use numbers;

numbers! { 0 1 wrapping_add wrapping_sub wrapping_mul: i8 u8 i16 u16 i32 u32 i64 u64 i128 u128 }

/// [`apply`](super::compute::apply) for any number, without the bitwise operations, which leave it as it is. Every
/// operation is named, so that a new one does not compile before it is computed.
#[inline]
pub(super) fn apply_number<T: Number>(
    op: AtomicOp,
    operand: &[u8],
    compare: &[u8],
    target: &mut [u8],
) {
    let (t, b) = (T::get(target), T::get(operand));
    let new = match op {
        AtomicOp::Sum => t.plus(b),
        AtomicOp::Diff => t.minus(b),
        AtomicOp::Prod => t.times(b),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => {
            from_bool(combine_truth(op, is_true(t), is_true(b)))
        }
        AtomicOp::AtomicWrite => b,
        AtomicOp::Min | AtomicOp::Max => match replaces_target(op, b.order(t)) {
            true => b,
            false => return,
        },
        AtomicOp::Cswap
        | AtomicOp::CswapNe
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt => match replaces_target(op, T::get(compare).order(t)) {
            true => b,
            false => return,
        },
        AtomicOp::AtomicRead
        | AtomicOp::Bor
        | AtomicOp::Band
        | AtomicOp::Bxor
        | AtomicOp::Mswap => return,
    };
    new.put(target);
}

/// Whether a number counts as true: a NaN does, -0.0 does not.
#[inline]
pub(super) fn is_true<T: Number>(number: T) -> bool {
    number.order(T::ZERO) != Some(Ordering::Equal)
}

/// The number for a truth value.
#[inline]
pub(super) fn from_bool<T: Number>(truth: bool) -> T {
    if truth { T::ONE } else { T::ZERO }
}

/// A logical operation on the truth values of the target and of the operand.
#[inline]
pub(super) fn combine_truth(op: AtomicOp, t: bool, b: bool) -> bool {
    match op {
        AtomicOp::Lor => t || b,
        AtomicOp::Land => t && b,
        _ => t != b,
    }
}

/// Whether a conditional operation replaces the target. `order` compares the operand (of a minimum or
/// maximum) or the comparison (of a swap) to the target; `None` is unordered: a NaN.
#[inline]
fn replaces_target(op: AtomicOp, order: Option<Ordering>) -> bool {
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
