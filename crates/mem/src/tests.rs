#![allow(unsafe_code)]
//! Callers' buffers, parked buffers, copies and regions.

extern crate std;

use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread;
use std::vec;
use std::vec::Vec;

use crate::{Parked, Region, RegionError, UserBuf, copy, copy_in, copy_out};

/// The whole of `bytes` as a caller's buffer. The tests touch `bytes` only when the `UserBuf`
/// is not used any more, except through copies of it.
fn user(bytes: &mut [u8]) -> UserBuf {
    // SAFETY: every test keeps `bytes` alive while it uses the buffer and reads it afterwards.
    unsafe { UserBuf::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

/// `n` bytes that all differ from their neighbours.
fn pattern(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i * 7 + 1) as u8).collect()
}

mod user_buf {
    use super::*;

    #[test]
    fn slices_stay_inside() {
        let mut bytes = pattern(10);
        let buf = user(&mut bytes);
        let part = buf.slice(3, 4).unwrap();
        assert_eq!((part.addr(), part.len()), (buf.addr() + 3, 4));
        assert_eq!(buf.slice(10, 0).unwrap().len(), 0);
        assert!(buf.slice(3, 8).is_none());
        assert!(buf.slice(11, 0).is_none());
        assert!(buf.slice(usize::MAX, 2).is_none(), "the sum wraps");
        assert!(buf.slice(2, usize::MAX).is_none(), "the sum wraps");
    }

    #[test]
    fn splitting_covers_the_buffer() {
        let mut bytes = pattern(10);
        let buf = user(&mut bytes);
        for mid in 0..=10 {
            let (a, b) = buf.split_at(mid).unwrap();
            assert_eq!((a.addr(), a.len()), (buf.addr(), mid));
            assert_eq!((b.addr(), b.len()), (buf.addr() + mid, 10 - mid));
            assert_eq!((buf.first(mid).len(), buf.skip(mid).len()), (mid, 10 - mid));
        }
        assert!(buf.split_at(11).is_none());
        assert_eq!((buf.first(99).len(), buf.skip(99).len()), (10, 0));
    }

    #[test]
    fn the_empty_buffer_copies_nothing() {
        let mut one = [5u8];
        assert_eq!(copy_in(&mut one, UserBuf::EMPTY), 0);
        assert_eq!(copy_out(UserBuf::EMPTY, &one), 0);
        assert_eq!(copy(UserBuf::EMPTY, UserBuf::EMPTY), 0);
        assert_eq!(one, [5]);
        assert!(UserBuf::EMPTY.is_empty());
        assert!(UserBuf::default().slice(0, 0).is_some());
    }
}

mod copies {
    use super::*;

    /// Every length through the inline sizes and beyond, at every alignment of 8; the bytes
    /// around the destination keep their value.
    #[test]
    fn every_small_length_and_alignment() {
        for n in 0..=40 {
            for align in 0..8 {
                let mut src = pattern(align + n);
                let want = src[align..].to_vec();
                let src = user(&mut src[align..]);

                let mut dst = vec![0xEE; align + n + 8];
                assert_eq!(copy_in(&mut dst[align..align + n], src), n);
                check(&dst, align, &want);

                let mut dst = vec![0xEE; align + n + 8];
                assert_eq!(copy_out(user(&mut dst[align..align + n]), &want), n);
                check(&dst, align, &want);

                let mut dst = vec![0xEE; align + n + 8];
                assert_eq!(copy(user(&mut dst[align..align + n]), src), n);
                check(&dst, align, &want);
            }
        }
    }

    fn check(dst: &[u8], at: usize, want: &[u8]) {
        assert!(dst[..at].iter().all(|&byte| byte == 0xEE));
        assert_eq!(&dst[at..at + want.len()], want);
        assert!(dst[at + want.len()..].iter().all(|&byte| byte == 0xEE));
    }

    #[test]
    fn the_shorter_side_bounds_the_copy() {
        let mut long = pattern(20);
        let mut short = [0u8; 6];
        assert_eq!(copy_in(&mut short, user(&mut long)), 6);
        assert_eq!(short, pattern(20)[..6]);
        assert_eq!(copy_out(user(&mut long), &[9; 3]), 3);
        assert_eq!(&long[..4], &[9, 9, 9, pattern(4)[3]]);
    }

