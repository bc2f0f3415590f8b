use ripstop_types::{AtomicKind, AtomicOp, Datatype, Flags, RmaIov};
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::RmaIovs;

use super::*;
use crate::id::{CounterId, WorkId};

impl Fixture {
    fn count(&mut self) -> CounterId {
        self.engine.open_counter(Counter::default()).unwrap()
    }

    fn values(&self, counter: CounterId) -> (u64, u64) {
        let counter = self.engine.counter(counter).unwrap();
        (counter.value, counter.errors)
    }

    fn begin(&mut self, counter: CounterId, entry: Option<usize>) -> WorkId {
        let counter = Some(counter);
        self.engine.open_work(Work { counter, entry }).unwrap()
    }

    /// Posts a message of this length for work.
    fn send_work(&mut self, id: WorkId, len: usize) {
        let send = Send {
            tag: None,
            data: None,
            iov: Iov::one(Mem(0x1000, len)),
            context: id.index(),
            completion: true,
            inject: false,
            ack: false,
            work: true,
        };
        self.engine.send(self.conn, &send).unwrap();
    }

    fn recv_work(&mut self, id: WorkId, len: usize) -> Vec<CopyOut<Mem>> {
        let want = Want {
            tag: Some((5, 0)),
            src: FiAddr::UNSPEC,
        };
        let recv = Recv::new(Iov::one(Mem(0x2000, len)), want, 9);
        self.post(recv.for_work(id))
    }
}

fn fetch(id: WorkId) -> Atomic<Mem> {
    let some = Iov::one(Mem(0x1000, 8));
    Atomic {
        kind: AtomicKind::Fetch,
        datatype: Datatype::Uint64,
        op: AtomicOp::Sum,
        operand: some,
        compare: Iov::EMPTY,
        result: some,
        remote: RmaIovs::one(RmaIov {
            addr: 0,
            len: 8,
            key: 1,
        }),
        data: None,
        context: id.index(),
        completion: true,
        inject: false,
        level: Level::Sent,
        work: true,
    }
}

