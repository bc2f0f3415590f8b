#![allow(unsafe_code)]
//! Every operation on every datatype against a plain model, and concurrent updates.

extern crate std;

mod concurrent;
mod model;

use std::vec;
use std::vec::Vec;

use ripstop_types::{AtomicKind, AtomicOp, Datatype};

use super::compute::apply;
use super::{AtomicError, execute, supported};
use crate::UserBuf;

/// What is in memory that nothing was written to.
const UNTOUCHED: [u8; 256] = [0xa5; 256];

/// Memory that is aligned for every datatype.
#[repr(align(64))]
struct Memory([u8; 256]);

impl Memory {
    fn new() -> Self {
        Self(UNTOUCHED)
    }

    /// The `len` bytes at `off`, filled from `bytes`.
    fn target(&mut self, off: usize, bytes: &[u8]) -> UserBuf {
        self.0[off..off + bytes.len()].copy_from_slice(bytes);
        let ptr = self.0[off..].as_mut_ptr();
        // SAFETY: inside; the tests keep the memory and detect_features at it only afterwards.
        unsafe { UserBuf::from_raw(ptr, bytes.len()) }
    }
}

/// The datatypes that this run can compute: Miri knows no x87 unit.
fn datatypes() -> impl Iterator<Item = Datatype> {
    let x87 = |d: &Datatype| matches!(d, Datatype::LongDouble | Datatype::LongDoubleComplex);
    Datatype::ALL
        .into_iter()
        .filter(|d| supported(*d))
        .filter(move |d| !(cfg!(miri) && x87(d)))
}

/// All valid combinations.
fn combinations() -> impl Iterator<Item = (AtomicKind, AtomicOp, Datatype)> {
    let kinds = [AtomicKind::Plain, AtomicKind::Fetch, AtomicKind::Compare];
    datatypes()
        .flat_map(|d| AtomicOp::ALL.map(|op| (op, d)))
        .flat_map(move |(op, d)| kinds.map(|kind| (kind, op, d)))
        .filter(|(kind, op, d)| kind.allows(*op, *d))
}

#[test]
#[cfg_attr(miri, ignore = "slow; the test of the minimum alignment covers all")]
fn every_combination_matches_the_model() {
    for (kind, op, datatype) in combinations() {
        let values = model::values(datatype);
        for (i, old) in values.iter().enumerate() {
            for (j, operand) in values.iter().enumerate() {
                // Every pair with the old value in the place of the comparison, too.
                let other = &values[(i * 7 + j * 3) % values.len()];
                for compare in [old, other] {
                    one(kind, op, datatype, old, operand, compare);
                    if !op.takes_comparison() {
                        break;
                    }
                }
            }
        }
    }
}

/// Checks one element: `apply`, and `execute` on three of them.
fn one(
    kind: AtomicKind,
    op: AtomicOp,
    datatype: Datatype,
    old: &[u8],
    operand: &[u8],
    compare: &[u8],
) {
    let expected = model::element(datatype, op, old, operand, compare);
    let same = |got: &[u8]| model::same(datatype, op, got, &expected);
    let size = datatype.size();
    let case = || std::format!("{kind:?} {op:?} {datatype:?}: {old:x?} {operand:x?} {compare:x?}");
    let (operand, compare) = match (op.takes_operand(), op.takes_comparison()) {
        (false, _) => (&[][..], &[][..]),
        (true, false) => (operand, &[][..]),
        (true, true) => (operand, compare),
    };

    let mut new = old.to_vec();
    apply(datatype, op, operand, compare, &mut new);
    assert!(same(&new), "{}: {new:x?} not {expected:x?}", case());

    let mut memory = Memory::new();
    let target = memory.target(64, &old.repeat(3));
    let mut result = vec![0; 3 * size];
    let wanted = (kind != AtomicKind::Plain).then_some(&mut result[..]);
    let (operand, compare) = (operand.repeat(3), compare.repeat(3));
    execute(datatype, op, target, &operand, &compare, wanted).unwrap();
    for new in memory.0[64..64 + 3 * size].chunks(size) {
        assert!(same(new), "{}: {new:x?} not {expected:x?}", case());
    }
    if kind != AtomicKind::Plain {
        assert_eq!(result, old.repeat(3), "{}", case());
    }
    let (before, behind) = (&memory.0[..64], &memory.0[64 + 3 * size..]);
    assert_eq!(before, &UNTOUCHED[..64], "nothing before the target");
    assert_eq!(behind, &UNTOUCHED[64 + 3 * size..], "nothing behind it");
}

