use ripstop_wire::xnet::base::BaseFlags;

use super::*;
use crate::id::{ConnId, CqId};

const TAG: Option<u64> = Some(5);

fn peek(f: &mut Fixture, context: usize, tag: u64, flags: RecvFlags) {
    let want = Want {
        tag: Some((tag, 0)),
        src: FiAddr::UNSPEC,
    };
    f.engine.peek(f.ep, want, context, flags).unwrap();
}

fn is_blocked(f: &Fixture) -> bool {
    matches!(f.engine.rx_want(f.conn), RxWant::Blocked)
}

/// Says which connections can be read again.
fn resumed(f: &mut Fixture) -> Vec<ConnId> {
    let mut conns = Vec::new();
    while let Some(conn) = f.engine.pop_resumed() {
        if f.engine.rx_retry(conn) {
            conns.push(conn);
        }
    }
    conns
}

#[test]
fn a_message_too_long_to_be_kept_goes_straight_to_its_receive() {
    let mut f = Fixture::new();
    f.message(5, 1000);
    assert!(is_blocked(&f));
    assert!(f.recv(1, Some(6), 1000).is_empty());
    assert!(is_blocked(&f) && resumed(&mut f).is_empty());
    assert!(f.recv(2, TAG, 1000).is_empty());
    assert_eq!(resumed(&mut f), [f.conn]);
    let RxWant::Place {
        iov,
        at: 0,
        len: 1000,
    } = f.engine.rx_want(f.conn)
    else {
        panic!("it has a place");
    };
    assert_eq!(iov.address(), 0x2000);
    f.engine.rx_placed(f.conn, 1000);
    assert_eq!(f.done(), [2]);
}

#[test]
fn what_has_a_receive_and_has_not_come_is_known() {
    let mut f = Fixture::new();
    let arriving = |f: &Fixture| f.engine.conn(f.conn).unwrap().pending().arriving;
    f.rts(6, 1, 5000).unwrap();
    assert!(arriving(&f).is_none(), "nobody has posted a receive");
    f.recv(2, Some(6), 5000);
    let asked = arriving(&f).unwrap();
    assert_eq!((asked.count, asked.len), (1, 5000));

    f.recv(1, TAG, 1000);
    f.message(5, 1000);
    let both = arriving(&f).unwrap();
    assert_eq!((both.count, both.len), (2, 1000));
    f.engine.rx_placed(f.conn, 400);
    let later = arriving(&f).unwrap();
    assert_eq!((later.count, later.len), (2, 600));
    assert_ne!(later.mark, both.mark, "some of it has come");
    f.engine.rx_placed(f.conn, 600);
    assert_eq!(arriving(&f).unwrap().mark, asked.mark);
    assert_eq!(f.done(), [1]);

    f.header(&Header::new(Op::Data, 5000).with_index(1))
        .unwrap();
    assert_eq!(arriving(&f).unwrap().len, 5000);
    f.engine.rx_placed(f.conn, 5000);
    assert!(arriving(&f).is_none());
}

/// One alone may be too long, whatever room there is.
#[test]
fn a_message_above_the_longest_waits_in_the_stream() {
    let limits = Limits {
        kept_longest: 50,
        ..LIMITS
    };
    let mut f = Fixture::of(limits, |engine| engine.open_srx(Matcher::new(16, true)));
    f.up();
    f.message(5, 50);
    f.engine.rx_placed(f.conn, 50);
    assert!(!is_blocked(&f), "it is kept");
    f.message(5, 51);
    assert!(is_blocked(&f));
    assert_eq!(f.recv(1, TAG, 50).len(), 1);
    assert!(is_blocked(&f) && resumed(&mut f).is_empty());
    assert!(f.recv(2, TAG, 51).is_empty());
    assert_eq!(resumed(&mut f), [f.conn]);
}

#[test]
fn peek_finds_a_message_its_connection_is_blocked_on() {
    let mut f = Fixture::new();
    f.message(5, 1000);
    peek(&mut f, 1, 5, RecvFlags::default());
    let found = f.pop().unwrap();
    assert_eq!((found.context, found.len, found.tag), (1, 1000, 5));
    assert!(is_blocked(&f));

    let claim = RecvFlags {
        claim: true,
        ..RecvFlags::default()
    };
    peek(&mut f, 2, 5, claim);
    assert_eq!(f.done(), [2]);
    // It is set aside: no other receive gets it.
    assert!(f.recv(3, TAG, 1000).is_empty());
    assert!(is_blocked(&f) && resumed(&mut f).is_empty());
    let want = Want {
        tag: Some((5, 0)),
        src: FiAddr::UNSPEC,
    };
    let recv = Recv::new(Iov::one(Mem(0x3000, 1000)), want, 2);
    assert!(f.engine.claim(f.ep, recv, claim).unwrap().is_none());
    assert_eq!(resumed(&mut f), [f.conn]);
    f.engine.rx_placed(f.conn, 1000);
    assert_eq!(f.done(), [2]);
}

