#![allow(unsafe_code)]
//! Rings over memory of the heap: what is written is read, with any sizes and positions, and no more than there is room for.

extern crate std;

mod in_place;
mod joint;
mod status_page;

use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use std::alloc::{Layout as Heap, alloc_zeroed, dealloc};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread;
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::layout::WhichBuffer;
use super::*;
use crate::UserBuf;

/// Heap memory in the place of a mapping.
#[derive(Debug)]
pub(super) struct HeapMapping {
    start: NonNull<u8>,
    len: usize,
    write: bool,
}

// SAFETY: accessed through atomics and assembly only.
unsafe impl Send for HeapMapping {}
// SAFETY: as for `Send`.
unsafe impl Sync for HeapMapping {}

// SAFETY: allocated until the drop, and nobody else has the address.
unsafe impl Mapping for HeapMapping {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }

    fn writable(&self) -> bool {
        self.write
    }
}

impl HeapMapping {
    fn heap(len: usize) -> Heap {
        Heap::from_size_align(len, 4096).unwrap()
    }

    pub(super) fn new(len: usize, write: bool) -> Arc<Self> {
        // SAFETY: no test asks for 0 bytes.
        let start = unsafe { alloc_zeroed(Self::heap(len)) };
        let start = NonNull::new(start).unwrap();
        Arc::new(Self { start, len, write })
    }

    /// Its words, for the tests of a hostile peer.
    pub(super) fn region(&self) -> crate::Region<'_> {
        // SAFETY: borrowed from `self`; atomics only.
        unsafe { crate::Region::from_raw(self.start, self.len) }
    }
}

impl Drop for HeapMapping {
    fn drop(&mut self) {
        // SAFETY: as it was allocated.
        unsafe { dealloc(self.start.as_ptr(), Self::heap(self.len)) };
    }
}

pub(super) fn layout(entries: u32, buffer: u32) -> Layout {
    Layout::new(entries, buffer).unwrap()
}

/// The writer and the reader of one direction.
fn direction(entries: u32, buffer: u32) -> (Writer, Reader) {
    let layout = layout(entries, buffer);
    let map = HeapMapping::new(layout.len(), true);
    let (writer, _) = pair(map.clone(), layout, Side::Connector).unwrap();
    let (_, reader) = pair(map, layout, Side::Acceptor).unwrap();
    (writer, reader)
}

/// As [`direction`], starting after this many entries and lines.
fn direction_at(layout: Layout, position: u64, lines: u32) -> (Writer, Reader) {
    let (writer, reader) = direction(layout.entries(), layout.buffer());
    reader.start_at(position, lines);
    writer.start_at(position, lines);
    reader.publish_applied();
    (writer, reader)
}

fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len)
        .map(|i| (i * 7 + i / 251) as u8)
        .collect()
}

fn user(bytes: &mut [u8]) -> UserBuf {
    // SAFETY: the tests keep the bytes as long as they use the buffer.
    unsafe { UserBuf::from_raw(bytes.as_mut_ptr(), bytes.len()) }
}

#[test]
fn layout_sizes_are_checked() {
    for (entries, buffer) in [(0, 256), (2, 256), (5, 256), (1 << 17, 256)] {
        assert_eq!(Layout::new(entries, buffer), None);
    }
    for buffer in [0, 128, 300, 1 << 25] {
        assert_eq!(Layout::new(4, buffer), None);
    }
    let whole = layout(256, 65536);
    assert_eq!(whole.len(), 4096 + 2 * 256 * 64 + 2 * (65536 + 8192));
    assert_eq!(
        (whole.entries(), whole.buffer(), whole.max_chunk_bytes()),
        (256, 65536, 8192)
    );
    assert_eq!(whole.written_chunk_bytes(), 4096);
    let less = layout(128, 16384);
    assert_eq!(less.len(), 4096 + 2 * 128 * 64 + 2 * (16384 + 4096));
    assert_eq!(
        (less.max_chunk_bytes(), less.written_chunk_bytes()),
        (4096, 2048)
    );
}

#[test]
fn mappings_that_do_not_fit_are_refused() {
    let layout = layout(4, 256);
    let short = HeapMapping::new(layout.len() - 1, true);
    let read_only = HeapMapping::new(layout.len(), false);
    for map in [short, read_only] {
        let halves = pair(map, layout, Side::Connector);
        assert_eq!(halves.err(), Some(RingError::Memory));
    }
    assert!(SleepWord::from_mapping(HeapMapping::new(STATUS_PAGE_BYTES, false)).is_err());
    assert!(PeerStatus::from_mapping(HeapMapping::new(STATUS_PAGE_BYTES, false), false).is_ok());
    assert!(
        PeerStatus::from_mapping(HeapMapping::new(STATUS_PAGE_BYTES - 1, false), false).is_err()
    );
}