    /// A message to oneself may go from a buffer to an overlapping one.
    #[test]
    fn overlapping_buffers_move() {
        for n in 0..=40 {
            for (from, to) in [(0, 3), (3, 0), (5, 5), (0, 1), (1, 0)] {
                let mut bytes = pattern(n + 5);
                let mut want = bytes.clone();
                want.copy_within(from..from + n, to);
                let all = user(&mut bytes);
                let (src, dst) = (all.slice(from, n).unwrap(), all.slice(to, n).unwrap());
                assert_eq!(copy(dst, src), n);
                assert_eq!(bytes, want, "{n} bytes from {from} to {to}");
            }
        }
    }
}

mod parked {
    use super::*;

    #[test]
    fn the_same_vector_comes_back() {
        let mut vec = Vec::with_capacity(64);
        vec.extend_from_slice(b"before");
        let (ptr, capacity) = (vec.as_ptr(), vec.capacity());
        let parked = Parked::park(vec);
        assert_eq!(parked.buf().len(), 6);
        copy_out(parked.buf(), b"after!");
        // SAFETY: its `UserBuf` was used above, and is no more.
        let vec = unsafe { parked.unpark() };
        assert_eq!((vec.as_ptr(), vec.capacity()), (ptr, capacity));
        assert_eq!(vec, b"after!");
    }

    #[test]
    fn an_empty_vector_parks() {
        let parked = Parked::park(Vec::new());
        // SAFETY: nobody has its `UserBuf`.
        assert!(unsafe { parked.unpark() }.is_empty());
    }

    /// The late arrival: the owner of the buffer is gone, the operation still writes.
    #[test]
    fn dropping_leaves_the_memory_in_place() {
        let late = {
            let parked = Parked::park(vec![0u8; 32]);
            parked.buf()
        };
        // Whatever is allocated now must not be where the late bytes go.
        let others: Vec<Vec<u8>> = (0..64).map(|_| vec![0x55u8; 32]).collect();
        assert_eq!(copy_out(late, &[0xAA; 32]), 32);
        assert!(others.iter().flatten().all(|&byte| byte == 0x55));
        // SAFETY: taken apart from a vector of 32 bytes above, never freed; ends the leak.
        let leaked = unsafe { Vec::from_raw_parts(late.as_ptr(), 32, 32) };
        assert_eq!(leaked, [0xAA; 32]);
    }
}

mod region {
    use super::*;

    /// Shared bytes, aligned to 8.
    #[repr(align(8))]
    struct Shared<const N: usize>([AtomicU8; N]);

    impl<const N: usize> Shared<N> {
        const fn new() -> Self {
            Self([const { AtomicU8::new(0) }; N])
        }

