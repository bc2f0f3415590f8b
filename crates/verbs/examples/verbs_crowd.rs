//! Tries the provider with processes that are out of step: one listens, eight connect to it and send, and some of
//! them are killed. Every message of those that end well arrives, in order; every connection's end is told, and what
//! was posted to it ends. The laboratory runs it (`lab/cases/verbs_crowd.sh`).
#![forbid(unsafe_code)]

mod common;
#[path = "common/memory.rs"]
mod memory;

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_core::eq::{EqAttr, Event, EventQueue};
use ripstop_core::provider::{
    CqAttr, Domain as _, Endpoint as _, Fabric as _, PassiveEp as _, Provider as _, RecvKind,
    SendKind,
};
use ripstop_core::{Address, FidToken, Info};
use ripstop_mem::{Parked, UserBuf, copy_in, copy_out};
use ripstop_types::{Completion, EpType, Errno, FiAddr, Flags, flags};
use ripstop_verbs::{Cq, Domain, Endpoint, Fabric, Mr, VerbsProvider};

/// More than anything here takes.
const PATIENCE: Duration = Duration::from_secs(25);
const CLIENTS: usize = 8;
/// Receives that each connection has posted.
const RECEIVES: usize = 16;
/// Bytes of a message: who sends it, and its number.
const LEN: usize = 16;
const LISTENER: FidToken = FidToken(1000);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Sends so many messages and ends the connection.
    Ends(u64),
    /// Sends so many messages and exits without a word.
    Leaves(u64),
    /// Sends until it is killed, which happens when so many have come.
    Sends(u64),
    /// Connects, sends nothing, and is killed.
    Waits,
}

impl Role {
    const fn of(client: usize) -> Self {
        match client % 4 {
            0 => Self::Ends(300),
            1 => Self::Sends(40),
            2 => Self::Leaves(100),
            _ => Self::Waits,
        }
    }
}

/// What both kinds of processes have.
struct Site {
    fabric: Arc<Fabric>,
    domain: Arc<Domain>,
    info: Info,
    eq: Arc<EventQueue>,
    cq: Arc<Cq>,
    start: Instant,
}

impl Site {
    fn open() -> Self {
        let provider = VerbsProvider::new();
        let infos = common::infos(&provider, EpType::Msg, Flags::MSG);
        let info = infos.into_iter().next().expect("an offer of IPv4");
        let fabric = provider.fabric(&info.fabric).expect("a fabric");
        let domain = fabric.safe_domain(&info).expect("a domain");
        let cq = domain.cq(&CqAttr::default()).expect("a queue");
        let eq = EventQueue::open(&EqAttr::default()).expect("a queue");
        Self {
            fabric,
            domain,
            info,
            eq: Arc::new(eq),
            cq,
            start: Instant::now(),
        }
    }

    fn check_time(&self, what: &dyn Fn() -> String) {
        let elapsed = self.start.elapsed();
        assert!(elapsed < PATIENCE, "after {elapsed:?}: {}", what());
    }

    fn event(&self) -> Option<Event> {
        match self.eq.read() {
            Ok(event) => Some(event),
            Err(Errno::EAGAIN) => None,
            Err(error) => panic!("no event: {error}, {:?}", self.eq.read_error(true)),
        }
    }

    /// The next completion, or the context of what has failed.
    fn completion(&self) -> Option<Result<Completion, usize>> {
        let ended = common::next(&*self.cq, None)?;
        Some(ended.map_err(|(error, _)| error.entry.context))
    }

    fn endpoint(&self, info: &Info, token: FidToken) -> Side {
        let ep = self.domain.endpoint(info, token).expect("an endpoint");
        ep.bind_cq(&self.cq, flags![SEND RECV]).expect("bound");
        ep.bind_eq(&self.eq).expect("bound");
        let memory = Parked::park(vec![0; RECEIVES * LEN]);
        let mr = memory::register(&self.domain, memory.buf(), flags![SEND RECV]);
        ep.enable().expect("enabled");
        Side {
            ep,
            _mr: mr,
            memory,
        }
    }
}

/// An endpoint with its memory, which ends after it.
struct Side {
    ep: Arc<Endpoint>,
    _mr: Arc<Mr>,
    memory: Parked,
}

impl Side {
    fn place(&self, slot: usize) -> UserBuf {
        self.memory.buf().slice(slot * LEN, LEN).expect("inside")
    }
}

/// A connection of the listening process.
struct Connection {
    side: Side,
    /// Who sends, once a message has said it.
    client: Option<usize>,
    /// Messages that have come.
    came: u64,
    is_up: bool,
    has_ended: bool,
    /// Receives that have not ended.
    posted: usize,
}

struct Server {
    site: Site,
    connections: Vec<Connection>,
    children: Vec<Child>,
    /// Clients that were killed.
    killed: Vec<bool>,
}

impl Server {
    fn post(&mut self, number: usize, slot: usize) {
        let connection = &mut self.connections[number];
        let buf = [connection.side.place(slot)];
        let context = number << 16 | slot;
        let any = FiAddr::UNSPEC;
        let posted = connection
            .side
            .ep
            .recv(RecvKind::Msg, &buf, any, context, None);
        posted.expect("posted");
        connection.posted += 1;
    }

    fn kill(&mut self, client: usize) {
        if !std::mem::replace(&mut self.killed[client], true) {
            self.children[client].kill().expect("killed");
        }
    }

