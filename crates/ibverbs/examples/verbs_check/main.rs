//! Tries the crate on a device: `verbs_check ADDRESS` connects two threads over the RDMA device that has
//! the address, and each operation's outcome is compared. The laboratory runs it (`lab/cases/ibverbs.sh`).
#![deny(unsafe_code)]

mod datagrams;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use ripstop_ibverbs::{
    Access, CmEvent, CmEventKind, CmId, CompletionChannel, ConnParam, Context, Cq, EventChannel,
    Mr, Operation, Pd, Qp, QpCap, RecvRequest, Remote, SendFlags, SendRequest, Sge, Srq, Status,
    Wc, WcKind, available, devices,
};
use ripstop_mem::{Parked, copy_in, copy_out};
use ripstop_os::{Epoll, Events, Interest};
use ripstop_types::Errno;

/// Bytes of the memory of each side.
const MEMORY: usize = 64 << 10;
/// Bytes of a message.
const MESSAGE: usize = 4000;
/// Messages there and back.
const ROUNDS: u64 = 50;
/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Registered memory, its region first to end.
struct Memory {
    mr: Mr,
    parked: Parked,
}

impl Memory {
    fn new(pd: &Arc<Pd>) -> Self {
        let parked = Parked::park(vec![0; MEMORY]);
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        let mr = Mr::register(pd, parked.buf(), access).expect("registered");
        Self { mr, parked }
    }

    fn part(&self, at: usize, len: usize) -> Sge {
        let buf = self.parked.buf().slice(at, len).expect("inside");
        Sge::new(buf, self.mr.lkey()).expect("short")
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        let buf = self.parked.buf().slice(at, bytes.len()).expect("inside");
        assert_eq!(copy_out(buf, bytes), bytes.len());
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let buf = self.parked.buf().slice(at, len).expect("inside");
        assert_eq!(copy_in(&mut bytes, buf), len);
        bytes
    }

    fn remote(&self, at: usize) -> Remote {
        let addr = (self.parked.buf().addr() + at) as u64;
        let key = self.mr.rkey();
        Remote { addr, key }
    }
}

/// One side: a queue pair that can wait.
struct Side {
    qp: Qp,
    cq: Arc<Cq>,
    channel: Arc<CompletionChannel>,
    memory: Memory,
    srq: Option<Arc<Srq>>,
    /// Completions that came before one that was waited for.
    early: RefCell<Vec<Wc>>,
}

impl Side {
    fn new(id: &Arc<CmId>, devices: &[Arc<Context>], with_srq: bool) -> Self {
        let device = id.device(devices).expect("a device");
        let pd = Pd::new(device).expect("a domain");
        let channel = CompletionChannel::new(device).expect("a channel");
        let cq = Cq::new(device, 256, Some(&channel)).expect("a queue");
        let srq = with_srq.then(|| Srq::new(&pd, 64, 2).expect("a shared queue"));
        let cap = QpCap {
            send: 64,
            recv: 64,
            send_sge: 2,
            recv_sge: 2,
            inline: 64,
        };
        let qp = Qp::new(id, &pd, &cq, &cq, srq.as_ref(), cap).expect("a queue pair");
        assert!(qp.cap().inline >= 64 && qp.cap().send >= 64);
        assert!(
            Qp::new(id, &pd, &cq, &cq, None, cap).is_err(),
            "two queue pairs"
        );
        let memory = Memory::new(&pd);
        Self {
            qp,
            cq,
            channel,
            memory,
            srq,
            early: RefCell::default(),
        }
    }

    fn receive(&self, id: u64, pieces: &[Sge]) {
        let mut requests = [RecvRequest::new(id, pieces).expect("few pieces")];
        match &self.srq {
            Some(srq) => srq.post_recv(&mut requests),
            None => self.qp.post_recv(&mut requests),
        }
        .expect("posted");
    }

    fn send(&self, id: u64, operation: Operation, pieces: &[Sge], flags: SendFlags) {
        let mut requests = [SendRequest::new(id, operation, pieces, flags).expect("few pieces")];
        self.qp.post_send(&mut requests).expect("posted");
    }

