//! Receives that another provider has.

use super::*;
use crate::id::{MessageId, SrxId};

fn owned() -> Fixture {
    let mut f = Fixture::with(Engine::open_owned_srx);
    f.up();
    f
}

impl Fixture {
    /// The next message to ask about: its number, tag and length.
    fn arrival(&mut self) -> Option<(MessageId, Option<u64>, u64)> {
        let arrival = self.engine.next_arrival(self.srx)?;
        assert_eq!(arrival.envelope.src, FiAddr(7));
        Some((arrival.message, arrival.envelope.tag, arrival.envelope.len))
    }

    /// The owner has a receive for a message.
    fn answer(
        &mut self,
        message: MessageId,
        context: usize,
        len: usize,
    ) -> Result<Option<CopyOut<Mem>>> {
        let want = Want {
            tag: None,
            src: FiAddr::UNSPEC,
        };
        let recv = Recv::new(Iov::one(Mem(0x2000, len)), want, context);
        self.engine.start(self.srx, self.cq, message, recv)
    }

    fn resumed(&mut self) -> bool {
        let conn = self.engine.pop_resumed();
        assert!(conn.is_none() || conn == Some(self.conn));
        conn.is_some_and(|conn| self.engine.rx_retry(conn))
    }

    /// The payload of a kept message arrives.
    fn kept(&mut self, len: u64) {
        assert!(matches!(
            self.engine.rx_want(self.conn),
            RxWant::Keep { total, at: 0, .. } if total == len
        ));
        self.engine.rx_placed(self.conn, len);
    }
}

#[test]
fn the_owner_is_asked_in_order_and_its_receives_complete() {
    let mut f = owned();
    f.message(5, 10);
    f.kept(10);
    f.header(&Header::new(Op::Msg, 0)).unwrap();
    let (first, tag, len) = f.arrival().unwrap();
    assert_eq!((tag, len), (Some(5), 10));
    // Without an answer it stays the first.
    assert_eq!(f.arrival().unwrap().0, first);
    let copy = f.answer(first, 1, 8).unwrap().unwrap();
    assert_eq!((copy.at, copy.len), (0, 8));
    assert_eq!(f.failed(), [(1, Errno::ETRUNC)]);
    let (second, tag, len) = f.arrival().unwrap();
    assert_eq!((tag, len), (None, 0));
    assert!(f.answer(second, 2, 8).unwrap().is_none());
    assert_eq!(f.done(), [2]);
    assert!(f.arrival().is_none());
    assert!(f.engine.srx_mut(f.srx).unwrap().is_empty());
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn what_has_no_receive_waits_until_the_owner_has_one() {
    let mut f = owned();
    f.message(5, 10);
    f.kept(10);
    f.rts(6, 1, 5000).unwrap();
    for expected in [Some(5), Some(6)] {
        let (message, tag, _) = f.arrival().unwrap();
        assert_eq!(tag, expected);
        f.engine.let_wait(f.srx, message).unwrap();
        if expected == Some(6) {
            assert!(f.answer(message, 2, 5000).unwrap().is_none());
        }
    }
    assert!(f.arrival().is_none());
    // The sender of the rendezvous is asked for it, and what is kept is much of these bounds.
    assert_eq!(f.output(), [('c', 16), ('c', 16)]);
    f.flush();
    f.header(&Header {
        op_data: 1,
        ..Header::new(Op::Data, 5000)
    })
    .unwrap();
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Place {
            at: 0,
            len: 5000,
            ..
        }
    ));
    f.engine.rx_placed(f.conn, 5000);
    assert_eq!(f.done(), [2]);
}

#[test]
fn a_long_message_waits_for_the_answer_in_the_stream() {
    let mut f = owned();
    f.message(5, 50_000);
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Blocked));
    let (message, ..) = f.arrival().unwrap();
    assert!(f.answer(message, 1, 50_000).unwrap().is_none());
    assert!(f.resumed());
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Place {
            at: 0,
            len: 50_000,
            ..
        }
    ));
    f.engine.rx_placed(f.conn, 50_000);
    assert_eq!(f.done(), [1]);

    // Too long to be kept, it waits there until it is started or dropped.
    f.message(6, 50_000);
    let (message, ..) = f.arrival().unwrap();
    f.engine.let_wait(f.srx, message).unwrap();
    assert!(!f.resumed());
    f.engine.drop_message(f.srx, message).unwrap();
    assert!(f.resumed());
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(50_000)));
    f.engine.rx_placed(f.conn, 50_000);
    assert!(f.done().is_empty() && f.arrival().is_none());
}

