//! Reductions of whole arrays that nobody else accesses at the time; collectives use them.

use core::ops::{BitAnd, BitOr, BitXor};

use ripstop_types::{AtomicOp, Datatype};

use super::compute::apply;
use super::number::Number;
use super::{AtomicError, check};

/// The largest element in bytes.
const MAX_ELEMENT_BYTES: usize = 32;

/// Computes `into = into op from` for each element, or with `reversed` `into = from op into`. The result is
/// that of [`execute`](super::execute()) on each element.
///
/// # Errors
/// [`AtomicError::Length`] unless both are equally long, a whole number of elements;
/// [`AtomicError::Unsupported`], [`AtomicError::Invalid`] also for an operation that takes a
/// comparison. Nothing was changed then.
pub fn reduce(
    datatype: Datatype,
    op: AtomicOp,
    into: &mut [u8],
    from: &[u8],
    reversed: bool,
) -> Result<(), AtomicError> {
    check(op, datatype)?;
    if op.takes_comparison() {
        return Err(AtomicError::Invalid);
    }
    let size = datatype.size();
    if into.len() != from.len() || !into.len().is_multiple_of(size) {
        return Err(AtomicError::Length);
    }
    if !reduce_common(datatype, op, into, from, reversed) {
        reduce_each(datatype, op, into, from, reversed);
    }
    Ok(())
}

fn reduce_each(datatype: Datatype, op: AtomicOp, into: &mut [u8], from: &[u8], reversed: bool) {
    let size = datatype.size();
    for (a, b) in into.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        if !reversed {
            apply(datatype, op, b, &[], a);
            continue;
        }
        let mut left = [0; MAX_ELEMENT_BYTES];
        let Some(left) = left.get_mut(..size) else {
            return;
        };
        left.copy_from_slice(b);
        apply(datatype, op, a, &[], left);
        a.copy_from_slice(left);
    }
}

/// The common reductions, in loops that the compiler vectorises. `false` if this is another one.
fn reduce_common(
    datatype: Datatype,
    op: AtomicOp,
    into: &mut [u8],
    from: &[u8],
    reversed: bool,
) -> bool {
    match datatype {
        Datatype::Int8 => integers::<i8, 1>(op, into, from),
        Datatype::Uint8 => integers::<u8, 1>(op, into, from),
        Datatype::Int16 => integers::<i16, 2>(op, into, from),
        Datatype::Uint16 => integers::<u16, 2>(op, into, from),
        Datatype::Int32 => integers::<i32, 4>(op, into, from),
        Datatype::Uint32 => integers::<u32, 4>(op, into, from),
        Datatype::Int64 => integers::<i64, 8>(op, into, from),
        Datatype::Uint64 => integers::<u64, 8>(op, into, from),
        #[cfg(not(target_os = "none"))]
        Datatype::Float => reals::<f32, 4>(op, into, from, reversed),
        #[cfg(not(target_os = "none"))]
        Datatype::Double => reals::<f64, 8>(op, into, from, reversed),
        _ => false,
    }
}

/// Replaces each element of `into` by `f` of it and the element of `from`, or with `reversed` of that
/// and it.
#[inline(always)]
fn map_pairs<T: Number, const N: usize>(
    into: &mut [u8],
    from: &[u8],
    reversed: bool,
    f: impl Fn(T, T) -> T,
) {
    let (into, from) = (into.as_chunks_mut::<N>().0, from.as_chunks::<N>().0);
    let pairs = into.iter_mut().zip(from);
    match reversed {
        false => pairs.for_each(|(a, b)| f(T::get(a), T::get(b)).put(a)),
        true => pairs.for_each(|(a, b)| f(T::get(b), T::get(a)).put(a)),
    }
}

