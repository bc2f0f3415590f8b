//! Tries datagram endpoints of the provider on a device: those of one process, then those of several that are
//! out of step and of which some end early. The laboratory runs it (`lab/cases/verbs_datagrams.sh`).
#![forbid(unsafe_code)]

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/until.rs"]
mod until;

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::provider::{
    AddressVector as _, AvAttr, Counter as _, CounterAttr, CqAttr, Domain as _, Endpoint as _,
    Fabric as _, MemoryRegion as _, Provider as _, RecvKind, SendKind,
};
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{
    AddrFormat, Completion, CompletionError, EpType, Errno, FiAddr, Flags, WaitObj, flags,
};
use ripstop_verbs::{Av, Counter, Cq, Domain, Endpoint, Mr, VerbsProvider};

use until::until;

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes in front of what is received.
const HEADER: usize = 40;
/// Receives of a side, and the room of each.
const RECEIVES: usize = 32;
const ROOM: usize = 2048;
/// Where what goes out is.
const OUT: usize = RECEIVES * ROOM;
const MEMORY: usize = OUT + 8192;

/// Processes of the crowd, and the datagrams that each sends to each of the others.
const PROCESSES: usize = 9;
const DATAGRAMS: u32 = 200;

fn find() -> (VerbsProvider, Info) {
    let provider = VerbsProvider::new();
    let infos = common::infos(&provider, EpType::Dgram, Flags::MSG);
    let info = infos.into_iter().next().expect("an offer");
    let name = info.domain.name.as_deref().expect("a name");
    assert!(name.ends_with("-dgram"), "{name}");
    assert_eq!(info.addr_format, AddrFormat::IbUd);
    assert_eq!(info.ep.msg_prefix_size, HEADER);
    (provider, info)
}

/// An endpoint with its memory, which ends after it.
struct Side {
    ep: Arc<Endpoint>,
    cq: Arc<Cq>,
    av: Arc<Av>,
    sent: Arc<Counter>,
    mr: Arc<Mr>,
    memory: Parked,
}

impl Side {
    fn new(domain: &Arc<Domain>, info: &Info) -> Self {
        let attr = CqAttr {
            wait: WaitObj::Fd,
            ..CqAttr::default()
        };
        let cq = domain.cq(&attr).expect("a queue");
        let ep = domain.endpoint(info, FidToken(1)).expect("an endpoint");
        assert_eq!(ep.enable(), Err(Errno::ENOAV));
        let av = domain.av(&AvAttr::default()).expect("an address vector");
        ep.bind_av(&av).expect("bound");
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV).expect("bound");
        let sent = domain.counter(&CounterAttr::default()).expect("a counter");
        ep.bind_counter(&sent, Flags::SEND).expect("bound");
        assert_eq!(ep.name(), Err(Errno::EOPBADSTATE));
        let memory = Parked::park(vec![0; MEMORY]);
        let mr = memory::register(domain, memory.buf(), flags![SEND RECV]);
        ep.enable().expect("enabled");
        Self {
            ep,
            cq,
            av,
            sent,
            mr,
            memory,
        }
    }

    fn insert(&self, peer: &Address) -> FiAddr {
        self.av.insert(peer).expect("inserted")
    }

    fn part(&self, at: usize, len: usize) -> UserBuf {
        self.memory.buf().slice(at, len).expect("inside")
    }

    /// Posts a receive for `len` bytes and the header.
    fn receive(&self, slot: usize, len: usize) {
        let buf = self.part(slot * ROOM, HEADER + len);
        let posted = self
            .ep
            .recv(RecvKind::Msg, &[buf], FiAddr::UNSPEC, slot, None);
        posted.expect("posted");
    }

    fn received(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let buf = self.part(slot * ROOM + HEADER, len);
        assert_eq!(copy_in(&mut bytes, buf), len);
        bytes
    }

    /// Sends bytes, which are not used any more when this returns; nothing is to be read meanwhile.
    fn send(&self, bytes: &[u8], data: Option<u64>, to: FiAddr) {
        let before = self.sent.read();
        let buf = self.part(OUT, bytes.len());
        copy_out(buf, bytes);
        until(PATIENCE, "room", || {
            let flags = Some(Flags::empty());
            let posted = self.ep.send(SendKind::Msg, &[buf], data, to, 1000, flags);
            if posted == Err(Errno::EAGAIN) {
                return None;
            }
            posted.expect("posted");
            Some(())
        });
        until(PATIENCE, "send", || {
            (self.sent.read() > before).then_some(())
        });
    }

    fn next(&self, patience: Duration) -> Option<Result<Completion, CompletionError>> {
        common::next(&*self.cq, Some(patience)).map(|ended| ended.map_err(|(error, _)| error))
    }

    /// The next receive.
    fn arrived(&self) -> Completion {
        loop {
            let entry = self.next(PATIENCE).expect("a completion").expect("success");
            if entry.flags.contains(Flags::RECV) {
                return entry;
            }
            assert_eq!((entry.flags, entry.context), (flags![MSG SEND], 1000));
        }
    }

    /// The next failure.
    fn failure(&self) -> CompletionError {
        loop {
            if let Err(failure) = self.next(PATIENCE).expect("a completion") {
                return failure;
            }
        }
    }
}

