//! Tests with a peer that writes arbitrary words to the shared memory.

extern crate std;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::vec;
use std::vec::Vec;

use super::layout::{CREDIT_OFFSETS, JOINT_MESSAGE_OFFSETS};
use super::tests::{HeapMapping, layout};
use super::*;

/// The acceptor's halves, and the memory that it shares with the hostile peer.
fn acceptor(entries: u32, buffer: u32) -> (Arc<HeapMapping>, Layout, Writer, Reader) {
    let layout = layout(entries, buffer);
    let map = HeapMapping::new(layout.len(), true);
    let (writer, reader) = pair(map.clone(), layout, Side::Acceptor).unwrap();
    (map, layout, writer, reader)
}

/// The result of reading a first entry with these two words, in both kinds of reads.
fn first(state: u64, length: u64) -> [Result<usize, RingError>; 2] {
    [false, true].map(|into_own_memory| {
        let (map, layout, _, reader) = acceptor(4, 1024);
        let (region, at) = (map.region(), layout.entries_at(0));
        region.store_u64(at + 8, length, Ordering::Relaxed).unwrap();
        region.store_u64(at, state, Ordering::Release).unwrap();
        let mut room = [0; 600];
        match into_own_memory {
            true => reader.read(&mut room),
            false => reader.read_vectored(&mut [&mut room[..]]),
        }
    })
}

#[test]
fn entries_out_of_bounds_are_errors() {
    let lap = 1 << 32;
    assert_eq!(first(lap | 1 << 8 | 56, 0), [Ok(56); 2]);
    for (chunked, most) in [(2, 256), (3, 128)] {
        assert_eq!(
            first(lap | chunked << 8 | 48, most),
            [Ok(48 + most as usize); 2]
        );
        for length in [0, most + 1, 1 << 20, u64::MAX, 1 << 32 | 8] {
            assert_eq!(
                first(lap | chunked << 8, length),
                [Err(RingError::Chunk); 2]
            );
        }
        for len in [49, 56, 255] {
            assert_eq!(
                first(lap | chunked << 8 | len, 8),
                [Err(RingError::Inline); 2]
            );
        }
    }
    for len in [0, 57, 64, 255] {
        assert_eq!(first(lap | 1 << 8 | len, 0), [Err(RingError::Inline); 2]);
    }
    for kind in [
        0,
        4,
        0x101,
        0x201,
        0x301,
        0x0001_0001,
        0x0080_0001,
        0x00ff_ffff,
    ] {
        assert_eq!(first(lap | kind << 8 | 8, 8), [Err(RingError::Kind); 2]);
    }
    for other in [0, 2, u64::MAX >> 32] {
        assert_eq!(first(other << 32 | 1 << 8 | 8, 8), [Ok(0); 2], "not there");
    }
}

#[test]
fn credit_beyond_what_was_written_is_an_error() {
    let (map, _, writer, _) = acceptor(4, 1024);
    let region = map.region();
    let entry = || writer.write(Source::from(&[1; 8][..]));
    assert_eq!([entry(), entry(), entry(), entry()], [Ok(8); 4]);
    for (credit, result) in [
        (0, Ok(0)),
        (5, Err(RingError::Credit)),
        (u64::from(u32::MAX), Err(RingError::Credit)),
        (1 << 32 | 1, Err(RingError::Credit)),
        (u64::MAX, Err(RingError::Credit)),
        (4, Ok(8)),
    ] {
        region
            .store_u64(CREDIT_OFFSETS[1], credit, Ordering::Release)
            .unwrap();
        assert_eq!(entry(), result, "credit {credit:#x}");
        assert_eq!(writer.has_room().is_ok(), result.is_ok());
    }
}

/// Xorshift random numbers, the same in every run.
struct Xorshift(u64);

