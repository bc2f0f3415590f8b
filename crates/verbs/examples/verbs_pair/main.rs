//! Tries the provider on a device: two endpoints of one process, connected over the first address that it
//! offers. What each operation gives is compared. The laboratory runs it (`lab/cases/verbs_pair.sh`).
//!
//! The argument `loses-begun` says that the device is known to lose receives of shared contexts ([`sharing::begun`]).
#![forbid(unsafe_code)]

mod batches;
#[path = "../common/mod.rs"]
mod common;
mod counting;
#[path = "../common/memory.rs"]
mod memory;
mod sharing;
#[path = "../common/until.rs"]
mod until;

use std::fs::File;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::eq::{EqAttr, Event, EventError, EventQueue};
use ripstop_core::provider::{
    AtomicCall, CompletionQueue as _, CqAttr, Domain as _, Endpoint as _, Fabric as _,
    MemoryRegion as _, MrAttr, PassiveEp as _, Provider as _, RecvKind, RmaCall, SendKind, Sharing,
};
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::{Parked, copy_in, copy_out};
use ripstop_os::Dmabuf;
use ripstop_types::{
    AtomicKind, AtomicOp, Completion, CompletionError, Datatype, EpType, Errno, FiAddr, Flags,
    Result, RmaIov, WaitObj, flags,
};
use ripstop_verbs::{Cq, Domain, Endpoint, Fabric, Mr, VerbsProvider};

use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of the memory of each side.
const MEMORY: usize = 1 << 20;
const LISTENER: FidToken = FidToken(1);
const CLIENT: FidToken = FidToken(2);
const SERVER: FidToken = FidToken(3);

/// The first offer of the provider for messages and one-sided operations.
fn find(provider: &VerbsProvider) -> Info {
    let infos = common::infos(
        provider,
        EpType::Msg,
        Flags::MSG | Flags::RMA | Flags::ATOMIC,
    );
    println!("{} offers", infos.len());
    infos.into_iter().next().expect("an offer of IPv4")
}

fn queue() -> Arc<EventQueue> {
    let attr = EqAttr {
        wait_obj: WaitObj::Unspec,
        ..EqAttr::default()
    };
    Arc::new(EventQueue::open(&attr).expect("a queue"))
}

fn event(eq: &EventQueue) -> std::result::Result<Event, EventError> {
    match eq.sread(Some(PATIENCE)) {
        Ok(event) => Ok(event),
        Err(Errno::EAVAIL) => Err(eq.read_error(true).expect("an error")),
        Err(error) => panic!("no event: {error}"),
    }
}

/// An endpoint with its memory, which ends after it.
struct Side {
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    mr: Arc<Mr>,
    memory: Parked,
}

impl Side {
    fn new(site: &Site, info: &Info, token: FidToken) -> Self {
        Self::bound(site, info, token, &|_| ())
    }

    /// With what `bind` binds to the endpoint.
    fn bound(site: &Site, info: &Info, token: FidToken, bind: &dyn Fn(&Endpoint)) -> Self {
        let domain = &site.domain;
        let attr = CqAttr {
            wait: WaitObj::Fd,
            ..CqAttr::default()
        };
        let cq = domain.cq(&attr).expect("a queue");
        let ep = domain.endpoint(info, token).expect("an endpoint");
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).expect("bound");
        ep.bind_eq(&site.eq).expect("bound");
        bind(&ep);
        let memory = Parked::park(vec![0; MEMORY]);
        let access = flags![SEND RECV READ WRITE REMOTE_READ REMOTE_WRITE];
        let mr = memory::register(domain, memory.buf(), access);
        ep.enable().expect("enabled");
        Self { ep, cq, mr, memory }
    }

    fn part(&self, at: usize, len: usize) -> ripstop_mem::UserBuf {
        self.memory.buf().slice(at, len).expect("inside")
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        assert_eq!(copy_out(self.part(at, bytes.len()), bytes), bytes.len());
    }

    fn read(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert_eq!(copy_in(&mut bytes, self.part(at, len)), len);
        bytes
    }

    fn remote(&self, at: usize, len: usize) -> RmaIov {
        RmaIov {
            addr: (self.memory.buf().addr() + at) as u64,
            len: len as u64,
            key: self.mr.key(),
        }
    }

    fn receive(&self, context: usize, at: usize, len: usize) {
        let buf = [self.part(at, len)];
        let posted = self
            .ep
            .recv(RecvKind::Msg, &buf, FiAddr::UNSPEC, context, None);
        posted.expect("posted");
    }

    fn send(&self, context: usize, at: usize, len: usize, data: Option<u64>) -> Result<()> {
        let buf = [self.part(at, len)];
        self.ep
            .send(SendKind::Msg, &buf, data, FiAddr::UNSPEC, context, None)
    }

    /// The next completion, by polling.
    fn next(&self) -> std::result::Result<Completion, CompletionError> {
        self.ended(None)
    }

    /// The same, by sleeping.
    fn wait(&self) -> std::result::Result<Completion, CompletionError> {
        self.ended(Some(PATIENCE))
    }

    fn ended(
        &self,
        patience: Option<Duration>,
    ) -> std::result::Result<Completion, CompletionError> {
        let ended = until(PATIENCE, "completion", || common::next(&*self.cq, patience));
        ended.map_err(|(error, _)| error)
    }

    fn expect(&self, context: usize, says: Flags) -> Completion {
        let entry = self.next().expect("a success");
        assert_eq!((entry.context, entry.flags), (context, says));
        entry
    }
}

