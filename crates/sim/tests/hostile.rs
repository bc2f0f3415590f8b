//! A peer that does not keep to the protocol: nothing panics, what waited for it ends, and
//! what others do is not disturbed.

use std::collections::HashMap;

use fastrand::Rng;
use proptest::prelude::*;
use ripstop_core::provider::{Endpoint as _, RecvKind, SendKind};
use ripstop_mem::UserBuf;
use ripstop_sim::memory::{CANARY, read};
use ripstop_sim::network::End;
use ripstop_sim::{Entry, Memory, Net, Node, NodeConfig, Timing};
use ripstop_types::{FiAddr, Flags};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::{
    Body, MAX_UNIT_HEADER, Message, Packet, Part, Parting, Segment, Unit, emit_packet,
};
use ripstop_wire::xnet::base::{self, BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs};
use ripstop_wire::xnet::cm::{self, Kind};
use ripstop_wire::xnet::rdm::Greeting;

const VICTIM: u16 = 1;
const FRIEND: u16 = 2;
const FOE: u16 = 66;

/// What the foe sends next.
#[derive(Clone, Debug)]
enum Move {
    /// A well-formed header, and this many bytes of payload, which may not be as many as
    /// the header says.
    Header(Header, usize),
    /// A packet, and this many bytes of payload.
    Packet(Body, usize),
    /// A packet that says something of the end of the connection, or nothing that means anything, with any bytes where
    /// it has no fields.
    Part(u8, [u8; 8]),
    /// Another connection in place of the one before, which ends.
    Connect,
    /// Any bytes.
    Garbage(Vec<u8>),
    /// The victim posts a receive for the foe's tag, of this length, into a multi-receive
    /// buffer or not.
    Recv(u64, usize, bool),
    /// The victim looks for the foe's tag.
    Peek(u64, bool, bool),
    /// The victim sends to the foe.
    Send(usize, bool),
    /// Things take their course.
    Run(u16),
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 0..100u64,
        2 => 100..5000u64,
        1 => Just(u64::MAX - 16),
        1 => Just(u64::MAX - 40),
        1 => any::<u64>().prop_map(|len| len.min(u64::MAX - 200))
    ]
}

fn header() -> impl Strategy<Value = Move> {
    let op = prop_oneof![
        3 => Just(Op::Msg),
        6 => Just(Op::Tag),
        4 => Just(Op::TagRts),
        4 => Just(Op::Cts),
        4 => Just(Op::Data),
        1 => Just(Op::ReadReq),
        1 => Just(Op::ReadRsp),
        1 => Just(Op::Write)
    ];
    let data = prop::option::weighted(0.2, any::<u64>());
    let right = prop::bool::weighted(0.8);
    (op, 0..4u64, 0..5u8, lengths(), data, any::<bool>(), right).prop_map(
        |(op, tag, index, len, data, ack, right)| {
            let flags = if ack {
                BaseFlags::DELIVERY_COMPLETE
            } else {
                BaseFlags::empty()
            };
            let payload = if op.may_have_payload() { len } else { 0 };
            let mut header = Header {
                flags,
                op_data: if op.has_index() {
                    index.max(1)
                } else {
                    index & 2
                },
                ..Header::new(op, payload)
            };
            if op.has_tag() {
                header.tag = tag;
            }
            if op == Op::TagRts {
                header.rts_size = len.min(1 << 40);
            }
            if op == Op::Msg && header.op_data == 2 {
                header.payload_len = 0;
            } else if op.may_carry_cq_data() {
                header.cq_data = data;
            }
            if op.has_rma() {
                let iov = RmaIov {
                    addr: tag,
                    len: header.payload_len,
                    key: 1,
                };
                header.rma = RmaIovs::new(&[iov]).expect("one segment");
            }
            let follows = header.payload_len.min(6000) as usize;
            Move::Header(header, if right { follows } else { follows / 2 })
        },
    )
}

fn step() -> impl Strategy<Value = Move> {
    prop_oneof![
        20 => header(),
        1 => prop::collection::vec(any::<u8>(), 1..60).prop_map(Move::Garbage),
        8 => (0..4u64, 0..3000usize, any::<bool>())
            .prop_map(|(tag, len, multi)| Move::Recv(tag, len, multi)),
        3 => (0..4u64, any::<bool>(), any::<bool>())
            .prop_map(|(tag, claim, discard)| Move::Peek(tag, claim, discard)),
        4 => (0..3000usize, any::<bool>()).prop_map(|(len, ack)| Move::Send(len, ack)),
        8 => (1..20u16).prop_map(Move::Run)
    ]
}