impl Xorshift {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Writes to the whole memory until `stop` is set: random words, and nearly valid ones.
fn write_randomly(
    map: &HeapMapping,
    layout: Layout,
    started: &AtomicBool,
    stop: &AtomicBool,
    seed: u64,
) {
    let (region, mut numbers) = (map.region(), Xorshift(seed));
    let words = layout.len() as u64 / 8;
    while !stop.load(Ordering::Relaxed) {
        let value = numbers.next();
        let (at, value) = match numbers.next() % 4 {
            0 => (value % words * 8, numbers.next()),
            1 => (CREDIT_OFFSETS[1] as u64, numbers.next() & 0xf_0000_000f),
            _ => {
                let entry = layout.entries_at(0) as u64 + value % u64::from(layout.entries()) * 64;
                let lap = (1 + numbers.next() % 64) << 32;
                (
                    entry + 8 * (value >> 60 & 1),
                    lap | (numbers.next() & 0x33f),
                )
            }
        };
        let _ = region.store_u64(at as usize, value, Ordering::Relaxed);
        started.store(true, Ordering::Relaxed);
    }
}

/// The acceptor reads and writes while another thread writes to all of the memory: every call
/// returns at most as many bytes as there was room for, and nothing after them changes.
#[test]
fn random_writes_by_a_peer_cause_errors_only() {
    let all = [
        RingError::Kind,
        RingError::Inline,
        RingError::Chunk,
        RingError::Credit,
    ];
    let rounds = if cfg!(miri) { 3 } else { 200 };
    let mut seen = Vec::new();
    for seed in 1.. {
        // Which errors occur depends on scheduling.
        let enough = cfg!(miri) || all.iter().all(|error| seen.contains(error));
        if seed >= rounds && enough {
            break;
        }
        assert!(seed < 500 * rounds, "not all of {all:?}");
        let (map, layout, writer, reader) = acceptor(8, 1024);
        let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| write_randomly(&map, layout, &started, &stop, seed * 0x9e37_79b9));
            while !started.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            let mut numbers = Xorshift(seed);
            for turn in 0..2_000 {
                if turn % 64 == 0 {
                    // Both threads may share one processor.
                    thread::yield_now();
                }
                let len = numbers.next() as usize % 700;
                let mut room = vec![0xa5; len + 16];
                let outcome = match numbers.next() % 4 {
                    0 => reader.read(&mut room[..len]),
                    1 => reader.read_vectored(&mut [&mut room[..len]]),
                    2 => writer.write(Source::from(&room[..len])),
                    _ => writer.has_room().map(usize::from),
                };
                assert_eq!(room[len..], [0xa5; 16]);
                match outcome {
                    Ok(count) => assert!(count <= len.max(1)),
                    Err(error) => seen.push(error),
                }
                let _ = (reader.is_ready(), reader.take_credit_returned());
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}

const PAYLOAD: JointMessage = JointMessage {
    address: 1,
    len: 1 << 20,
    index: 4,
};

/// A peer that sets the word of a joint copy back, whenever a part was claimed, has no part copied twice:
/// neither by the receiver nor by the sender.
#[test]
fn parts_of_joint_copies_are_claimed_once() {
    const PARTS: u8 = 9;
    let (map, _, writer, reader) = acceptor(4, 1024);
    let (region, [receives, sends]) = (map.region(), JOINT_MESSAGE_OFFSETS);
    let (receiver, sender) = (reader.joint_messages(), writer.joint_messages());
    receiver.open(PAYLOAD, PARTS);
    let open = region.load_u64(receives, Ordering::Relaxed).unwrap();
    let mut claimed = vec![];
    while let Some(part) = receiver.claim() {
        claimed.push(part);
        assert!(claimed.len() <= PARTS.into(), "{claimed:?}");
        region.store_u64(receives, open, Ordering::Relaxed).unwrap();
    }
    assert_eq!(claimed, [0]);
    let words = [open, PAYLOAD.address, PAYLOAD.len, PAYLOAD.index.into()];
    for (at, word) in words.into_iter().enumerate() {
        let _ = region.store_u64(sends + 8 * at, word, Ordering::Relaxed);
    }
    let (mut claimed, mut end) = (vec![], PARTS);
    while let Some(part) = sender.claim(PAYLOAD, end) {
        claimed.push(part);
        assert!(claimed.len() <= PARTS.into(), "{claimed:?}");
        end = part;
        region.store_u64(sends, open, Ordering::Relaxed).unwrap();
    }
    assert_eq!(claimed, [PARTS - 1]);
    assert_eq!(sender.claim(PAYLOAD, 3), None, "there are 3 parts");
}

/// Stores any values of the first word of joint copies in both directions until `stop` is set: random ones,
/// and those in which some fields are as they are.
fn change_joint_words(map: &HeapMapping, started: &AtomicBool, stop: &AtomicBool, seed: u64) {
    let (region, mut numbers) = (map.region(), Xorshift(seed));
    while !stop.load(Ordering::Relaxed) {
        let at = JOINT_MESSAGE_OFFSETS[numbers.next() as usize & 1];
        let was = region.load_u64(at, Ordering::Relaxed).unwrap();
        let kept = [0, !0xff, !0xff00, !0xff_0000, !0x1ff_ffff][numbers.next() as usize % 5];
        let word = was & kept | numbers.next() & !kept;
        region.store_u64(at, word, Ordering::Relaxed).unwrap();
        started.store(true, Ordering::Relaxed);
    }
}

/// Every loop over the parts of a joint copy ends, and no part is claimed twice or is none, whatever a peer
/// stores meanwhile.
#[test]
fn joint_copies_end_whatever_the_peer_stores() {
    let (map, _, writer, reader) = acceptor(4, 1024);
    let (receiver, sender) = (reader.joint_messages(), writer.joint_messages());
    let (started, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let (mut received, mut sent) = (0, 0);
    thread::scope(|scope| {
        scope.spawn(|| change_joint_words(&map, &started, &stop, 0x9e37_79b9));
        while !started.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        let rounds = if cfg!(miri) { 30 } else { 100_000 };
        for round in 0..rounds {
            if round % 64 == 0 {
                // Both threads may share one processor.
                thread::yield_now();
            }
            let parts = 1 + (round % 255) as u8;
            receiver.open(PAYLOAD, parts);
            let mut next = 0;
            while let Some(part) = receiver.claim() {
                assert_eq!(part, next);
                assert!(part < parts);
                next += 1;
            }
            receiver.close();
            received += u64::from(next);
            let _ = (
                receiver.is_finished(),
                receiver.has_failed(),
                receiver.taken(),
            );
            let mut end = parts;
            while let Some(payload) = sender.payload()
                && let Some(part) = sender.claim(payload, end)
            {
                assert!(part < end);
                end = part;
                sender.copied(true);
                sent += 1;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(cfg!(miri) || received > 0 && sent > 0, "{received}, {sent}");
}
