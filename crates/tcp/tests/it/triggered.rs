//! Triggered operations and deferred work through the object model: one RDM endpoint that
//! reaches itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common;
use crate::freed::unpark;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, Counter, CounterAttr, CqAttr, DataCall, Direction,
    Domain, Endpoint, Fabric, MemoryRegion, MrAttr, Provider, RecvKind, RmaCall, SendKind,
    Threshold, Work, WorkOp,
};
use ripstop_core::{FidToken, Info, TxAttr};
use ripstop_mem::{Parked, UserBuf};
use ripstop_tcp::TcpProvider;
use ripstop_types::{
    Completion, CompletionError, Context, EpType, Errno, FiAddr, Flags, Progress, RmaIov,
    Threading, WaitObj,
};

fn info(provider: &TcpProvider, threading: Threading, tx_size: usize) -> Info {
    let caps = Flags::MSG | Flags::TAGGED | Flags::RMA | Flags::ATOMIC | Flags::TRIGGER;
    let mut hints = common::hints(EpType::Rdm, caps, threading, Progress::Manual);
    hints.tx = Some(TxAttr {
        size: tx_size,
        ..TxAttr::default()
    });
    common::first(provider, &hints)
}

struct End<D: Domain> {
    domain: Arc<D>,
    ep: Arc<D::Endpoint>,
    cq: Arc<D::Cq>,
    to: FiAddr,
    sends: Arc<D::Counter>,
    writes: Arc<D::Counter>,
}

fn open<D: Domain>(domain: Arc<D>, info: &Info) -> End<D> {
    let cq = domain.cq(&CqAttr::default()).unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(info, FidToken(0)).unwrap();
    let counter = || domain.counter(&CounterAttr::default()).unwrap();
    let (sends, writes) = (counter(), counter());
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_counter(&sends, Flags::SEND).unwrap();
    ep.bind_counter(&writes, Flags::WRITE).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    let to = av.insert(&ep.name().unwrap()).unwrap();
    End {
        domain,
        ep,
        cq,
        to,
        sends,
        writes,
    }
}

/// A test on a domain without locks and on one with; sends wait in a queue of that size.
macro_rules! on_both {
    ($name:ident, $tx_size:expr, $end:ident => $body:block) => {
        #[test]
        fn $name() {
            fn run<D: Domain>($end: &End<D>) $body
            let provider = TcpProvider::new();
            let wanted = info(&provider, Threading::Domain, $tx_size);
            let fabric = provider.fabric(&wanted.fabric).unwrap();
            run(&open(fabric.serial_domain(&wanted).unwrap(), &wanted));
            let wanted = info(&provider, Threading::Safe, $tx_size);
            let fabric = provider.fabric(&wanted.fabric).unwrap();
            run(&open(fabric.safe_domain(&wanted).unwrap(), &wanted));
        }
    };
}

impl<D: Domain> End<D> {
    fn counter(&self) -> Arc<D::Counter> {
        self.domain.counter(&CounterAttr::default()).unwrap()
    }

    fn queue(&self, name: usize, counter: &Arc<D::Counter>, value: u64, op: WorkOp<'_, D>) {
        self.try_queue(name, counter, value, op).unwrap();
    }

    fn try_queue(
        &self,
        name: usize,
        counter: &Arc<D::Counter>,
        value: u64,
        op: WorkOp<'_, D>,
    ) -> Result<(), Errno> {
        self.domain.queue_work(&Work {
            token: FidToken(name),
            when: Threshold { counter, value },
            op,
        })
    }

