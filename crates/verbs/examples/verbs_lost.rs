//! Takes away what the provider uses while messages flow: connections end while receives are being posted, a device
//! is removed, the interface of another one goes down. What was posted ends, who uses the device hears which it was,
//! and another device goes on. The laboratory runs it (`lab/cases/verbs_lost.sh`): `verbs_lost DEVICE OTHER
//! INTERFACE`, where the interface is that of the other device.
#![forbid(unsafe_code)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/until.rs"]
mod until;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ripstop_core::eq::{EqAttr, Event, EventError, EventQueue};
use ripstop_core::provider::{
    AvAttr, CqAttr, Domain as _, Endpoint as _, Fabric as _, PassiveEp as _, Provider as _,
    RecvKind, SendKind,
};
use ripstop_core::{FidToken, Info};
use ripstop_mem::Parked;
use ripstop_types::{EpType, Errno, FiAddr, Flags, flags};
use ripstop_verbs::{Cq, Domain, Endpoint, Fabric, Mr, PassiveEp, VerbsProvider};

use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(40);
const LEN: usize = 4096;
/// Requests of each side that are under way.
const DEPTH: usize = 32;
/// Connections that end while a thread posts receives.
const ENDS: usize = 30;
/// Receives that it posts to each.
const POSTED: usize = 200;
const LISTENER: FidToken = FidToken(1);
const CLIENT: FidToken = FidToken(2);
const SERVER: FidToken = FidToken(3);

/// What is offered now for endpoints of this type.
fn infos(provider: &VerbsProvider, ep_type: EpType) -> Vec<Info> {
    common::infos(provider, ep_type, Flags::MSG)
}

/// The one of a device's domain.
fn info(provider: &VerbsProvider, ep_type: EpType, domain: &str) -> Option<Info> {
    let is_it = |info: &Info| info.domain.name.as_deref() == Some(domain);
    infos(provider, ep_type).into_iter().find(is_it)
}

/// What there is of a device.
struct Site {
    fabric: Arc<Fabric>,
    domain: Arc<Domain>,
    info: Info,
    eq: Arc<EventQueue>,
    listener: Arc<PassiveEp>,
}

impl Site {
    fn open(provider: &VerbsProvider, device: &str) -> Self {
        let info = info(provider, EpType::Msg, device).expect("an offer");
        let fabric = provider.fabric(&info.fabric).expect("a fabric");
        let domain = fabric.safe_domain(&info).expect("a domain");
        let eq = EventQueue::open(&EqAttr::default()).expect("a queue");
        let eq = Arc::new(eq);
        let listener = fabric.passive_ep(&info, LISTENER).expect("a listener");
        listener.bind_eq(&eq).expect("bound");
        listener.listen().expect("listening");
        Self {
            fabric,
            domain,
            info,
            eq,
            listener,
        }
    }

    fn event(&self) -> Result<Event, EventError> {
        until(PATIENCE, "event", || match self.eq.read() {
            Ok(event) => Some(Ok(event)),
            Err(Errno::EAGAIN) => None,
            Err(_) => Some(Err(self.eq.read_error(true).expect("an error"))),
        })
    }
}

/// How a request failed: the error, and what it says besides.
#[derive(Debug, PartialEq)]
struct Failure(Errno, String);

/// Whether a request of a queue has ended, and how.
fn ended(cq: &Cq) -> Option<Result<(), Failure>> {
    let ended = common::next(cq, None)?;
    Some(
        ended.map(drop).map_err(|(error, about)| {
            Failure(error.err, String::from_utf8_lossy(&about).into_owned())
        }),
    )
}

/// An endpoint with its memory, which ends after it.
struct Side {
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    _mr: Arc<Mr>,
    memory: Parked,
    /// Requests that have not ended.
    posted: usize,
}

impl Side {
    fn new(site: &Site, info: &Info, token: FidToken) -> Self {
        let ep = site.domain.endpoint(info, token).expect("an endpoint");
        ep.bind_eq(&site.eq).expect("bound");
        Self::of(&site.domain, ep)
    }