    /// The next completion, by sleeping on the channel.
    fn next(&self) -> Wc {
        let mut wc = [Wc::default()];
        loop {
            if self.cq.poll(&mut wc).expect("polled") == 1 {
                return wc[0];
            }
            self.cq.arm().expect("armed");
            if self.cq.poll(&mut wc).expect("polled") == 1 {
                return wc[0];
            }
            wait(self.channel.as_fd(), "a completion");
            self.channel.drain().expect("drained");
        }
    }

    /// This completion. Sends and receives have no order among each other, so others may come first.
    fn expect(&self, id: u64, kind: WcKind) -> Wc {
        let mut early = self.early.borrow_mut();
        if let Some(at) = early.iter().position(|wc| wc.id() == id) {
            let wc = early.swap_remove(at);
            assert_eq!(wc.kind(), kind, "{wc:?}");
            return wc;
        }
        loop {
            let wc = self.next();
            assert_eq!(wc.status(), Status::SUCCESS, "{wc:?}");
            if wc.id() == id {
                assert_eq!(wc.kind(), kind, "{wc:?}");
                return wc;
            }
            early.push(wc);
            assert!(early.len() < 8, "other completions than {id}: {early:?}");
        }
    }
}

fn wait(fd: std::os::fd::BorrowedFd<'_>, what: &str) {
    let set = Epoll::new().expect("a set");
    set.add(fd, 0, Interest::READ).expect("added");
    let mut events = Events::with_capacity(1);
    let count = set.wait(&mut events, Some(PATIENCE)).expect("waited");
    assert!(count > 0, "no {what} in {PATIENCE:?}");
}

/// The next event of a kind; others end the program.
fn event(channel: &Arc<EventChannel>, kind: CmEventKind) -> CmEvent {
    loop {
        match channel.next() {
            Ok(event) => {
                assert_eq!(event.kind, kind, "{event:?}");
                return event;
            }
            Err(Errno::EAGAIN) => wait(channel.as_fd(), "an event"),
            Err(error) => panic!("{error}"),
        }
    }
}

fn param(data: &[u8]) -> ConnParam<'_> {
    ConnParam {
        data,
        responder_resources: 1,
        initiator_depth: 1,
        retries: 7,
        rnr_retries: 7,
    }
}

/// What each side shows the other of its memory.
fn describe(memory: &Memory) -> Vec<u8> {
    let Remote { addr, key } = memory.remote(0);
    [&addr.to_be_bytes()[..], &key.to_be_bytes()].concat()
}

fn parse(data: &[u8]) -> Remote {
    let addr = u64::from_be_bytes(data[..8].try_into().expect("8 bytes"));
    let key = u32::from_be_bytes(data[8..12].try_into().expect("4 bytes"));
    Remote { addr, key }
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..MESSAGE as u64)
        .map(|i| (i.wrapping_mul(31) ^ seed) as u8)
        .collect()
}

/// Answers the first connection with a refusal, the second one as a server.
fn serve(address: SocketAddr, devices: &[Arc<Context>], port: &mpsc::Sender<SocketAddr>) {
    let events = EventChannel::new().expect("a channel");
    let listener = CmId::new(&events).expect("an id");
    listener.bind(&address).expect("bound");
    listener.listen(8).expect("listening");
    port.send(listener.local_addr().expect("an address"))
        .expect("told");

    let refused = event(&events, CmEventKind::ConnectRequest);
    assert_eq!(refused.id, listener.key());
    assert!(refused.data.starts_with(b"first"), "{:?}", refused.data);
    refused
        .request
        .expect("an id")
        .reject(b"not you")
        .expect("refused");

    let asked = event(&events, CmEventKind::ConnectRequest);
    let remote = parse(&asked.data);
    let id = asked.request.expect("an id");
    let side = Side::new(&id, devices, true);
    for round in 0..4 {
        side.receive(
            round,
            &[side.memory.part(round as usize * MESSAGE, MESSAGE)],
        );
    }
    id.accept(&param(&describe(&side.memory)))
        .expect("accepted");
    assert_eq!(event(&events, CmEventKind::Established).id, id.key());

    answer(&side, remote);
    assert_eq!(event(&events, CmEventKind::Disconnected).id, id.key());
    // What is still posted is flushed, or ends with the queues; the device has let go of it then.
    drop(side);
}

