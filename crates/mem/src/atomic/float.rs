//! What an operation makes of floating point and of complex numbers.

use core::cmp::Ordering;

use ripstop_types::{AtomicOp, Datatype};

use super::compute::{connect, replaces};
#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
use super::small::{Bfloat16, E4M3, E5M2, Float16};

/// A real number as the operations need it. The value keeps its bits, a NaN's too, as long as it
/// is only moved.
pub(super) trait Real: Copy {
    const ZERO: Self;
    const ONE: Self;
    /// Reads the first bytes; 0 where there are too few.
    fn get(bytes: &[u8]) -> Self;
    /// Writes the first bytes, but no padding; nothing where there are too few.
    fn put(self, bytes: &mut [u8]);
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// How `self` stands to `other`; `None` if one of them is a NaN.
    fn order(self, other: Self) -> Option<Ordering>;
}

macro_rules! reals {
    ($($float:ty)*) => {$(
        impl Real for $float {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;

            #[inline]
            fn get(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0.0, |bytes| Self::from_ne_bytes(*bytes))
            }

            #[inline]
            fn put(self, bytes: &mut [u8]) {
                if let Some(bytes) = bytes.first_chunk_mut() {
                    *bytes = self.to_ne_bytes();
                }
            }

            #[inline]
            fn plus(self, other: Self) -> Self {
                self + other
            }

            #[inline]
            fn minus(self, other: Self) -> Self {
                self - other
            }

            #[inline]
            fn times(self, other: Self) -> Self {
                self * other
            }

            #[inline]
            fn order(self, other: Self) -> Option<Ordering> {
                self.partial_cmp(&other)
            }
        }
    )*};
}

reals! { f32 f64 }

/// As `compute::element`, for what is no integer.
#[inline]
pub(super) fn element(datatype: Datatype, op: AtomicOp, b: &[u8], c: &[u8], t: &mut [u8]) {
    match datatype {
        Datatype::Float => real::<f32>(op, b, c, t),
        Datatype::Double => real::<f64>(op, b, c, t),
        Datatype::Float16 => real::<Float16>(op, b, c, t),
        Datatype::Bfloat16 => real::<Bfloat16>(op, b, c, t),
        Datatype::Float8E4M3 => real::<E4M3>(op, b, c, t),
        Datatype::Float8E5M2 => real::<E5M2>(op, b, c, t),
        Datatype::FloatComplex => complex::<f32>(op, b, c, t),
        Datatype::DoubleComplex => complex::<f64>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDouble => real::<LongDouble>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDoubleComplex => complex::<LongDouble>(op, b, c, t),
        _ => {}
    }
}

/// Whether a number counts as true: a NaN does, -0.0 does not.
#[inline]
fn truth<T: Real>(number: T) -> bool {
    number.order(T::ZERO) != Some(Ordering::Equal)
}

/// The number for a truth.
#[inline]
fn logical<T: Real>(truth: bool) -> T {
    if truth { T::ONE } else { T::ZERO }
}

/// [`element`] for a real number.
fn real<T: Real>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8]) {
    let (t, b) = (T::get(target), T::get(operand));
    let new = match op {
        AtomicOp::Sum => t.plus(b),
        AtomicOp::Diff => t.minus(b),
        AtomicOp::Prod => t.times(b),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => logical(connect(op, truth(t), truth(b))),
        AtomicOp::AtomicWrite => b,
        AtomicOp::Min | AtomicOp::Max if replaces(op, b.order(t)) => b,
        _ if op.takes_comparison() && replaces(op, T::get(compare).order(t)) => b,
        _ => return,
    };
    new.put(target);
}

/// [`element`] for a complex number, real part first.
fn complex<T: Real>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8]) {
    let half = target.len() / 2;
    let get = |bytes: &[u8]| (T::get(bytes), T::get(bytes.get(half..).unwrap_or(&[])));
    let (t, b) = (get(target), get(operand));
    let truth = |number: (T, T)| truth(number.0) || truth(number.1);
    let (re, im) = match op {
        AtomicOp::Sum => (t.0.plus(b.0), t.1.plus(b.1)),
        AtomicOp::Diff => (t.0.minus(b.0), t.1.minus(b.1)),
        AtomicOp::Prod => (
            t.0.times(b.0).minus(t.1.times(b.1)),
            t.0.times(b.1).plus(t.1.times(b.0)),
        ),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => {
            (logical(connect(op, truth(t), truth(b))), T::ZERO)
        }
        AtomicOp::AtomicWrite => b,
        AtomicOp::Cswap | AtomicOp::CswapNe => {
            let c = get(compare);
            let equal = |a: T, b: T| a.order(b) == Some(Ordering::Equal);
            let both = equal(c.0, t.0) && equal(c.1, t.1);
            if both != (op == AtomicOp::Cswap) {
                return;
            }
            b
        }
        _ => return,
    };
    re.put(target);
    im.put(target.get_mut(half..).unwrap_or(&mut []));
}
