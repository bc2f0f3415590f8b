use ripstop_types::{AtomicKind, AtomicOp, Datatype, Flags, RmaIov};
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::{Answer, BaseFlags, Reason, RmaIovs};

use super::*;
use crate::id::MrId;
use crate::mr::{Access, Mr};

pub(super) const KEY: u64 = 9;

fn place(addr: u64, len: u64) -> RmaIovs {
    RmaIovs::one(RmaIov {
        addr,
        len,
        key: KEY,
    })
}

pub(super) fn atomic(kind: AtomicKind, op: AtomicOp, context: usize) -> Atomic<Mem> {
    let some = Iov::one(Mem(0x1000, 16));
    let operand = if op == AtomicOp::AtomicRead {
        Iov::EMPTY
    } else {
        some
    };
    Atomic {
        kind,
        datatype: Datatype::Uint64,
        op,
        operand,
        compare: if kind == AtomicKind::Compare {
            some
        } else {
            Iov::EMPTY
        },
        result: if kind == AtomicKind::Plain {
            Iov::EMPTY
        } else {
            some
        },
        remote: place(0x40, 16),
        data: None,
        context,
        completion: true,
        inject: false,
        level: Level::Sent,
        work: false,
    }
}

fn asked(op: Op, atomic: AtomicOp, len: u64) -> Header {
    let payload = match (op, atomic) {
        (_, AtomicOp::AtomicRead) => 0,
        (Op::CompareAtomic, _) => 2 * len,
        _ => len,
    };
    Header {
        op_data: Datatype::Uint64 as u8,
        atomic: atomic as u8,
        rma: place(16, len),
        ..Header::new(op, payload)
    }
}

impl Fixture {
    pub(super) fn start_atomic(&mut self, atomic: &Atomic<Mem>) -> Result<RmaPlan> {
        self.engine
            .atomic(self.conn, atomic, &mut [0; MAX_UNIT_HEADER])
    }

    pub(super) fn region(&mut self, access: Access) -> MrId {
        let mr = Mr::new(Mem(0x5000, 100), 0, KEY, access);
        self.engine.open_mr(mr).unwrap()
    }

    /// Does the job there must be, with or without success.
    pub(super) fn work(&mut self, done: bool) -> (Mem, AtomicOp) {
        assert!(matches!(self.engine.rx_want(self.conn), RxWant::Job));
        let Some(Job::Atomic {
            target, op, fetch, ..
        }) = self.engine.job(self.conn)
        else {
            panic!("no atomic");
        };
        let what = (target.segments()[0], op);
        let slot = (fetch && done).then(|| self.engine.fetched_slot().unwrap());
        self.engine.job_done(self.conn, done, slot);
        what
    }

    fn freed(&mut self) -> usize {
        core::iter::from_fn(|| self.engine.pop_freed()).count()
    }
}

pub(super) const ALL: Access = Access {
    read: true,
    write: true,
};

