#![allow(unsafe_code)]
//! Several threads that update the same element.

extern crate std;

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::vec;
use std::vec::Vec;

use ripstop_types::{AtomicOp, Datatype};

use super::{datatypes, model};
use crate::UserBuf;
use crate::atomic::element::AtomicElement;
use crate::atomic::execute;
use crate::atomic::execute::WordElement;

/// How often each thread does it.
const ROUNDS: u64 = if cfg!(miri) { 20 } else { 100_000 };

/// Memory that several threads update, aligned for every datatype.
#[repr(align(64))]
struct Shared([AtomicU64; 8]);

impl Shared {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; 8])
    }

    /// The `len` bytes at `off`.
    fn target(&self, off: usize, len: usize) -> UserBuf {
        assert!(off + len <= size_of_val(&self.0));
        let ptr = self.0.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: inside, writable through the atomics, and accessed atomically only.
        unsafe { UserBuf::from_raw(ptr.wrapping_add(off), len) }
    }

    /// What is there, now that nobody writes.
    fn read(&self, off: usize, len: usize) -> Vec<u8> {
        let words = self.0.iter().map(|w| w.load(Ordering::Relaxed));
        let bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        bytes[off..off + len].to_vec()
    }
}

#[test]
fn additions_are_atomic_against_cpu_atomics() {
    let shared = Shared::new();
    thread::scope(|scope| {
        for thread in 0..2 {
            let shared = &shared;
            scope.spawn(move || {
                let (op, one) = (AtomicOp::Sum, 1u64.to_ne_bytes());
                let mut last = 0;
                for _ in 0..ROUNDS {
                    let target = shared.target(8, 8);
                    let mut old = [0; 8];
                    execute(Datatype::Uint64, op, target, &one, &[], Some(&mut old)).unwrap();
                    let old = u64::from_ne_bytes(old);
                    assert!(
                        old > last || last == 0,
                        "thread {thread}: no value comes twice"
                    );
                    last = old;
                }
            });
        }
        for _ in 0..ROUNDS {
            shared.0[1].fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(shared.0[1].load(Ordering::Relaxed), 3 * ROUNDS);
}

#[test]
fn exchange_loops_are_atomic_against_cpu_atomics() {
    // A maximum has no instruction of its own; the processor adds meanwhile.
    let shared = Shared::new();
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for i in 0..ROUNDS {
                let (op, operand) = (AtomicOp::Lxor, u64::from(i % 2 == 0).to_ne_bytes());
                execute(
                    Datatype::Uint64,
                    op,
                    shared.target(0, 8),
                    &operand,
                    &[],
                    None,
                )
                .unwrap();
                execute(
                    Datatype::Uint64,
                    AtomicOp::Max,
                    shared.target(8, 8),
                    &[0; 8],
                    &[],
                    None,
                )
                .unwrap();
            }
        });
        start.wait();
        for _ in 0..ROUNDS {
            shared.0[1].fetch_add(1, Ordering::Relaxed);
        }
    });
    assert_eq!(shared.0[1].load(Ordering::Relaxed), ROUNDS);
}

/// Adds 1 to an element of zeros, while somebody else adds 1 as well: between the load and the
/// exchange, as often as that can happen.
fn interrupt<const N: usize, P: AtomicElement<N>>() {
    let shared = Shared::new();
    let place = P::at(shared.target(16, N).as_ptr());
    let add = |old: &[u8; N]| {
        let mut new = *old;
        new[0] += 1;
        new
    };
    // SAFETY: an element of `shared` at an address that suits every size.
    let other = || unsafe { place.update(add) };
    let mut others = 0;
    let change = |old: &[u8; N]| {
        if others < 3 {
            others += 1;
            other();
        }
        add(old)
    };
    // SAFETY: `place` is in `shared`, which lives to the end of this function.
    let old = unsafe { place.update(change) };
    assert_eq!(old[0], 3, "the value before is the one that was replaced");
    assert_eq!(shared.read(16, N)[0], 4, "nothing is lost");
}

#[test]
fn overtaken_update_starts_again() {
    interrupt::<1, WordElement<u8>>();
    interrupt::<2, WordElement<u16>>();
    interrupt::<4, WordElement<u32>>();
    interrupt::<8, WordElement<u64>>();
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if crate::atomic::cmpxchg16b::available() {
        interrupt::<16, crate::atomic::cmpxchg16b::Cmpxchg16bElement>();
    }
}