#[test]
fn a_message_its_connection_is_blocked_on_can_be_discarded() {
    let mut f = Fixture::new();
    f.message(5, 1000);
    let discard = RecvFlags {
        discard: true,
        ..RecvFlags::default()
    };
    peek(&mut f, 1, 5, discard);
    assert_eq!(f.done(), [1]);
    assert_eq!(resumed(&mut f), [f.conn]);
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(1000)));
    f.engine.rx_placed(f.conn, 1000);
    f.message(6, 0);
    f.recv(2, Some(6), 0);
    assert_eq!(f.done(), [2]);
}

#[test]
fn a_receive_takes_the_message_that_came_first_even_if_it_could_not_be_kept() {
    let mut f = Fixture::new();
    let first = f.conn;
    f.message(5, 1000);
    f.conn = f.open_conn(f.ep, 8);
    f.up();
    f.message(5, 0);
    f.recv(1, TAG, 1000);
    assert_eq!(resumed(&mut f), [first]);
    f.engine.rx_placed(first, 1000);
    assert_eq!(f.pop().unwrap().src, FiAddr(7));
    f.recv(2, TAG, 0);
    assert_eq!(f.pop().unwrap().src, FiAddr(8));
}

#[test]
fn room_for_a_message_lets_its_connection_go_on() {
    let mut f = Fixture::new();
    for tag in 0..3 {
        f.message(tag, 0);
    }
    f.message(3, 10);
    assert!(is_blocked(&f));
    f.recv(1, Some(1), 0);
    assert_eq!(resumed(&mut f), [f.conn]);
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Keep {
            total: 10,
            at: 0,
            len: 10,
            ..
        }
    ));
}

#[test]
fn without_memory_for_a_slot_the_message_waits_in_the_stream() {
    let mut f = Fixture::new();
    f.message(5, 10);
    let RxWant::Keep { slot, .. } = f.engine.rx_want(f.conn) else {
        panic!("it is kept");
    };
    f.engine.rx_no_memory(f.conn);
    assert!(is_blocked(&f));
    assert_eq!(f.engine.pop_freed(), Some(slot));
    f.recv(1, TAG, 10);
    assert_eq!(resumed(&mut f), [f.conn]);
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(f.done(), [1]);
}

#[test]
fn a_blocked_connection_that_closes_leaves_nothing_behind() {
    let mut f = Fixture::new();
    f.message(5, 1000);
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert!(f.recv(1, TAG, 1000).is_empty());
    assert_eq!((f.done().len(), f.failed().len()), (0, 0));
    assert_eq!(f.engine.srx_mut(f.srx).unwrap().len(), 1);
}

#[test]
fn a_rendezvous_into_a_multi_receive_buffer_goes_behind_what_is_there() {
    let mut f = Fixture::new();
    let want = Want {
        tag: Some((0, u64::MAX)),
        src: FiAddr::UNSPEC,
    };
    let mut recv = Recv::new(Iov::one(Mem(0x4000, 1000)), want, 1);
    recv.multi = true;
    f.post(recv);
    f.message(1, 100);
    f.engine.rx_placed(f.conn, 100);
    f.rts(2, 9, 200).unwrap();
    let data = Header {
        op_data: 9,
        ..Header::new(Op::Data, 200)
    };
    f.header(&data).unwrap();
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Place {
            at: 100,
            len: 200,
            ..
        }
    ));
    f.engine.rx_placed(f.conn, 200);
    let (first, second) = (f.pop().unwrap(), f.pop().unwrap());
    assert_eq!((first.buf, first.len), (0x4000, 100));
    assert_eq!((second.buf, second.len), (0x4000 + 100, 200));
}