#[test]
fn every_short_length_is_read_as_written() {
    let (writer, reader) = direction(4, 256);
    for len in 1..=MAX_INLINE_BYTES {
        let sent = pattern(len, len);
        assert_eq!(writer.write(Source::from(&sent[..])), Ok(len));
        assert!(reader.is_ready());
        let mut exact = vec![0xee; len + 8];
        let (room, behind) = exact.split_at_mut(len);
        assert_eq!(reader.read_vectored(&mut [user(room)]), Ok(len));
        assert_eq!((&*room, &*behind), (&sent[..], &[0xee; 8][..]));
        assert_eq!(
            writer.write_vectored(&[&sent[..len / 2], &sent[len / 2..]]),
            Ok(len)
        );
        let mut wide = [0; 100];
        assert_eq!(reader.read(&mut wide), Ok(len));
        assert_eq!(wide[..len], sent);
        assert!(!reader.is_ready());
    }
    assert_eq!(writer.write(Source::from(&[][..])), Ok(0));
    assert_eq!(reader.read(&mut [0; 9]), Ok(0));
}

#[test]
fn header_and_payload_share_one_entry() {
    let (writer, reader) = direction(4, 4096);
    let sent = pattern(0, 1000);
    let (header, payload) = sent.split_at(24);
    assert_eq!(writer.write_vectored(&[header, payload]), Ok(1000));
    let (mut first, mut rest) = ([0; 24], [0; 2000]);
    assert_eq!(reader.read(&mut first), Ok(24));
    assert_eq!(reader.read_vectored(&mut [&mut rest[..]]), Ok(976));
    assert_eq!((&first[..], &rest[..976]), (header, payload));
}

#[test]
fn full_ring_accepts_nothing_until_credit_returns() {
    let (writer, reader) = direction(8, 1024);
    for i in 0..8 {
        assert_eq!(writer.has_room(), Ok(true));
        assert_eq!(writer.write(Source::from(&[i; 8][..])), Ok(8));
    }
    assert_eq!(writer.write(Source::from(&[9; 8][..])), Ok(0));
    assert_eq!(writer.has_room(), Ok(false));
    let mut room = [0; 8];
    assert_eq!(reader.read(&mut room), Ok(8));
    assert!(!reader.take_credit_returned(), "a quarter is two entries");
    assert_eq!(writer.has_room(), Ok(false));
    assert_eq!(reader.read(&mut room), Ok(8));
    assert!(reader.take_credit_returned());
    assert!(!reader.take_credit_returned());
    assert_eq!(writer.has_room(), Ok(true));
    assert_eq!(writer.write(Source::from(&[9; 8][..])), Ok(8));
}

#[test]
fn full_buffers_accept_short_entries_only() {
    // The small buffer has a quarter of the large one here.
    let (writer, reader) = direction(256, 1024);
    let sent = pattern(0, 2000);
    assert_eq!(writer.write(Source::from(&sent[..])), Ok(1280));
    assert_eq!(writer.write(Source::from(&sent[1280..])), Ok(0));
    assert_eq!(writer.has_room(), Ok(false));
    let mut room = vec![0; 2000];
    assert_eq!(reader.read(&mut room[..127]), Ok(127));
    assert_eq!(writer.has_room(), Ok(false), "a chunk is read in part");
    assert_eq!(reader.read(&mut room[127..128]), Ok(1));
    assert!(
        reader.take_credit_returned(),
        "half of the small buffer, a chunk"
    );
    assert_eq!(writer.has_room(), Ok(true));
    assert_eq!(writer.write(Source::from(&sent[1280..])), Ok(128));
    assert_eq!(writer.write(Source::from(&[1; 20][..])), Ok(20));
    assert_eq!(reader.read(&mut room[128..]), Ok(1300));
    assert_eq!(room[..1408], sent[..1408]);
}

/// Positions (entries, lines) shortly before the counts or the laps wrap. Memory that was never written has
/// lap 0, so a position in the last lap is at its first entry.
fn positions_before_wrap(entries: u32) -> Vec<(u64, u32)> {
    let n = u64::from(entries);
    let mut found = vec![((n << 32) - 2 * n, 0), ((n << 32) - 2 * n, u32::MAX - 5)];
    for before in 0..5 {
        found.push(((1 << 32) - before, u32::MAX - before as u32));
        found.push((0, u32::MAX - 7 * before as u32));
    }
    found
}