/// What both sides share.
struct Site {
    fabric: Arc<Fabric>,
    domain: Arc<Domain>,
    info: Info,
    eq: Arc<EventQueue>,
}

fn connect(site: &Site, listener: &ripstop_verbs::PassiveEp) -> (Side, Side) {
    connect_bound(site, listener, &|_, _| ())
}

/// Connects two endpoints with what `bind` binds to each.
fn connect_bound(
    site: &Site,
    listener: &ripstop_verbs::PassiveEp,
    bind: &dyn Fn(FidToken, &Endpoint),
) -> (Side, Side) {
    let client = Side::bound(site, &site.info, CLIENT, &|ep| bind(CLIENT, ep));
    assert_eq!(client.send(1, 0, 1, None), Err(Errno::ENOTCONN));
    // A receive may be posted before there is a connection.
    client.receive(7, 0, 4096);
    let to = listener.name().expect("an address");
    client.ep.connect(&to, b"may I?").expect("begun");
    let Ok(Event::ConnReq { pep, info, data }) = event(&site.eq) else {
        panic!("no request");
    };
    assert_eq!((pep, &data[..]), (LISTENER, &b"may I?"[..]));
    assert_eq!(info.domain.name, site.info.domain.name);
    let server = Side::bound(site, &info, SERVER, &|ep| bind(SERVER, ep));
    server.ep.accept(b"you may").expect("accepted");
    let mut told = Vec::new();
    for _ in 0..2 {
        match event(&site.eq) {
            Ok(Event::Connected { ep, data }) => told.push((ep, data)),
            other => panic!("{other:?}"),
        }
    }
    told.sort_by_key(|(ep, _)| ep.0);
    assert_eq!(told, [(CLIENT, b"you may".to_vec()), (SERVER, Vec::new())]);
    assert_eq!(client.ep.peer(), Ok(to));
    assert_eq!(server.ep.peer(), client.ep.name());
    (client, server)
}

fn messages(client: &Side, server: &Side) {
    server.write(0, b"from the server");
    server.send(8, 0, 15, Some(0xfeed_f00d)).expect("posted");
    server.expect(8, flags![MSG SEND]);
    let entry = client.expect(7, flags![MSG RECV REMOTE_CQ_DATA]);
    assert_eq!((entry.len, entry.data), (15, 0xfeed_f00d));
    assert_eq!(client.read(0, 15), b"from the server");
    assert_eq!(client.send(1, 0, 1, Some(1 << 32)), Err(Errno::EINVAL));

    // In two pieces, longer than a packet, and awaited.
    let text: Vec<u8> = (0..200_000_u32).map(|i| (i % 251) as u8).collect();
    client.write(4096, &text);
    server.receive(9, 0, 300_000);
    let pieces = [client.part(4096, 1000), client.part(5096, 199_000)];
    let (msg, any) = (SendKind::Msg, FiAddr::UNSPEC);
    client
        .ep
        .send(msg, &pieces, None, any, 10, None)
        .expect("posted");
    let entry = server.wait().expect("a message");
    assert_eq!((entry.context, entry.len), (9, 200_000));
    assert_eq!(server.read(0, 200_000), text);
    client.expect(10, flags![MSG SEND]);

    // Injected: free at once, and without completions. Many more than the queue holds.
    let small = Parked::park(vec![0; 64]);
    for number in 0..2000_u64 {
        server.receive(11, 0, 64);
        copy_out(small.buf(), &number.to_ne_bytes());
        until(PATIENCE, "room", || {
            match client.ep.inject(msg, small.buf(), None, any) {
                Ok(()) => Some(()),
                Err(Errno::EAGAIN) => {
                    assert_eq!(
                        client.cq.read(1, |entry| panic!("{entry:?}")),
                        Err(Errno::EAGAIN)
                    );
                    None
                }
                Err(error) => panic!("{error}"),
            }
        });
        server.expect(11, flags![MSG RECV]);
        assert_eq!(server.read(0, 8), number.to_ne_bytes());
    }
    assert_eq!(client.cq.read(1, |_| ()), Err(Errno::EAGAIN));
    let long = Parked::park(vec![0; 5000]);
    assert_eq!(
        client.ep.inject(msg, long.buf(), None, any),
        Err(Errno::EMSGSIZE)
    );
    // In no region.
    let posted = client.ep.send(msg, &[long.buf()], None, any, 1, None);
    assert_eq!(posted, Err(Errno::EINVAL));
}