fn pattern(seed: u32, len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| ((i * 31) ^ seed) as u8).collect()
}

/// A datagram that arrives, and nothing else does.
fn arrives(from: &Side, to: FiAddr, at: &Side, seed: u32, len: usize) {
    let slot = seed as usize % RECEIVES;
    at.receive(slot, len);
    let bytes = pattern(seed, len);
    from.send(&bytes, Some(seed.into()), to);
    let entry = at.arrived();
    assert_eq!(
        (entry.context, entry.len),
        (slot, HEADER + len),
        "{entry:?}"
    );
    assert_eq!(entry.data, seed.into());
    assert_eq!(entry.flags, flags![MSG RECV REMOTE_CQ_DATA]);
    assert_eq!(at.received(slot, len), bytes);
}

/// What one process sees of its own endpoints.
fn alone() {
    let (provider, info) = find();
    let fabric = provider.fabric(&info.fabric).expect("a fabric");
    let domain = fabric.safe_domain(&info).expect("a domain");
    let most = info.ep.max_msg_size;
    let (a, b) = (Side::new(&domain, &info), Side::new(&domain, &info));
    let name = b.ep.name().expect("a name");
    assert_eq!(name.to_string().parse::<Address>(), Ok(name.clone()));
    let to_b = a.insert(&name);
    assert_eq!(
        (to_b, a.av.lookup(to_b)),
        (a.insert(&name), Ok(name.clone()))
    );
    assert_eq!(a.ep.connect(&name, b""), Err(Errno::ENOSYS));
    for (seed, len) in [0, 1, 255, 256, 257, most].into_iter().enumerate() {
        arrives(&a, to_b, &b, seed as u32, len);
    }
    refuse(&a, to_b, most);

    // Nobody has posted a receive: only that is lost.
    a.send(&pattern(50, 100), None, to_b);
    arrives(&a, to_b, &b, 51, 100);
    // Longer than the receive: that is told, and the next ones arrive.
    for (slot, len) in [(0, 0), (1, 1), (2, most - 1)] {
        b.receive(slot, len);
        a.send(&pattern(52, most), None, to_b);
        let failure = b.failure();
        let at_most = HEADER + len;
        assert_eq!((failure.err, failure.entry.context), (Errno::ETRUNC, slot));
        assert_eq!((failure.entry.len, failure.olen), (at_most, most - len));
        assert_eq!(b.received(slot, len), pattern(52, most)[..len]);
        arrives(&a, to_b, &b, 53, most);
    }
    remove(&a, to_b, &b);
    recover(&domain, &a, &b);
    println!("one process: all right");
    drop((a.mr.key(), b));
}

