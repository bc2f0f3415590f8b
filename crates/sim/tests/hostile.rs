//! A peer that does not keep to the protocol: nothing panics, what waited for it ends, and
//! what others do is not disturbed.

use std::collections::HashMap;

use fastrand::Rng;
use proptest::prelude::*;
use ripstop_engine::Iov;
use ripstop_engine::matching::{Recv, Want};
use ripstop_engine::stream::{RecvFlags, Send};
use ripstop_sim::network::{End, Network, Timing};
use ripstop_sim::node::{Entry, Event, Node, NodeConfig};
use ripstop_types::{Errno, FiAddr};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::{BaseFlags, Header, MAX_HEADER, Op, RmaIov, RmaIovs};
use ripstop_wire::xnet::cm::{self, Kind};
use ripstop_wire::xnet::rdm::Greeting;

const VICTIM: u32 = 1;
const FRIEND: u32 = 2;
const FOE: u32 = 66;
const GUARD: u8 = 0xee;

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
                BaseFlags::NONE
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
    net: Network,
    victim: Node,
    friend: Node,
    /// The foe's end of its stream.
    foe: End,
    order: ByteOrder,
    outbox: Vec<u8>,
    fates: HashMap<usize, Fate>,
    next: usize,
    /// Messages of the friend received by the victim.
    received: Vec<(usize, Iov<ripstop_sim::SimBuf>)>,
    rng: Rng,
}