fn body() -> impl Strategy<Value = Body> {
    let tag = prop::option::weighted(0.8, 0..4u64);
    let data = prop::option::weighted(0.2, any::<u64>());
    let message = (tag, data, lengths()).prop_map(|(tag, data, len)| Message { tag, data, len });
    let part = prop::sample::select(vec![Part::First, Part::Middle, Part::Last]);
    (message, 0..4u64, 0..8u8, part).prop_map(|(message, id, kind, part)| match kind {
        0..3 => Body::Eager(message),
        3 => Body::Segment(
            message,
            Segment {
                id,
                number: id as u32,
                part,
                len: message.len.min(1000) as u16,
            },
        ),
        4 => Body::ReadDone(id),
        5 => Body::WriteDone(id),
        6 => Body::Credit(message.len),
        _ => {
            let iov = RmaIov {
                addr: id,
                len: message.len,
                key: id,
            };
            Body::Rendezvous {
                message,
                id,
                memory: RmaIovs::new(&[iov]).expect("one segment"),
            }
        }
    })
}

/// What a peer does that speaks in packets and knows of ends of connections.
fn step_in_packets() -> impl Strategy<Value = Move> {
    let packet = (body(), prop::bool::weighted(0.9)).prop_map(|(body, right)| {
        let follows = body.payload_len().min(6000) as usize;
        Move::Packet(body, if right { follows } else { follows / 2 })
    });
    prop_oneof![
        8 => packet,
        8 => (1..=3u8, any::<[u8; 8]>()).prop_map(|(said, noise)| Move::Part(said, noise)),
        1 => any::<(u8, [u8; 8])>().prop_map(|(said, noise)| Move::Part(said, noise)),
        6 => (50..300u16).prop_map(Move::Run),
        4 => Just(Move::Connect),
        8 => step()
    ]
}

/// What became of an operation of the victim.
#[derive(Default)]
struct Fate {
    successes: u32,
    failures: u32,
    is_send: bool,
    multi: bool,
    released: bool,
}

struct Scene {
    victim: Node,
    friend: Node,
    net: Net,
    /// Dropped behind the nodes.
    memory: Memory,
    /// The foe's end of its stream.
    foe: End,
    order: ByteOrder,
    /// What it begins a connection with.
    greeting: Vec<u8>,
    outbox: Vec<u8>,
    /// What it has read.
    inbox: Vec<u8>,
    fates: HashMap<usize, Fate>,
    next: usize,
    /// Messages of the friend received by the victim.
    received: Vec<(usize, UserBuf)>,
    rng: Rng,
}

impl Scene {
    /// A foe that says it has this order of bytes, and the version of the greeting.
    fn new(seed: u64, order: ByteOrder, version: u8) -> Self {
        Self::with(seed, order, version, &NodeConfig::new(&[]), 0)
    }