/// What becomes of a long message behind one that is kept: it stays in the stream until its owner
/// answers, also when that cannot at first, and the connection has room again meanwhile.
fn behind_a_kept_one(answer: impl FnOnce(&mut Fixture, MessageId)) {
    let roomy = Limits {
        kept_bytes: 1 << 20,
        kept_total: 1 << 20,
        ..LIMITS
    };
    let mut f = Fixture::of(roomy, Engine::open_owned_srx);
    f.up();
    for tag in [4, 5] {
        f.message(tag, 100);
        f.kept(100);
    }
    f.message(6, 50_000);
    let (first, ..) = f.arrival().unwrap();
    assert!(f.answer(first, 1, 100).unwrap().is_some());
    assert!(!f.resumed());
    let (second, ..) = f.arrival().unwrap();
    f.engine.let_wait(f.srx, second).unwrap();
    let (long, tag, len) = f.arrival().unwrap();
    assert_eq!((tag, len), (Some(6), 50_000));
    f.engine.drop_message(f.srx, second).unwrap();
    assert!(!f.resumed());
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Blocked));
    assert_eq!(f.arrival().unwrap().0, long);
    answer(&mut f, long);
    assert!(f.arrival().is_none());
    // The stream goes on behind it.
    assert!(f.engine.rx_in_header(f.conn));
    f.message(7, 0);
    let (last, ..) = f.arrival().unwrap();
    f.engine.drop_message(f.srx, last).unwrap();
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn a_long_message_behind_a_kept_one_is_asked_about_first() {
    behind_a_kept_one(|f, long| {
        assert!(f.answer(long, 2, 50_000).unwrap().is_none());
        assert!(f.resumed());
        assert!(matches!(
            f.engine.rx_want(f.conn),
            RxWant::Place {
                at: 0,
                len: 50_000,
                ..
            }
        ));
        f.engine.rx_placed(f.conn, 50_000);
        assert_eq!(f.done(), [1, 2]);
    });
    behind_a_kept_one(|f, long| {
        f.engine.let_wait(f.srx, long).unwrap();
        assert!(f.resumed());
        f.kept(50_000);
        let copy = f.answer(long, 2, 50_000).unwrap().unwrap();
        assert_eq!(copy.len, 50_000);
        assert_eq!(f.done(), [1, 2]);
    });
    behind_a_kept_one(|f, long| {
        f.engine.drop_message(f.srx, long).unwrap();
        assert!(f.resumed());
        assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(50_000)));
        f.engine.rx_placed(f.conn, 50_000);
        assert_eq!(f.done(), [1]);
    });
}

#[test]
fn a_message_is_its_own_context_s_alone() {
    let mut f = owned();
    let (one, other) = (f.srx, f.engine.open_owned_srx().unwrap());
    f.message(1, 10);
    f.kept(10);
    f.message(2, 0);
    let (mine, ..) = f.arrival().unwrap();

    f.srx = other;
    let ep = f.open_ep();
    f.conn = f.open_conn(ep, 7);
    f.up();
    f.message(3, 10);
    f.kept(10);
    f.message(4, 0);
    let (theirs, ..) = f.arrival().unwrap();

    // Whether it has been let wait or not, it is no message of the other owner's.
    for waits in [false, true] {
        let never_given = SrxId::new(99).unwrap();
        for (srx, stranger) in [(one, theirs), (other, mine), (never_given, mine)] {
            f.srx = srx;
            assert_eq!(f.answer(stranger, 9, 10).unwrap_err(), Errno::EINVAL);
            assert_eq!(f.engine.let_wait(srx, stranger), Err(Errno::EINVAL));
            assert_eq!(f.engine.drop_message(srx, stranger), Err(Errno::EINVAL));
        }
        if !waits {
            f.engine.let_wait(one, mine).unwrap();
            f.engine.let_wait(other, theirs).unwrap();
        }
    }

    // Nothing of either has changed.
    for (srx, first, tags) in [(one, mine, [1, 2]), (other, theirs, [3, 4])] {
        f.srx = srx;
        assert!(f.engine.srx_mut(srx).unwrap().is_empty());
        assert!(f.answer(first, tags[0], 10).unwrap().is_some());
        let (second, tag, _) = f.arrival().unwrap();
        assert_eq!(tag, Some(tags[1] as u64));
        assert!(f.answer(second, tags[1], 10).unwrap().is_none());
        assert_eq!(f.done(), tags);
        assert!(f.arrival().is_none());
        assert!(f.engine.srx_mut(srx).unwrap().nothing_unexpected());
    }
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn a_dropped_rendezvous_is_fetched_and_forgotten() {
    let mut f = owned();
    f.rts(6, 1, 5000).unwrap();
    let (message, ..) = f.arrival().unwrap();
    f.engine.let_wait(f.srx, message).unwrap();
    f.engine.drop_message(f.srx, message).unwrap();
    f.flush();
    f.header(&Header {
        op_data: 1,
        ..Header::new(Op::Data, 5000)
    })
    .unwrap();
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Discard(5000)));
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn what_is_lost_before_the_owner_knows_of_it_is_forgotten() {
    let mut f = owned();
    f.rts(5, 1, 5000).unwrap();
    f.message(6, 0);
    f.message(7, 10);
    // Asked about, without an answer.
    assert_eq!(f.arrival().unwrap().1, Some(5));
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    // What was whole is still announced.
    let (message, tag, _) = f.arrival().unwrap();
    assert_eq!(tag, Some(6));
    assert!(f.answer(message, 1, 0).unwrap().is_none());
    assert_eq!(f.done(), [1]);
    assert!(f.arrival().is_none());
    assert_eq!(f.engine.kept(), 0);
}