/// Reduces integers. All these operations are commutative, so the order of the operands does not matter.
fn integers<T, const N: usize>(op: AtomicOp, into: &mut [u8], from: &[u8]) -> bool
where
    T: Number + Ord + BitAnd<Output = T> + BitOr<Output = T> + BitXor<Output = T>,
{
    match op {
        AtomicOp::Sum => map_pairs::<T, N>(into, from, false, T::plus),
        AtomicOp::Prod => map_pairs::<T, N>(into, from, false, T::times),
        AtomicOp::Min => map_pairs::<T, N>(into, from, false, T::min),
        AtomicOp::Max => map_pairs::<T, N>(into, from, false, T::max),
        AtomicOp::Band => map_pairs::<T, N>(into, from, false, T::bitand),
        AtomicOp::Bor => map_pairs::<T, N>(into, from, false, T::bitor),
        AtomicOp::Bxor => map_pairs::<T, N>(into, from, false, T::bitxor),
        _ => return false,
    }
    true
}

/// Reduces floating-point numbers. The order of the operands matters: of two NaNs the left one stays.
#[cfg(not(target_os = "none"))]
fn reals<T: Number + PartialOrd, const N: usize>(
    op: AtomicOp,
    into: &mut [u8],
    from: &[u8],
    reversed: bool,
) -> bool {
    let (min, max) = (
        |t, b| if b < t { b } else { t },
        |t, b| if b > t { b } else { t },
    );
    match op {
        AtomicOp::Sum => map_pairs::<T, N>(into, from, reversed, T::plus),
        AtomicOp::Prod => map_pairs::<T, N>(into, from, reversed, T::times),
        AtomicOp::Min => map_pairs::<T, N>(into, from, reversed, min),
        AtomicOp::Max => map_pairs::<T, N>(into, from, reversed, max),
        _ => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::supported;
    use super::*;

    extern crate std;

    /// Bytes without a pattern, among them numbers, infinities and NaNs.
    fn bytes(seed: u64, len: usize) -> Vec<u8> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as u8
        };
        (0..len).map(|_| next()).collect()
    }

    /// Padding and NaNs that were computed have bits of no meaning.
    fn assert_same(datatype: Datatype, found: &[u8], expected: &[u8]) {
        match datatype {
            Datatype::Float => {
                let get = |bytes: &[u8]| f32::from_ne_bytes(bytes.try_into().unwrap());
                let (found, expected) = (get(found), get(expected));
                assert!(
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
                );
            }
            Datatype::Double => {
                let get = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().unwrap());
                let (found, expected) = (get(found), get(expected));
                assert!(
                    found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan()
                );
            }
            _ => assert_eq!(found, expected, "{datatype:?}"),
        }
    }

    #[test]
    fn arrays_are_reduced_like_their_elements() {
        for datatype in Datatype::ALL.into_iter().filter(|d| supported(*d)) {
            let size = datatype.size();
            for op in AtomicOp::ALL {
                for reversed in [false, true] {
                    let (a, b) = (bytes(1, 37 * size), bytes(2, 37 * size));
                    let mut into = a.clone();
                    let done = reduce(datatype, op, &mut into, &b, reversed);
                    if op.takes_comparison() || !op.acts_on(datatype) {
                        assert!(done.is_err());
                        assert_eq!(into, a);
                        continue;
                    }
                    done.unwrap();
                    for at in (0..a.len()).step_by(size) {
                        let range = at..at + size;
                        let (left, right) = match reversed {
                            false => (&a[range.clone()], &b[range.clone()]),
                            true => (&b[range.clone()], &a[range.clone()]),
                        };
                        let mut expected = [0; MAX_ELEMENT_BYTES];
                        let expected = &mut expected[..size];
                        expected.copy_from_slice(left);
                        apply(datatype, op, right, &[], expected);
                        assert_same(datatype, &into[range], expected);
                    }
                }
            }
        }
    }

    #[test]
    fn partial_elements_are_refused() {
        let mut into = [0; 12];
        for (len, other) in [(12, 12), (8, 4)] {
            let done = reduce(
                Datatype::Uint64,
                AtomicOp::Sum,
                &mut into[..len],
                &[1; 12][..other],
                false,
            );
            assert_eq!(done, Err(AtomicError::Length));
        }
        assert_eq!(into, [0; 12]);
    }
}