        const fn region(&self) -> Region<'_> {
            let ptr = NonNull::from_ref(&self.0).cast();
            // SAFETY: atomic bytes that live as long as the borrow; a shared reference to them lets
            // others write.
            unsafe { Region::from_raw(ptr, N) }
        }
    }

    #[test]
    fn every_offset_and_length_reads_back() {
        let shared = Shared::<40>::new();
        let region = shared.region();
        for off in 0..40 {
            for len in 0..=40 - off {
                region.write(0, &[0xEE; 40]).unwrap();
                region.write(off, &pattern(len)).unwrap();
                let mut all = [0u8; 40];
                region.read(0, &mut all).unwrap();
                assert!(all[..off].iter().all(|&byte| byte == 0xEE));
                assert_eq!(&all[off..off + len], pattern(len));
                assert!(all[off + len..].iter().all(|&byte| byte == 0xEE));
                let mut part = vec![0u8; len];
                region.read(off, &mut part).unwrap();
                assert_eq!(part, pattern(len));
            }
        }
    }

    #[test]
    fn nothing_beyond_the_end() {
        let shared = Shared::<16>::new();
        let region = shared.region();
        let out = Err(RegionError::OutOfBounds);
        let mut two = [7u8; 2];
        for off in [15, 16, 17, usize::MAX - 1, usize::MAX] {
            assert_eq!(region.read(off, &mut two), out);
            assert_eq!(region.write(off, &[1; 2]), out);
            assert_eq!(region.store_u64(off, 1, Ordering::Relaxed), out);
            assert_eq!(region.load_u64(off, Ordering::Relaxed).map(drop), out);
            assert!(region.slice(off, 2).is_err());
        }
        assert_eq!(two, [7; 2]);
        assert_eq!(region.read(16, &mut []), Ok(()));
        assert!(
            shared
                .0
                .iter()
                .all(|byte| byte.load(Ordering::Relaxed) == 0)
        );
    }

    #[test]
    fn a_slice_cannot_reach_its_surroundings() {
        let shared = Shared::<24>::new();
        let region = shared.region();
        let middle = region.slice(8, 8).unwrap();
        assert_eq!(middle.len(), 8);
        middle.store_u64(0, u64::MAX, Ordering::Relaxed).unwrap();
        assert_eq!(middle.write(4, &[1; 5]), Err(RegionError::OutOfBounds));
        assert_eq!(region.load_u64(0, Ordering::Relaxed), Ok(0));
        assert_eq!(region.load_u64(8, Ordering::Relaxed), Ok(u64::MAX));
        assert_eq!(region.load_u64(16, Ordering::Relaxed), Ok(0));
    }

    #[test]
    fn atomics_want_their_alignment() {
        let shared = Shared::<16>::new();
        let region = shared.region();
        for off in 1..8 {
            assert_eq!(
                region.load_u64(off, Ordering::Relaxed),
                Err(RegionError::Misaligned)
            );
        }
        assert!(region.load_u64(8, Ordering::Relaxed).is_ok());
        assert_eq!(
            region.compare_exchange_u64(4, 0, 1),
            Err(RegionError::Misaligned)
        );
    }

    #[test]
    fn atomics_do_what_they_say() {
        let shared = Shared::<16>::new();
        let region = shared.region();
        region.store_u64(8, 7, Ordering::Release).unwrap();
        assert_eq!(region.load_u64(8, Ordering::Acquire), Ok(7));
        assert_eq!(region.compare_exchange_u64(8, 7, 8), Ok(Ok(7)));
        assert_eq!(region.compare_exchange_u64(8, 7, 9), Ok(Err(8)));
        let mut bytes = [0u8; 8];
        region.read(8, &mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 8);
    }

    const ROUNDS: usize = if cfg!(miri) { 50 } else { 20_000 };

    /// Data written before a release store is seen after the acquire load of the flag.
    #[test]
    fn a_flag_publishes_data() {
        let shared = Shared::<72>::new();
        let region = shared.region();
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS as u64 {
                    while region.load_u64(8, Ordering::Acquire).unwrap() != round - 1 {
                        core::hint::spin_loop();
                    }
                    region.write(16, &[round as u8; 56]).unwrap();
                    region.store_u64(0, round, Ordering::Release).unwrap();
                }
            });
            for round in 1..=ROUNDS as u64 {
                while region.load_u64(0, Ordering::Acquire).unwrap() != round {
                    core::hint::spin_loop();
                }
                let mut got = [0u8; 56];
                region.read(16, &mut got).unwrap();
                assert_eq!(got, [round as u8; 56]);
                region.store_u64(8, round, Ordering::Release).unwrap();
            }
        });
    }

    /// The hostile peer: it changes a length between our check and our use. A reader that
    /// copies once and checks the copy never follows a length it has not checked.
    #[test]
    fn a_checked_copy_does_not_change() {
        let shared = Shared::<32>::new();
        let region = shared.region();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for evil in [8u64, u64::MAX, 24, 25] {
                        region.write(0, &evil.to_ne_bytes()).unwrap();
                    }
                }
            });
            let (mut accepted, mut refused) = (0, 0);
            while accepted < ROUNDS / 50 || refused < ROUNDS / 50 {
                let mut header = [0u8; 8];
                region.read(0, &mut header).unwrap();
                let len = u64::from_ne_bytes(header);
                if len <= 24 {
                    accepted += 1;
                    let mut body = vec![0u8; len as usize];
                    region.read(8, &mut body).unwrap();
                } else {
                    refused += 1;
                }
                thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn additions_of_two_threads_all_count() {
        let shared = Shared::<8>::new();
        let region = shared.region();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut old = region.load_u64(0, Ordering::Relaxed).unwrap();
                        while let Err(found) = region.compare_exchange_u64(0, old, old + 1).unwrap()
                        {
                            old = found;
                        }
                    }
                });
            }
        });
        assert_eq!(region.load_u64(0, Ordering::Relaxed), Ok(2 * ROUNDS as u64));
    }
}
