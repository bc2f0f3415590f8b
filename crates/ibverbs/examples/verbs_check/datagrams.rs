//! Datagrams between two queue pairs of a device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_ibverbs::{
    AddressHandle, Context, Cq, Datagrams, Destination, Operation, Path, Pd, Qp, QpCap,
    RecvRequest, Remote, SendFlags, SendRequest, Sge, Status, Wc, WcKind,
};
use ripstop_types::Errno;

use super::{Memory, PATIENCE, pattern};

/// The header in front of what is received.
const HEADER: usize = 40;
/// Bytes of a datagram.
const LEN: usize = 1000;
/// Where what goes out is.
const OUT: usize = 8192;

const DATAGRAMS: Datagrams = Datagrams {
    port: 1,
    qkey: 0x1234,
};

struct Side {
    qp: Qp,
    cq: Arc<Cq>,
    memory: Memory,
}

impl Side {
    fn new(device: &Arc<Context>, pd: &Arc<Pd>) -> Self {
        let cq = Cq::new(device, 64, None).expect("a queue");
        let cap = QpCap {
            send: 16,
            recv: 16,
            send_sge: 2,
            recv_sge: 2,
            inline: 64,
        };
        let qp = Qp::datagrams(pd, &cq, &cq, cap, DATAGRAMS).expect("a queue pair");
        let memory = Memory::new(pd);
        Self { qp, cq, memory }
    }

    fn receive(&self, id: u64, len: usize) {
        let pieces = [self.memory.part(0, len)];
        let mut requests = [RecvRequest::new(id, &pieces).expect("few pieces")];
        self.qp.post_recv(&mut requests).expect("posted");
    }

    fn send(&self, id: u64, piece: Sge, to: Destination<'_>) {
        let pieces = [piece];
        let data = Operation::Send(Some(id as u32));
        let request = SendRequest::new(id, data, &pieces, SendFlags::SIGNALED).expect("made");
        self.qp.post_send(&mut [request.to(to)]).expect("posted");
    }

    fn next(&self, patience: Duration) -> Option<Wc> {
        let start = Instant::now();
        let mut wc = [Wc::default()];
        while start.elapsed() < patience {
            if self.cq.poll(&mut wc).expect("polled") == 1 {
                return Some(wc[0]);
            }
            std::thread::yield_now();
        }
        None
    }

    fn expect(&self, id: u64) -> Wc {
        let wc = self.next(PATIENCE).expect("a completion");
        assert_eq!((wc.id(), wc.status()), (id, Status::SUCCESS), "{wc:?}");
        wc
    }
}

/// Sends `round` as a datagram that arrives, and nothing else does.
fn arrives(from: &Side, at: &Side, to: Destination<'_>, round: u64) {
    at.receive(round, HEADER + LEN);
    let bytes = &pattern(round)[..LEN];
    from.memory.write(OUT, bytes);
    from.send(round, from.memory.part(OUT, LEN), to);
    from.expect(round);
    let wc = at.expect(round);
    assert_eq!((wc.kind(), wc.len()), (WcKind::Recv, HEADER + LEN));
    assert_eq!(wc.immediate(), Some(round as u32));
    assert_eq!(at.memory.read(HEADER, LEN), bytes);
}

pub(super) fn check(device: &Arc<Context>) {
    let pd = Pd::new(device).expect("a domain");
    let port = device.port(1).expect("a port");
    assert_ne!(device.pkey(1, 0).expect("a key"), 0);
    let path = Path {
        port: 1,
        lid: port.lid,
        sl: port.sm_sl,
        gid: Some((device.gid(1, 0).expect("a GID"), 0)),
    };
    let handle = AddressHandle::new(&pd, &path).expect("a handle");
    let (a, b) = (Side::new(device, &pd), Side::new(device, &pd));
    let to_b = Destination {
        handle: &handle,
        qp: b.qp.number(),
        qkey: DATAGRAMS.qkey,
    };
    for round in 0..20 {
        arrives(&a, &b, to_b, round);
    }

    // Nobody has posted a receive, and then one that is too short: only these are lost.
    a.send(20, a.memory.part(OUT, LEN), to_b);
    a.expect(20);
    arrives(&a, &b, to_b, 21);
    // A key that the receiver does not take.
    let wrong = Destination {
        qkey: !DATAGRAMS.qkey & 0x7fff_ffff,
        ..to_b
    };
    a.send(22, a.memory.part(OUT, LEN), wrong);
    a.expect(22);
    arrives(&a, &b, to_b, 23);

    refuse(&a, to_b);
    // Memory that is not registered: the device sends no more until it is told to.
    let strange = Sge::new(b.memory.parked.buf().slice(0, LEN).expect("inside"), 1).expect("short");
    a.send(24, strange, to_b);
    let wc = a.next(PATIENCE).expect("a completion");
    assert_eq!(wc.id(), 24);
    assert_ne!(wc.status(), Status::SUCCESS);
    println!("a datagram of no region: {}", wc.status());
    a.receive(99, HEADER);
    a.qp.fail().expect("ended");
    let wc = a.next(PATIENCE).expect("a completion");
    assert_eq!((wc.id(), wc.status()), (99, Status::FLUSHED));
    a.qp.restart().expect("restarted");
    arrives(&a, &b, to_b, 25);

    b.receive(26, HEADER + 8);
    a.send(26, a.memory.part(OUT, LEN), to_b);
    a.expect(26);
    println!(
        "a receive that is too short: {:?}",
        b.next(Duration::from_millis(300))
    );
    b.qp.restart().expect("restarted");
    arrives(&a, &b, to_b, 27);
    println!("datagrams: all right");
}

/// What is no datagram, or goes nowhere, is not posted.
fn refuse(side: &Side, to: Destination<'_>) {
    let pieces = [side.memory.part(0, 8)];
    let flags = SendFlags::SIGNALED;
    let nowhere = SendRequest::new(1, Operation::Send(None), &pieces, flags).expect("made");
    let addr = 0x10;
    let write = Operation::Write(Remote { addr, key: 1 }, None);
    let write = SendRequest::new(1, write, &pieces, flags).expect("made");
    for request in [nowhere, write.to(to)] {
        let refused = side.qp.post_send(&mut [request]).expect_err("refused");
        assert_eq!((refused.posted, refused.errno), (0, Errno::EINVAL));
    }
}
