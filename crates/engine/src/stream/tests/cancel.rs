use ripstop_types::{Errno, FiAddr, Flags};

use super::super::rma::RmaPlan;
use super::*;

const CANCELED: Errno = Errno::ECANCELED;

fn cancel_tx(f: &mut Fixture, context: usize) -> Result<()> {
    f.engine.cancel_tx(f.ep, context)
}

fn cancel_recv(f: &mut Fixture, context: usize) -> Result<()> {
    f.engine.cancel(f.srx, Some(f.cq), context)
}

#[test]
fn a_receive_that_has_failed_and_was_not_read_ends_as_cancelled() {
    let mut f = Fixture::new();
    let from = Want {
        tag: None,
        src: FiAddr(7),
    };
    for context in [1, 2] {
        f.post(Recv::new(Iov::one(Mem(0x2000, 10)), from, context));
    }
    f.engine.fail_directed(f.ep, FiAddr(7), Errno::ECONNREFUSED);
    // The same context as what is sent has another entry.
    assert_eq!(cancel_tx(&mut f, 1), Err(Errno::ENOENT));
    assert_eq!(cancel_recv(&mut f, 1), Ok(()));
    assert_eq!(cancel_recv(&mut f, 1), Err(Errno::ENOENT));
    assert_eq!(f.failed(), [(1, CANCELED), (2, Errno::ECONNREFUSED)]);
    assert_eq!(cancel_recv(&mut f, 2), Err(Errno::ENOENT));
}

#[test]
fn an_error_that_comes_with_a_message_stays() {
    let mut f = Fixture::new();
    f.recv(1, Some(1), 5);
    f.message(1, 10);
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(cancel_recv(&mut f, 1), Err(Errno::ENOENT));
    assert_eq!(f.failed(), [(1, Errno::ETRUNC)]);
}

#[test]
fn a_receive_whose_message_is_cut_after_it_was_cancelled_says_so() {
    let mut f = Fixture::new();
    f.recv(1, Some(1), 10);
    f.recv(2, Some(2), 5000);
    f.recv(3, Some(3), 5000);
    for (tag, index) in [(2, 1), (3, 2)] {
        f.rts(tag, index, 5000).unwrap();
    }
    f.message(1, 10);
    for context in [1, 2] {
        assert_eq!(cancel_recv(&mut f, context), Err(Errno::ENOENT));
    }
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    let mut failed = f.failed();
    failed.sort_unstable_by_key(|(context, _)| *context);
    let reset = (3, Errno::ECONNRESET);
    assert_eq!(failed, [(1, CANCELED), (2, CANCELED), reset]);
}

#[test]
fn a_cancelled_receive_is_filled_all_the_same() {
    let mut f = Fixture::new();
    f.recv(1, Some(1), 10);
    f.message(1, 10);
    assert_eq!(cancel_recv(&mut f, 1), Err(Errno::ENOENT));
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(f.done(), [1]);
}

#[test]
fn a_buffer_for_several_messages_that_was_cancelled_names_no_other_error() {
    let mut f = Fixture::new();
    let want = Want {
        tag: None,
        src: FiAddr::UNSPEC,
    };
    f.post(Recv {
        multi: true,
        ..Recv::new(Iov::one(Mem(0x2000, 100)), want, 1)
    });
    f.header(&Header::new(Op::Msg, 10)).unwrap();
    assert_eq!(cancel_recv(&mut f, 1), Ok(()));
    assert_eq!(f.failed(), []);
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.failed(), [(1, CANCELED)]);
}

#[test]
fn what_waits_for_its_connection_ends_at_once() {
    let mut f = Fixture::down();
    for context in [1, 2, 3] {
        f.send(context, None, 5).unwrap();
    }
    assert_eq!(cancel_tx(&mut f, 2), Ok(()));
    assert_eq!(f.failed(), [(2, CANCELED)]);
    assert_eq!(cancel_tx(&mut f, 2), Err(Errno::ENOENT));
    f.up();
    for context in [1, 3] {
        assert_eq!(f.start_postponed(), Ok(Some(context)));
    }
    assert_eq!(f.start_postponed(), Ok(None));
    f.flush();
    assert_eq!(f.done(), [1, 3]);
}