#[test]
fn stream_continues_when_positions_wrap() {
    for (entries, buffer) in [(4, 256), (8, 1024), (64, 4096)] {
        for (position, lines) in positions_before_wrap(entries) {
            let (writer, reader) = direction_at(layout(entries, buffer), position, lines);
            let total = 64 * 64 * 4 + 20 * buffer as usize;
            let sent = pattern(position as usize % 1000, total);
            let (mut to, mut from, mut step) = (0, 0, 1);
            let mut room = vec![0; 2 * buffer as usize];
            while from < total {
                step = (step * 31 + 7) % (buffer as usize / 2);
                // Writes until the ring is full, then reads all of it.
                loop {
                    let end = total.min(to + step + 1);
                    let count = writer.write(Source::from(&sent[to..end])).unwrap();
                    to += count;
                    if count == 0 {
                        break;
                    }
                }
                let before = from;
                assert!(to > from && !writer.all_applied());
                loop {
                    let count = reader.read(&mut room[..step + 1]).unwrap();
                    if count == 0 {
                        break;
                    }
                    assert_eq!(room[..count], sent[from..from + count]);
                    from += count;
                }
                assert_eq!(from, to, "{entries} entries from {position}, {lines} lines");
                assert!(from > before, "no room: {entries} from {position}, {lines}");
                reader.publish_applied();
                assert!(writer.all_applied());
                assert_eq!(writer.has_room(), Ok(true));
            }
        }
    }
}

#[test]
fn a_backlog_is_what_the_reader_has_not_returned_when_positions_wrap() {
    for (position, lines) in positions_before_wrap(16) {
        let (writer, reader) = direction_at(layout(16, 4096), position, lines);
        for round in 0..40 {
            let empty = writer.backlog().expect("a credit");
            let sent = pattern(round, 256);
            assert_eq!(writer.write(Source::from(&sent[..])), Ok(256));
            let full = writer.backlog().expect("a credit");
            assert!(full.bytes() > empty.bytes());
            assert_eq!(full.returned_since(empty), None, "nothing was there");
            assert_eq!(full.returned_since(full), Some(0));
            let mut room = [0; 256];
            assert_eq!(reader.read(&mut room), Ok(256));
            let read = writer.backlog().expect("a credit");
            assert!(read.bytes() <= full.bytes());
            let returned = read.returned_since(full);
            let left = full.bytes() - read.bytes();
            assert_eq!(returned, (read.bytes() > 0).then_some(left));
        }
    }
    let earlier = Backlog::of_lines(u32::MAX, u32::MAX - 3);
    assert_eq!(earlier.bytes(), 192);
    assert_eq!(Backlog::of_lines(9, 1).returned_since(earlier), None);
    let later = Backlog::of_lines(9, u32::MAX - 1);
    assert_eq!(later.returned_since(earlier), Some(128));
}

#[test]
fn full_ring_is_detected_when_positions_wrap() {
    for entries in [4, 16] {
        for (position, lines) in positions_before_wrap(entries) {
            for ahead in 0..2 * entries as usize {
                let (writer, reader) = direction_at(layout(entries, 256), position, lines);
                let mut room = [0; 8];
                let word = |number: usize| (number as u64).to_ne_bytes();
                for number in 0..ahead {
                    assert_eq!(writer.write(Source::from(&word(number)[..])), Ok(8));
                    assert_eq!(reader.read(&mut room), Ok(8));
                    assert_eq!(room, word(number));
                }
                // Credit returns a quarter at a time.
                let mut count = 0;
                let most = entries as usize;
                while count <= most && writer.write(Source::from(&word(count)[..])) == Ok(8) {
                    count += 1;
                }
                let least = most - (most / 4 - 1);
                assert!((least..=most).contains(&count), "{count} of {most}");
                assert_eq!(writer.has_room(), Ok(false));
                for number in 0..count {
                    assert_eq!(reader.read(&mut room), Ok(8));
                    assert_eq!(room, word(number));
                }
                assert_eq!(reader.read(&mut room), Ok(0));
                assert_eq!(writer.has_room(), Ok(true));
            }
        }
    }
}