/// Sends back what comes, and takes part in what follows.
fn answer(side: &Side, remote: Remote) {
    for round in 0..ROUNDS {
        let slot = round % 4;
        let wc = side.expect(slot, WcKind::Recv);
        assert_eq!((wc.len(), wc.immediate()), (MESSAGE, None));
        assert_eq!(wc.qp_num(), side.qp.number());
        let at = slot as usize * MESSAGE;
        assert_eq!(side.memory.read(at, MESSAGE), pattern(round));
        // Back, with its number.
        let back = [side.memory.part(at, MESSAGE)];
        side.send(
            100,
            Operation::Send(Some(round as u32)),
            &back,
            SendFlags::SIGNALED,
        );
        side.expect(100, WcKind::Send);
        side.receive(slot, &back);
    }
    // The peer writes behind the messages, with immediate data, which uses up a receive.
    let wc = side.expect(ROUNDS % 4, WcKind::RecvWrite);
    assert_eq!(wc.immediate(), Some(77));
    assert_eq!(side.memory.read(20_000, 16), b"0123456789abcdef");
    // A batch of three, of which the last one is signalled.
    let pieces = [side.memory.part(20_000, 8), side.memory.part(20_008, 8)];
    let to = |at: u64| {
        Operation::Write(
            Remote {
                addr: remote.addr + at,
                ..remote
            },
            None,
        )
    };
    let plain = SendFlags::default();
    let mut batch = [
        SendRequest::new(1, to(30_000), &pieces, plain).expect("made"),
        SendRequest::new(2, to(30_100), &pieces[..1], plain).expect("made"),
        SendRequest::new(3, Operation::Send(None), &pieces[1..], SendFlags::SIGNALED)
            .expect("made"),
    ];
    side.qp.post_send(&mut batch).expect("posted");
    side.expect(3, WcKind::Send);
    // What the peer sends inline says that it is done with writes and atomics.
    let slot = (ROUNDS + 1) % 4;
    side.expect(slot, WcKind::Recv);
    assert_eq!(side.memory.read(slot as usize * MESSAGE, 32), [b'i'; 32]);
    assert_eq!(side.memory.read(40_000, 8), 1014_u64.to_ne_bytes());
}

/// An id on the way to an address, without a queue pair yet.
fn resolve(to: SocketAddr, events: &Arc<EventChannel>) -> Arc<CmId> {
    let id = CmId::new(events).expect("an id");
    id.resolve_addr(None, &to, PATIENCE).expect("begun");
    event(events, CmEventKind::AddrResolved);
    id.resolve_route(PATIENCE).expect("begun");
    event(events, CmEventKind::RouteResolved);
    id
}

fn call(to: SocketAddr, devices: &[Arc<Context>]) {
    let events = EventChannel::new().expect("a channel");
    let first = resolve(to, &events);
    let unused = Side::new(&first, devices, false);
    first.connect(&param(b"first")).expect("begun");
    let refused = event(&events, CmEventKind::Rejected);
    assert_eq!(refused.id, first.key());
    assert!(refused.data.starts_with(b"not you"), "{:?}", refused.data);
    drop((unused, first));

    let id = resolve(to, &events);
    let side = Side::new(&id, devices, false);
    side.receive(0, &[side.memory.part(0, MESSAGE)]);
    id.connect(&param(&describe(&side.memory))).expect("begun");
    let connected = event(&events, CmEventKind::Established);
    let remote = parse(&connected.data);
    assert_eq!(id.peer_addr(), Some(to));
    side.qp.set_min_rnr_timer(12).expect("set");

    exchange(&side);
    reach(&side, remote);
    fail(&side, remote);
    id.disconnect().expect("begun");
    event(&events, CmEventKind::Disconnected);
}

/// Where what goes out is.
const OUT: usize = MESSAGE;

/// Messages, and what comes back.
fn exchange(side: &Side) {
    for round in 0..ROUNDS {
        side.memory.write(OUT, &pattern(round));
        // In two pieces.
        let pieces = [
            side.memory.part(OUT, 1000),
            side.memory.part(OUT + 1000, MESSAGE - 1000),
        ];
        side.send(200, Operation::Send(None), &pieces, SendFlags::default());
        let wc = side.expect(0, WcKind::Recv);
        assert_eq!((wc.len(), wc.immediate()), (MESSAGE, Some(round as u32)));
        assert_eq!(side.memory.read(0, MESSAGE), pattern(round));
        side.receive(0, &[side.memory.part(0, MESSAGE)]);
    }
}

