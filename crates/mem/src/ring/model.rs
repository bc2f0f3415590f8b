#![allow(unsafe_code)]
//! A model of the rings for loom, which tries every order of accesses that the memory model allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p ripstop-mem --lib model`

extern crate std;

use core::sync::atomic::Ordering::SeqCst;
use std::sync::Arc;
use std::vec;
use std::vec::Vec;

use loom::sync::Notify;
use loom::sync::atomic::fence;
use loom::thread;

use super::primitive::Memory;
use super::{
    Grants, JointMessage, Layout, MAX_HEADER_BYTES, PeerStatus, Reader, Side, Sink, SleepWord,
    Source, Writer,
};

/// Four entries and four lines, so that a quarter is one entry or line.
fn layout() -> Layout {
    Layout::new(4, 256).unwrap()
}

fn halves(memory: &Memory) -> (Writer, Reader) {
    halves_of(memory, layout())
}

fn halves_of(memory: &Memory, layout: Layout) -> (Writer, Reader) {
    let writer = Writer::new(memory, layout, Side::Connector);
    (writer, Reader::new(memory, layout, Side::Acceptor))
}

/// Tries all orders with at most `preemptions` involuntary changes of thread.
fn check(preemptions: usize, body: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.check(body);
}

fn send_all(writer: &Writer, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = writer.write(Source::from(rest)).unwrap();
        rest = &rest[count..];
        if count == 0 {
            thread::yield_now();
        }
    }
}

fn read_all(reader: &Reader, len: usize, room: usize) -> Vec<u8> {
    let mut got = Vec::new();
    while got.len() < len {
        let mut bytes = vec![0; room];
        let count = reader.read(&mut bytes).unwrap();
        got.extend_from_slice(&bytes[..count]);
        if count == 0 {
            thread::yield_now();
        }
    }
    got
}

/// More entries than the ring has: they are written again once credit has returned.
#[test]
fn short_entries_are_read_whole_and_in_order() {
    check(3, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let sender = thread::spawn(move || (0..6_u8).for_each(|i| send_all(&writer, &[i; 8])));
        let got = read_all(&reader, 48, 64);
        let want: Vec<u8> = (0..6).flat_map(|i| [i; 8]).collect();
        assert_eq!(got, want);
        sender.join().unwrap();
    });
}

/// As above, read in place where the entry is the only one.
#[test]
fn sole_entries_are_read_in_place_and_in_order() {
    check(3, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let sender = thread::spawn(move || (0..6_u8).for_each(|i| send_all(&writer, &[i; 8])));
        for i in 0..6_u8 {
            let Some(sole) = reader.sole_entry() else {
                assert_eq!(read_all(&reader, 8, 8), [i; 8]);
                continue;
            };
            assert_eq!((sole.len(), sole.words()[0]), (8, [i; 8]));
            sole.consume();
        }
        sender.join().unwrap();
    });
}

/// As above, read in place also with other entries after them.
#[test]
fn short_entries_are_read_in_place_and_in_order() {
    check(3, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let sender = thread::spawn(move || (0..6_u8).for_each(|i| send_all(&writer, &[i; 8])));
        let mut next = 0;
        while next < 6_u8 {
            let Some(short) = reader.short_entry() else {
                thread::yield_now();
                continue;
            };
            assert_eq!((short.len(), short.words()[0]), (8, [next; 8]));
            short.consume();
            next += 1;
        }
        sender.join().unwrap();
    });
}

/// Lines of the buffer are used again, and chunks are read in parts.
#[test]
fn chunks_are_read_whole_and_in_order() {
    check(2, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let want: Vec<u8> = (0..200).map(|i| i as u8).collect();
        let sent = want.clone();
        let sender = thread::spawn(move || send_all(&writer, &sent));
        assert_eq!(read_all(&reader, want.len(), 50), want);
        sender.join().unwrap();
    });
}