#[test]
fn lengths_and_operations_must_fit() {
    let mut f = Fixture::new();
    let good = atomic(AtomicKind::Fetch, AtomicOp::Sum, 1);
    let odd = Atomic {
        remote: place(0, 15),
        ..good
    };
    let short = Atomic {
        result: Iov::one(Mem(0, 8)),
        ..good
    };
    let none = Atomic {
        remote: RmaIovs::NONE,
        ..good
    };
    for wrong in [odd, short, none] {
        assert_eq!(f.start_atomic(&wrong).err(), Some(Errno::EINVAL));
    }
    let bits = Atomic {
        datatype: Datatype::Double,
        op: AtomicOp::Bor,
        ..good
    };
    assert_eq!(f.start_atomic(&bits).err(), Some(Errno::EOPNOTSUPP));
    let swap = atomic(AtomicKind::Plain, AtomicOp::Cswap, 1);
    assert_eq!(f.start_atomic(&swap).err(), Some(Errno::EOPNOTSUPP));
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn plain_ones_end_as_writes_do_and_others_with_their_response() {
    let mut f = Fixture::new();
    f.start_atomic(&atomic(AtomicKind::Plain, AtomicOp::Sum, 1))
        .unwrap();
    f.start_atomic(&atomic(AtomicKind::Fetch, AtomicOp::AtomicRead, 2))
        .unwrap();
    f.start_atomic(&atomic(AtomicKind::Compare, AtomicOp::Cswap, 3))
        .unwrap();
    assert_eq!(f.output(), [('s', (40 + 16) + 40 + (40 + 32))]);
    f.flush();
    let done = f.pop().unwrap();
    assert_eq!(
        (done.context, done.flags),
        (1, Flags::ATOMIC | Flags::WRITE)
    );
    for context in [2, 3] {
        f.header(&Header::new(Op::ReadRsp, 16)).unwrap();
        f.engine.rx_placed(f.conn, 16);
        let done = f.pop().unwrap();
        assert_eq!(
            (done.context, done.flags),
            (context, Flags::ATOMIC | Flags::READ)
        );
    }
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

/// Its operands would still be read when the caller may have freed them.
#[test]
fn an_answer_before_its_request_has_left_is_none() {
    for refused in [false, true] {
        let mut f = Fixture::new();
        let atomic = atomic(AtomicKind::Fetch, AtomicOp::Sum, 1);
        f.start_atomic(&atomic).unwrap();
        let answer = match refused {
            false => Header::new(Op::ReadRsp, 16),
            true => Header::refuse(Answer::Response, Reason::Key),
        };
        let len: usize = f.output().iter().map(|(_, len)| len).sum();
        f.engine.sent(f.conn, len - 1);
        assert_eq!(f.header(&answer), Err(Errno::EPROTO));
        assert_eq!(f.pop(), Err(Errno::EAGAIN));
        f.engine.sent(f.conn, 1);
        f.header(&answer).unwrap();
    }
}

#[test]
fn the_driver_works_before_anything_else_is_read() {
    let mut f = Fixture::new();
    let mr = f.region(ALL);
    let plain = Header {
        flags: BaseFlags::DELIVERY_COMPLETE,
        ..asked(Op::Atomic, AtomicOp::Sum, 8)
    };
    f.header(&plain).unwrap();
    assert!(matches!(
        f.engine.rx_want(f.conn),
        RxWant::Keep {
            total: 8,
            at: 0,
            len: 8,
            ..
        }
    ));
    f.engine.rx_placed(f.conn, 8);
    assert!(!f.engine.rx_in_header(f.conn) && f.engine.mr_is_busy(mr));
    assert_eq!(f.work(true), (Mem(0x5010, 8), AtomicOp::Sum));
    assert_eq!(f.control(), [Header::ack()]);
    assert_eq!((f.freed(), f.engine.mr_is_busy(mr)), (1, false));
    f.flush();

    f.header(&asked(Op::FetchAtomic, AtomicOp::AtomicRead, 24))
        .unwrap();
    assert_eq!(f.work(true), (Mem(0x5010, 24), AtomicOp::AtomicRead));
    assert_eq!(f.output(), [('c', 16), ('k', 24)]);
    assert_eq!(f.freed(), 0);
    f.flush();
    assert_eq!(f.freed(), 1);
}

#[test]
fn a_durable_one_is_answered_after_a_second_job() {
    for (op, durable) in [
        (Op::Atomic, true),
        (Op::Atomic, false),
        (Op::FetchAtomic, true),
        (Op::FetchAtomic, false),
    ] {
        let mut f = Fixture::new();
        let mr = f.region(ALL);
        let header = Header {
            flags: BaseFlags::COMMIT_COMPLETE,
            ..asked(op, AtomicOp::Sum, 8)
        };
        f.header(&header).unwrap();
        f.engine.rx_placed(f.conn, 8);
        f.work(true);
        assert_eq!(f.output(), []);
        assert!(f.engine.mr_is_busy(mr));
        let Some(Job::Commit(target)) = f.engine.job(f.conn) else {
            panic!("it is not made durable");
        };
        assert_eq!(target.segments()[0], Mem(0x5010, 8));
        f.engine.job_done(f.conn, durable, None);
        assert!(f.engine.rx_in_header(f.conn) && !f.engine.mr_is_busy(mr));
        let fetched = usize::from(op == Op::FetchAtomic);
        // An ack or a refusal, or what was fetched behind its header.
        let answer = [('c', 16), ('k', 8)];
        assert_eq!(f.output(), answer[..=fetched * usize::from(durable)]);
        f.flush();
        assert_eq!(f.freed(), 1 + fetched);
    }
}

#[test]
fn what_cannot_be_done_is_refused_in_its_place() {
    let mut f = Fixture::new();
    f.region(Access::READ);
    let refuse = |reason| Header::refuse(Answer::Response, reason);
    f.header(&asked(Op::FetchAtomic, AtomicOp::Sum, 8)).unwrap();
    f.engine.rx_placed(f.conn, 8);
    f.header(&Header {
        rma: place(4, 8),
        ..asked(Op::FetchAtomic, AtomicOp::AtomicRead, 8)
    })
    .unwrap();
    f.header(&Header {
        atomic: 99,
        ..asked(Op::FetchAtomic, AtomicOp::AtomicRead, 8)
    })
    .unwrap();
    f.header(&asked(Op::FetchAtomic, AtomicOp::AtomicRead, 8))
        .unwrap();
    f.work(false);
    let expected = [
        Reason::Access,
        Reason::Misaligned,
        Reason::Unsupported,
        Reason::Failed,
    ];
    assert_eq!(f.control(), expected.map(refuse));
    f.flush();
    f.header(&asked(Op::Atomic, AtomicOp::Sum, 8)).unwrap();
    f.engine.rx_placed(f.conn, 8);
    let none = Header::refuse(Answer::None, Reason::Access);
    assert_eq!(f.control(), [none]);
}

#[test]
fn a_c_peer_has_no_atomics() {
    let mut f = Fixture::plain();
    let sum = atomic(AtomicKind::Plain, AtomicOp::Sum, 1);
    assert_eq!(f.start_atomic(&sum).err(), Some(Errno::EOPNOTSUPP));
    f.region(ALL);
    let header = asked(Op::Atomic, AtomicOp::Sum, 8);
    assert_eq!(f.header(&header), Err(Errno::EPROTO));
}

#[test]
fn a_postponed_one_that_the_peer_lacks_fails_and_lets_others_pass() {
    let mut f = Fixture::down();
    let sum = atomic(AtomicKind::Plain, AtomicOp::Sum, 1);
    assert!(matches!(f.start_atomic(&sum), Ok(RmaPlan::Postpone { .. })));
    f.send(2, None, 5).unwrap();
    let terms = Terms {
        packets: None,
        order: ByteOrder::Little,
        has_rendezvous: false,
        extensions: Extensions::empty(),
    };
    f.engine.conn_up(f.conn, terms);
    assert_eq!(f.start_postponed(), Ok(Some(2)));
    assert_eq!(f.failed(), [(1, Errno::EOPNOTSUPP)]);
    f.flush();
    assert_eq!(f.done(), [2]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn the_end_of_a_connection_frees_what_was_collected() {
    let mut f = Fixture::new();
    let mr = f.region(ALL);
    f.header(&asked(Op::FetchAtomic, AtomicOp::Sum, 8)).unwrap();
    f.engine.rx_placed(f.conn, 8);
    f.work(true);
    f.header(&asked(Op::FetchAtomic, AtomicOp::Sum, 8)).unwrap();
    f.engine.rx_placed(f.conn, 4);
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!((f.freed(), f.engine.mr_is_busy(mr)), (3, false));
}

#[test]
fn those_that_fetch_count_as_reads_and_others_as_writes() {
    let mut f = Fixture::new();
    let [reads, writes, sends] =
        [(); 3].map(|()| f.engine.open_counter(Counter::default()).unwrap());
    f.engine.change_ep(f.ep, |ep| {
        (ep.read_counter, ep.write_counter) = (Some(reads), Some(writes));
        ep.tx_counter = Some(sends);
    });
    let plain = atomic(AtomicKind::Plain, AtomicOp::Sum, 1);
    let injected = Atomic {
        completion: false,
        inject: true,
        ..plain
    };
    for posted in [plain, injected] {
        f.start_atomic(&posted).unwrap();
        f.flush();
    }
    let counts =
        |f: &mut Fixture| [reads, writes, sends].map(|id| f.engine.counter_mut(id).unwrap().value);
    assert_eq!(counts(&mut f), [0, 2, 0]);
    f.start_atomic(&atomic(AtomicKind::Fetch, AtomicOp::Sum, 2))
        .unwrap();
    f.flush();
    f.header(&Header::new(Op::ReadRsp, 16)).unwrap();
    f.engine.rx_placed(f.conn, 16);
    assert_eq!(counts(&mut f), [1, 2, 0]);
}