#[test]
fn messages_of_several_entries_continue_when_positions_wrap() {
    for (position, lines) in positions_before_wrap(16) {
        let (writer, reader) = direction_at(layout(16, 4096), position, lines);
        for round in 0..64 {
            let mut sent = pattern(round, 40 + 20 + round % 150);
            let mut header = [0; MAX_HEADER_BYTES];
            header.copy_from_slice(&sent[..MAX_HEADER_BYTES]);
            let payload = user(&mut sent[MAX_HEADER_BYTES..]);
            let len = MAX_HEADER_BYTES + payload.len();
            assert_eq!(
                writer.write_message(&header, MAX_HEADER_BYTES, payload),
                Ok(len)
            );
            let mut room = [0; 400];
            let mut got = 0;
            while got < len {
                let count = reader.read(&mut room[got..]).unwrap();
                assert!(count > 0, "{round} from {position}: all or nothing");
                got += count;
            }
            assert_eq!(room[..len], sent);
        }
    }
}

/// The large buffer is used by a writer whose reader does not keep up, and only then.
#[test]
fn the_small_buffer_is_enough_while_the_reader_keeps_up() {
    let layout = layout(256, 64 << 10);
    let map = HeapMapping::new(layout.len(), true);
    let (_, reader) = pair(map.clone(), layout, Side::Connector).unwrap();
    let (writer, _) = pair(map.clone(), layout, Side::Acceptor).unwrap();
    let used = |which| {
        let first = layout.buffer_at(1) + layout.offset(which);
        let words = (first..first + 64 * layout.lines(which) as usize).step_by(8);
        let word = |at| map.region().load_u64(at, Ordering::Relaxed).unwrap();
        8 * words.filter(|&at| word(at) != 0).count()
    };
    let sent = vec![0xff; 72 << 10];
    let mut room = vec![0; 72 << 10];
    for len in (300..4000).step_by(350).cycle().take(100) {
        assert_eq!(writer.write(Source::from(&sent[..len])), Ok(len));
        assert_eq!(reader.read_vectored(&mut [&mut room[..]]), Ok(len));
    }
    assert_eq!(used(WhichBuffer::Large), 0);
    let mut len = 0;
    while let count @ 1.. = writer.write(Source::from(&sent[..2048])).unwrap() {
        len += count;
    }
    assert!(len >= 68 << 10, "{len} bytes had room");
    assert_eq!(used(WhichBuffer::Large), 64 << 10);
    assert_eq!(reader.read_vectored(&mut [&mut room[..]]), Ok(len));
    assert_eq!(room[..len], sent[..len]);
}

/// Two threads, chunks and short entries mixed, many laps.
#[test]
fn long_stream_is_read_as_written() {
    let total = if cfg!(miri) { 20_000 } else { 20_000_000 };
    let (writer, reader) = direction(16, 4096);
    let sent: Vec<u8> = pattern(0, total);
    let stream = Arc::new(sent);
    let source = stream.clone();
    let sender = thread::spawn(move || {
        let mut at = 0;
        let mut step = 1;
        while at < source.len() {
            step = (step * 31 + 7) % 5003;
            let end = source.len().min(at + step);
            let middle = at + (end - at) / 3;
            let count = writer.write_vectored(&[&source[at..middle], &source[middle..end]]);
            at += count.unwrap();
            if count == Ok(0) {
                thread::yield_now();
            }
        }
    });
    let mut at = 0;
    let mut step = 1;
    while at < stream.len() {
        step = (step * 37 + 11) % 6007;
        let mut room = vec![0; step];
        let count = reader.read(&mut room).unwrap();
        assert_eq!(room[..count], stream[at..at + count]);
        at += count;
        if count == 0 {
            thread::yield_now();
        }
    }
    sender.join().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<usize>),
    Read(Vec<usize>),
    ReadOwn(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![4 => 0..80_usize, 1 => 0..3000_usize];
    let lens = proptest::collection::vec(len.clone(), 0..5);
    prop_oneof![
        lens.clone().prop_map(Step::Write),
        lens.prop_map(Step::Read),
        len.prop_map(Step::ReadOwn),
    ]
}