    /// All speak in packets, and the victim wants no more than one connection.
    fn in_packets(seed: u64) -> Self {
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
    fn round(&mut self) -> bool {
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

    fn settle(&mut self) {
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

    fn perform(&mut self, step: &Move) {
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
    fn said(&mut self) -> Vec<Body> {
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
    fn last(&self) -> (u32, u32) {
        let fate = &self.fates[&self.next];
        (fate.successes, fate.failures)
    }

    fn recv(&mut self, (tag, src): (u64, u16), len: usize, multi: bool) {
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
            self.fates.insert(context, Fate::default());
            let buf = self.memory.buffer(&[CANARY; 500]);
            let flags = Some(Flags::CLAIM | Flags::COMPLETION);
            let claimed = self.victim.ep.recv(kind, &[buf], src, context, flags);
            claimed.expect("it was set aside");
            self.note();
        }
    }

    /// One message of the friend to the victim, expected or not.
    fn exchange(&mut self, number: usize) {
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
    fn finish(mut self, friendly: usize) {
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

/// Calls of progress after which a domain has asked its poller.
const ENOUGH: u32 = 100;

/// Lengths of the friend's messages.
const LENS: [usize; 4] = [0, 10, 400, 2000];

/// Sends a message; returns whether there was room.
fn send(node: &Node, to: u16, buf: UserBuf, context: usize, ack: bool) -> bool {
    let mut flags = Flags::COMPLETION;
    flags.set(Flags::DELIVERY_COMPLETE, ack);
    let (kind, dest) = (SendKind::Tagged(1), node.fi_addr(to));
    node.ep
        .send(kind, &[buf], None, dest, context, Some(flags))
        .is_ok()
}

fn play(steps: &[Move], seed: u64, order: ByteOrder, spoil: Option<(usize, u8)>) {
    perform_all(Scene::new(seed, order, (seed % 2) as u8), steps, spoil);
}

fn perform_all(mut scene: Scene, steps: &[Move], spoil: Option<(usize, u8)>) {
    for _ in 0..60 {
        scene.round();
    }
    let mut friendly = 0;
    for step in steps {
        scene.perform(step);
        if let Some((at, bits)) = spoil
            && let Some(byte) = scene.outbox.get_mut(at)
        {
            *byte ^= bits;
        }
        if friendly < 12 {
            scene.exchange(friendly);
            friendly += 1;
        }
    }
    scene.finish(friendly);
}

#[test]
fn a_send_to_a_peer_that_is_gone_ends_though_its_message_is_unread() {
    // It is longer than what is kept, so the end of the stream is never read.
    let unread = Move::Header(Header::new(Op::Msg, 1 << 40), 3000);
    play(&[Move::Send(0, true), unread], 0, ByteOrder::Little, None);
}

const ASK: Move = Move::Part(Parting::Ask as u8, [0xff; 8]);
const AGREE: Move = Move::Part(Parting::Agree as u8, [0xff; 8]);
const STAY: Move = Move::Part(Parting::Stay as u8, [0xff; 8]);

/// A tagged message of the foe.
fn told(tag: u64, len: u64) -> Move {
    let message = Message {
        tag: Some(tag),
        data: None,
        len,
    };
    Move::Packet(Body::Eager(message), len as usize)
}

/// A foe that asks for the end of its connection, and breaks the rules.
#[test]
fn who_asks_for_an_end_twice_has_said_what_it_said() {
    let mut scene = Scene::in_packets(1);
    for step in [told(1, 50), ASK] {
        scene.perform(&step);
    }
    assert_eq!(scene.said(), [Body::Part(Parting::Agree)]);
    // What is posted now waits for the end of the connection; the next question is one too many.
    scene.perform(&Move::Send(10, false));
    assert_eq!(scene.last(), (0, 0));
    scene.perform(&ASK);
    scene.settle();
    assert_eq!(scene.last(), (0, 1), "nobody listens there");
    scene.recv((1, FOE), 100, false);
    assert_eq!(scene.last(), (1, 0));
    scene.exchange(0);
    scene.exchange(1);
    scene.finish(2);
}

#[test]
fn an_end_is_refused_where_operations_are_open() {
    let mut scene = Scene::in_packets(2);
    scene.recv((2, FOE), 100, false);
    scene.perform(&ASK);
    assert_eq!(scene.said(), [Body::Part(Parting::Stay)]);
    scene.perform(&ASK);
    assert_eq!(scene.said(), [Body::Part(Parting::Stay); 2]);
    scene.perform(&told(2, 50));
    assert_eq!(scene.said().len(), 2);
    assert_eq!(scene.last(), (1, 0));
    // An answer without a question ends the connection, and what waits for the foe.
    scene.recv((3, FOE), 100, false);
    scene.perform(&AGREE);
    scene.settle();
    assert_eq!(scene.last(), (0, 1));
    scene.exchange(0);
    scene.finish(1);
}

#[test]
fn a_foe_that_is_asked_may_stay_or_leave() {
    for (answer, sent) in [
        (STAY, (1, 0)),
        (AGREE, (0, 1)),
        (Move::Part(7, [0; 8]), (0, 1)),
    ] {
        let mut scene = Scene::in_packets(3);
        scene.said();
        // With the friend's there are two connections, of which the foe's was used before.
        scene.exchange(0);
        assert_eq!(scene.said(), [Body::Part(Parting::Ask)]);
        scene.perform(&Move::Send(10, false));
        assert_eq!(scene.last(), (0, 0));
        let at = scene.next;
        scene.perform(&answer);
        scene.settle();
        let fate = &scene.fates[&at];
        assert_eq!((fate.successes, fate.failures), sent, "{answer:?}");
        scene.exchange(1);
        scene.finish(2);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn well_formed_nonsense_disturbs_nobody(
        steps in prop::collection::vec(step(), 1..60),
        seed: u64,
        big: bool,
    ) {
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        play(&steps, seed, order, None);
    }

    #[test]
    fn ends_of_connections_that_nobody_has_agreed_on_disturb_nobody(
        steps in prop::collection::vec(step_in_packets(), 1..60),
        seed: u64,
    ) {
        perform_all(Scene::in_packets(seed), &steps, None);
    }

    #[test]
    fn spoilt_bytes_disturb_nobody(
        steps in prop::collection::vec(step(), 1..40),
        seed: u64,
        at in 0..64usize,
        bits in 1..=255u8,
    ) {
        play(&steps, seed, ByteOrder::Little, Some((at, bits)));
    }

    #[test]
    fn any_bytes_at_all_disturb_nobody(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        seed: u64,
    ) {
        play(&[Move::Recv(0, 100, false), Move::Garbage(bytes)], seed, ByteOrder::Little, None);
    }

    #[test]
    fn any_bytes_instead_of_a_greeting_disturb_nobody(
        bytes in prop::collection::vec(any::<u8>(), 1..400),
        keep in 0..41usize,
        seed: u64,
    ) {
        let mut scene = Scene::new(seed, ByteOrder::Little, 1);
        scene.outbox.truncate(keep);
        scene.outbox.extend(bytes);
        for number in 0..4 {
            scene.exchange(number);
        }
        scene.finish(4);
    }
}