#[test]
fn elements_at_their_minimum_alignment_match_the_model() {
    for (kind, op, datatype) in combinations() {
        let values = model::values(datatype);
        let (old, operand, compare) = (&values[1], &values[2], &values[1]);
        let expected = model::element(datatype, op, old, operand, compare);
        for off in (0..2 * datatype.size()).step_by(datatype.align()) {
            let mut memory = Memory::new();
            let target = memory.target(off, old);
            let mut result = vec![0; datatype.size()];
            execute(datatype, op, target, operand, compare, Some(&mut result)).unwrap();
            let new = &memory.0[off..off + datatype.size()];
            assert!(
                model::same(datatype, op, new, &expected),
                "{kind:?} {op:?} {datatype:?} at {off}: {new:x?} not {expected:x?}"
            );
            assert_eq!(&result, old);
        }
    }
}

#[test]
fn each_element_has_its_own_operands() {
    let mut memory = Memory::new();
    let words = |words: [u32; 4]| words.map(u32::to_ne_bytes).concat();
    let target = memory.target(0, &words([1, 2, 3, 4]));
    let (operand, compare) = (words([10, 20, 30, 40]), words([1, 0, 3, 0]));
    let mut result = vec![0; 20];
    let (datatype, op) = (Datatype::Uint32, AtomicOp::Cswap);
    execute(datatype, op, target, &operand, &compare, Some(&mut result)).unwrap();
    assert_eq!(memory.0[..16], words([10, 2, 30, 4]));
    assert_eq!(result[..16], words([1, 2, 3, 4]));
    assert_eq!(result[16..], [0; 4], "a longer result keeps its rest");
}

#[test]
fn misaligned_targets_are_refused() {
    for (_, op, datatype) in combinations() {
        let bytes = vec![0; datatype.size()];
        let step = if cfg!(miri) { 3 } else { 1 };
        let offs = (0..64).step_by(step);
        for off in offs.filter(|off| off % datatype.align() != 0) {
            let mut memory = Memory::new();
            let target = memory.target(off, &UNTOUCHED[..datatype.size()]);
            let refused = execute(datatype, op, target, &bytes, &bytes, None);
            assert_eq!(
                refused,
                Err(AtomicError::Misaligned),
                "{datatype:?} at {off}"
            );
            assert_eq!(memory.0, UNTOUCHED, "nothing is written");
        }
    }
}

#[test]
fn short_buffers_are_refused() {
    for (_, op, datatype) in combinations() {
        let size = datatype.size();
        let (whole, short) = (vec![1; 2 * size], vec![1; 2 * size - 1]);
        let mut memory = Memory::new();
        let mut refuse = |len: usize, operand: &[u8], compare: &[u8], result: usize| {
            let target = memory.target(0, &UNTOUCHED[..len]);
            let mut result = vec![7; result];
            let refused = execute(datatype, op, target, operand, compare, Some(&mut result));
            assert_eq!(result, vec![7; result.len()], "{op:?} {datatype:?}");
            assert_eq!(memory.0, UNTOUCHED, "{op:?} {datatype:?}");
            refused == Err(AtomicError::Length)
        };
        assert!(refuse(2 * size, &whole, &whole, 2 * size - 1));
        if op.takes_operand() {
            assert!(refuse(2 * size, &short, &whole, 2 * size));
        }
        if op.takes_comparison() {
            assert!(refuse(2 * size, &whole, &short, 2 * size));
        }
        if size > 1 {
            assert!(
                refuse(2 * size - 1, &whole, &whole, 2 * size),
                "half an element"
            );
        }
    }
}

