//! A victim, its friend and a foe, and the rules that hold whatever the foe does.

use std::collections::HashMap;

use fastrand::Rng;
use ripstop_core::provider::{Endpoint as _, RecvKind, SendKind};
use ripstop_mem::UserBuf;
use ripstop_sim::memory::{CANARY, read};
use ripstop_sim::network::End;
use ripstop_sim::{Entry, Memory, Net, Node, NodeConfig, Timing};
use ripstop_types::{Errno, FiAddr, Flags};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{Body, MAX_UNIT_HEADER, Packet, Parting, Unit, emit_packet};
use ripstop_wire::xnet::base::{self, BaseFlags, MAX_HEADER};
use ripstop_wire::xnet::cm::{self, Kind};
use ripstop_wire::xnet::rdm::Greeting;

use crate::moves::Move;

const VICTIM: u16 = 1;
const FRIEND: u16 = 2;
pub(crate) const FOE: u16 = 66;

/// Calls of progress after which a domain has asked its poller.
const ENOUGH: u32 = 100;

/// Lengths of the friend's messages.
const LENS: [usize; 4] = [0, 10, 400, 2000];

/// What became of an operation of the victim.
#[derive(Default)]
pub(crate) struct Fate {
    pub(crate) successes: u32,
    pub(crate) failures: u32,
    is_send: bool,
    multi: bool,
    released: bool,
}

pub(crate) struct Scene {
    victim: Node,
    friend: Node,
    net: Net,
    /// Dropped behind the nodes.
    memory: Memory,
    /// The foe's end of its stream.
    foe: End,
    /// It has reset an earlier connection.
    has_reset: bool,
    order: ByteOrder,
    /// What it begins a connection with.
    greeting: Vec<u8>,
    pub(crate) outbox: Vec<u8>,
    /// What it has read.
    inbox: Vec<u8>,
    pub(crate) fates: HashMap<usize, Fate>,
    /// The context of its last operation.
    pub(crate) next: usize,
    /// Messages of the friend received by the victim.
    received: Vec<(usize, UserBuf)>,
    rng: Rng,
}

impl Scene {
    /// A foe that says it has this order of bytes, and the version of the greeting.
    pub(crate) fn new(seed: u64, order: ByteOrder, version: u8) -> Self {
        Self::with(seed, order, version, &NodeConfig::new(&[]), 0)
    }

    /// All speak in packets, and the victim wants no more than one connection.
    pub(crate) fn in_packets(seed: u64) -> Self {
        let config = NodeConfig {
            packets: Some(100),
            ..NodeConfig::new(&[])
        };
        Self::with(seed, ByteOrder::NATIVE, 0, &config, 1)
    }

    /// Both nodes are as `config` says, and the victim has so many connections at most, 0 for any number.
    fn with(
        seed: u64,
        order: ByteOrder,
        version: u8,
        config: &NodeConfig,
        max_connections: usize,
    ) -> Self {
        let timing = Timing {
            delay: 10,
            per_byte: 0,
            capacity: 700,
            choppy: true,
        };
        let net = Net::enter(timing, seed);
        let knows = |known: &[u16], max_connections| NodeConfig {
            known: known.to_vec(),
            max_connections,
            ..config.clone()
        };
        let victim = Node::open(&net, VICTIM, 1, &knows(&[FRIEND, FOE], max_connections)).unwrap();
        let friend = Node::open(&net, FRIEND, 2, &knows(&[VICTIM], 0)).unwrap();
        let foe = net.lock().connect(FOE, VICTIM);
        let greeting = Greeting {
            version,
            ..Greeting::request(0, FOE, 3)
        };
        let greeting = greeting.emit();
        let request = cm::Header {
            host: order,
            ..cm::Header::new(Kind::Request, &greeting).expect("short")
        };
        let mut outbox = request.emit().expect("short").to_vec();
        outbox.extend(greeting);
        Self {
            victim,
            friend,
            net,
            memory: Memory::default(),
            foe,
            has_reset: false,
            order: ByteOrder::negotiated(order, ByteOrder::NATIVE),
            greeting: outbox.clone(),
            outbox,
            inbox: Vec::new(),
            fates: HashMap::new(),
            next: 0,
            received: Vec::new(),
            rng: Rng::with_seed(seed),
        }
    }

    fn context(&mut self) -> usize {
        self.next += 1;
        self.next
    }

    /// Everybody does something; returns whether anything moved.
    pub(crate) fn round(&mut self) -> bool {
        let before = self.net.lock().moves();
        let written = self.net.lock().write(self.foe, &self.outbox);
        if let Ok(count) = written {
            self.outbox.drain(..count);
        }
        // The foe reads what it gets, but not always.
        if self.rng.bool() {
            let mut bytes = [0; 200];
            let count = self.net.lock().read(self.foe, &mut bytes).unwrap_or(0);
            self.inbox.extend_from_slice(&bytes[..count]);
        }
        self.note();
        while self.victim.has_ready() || self.friend.has_ready() {
            self.note();
        }
        let mut net = self.net.lock();
        net.moves() != before || net.advance()
    }