#[test]
fn what_was_not_asked_for_is_refused() {
    let mut f = Fixture::new();
    let data = |index, len| Header::new(Op::Data, len).with_index(index);
    assert_eq!(f.header(&Header::ack()), Err(Errno::EPROTO));
    assert_eq!(f.header(&Header::cts(1)), Err(Errno::EPROTO));
    assert_eq!(f.header(&data(1, 10)), Err(Errno::EPROTO));
    f.rts(5, 1, 10).unwrap();
    assert_eq!(f.header(&data(1, 10)), Err(Errno::EPROTO));
    f.recv(1, TAG, 10);
    assert_eq!(f.header(&data(1, 9)), Err(Errno::EPROTO));
    assert_eq!(f.header(&data(2, 10)), Err(Errno::EPROTO));
    assert_eq!(f.header(&Header::new(Op::ReadRsp, 0)), Err(Errno::EPROTO));
    f.header(&data(1, 10)).unwrap();
    assert_eq!(f.done(), []);
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(f.done(), [1]);
}

#[test]
fn an_index_has_two_bytes_where_that_is_agreed_on() {
    let high = 0x0301;
    let data = Header::new(Op::Data, 10).with_index(high);
    for wide in [true, false] {
        let mut f = Fixture::new();
        if !wide {
            f.up_with(STREAM_ONLY.difference(Extensions::INDEX));
        }
        f.rts(5, 1, 10).unwrap();
        f.rts(5, high, 10).unwrap();
        f.recv(1, TAG, 10);
        f.recv(2, TAG, 10);
        if !wide {
            // A C peer leaves anything in the high byte: they are of one index.
            assert_eq!(f.failed(), [(2, Errno::EPROTO)]);
            continue;
        }
        f.header(&data).unwrap();
        f.engine.rx_placed(f.conn, 10);
        assert_eq!(f.done(), [2]);
        assert_eq!(f.header(&data), Err(Errno::EPROTO));
    }
}

#[test]
fn two_rendezvous_of_one_index_break_the_connection() {
    let mut f = Fixture::new();
    f.rts(5, 1, 10).unwrap();
    f.rts(5, 1, 10).unwrap();
    f.recv(1, TAG, 10);
    assert_eq!(f.engine.pop_broken(), None);
    f.recv(2, TAG, 10);
    assert_eq!(f.failed(), [(2, Errno::EPROTO)]);
    assert_eq!(f.engine.pop_broken(), Some((f.conn, Errno::EPROTO)));
    f.engine.close_conn(f.conn, Errno::EPROTO);
    assert_eq!(f.failed(), [(1, Errno::EPROTO)]);
}

#[test]
fn a_bad_header_is_explained_once() {
    let mut f = Fixture::new();
    assert_eq!(
        f.engine.rx_header(f.conn, &[9; 16]),
        Err(Errno::ENOPROTOOPT)
    );
    assert!(f.engine.wire_error().is_some());
    assert!(f.engine.wire_error().is_none());
}

#[test]
fn what_arrives_while_a_receive_is_matched_stays_behind_what_waits() {
    let mut f = Fixture::new();
    for tag in 1..=4 {
        // The last one finds no room.
        f.message(tag, 0);
    }
    let want = Want {
        tag: Some((0, u64::MAX)),
        src: FiAddr::UNSPEC,
    };
    let mut recv = Recv::new(Iov::one(Mem(0x4000, 1000)), want, 1);
    recv.multi = true;
    let id = f.engine.post_recv(f.srx, recv).unwrap().unwrap();
    let take = |f: &mut Fixture| f.engine.next_match(f.srx, id).is_some();
    f.conn = f.open_conn(f.ep, 8);
    f.up();
    f.message(5, 0);
    assert!(!take(&mut f));
    f.message(6, 0);
    let tags: Vec<u64> = core::iter::from_fn(|| f.pop().ok())
        .map(|c| c.tag)
        .collect();
    assert_eq!(tags, [1, 2, 3, 4, 5, 6]);
    // Calling it again changes nothing.
    assert!(!take(&mut f));
    f.message(7, 0);
    assert_eq!(f.pop().unwrap().tag, 7);
    assert_eq!(f.pop(), Err(Errno::EAGAIN));
}