#[test]
fn undefined_combinations_are_refused() {
    for datatype in datatypes() {
        for op in AtomicOp::ALL.into_iter().filter(|op| !op.acts_on(datatype)) {
            let one = vec![1; datatype.size()];
            let mut memory = Memory::new();
            let target = memory.target(0, &one);
            let refused = execute(datatype, op, target, &one, &one, None);
            assert_eq!(refused, Err(AtomicError::Invalid), "{op:?} {datatype:?}");
            assert_eq!(memory.0[..one.len()], one);
        }
    }
}

#[test]
fn empty_targets_are_accepted() {
    for (_, op, datatype) in combinations() {
        let done = execute(datatype, op, UserBuf::EMPTY, &[], &[], Some(&mut []));
        assert_eq!(done, Ok(()));
    }
}

/// What `op` makes of two numbers of 8 or 16 bits of floating point.
fn small(datatype: Datatype, op: AtomicOp, old: u16, operand: u16) -> u16 {
    let (mut new, operand) = (old.to_ne_bytes(), operand.to_ne_bytes());
    let size = datatype.size();
    // The tests run on little-endian machines only if a byte is the first of its two.
    apply(datatype, op, &operand[..size], &[], &mut new[..size]);
    u16::from_ne_bytes(new)
}

#[test]
fn eight_bit_floats_round_and_saturate() {
    let (e4m3, e5m2) = (Datatype::Float8E4M3, Datatype::Float8E5M2);
    let cases = [
        (e4m3, AtomicOp::Sum, 0x38, 0x38, 0x40),  // 1 + 1 = 2
        (e4m3, AtomicOp::Sum, 0x7e, 0x7e, 0x7e),  // 448 + 448 stays at 448
        (e4m3, AtomicOp::Prod, 0xfe, 0x40, 0xfe), // -448 * 2 stays at -448
        (e4m3, AtomicOp::Sum, 0x7e, 0x7f, 0x7f),  // 448 + NaN
        (e4m3, AtomicOp::Sum, 0x40, 0x18, 0x40),  // 2 + 1/16: half way, down to the even
        (e4m3, AtomicOp::Prod, 0x01, 0x30, 0x00), // half the smallest: to the even 0
        (e4m3, AtomicOp::Prod, 0x03, 0x30, 0x02), // 1.5 of the smallest: to the even 2
        (e5m2, AtomicOp::Sum, 0x7b, 0x7b, 0x7c),  // 57344 + 57344 is infinite
        (e5m2, AtomicOp::Diff, 0x7c, 0x7c, 0xfe), // infinity - infinity (x86: a negative NaN)
        (e5m2, AtomicOp::Prod, 0x04, 0x38, 0x02), // into the subnormal numbers
        (e5m2, AtomicOp::Diff, 0x3c, 0x3c, 0x00), // 1 - 1 = 0
    ];
    for (datatype, op, old, operand, expected) in cases {
        let new = small(datatype, op, old, operand);
        let sign = if expected & 0x7f > 0x7c { 0x7f } else { 0xff };
        assert_eq!(
            new & sign,
            expected & sign,
            "{datatype:?} {op:?} {old:x} {operand:x}"
        );
    }
}

#[test]
fn eight_bit_floats_match_the_model_exhaustively() {
    let step = if cfg!(miri) { 85 } else { 1 };
    for datatype in [Datatype::Float8E4M3, Datatype::Float8E5M2] {
        for old in (0..=u8::MAX).step_by(step) {
            for operand in (0..=u8::MAX).step_by(step.min(5)) {
                for op in [AtomicOp::Sum, AtomicOp::Diff, AtomicOp::Prod, AtomicOp::Max] {
                    let expected = model::element(datatype, op, &[old], &[operand], &[]);
                    let mut new = [old];
                    apply(datatype, op, &[operand], &[], &mut new);
                    assert!(
                        model::same(datatype, op, &new, &expected),
                        "{datatype:?} {op:?} {old:x} {operand:x}: {new:x?} not {expected:x?}"
                    );
                }
            }
        }
    }
}