    fn data<'a>(&'a self, call: DataCall<'a>, done: &'a Arc<D::Counter>) -> WorkOp<'a, D> {
        WorkOp::Data {
            ep: &self.ep,
            call,
            done: Some(done),
        }
    }

    fn send<'a>(&self, iov: &'a [UserBuf], context: Context, flags: Flags) -> DataCall<'a> {
        DataCall::Send {
            kind: SendKind::Msg,
            iov,
            data: None,
            dest: self.to,
            context,
            flags,
        }
    }

    fn recv<'a>(&self, iov: &'a [UserBuf], context: Context, flags: Flags) -> DataCall<'a> {
        DataCall::Recv {
            kind: RecvKind::Msg,
            iov,
            src: FiAddr::UNSPEC,
            context,
            flags,
        }
    }

    fn rma<'a>(&self, remote: &'a [RmaIov]) -> RmaCall<'a> {
        RmaCall {
            remote,
            peer: self.to,
            data: None,
            context: 77,
            flags: Some(Flags::empty()),
        }
    }

    /// The next entry, or its error.
    fn next(&self) -> Result<Completion, CompletionError> {
        let mut found = None;
        until("a completion", || {
            match self.cq.read(1, |entry| found = Some(Ok(*entry))) {
                Err(Errno::EAVAIL) => {
                    let note = |entry: &CompletionError, _: &[u8]| found = Some(Err(*entry));
                    self.cq.read_error(note).unwrap();
                }
                Err(Errno::EAGAIN) => {}
                done => drop(done.unwrap()),
            }
            found.is_some()
        });
        found.unwrap()
    }

    fn is_quiet(&self) -> bool {
        (0..200).all(|_| self.cq.read(1, |_| {}) == Err(Errno::EAGAIN))
    }

    fn becomes(&self, counter: &Arc<D::Counter>, value: u64) {
        until("a count", || counter.read() == value);
    }
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done() {
        assert!(Instant::now() < end, "{what} does not come");
    }
}

fn parked(bytes: &[u8]) -> Parked {
    Parked::park(bytes.to_vec())
}

on_both!(what_is_injected_by_default_stays_injected, 0, end => {
    let go = end.counter();
    let (text, target) = (parked(&[7; 32]), parked(&[0; 32]));
    let mr = end.domain.mr(&MrAttr::of_buf(target.buf(), Flags::REMOTE_WRITE, 9)).unwrap();
    let (iov, remote) = ([text.buf()], [RmaIov { addr: 0, len: 32, key: mr.key() }]);
    let write = RmaCall { flags: None, ..end.rma(&remote) };
    let counter = &go;
    end.ep.set_op_flags(Direction::Tx, Flags::INJECT).unwrap();
    end.ep.trigger(&DataCall::Write(&iov, write), Threshold { counter, value: 1 }).unwrap();
    end.ep.set_op_flags(Direction::Tx, Flags::empty()).unwrap();
    drop(unpark(text));
    // There is no connection yet: what is not injected is deferred with its buffer, and the copy that
    // the call made is freed.
    go.add(1);
    let others: Vec<Vec<u8>> = (0..64).map(|_| vec![0x55; 32]).collect();
    assert_eq!(end.next().unwrap().context, 77);
    until("the write", || {
        assert!(end.is_quiet());
        let mut got = [0; 32];
        ripstop_mem::copy_in(&mut got, target.buf());
        assert!(got == [0; 32] || got == [7; 32], "{got:?}");
        got == [7; 32]
    });
    drop((others, mr, unpark(target)));
});

on_both!(injected_payload_is_copied_by_the_call, 0, end => {
    let go = end.counter();
    let (first, second) = (parked(b"ab"), parked(b"cd"));
    let call_of = [first.buf(), second.buf()];
    let call = end.send(&call_of, 1, Flags::TRIGGER | Flags::INJECT);
    let when = || Threshold { counter: &go, value: 1 };
    end.ep.trigger(&call, when()).unwrap();
    ripstop_mem::copy_out(first.buf(), b"xx");
    let room = parked(&[0; 8]);
    end.ep.recv(RecvKind::Msg, &[room.buf()], end.to, 2, None).unwrap();
    go.add(1);
    for _ in 0..2 {
        assert!(end.next().is_ok());
    }
    assert_eq!(&unpark(room)[..4], b"abcd");
    let long = parked(&[0; 100_000]);
    let iov = [long.buf()];
    let call = end.send(&iov, 1, Flags::TRIGGER | Flags::INJECT);
    assert_eq!(end.ep.trigger(&call, when()), Err(Errno::EMSGSIZE));
    for buf in [first, second, long] {
        drop(unpark(buf));
    }
});

