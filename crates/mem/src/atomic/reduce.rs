//! Reductions of whole arrays, which are nobody else's meanwhile.

use ripstop_types::{AtomicOp, Datatype};

use super::compute::element;
use super::{AtomicError, check};

/// The largest element in bytes.
const LARGEST: usize = 32;

/// Computes `into = into op from` for each element, or with `flip` `into = from op into`: what
/// [`compute`](super::compute()) makes of each, a whole array at a time.
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
    flip: bool,
) -> Result<(), AtomicError> {
    check(op, datatype)?;
    if op.takes_comparison() {
        return Err(AtomicError::Invalid);
    }
    let size = datatype.size();
    if into.len() != from.len() || !into.len().is_multiple_of(size) {
        return Err(AtomicError::Length);
    }
    if !simple(datatype, op, into, from, flip) {
        one_by_one(datatype, op, into, from, flip);
    }
    Ok(())
}

fn one_by_one(datatype: Datatype, op: AtomicOp, into: &mut [u8], from: &[u8], flip: bool) {
    let size = datatype.size();
    for (a, b) in into.chunks_exact_mut(size).zip(from.chunks_exact(size)) {
        if !flip {
            element(datatype, op, b, &[], a);
            continue;
        }
        let mut left = [0; LARGEST];
        let Some(left) = left.get_mut(..size) else {
            return;
        };
        left.copy_from_slice(b);
        element(datatype, op, a, &[], left);
        a.copy_from_slice(left);
    }
}

/// What programs reduce most, in loops that a processor does several elements of at a time.
/// `false` for all else.
fn simple(datatype: Datatype, op: AtomicOp, into: &mut [u8], from: &[u8], flip: bool) -> bool {
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
        Datatype::Float => reals::float(op, into, from, flip),
        #[cfg(not(target_os = "none"))]
        Datatype::Double => reals::double(op, into, from, flip),
        _ => false,
    }
}

/// An integer as bytes.
trait Whole<const N: usize>: Copy + Ord {
    fn get(bytes: [u8; N]) -> Self;
    fn bytes(self) -> [u8; N];
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
}

macro_rules! wholes {
    ($($int:ty: $size:literal)*) => {$(
        impl Whole<$size> for $int {
            #[inline(always)]
            fn get(bytes: [u8; $size]) -> Self {
                Self::from_ne_bytes(bytes)
            }

            #[inline(always)]
            fn bytes(self) -> [u8; $size] {
                self.to_ne_bytes()
            }

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn times(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }

            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }

            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }

            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
        }
    )*};
}

wholes! { i8: 1 u8: 1 i16: 2 u16: 2 i32: 4 u32: 4 i64: 8 u64: 8 }

/// Replaces each element by what `make` makes of it and the other.
#[inline(always)]
fn each<const N: usize>(into: &mut [u8], from: &[u8], make: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (into, from) = (into.as_chunks_mut::<N>().0, from.as_chunks::<N>().0);
    for (a, b) in into.iter_mut().zip(from) {
        *a = make(*a, *b);
    }
}

/// Of integers operands may change places in all of these.
fn integers<T: Whole<N>, const N: usize>(op: AtomicOp, into: &mut [u8], from: &[u8]) -> bool {
    #[inline(always)]
    fn by<T: Whole<N>, const N: usize>(into: &mut [u8], from: &[u8], f: impl Fn(T, T) -> T) {
        each(into, from, |a, b| f(T::get(a), T::get(b)).bytes());
    }
    match op {
        AtomicOp::Sum => by(into, from, T::plus),
        AtomicOp::Prod => by(into, from, T::times),
        AtomicOp::Min => by(into, from, T::min),
        AtomicOp::Max => by(into, from, T::max),
        AtomicOp::Band => by(into, from, T::and),
        AtomicOp::Bor => by(into, from, T::or),
        AtomicOp::Bxor => by(into, from, T::xor),
        _ => return false,
    }
    true
}

#[cfg(not(target_os = "none"))]
mod reals {
    use ripstop_types::AtomicOp;

    use super::each;

    macro_rules! real {
        ($name:ident: $float:ty) => {
            /// Operands keep their order: of two NaNs the left one stays.
            pub(super) fn $name(op: AtomicOp, into: &mut [u8], from: &[u8], flip: bool) -> bool {
                #[inline(always)]
                fn by(
                    into: &mut [u8],
                    from: &[u8],
                    flip: bool,
                    f: impl Fn($float, $float) -> $float,
                ) {
                    let get = <$float>::from_ne_bytes;
                    match flip {
                        false => each(into, from, |a, b| f(get(a), get(b)).to_ne_bytes()),
                        true => each(into, from, |a, b| f(get(b), get(a)).to_ne_bytes()),
                    }
                }
                match op {
                    AtomicOp::Sum => by(into, from, flip, |t, b| t + b),
                    AtomicOp::Prod => by(into, from, flip, |t, b| t * b),
                    AtomicOp::Min => by(into, from, flip, |t, b| if b < t { b } else { t }),
                    AtomicOp::Max => by(into, from, flip, |t, b| if b > t { b } else { t }),
                    _ => return false,
                }
                true
            }
        };
    }

    real!(float: f32);
    real!(double: f64);
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::super::{compute, supported};
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
    fn arrays_are_reduced_as_their_elements_are() {
        for datatype in Datatype::ALL.into_iter().filter(|d| supported(*d)) {
            let size = datatype.size();
            for op in AtomicOp::ALL {
                for flip in [false, true] {
                    let (a, b) = (bytes(1, 37 * size), bytes(2, 37 * size));
                    let mut into = a.clone();
                    let done = reduce(datatype, op, &mut into, &b, flip);
                    if op.takes_comparison() || !op.acts_on(datatype) {
                        assert!(done.is_err());
                        assert_eq!(into, a);
                        continue;
                    }
                    done.unwrap();
                    for at in (0..a.len()).step_by(size) {
                        let range = at..at + size;
                        let (left, right) = match flip {
                            false => (&a[range.clone()], &b[range.clone()]),
                            true => (&b[range.clone()], &a[range.clone()]),
                        };
                        let mut expected = [0; LARGEST];
                        let expected = &mut expected[..size];
                        compute(datatype, op, left, right, &[], expected).unwrap();
                        assert_same(datatype, &into[range], expected);
                    }
                }
            }
        }
    }

    #[test]
    fn parts_of_elements_are_refused() {
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