#[test]
fn all_connections_together_keep_no_more_than_allowed_even_when_they_close() {
    let mut f = Fixture::new();
    let mut conns = Vec::from([f.conn]);
    for src in 8..16 {
        conns.push(f.open_conn(f.ep, src));
    }
    for conn in &conns {
        f.conn = *conn;
        f.up();
        f.message(5, 100);
        let last = conns.last() == Some(conn);
        assert_eq!(is_blocked(&f), last, "9 times 356 is more than 3000");
        f.engine.rx_placed(f.conn, 100);
    }
    let last = f.conn;
    for conn in &conns[..8] {
        f.engine.close_conn(*conn, Errno::ECONNRESET);
    }
    assert!(!f.engine.rx_retry(last));
    // A message of a connection that is gone makes room for one that waits.
    assert_eq!(f.recv(1, TAG, 100).len(), 1);
    assert_eq!(resumed(&mut f), [last]);
    assert_eq!(f.done(), [1]);
    f.engine.rx_placed(last, 100);
    for context in 2..10 {
        f.recv(context, TAG, 100);
    }
    assert_eq!(f.done(), [2, 3, 4, 5, 6, 7, 8, 9]);
}

#[test]
fn a_connection_without_room_says_what_is_kept() {
    let mut f = Fixture::new();
    for tag in 0..3 {
        f.message(tag, 10);
        assert_eq!(f.engine.rx_full(f.conn), None);
        f.engine.rx_placed(f.conn, 10);
    }
    f.message(3, 10);
    assert_eq!(f.engine.rx_full(f.conn), Some((3, 30)));
    f.recv(1, Some(1), 10);
    assert_eq!(resumed(&mut f), [f.conn]);
    assert!(f.engine.rx_retry(f.conn));
    assert_eq!(f.engine.rx_full(f.conn), None);
}

/// The first words of a message with this header.
fn words(header: &Header) -> [[u8; 8]; 3] {
    let mut bytes = [0xee; MAX_HEADER];
    header.emit(ByteOrder::Little, &mut bytes).unwrap();
    *bytes.as_chunks().0.first_chunk().unwrap()
}

/// What the engine makes of a message that is all there is.
fn alone(
    f: &mut Fixture,
    cq: CqId,
    words: [[u8; 8]; 3],
    len: usize,
) -> Option<(Whole<Mem>, Completion)> {
    let small = f.engine.rx_sole(f.conn, words, len)?;
    match small.tag {
        Some(_) => f.engine.rx_fast::<true>(f.conn, cq, small),
        None => f.engine.rx_fast::<false>(f.conn, cq, small),
    }
}

#[test]
fn plain_small_headers_are_those_of_messages_alone() {
    let plain = |op, len| Header {
        tag: u64::from(op == Op::Tag) * 5,
        ..Header::new(op, len)
    };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        let mut f = Fixture::down();
        let terms = Terms {
            packets: None,
            order,
            has_rendezvous: true,
            extensions: STREAM_ONLY,
        };
        f.engine.conn_up(f.conn, terms);
        let found = |header: &Header| {
            let mut bytes = [0xee; MAX_HEADER];
            let header_len = header.emit(order, &mut bytes).unwrap();
            let len = header_len + header.payload_len as usize;
            let words = *bytes.as_chunks().0.first_chunk().unwrap();
            let small = f.engine.rx_sole(f.conn, words, len)?;
            Some((small.header_len(), small.tag, small.payload_len))
        };
        for len in [0, 1, 8, 255, 256, 1000] {
            let numbered = Header {
                id: 200,
                ..plain(Op::Tag, len)
            };
            assert_eq!(found(&plain(Op::Msg, len)), Some((16, None, len)));
            assert_eq!(found(&plain(Op::Tag, len)), Some((24, Some(5), len)));
            assert_eq!(found(&numbered), Some((24, Some(5), len)));
        }
        // All others are for the long way.
        for op in [Op::Msg, Op::Tag] {
            let data = Header {
                cq_data: Some(1),
                ..plain(op, 8)
            };
            let acked = Header {
                flags: BaseFlags::DELIVERY_COMPLETE,
                ..plain(op, 8)
            };
            assert_eq!([found(&data), found(&acked)], [None, None], "{op:?}");
        }
        assert_eq!(found(&Header::ack()), None);
        for (op, index, len) in [
            (Op::ReadRsp, 0, 8),
            (Op::TagRts, 1, 0),
            (Op::Cts, 1, 0),
            (Op::Data, 1, 8),
        ] {
            let other = Header {
                op_data: index,
                ..Header::new(op, len)
            };
            assert_eq!(found(&other), None, "{op:?}");
        }
    }
}