/// Writes, reads and atomics, and a message that is sent inline.
fn reach(side: &Side, remote: Remote) {
    let at = |offset: u64| Remote {
        addr: remote.addr + offset,
        ..remote
    };
    side.memory.write(OUT, b"0123456789abcdef");
    let bytes = [side.memory.part(OUT, 16)];
    side.send(
        201,
        Operation::Write(at(20_000), Some(77)),
        &bytes,
        SendFlags::SIGNALED,
    );
    side.expect(201, WcKind::Write);
    let wc = side.expect(0, WcKind::Recv);
    assert_eq!(
        (wc.len(), side.memory.read(0, 8)),
        (8, b"89abcdef".to_vec())
    );
    assert_eq!(side.memory.read(30_000, 16), b"0123456789abcdef");
    assert_eq!(side.memory.read(30_100, 8), b"01234567");
    let back = [side.memory.part(50_000, 16)];
    side.send(202, Operation::Read(at(20_000)), &back, SendFlags::SIGNALED);
    side.expect(202, WcKind::Read);
    assert_eq!(side.memory.read(50_000, 16), b"0123456789abcdef");

    let number = 1000_u64.to_ne_bytes();
    side.memory.write(OUT, &number);
    let bytes = [side.memory.part(OUT, 8)];
    side.send(
        203,
        Operation::Write(at(40_000), None),
        &bytes,
        SendFlags::default(),
    );
    let before = [side.memory.part(50_000, 8)];
    side.send(
        204,
        Operation::FetchAdd(at(40_000), 7),
        &before,
        SendFlags::SIGNALED,
    );
    side.expect(204, WcKind::Atomic);
    assert_eq!(side.memory.read(50_000, 8), number);
    side.send(
        205,
        Operation::CompareSwap(at(40_000), 1007, 1014),
        &before,
        SendFlags::SIGNALED,
    );
    side.expect(205, WcKind::Atomic);
    assert_eq!(side.memory.read(50_000, 8), 1007_u64.to_ne_bytes());

    // Inline, from memory that no region has, and that is something else at once.
    let small = Parked::park(vec![b'i'; 32]);
    let piece = [Sge::new(small.buf(), 0).expect("short")];
    let flags = SendFlags::INLINE | SendFlags::SIGNALED;
    side.send(206, Operation::Send(None), &piece, flags);
    copy_out(small.buf(), &[0; 32]);
    side.expect(206, WcKind::Send);
}

/// A key that nobody has given out: an error, and the end of the connection.
fn fail(side: &Side, remote: Remote) {
    let wrong = Remote {
        key: remote.key ^ 0xff,
        ..remote
    };
    let memory = [side.memory.part(50_000, 16)];
    side.send(207, Operation::Read(wrong), &memory, SendFlags::SIGNALED);
    let wc = side.next();
    assert_eq!(
        (wc.id(), wc.status()),
        (207, Status::REMOTE_ACCESS),
        "{wc:?}"
    );
    println!("a wrong key: {}", wc.status());
}

fn main() {
    let address = std::env::args().nth(1).expect("usage: verbs_check ADDRESS");
    let address = format!("{address}:0").parse().expect("an IP address");
    available().expect("the libraries");
    let devices = devices().expect("devices");
    assert!(!devices.is_empty(), "there is no RDMA device");
    for device in &devices {
        let attr = device.attr().expect("attributes");
        let port = device.port(1).expect("a port");
        let gid = device.gid(1, 0).expect("a GID");
        println!("{}: {attr:?}\n{port:?} GID {gid:02x?}", device.name());
        assert!(port.active && port.mtu >= 256 && attr.ports >= 1 && gid != [0; 16]);
    }
    let (told, port) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| serve(address, &devices, &told));
        let to = port.recv().expect("a port");
        call(to, &devices);
    });
    for device in &devices {
        datagrams::check(device);
    }
    println!(
        "verbs_check: {ROUNDS} messages each way, writes, reads, atomics, datagrams: all right"
    );
}