    fn take_event(&mut self, event: Event) {
        match event {
            Event::ConnReq { info, data, .. } => {
                let number = self.connections.len();
                let side = self.site.endpoint(&info, FidToken(number + 1));
                let client = usize::from(data[0]);
                self.connections.push(Connection {
                    side,
                    client: Some(client),
                    came: 0,
                    is_up: false,
                    has_ended: false,
                    posted: 0,
                });
                for slot in 0..RECEIVES {
                    self.post(number, slot);
                }
                let accepted = self.connections[number].side.ep.accept(b"");
                accepted.expect("accepted");
            }
            Event::Connected { ep, .. } => {
                let connection = &mut self.connections[ep.0 - 1];
                connection.is_up = true;
                let client = connection.client.expect("known");
                if Role::of(client) == Role::Waits {
                    self.kill(client);
                }
            }
            Event::Shutdown { ep } => self.connections[ep.0 - 1].has_ended = true,
            other => panic!("{other:?}"),
        }
    }

    fn take_message(&mut self, entry: &Completion) {
        let (number, slot) = (entry.context >> 16, entry.context & 0xffff);
        let connection = &mut self.connections[number];
        connection.posted -= 1;
        let mut bytes = [0; LEN];
        copy_in(&mut bytes, connection.side.place(slot));
        let (sender, count) = bytes.split_at(LEN / 2);
        let sender = u64::from_ne_bytes(sender.try_into().expect("eight bytes"));
        let count = u64::from_ne_bytes(count.try_into().expect("eight bytes"));
        assert_eq!(Some(sender as usize), connection.client);
        assert_eq!(count, connection.came, "of client {sender}");
        connection.came += 1;
        if Role::of(sender as usize) == Role::Sends(connection.came) {
            self.kill(sender as usize);
        }
        self.post(number, slot);
    }

    fn is_done(&self) -> bool {
        let all = self.connections.len() == CLIENTS;
        all && self
            .connections
            .iter()
            .all(|connection| connection.has_ended && connection.posted == 0)
    }

    fn state(&self) -> String {
        let of = |connection: &Connection| {
            let Connection {
                client,
                came,
                is_up,
                has_ended,
                posted,
                ..
            } = connection;
            format!("{client:?}: came {came}, up {is_up}, ended {has_ended}, posted {posted}\n")
        };
        self.connections.iter().map(of).collect()
    }

    fn run(&mut self) {
        while !self.is_done() {
            self.site.check_time(&|| self.state());
            if let Some(event) = self.site.event() {
                self.take_event(event);
            }
            match self.site.completion() {
                None => {}
                Some(Ok(entry)) => self.take_message(&entry),
                Some(Err(context)) => self.connections[context >> 16].posted -= 1,
            }
        }
        for connection in &self.connections {
            let client = connection.client.expect("known");
            let came = connection.came;
            match Role::of(client) {
                Role::Ends(count) | Role::Leaves(count) => assert_eq!(came, count, "of {client}"),
                Role::Sends(least) => assert!(came >= least, "{came} of {client}"),
                Role::Waits => assert_eq!(came, 0),
            }
        }
        for (client, child) in self.children.iter_mut().enumerate() {
            let status = child.wait().expect("ended");
            assert_eq!(status.success(), !self.killed[client], "client {client}");
        }
    }
}

/// The listening process: the others are its children.
fn serve() {
    let site = Site::open();
    let listener = site.fabric.passive_ep(&site.info, LISTENER);
    let listener = listener.expect("a listener");
    listener.bind_eq(&site.eq).expect("bound");
    listener.listen().expect("listening");
    let Ok(Address::Ip(address)) = listener.name() else {
        panic!("an IP address");
    };
    let program = std::env::current_exe().expect("this program");
    let start = |client: usize| {
        let mut command = Command::new(&program);
        command.args([client.to_string(), address.to_string()]);
        command.spawn().expect("started")
    };
    let mut server = Server {
        site,
        connections: Vec::new(),
        children: (0..CLIENTS).map(start).collect(),
        killed: vec![false; CLIENTS],
    };
    server.run();
    let came: u64 = server.connections.iter().map(|one| one.came).sum();
    println!("verbs_crowd: {CLIENTS} clients, {came} messages, all ends told: all right");
}

/// A connecting process.
fn connect(client: usize, address: SocketAddr) {
    // Out of step, also with those of the same role.
    std::thread::sleep(Duration::from_millis(40 * client as u64));
    let site = Site::open();
    let side = site.endpoint(&site.info, FidToken(1));
    side.ep
        .connect(&Address::Ip(address), &[client as u8])
        .expect("begun");
    let waits = |what: &str| site.check_time(&|| format!("client {client}: no {what}"));
    loop {
        waits("connection");
        match site.event() {
            None => {}
            Some(Event::Connected { .. }) => break,
            Some(other) => panic!("{other:?}"),
        }
    }
    let count = match Role::of(client) {
        Role::Ends(count) | Role::Leaves(count) => count,
        Role::Sends(_) => u64::MAX,
        Role::Waits => 0,
    };
    for number in 0..count {
        let message = [client as u64, number].map(u64::to_ne_bytes).concat();
        copy_out(side.place(0), &message);
        let buf = [side.place(0)];
        let sent = side
            .ep
            .send(SendKind::Msg, &buf, None, FiAddr::UNSPEC, 0, None);
        sent.expect("posted");
        while site.completion().is_none() {
            waits("completion");
        }
    }
    match Role::of(client) {
        Role::Ends(_) => side.ep.shutdown().expect("begun"),
        Role::Leaves(_) => std::process::exit(0),
        Role::Sends(_) | Role::Waits => loop {
            waits("end");
            std::thread::yield_now();
        },
    }
    while site.event().is_none() {
        waits("end of the connection");
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    match (args.next(), args.next()) {
        (Some(client), Some(address)) => connect(
            client.parse().expect("a number"),
            address.parse().expect("an address"),
        ),
        _ => serve(),
    }
}