#[test]
fn no_addition_is_lost_on_any_datatype() {
    for datatype in datatypes() {
        for off in (0..=datatype.size()).step_by(datatype.align()) {
            // What every format can count to without rounding.
            let rounds = match datatype.size() {
                1 => ROUNDS.min(8),
                2 => ROUNDS.min(128),
                _ => ROUNDS.min(20_000),
            };
            let shared = Shared::new();
            let one = one(datatype);
            let start = Barrier::new(2);
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        start.wait();
                        for _ in 0..rounds {
                            let target = shared.target(off, datatype.size());
                            execute(datatype, AtomicOp::Sum, target, &one, &[], None).unwrap();
                        }
                    });
                }
            });
            let mut expected = vec![0; datatype.size()];
            for _ in 0..2 * rounds {
                expected = model::element(datatype, AtomicOp::Sum, &expected, &one, &[]);
            }
            let found = shared.read(off, datatype.size());
            assert_eq!(found, expected, "{datatype:?} at {off}");
        }
    }
}

/// 1 of the datatype: the outcome of a logical operation.
fn one(datatype: Datatype) -> Vec<u8> {
    let two = &model::values(datatype)[2]; // or another that is true
    let zero = vec![0; datatype.size()];
    model::element(datatype, AtomicOp::Lor, two, &zero, &[])
}

#[test]
fn no_read_sees_a_partial_write() {
    let wide = [
        (Datatype::Uint64, 0),
        (Datatype::FloatComplex, 4),
        (Datatype::Int128, 16),
        (Datatype::DoubleComplex, 8),
        (Datatype::DoubleComplex, 16),
        (Datatype::LongDoubleComplex, 16),
    ];
    for (datatype, off) in wide
        .into_iter()
        .filter(|(d, _)| datatypes().any(|x| x == *d))
    {
        let size = datatype.size();
        let shared = Shared::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..ROUNDS {
                    // Not a NaN as any datatype. A `long double` keeps its padding.
                    let value = vec![(i % 100) as u8; size];
                    let target = shared.target(off, size);
                    execute(datatype, AtomicOp::AtomicWrite, target, &value, &[], None).unwrap();
                }
            });
            for _ in 0..ROUNDS {
                let mut seen = vec![0; size];
                let target = shared.target(off, size);
                let op = AtomicOp::AtomicRead;
                execute(datatype, op, target, &[], &[], Some(&mut seen)).unwrap();
                let padded = datatype == Datatype::LongDoubleComplex;
                let parts = if padded { 16 } else { size };
                for (i, byte) in seen.iter().enumerate() {
                    let padding = padded && i % parts >= 10;
                    assert!(
                        padding || *byte == seen[0],
                        "{datatype:?} at {off}: {seen:x?}"
                    );
                }
            }
        });
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn sixteen_byte_updates_are_atomic_against_cmpxchg16b() {
    use crate::atomic::cmpxchg16b::{available, compare_exchange};

    assert_eq!(
        available(),
        std::is_x86_feature_detected!("cmpxchg16b"),
        "the processor was asked rightly"
    );
    if !available() {
        return;
    }
    let shared = Shared::new();
    // The carry into the upper half happens on the way.
    shared.0[2].store(u64::MAX - ROUNDS, Ordering::Relaxed);
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            let one = 1u128.to_ne_bytes();
            for _ in 0..ROUNDS {
                let target = shared.target(16, 16);
                execute(Datatype::Uint128, AtomicOp::Sum, target, &one, &[], None).unwrap();
            }
        });
        let ptr = shared.target(16, 16).as_ptr().cast();
        let mut old = 0;
        start.wait();
        for _ in 0..ROUNDS {
            loop {
                // SAFETY: 16 aligned bytes of `shared`, accessed atomically only.
                let found = unsafe { compare_exchange(ptr, old, old + 1) };
                if found == old {
                    break;
                }
                old = found;
            }
        }
    });
    let sum = u128::from(u64::MAX - ROUNDS) + 2 * u128::from(ROUNDS);
    assert_eq!(shared.read(16, 16), sum.to_ne_bytes());
}

#[cfg(all(unix, not(miri)))]
#[test]
fn reads_do_not_write_constant_memory() {
    #[repr(align(64))]
    struct Constant([u8; 64]);
    // In a segment that is mapped without write permission.
    static CONSTANT: Constant = Constant([7; 64]);
    for datatype in datatypes() {
        let ptr = CONSTANT.0.as_ptr().cast_mut();
        // SAFETY: readable; a read is the only operation, and needs no more where 16 bytes can
        // be loaded in one step.
        let target = unsafe { UserBuf::from_raw(ptr, datatype.size()) };
        #[cfg(target_arch = "x86_64")]
        if datatype.size() == 16 && !std::is_x86_feature_detected!("avx") {
            continue;
        }
        let mut seen = vec![0; datatype.size()];
        let op = AtomicOp::AtomicRead;
        execute(datatype, op, target, &[], &[], Some(&mut seen)).unwrap();
        assert!(seen.iter().all(|byte| *byte == 7), "{datatype:?}");
    }
}