#[test]
fn a_message_alone_goes_past_the_queue() {
    let mut f = Fixture::new();
    let (conn, cq) = (f.conn, f.cq);
    let tagged = |tag, len| {
        words(&Header {
            tag,
            ..Header::new(Op::Tag, len)
        })
    };
    // Nobody waits for it, or not for this one.
    assert!(alone(&mut f, cq, tagged(5, 8), 32).is_none());
    f.recv(41, Some(5), 10);
    for (tag, len) in [(6, 8), (5, 11)] {
        let all = 24 + len as usize;
        assert!(alone(&mut f, cq, tagged(tag, len), all).is_none());
    }
    // It is not all there, or not alone.
    for all in [24, 31, 33] {
        assert!(alone(&mut f, cq, tagged(5, 8), all).is_none());
    }
    // Its completion belongs elsewhere.
    let other = f.engine.open_cq(8).unwrap();
    assert!(alone(&mut f, other, tagged(5, 8), 32).is_none());
    // The front of another header has come.
    let mut whole = [0; MAX_HEADER];
    let len = Header::new(Op::Msg, 3).emit(ByteOrder::Little, &mut whole);
    assert_eq!(f.engine.rx_header(conn, &whole[..5]), Ok(5));
    assert!(alone(&mut f, cq, tagged(5, 8), 32).is_none());
    f.recv(42, None, 3);
    assert_eq!(f.engine.rx_header(conn, &whole[5..len.unwrap()]), Ok(11));
    assert!(alone(&mut f, cq, tagged(5, 8), 32).is_none());
    f.engine.rx_placed(conn, 3);
    assert_eq!(f.done(), [42]);
    // Nothing of this has changed anything.
    let (whole, completion) = alone(&mut f, cq, tagged(5, 8), 32).unwrap();
    assert_eq!((whole.header_len, whole.len), (24, 8));
    assert_eq!(whole.memory, Mem(0x2000, 10));
    assert_eq!((completion.context, completion.len), (41, 8));
    assert_eq!((completion.tag, completion.src), (5, FiAddr(7)));
    assert_eq!(
        (completion.buf, completion.flags),
        (0x2000, super::super::recv::rx_flags(true))
    );
    assert_eq!(f.done(), []);
    assert_eq!(f.engine.counter_mut(f.counter).unwrap().value, 2);
    assert!(alone(&mut f, cq, tagged(5, 8), 32).is_none());
}

#[test]
fn receives_that_nobody_can_fill_any_more_are_counted() {
    let mut f = Fixture::new();
    let from = |src| Want {
        tag: None,
        src: FiAddr(src),
    };
    for (context, src) in [(1, 7), (2, 8), (3, 7)] {
        f.post(Recv::new(Iov::one(Mem(0x2000, 10)), from(src), context));
    }
    f.engine.fail_directed(f.ep, FiAddr(7), Errno::ECONNREFUSED);
    let refused = Errno::ECONNREFUSED;
    assert_eq!(f.failed(), [(1, refused), (3, refused)]);
    assert_eq!(f.engine.counter_mut(f.counter).unwrap().errors, 2);
    // What the program cancels it knows of.
    f.recv(4, None, 10);
    f.engine.cancel(f.srx, Some(f.cq), 4).unwrap();
    assert_eq!(f.engine.counter_mut(f.counter).unwrap().errors, 2);
    assert_eq!(f.failed(), [(4, Errno::ECANCELED)]);
    let to = (Some(f.cq), Some(f.counter));
    f.engine.fail_receives(f.srx, to, Errno::ECONNRESET);
    assert_eq!(f.failed(), [(2, Errno::ECONNRESET)]);
    assert_eq!(f.engine.counter_mut(f.counter).unwrap().errors, 3);
}

#[test]
fn a_message_alone_that_is_not_reported_is_left_alone() {
    let mut f = Fixture::new();
    let want = Want {
        tag: None,
        src: FiAddr::UNSPEC,
    };
    f.post(Recv {
        completion: false,
        ..Recv::new(Iov::one(Mem(0x2000, 8)), want, 1)
    });
    let (mut bytes, header, cq) = ([0; 24], Header::new(Op::Msg, 8), f.cq);
    let words = words(&header);
    assert!(alone(&mut f, cq, words, 24).is_none());
    header.emit(ByteOrder::Little, &mut bytes).unwrap();
    assert!(f.engine.rx_whole(f.conn, &bytes).is_some());
    assert_eq!(f.done(), []);
}
