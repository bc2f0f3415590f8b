use alloc::vec;

use ripstop_wire::xnet::base::BaseFlags;

use super::*;

#[test]
fn messages_postponed_before_the_connection_is_up_are_not_overtaken() {
    let mut f = Fixture::down();
    for context in 1..=3 {
        let plan = f.send(context, Some(0), 900).unwrap();
        assert!(matches!(plan, SendPlan::Postpone { slot: None }));
    }
    f.up();
    let plan = f.send(4, Some(0), 1).unwrap();
    assert!(matches!(plan, SendPlan::Postpone { .. }));
    for context in 1..=4 {
        assert_eq!(f.start_postponed().unwrap(), Some(context));
    }
    assert_eq!(f.start_postponed(), Ok(None));
    let plan = f.send(5, Some(0), 1).unwrap();
    assert!(matches!(plan, SendPlan::Append { .. }));
    f.flush();
    assert_eq!(f.done(), [1, 2, 3, 4, 5]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn a_postponed_message_that_finds_no_room_stays_the_first() {
    let mut f = Fixture::down();
    let send = |context| Send {
        tag: None,
        data: None,
        iov: Iov::one(Mem(0x1000, 600)),
        context,
        completion: true,
        inject: true,
        ack: false,
        work: false,
    };
    let mut slots = Vec::new();
    for context in 1..=2 {
        match f.engine.send(f.conn, &send(context)).unwrap() {
            SendPlan::Postpone { slot } => slots.push(slot),
            SendPlan::Packet { .. } | SendPlan::Append { .. } => unreachable!(),
        }
    }
    f.up();
    let mut header = [0; MAX_UNIT_HEADER];
    let first = f
        .engine
        .start_postponed(f.conn, &mut header)
        .unwrap()
        .unwrap();
    let first = first.postponed;
    assert_eq!((first.posted.context(), first.slot), (1, slots[0]));
    f.engine.free_slot(first.slot);
    assert_eq!(f.start_postponed(), Err(Errno::EAGAIN));
    assert!(f.engine.conn(f.conn).unwrap().has_postponed());
    assert_eq!(f.engine.outstanding(f.ep), 2);
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.failed(), [(1, Errno::ECONNRESET), (2, Errno::ECONNRESET)]);
    let freed: Vec<_> = core::iter::from_fn(|| f.engine.pop_freed().map(Some)).collect();
    assert_eq!(freed, slots);
}

#[test]
fn a_clear_to_send_names_the_connection_as_having_output() {
    let mut f = Fixture::new();
    f.send(1, Some(0), 5000).unwrap();
    f.flush();
    assert_eq!(f.engine.pop_output(), None);
    f.header(&Header::cts(1)).unwrap();
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    assert_eq!(f.output(), [('c', 16), ('u', 5000)]);
    f.flush();
    assert_eq!(f.done(), [1]);
    assert_eq!(f.header(&Header::cts(1)), Err(Errno::EPROTO));
}

#[test]
fn a_postponed_message_can_be_taken_back() {
    let mut f = Fixture::down();
    f.send(1, None, 10).unwrap();
    let send = Send {
        tag: None,
        data: None,
        iov: Iov::one(Mem(0x1000, 10)),
        context: 2,
        completion: true,
        inject: true,
        ack: false,
        work: false,
    };
    let SendPlan::Postpone { slot } = f.engine.send(f.conn, &send).unwrap() else {
        panic!("the connection is not up");
    };
    f.engine.take_back(f.conn);
    assert_eq!(f.engine.pop_freed(), slot);
    assert_eq!(f.engine.outstanding(f.ep), 1);
    f.engine.close_conn(f.conn, Errno::ECONNREFUSED);
    assert_eq!(f.failed(), [(1, Errno::ECONNREFUSED)]);
}

#[test]
fn a_steady_flow_of_messages_does_not_hold_back_an_acknowledgement() {
    let mut f = Fixture::new();
    f.send(1, Some(1), 10).unwrap();
    f.engine.sent(f.conn, 5);
    let header = Header {
        flags: BaseFlags::DELIVERY_COMPLETE,
        ..Header::new(Op::Msg, 0)
    };
    f.header(&header).unwrap();
    assert_eq!(f.engine.pop_output(), Some(Output::Conn(f.conn)));
    f.send(2, Some(2), 10).unwrap();
    f.send(3, Some(3), 10).unwrap();
    assert_eq!(f.output(), [('s', 29)]);
    f.engine.sent(f.conn, 29);
    assert_eq!(f.output(), [('c', 16), ('s', 68)]);
    f.engine.sent(f.conn, 3);
    f.send(4, Some(4), 10).unwrap();
    assert_eq!(f.output(), [('c', 13), ('s', 102)]);
    f.flush();
    assert_eq!(f.done(), [1, 2, 3, 4]);
}

#[test]
fn a_message_goes_at_once_where_nothing_waits() {
    let mut f = Fixture::new();
    let mut header = [0; SEND_HEADER];
    let mut at_once = |f: &mut Fixture, tag| {
        f.engine
            .try_send_now::<false>(Some(f.conn), tag, None, 8, &mut header)
    };
    assert_eq!(at_once(&mut f, None), Some(16));
    assert_eq!(at_once(&mut f, Some(5)), Some(24));
    // Nothing was noted: the next message has the stream to itself.
    f.engine.sent_now(f.ep, true, 1, 8, true);
    assert_eq!(f.done(), [1]);
    f.send(2, None, 8).unwrap();
    assert_eq!(at_once(&mut f, None), None);
    assert_eq!(f.engine.sent(f.conn, 24), 24);
    assert_eq!(f.done(), [2]);
    assert_eq!(at_once(&mut f, None), Some(16));
}

#[test]
fn a_message_that_was_begun_is_queued_whatever_the_limit() {
    let mut f = Fixture::new();
    f.engine.change_ep(f.ep, |config| config.tx_size = 0);
    assert_eq!(f.send(1, None, 8).err(), Some(Errno::EAGAIN));
    let send = Send {
        tag: None,
        data: None,
        iov: Iov::one(Mem(0x1000, 8)),
        context: 1,
        completion: true,
        inject: false,
        ack: false,
        work: false,
    };
    let plan = f.engine.send_partly_written(f.conn, &send).unwrap();
    assert!(matches!(plan, SendPlan::Append { inline: true, .. }));
    assert_eq!(f.engine.sent(f.conn, 7), 7);
    assert_eq!(f.done(), []);
    assert_eq!(f.engine.sent(f.conn, 17), 17);
    assert_eq!(f.done(), [1]);
}

#[test]
fn a_small_message_joins_those_that_wait() {
    let mut f = Fixture::new();
    let mut header = [0; SEND_HEADER];
    let mut join = |f: &mut Fixture, context, len| {
        let message = SmallMessage {
            tag: Some(3),
            data: None,
            len,
            context,
            completion: true,
        };
        f.engine.coalesce(Some(f.conn), &message, &mut header)
    };
    for context in 0..10 {
        assert_eq!(join(&mut f, context, 64), Some(24));
    }
    assert_eq!(join(&mut f, 10, 105), None, "it does not fit");
    assert_eq!(f.output(), [('s', 880)]);
    assert_eq!(f.engine.outstanding(f.ep), 10);
    f.engine.sent(f.conn, 880 - 1);
    assert_eq!(f.done(), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    f.flush();
    assert_eq!(f.done(), [9]);
    f.engine.change_ep(f.ep, |config| config.tx_size = 0);
    assert_eq!(join(&mut f, 10, 8), None, "the queue is full");
}

#[test]
fn peers_of_another_library_are_asked_for_leave_earlier() {
    // Whether a message of that size waits for its receive, at each kind of peer.
    let waits = |has_rendezvous, extensions, len| {
        let limits = Limits {
            eager_max: 512 << 10,
            ..LIMITS
        };
        let mut f = Fixture::of(limits, |engine| engine.open_srx(Matcher::new(16, true)));
        let terms = Terms {
            packets: None,
            order: ByteOrder::Little,
            has_rendezvous,
            extensions,
        };
        f.engine.conn_up(f.conn, terms);
        let before = f.engine.conn(f.conn).unwrap().unsent();
        f.send(1, Some(5), len).unwrap();
        let queued = f.engine.conn(f.conn).unwrap().unsent() - before;
        queued < len as u64
    };
    let (ours, theirs) = (STREAM_ONLY, Extensions::empty());
    for (has_rendezvous, extensions, largest) in [
        (true, ours, Some(512 << 10)),
        (true, theirs, Some(256 << 10)),
        (false, theirs, None),
    ] {
        let Some(largest) = largest else {
            assert!(!waits(has_rendezvous, extensions, 1 << 30));
            continue;
        };
        assert!(!waits(has_rendezvous, extensions, largest));
        assert!(waits(has_rendezvous, extensions, largest + 1));
    }
}

/// What a plan says to send.
fn op(plan: &SendPlan) -> Op {
    match plan {
        SendPlan::Append {
            header, header_len, ..
        } => {
            let bytes = &header[..usize::from(*header_len)];
            Header::parse(ByteOrder::Little, bytes).unwrap().op
        }
        SendPlan::Packet { .. } | SendPlan::Postpone { .. } => unreachable!(),
    }
}

#[test]
fn messages_that_wait_for_their_receiver_hold_up_no_others() {
    let mut f = Fixture::new();
    f.up_with(STREAM_ONLY.difference(Extensions::INDEX));
    f.engine.change_ep(f.ep, |config| config.tx_size = 4);
    // The receiver may wait for what is sent behind any number of them.
    for context in 0..300 {
        let plan = f.send(context, Some(1), 5000).unwrap();
        let asks = context < 255;
        assert_eq!(op(&plan), if asks { Op::TagRts } else { Op::Tag });
        f.flush();
    }
    assert_eq!(op(&f.send(300, Some(1), 8).unwrap()), Op::Tag);
    f.flush();
    assert_eq!(f.done(), (255..=300).collect::<Vec<_>>());
    assert_eq!(f.engine.outstanding(f.ep), 255);

    // What the receiver has asked for is like any other.
    for index in 1..=4 {
        f.header(&Header::cts(index)).unwrap();
    }
    assert_eq!(f.send(301, None, 8).err(), Some(Errno::EAGAIN));
    f.flush();
    assert_eq!(f.done(), [0, 1, 2, 3]);
    for context in 302..306 {
        assert_eq!(op(&f.send(context, None, 8).unwrap()), Op::Msg);
    }
    assert_eq!(f.send(306, None, 8).err(), Some(Errno::EAGAIN));

    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.failed().len(), 255);
    assert_eq!(f.engine.outstanding(f.ep), 0);
    // The bound is the one it was.
    f.conn = f.open_conn(f.ep, 8);
    f.up();
    for context in 0..4 {
        f.send(context, None, 8).unwrap();
    }
    assert_eq!(f.send(4, None, 8).err(), Some(Errno::EAGAIN));
}

#[test]
fn with_indices_of_two_bytes_many_more_wait_for_their_receiver() {
    const MOST: usize = 255 * 256;
    let mut f = Fixture::new();
    for context in 0..MOST + 10 {
        let plan = f.send(context, Some(1), 5000).unwrap();
        let asks = context < MOST;
        assert_eq!(op(&plan), if asks { Op::TagRts } else { Op::Tag });
        f.flush();
    }
    f.done();
    // The first, the last of one byte, the first of two, and the last; then they are used again.
    for (index, context) in [(1, 0), (255, 254), (0x101, 255), (0xffff, MOST - 1)] {
        f.header(&Header::cts(index)).unwrap();
        f.flush();
        assert_eq!(f.done(), [context]);
        assert_eq!(f.header(&Header::cts(index)), Err(Errno::EPROTO));
        assert_eq!(op(&f.send(context, Some(1), 5000).unwrap()), Op::TagRts);
        f.flush();
        f.header(&Header::cts(index)).unwrap();
        f.flush();
        assert_eq!(f.done(), [context]);
    }
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.failed().len(), MOST - 4);
}

