//! Short entries that are read in place.

use super::*;

#[test]
fn sole_entry_is_read_in_place() {
    let (writer, reader) = direction(16, 4096);
    assert!(reader.sole_entry().is_none());
    let mut credits = 0;
    for round in 0..40_usize {
        let (header, payload) = (pattern(round, MAX_HEADER_BYTES), pattern(round + 9, 8));
        let header = header.first_chunk().unwrap();
        let mut source = payload.clone();
        assert_eq!(writer.write_message(header, 24, user(&mut source)), Ok(32));
        let Some(sole) = reader.sole_entry() else {
            // The last of a quarter: there is credit to be given.
            assert_eq!(round % 4, 3);
            assert_eq!(reader.read(&mut [0; 64]), Ok(32));
            credits += usize::from(reader.take_credit_returned());
            continue;
        };
        assert_eq!(
            (sole.len(), sole.words().concat()),
            (32, header[..24].to_vec())
        );
        let mut room = [0; 8];
        sole.copy_to(24, user(&mut room));
        assert_eq!(room[..], payload);
        // It is there until it is done.
        assert!(reader.is_ready());
        reader.sole_entry().unwrap().consume();
        assert!(!reader.is_ready() && reader.sole_entry().is_none());
    }
    assert_eq!(credits, 10);
}

#[test]
fn short_entries_are_read_in_place_in_order() {
    let (writer, reader) = direction(16, 4096);
    assert!(reader.short_entry().is_none());
    let (mut sent, mut taken, mut credits) = (0, 0, 0);
    for burst in [1, 3, 16, 7, 12, 2] {
        for _ in 0..burst {
            let (header, mut payload) = (pattern(sent, MAX_HEADER_BYTES), pattern(sent + 9, 16));
            let header = header.first_chunk().unwrap();
            let room = writer.has_room() == Ok(true);
            assert!(room && writer.write_short(header, user(&mut payload)));
            sent += 1;
        }
        while let Some(short) = reader.short_entry() {
            let want = [pattern(taken, MAX_HEADER_BYTES), pattern(taken + 9, 16)].concat();
            assert_eq!((short.len(), short.words().concat()), (56, want));
            // It is there until it is done.
            assert!(reader.is_ready());
            short.consume();
            credits += usize::from(reader.take_credit_returned());
            taken += 1;
        }
        assert_eq!(taken, sent);
        assert!(!reader.is_ready());
    }
    assert_eq!((sent, credits), (41, 10));
}

#[test]
fn a_short_write_is_in_several_entries_that_come_at_once() {
    let (writer, reader) = direction(16, 4096);
    let mut credits = 0;
    for (sent, len) in [17, 72, 73, 184, 128, 129].into_iter().enumerate() {
        let (header, mut payload) = (pattern(sent, MAX_HEADER_BYTES), pattern(sent + 9, len));
        assert_eq!(writer.has_room(), Ok(true));
        assert!(writer.write_short(header.first_chunk().unwrap(), user(&mut payload)));
        // The rest of it can be looked at before any of it is consumed.
        let mut entries = vec![reader.short_entry().unwrap()];
        while let Some(next) = entries.last().and_then(ShortEntry::next) {
            entries.push(next);
        }
        let read: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.words().concat()[..entry.len()].to_vec())
            .collect();
        assert_eq!(read, [header, payload].concat());
        assert_eq!(entries.len(), read.len().div_ceil(MAX_INLINE_BYTES));
        for entry in entries {
            entry.consume();
            credits += usize::from(reader.take_credit_returned());
        }
        assert!(reader.short_entry().is_none());
    }
    assert_eq!(credits, 4);
}

#[test]
fn other_writes_and_entries_are_not_short() {
    let (writer, reader) = direction(4, 4096);
    let (header, mut payload) = ([7; MAX_HEADER_BYTES], [8; 185]);
    assert!(!writer.write_short(&header, user(&mut payload)));
    assert!(!reader.is_ready());
    for count in 0..4 {
        assert!(writer.write_short(&header, user(&mut payload[..count])));
    }
    assert!(
        !writer.write_short(&header, user(&mut payload[..1])),
        "no room"
    );
    // One that was started, and one with a chunk.
    assert_eq!(reader.read_vectored(&mut [&mut [0; 8][..]]), Ok(8));
    assert!(reader.short_entry().is_none());
    assert_eq!(reader.read(&mut [0; 200]), Ok(158));
    assert_eq!(writer.write(Source::from(&[1; 200][..])), Ok(200));
    assert!(reader.is_ready() && reader.short_entry().is_none());
}

#[test]
fn other_entries_are_not_sole_entries() {
    let (writer, reader) = direction(16, 4096);
    let sent = pattern(0, 3000);
    // Two, one that was started, and one with a chunk.
    for count in [8, 9] {
        assert_eq!(writer.write(Source::from(&sent[..count])), Ok(count));
    }
    assert!(reader.sole_entry().is_none());
    assert_eq!(reader.read(&mut [0; 8]), Ok(8));
    assert_eq!(reader.read(&mut [0; 4]), Ok(4));
    assert!(reader.sole_entry().is_none());
    assert_eq!(reader.read(&mut [0; 64]), Ok(5));
    assert_eq!(writer.write(Source::from(&sent[..200])), Ok(200));
    assert!(reader.sole_entry().is_none());
}