on_both!(a_full_queue_keeps_the_order, 4, end => {
    // More than the queue takes, which has room for 1,024 whatever was asked for.
    const MANY: usize = 2000;
    let go = end.counter();
    let bufs: Vec<Parked> = (0..MANY).map(|n| parked(&n.to_ne_bytes())).collect();
    let room = parked(&[0; 8]);
    for (context, buf) in bufs.iter().enumerate() {
        let iov = [buf.buf()];
        let flags = Flags::TRIGGER | Flags::DELIVERY_COMPLETE;
        let call = end.send(&iov, context, flags);
        let value = context as u64 / 7;
        end.ep.trigger(&call, Threshold { counter: &go, value }).unwrap();
    }
    go.add(MANY as u64);
    for n in 0..MANY {
        end.ep.recv(RecvKind::Msg, &[room.buf()], end.to, MANY, None).unwrap();
        let mut bytes = [0; 8];
        while end.next().unwrap().context != MANY {}
        ripstop_mem::copy_in(&mut bytes, room.buf());
        assert_eq!(usize::from_ne_bytes(bytes), n);
    }
    end.becomes(&end.sends, MANY as u64);
    for buf in bufs.into_iter().chain([room]) {
        drop(unpark(buf));
    }
});

on_both!(failures_are_counted_as_errors, 0, end => {
    let (go, done) = (end.counter(), end.counter());
    let buf = parked(&[1; 8]);
    let iov = [buf.buf()];
    let nowhere = [RmaIov { addr: 0, len: 8, key: 4711 }];
    end.queue(1, &go, 1, end.data(DataCall::Write(&iov, end.rma(&nowhere)), &done));
    end.queue(2, &go, 1, end.data(DataCall::Read(&iov, end.rma(&nowhere)), &done));
    // Found only when it starts: nobody has this address.
    let call = DataCall::Send {
        kind: SendKind::Msg,
        iov: &iov,
        data: None,
        dest: FiAddr(1234),
        context: 3,
        flags: Flags::COMPLETION,
    };
    end.queue(3, &go, 1, end.data(call, &done));
    // Errors count towards the threshold of work, so that nothing waits for ever.
    end.queue(4, &done, 3, WorkOp::Add(&go, 10));
    go.add(1);
    end.becomes(&go, 11);
    assert_eq!((done.read(), done.read_error()), (0, 3));
    let error = end.next().unwrap_err();
    assert_eq!((error.entry.context, error.err), (3, Errno::EINVAL));
    assert!(end.is_quiet());
    // The same of a triggered operation is its error entry.
    let call = DataCall::Write(&iov, RmaCall { peer: FiAddr(1234), ..end.rma(&nowhere) });
    end.ep.trigger(&call, Threshold { counter: &go, value: 5 }).unwrap();
    let error = end.next().unwrap_err();
    assert_eq!((error.entry.context, error.err), (77, Errno::EINVAL));
    assert_eq!(error.entry.flags, Flags::RMA | Flags::WRITE);
    assert_eq!(end.writes.read_error(), 1);
    drop(unpark(buf));
});

