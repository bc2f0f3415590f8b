//! What an operation makes of floating point and of complex numbers.

use core::cmp::Ordering;
use core::ops::{Add, Mul, Sub};

use ripstop_types::{AtomicOp, Datatype};

use super::compute::{Number, connect, logical, number, numbers, truth};
#[cfg(target_arch = "x86_64")]
use super::long_double::LongDouble;
use super::small::{Bfloat16, E4M3, E5M2, Float16};

numbers! { 0.0 1.0 add sub mul: f32 f64 }

/// As `compute::element`, for what is no integer.
#[inline]
pub(super) fn element(datatype: Datatype, op: AtomicOp, b: &[u8], c: &[u8], t: &mut [u8]) {
    match datatype {
        Datatype::Float => number::<f32>(op, b, c, t),
        Datatype::Double => number::<f64>(op, b, c, t),
        Datatype::Float16 => number::<Float16>(op, b, c, t),
        Datatype::Bfloat16 => number::<Bfloat16>(op, b, c, t),
        Datatype::Float8E4M3 => number::<E4M3>(op, b, c, t),
        Datatype::Float8E5M2 => number::<E5M2>(op, b, c, t),
        Datatype::FloatComplex => complex::<f32>(op, b, c, t),
        Datatype::DoubleComplex => complex::<f64>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDouble => number::<LongDouble>(op, b, c, t),
        #[cfg(target_arch = "x86_64")]
        Datatype::LongDoubleComplex => complex::<LongDouble>(op, b, c, t),
        _ => {}
    }
}

/// [`element`] for a complex number, real part first.
fn complex<T: Number>(op: AtomicOp, operand: &[u8], compare: &[u8], target: &mut [u8]) {
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