    /// Of an endpoint that lacks but a queue.
    fn of(domain: &Arc<Domain>, ep: Arc<Endpoint>) -> Self {
        let cq = domain.cq(&CqAttr::default()).expect("a queue");
        ep.bind_cq(&cq, flags![SEND RECV]).expect("bound");
        let memory = Parked::park(vec![0; LEN]);
        let mr = memory::register(domain, memory.buf(), flags![SEND RECV]);
        ep.enable().expect("enabled");
        Self {
            ep,
            cq,
            _mr: mr,
            memory,
            posted: 0,
        }
    }

    fn send(&mut self) -> Result<(), Errno> {
        let buf = [self.memory.buf()];
        let (kind, any) = (SendKind::Msg, FiAddr::UNSPEC);
        self.ep.send(kind, &buf, None, any, 0, None)?;
        self.posted += 1;
        Ok(())
    }

    fn receive(&mut self) -> Result<(), Errno> {
        let buf = [self.memory.buf()];
        let any = FiAddr::UNSPEC;
        self.ep.recv(RecvKind::Msg, &buf, any, 0, None)?;
        self.posted += 1;
        Ok(())
    }

    fn ended(&mut self) -> Option<Result<(), Failure>> {
        let ended = ended(&self.cq)?;
        self.posted -= 1;
        Some(ended)
    }

    /// All that was posted ends; what the last of it said.
    fn end(&mut self) -> Option<Failure> {
        let mut last = None;
        until(PATIENCE, "end of what was posted", || {
            if let Some(Err(failure)) = self.ended() {
                last = Some(failure);
            }
            (self.posted == 0).then_some(())
        });
        last
    }
}

/// Two endpoints that are connected.
struct Pair {
    client: Side,
    server: Side,
    /// How it has failed.
    failure: Option<Failure>,
}

impl Pair {
    fn connect(site: &Site) -> Self {
        let client = Side::new(site, &site.info, CLIENT);
        let to = site.listener.name().expect("an address");
        client.ep.connect(&to, b"").expect("begun");
        let Ok(Event::ConnReq { info, .. }) = site.event() else {
            panic!("no request");
        };
        let mut server = Side::new(site, &info, SERVER);
        for _ in 0..DEPTH {
            server.receive().expect("posted");
        }
        server.ep.accept(b"").expect("accepted");
        for _ in 0..2 {
            assert!(matches!(site.event(), Ok(Event::Connected { .. })));
        }
        Self {
            client,
            server,
            failure: None,
        }
    }

    /// Sends and receives; false once that has ended on either side.
    fn flow(&mut self) -> bool {
        if self.client.posted < DEPTH
            && let Err(error) = self.client.send()
            && error != Errno::EAGAIN
        {
            return false;
        }
        let sent = self.client.ended();
        let came = self.server.ended();
        if came == Some(Ok(())) && self.server.receive().is_err() {
            return false;
        }
        let failed = [sent, came].into_iter().flatten().find_map(Result::err);
        self.failure = self.failure.take().or(failed);
        self.failure.is_none()
    }

    fn flow_for(&mut self, messages: usize) {
        for _ in 0..messages {
            assert!(self.flow(), "the connection has failed: {:?}", self.failure);
        }
    }
}

fn run(program: &str, args: &[&str]) {
    let status = Command::new(program).args(args).status();
    assert!(status.expect("started").success(), "{program} {args:?}");
}

/// Connections end while another thread posts receives: each of those ends.
fn ends(provider: &VerbsProvider, device: &str) {
    let site = Site::open(provider, device);
    let mut refused = 0;
    for round in 0..ENDS {
        let Pair {
            client, mut server, ..
        } = Pair::connect(&site);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Hears that the connection has ended.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_micros(37 * (round as u64 % 40)));
                client.ep.shutdown().expect("ended");
                until(PATIENCE, "the end", || {
                    let _ = site.eq.read();
                    done.load(Ordering::Acquire).then_some(())
                });
            });
            let mut posted = 0;
            while posted < POSTED {
                match server.receive() {
                    Ok(()) => posted += 1,
                    Err(Errno::EAGAIN) => {
                        let _ = until(PATIENCE, "room", || server.ended());
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            server.end();
            done.store(true, Ordering::Release);
        });
        while site.eq.read().is_ok() {}
    }
    println!(
        "verbs_lost: {ENDS} connections have ended, all receives with them ({refused} waits for room)"
    );
}