#[test]
fn sixteen_bit_floats_match_the_model_at_random() {
    let mut random = model::Random::new(1);
    let rounds = if cfg!(miri) { 10 } else { 20_000 };
    for datatype in [Datatype::Float16, Datatype::Bfloat16] {
        for _ in 0..rounds {
            let old = (random.next() as u16).to_ne_bytes();
            // Half of the time near the first, where sums and differences have few digits.
            let near = u16::from_ne_bytes(old) ^ (random.next() as u16 & 0x83ff);
            let any = random.next() as u16;
            let operand = if any & 1 == 0 { any } else { near }.to_ne_bytes();
            for op in [AtomicOp::Sum, AtomicOp::Diff, AtomicOp::Prod] {
                let expected = model::element(datatype, op, &old, &operand, &[]);
                let mut new = old;
                apply(datatype, op, &operand, &[], &mut new);
                assert!(
                    model::same(datatype, op, &new, &expected),
                    "{datatype:?} {op:?} {old:x?} {operand:x?}: {new:x?} not {expected:x?}"
                );
            }
        }
    }
}

/// The 80-bit number that is nearest to `magnitude * 2^exponent`.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn extended(negative: bool, magnitude: u128, exponent: i32) -> [u8; 16] {
    let mut bytes = [0x5a; 16]; // the padding stays
    let width = 128 - magnitude.leading_zeros() as i32;
    let drop = width - 64;
    let (mut digits, mut exponent) = if drop <= 0 {
        (magnitude << -drop, exponent + drop)
    } else {
        let (kept, rest) = (magnitude >> drop, magnitude & ((1 << drop) - 1));
        let half = 1u128 << (drop - 1);
        let up = rest > half || (rest == half && kept & 1 == 1);
        (kept + u128::from(up), exponent + drop)
    };
    if digits == 1 << 64 {
        (digits, exponent) = (1 << 63, exponent + 1);
    }
    let field = if magnitude == 0 {
        0
    } else {
        (exponent + 63 + 16383) as u16
    };
    bytes[..8].copy_from_slice(&(digits as u64).to_le_bytes());
    bytes[8..10].copy_from_slice(&(field | u16::from(negative) << 15).to_le_bytes());
    bytes
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn long_double_is_exact_to_64_bits() {
    let mut random = model::Random::new(2);
    for _ in 0..20_000 {
        let (a, b) = (random.next() | 1 << 63, random.next() | 1 << 63);
        let shift = (random.next() % 60) as i32;
        let (minus_a, minus_b) = (random.next() & 1 == 1, random.next() & 1 == 1);
        let (old, operand) = (
            extended(minus_a, a.into(), shift),
            extended(minus_b, b.into(), 0),
        );

        let value = |negative: bool, digits: u64, shift: i32| {
            let value = i128::from(digits) << shift;
            if negative { -value } else { value }
        };
        let (x, y) = (value(minus_a, a, shift), value(minus_b, b, 0));
        let exact = |value: i128| extended(value < 0, value.unsigned_abs(), 0);
        let product = extended(minus_a != minus_b, u128::from(a) * u128::from(b), shift);
        for (op, expected) in [
            (AtomicOp::Sum, exact(x + y)),
            (AtomicOp::Diff, exact(x - y)),
            (AtomicOp::Prod, product),
            (AtomicOp::Min, if y < x { operand } else { old }),
            (AtomicOp::Max, if y > x { operand } else { old }),
        ] {
            let mut new = old;
            apply(Datatype::LongDouble, op, &operand, &[], &mut new);
            assert_eq!(new, expected, "{op:?} {old:x?} {operand:x?}");
        }
    }
}

#[test]
fn padding_of_a_long_double_is_kept() {
    if !datatypes().any(|d| d == Datatype::LongDoubleComplex) {
        return;
    }
    let old: Vec<u8> = (100..132).collect();
    let operand: Vec<u8> = (200..232).collect();
    let mut new = old.clone();
    let (datatype, op) = (Datatype::LongDoubleComplex, AtomicOp::AtomicWrite);
    apply(datatype, op, &operand, &[], &mut new);
    let expected = [&operand[..10], &old[10..16], &operand[16..26], &old[26..]];
    assert_eq!(new, expected.concat());
}
