//! Messages whose payload the receiver gets from the sender's memory.

use ripstop_wire::xnet::base::BASE_LEN;

use super::*;

/// A connection to a peer that gets messages of 16 KiB and more.
fn getting() -> Fixture {
    let limits = Limits {
        eager_max: 1 << 20,
        ..LIMITS
    };
    let mut f = Fixture::of(limits, |engine| engine.open_srx(Matcher::new(16, true)));
    f.up_with(Extensions::all());
    assert_eq!(sent(f.send(9, None, 30_000).unwrap()).op, Op::Msg);
    f.flush();
    assert_eq!(f.done(), [9]);
    f.header(&Header::with_get_limit(14)).unwrap();
    f
}

fn sent(plan: SendPlan) -> Header {
    match plan {
        SendPlan::Append {
            header, header_len, ..
        } => Header::parse(ByteOrder::Little, &header[..usize::from(header_len)]).unwrap(),
        _ => panic!("the connection is up"),
    }
}

/// The header of a tagged message whose payload is in the peer's memory.
fn tag_get(tag: u64, index: u16, len: u64) -> Header {
    Header {
        tag,
        address: 0x9000,
        ..Header::new(Op::TagGet, len).with_index(index)
    }
}

/// What is to be got next.
fn next_get(f: &mut Fixture) -> Option<(u16, Get<Mem>)> {
    while let Some(output) = f.engine.pop_output() {
        if let Output::Get(conn, index) = output
            && let Some(get) = f.engine.get(conn, index)
        {
            return Some((index, get));
        }
    }
    None
}

/// The operations of the control messages that wait to be written, with their indices.
fn told(f: &mut Fixture) -> Vec<(Op, u16)> {
    let mut chunks = [Chunk::TxBuffer(0); 32];
    let count = f.engine.transmit(f.conn, &mut chunks);
    let told = chunks[..count]
        .iter()
        .filter_map(|chunk| match chunk {
            Chunk::Control {
                header: bytes,
                skip: 0,
            } => Header::parse(ByteOrder::Little, bytes).ok(),
            _ => None,
        })
        .map(|header| (header.op, header.index(true)))
        .collect();
    f.flush();
    told
}

#[test]
fn a_long_message_is_done_when_the_peer_has_got_it() {
    let mut f = getting();
    for (context, tag, op) in [(1, Some(5), Op::TagGet), (2, None, Op::MsgGet)] {
        let header = sent(f.send(context, tag, 30_000).unwrap());
        assert_eq!((header.op, header.address), (op, 0x1000));
        assert_eq!(header.payload_len, 30_000);
        f.flush();
        assert_eq!(f.done(), []);
        let index = header.index(true);
        assert!(!f.engine.take_has_peer_got(f.conn));
        f.header(&Header::ats(index)).unwrap();
        assert!(f.engine.take_has_peer_got(f.conn));
        assert_eq!(f.done(), [context]);
        assert_eq!(f.header(&Header::ats(index)), Err(Errno::EPROTO));
    }
}

#[test]
fn the_driver_is_told_of_each_sixteen_payloads_that_the_peer_has_got() {
    let mut f = getting();
    let get = |f: &mut Fixture| {
        // Some are trials, which are sent.
        let index = loop {
            let header = sent(f.send(1, Some(5), 30_000).unwrap());
            f.flush();
            if header.op == Op::TagGet {
                break header.index(true);
            }
        };
        f.header(&Header::ats(index)).unwrap();
        f.engine.pop_output()
    };
    let told = |f: &mut Fixture| (0..40).filter(|_| get(f).is_some()).count();
    assert_eq!(told(&mut f), 1, "it has not asked since");
    for _ in 0..2 {
        assert!(f.engine.take_has_peer_got(f.conn));
        assert!((0..15).all(|_| get(&mut f).is_none()));
        assert_eq!(get(&mut f), Some(Output::PeerGot(f.conn)));
    }
    // One that asks itself is not told.
    assert!(f.engine.take_has_peer_got(f.conn));
    for _ in 0..40 {
        assert_eq!(get(&mut f), None);
        assert!(f.engine.take_has_peer_got(f.conn));
    }
}

#[test]
fn a_fence_waits_until_the_peer_has_got_a_message() {
    let mut f = getting();
    let index = sent(f.send(1, Some(5), 30_000).unwrap()).index(true);
    f.flush();
    f.engine.fence(f.conn);
    assert!(matches!(f.send(2, None, 5), Ok(SendPlan::Postpone { .. })));
    assert_eq!(f.start_postponed(), Ok(None));
    assert_eq!(f.engine.pop_output(), None);
    f.header(&Header::ats(index)).unwrap();
    // Nothing else tells the driver that the turn of the other one has come.
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.start_postponed(), Ok(Some(2)));
    f.flush();
    assert_eq!(f.done(), [1, 2]);
}

