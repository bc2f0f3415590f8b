//! Atomic operations on one floating-point or complex element.

use core::cmp::Ordering;
use core::ops::{Add, Mul, Sub};

use ripstop_types::{AtomicOp, Datatype};

#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
use super::number::{Number, apply_number, combine_truth, from_bool, is_true, numbers};
use super::small_float::{Bfloat16, E4M3, E5M2, Float16};

numbers! { 0.0 1.0 add sub mul: f32 f64 }

/// As `compute::apply`, for datatypes that are no integers.
#[inline]
pub(super) fn apply(datatype: Datatype, op: AtomicOp, b: &[u8], c: &[u8], t: &mut [u8]) {
    match datatype {
        Datatype::Float => apply_number::<f32>(op, b, c, t),
        Datatype::Double => apply_number::<f64>(op, b, c, t),
        Datatype::Float16 => apply_number::<Float16>(op, b, c, t),
        Datatype::Bfloat16 => apply_number::<Bfloat16>(op, b, c, t),
        Datatype::Float8E4M3 => apply_number::<E4M3>(op, b, c, t),
        Datatype::Float8E5M2 => apply_number::<E5M2>(op, b, c, t),
        Datatype::FloatComplex => apply_complex::<f32>(op, b, c, t),
        Datatype::DoubleComplex => apply_complex::<f64>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDouble => apply_number::<LongDouble>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDoubleComplex => apply_complex::<LongDouble>(op, b, c, t),
        _ => {}
    }
}

/// [`apply`] for a complex number, real part first.
fn apply_complex<T: Number>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8]) {
    let half = target.len() / 2;
    let get = |bytes: &[u8]| (T::get(bytes), T::get(bytes.get(half..).unwrap_or(&[])));
    let (t, b) = (get(target), get(operand));
    let any_true = |number: (T, T)| is_true(number.0) || is_true(number.1);
    let (re, im) = match op {
        AtomicOp::Sum => (t.0.plus(b.0), t.1.plus(b.1)),
        AtomicOp::Diff => (t.0.minus(b.0), t.1.minus(b.1)),
        AtomicOp::Prod => (
            t.0.times(b.0).minus(t.1.times(b.1)),
            t.0.times(b.1).plus(t.1.times(b.0)),
        ),
        AtomicOp::Lor | AtomicOp::Land | AtomicOp::Lxor => (
            from_bool(combine_truth(op, any_true(t), any_true(b))),
            T::ZERO,
        ),
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
        // Nothing to compute, or not defined on complex numbers ([`AtomicOp::acts_on`]).
        AtomicOp::AtomicRead
        | AtomicOp::Min
        | AtomicOp::Max
        | AtomicOp::Bor
        | AtomicOp::Band
        | AtomicOp::Bxor
        | AtomicOp::CswapLe
        | AtomicOp::CswapLt
        | AtomicOp::CswapGe
        | AtomicOp::CswapGt
        | AtomicOp::Mswap => return,
    };
    re.put(target);
    im.put(target.get_mut(half..).unwrap_or(&mut []));
}