fn one_sided(client: &Side, server: &Side) {
    let call = |remote, data, context| RmaCall {
        remote,
        peer: FiAddr::UNSPEC,
        data,
        context,
        flags: None,
    };
    client.write(0, b"written by the client");
    let to = [server.remote(500_000, 21)];
    let from = [client.part(0, 21)];
    client
        .ep
        .write(&from, &call(&to, None, 20))
        .expect("posted");
    client.expect(20, flags![RMA WRITE]);
    assert_eq!(server.read(500_000, 21), b"written by the client");

    // With data, which uses up a receive.
    server.receive(21, 0, 64);
    client
        .ep
        .write(&from, &call(&to, Some(99), 22))
        .expect("posted");
    let entry = server.expect(21, flags![RMA REMOTE_WRITE REMOTE_CQ_DATA]);
    assert_eq!(entry.data, 99);
    client.expect(22, flags![RMA WRITE]);

    let text: Vec<u8> = (0..100_000_u32).map(|i| (i % 241) as u8).collect();
    server.write(0, &text);
    let there = [server.remote(0, 100_000)];
    let here = [client.part(1000, 60_000), client.part(100_000, 40_000)];
    client
        .ep
        .read(&here, &call(&there, None, 23))
        .expect("posted");
    client.expect(23, flags![RMA READ]);
    assert_eq!(client.read(1000, 60_000), text[..60_000]);
    assert_eq!(client.read(100_000, 40_000), text[60_000..]);

    let small = Parked::park(b"injected".to_vec());
    let to = server.remote(600_000, 8);
    let any = FiAddr::UNSPEC;
    client
        .ep
        .inject_write(small.buf(), to, None, any)
        .expect("posted");
    until(PATIENCE, "write", || {
        (server.read(600_000, 8) == b"injected").then_some(())
    });
    // Lengths that do not fit each other.
    let uneven = client.ep.read(&here[..1], &call(&there, None, 1));
    assert_eq!(uneven, Err(Errno::EINVAL));
}

fn atomics(domain: &Domain, client: &Side, server: &Side) {
    let limit = domain.atomic_limit(AtomicKind::Fetch, Datatype::Uint64, AtomicOp::Sum);
    assert_eq!(limit, Ok(1));
    let limit = domain.atomic_limit(AtomicKind::Plain, Datatype::Uint64, AtomicOp::Sum);
    assert_eq!(limit, Err(Errno::EOPNOTSUPP));
    let at = [server.remote(700_000, 8)];
    let result = [client.part(8, 8)];
    let compare = [client.part(16, 8)];
    let number =
        |side: &Side, at| u64::from_ne_bytes(side.read(at, 8).try_into().expect("8 bytes"));
    let call = |kind, op, context| AtomicCall {
        kind,
        datatype: Datatype::Uint64,
        op,
        compare: if kind == AtomicKind::Compare {
            &compare
        } else {
            &[]
        },
        result: if kind == AtomicKind::Plain {
            &[]
        } else {
            &result
        },
        remote: &at,
        peer: FiAddr::UNSPEC,
        data: None,
        context,
        flags: None,
    };
    let run = |operand: u64, kind, op, context, says| {
        client.write(0, &operand.to_ne_bytes());
        let posted = client
            .ep
            .atomic(&[client.part(0, 8)], &call(kind, op, context));
        posted.expect("posted");
        client.expect(context, says);
        number(client, 8)
    };
    run(
        1000,
        AtomicKind::Plain,
        AtomicOp::AtomicWrite,
        50,
        flags![ATOMIC WRITE],
    );
    let fetched = flags![ATOMIC READ];
    assert_eq!(run(7, AtomicKind::Fetch, AtomicOp::Sum, 51, fetched), 1000);
    assert_eq!(
        run(0, AtomicKind::Fetch, AtomicOp::AtomicRead, 52, fetched),
        1007
    );
    client.write(16, &1007_u64.to_ne_bytes());
    assert_eq!(
        run(1, AtomicKind::Compare, AtomicOp::Cswap, 53, fetched),
        1007
    );
    // It is another number now.
    assert_eq!(run(2, AtomicKind::Compare, AtomicOp::Cswap, 54, fetched), 1);
    assert_eq!(number(server, 700_000), 1);
    let sum = client.ep.atomic(
        &[client.part(0, 8)],
        &call(AtomicKind::Plain, AtomicOp::Sum, 1),
    );
    assert_eq!(sum, Err(Errno::EOPNOTSUPP));
}

