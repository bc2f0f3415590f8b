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
use ripstop_wire::xnet::base::{BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs};
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
    Run(u8),
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
        8 => (1..20u8).prop_map(Move::Run)
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
    outbox: Vec<u8>,
    fates: HashMap<usize, Fate>,
    next: usize,
    /// Messages of the friend received by the victim.
    received: Vec<(usize, UserBuf)>,
    rng: Rng,
}

impl Scene {
    /// A foe that says it has this order of bytes, and the version of the greeting.
    fn new(seed: u64, order: ByteOrder, version: u8) -> Self {
        let timing = Timing {
            delay: 10,
            per_byte: 0,
            capacity: 700,
            choppy: true,
        };
        let net = Net::enter(timing, seed);
        let victim = Node::open(&net, VICTIM, 1, &NodeConfig::new(&[FRIEND, FOE])).unwrap();
        let friend = Node::open(&net, FRIEND, 2, &NodeConfig::new(&[VICTIM])).unwrap();
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
            outbox,
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
            let _ = self.net.lock().read(self.foe, &mut [0; 200]);
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
    let mut scene = Scene::new(seed, order, (seed % 2) as u8);
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