/// Reads into buffers of these lengths, each with a guard byte after it.
fn read_guarded(reader: &Reader, lens: &[usize]) -> Vec<u8> {
    let mut rooms: Vec<Vec<u8>> = lens.iter().map(|len| vec![0xcc; len + 1]).collect();
    let mut pieces: Vec<UserBuf> = rooms
        .iter_mut()
        .map(|room| user(room).first(room.len() - 1))
        .collect();
    let count = reader.read_vectored(&mut pieces).unwrap();
    let mut got = Vec::new();
    for room in &rooms {
        assert_eq!(room.last(), Some(&0xcc));
        got.extend_from_slice(&room[..room.len() - 1]);
    }
    assert!(
        got[count..].iter().all(|byte| *byte == 0xcc),
        "nothing is written behind"
    );
    got.truncate(count);
    got
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 400 }))]

    /// The stream is a queue of bytes, however it is divided into pieces.
    #[test]
    fn a_ring_is_a_queue(
        steps in proptest::collection::vec(step(), 1..80),
        entries in 2..6_u32,
        buffer in 8..13_u32,
    ) {
        let (writer, reader) = direction(1 << entries, 1 << buffer);
        let mut queue = VecDeque::new();
        let mut written = 0;
        for step in steps {
            match step {
                Step::Write(lens) => {
                    let total: usize = lens.iter().sum();
                    let bytes = pattern(written, total);
                    let mut rest = &bytes[..];
                    let mut pieces = Vec::new();
                    for len in lens {
                        let (piece, behind) = rest.split_at(len);
                        pieces.push(piece);
                        rest = behind;
                    }
                    let count = writer.write_vectored(&pieces).unwrap();
                    queue.extend(&bytes[..count]);
                    written += count;
                    if count < total {
                        prop_assert!(!queue.is_empty(), "an empty ring has room");
                        prop_assert_eq!(writer.has_room(), Ok(false));
                    }
                }
                Step::Read(lens) => {
                    let total: usize = lens.iter().sum();
                    let got = read_guarded(&reader, &lens);
                    prop_assert_eq!(got.len(), total.min(queue.len()));
                    prop_assert!(got.iter().copied().eq(queue.drain(..got.len())));
                }
                Step::ReadOwn(len) => {
                    let mut room = vec![0; len];
                    let count = reader.read(&mut room).unwrap();
                    prop_assert_eq!(count > 0, len > 0 && !queue.is_empty());
                    prop_assert!(room[..count].iter().copied().eq(queue.drain(..count)));
                }
            }
            prop_assert_eq!(reader.is_ready(), !queue.is_empty());
        }
    }
}

#[test]
fn writer_and_reader_are_send_and_sync() {
    fn shared<T: Send + Sync>() {}
    shared::<(
        Writer,
        Reader,
        SleepWord,
        PeerStatus,
        PollStatus,
        PeerPollStatus,
    )>();
}

#[test]
fn read_stops_before_a_long_chunk() {
    let (writer, reader) = direction(8, 65536);
    let (header, payload) = (pattern(1, 24), pattern(2, 4000));
    let mut whole = [0; MAX_HEADER_BYTES];
    whole[..24].copy_from_slice(&header);
    let mut sent = payload.clone();
    assert_eq!(writer.write(Source::from(&[9; 8][..])), Ok(8));
    assert_eq!(
        writer.write_message(&whole, 24, user(&mut sent)),
        Ok(24 + 4000)
    );
    let mut room = vec![0; 16 * 1024];
    assert_eq!(reader.chunk_remaining(), 0);
    assert_eq!(reader.read(&mut room), Ok(8 + 24));
    assert_eq!((&room[..8], &room[8..32]), (&[9; 8][..], &header[..]));
    assert_eq!(reader.chunk_remaining(), 4000);
    let mut place = vec![0; 6000];
    let (front, rest) = place.split_at_mut(100);
    assert_eq!(reader.read_chunk(user(front)), 100);
    assert_eq!(reader.chunk_remaining(), 3900);
    assert_eq!(reader.read_chunk(user(rest)), 3900);
    assert_eq!(place[..4000], payload[..]);
    assert_eq!((reader.chunk_remaining(), reader.is_ready()), (0, false));
    assert_eq!(reader.read_chunk(user(&mut place)), 0);
    // A plain read delivers the chunk as well.
    assert_eq!(writer.write_message(&whole, 24, user(&mut sent)), Ok(4024));
    assert_eq!(reader.read_vectored(&mut [user(&mut room)]), Ok(24));
    assert_eq!(reader.read(&mut room), Ok(4000));
    assert_eq!(room[..4000], payload[..]);
}

#[test]
fn a_long_chunk_without_inline_bytes_is_read_at_once() {
    for before in [0, 8] {
        let (writer, reader) = direction(8, 65536);
        let (first, middle) = (pattern(1, before), pattern(2, 4096));
        assert_eq!(writer.write(Source::from(&first[..])), Ok(before));
        assert_eq!(writer.write(Source::from(&middle[..])), Ok(4096));
        let mut room = vec![0; 16 * 1024];
        assert_eq!(reader.read(&mut room), Ok(before + 4096), "{before}");
        assert_eq!(room[before..][..4096], middle[..]);
    }
}