#[test]
fn a_peer_that_does_not_get_it_is_sent_the_payload() {
    let mut f = getting();
    let index = sent(f.send(1, Some(5), 30_000).unwrap()).index(true);
    f.flush();
    f.header(&Header::cts(index)).unwrap();
    assert_eq!(f.output(), [('c', 16), ('u', 30_000)]);
    f.flush();
    assert_eq!(f.done(), [1]);
    assert_eq!(f.header(&Header::ats(index)), Err(Errno::EPROTO));
}

/// Whether a message may be sent before the engine has noted anything of it, as it then was.
fn at_once(f: &mut Fixture, len: u64) -> bool {
    let mut header = [0; SEND_HEADER];
    f.flush();
    let conn = Some(f.conn);
    let written = f
        .engine
        .try_send_now::<false>(conn, None, None, len, &mut header);
    written.is_some()
}

#[test]
fn messages_sent_at_once_count_until_some_go_the_other_way() {
    let mut f = getting();
    for messages in [4, 8, 16] {
        for _ in 0..messages {
            assert!(at_once(&mut f, 4095), "it does not count");
            assert!(at_once(&mut f, 4096));
        }
        for _ in 0..8 {
            assert!(at_once(&mut f, 4095) && !at_once(&mut f, 4096));
            let header = sent(f.send(0, None, 4096).unwrap());
            assert_eq!(header.op, Op::MsgGet);
            f.flush();
            f.header(&Header::ats(header.index(true))).unwrap();
        }
    }
    assert!(!at_once(&mut f, 16 << 10), "it is to be got");
    // It gets none.
    f.header(&Header::with_get_limit(0)).unwrap();
    for _ in 0..100 {
        assert!(at_once(&mut f, 16 << 10));
    }
}

#[test]
fn short_injected_and_scattered_messages_go_by_the_stream() {
    let mut f = getting();
    assert_eq!(sent(f.send(1, Some(5), 15_000).unwrap()).op, Op::Tag);
    let scattered = Send {
        tag: None,
        data: None,
        iov: Iov::new(&[Mem(0x1000, 20_000), Mem(0x9000, 20_000)]).unwrap(),
        context: 2,
        completion: true,
        inject: false,
        ack: false,
        work: false,
    };
    let plan = f.engine.send(f.conn, &scattered).unwrap();
    assert_eq!(sent(plan).op, Op::Msg);
    assert!(at_once(&mut f, 4095) && !at_once(&mut f, 16 << 10));
    // Some of 4 KiB and more are announced, so that the peer sees what that costs.
    let announced = (0..1100).filter(|_| {
        let header = sent(f.send(0, None, 4096).unwrap());
        f.flush();
        if header.op.is_get() {
            f.header(&Header::ats(header.index(true))).unwrap();
        }
        header.op.is_get()
    });
    assert_eq!(announced.count(), 8 * 8);
    // None that is injected is announced: it may have to be with the peer at once.
    f.flush();
    let (conn, mut header) = (Some(f.conn), [0; SEND_HEADER]);
    let injected = f
        .engine
        .try_send_now::<true>(conn, None, None, 4096, &mut header);
    assert!(injected.is_some());
}

#[test]
fn as_many_messages_are_announced_as_the_protocol_can_name() {
    let mut f = getting();
    f.engine.change_ep(f.ep, |config| config.tx_size = 16);
    let mut announced = 0;
    // Now and then one goes by the stream, so that the peer sees what that costs.
    for context in 0..67_000 {
        announced += u32::from(sent(f.send(context, None, 30_000).unwrap()).op == Op::MsgGet);
        f.flush();
    }
    assert_eq!(announced, 255 * 256);
    // Those behind them are sent by the stream, and take places of the transmit queue.
    let mut queued = 0;
    let full = loop {
        match f.send(0, None, 30_000) {
            Ok(plan) => assert_eq!(sent(plan).op, Op::Msg),
            Err(error) => break error,
        }
        queued += 1;
    };
    assert_eq!((full, queued), (Errno::EAGAIN, 16));
}