/// What cannot be sent.
fn refuse(a: &Side, to: FiAddr, most: usize) {
    let send = |len, to, flags| {
        let buf = a.part(OUT, len);
        a.ep.send(SendKind::Msg, &[buf], None, to, 0, Some(flags))
    };
    assert_eq!(send(most + 1, to, Flags::empty()), Err(Errno::EMSGSIZE));
    assert_eq!(send(8, FiAddr(77), Flags::empty()), Err(Errno::EINVAL));
    assert_eq!(
        send(8, FiAddr::NOTAVAIL, Flags::empty()),
        Err(Errno::EINVAL)
    );
    let delivered = Flags::DELIVERY_COMPLETE;
    assert_eq!(send(8, to, delivered), Err(Errno::EBADFLAGS));
    let nobody = "fi_addr_ib_ud://:::10/0/ffff/0"
        .parse()
        .expect("an address");
    assert_eq!(a.av.insert(&nobody), Err(Errno::EADDRNOTAVAIL));
    let ip = "fi_sockaddr_in://10.0.0.1:7".parse().expect("an address");
    assert_eq!(a.av.insert(&ip), Err(Errno::EINVAL));
    // A GID that no host has.
    let far = "fi_addr_ib_ud://2001:db8::77:10/0/ffff/0"
        .parse()
        .expect("an address");
    println!("a peer that no network reaches: {:?}", a.av.insert(&far));
}

/// A peer that is removed while datagrams for it wait still gets them.
fn remove(a: &Side, to_b: FiAddr, b: &Side) {
    for slot in 0..8 {
        b.receive(slot, 1000);
    }
    let buf = a.part(OUT, 1000);
    for left in (0..8).rev() {
        let flags = if left > 0 {
            Flags::MORE
        } else {
            Flags::empty()
        };
        let posted =
            a.ep.send(SendKind::Msg, &[buf], None, to_b, 1000, Some(flags));
        posted.expect("posted");
    }
    let name = a.av.lookup(to_b).expect("a name");
    // It was inserted twice.
    a.av.remove(to_b).expect("removed");
    a.av.remove(to_b).expect("removed");
    assert_eq!(a.av.remove(to_b), Err(Errno::EINVAL));
    for _ in 0..8 {
        assert_eq!(b.arrived().len, HEADER + 1000);
    }
    let posted = a.ep.send(SendKind::Msg, &[buf], None, to_b, 1000, None);
    assert_eq!(posted, Err(Errno::EINVAL));
    assert_eq!(a.insert(&name), to_b);
    a.send(&[], None, to_b);
}

/// A receive whose region is gone fails, and what was posted with it; then the endpoint goes on.
fn recover(domain: &Arc<Domain>, a: &Side, b: &Side) {
    let lost = Parked::park(vec![0; 4096]);
    let region = memory::register(domain, lost.buf(), flags![SEND RECV]);
    let posted =
        b.ep.recv(RecvKind::Msg, &[lost.buf()], FiAddr::UNSPEC, 1, None);
    posted.expect("posted");
    b.receive(2, 100);
    drop(region);
    let to_b = a.insert(&b.ep.name().expect("a name"));
    a.send(&pattern(60, 100), None, to_b);
    let (first, second) = (b.failure(), b.failure());
    println!(
        "a receive without its region: {}, then {}",
        first.err, second.err
    );
    assert_eq!((first.entry.context, second.entry.context), (1, 2));
    assert_eq!(second.err, Errno::ECANCELED);
    arrives(a, to_b, b, 61, 100);
    let to_a = b.insert(&a.ep.name().expect("a name"));
    arrives(b, to_a, a, 62, 100);
}