/// A peer that ends the connection: the other side is told, and what it has posted ends.
fn goodbye(site: &Site, client: Side, server: Side) {
    client.receive(30, 0, 64);
    server.ep.shutdown().expect("begun");
    let mut told = Vec::new();
    for _ in 0..2 {
        match event(&site.eq) {
            Ok(Event::Shutdown { ep }) => told.push(ep.0),
            other => panic!("{other:?}"),
        }
    }
    told.sort_unstable();
    assert_eq!(told, [CLIENT.0, SERVER.0]);
    let failure = client.next().expect_err("flushed");
    assert_eq!((failure.entry.context, failure.err), (30, Errno::ECANCELED));
    assert_eq!(client.send(1, 0, 1, None), Err(Errno::ENOTCONN));
    drop((client, server));
}

/// A wrong key: an error with its context, and both sides are told of the end.
fn denied(site: &Site, listener: &ripstop_verbs::PassiveEp) {
    let (client, server) = connect(site, listener);
    let mut at = server.remote(0, 8);
    at.key ^= 0xff;
    let call = RmaCall {
        remote: &[at],
        peer: FiAddr::UNSPEC,
        data: None,
        context: 40,
        flags: None,
    };
    client.ep.read(&[client.part(0, 8)], &call).expect("posted");
    let failure = client.next().expect_err("denied");
    assert_eq!((failure.entry.context, failure.err), (40, Errno::EACCES));
    for _ in 0..2 {
        assert!(matches!(event(&site.eq), Ok(Event::Shutdown { .. })));
    }
}

fn refused(site: &Site, listener: &ripstop_verbs::PassiveEp) {
    let client = Side::new(site, &site.info, CLIENT);
    let to = listener.name().expect("an address");
    client.ep.connect(&to, b"").expect("begun");
    let Ok(Event::ConnReq { info, .. }) = event(&site.eq) else {
        panic!("no request");
    };
    listener.reject(&info, b"no room").expect("refused");
    assert_eq!(listener.reject(&info, b"again"), Err(Errno::EINVAL));
    let error = event(&site.eq).expect_err("refused");
    assert_eq!((error.fid, error.err), (CLIENT, Errno::ECONNREFUSED));
    assert_eq!(error.err_data, b"no room");
    drop(client);

    // Nobody listens there.
    let client = Side::new(site, &site.info, CLIENT);
    let Address::Ip(mut nobody) = to else {
        panic!("an IP address");
    };
    nobody.set_port(1);
    client.ep.connect(&nobody.into(), b"").expect("begun");
    let error = event(&site.eq).expect_err("refused");
    assert_eq!((error.fid, error.err), (CLIENT, Errno::ECONNREFUSED));
}

/// Neither rxe nor siw registers a dma-buf, whatever the descriptor is: libibverbs says so.
fn dma_bufs(domain: &Arc<Domain>) {
    let file = File::open("/dev/null").expect("a descriptor");
    let dmabuf = Dmabuf {
        fd: file.as_fd(),
        offset: 0,
        len: 4096,
        mapped: None,
    };
    let attr = MrAttr {
        iov: Vec::new(),
        access: Flags::REMOTE_READ,
        offset: 0,
        requested_key: 0,
        flags: Flags::empty(),
        shared: Sharing::Never,
    };
    let registered = domain.mr_dmabuf(&dmabuf, &attr).map(drop);
    assert_eq!(registered, Err(Errno::EOPNOTSUPP));
}

fn main() {
    let is_lossy = match std::env::args().nth(1).as_deref() {
        None => false,
        Some("loses-begun") => true,
        Some(other) => panic!("no such argument: {other}"),
    };
    let provider = VerbsProvider::new();
    let info = find(&provider);
    let fabric = provider.fabric(&info.fabric).expect("a fabric");
    let domain = fabric.safe_domain(&info).expect("a domain");
    let site = Site {
        fabric,
        domain,
        info,
        eq: queue(),
    };
    let listener = site
        .fabric
        .passive_ep(&site.info, LISTENER)
        .expect("a listener");
    listener.bind_eq(&site.eq).expect("bound");
    listener.listen().expect("listening");
    let (client, server) = connect(&site, &listener);
    messages(&client, &server);
    one_sided(&client, &server);
    atomics(&site.domain, &client, &server);
    goodbye(&site, client, server);
    refused(&site, &listener);
    denied(&site, &listener);
    dma_bufs(&site.domain);
    batches::batches(&site, &listener);
    counting::counted(&site, &listener);
    sharing::shared(&site, &listener);
    sharing::begun(&site, &listener, is_lossy);
    println!(
        "verbs_pair: messages, reads, writes, atomics, batches, counters, shared receives, refusals and ends: all right"
    );
}