/// The line of the small buffer is used again once it was read, and the large one meanwhile.
#[test]
fn chunks_of_both_buffers_are_read_whole_and_in_order() {
    check(2, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let sender = thread::spawn(move || {
            for i in 0..3_u8 {
                let (leading, chunk) = ([i; 40], [i; 24]);
                while writer.write_vectored(&[&leading[..], &chunk[..]]).unwrap() == 0 {
                    thread::yield_now();
                }
            }
        });
        let want: Vec<u8> = (0..3).flat_map(|i| [i; 64]).collect();
        assert_eq!(read_all(&reader, want.len(), 64), want);
        sender.join().unwrap();
    });
}

/// A reader that sees the first of several entries sees all of them.
#[test]
fn message_of_two_entries_is_visible_at_once() {
    check(3, || {
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let sender = thread::spawn(move || {
            let payload = [7; 60];
            let payload = Source::from(&payload[..]).buf();
            assert_eq!(
                writer.write_message(&[5; MAX_HEADER_BYTES], MAX_HEADER_BYTES, payload),
                Ok(100)
            );
        });
        let mut room = [0; 128];
        let count = loop {
            match reader.read(&mut room).unwrap() {
                0 => thread::yield_now(),
                count => break count,
            }
        };
        assert_eq!(
            (count, &room[..40], &room[40..100]),
            (100, &[5; 40][..], &[7; 60][..])
        );
        sender.join().unwrap();
    });
}

/// Sends messages with a payload of `LEN` bytes, which is a chunk, through a large buffer of `buffer` bytes: more of
/// them than there are entries and than the small buffer holds, so that its lines are used again. `receive` reads one message, and may find none.
fn messages_with_a_chunk<const LEN: usize>(
    buffer: u32,
    receive: impl Fn(&Reader) -> Option<Vec<u8>>,
) {
    const HEADER: [u8; MAX_HEADER_BYTES] = [0xee; MAX_HEADER_BYTES];
    const MESSAGES: u8 = 5;
    let layout = Layout::new(4, buffer).unwrap();
    let (writer, reader) = halves_of(&Memory::modelled(layout), layout);
    let sender = thread::spawn(move || {
        for i in 0..MESSAGES {
            let payload = [i; LEN];
            let payload = Source::from(&payload[..]).buf();
            let len = HEADER.len() + LEN;
            loop {
                match writer
                    .write_message(&HEADER, HEADER.len(), payload)
                    .unwrap()
                {
                    0 => thread::yield_now(),
                    written => break assert_eq!(written, len),
                }
            }
        }
        assert_eq!(writer.entries_written(), MESSAGES.into(), "one entry each");
    });
    for i in 0..MESSAGES {
        let got = loop {
            match receive(&reader) {
                None => thread::yield_now(),
                Some(message) => break message,
            }
        };
        assert_eq!(got, [&HEADER[..], &[i; LEN]].concat());
    }
    sender.join().unwrap();
}

/// A reader that sees the entry of a message sees all of its chunk, which the same read delivers.
#[test]
fn entry_is_not_visible_before_its_chunk() {
    check(2, || {
        messages_with_a_chunk::<200>(2048, |reader| {
            let mut room = [0; 240];
            let count = reader.read(&mut room).unwrap();
            (count > 0).then(|| room[..count].to_vec())
        });
    });
}

/// The same of a longer chunk: the read stops before it, and it is copied to its place.
#[test]
fn entry_is_not_visible_before_its_long_chunk() {
    const LEN: usize = 2048;
    check(2, || {
        messages_with_a_chunk::<LEN>(16384, |reader| {
            let mut room = [0; 64];
            let count = reader.read(&mut room).unwrap();
            if count == 0 {
                return None;
            }
            let mut payload = vec![0; reader.chunk_remaining()];
            assert_eq!(reader.read_chunk(Sink::from(&mut payload[..]).buf()), LEN);
            Some([&room[..count], &payload].concat())
        });
    });
}