impl Scene {
    fn new(seed: u64, order: ByteOrder) -> Self {
        let timing = Timing {
            delay: 10,
            per_byte: 0,
            capacity: 700,
            choppy: true,
        };
        let mut net = Network::new(timing, seed);
        let mut config = NodeConfig::new(&[FRIEND, FOE]);
        config.hostile = vec![FOE];
        config.order = order;
        let victim = Node::new(VICTIM, 1, config, seed);
        let friend = Node::new(FRIEND, 2, NodeConfig::new(&[VICTIM]), seed + 1);
        for host in [VICTIM, FRIEND] {
            net.listen(host);
        }
        let foe = net.connect(FOE, VICTIM);
        let greeting = Greeting::request(0, FOE as u16, 3).emit();
        let request = cm::Header::new(Kind::Request, &greeting).expect("short");
        let mut outbox = request.emit().expect("short").to_vec();
        outbox.extend(greeting);
        Self {
            net,
            victim,
            friend,
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
        let mut moved = self.net.refuse();
        if let Ok(count) = self.net.write(self.foe, &self.outbox) {
            self.outbox.drain(..count);
            moved = true;
        }
        // The foe reads what it gets, but not always.
        if self.rng.bool() {
            moved |= self.net.read(self.foe, &mut [0; 200]).is_ok();
        }
        moved |= self.victim.progress(&mut self.net);
        moved |= self.friend.progress(&mut self.net);
        self.note();
        moved || self.net.advance(self.victim.next_timer())
    }

    fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..100_000 {
            quiet = if self.round() { 0 } else { quiet + 1 };
            if quiet > 20 {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    /// Notes completions of the victim.
    fn note(&mut self) {
        for event in self.victim.take_events() {
            let Event::Completed(entry) = event else {
                continue;
            };
            let completion = match entry {
                Entry::Success(completion) => completion,
                Entry::Failure(entry) => entry.error.entry,
            };
            if completion
                .flags
                .contains(ripstop_types::Flags::REMOTE_WRITE)
            {
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
                Entry::Failure(_) => fate.failures += 1,
            }
            assert!(!fate.released, "it ended before");
            let flags = completion.flags;
            fate.released = !fate.multi || flags.contains(ripstop_types::Flags::MULTI_RECV);
        }
        for event in self.friend.take_events() {
            if let Event::Completed(Entry::Failure(entry)) = event {
                panic!("the friend was disturbed: {entry:?}");
            }
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
            Move::Recv(tag, len, multi) => {
                let context = self.context();
                self.recv(*tag, FOE, *len, context, *multi);
            }
            Move::Peek(tag, claim, discard) => self.peek(*tag, *claim, *discard),
            Move::Send(len, ack) => {
                let context = self.context();
                let bytes = vec![0x33; *len];
                let iov = Iov::one(self.victim.memory.guarded(bytes, GUARD));
                let send = message(iov, context, *ack);
                if self.victim.send(&mut self.net, FOE, &send).is_ok() {
                    self.fates.insert(
                        context,
                        Fate {
                            is_send: true,
                            ..Fate::default()
                        },
                    );
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

    fn recv(&mut self, tag: u64, src: u32, len: usize, context: usize, multi: bool) {
        let buffer = self.victim.memory.guarded(vec![GUARD; len], GUARD);
        let mut recv = Recv::new(Iov::one(buffer), want(tag, src), context);
        recv.multi = multi;
        let fate = Fate {
            multi,
            ..Fate::default()
        };
        self.fates.insert(context, fate);
        let posted = self.victim.post_recv(&mut self.net, recv);
        posted.expect("there is room");
        if src == FRIEND {
            self.received.push((context, recv.iov));
        }
        self.note();
    }

    fn peek(&mut self, tag: u64, claim: bool, discard: bool) {
        let context = self.context();
        let flags = RecvFlags {
            peek: true,
            claim,
            discard,
        };
        self.fates.insert(context, Fate::default());
        let want = want(tag, FOE);
        self.victim.peek(&mut self.net, want, context, flags);
        self.note();
        if claim && !discard && self.fates[&context].successes == 1 {
            self.fates.insert(context, Fate::default());
            let buffer = self.victim.memory.guarded(vec![GUARD; 500], GUARD);
            let recv = Recv::new(Iov::one(buffer), want, context);
            let claimed = self.victim.claim(&mut self.net, recv, flags_of_claim());
            claimed.expect("it was set aside");
            self.note();
        }
    }

    /// One message of the friend to the victim, expected or not.
    fn exchange(&mut self, number: usize) {
        let context = self.context();
        let len = [0, 10, 400, 2000][number % 4];
        let iov = Iov::one(self.friend.memory.block(vec![number as u8; len]));
        if number.is_multiple_of(2) {
            self.recv(1, FRIEND, 2000, context, false);
        }
        let send = message(iov, number, true);
        let sent = self.friend.send(&mut self.net, VICTIM, &send);
        sent.expect("there is room");
        if !number.is_multiple_of(2) {
            self.round();
            self.recv(1, FRIEND, 2000, context, false);
        }
    }

    /// The foe leaves; everything has ended.
    fn finish(mut self, friendly: usize) {
        self.settle();
        for (number, (context, iov)) in self.received.iter().enumerate() {
            let fate = &self.fates[context];
            assert_eq!((fate.successes, fate.failures), (1, 0), "message {number}");
            let bytes = self.victim.memory.gather(iov);
            let len = [0, 10, 400, 2000][number % 4];
            assert!(bytes[..len].iter().all(|byte| *byte == number as u8));
        }
        assert_eq!(self.received.len(), friendly);
        self.net.reset(self.foe);
        self.settle();
        self.victim.close_all(&mut self.net, Errno::ESHUTDOWN);
        self.note();
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
            let cancelled = self.victim.cancel(context);
            cancelled.expect("it did not end, so it is posted");
            self.note();
        }
        // What had arrived whole before the foe left waits for a receive.
        let all = RecvFlags {
            peek: true,
            claim: false,
            discard: true,
        };
        loop {
            let context = self.context();
            self.fates.insert(context, Fate::default());
            let any = Want {
                tag: Some((0, u64::MAX)),
                src: FiAddr::UNSPEC,
            };
            let plain = Want { tag: None, ..any };
            self.victim.peek(&mut self.net, any, context, all);
            self.note();
            if self.fates[&context].failures == 1 {
                self.fates.insert(context, Fate::default());
                self.victim.peek(&mut self.net, plain, context, all);
                self.note();
                if self.fates[&context].failures == 1 {
                    break;
                }
            }
        }
        self.victim.assert_empty();
        self.victim.memory.assert_guards(GUARD);
    }
}

fn message(iov: Iov<ripstop_sim::SimBuf>, context: usize, ack: bool) -> Send<ripstop_sim::SimBuf> {
    Send {
        tag: Some(1),
        data: None,
        iov,
        context,
        completion: true,
        inject: false,
        ack,
        work: false,
    }
}

fn want(tag: u64, src: u32) -> Want {
    Want {
        tag: Some((tag, 0)),
        src: FiAddr(u64::from(src)),
    }
}

fn flags_of_claim() -> RecvFlags {
    RecvFlags {
        peek: false,
        claim: true,
        discard: false,
    }
}

fn play(steps: &[Move], seed: u64, order: ByteOrder, spoil: Option<(usize, u8)>) {
    let mut scene = Scene::new(seed, order);
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
        let mut scene = Scene::new(seed, ByteOrder::Little);
        scene.outbox.truncate(keep);
        scene.outbox.extend(bytes);
        for number in 0..4 {
            scene.exchange(number);
        }
        scene.finish(4);
    }
}