#[test]
fn a_peer_says_what_it_gets_and_sees_the_other_way_now_and_then() {
    let mut f = getting();
    let by_get = |f: &mut Fixture, tag, len| {
        let header = sent(f.send(0, tag, len).unwrap());
        f.flush();
        if header.op.is_get() {
            f.header(&Header::ats(header.index(true))).unwrap();
        }
        assert_eq!(f.done(), [0]);
        header.op.is_get()
    };
    let count = |f: &mut Fixture, len| (0..12_380).filter(|_| by_get(f, None, len)).count();
    // 8 after 4 messages, then after 8, up to 4,096, and again.
    assert_eq!(count(&mut f, 40_000), 12_380 - 12 * 8);
    // None of these is faster, for now.
    f.header(&Header::with_get_limit(63)).unwrap();
    assert_eq!(count(&mut f, 40_000), 12 * 8);
    assert_eq!(count(&mut f, 10_000), 3 * 8);
    assert_eq!(count(&mut f, 4_000), 0);
    // It cannot get any.
    f.header(&Header::with_get_limit(0)).unwrap();
    assert_eq!(count(&mut f, 40_000), 0);
    // Never what would else be injected, and always what is never sent eagerly.
    f.header(&Header::with_get_limit(1)).unwrap();
    assert!(!by_get(&mut f, None, 4095));
    assert!(by_get(&mut f, None, 4096));
    for _ in 0..1000 {
        assert!(by_get(&mut f, Some(5), (1 << 20) + 1));
    }
}