#[test]
fn an_injected_message_is_sent_though_its_context_is_cancelled() {
    let mut f = Fixture::down();
    let inject = Send {
        tag: None,
        data: None,
        iov: Iov::one(Mem(0x1000, 5)),
        context: 0,
        completion: false,
        inject: true,
        ack: false,
        work: false,
    };
    f.engine.send(f.conn, &inject).unwrap();
    assert_eq!(cancel_tx(&mut f, 0), Err(Errno::ENOENT));
    // One that the program hears of is another matter.
    let told = Send {
        completion: true,
        ..inject
    };
    f.engine.send(f.conn, &told).unwrap();
    assert_eq!(cancel_tx(&mut f, 0), Ok(()));
    assert_eq!(f.failed(), [(0, CANCELED)]);
    f.up();
    assert_eq!(f.start_postponed(), Ok(Some(0)));
    assert_eq!(f.start_postponed(), Ok(None));
}

#[test]
fn the_last_that_waited_leaves_the_way_free() {
    let mut f = Fixture::ordered();
    let read = rma::rma(RmaKind::Read, 1, 10);
    f.start(&read).unwrap();
    f.flush();
    assert!(matches!(f.send(2, None, 5), Ok(SendPlan::Postpone { .. })));
    f.header(&Header::new(Op::ReadRsp, 10)).unwrap();
    f.engine.rx_placed(f.conn, 10);
    assert_eq!(cancel_tx(&mut f, 2), Ok(()));
    assert!(matches!(f.send(3, None, 5), Ok(SendPlan::Append { .. })));
}

#[test]
fn a_fence_stays_where_what_it_held_back_is_cancelled() {
    for follows in [true, false] {
        let mut f = Fixture::new();
        f.start(&rma::rma(RmaKind::Read, 1, 10)).unwrap();
        f.flush();
        f.engine.fence(f.conn);
        let fenced = rma::rma(RmaKind::Write, 2, 10);
        assert!(matches!(f.start(&fenced), Ok(RmaPlan::Postpone { .. })));
        if follows {
            f.send(3, None, 5).unwrap();
        }
        assert_eq!(cancel_tx(&mut f, 2), Ok(()));
        assert_eq!(f.failed(), [(2, CANCELED)]);
        if !follows {
            f.send(3, None, 5).unwrap();
        }
        assert_eq!(f.start_postponed(), Ok(None));
        f.header(&Header::new(Op::ReadRsp, 10)).unwrap();
        f.engine.rx_placed(f.conn, 10);
        assert_eq!(f.start_postponed(), Ok(Some(3)));
        f.flush();
        assert_eq!(f.done(), [1, 3]);
    }
}

#[test]
fn what_is_under_way_says_that_it_was_cancelled_only_if_it_fails() {
    for fails in [true, false] {
        let mut f = Fixture::new();
        // Written, announced, read.
        f.send(1, None, 5).unwrap();
        f.send(2, Some(2), 5000).unwrap();
        f.start(&rma::rma(RmaKind::Read, 3, 10)).unwrap();
        for context in [1, 2, 3] {
            assert_eq!(cancel_tx(&mut f, context), Err(Errno::ENOENT));
        }
        f.send(4, None, 5).unwrap();
        if fails {
            f.engine.close_conn(f.conn, Errno::ECONNRESET);
            let mut failed = f.failed();
            failed.sort_unstable_by_key(|(context, _)| *context);
            let reset = (4, Errno::ECONNRESET);
            assert_eq!(failed, [(1, CANCELED), (2, CANCELED), (3, CANCELED), reset]);
            continue;
        }
        f.flush();
        f.header(&Header::new(Op::ReadRsp, 10)).unwrap();
        f.engine.rx_placed(f.conn, 10);
        f.header(&Header::new(Op::Cts, 0).with_index(1)).unwrap();
        f.flush();
        let flags: Vec<(usize, Flags)> = core::iter::from_fn(|| f.pop().ok())
            .map(|completion| (completion.context, completion.flags))
            .collect();
        let (msg, tagged) = (Flags::SEND | Flags::MSG, Flags::SEND | Flags::TAGGED);
        let read = (3, Flags::RMA | Flags::READ);
        assert_eq!(flags, [(1, msg), (4, msg), read, (2, tagged)]);
    }
}

#[test]
fn a_failed_send_that_was_not_read_ends_as_cancelled() {
    let mut f = Fixture::new();
    for context in [1, 2] {
        f.send(context, Some(1), 5000).unwrap();
    }
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(cancel_recv(&mut f, 1), Err(Errno::ENOENT));
    assert_eq!(cancel_tx(&mut f, 1), Ok(()));
    let mut failed = f.failed();
    failed.sort_unstable_by_key(|(context, _)| *context);
    assert_eq!(failed, [(1, CANCELED), (2, Errno::ECONNRESET)]);
}