/// A reader sleeps when it finds nothing, and the writer wakes it.
fn sleep_and_wake(fenced: bool) {
    let status_page = Memory::modelled(layout());
    let (writer, reader) = halves(&Memory::modelled(layout()));
    let (sleep, peer) = (
        SleepWord::new(&status_page),
        PeerStatus::new(&status_page, fenced),
    );
    let doorbell = Arc::new(Notify::new());
    let doorbell_ringer = doorbell.clone();
    let sender = thread::spawn(move || {
        for i in 0..2_u8 {
            assert_eq!(writer.write(Source::from(&[i; 8][..])), Ok(8));
            if peer.must_wake() {
                doorbell_ringer.notify();
            }
        }
    });
    let mut got = Vec::new();
    while got.len() < 16 {
        sleep.begin_sleep(|| fence(SeqCst));
        if !reader.is_ready() {
            doorbell.wait();
        }
        sleep.end_sleep(|| fence(SeqCst));
        let mut bytes = [0; 64];
        let count = reader.read(&mut bytes).unwrap();
        got.extend_from_slice(&bytes[..count]);
    }
    assert_eq!(got, [[0; 8], [1; 8]].concat());
    sender.join().unwrap();
}

#[test]
fn sleeping_reader_is_woken() {
    check(3, || sleep_and_wake(true));
}

/// Shows that the model detects a lost wake-up: without the fence there is one.
#[test]
#[should_panic(expected = "deadlock")]
fn without_the_fence_a_wake_up_is_lost() {
    check(3, || sleep_and_wake(false));
}

/// A writer sleeps when it has no room, and the reader wakes it.
#[test]
fn sleeping_writer_without_room_is_woken() {
    check(2, || {
        let status_page = Memory::modelled(layout());
        let (writer, reader) = halves(&Memory::modelled(layout()));
        let (sleep, peer) = (
            SleepWord::new(&status_page),
            PeerStatus::new(&status_page, true),
        );
        let doorbell = Arc::new(Notify::new());
        let doorbell_ringer = doorbell.clone();
        let receiver = thread::spawn(move || {
            for i in 0..5_u8 {
                let mut bytes = [0; 8];
                while reader.read(&mut bytes).unwrap() == 0 {
                    thread::yield_now();
                }
                assert_eq!(bytes, [i; 8]);
                if reader.take_credit_returned() && peer.must_wake() {
                    doorbell_ringer.notify();
                }
            }
        });
        for i in 0..5_u8 {
            while writer.write(Source::from(&[i; 8][..])).unwrap() == 0 {
                sleep.begin_sleep(|| fence(SeqCst));
                if !writer.has_room().unwrap() {
                    doorbell.wait();
                }
                sleep.end_sleep(|| fence(SeqCst));
            }
        }
        receiver.join().unwrap();
    });
}

/// A region in the model, which detects concurrent accesses.
struct ModelRegion(loom::cell::UnsafeCell<u64>);

// SAFETY: loom finds every access that is not ordered.
unsafe impl Sync for ModelRegion {}

impl ModelRegion {
    fn set(&self, value: u64) {
        // SAFETY: loom checks that nobody reads or writes meanwhile.
        self.0.with_mut(|place| unsafe { *place = value });
    }

    fn get(&self) -> u64 {
        // SAFETY: loom checks that nobody writes meanwhile.
        self.0.with(|place| unsafe { *place })
    }
}

fn region() -> Arc<ModelRegion> {
    Arc::new(ModelRegion(loom::cell::UnsafeCell::new(0)))
}

/// The owner of a region ends its grant and then uses the memory, while a peer writes there.
fn revoke_grant(fenced: bool) {
    let (memory, status_page) = (Memory::modelled(layout()), Memory::modelled(layout()));
    let (writer, reader) = halves(&memory);
    let (mut grants, peer) = (
        Grants::new(&status_page),
        PeerStatus::new(&status_page, fenced),
    );
    let grant = grants.open().unwrap();
    let region = region();
    let accessed = region.clone();
    let peer_thread = thread::spawn(move || {
        for value in 1..3 {
            writer.claim(grant);
            if peer.is_granted(grant) {
                accessed.set(value);
            }
            writer.unclaim();
        }
    });
    grants.close(grant, || fence(SeqCst));
    while reader.is_claimed(grant) {
        thread::yield_now();
    }
    let last = region.get();
    region.set(last + 10);
    peer_thread.join().unwrap();
    assert_eq!(region.get(), last + 10, "written after the grant has ended");
}