#[test]
fn what_is_lost_while_the_owner_has_it_completes_with_the_error() {
    let mut f = owned();
    f.rts(5, 1, 5000).unwrap();
    f.message(6, 10);
    let [rts, partial] = [(); 2].map(|()| {
        let (message, ..) = f.arrival().unwrap();
        f.engine.let_wait(f.srx, message).unwrap();
        message
    });
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert!(f.engine.pop_freed().is_some());
    // Their numbers are nobody else's.
    f.conn = f.open_conn(f.ep, 7);
    f.up();
    f.message(9, 0);
    let (other, ..) = f.arrival().unwrap();
    assert!(other != rts && other != partial);
    f.engine.let_wait(f.srx, other).unwrap();
    assert!(f.answer(rts, 1, 5000).unwrap().is_none());
    assert_eq!(f.failed(), [(1, Errno::ECONNRESET)]);
    assert_eq!(f.engine.counter(f.counter).unwrap().errors, 1);
    f.engine.drop_message(f.srx, partial).unwrap();

    // An endpoint that closes leaves nothing that its owner could get wrong.
    f.engine.close_conn(f.conn, Errno::ECANCELED);
    f.engine.close_ep(f.ep);
    assert!(f.answer(other, 2, 0).unwrap().is_none());
    assert_eq!(f.failed(), [(2, Errno::ECANCELED)]);
    assert_eq!(f.engine.kept(), 0);
    for message in [rts, partial, other] {
        assert_eq!(f.answer(message, 3, 0).unwrap_err(), Errno::EINVAL);
        assert!(f.engine.let_wait(f.srx, message).is_err());
        assert!(f.engine.drop_message(f.srx, message).is_err());
    }
}

#[test]
fn a_source_that_becomes_known_is_told() {
    let mut f = owned();
    f.engine.set_source(f.conn, FiAddr::NOTAVAIL);
    f.message(5, 0);
    let arrival = f.engine.next_arrival(f.srx).unwrap();
    assert_eq!(arrival.envelope.src, FiAddr::NOTAVAIL);
    f.engine.let_wait(f.srx, arrival.message).unwrap();
    f.engine.set_source(f.conn, FiAddr(7));
    assert_eq!(f.engine.source(f.srx, arrival.message), FiAddr(7));
    assert_eq!(
        f.engine.source(f.srx, MessageId::new(99).unwrap()),
        FiAddr::NOTAVAIL
    );
    // Another owner is told nothing of it.
    let other = f.engine.open_owned_srx().unwrap();
    for srx in [other, SrxId::new(99).unwrap()] {
        assert_eq!(f.engine.source(srx, arrival.message), FiAddr::NOTAVAIL);
    }
}

#[test]
fn a_flood_is_bounded_as_any() {
    let mut f = owned();
    for tag in 0..3 {
        f.message(tag, 0);
    }
    f.message(3, 10);
    assert!(matches!(f.engine.rx_want(f.conn), RxWant::Blocked));
    let (first, ..) = f.arrival().unwrap();
    f.engine.let_wait(f.srx, first).unwrap();
    f.engine.drop_message(f.srx, first).unwrap();
    assert!(f.resumed());
    f.kept(10);
}