#[test]
fn what_is_got_ends_the_receive_and_is_acknowledged() {
    let mut f = getting();
    f.recv(1, Some(5), 50_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    assert_eq!(f.done(), []);
    let (index, get) = next_get(&mut f).unwrap();
    assert_eq!((index, get.address, get.len), (9, 0x9000, 30_000));
    assert!(matches!(get.place, GetPlace::Memory(_, 0)));
    f.engine.got(f.conn, index);
    assert_eq!(f.done(), [1]);
    assert_eq!(told(&mut f), [(Op::Ats, 9)]);
    assert!(f.engine.get(f.conn, index).is_none());
}

#[test]
fn those_that_are_to_be_got_next_are_named_one_after_the_other() {
    let mut f = getting();
    for (context, tag, index) in [(5, 15, 9), (6, 16, 3), (7, 17, 4)] {
        f.recv(context, Some(tag), 50_000);
        f.header(&tag_get(tag, index, 30_000)).unwrap();
    }
    assert_eq!(f.engine.pop_output(), Some(Output::Get(f.conn, 9)));
    assert_eq!(f.engine.pop_get(f.conn), Some(3));
    assert_eq!(f.engine.pop_get(f.conn), Some(4));
    for index in [9, 3, 4] {
        f.engine.got(f.conn, index);
    }
    assert_eq!(f.engine.pop_get(f.conn), None);
    assert_eq!(f.done(), [5, 6, 7]);
    let conn = f.engine.conn(f.conn).unwrap();
    let written = conn
        .only_control()
        .map(|(bytes, len)| bytes[..len].to_vec());
    let header = |index| {
        let mut bytes = [0; BASE_LEN];
        let header = Header::ats(index);
        header.emit(ByteOrder::Little, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(written, Some([9, 3, 4].map(header).concat()));
}

#[test]
fn what_cannot_be_got_is_asked_for() {
    let mut f = getting();
    f.recv(1, Some(5), 50_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    let (index, _) = next_get(&mut f).unwrap();
    f.engine.not_got(f.conn, index);
    assert_eq!(told(&mut f), [(Op::Cts, 9)]);
    f.header(&Header::new(Op::Data, 30_000).with_index(9))
        .unwrap();
    f.engine.rx_placed(f.conn, 30_000);
    assert_eq!(f.done(), [1]);
    assert_eq!(told(&mut f), []);
}

/// As `getting`, keeping this many bytes of messages that are got, and three times as many of others.
fn keeping(bytes: u64) -> Fixture {
    let limits = Limits {
        eager_max: 40_000,
        kept_bytes: 4 * bytes,
        kept_total: 1 << 20,
        ..LIMITS
    };
    let mut f = Fixture::of(limits, |engine| engine.open_srx(Matcher::new(16, true)));
    f.up_with(Extensions::all());
    f
}

#[test]
fn an_unexpected_message_that_an_eager_one_could_be_is_got_and_kept() {
    let mut f = keeping(100_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    assert_eq!(f.engine.kept(), ENTRY);
    let (index, get) = next_get(&mut f).unwrap();
    let GetPlace::Slot(slot) = get.place else {
        panic!("it has no receive");
    };
    f.engine.got(f.conn, index);
    assert_eq!(f.engine.kept(), ENTRY + 30_000);
    assert!(told(&mut f).contains(&(Op::Ats, 9)));
    // Its sender may leave now.
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    let copies = f.recv(1, Some(5), 50_000);
    assert_eq!(copies.len(), 1);
    assert_eq!((copies[0].slot, copies[0].len), (slot, 30_000));
    assert_eq!(f.done(), [1]);
    assert_eq!(f.engine.kept(), 0);
    assert_eq!(f.engine.pop_freed(), Some(slot));
}

#[test]
fn an_unexpected_message_without_room_waits_for_its_receive_at_the_sender() {
    // Longer than what is sent eagerly, and more than is kept.
    for (kept, len) in [(100_000, 50_000), (30_000, 30_000)] {
        let mut f = keeping(kept);
        f.header(&tag_get(5, 9, len)).unwrap();
        assert!(next_get(&mut f).is_none());
        assert_eq!((f.engine.kept(), told(&mut f)), (ENTRY, Vec::new()));
        // What is behind it is not held up.
        f.message(6, 10);
        f.engine.rx_placed(f.conn, 10);
        f.recv(1, Some(5), 10_000);
        let (index, get) = next_get(&mut f).unwrap();
        assert_eq!(get.len, 10_000, "as much as there is room for");
        f.engine.got(f.conn, index);
        assert_eq!(f.failed(), [(1, Errno::ETRUNC)]);
        assert_eq!(told(&mut f), [(Op::Ats, 9)]);
    }
}

#[test]
fn an_unexpected_message_that_cannot_be_got_waits_for_its_receive() {
    let mut f = keeping(100_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    let (index, _) = next_get(&mut f).unwrap();
    f.engine.not_got(f.conn, index);
    assert!(f.engine.pop_freed().is_some());
    assert_eq!(told(&mut f), []);
    f.recv(1, Some(5), 50_000);
    let (index, get) = next_get(&mut f).unwrap();
    assert!(matches!(get.place, GetPlace::Memory(..)));
    f.engine.not_got(f.conn, index);
    assert_eq!(told(&mut f), [(Op::Cts, 9)]);
}

#[test]
fn a_receive_comes_before_what_was_to_be_kept_is_got() {
    let mut f = keeping(100_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    f.recv(1, Some(5), 50_000);
    let (index, get) = next_get(&mut f).unwrap();
    assert!(matches!(get.place, GetPlace::Memory(..)));
    f.engine.got(f.conn, index);
    assert!(next_get(&mut f).is_none());
    assert_eq!((f.done(), f.engine.kept()), ([1].to_vec(), 0));
    // The same for one that is dropped.
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert!(next_get(&mut f).is_none());
    assert_eq!(f.engine.kept(), 0);
    assert!(f.engine.pop_freed().is_some());
}

#[test]
fn a_connection_that_ends_fails_what_was_to_be_got() {
    let mut f = getting();
    f.recv(1, Some(5), 50_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    f.send(2, Some(6), 30_000).unwrap();
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(next_get(&mut f).map(|(index, _)| index), None);
    let mut failed = f.failed();
    failed.sort_unstable_by_key(|(context, _)| *context);
    assert_eq!(failed, [(1, Errno::ECONNRESET), (2, Errno::ECONNRESET)]);
}

#[test]
fn peers_that_did_not_agree_on_it_break_the_protocol() {
    let mut f = Fixture::new();
    for header in [
        tag_get(5, 9, 30_000),
        Header::ats(9),
        Header::with_get_limit(14),
    ] {
        assert_eq!(f.header(&header), Err(Errno::EPROTO));
    }
    let mut f = getting();
    f.recv(1, Some(5), 50_000);
    f.recv(2, Some(5), 50_000);
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    f.header(&tag_get(5, 9, 30_000)).unwrap();
    assert!(f.engine.pop_broken().is_some(), "an index that is used");
}

#[test]
fn the_driver_hears_of_joint_copies() {
    let mut f = getting();
    f.header(&Header::joint()).unwrap();
    assert_eq!(f.engine.pop_output(), Some(Output::Joint(f.conn)));
    f.engine.tell_joint(f.conn);
    assert_eq!(told(&mut f), [(Op::Joint, 0)]);
}

#[test]
fn a_joint_copy_is_wanted_of_a_peer_that_has_nothing_to_get() {
    let mut f = getting();
    assert!(f.engine.wants_joint_copy(f.conn));
    let index = sent(f.send(1, Some(5), 30_000).unwrap()).index(true);
    f.flush();
    assert!(!f.engine.wants_joint_copy(f.conn));
    f.header(&Header::ats(index)).unwrap();
    assert!(f.engine.wants_joint_copy(f.conn));
}