/// The interface goes down: what is under way ends, or goes on when it comes back.
fn port(provider: &VerbsProvider, device: &str, interface: &str) {
    let site = Site::open(provider, device);
    let mut pair = Pair::connect(&site);
    pair.flow_for(500);
    run("ip", &["link", "set", interface, "down"]);
    let start = Instant::now();
    let mut flows = true;
    while flows && start.elapsed() < Duration::from_millis(500) {
        flows = pair.flow();
    }
    run("ip", &["link", "set", interface, "up"]);
    println!("verbs_lost: without interface, messages flow: {flows}");
    match flows {
        true => pair.flow_for(500),
        false => _ = pair.client.end(),
    }
    // The log has it.
    while site.eq.read().is_ok() {}
}

/// A datagram endpoint with receives.
fn datagrams(provider: &VerbsProvider, device: &str) -> (Arc<Domain>, Side) {
    let info = info(provider, EpType::Dgram, &format!("{device}-dgram")).expect("an offer");
    let fabric = provider.fabric(&info.fabric).expect("a fabric");
    let domain = fabric.safe_domain(&info).expect("a domain");
    let av = domain.av(&AvAttr::default()).expect("an address vector");
    let ep = domain.endpoint(&info, CLIENT).expect("an endpoint");
    ep.bind_av(&av).expect("bound");
    let mut side = Side::of(&domain, ep);
    for _ in 0..DEPTH {
        side.receive().expect("posted");
    }
    (domain, side)
}

/// A device is removed while messages flow by it and by another one, and nobody reads the event queue at first.
fn device(provider: &VerbsProvider, name: &str, other: &str) {
    let (site, elsewhere) = (Site::open(provider, name), Site::open(provider, other));
    let (mut pair, mut others) = (Pair::connect(&site), Pair::connect(&elsewhere));
    let (domain, mut dgram) = datagrams(provider, name);
    for _ in 0..500 {
        assert!(pair.flow() && others.flow(), "messages flow");
    }
    let mut removal = Command::new("rdma");
    let mut removal = removal
        .args(["link", "del", name])
        .spawn()
        .expect("started");
    let start = Instant::now();
    until(PATIENCE, "failure", || {
        assert!(others.flow(), "the other device works");
        (!pair.flow()).then_some(())
    });
    let lost = Failure(Errno::ENODEV, name.to_owned());
    let ends = [pair.client.end(), pair.server.end(), dgram.end()];
    println!(
        "verbs_lost: all has ended {:?} after the removal began: {ends:?}",
        start.elapsed()
    );
    let of_pair = ends[..2].iter().flatten().chain(&pair.failure);
    assert!(of_pair.into_iter().all(|failure| *failure == lost));
    assert_eq!(ends[2], Some(lost));
    assert_eq!(pair.client.send(), Err(Errno::ENODEV));
    assert_eq!(pair.server.receive(), Err(Errno::ENODEV));
    assert_eq!(dgram.receive(), Err(Errno::ENODEV));
    let mut told = Vec::new();
    while told.len() < 3 {
        match site.event() {
            Err(error) => {
                assert_eq!(
                    (error.err, &error.err_data[..]),
                    (Errno::ENODEV, name.as_bytes())
                );
                told.push(error.fid.0);
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
    told.sort_unstable();
    assert_eq!(told, [LISTENER.0, CLIENT.0, SERVER.0]);
    assert_eq!(removal.try_wait().expect("waited"), None, "it waits for us");
    others.flow_for(500);
    let Site {
        fabric,
        domain: of_pair,
        listener,
        ..
    } = site;
    drop((pair, dgram));
    drop((listener, domain, of_pair, fabric));
    let removed = until(PATIENCE, "end of the removal", || {
        assert!(others.flow(), "the other device works");
        removal.try_wait().expect("waited")
    });
    assert!(removed.success());
    let left = infos(provider, EpType::Msg);
    let names: Vec<_> = left
        .iter()
        .map(|info| info.domain.name.as_deref())
        .collect();
    assert_eq!(names, [Some(other)]);
    others.flow_for(500);
    Pair::connect(&elsewhere).flow_for(500);
}

fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let [name, other, interface] = &args[..] else {
        panic!("verbs_lost DEVICE OTHER INTERFACE");
    };
    let provider = VerbsProvider::new();
    ends(&provider, name);
    device(&provider, name, other);
    port(&provider, other, interface);
    println!("verbs_lost: all right");
}