    pub(crate) fn settle(&mut self) {
        let (mut moves, mut last, mut quiet) = (0, 0, 0);
        for _ in 0..100_000 {
            quiet = if self.round() { 0 } else { quiet + 1 };
            let net = self.net.lock();
            if net.moves() != moves {
                (moves, last) = (net.moves(), net.now());
            }
            // Timers may go on that have nothing to do.
            if quiet > ENOUGH || net.now() > last + 10_000_000_000 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Both nodes make progress; notes completions of the victim.
    fn note(&mut self) {
        while let Some(entry) = self.victim.read() {
            let completion = *entry.completion();
            if completion.flags.contains(Flags::REMOTE_WRITE) {
                // A write of nothing needs no key, and may bring data for the queue.
                assert_eq!(
                    completion.len, 0,
                    "memory that is not registered was written"
                );
                continue;
            }
            let fate = self.fates.get_mut(&completion.context);
            let fate = fate.expect("a completion of nothing");
            match entry {
                Entry::Success(_) => fate.successes += 1,
                Entry::Failure(..) => fate.failures += 1,
            }
            assert!(!fate.released, "it ended before");
            fate.released = !fate.multi || completion.flags.contains(Flags::MULTI_RECV);
        }
        while let Some(entry) = self.friend.read() {
            assert!(
                matches!(entry, Entry::Success(_)),
                "the friend was disturbed: {entry:?}"
            );
        }
    }

    pub(crate) fn perform(&mut self, step: &Move) {
        match step {
            Move::Header(header, payload) => {
                let mut bytes = [0; MAX_HEADER];
                if let Ok(len) = header.emit(self.order, &mut bytes) {
                    self.outbox.extend(&bytes[..len]);
                    self.outbox.extend(vec![0x77; *payload]);
                }
            }
            Move::Packet(body, payload) => {
                self.packet(*body, None);
                self.outbox.extend(vec![0x77; *payload]);
            }
            Move::Part(said, noise) => {
                self.packet(Body::Part(Parting::Ask), Some((*said, *noise)));
            }
            Move::Connect => {
                let mut net = self.net.lock();
                net.reset(self.foe);
                self.foe = net.connect(FOE, VICTIM);
                drop(net);
                self.has_reset = true;
                self.outbox.clone_from(&self.greeting);
                self.inbox.clear();
            }
            Move::Garbage(bytes) => self.outbox.extend(bytes),
            Move::Recv(tag, len, multi) => self.recv((*tag, FOE), *len, *multi),
            Move::Peek(tag, claim, discard) => self.peek(*tag, *claim, *discard),
            Move::Send(len, ack) => {
                let context = self.context();
                let buf = self.memory.buffer(&vec![0x33; *len]);
                if send(&self.victim, FOE, buf, context, *ack) {
                    let fate = Fate {
                        is_send: true,
                        ..Fate::default()
                    };
                    self.fates.insert(context, fate);
                }
                self.note();
            }
            Move::Run(rounds) => {
                for _ in 0..*rounds {
                    self.round();
                }
            }
        }
    }

    /// The header of a packet, which says something else where there is `other`, with any bytes in its unused fields.
    fn packet(&mut self, body: Body, other: Option<(u8, [u8; 8])>) {
        let mut bytes = [0; MAX_UNIT_HEADER];
        let packet = Packet { conn: 0, body };
        let emitted = emit_packet(self.order, BaseFlags::empty(), &packet, &mut bytes);
        // One that is too long for its length to be said is not sent.
        let Ok(len) = emitted else { return };
        if let Some((said, noise)) = other {
            let packet = &mut bytes[base::BASE_LEN..];
            packet[34] = said;
            for unused in [16..24, 24..32, 40..48, 48..56, 56..64] {
                packet[unused].copy_from_slice(&noise);
            }
        }
        self.outbox.extend(&bytes[..len]);
    }

    /// What the victim has said to the foe in packets of this connection, whose payload is left out.
    pub(crate) fn said(&mut self) -> Vec<Body> {
        for _ in 0..500 {
            self.round();
        }
        let answer = cm::Header::parse(&self.inbox).expect("an answer");
        assert_eq!(answer.kind, Kind::Response);
        let mut rest = &self.inbox[cm::HEADER_LEN + usize::from(answer.data_len)..];
        let mut said = Vec::new();
        while !rest.is_empty() {
            let unit = Unit::parse(self.order, rest).expect("a unit");
            rest = &rest[unit.header_len() + unit.payload_len() as usize..];
            if let Unit::Packet(packet, _) = unit {
                said.push(packet.body);
            }
        }
        said
    }

    /// How the last operation of the victim has ended: successes and failures.
    pub(crate) fn last(&self) -> (u32, u32) {
        let fate = &self.fates[&self.next];
        (fate.successes, fate.failures)
    }

    pub(crate) fn recv(&mut self, (tag, src): (u64, u16), len: usize, multi: bool) {
        let context = self.context();
        let buf = self
            .memory
            .buffer(&vec![CANARY; len.max(usize::from(multi))]);
        // Only messages without a tag share a buffer.
        let kind = match multi {
            true => RecvKind::Msg,
            false => RecvKind::Tagged { tag, ignore: 0 },
        };
        let mut flags = Flags::COMPLETION;
        flags.set(Flags::MULTI_RECV, multi);
        let fate = Fate {
            multi,
            ..Fate::default()
        };
        self.fates.insert(context, fate);
        let addr = self.victim.fi_addr(src);
        let posted = self
            .victim
            .ep
            .recv(kind, &[buf], addr, context, Some(flags));
        posted.expect("there is room");
        if src == FRIEND {
            self.received.push((context, buf));
        }
        self.note();
    }

    /// Looks for a message; returns whether there is one.
    fn look(&mut self, kind: RecvKind, src: FiAddr, flags: Flags) -> Option<usize> {
        let context = self.context();
        self.fates.insert(context, Fate::default());
        let flags = Some(flags | Flags::PEEK | Flags::COMPLETION);
        let looked = self.victim.ep.recv(kind, &[], src, context, flags);
        looked.expect("a look is always taken");
        self.note();
        (self.fates[&context].successes == 1).then_some(context)
    }

    fn peek(&mut self, tag: u64, claim: bool, discard: bool) {
        let mut flags = Flags::empty();
        flags.set(Flags::CLAIM, claim);
        flags.set(Flags::DISCARD, discard);
        let kind = RecvKind::Tagged { tag, ignore: 0 };
        let src = self.victim.fi_addr(FOE);
        if let Some(context) = self.look(kind, src, flags)
            && claim
            && !discard
        {
            let buf = self.memory.buffer(&[CANARY; 500]);
            let flags = Some(Flags::CLAIM | Flags::COMPLETION);
            let claimed = self.victim.ep.recv(kind, &[buf], src, context, flags);
            // What had not arrived whole ends with its connection, this one or one that the foe has reset.
            if claimed == Err(Errno::ENOMSG) {
                let written = self.net.lock().write(self.foe, &[]);
                let has_ended = written == Err(Errno::ECONNRESET) || self.has_reset;
                assert!(has_ended, "it was set aside: {written:?}");
            } else {
                claimed.expect("it was set aside");
                self.fates.insert(context, Fate::default());
            }
            self.note();
        }
    }

    /// One message of the friend to the victim, expected or not.
    pub(crate) fn exchange(&mut self, number: usize) {
        let buf = self.memory.buffer(&vec![number as u8; LENS[number % 4]]);
        if number.is_multiple_of(2) {
            self.recv((1, FRIEND), 2000, false);
        }
        let sent = send(&self.friend, VICTIM, buf, number, true);
        assert!(sent, "there is room");
        if !number.is_multiple_of(2) {
            self.round();
            self.recv((1, FRIEND), 2000, false);
        }
    }

    /// The foe leaves; everything has ended.
    pub(crate) fn finish(mut self, friendly: usize) {
        self.settle();
        for (number, (context, buf)) in self.received.iter().enumerate() {
            let fate = &self.fates[context];
            assert_eq!((fate.successes, fate.failures), (1, 0), "message {number}");
            let bytes = read(&[*buf]);
            let mut front = bytes[..LENS[number % 4]].iter();
            assert!(front.all(|byte| *byte == number as u8));
        }
        assert_eq!(self.received.len(), friendly);
        self.net.lock().reset(self.foe);
        self.settle();
        for (context, fate) in &self.fates {
            let ended = fate.successes + fate.failures;
            if fate.is_send {
                assert_eq!(ended, 1, "send {context}");
            }
            assert!(fate.multi || ended <= 1, "receive {context}");
        }
        let open = self.fates.iter().filter(|(_, fate)| !fate.is_send);
        let open: Vec<usize> = open
            .filter(|(_, fate)| !fate.released)
            .map(|(context, _)| *context)
            .collect();
        for context in open {
            let cancelled = self.victim.ep.cancel(context);
            cancelled.expect("it did not end, so it is posted");
            self.note();
        }
        // What had arrived whole before the foe left waits for a receive.
        let any = RecvKind::Tagged {
            tag: 0,
            ignore: u64::MAX,
        };
        for kind in [any, RecvKind::Msg] {
            while self.look(kind, FiAddr::UNSPEC, Flags::DISCARD).is_some() {}
        }
        let Self {
            victim,
            friend,
            memory,
            ..
        } = self;
        drop((victim, friend));
        memory.assert_guards();
    }
}

/// Sends a message; returns whether there was room.
fn send(node: &Node, to: u16, buf: UserBuf, context: usize, ack: bool) -> bool {
    let mut flags = Flags::COMPLETION;
    flags.set(Flags::DELIVERY_COMPLETE, ack);
    let (kind, dest) = (SendKind::Tagged(1), node.fi_addr(to));
    node.ep
        .send(kind, &[buf], None, dest, context, Some(flags))
        .is_ok()
}
