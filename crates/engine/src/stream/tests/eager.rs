use super::*;

/// Bounds under which several long messages are kept, and 4 KiB is much to write.
const ROOMY: Limits = Limits {
    tx_buffer: 64 << 10,
    eager_max: 1 << 20,
    kept_bytes: 64 << 10,
    kept_messages: u32::MAX,
    kept_total: 1 << 20,
    ..LIMITS
};

fn roomy() -> Fixture {
    let mut f = Fixture::of(ROOMY, |engine| engine.open_srx(Matcher::new(16, true)));
    f.up();
    f
}

/// What a message is sent as.
fn sent_as(f: &mut Fixture, tag: Option<u64>, len: usize) -> Op {
    let SendPlan::Append {
        header, header_len, ..
    } = f.send(0, tag, len).unwrap()
    else {
        panic!("the connection is up");
    };
    let bytes = &header[..usize::from(header_len)];
    let op = Header::parse(ByteOrder::Little, bytes).unwrap().op;
    f.flush();
    f.done();
    op
}

/// The limits that were told to the peer since the last time.
fn told(f: &mut Fixture) -> Vec<u64> {
    let mut chunks = [Chunk::TxBuffer(0); 32];
    let count = f.engine.transmit(f.conn, &mut chunks);
    let limits = chunks[..count]
        .iter()
        .filter_map(|chunk| match chunk {
            Chunk::Control {
                header: bytes,
                skip: 0,
            } => Header::parse(ByteOrder::Little, bytes).ok(),
            _ => None,
        })
        .filter(|header| header.op == Op::EagerLimit)
        .map(|header| header.eager_limit())
        .collect();
    f.flush();
    limits
}

/// Messages that nobody waits for.
fn unexpected(f: &mut Fixture, count: usize, len: u64) {
    for _ in 0..count {
        f.message(5, len);
        f.engine.rx_placed(f.conn, len);
    }
}

#[test]
fn a_peer_that_keeps_much_gets_long_messages_when_it_asks_for_them() {
    let mut f = roomy();
    assert_eq!(sent_as(&mut f, Some(5), 4097), Op::Tag);
    f.header(&Header::with_eager_limit(12)).unwrap();
    assert_eq!(sent_as(&mut f, Some(5), 4097), Op::TagRts);
    assert_eq!(sent_as(&mut f, Some(5), 4096), Op::Tag);
    assert_eq!(sent_as(&mut f, None, 4097), Op::Msg);
    let mut header = [0; SEND_HEADER];
    for (len, at_once) in [(4096, true), (4097, false)] {
        let written = f
            .engine
            .try_send_now::<false>(Some(f.conn), Some(5), None, len, &mut header);
        assert_eq!(written.is_some(), at_once);
    }
    // What it asks for never raises the limit of this side.
    f.header(&Header::with_eager_limit(63)).unwrap();
    assert_eq!(sent_as(&mut f, Some(5), (1 << 20) + 1), Op::TagRts);
    assert_eq!(sent_as(&mut f, Some(5), 4097), Op::Tag);
    f.header(&Header::with_eager_limit(12)).unwrap();
    f.header(&Header::with_eager_limit(0)).unwrap();
    assert_eq!(sent_as(&mut f, Some(5), 4097), Op::Tag);
}

#[test]
fn a_limit_that_was_not_agreed_on_breaks_the_connection() {
    let mut f = roomy();
    f.up_with(STREAM_ONLY.difference(Extensions::EAGER_LIMIT));
    let limit = Header::with_eager_limit(12);
    assert_eq!(f.header(&limit), Err(Errno::EPROTO));
}

#[test]
fn a_peer_is_told_once_that_much_is_kept_and_once_that_little_is_left() {
    let mut f = roomy();
    unexpected(&mut f, 3, 5000);
    assert_eq!(told(&mut f), []);
    unexpected(&mut f, 1, 5000);
    assert_eq!(told(&mut f), [4096]);
    unexpected(&mut f, 1, 5000);
    assert_eq!(told(&mut f), []);
    for taken in 1..=5 {
        f.recv(taken, Some(5), 5000);
        let lifted: &[u64] = if taken == 5 { &[u64::MAX] } else { &[] };
        assert_eq!(told(&mut f), lifted, "after {taken}");
    }
    unexpected(&mut f, 4, 5000);
    assert_eq!(told(&mut f), [4096]);
}

#[test]
fn a_peer_of_another_library_is_told_nothing() {
    let mut f = roomy();
    f.up_with(Extensions::empty());
    unexpected(&mut f, 8, 5000);
    assert_eq!(f.output(), []);
}

#[test]
fn what_is_sent_behind_much_that_is_not_written_is_held_back() {
    for extensions in [STREAM_ONLY, Extensions::empty()] {
        let mut f = roomy();
        f.up_with(extensions);
        let mut plan = |context, len| match f.send(context, Some(5), len).unwrap() {
            SendPlan::Append {
                header, header_len, ..
            } => {
                let bytes = &header[..usize::from(header_len)];
                Header::parse(ByteOrder::Little, bytes).unwrap().op
            }
            _ => panic!("the connection is up"),
        };
        let sent = [5000; 6].map(|len| plan(0, len));
        let short = plan(0, 4096);
        let held = sent.iter().filter(|op| **op == Op::TagRts).count();
        // 16 KiB of the 64 that may be kept.
        let agreed = extensions == STREAM_ONLY;
        assert_eq!(held, if agreed { 2 } else { 0 });
        assert_eq!((sent[3], short), (Op::Tag, Op::Tag));
        f.flush();
        assert_eq!(sent_as(&mut f, Some(5), 5000), Op::Tag);
    }
}