on_both!(what_is_closed_takes_its_work_along, 0, end => {
    let provider = TcpProvider::new();
    let wanted = info(&provider, Threading::Domain, 0);
    let (go, done) = (end.counter(), end.counter());
    let other = open(Arc::clone(&end.domain), &wanted);
    let buf = parked(&[0; 8]);
    let iov = [buf.buf()];
    let none = Flags::empty();
    // One that has begun, one that waits, and a triggered one.
    let recv = other.recv(&iov, 1, none);
    other.queue(1, &go, 0, other.data(recv, &done));
    other.queue(2, &go, 5, other.data(recv, &done));
    other.ep.trigger(&recv, Threshold { counter: &go, value: 5 }).unwrap();
    assert!(done.is_busy() && go.is_busy());
    drop(other);
    assert!(!done.is_busy() && !go.is_busy());
    assert_eq!((done.read(), done.read_error()), (0, 1));
    // A counter that goes takes along what waits for it or would change it.
    end.queue(3, &go, 5, WorkOp::Add(&done, 1));
    end.queue(4, &done, 5, WorkOp::Add(&go, 1));
    end.queue(5, &done, 5, end.data(end.recv(&iov, 1, none), &go));
    drop(go);
    assert!(!done.is_busy());
    done.add(10);
    assert!(end.is_quiet());
    drop(unpark(buf));
});

on_both!(bad_arguments_are_refused, 0, end => {
    let provider = TcpProvider::new();
    let wanted = info(&provider, Threading::Safe, 0);
    let fabric = provider.fabric(&wanted.fabric).unwrap();
    let go = end.counter();
    let buf = parked(&[0; 8]);
    let iov = [buf.buf()];
    let never = u64::MAX;
    let many = [buf.buf(); 5];
    let refused = end.try_queue(1, &go, 1, end.data(end.send(&many, 1, Flags::empty()), &go));
    assert_eq!(refused, Err(Errno::EINVAL));
    for flag in [Flags::PEEK, Flags::CLAIM, Flags::DISCARD, Flags::MULTI_RECV] {
        let work = end.data(end.recv(&iov, 1, flag), &go);
        assert_eq!(end.try_queue(1, &go, 1, work), Err(Errno::ENOSYS));
    }
    // FI_TRIGGER goes with a threshold.
    let flags = Some(Flags::TRIGGER);
    let sent = end.ep.send(SendKind::Msg, &iov, None, end.to, 1, flags);
    assert_eq!(sent, Err(Errno::EINVAL));
    let posted = end.ep.recv(RecvKind::Msg, &iov, end.to, 1, flags);
    assert_eq!(posted, Err(Errno::EINVAL));
    // The highest threshold is no overflow: it is not reached.
    end.queue(1, &go, never, WorkOp::Add(&go, 1));
    go.set(never - 1);
    assert!(end.is_quiet());
    go.add_error(never);
    assert_eq!(go.read(), never);
    let mut bare = wanted.clone();
    bare.caps -= Flags::TRIGGER;
    let plain = open(fabric.safe_domain(&bare).unwrap(), &bare);
    let count = plain.counter();
    let call = plain.send(&iov, 1, Flags::TRIGGER);
    let when = Threshold { counter: &count, value: 1 };
    assert_eq!(plain.ep.trigger(&call, when), Err(Errno::EOPNOTSUPP));
    drop(unpark(buf));
});

/// More than one pass starts: whoever sleeps meanwhile is woken to go on.
#[test]
fn a_sleeping_thread_goes_on_with_a_long_chain() {
    const LONG: u64 = 50_000;
    let provider = TcpProvider::new();
    let wanted = info(&provider, Threading::Safe, 0);
    let fabric = provider.fabric(&wanted.fabric).unwrap();
    let end = open(fabric.safe_domain(&wanted).unwrap(), &wanted);
    let attr = CounterAttr {
        wait: WaitObj::Unspec,
        ..CounterAttr::default()
    };
    let chain = end.domain.counter(&attr).unwrap();
    for value in 1..LONG {
        end.queue(1, &chain, value, WorkOp::Add(&chain, 1));
    }
    chain.add(1);
    assert_eq!(chain.wait(LONG, Some(Duration::from_secs(60))), Ok(()));
}