#[test]
fn one_read_delivers_header_and_short_payload() {
    for entries in [4, 64] {
        let (writer, reader) = direction(entries, 4096);
        for (head, len) in (0..=40).flat_map(|head| [0, 1, 8, 16, 32, 500].map(|len| (head, len))) {
            let header = *pattern(head, MAX_HEADER_BYTES).first_chunk().unwrap();
            let mut sent = pattern(len, len);
            let whole = [&header[..head], &sent[..]].concat();
            let count = writer.write_message(&header, head, user(&mut sent));
            assert_eq!(count, Ok(whole.len()), "{head} and {len}");
            let mut room = vec![0; 600];
            assert_eq!(reader.read(&mut room), Ok(whole.len()));
            assert_eq!(room[..whole.len()], whole);
        }
    }
}

#[test]
fn message_of_several_entries_is_read_whole_or_not_at_all() {
    for filled in 0..=6 {
        for turn in 0..40 {
            let (writer, reader) = direction(8, 1024);
            let mut room = [0; 1024];
            // A message may start at any entry, also at the end of a lap.
            for _ in 0..turn {
                assert_eq!(writer.write(Source::from(&[1; 8][..])), Ok(8));
                assert_eq!(reader.read(&mut room), Ok(8));
            }
            for _ in 0..filled {
                assert_eq!(writer.write(Source::from(&[2; 8][..])), Ok(8));
            }
            for len in [17, 72, 73, 184, 185, 200] {
                let header = *pattern(turn, MAX_HEADER_BYTES).first_chunk().unwrap();
                let mut payload = pattern(len, len);
                let written = writer.write_message(&header, 40, user(&mut payload));
                assert_eq!(written, Ok(40 + len));
                let old = if len == 17 { 8 * filled } else { 0 };
                assert_eq!(reader.read(&mut room), Ok(old + 40 + len));
                assert_eq!(room[old..old + 40], header);
                assert_eq!(room[old + 40..old + 40 + len], payload);
            }
        }
    }
}

#[test]
fn entries_without_room_are_left_whole_for_the_next_read() {
    for len in [MAX_INLINE_BYTES, 20, 900] {
        let (writer, reader) = direction(64, 16384);
        let sent = pattern(7, len);
        for _ in 0..10 {
            assert_eq!(writer.write(Source::from(&sent[..])), Ok(len));
        }
        let mut room = vec![0; 8 * len + len / 2];
        let mut left = 10;
        while left > 0 {
            let count = reader.read(&mut room).unwrap();
            assert!(count > 0 && count.is_multiple_of(len), "{count} of {len}");
            for came in room[..count].chunks(len) {
                assert_eq!(came, sent);
                left -= 1;
            }
        }
        assert_eq!(reader.read(&mut room), Ok(0));
    }
}

#[test]
fn entry_longer_than_the_room_is_read_in_parts() {
    let (writer, reader) = direction(64, 16384);
    let sent = pattern(3, 900);
    assert_eq!(writer.write(Source::from(&sent[..])), Ok(900));
    let mut came = Vec::new();
    let mut room = [0; 100];
    while came.len() < 900 {
        let count = reader.read(&mut room).unwrap();
        came.extend_from_slice(&room[..count]);
    }
    assert_eq!(came, sent);
}

#[test]
fn each_message_of_a_vectored_write_starts_an_entry() {
    let (writer, reader) = direction(16, 16384);
    let (header, payload) = (pattern(1, 40), pattern(2, 2000));
    let pieces = [&header[..], &payload[..], &header[..], &payload[..]];
    assert_eq!(writer.write_vectored(&pieces), Ok(4080));
    let mut room = [0; 8192];
    for _ in 0..2 {
        assert_eq!(reader.read(&mut room), Ok(40));
        assert_eq!((&room[..40], reader.chunk_remaining()), (&header[..], 2000));
        assert_eq!(reader.read_chunk(user(&mut room)), 2000);
        assert_eq!(room[..2000], payload);
    }
    // Short pieces share a chunk.
    let pieces = [&header[..], &header[..], &payload[..100], &payload[..300]];
    assert_eq!(writer.write_vectored(&pieces), Ok(480));
    assert_eq!(reader.read(&mut room), Ok(480));
    assert_eq!(room[180..480], payload[..300]);
}