#[test]
fn operations_are_done_where_positions_wrap() {
    // One message of this many bytes behind the other, from each of the places before the end.
    for before in [0, 1, 23, 24, 25, 48, 100, 5000] {
        let mut f = Fixture::new();
        let conn = f.engine.conns.get_mut(f.conn).unwrap();
        (conn.queued, conn.sent) = (u64::MAX - before, u64::MAX - before);
        for (context, len) in [(0, 8), (1, 8), (2, 3000), (3, 0), (4, 8)] {
            f.send(context, None, len).unwrap();
        }
        assert_eq!(f.engine.conn(f.conn).unwrap().unsent(), 3 * 24 + 3016 + 16);
        for (bytes, done) in [
            (23, vec![]),
            (1, vec![0]),
            (24 + 3015, vec![1]),
            (1, vec![2]),
            (15, vec![]),
            (25, vec![3, 4]),
        ] {
            f.engine.sent(f.conn, bytes);
            assert_eq!(f.done(), done, "{before} bytes before the end");
        }
        assert_eq!(f.engine.outstanding(f.ep), 0);
        assert_eq!(f.engine.conn(f.conn).unwrap().unsent(), 0);
    }
}

#[test]
fn a_rendezvous_and_an_acknowledged_message_are_done_where_positions_wrap() {
    for before in [0, 10, 100, 5000] {
        let mut f = Fixture::new();
        let conn = f.engine.conns.get_mut(f.conn).unwrap();
        (conn.queued, conn.sent) = (u64::MAX - before, u64::MAX - before);
        assert_eq!(op(&f.send(0, Some(1), 5000).unwrap()), Op::TagRts);
        f.flush();
        f.send(1, None, 100).unwrap();
        f.header(&Header::cts(1)).unwrap();
        assert_eq!(f.done(), []);
        f.flush();
        assert_eq!(f.done(), [1, 0], "{before} bytes before the end");
    }
}