#[test]
fn the_end_of_work_is_counted_and_nothing_else_is_told() {
    let mut f = Fixture::new();
    let (own, told) = (f.count(), f.count());
    let ep = f.ep;
    f.engine
        .change_ep(ep, |config| config.tx_counter = Some(own));
    let id = f.begin(told, None);
    assert!(f.engine.counts_work(told) && !f.engine.counts_work(own));
    f.send_work(id, 10);
    f.send(1, None, 10).unwrap();
    assert_eq!(f.values(told), (0, 0));
    f.flush();
    assert_eq!((f.values(told), f.values(own)), ((1, 0), (1, 0)));
    assert_eq!((f.done(), f.failed()), ([1].to_vec(), Vec::new()));
    assert!(!f.engine.counts_work(told));
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn work_that_asks_for_it_is_reported_by_the_endpoint_too() {
    let mut f = Fixture::new();
    let (own, told) = (f.count(), f.count());
    let ep = f.ep;
    f.engine
        .change_ep(ep, |config| config.tx_counter = Some(own));
    for counter in [told, own] {
        let id = f.begin(counter, Some(42));
        f.send_work(id, 100);
        f.flush();
        let done = f.pop().unwrap();
        assert_eq!((done.context, done.flags), (42, Flags::SEND | Flags::MSG));
    }
    // The second one's counter is the endpoint's: it counts once.
    assert_eq!((f.values(told), f.values(own)), ((1, 0), (2, 0)));
}

#[test]
fn work_that_fails_is_counted_as_an_error() {
    let mut f = Fixture::new();
    let told = f.count();
    let sent = f.begin(told, None);
    f.send_work(sent, 500);
    let reported = f.begin(told, Some(7));
    f.send_work(reported, 500);
    let fetching = f.begin(told, None);
    let mut header = [0; MAX_UNIT_HEADER];
    f.engine
        .atomic(f.conn, &fetch(fetching), &mut header)
        .unwrap();
    f.engine.close_conn(f.conn, Errno::ECONNRESET);
    assert_eq!(f.values(told), (0, 3));
    assert_eq!(f.failed(), [(7, Errno::ECONNRESET)]);
    assert_eq!(f.engine.outstanding(f.ep), 0);
}

#[test]
fn an_endpoint_that_closes_ends_its_work() {
    let mut f = Fixture::new();
    let told = f.count();
    for len in [10, 500] {
        let id = f.begin(told, Some(1));
        f.send_work(id, len);
    }
    let id = f.begin(told, Some(2));
    f.recv_work(id, 10);
    f.message(5, 10);
    let id = f.begin(told, Some(3));
    f.recv_work(id, 10);
    f.engine.close_ep(f.ep);
    f.engine.close_conn(f.conn, Errno::ECANCELED);
    assert_eq!(f.values(told), (0, 3));
    f.engine.close_srx(f.srx);
    assert_eq!(f.values(told), (0, 4));
    assert!(!f.engine.counts_work(told));
    assert_eq!((f.done().len(), f.failed().len()), (0, 0));
}

#[test]
fn work_may_receive() {
    let mut f = Fixture::new();
    let (own, told) = (f.counter, f.count());
    let mut bytes = [0; MAX_HEADER];
    let header = Header {
        tag: 5,
        ..Header::new(Op::Tag, 4)
    };
    let len = header.emit(ByteOrder::Little, &mut bytes).unwrap();
    // Posted before the message comes, after it, and with too little room.
    let id = f.begin(told, None);
    f.recv_work(id, 10);
    assert!(f.engine.rx_whole(f.conn, &bytes[..len + 4]).is_none());
    f.message(5, 4);
    f.engine.rx_placed(f.conn, 4);
    assert_eq!((f.values(told), f.values(own)), ((1, 0), (0, 0)));
    f.message(5, 4);
    f.engine.rx_placed(f.conn, 4);
    let id = f.begin(told, Some(42));
    assert_eq!(f.recv_work(id, 10).len(), 1);
    assert_eq!((f.values(told), f.values(own)), ((2, 0), (1, 0)));
    let done = f.pop().unwrap();
    assert_eq!((done.context, done.len, done.tag), (42, 4, 5));
    let id = f.begin(told, Some(43));
    f.recv_work(id, 3);
    f.message(5, 4);
    f.engine.rx_placed(f.conn, 4);
    assert_eq!(f.values(told), (2, 1));
    assert_eq!(f.failed(), [(43, Errno::ETRUNC)]);
    assert_eq!(f.done(), []);
}

#[test]
fn a_receive_of_work_can_be_cancelled() {
    let mut f = Fixture::new();
    let told = f.count();
    let id = f.begin(told, None);
    f.recv_work(id, 10);
    f.engine.cancel(f.srx, Some(f.cq), 9).unwrap();
    assert_eq!((f.values(told), f.failed()), ((0, 1), Vec::new()));
    assert_eq!(f.engine.cancel(f.srx, Some(f.cq), 9), Err(Errno::ENOENT));
}

#[test]
fn a_counter_that_goes_is_told_nothing() {
    let mut f = Fixture::new();
    let told = f.count();
    let id = f.begin(told, None);
    f.send_work(id, 10);
    f.engine.close_counter(told);
    let other = f.count();
    assert_eq!(other, told, "the place is used again");
    f.flush();
    assert_eq!(f.values(other), (0, 0));
}

#[test]
fn what_cannot_be_posted_is_told_as_its_end() {
    let mut f = Fixture::new();
    let (own, told) = (f.counter, f.count());
    let mut unposted = Unposted {
        context: 5,
        flags: Flags::RECV | Flags::TAGGED,
        tag: 3,
        work: None,
    };
    f.engine.fail_unposted(f.ep, &unposted, Errno::EINVAL);
    assert_eq!(f.failed(), [(5, Errno::EINVAL)]);
    assert_eq!(f.values(own), (0, 1));
    unposted.work = Some(Work {
        counter: Some(told),
        entry: None,
    });
    f.engine.fail_unposted(f.ep, &unposted, Errno::EINVAL);
    assert_eq!((f.failed(), f.values(told)), (Vec::new(), (0, 1)));
    unposted.work = Some(Work {
        counter: Some(own),
        entry: Some(6),
    });
    f.engine.fail_unposted(f.ep, &unposted, Errno::EINVAL);
    assert_eq!(
        (f.failed(), f.values(own)),
        ([(6, Errno::EINVAL)].to_vec(), (0, 2))
    );
}

#[test]
fn what_a_shared_context_cannot_post_is_told_where_it_says() {
    let mut f = Fixture::new();
    let (own, told) = (f.counter, f.count());
    let mut unposted = Unposted {
        context: 5,
        flags: Flags::RECV | Flags::MSG,
        tag: 0,
        work: None,
    };
    let cq = f.engine.ep(f.ep).unwrap().rx_cq;
    f.engine
        .fail_unposted_shared(None, &unposted, Errno::EINVAL);
    assert!(f.failed().is_empty(), "nobody is to be told");
    f.engine
        .fail_unposted_shared(cq, &unposted, Errno::ECANCELED);
    assert_eq!(f.failed(), [(5, Errno::ECANCELED)]);
    for entry in [None, Some(6)] {
        let counter = Some(told);
        unposted.work = Some(Work { counter, entry });
        f.engine.fail_unposted_shared(cq, &unposted, Errno::EINVAL);
    }
    assert_eq!(f.failed(), [(6, Errno::EINVAL)]);
    assert_eq!((f.values(told), f.values(own)), ((0, 2), (0, 0)));
}

#[test]
fn atomics_are_counted_as_writes() {
    let mut f = Fixture::new();
    let (sends, writes) = (f.count(), f.count());
    let ep = f.ep;
    f.engine.change_ep(ep, |config| {
        config.tx_counter = Some(sends);
        config.write_counter = Some(writes);
    });
    let plain = Atomic {
        kind: AtomicKind::Plain,
        result: Iov::EMPTY,
        work: false,
        ..fetch(WorkId::FIRST)
    };
    let mut header = [0; MAX_UNIT_HEADER];
    f.engine.atomic(f.conn, &plain, &mut header).unwrap();
    f.flush();
    assert_eq!((f.values(sends), f.values(writes)), ((0, 0), (1, 0)));
    assert_eq!(f.done(), [1]);
}