/// One of the crowd: tells its address, hears those of the others, sends to each in an order of its own while it
/// takes what comes, and tells how much that was when it is told to stop.
fn member(number: usize) {
    let (provider, info) = find();
    let fabric = provider.fabric(&info.fabric).expect("a fabric");
    let domain = fabric.safe_domain(&info).expect("a domain");
    let side = Side::new(&domain, &info);
    for slot in 0..RECEIVES {
        side.receive(slot, ROOM - HEADER);
    }
    println!("{}", side.ep.name().expect("a name"));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("addresses");
    let peers: Vec<FiAddr> = line
        .split_whitespace()
        .map(|name| side.insert(&name.parse().expect("an address")))
        .collect();
    let mut arrived = vec![0_u32; PROCESSES];
    for round in 0..DATAGRAMS {
        if round == DATAGRAMS / 4 {
            println!("on the way");
        }
        for at in 0..PROCESSES {
            let peer = (at + number + round as usize) % PROCESSES;
            if peer != number {
                let len = 8 + (round as usize * 37 + peer) % 1000;
                let mut bytes = pattern(round, len);
                bytes[0] = number as u8;
                bytes[1] = peer as u8;
                bytes[2] = round as u8;
                side.send(&bytes, Some(round.into()), peers[peer]);
            }
            take(&side, number, &mut arrived, Duration::ZERO);
        }
        // Some are slower.
        std::thread::sleep(Duration::from_micros(200 * (number as u64 % 3)));
    }
    while take(&side, number, &mut arrived, Duration::from_secs(1)) {}
    println!(
        "{}",
        arrived
            .iter()
            .map(u32::to_string)
            .collect::<Vec<_>>()
            .join(" ")
    );
}

/// Takes what has come, and checks it; whether anything has.
fn take(side: &Side, number: usize, arrived: &mut [u32], patience: Duration) -> bool {
    let mut any = false;
    while let Some(entry) = side.next(if any { Duration::ZERO } else { patience }) {
        let entry = entry.expect("success");
        if entry.flags.contains(Flags::SEND) {
            continue;
        }
        any = true;
        let len = entry.len - HEADER;
        let bytes = side.received(entry.context, len);
        let (from, to) = (bytes[0] as usize, bytes[1] as usize);
        let round = entry.data as u32;
        assert!(from < PROCESSES && to == number && bytes[2] == round as u8);
        assert_eq!(len, 8 + (round as usize * 37 + to) % 1000);
        assert_eq!(bytes[3..], pattern(round, len)[3..]);
        arrived[from] += 1;
        side.receive(entry.context, ROOM - HEADER);
    }
    any
}

/// Nine processes, of which the last two are killed after a quarter of their way.
fn crowd() {
    let own = std::env::current_exe().expect("a program");
    let mut members: Vec<Child> = (0..PROCESSES)
        .map(|number| {
            let mut command = Command::new(&own);
            command.arg("member").arg(number.to_string());
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command.spawn().expect("started")
        })
        .collect();
    let mut outputs: Vec<_> = members
        .iter_mut()
        .map(|member| BufReader::new(member.stdout.take().expect("an output")).lines())
        .collect();
    let mut line = || -> Vec<String> {
        let each = outputs.iter_mut();
        each.map(|lines| lines.next().expect("a line").expect("text"))
            .collect()
    };
    let names = line();
    for member in &mut members {
        let mut input = member.stdin.take().expect("an input");
        writeln!(input, "{}", names.join(" ")).expect("told");
    }
    for told in line() {
        assert_eq!(told, "on the way");
    }
    for mut killed in members.split_off(PROCESSES - 2) {
        killed.kill().expect("killed");
        killed.wait().expect("ended");
    }
    for (number, mut member) in members.into_iter().enumerate() {
        let counts = outputs[number].next().expect("a line").expect("text");
        assert!(member.wait().expect("ended").success(), "{number}");
        println!("{number} got {counts}");
        let counts: Vec<u32> = counts
            .split_whitespace()
            .map(|count| count.parse().expect("a number"))
            .collect();
        // Datagrams may be lost, where receives are not posted fast enough; most are not.
        for (from, count) in counts[..PROCESSES - 2].iter().enumerate() {
            let least = if from == number { 0 } else { DATAGRAMS / 4 };
            assert!((least..=DATAGRAMS).contains(count), "{count} from {from}");
        }
    }
    println!("{PROCESSES} processes: all right");
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    match args.get(1).map(String::as_str) {
        Some("member") => member(args[2].parse().expect("a number")),
        _ => {
            alone();
            crowd();
        }
    }
}