#[test]
fn revoked_region_is_not_accessed() {
    check(3, || revoke_grant(true));
}

/// Shows that the model detects such an access: without the fence there is one.
#[test]
#[should_panic(expected = "Causality violation")]
fn without_the_fence_a_revoked_region_is_accessed() {
    check(3, || revoke_grant(false));
}

/// A direct write to a region takes place after earlier messages were applied, and before later ones.
#[test]
fn direct_writes_keep_their_order_among_messages() {
    check(2, || {
        let (memory, status_page) = (Memory::modelled(layout()), Memory::modelled(layout()));
        let (writer, reader) = halves(&memory);
        let (mut grants, peer) = (
            Grants::new(&status_page),
            PeerStatus::new(&status_page, true),
        );
        let grant = grants.open().unwrap();
        let region = region();
        let accessed = region.clone();
        let owner = thread::spawn(move || {
            for value in [1_u8, 3] {
                assert_eq!(read_all(&reader, 8, 64), [value; 8]);
                assert_eq!(region.get(), u64::from(value) - 1);
                region.set(value.into());
                reader.publish_applied();
            }
        });
        send_all(&writer, &[1; 8]);
        while !writer.all_applied() {
            thread::yield_now();
        }
        writer.claim(grant);
        assert!(peer.is_granted(grant));
        assert_eq!(accessed.get(), 1);
        accessed.set(2);
        writer.unclaim();
        send_all(&writer, &[3; 8]);
        owner.join().unwrap();
        drop(grants);
    });
}

/// Receiver and sender copy each part of a joint copy once, and the receiver sees the end of it when the
/// sender is through.
#[test]
fn parts_of_a_joint_copy_are_shared_out() {
    const PARTS: u8 = 2;
    check(3, || {
        let memory = Memory::modelled(layout());
        let (writer, reader) = halves(&memory);
        let place: Arc<[_; PARTS as usize]> = Arc::new(core::array::from_fn(|_| region()));
        let payload = JointMessage {
            address: 7,
            len: 2,
            index: 3,
        };
        let there = place.clone();
        let sender = thread::spawn(move || {
            let Some(found) = writer.joint_messages().payload() else {
                return;
            };
            while let Some(part) = writer.joint_messages().claim(found, PARTS) {
                assert_eq!(found, payload);
                let part = &there[usize::from(part)];
                part.set(part.get() + 1);
                writer.joint_messages().copied(true);
            }
        });
        reader.joint_messages().open(payload, PARTS);
        while let Some(part) = reader.joint_messages().claim() {
            let part = &place[usize::from(part)];
            part.set(part.get() + 1);
        }
        while !reader.joint_messages().is_finished() {
            thread::yield_now();
        }
        for part in place.iter() {
            assert_eq!(part.get(), 1);
        }
        assert!(!reader.joint_messages().has_failed());
        sender.join().unwrap();
    });
}

/// A sender that comes late takes no part of the next joint copy for one of the last.
#[test]
fn a_late_sender_copies_what_it_was_asked_for() {
    check(3, || {
        let memory = Memory::modelled(layout());
        let (writer, reader) = halves(&memory);
        let payload = |address| JointMessage {
            address,
            len: 1,
            index: 3,
        };
        let places = Arc::new([region(), region()]);
        let there = places.clone();
        let sender = thread::spawn(move || {
            if let Some(found) = writer.joint_messages().payload()
                && let Some(0) = writer.joint_messages().claim(found, 1)
            {
                there[found.address as usize].set(1);
                writer.joint_messages().copied(true);
            }
        });
        for place in places.iter().enumerate() {
            reader.joint_messages().open(payload(place.0 as u64), 1);
            if reader.joint_messages().claim().is_some() {
                place.1.set(1);
            }
            while !reader.joint_messages().is_finished() {
                thread::yield_now();
            }
            assert_eq!(place.1.get(), 1);
            place.1.set(2);
        }
        sender.join().unwrap();
        assert_eq!([places[0].get(), places[1].get()], [2, 2]);
    });
}
