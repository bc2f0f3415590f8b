//! Random groups, sizes and operations over streams that are slow, short of room, and sometimes
//! cut, against a plain reduction.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use ripstop_engine::coll::{Joining, Place, Request};
use ripstop_engine::id::{ConnId, CqId, EpId, SlotId};
use ripstop_engine::matching::Matcher;
use ripstop_engine::stream::{
    Chunk, CollAction, CollPlan, ConnConfig, Engine, EpConfig, Limits, Output, PEER_NAME, RxWant,
    Terms,
};
use ripstop_engine::{Buffer, Iov};
use ripstop_sim::memory::{Memory, SimBuf};
use ripstop_sim::network::{End, Network, Timing};
use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::base::MAX_HEADER;
use ripstop_wire::xnet::cm::Extensions;

const LIMITS: Limits = Limits {
    tx_buffer: 2048,
    inline: 256,
    rendezvous: 1 << 20,
    kept_bytes: 4 << 20,
    kept_messages: 4096,
    kept_longest: u64::MAX,
    kept_total: 8 << 20,
    ask_first: 16 << 10,
};

const SECOND: u64 = 1_000_000_000;

/// A member's connection to another.
struct Link {
    conn: ConnId,
    peer: usize,
    end: End,
    stage: Vec<u8>,
    inbox: Vec<u8>,
}

struct Node {
    engine: Engine<SimBuf>,
    memory: Memory,
    slots: HashMap<SlotId, Vec<u8>>,
    links: Vec<Link>,
    ep: EpId,
    cq: CqId,
    /// Groups by the number of their set, with what became of joining.
    groups: HashMap<u32, usize>,
    joined: HashMap<usize, Option<Errno>>,
    /// What operations ended with, by context.
    ended: HashMap<usize, Option<Errno>>,
}

impl Node {
    fn new() -> Self {
        let mut engine = Engine::new(LIMITS);
        let srx = engine.open_srx(Matcher::new(16, false)).unwrap();
        let cq = engine.open_cq(64).unwrap();
        let config = EpConfig {
            srx: Some(srx),
            tx_cq: Some(cq),
            rx_cq: Some(cq),
            tx_size: 8,
            ..EpConfig::NONE
        };
        let ep = engine.open_ep(config).unwrap();
        Self {
            engine,
            memory: Memory::default(),
            slots: HashMap::new(),
            links: Vec::new(),
            ep,
            cq,
            groups: HashMap::new(),
            joined: HashMap::new(),
            ended: HashMap::new(),
        }
    }

    fn connect(&mut self, peer: usize, end: End) {
        let conn = self.engine.open_conn(ConnConfig {
            ep: self.ep,
            src: FiAddr(peer as u64),
            name: [0; PEER_NAME],
            name_len: 0,
        });
        let conn = conn.unwrap();
        self.engine.conn_up(
            conn,
            Terms {
                order: ByteOrder::NATIVE,
                rendezvous: true,
                extensions: Extensions::ALL,
            },
        );
        self.links.push(Link {
            conn,
            peer,
            end,
            stage: Vec::new(),
            inbox: Vec::new(),
        });
    }

    fn link(&mut self, conn: ConnId) -> Option<&mut Link> {
        self.links.iter_mut().find(|link| link.conn == conn)
    }

    fn slot(&mut self, slot: SlotId, total: u64) -> &mut Vec<u8> {
        let memory = self.slots.entry(slot).or_default();
        memory.resize(total as usize, 0xee);
        memory
    }

    fn get(&mut self, place: &Place<SimBuf>) -> Vec<u8> {
        match place {
            Place::User(buffer) => self.memory.bytes(*buffer).to_vec(),
            Place::Slot {
                slot,
                total,
                at,
                len,
            } => self.slot(*slot, *total)[*at as usize..][..*len as usize].to_vec(),
        }
    }

    fn put(&mut self, place: &Place<SimBuf>, bytes: &[u8]) {
        assert_eq!(place.len(), bytes.len() as u64);
        match place {
            Place::User(buffer) => self.memory.bytes_mut(*buffer).copy_from_slice(bytes),
            Place::Slot {
                slot, total, at, ..
            } => self.slot(*slot, *total)[*at as usize..][..bytes.len()].copy_from_slice(bytes),
        }
    }

    fn act(&mut self) {
        while let Some(action) = self.engine.coll_next() {
            match action {
                CollAction::Send { ep, to, send } => {
                    let known = self.links.iter().find(|link| link.peer as u64 == to.0);
                    let Some(conn) = known.map(|link| link.conn) else {
                        self.engine
                            .coll_unreachable(ep, to, &send, Errno::ECONNREFUSED);
                        continue;
                    };
                    let mut header = [0; MAX_HEADER];
                    match self.engine.post_coll(conn, &send, &mut header).unwrap() {
                        CollPlan::Defer => {}
                        CollPlan::Append(staged) => {
                            let payload = match staged.inline {
                                true => self.payload(&send.iov, send.kept, send.len()),
                                false => Vec::new(),
                            };
                            let link = self.link(conn).unwrap();
                            link.stage.extend(&header[..staged.header_len]);
                            link.stage.extend(payload);
                        }
                    }
                }
                CollAction::Copy { from, to, .. } => {
                    let bytes = self.get(&from);
                    self.put(&to, &bytes);
                }
                CollAction::Reduce {
                    by,
                    into,
                    from,
                    flip,
                    ..
                } => {
                    assert_eq!(by, AtomicOp::Sum);
                    let (a, b) = (self.get(&into), self.get(&from));
                    let pairs = a.chunks(8).zip(b.chunks(8));
                    let bytes: Vec<u8> = pairs
                        .flat_map(|(a, b)| match flip {
                            false => combine(word(a), word(b)).to_ne_bytes(),
                            true => combine(word(b), word(a)).to_ne_bytes(),
                        })
                        .collect();
                    self.put(&into, &bytes);
                }
                CollAction::Waits { .. } => {}
                CollAction::Joined { group, error } => {
                    let set = self.groups[&group];
                    assert!(self.joined.insert(set, error).is_none(), "told twice");
                }
            }
        }
    }

    fn payload(&mut self, iov: &Iov<SimBuf>, kept: Option<(SlotId, u64)>, len: u64) -> Vec<u8> {
        match kept {
            None => self.memory.gather(iov),
            Some((slot, at)) => self.slots[&slot][at as usize..][..len as usize].to_vec(),
        }
    }

    fn after(&mut self, net: &mut Network) {
        while !self.engine.is_quiet() {
            while let Some(output) = self.engine.pop_output() {
                if output == Output::Coll {
                    self.act();
                }
            }
            while let Some(slot) = self.engine.pop_freed() {
                self.slots.remove(&slot);
            }
            while let Some(conn) = self.engine.pop_resumed() {
                self.engine.rx_retry(conn);
            }
            let broken = self.engine.pop_broken();
            assert!(broken.is_none(), "a connection is broken: {broken:?}");
            while self.engine.pop_refusal().is_some() {}
        }
        for index in 0..self.links.len() {
            self.flush(net, index);
        }
        self.note();
    }

    fn note(&mut self) {
        let cq = self.engine.cq_mut(self.cq).unwrap();
        loop {
            let (context, error) = match cq.pop() {
                Ok(entry) => (entry.context, None),
                Err(Errno::EAVAIL) => {
                    let error = cq.pop_error().unwrap().error;
                    (error.entry.context, Some(error.err))
                }
                Err(_) => break,
            };
            let before = self.ended.insert(context, error);
            assert!(before.is_none(), "{context} ended twice");
        }
    }

    /// Writes what a connection has; returns whether anything moved.
    fn flush(&mut self, net: &mut Network, index: usize) -> bool {
        let mut any = false;
        loop {
            let Link { conn, end, .. } = self.links[index];
            let has = self.engine.conn(conn).unwrap();
            if !has.has_output() {
                let mut header = [0; MAX_HEADER];
                match self.engine.replay(conn, &mut header) {
                    Ok(Some(replayed)) => {
                        let posted = &replayed.deferred.posted;
                        let payload = match (replayed.inline, posted.kept()) {
                            (false, _) => Vec::new(),
                            (true, None) => self.memory.gather(posted.iov()),
                            (true, Some((slot, at, len))) => {
                                self.payload(&Iov::EMPTY, Some((slot, at)), len)
                            }
                        };
                        let link = &mut self.links[index];
                        link.stage.extend(&header[..replayed.header_len]);
                        link.stage.extend(payload);
                        continue;
                    }
                    _ => return any,
                }
            }
            let mut chunks = [Chunk::TxBuffer(0); 8];
            let count = self.engine.transmit(conn, &mut chunks);
            let mut bytes = Vec::new();
            let mut staged = 0;
            for chunk in &chunks[..count] {
                match chunk {
                    Chunk::Control(control, skip) => bytes.extend(&control[usize::from(*skip)..]),
                    Chunk::TxBuffer(len) => {
                        bytes.extend(&self.links[index].stage[staged..staged + len]);
                        staged += len;
                    }
                    Chunk::User(buffer, skip, len) => {
                        let part = buffer.slice(*skip, *len).unwrap();
                        bytes.extend(self.memory.bytes(part));
                    }
                    Chunk::Kept(slot, skip, len) => {
                        bytes.extend(&self.slots[slot][*skip..*skip + *len]);
                    }
                }
            }
            let Ok(written) = net.write(end, &bytes) else {
                return any;
            };
            if written == 0 {
                return any;
            }
            any = true;
            let staged = self.engine.sent(conn, written);
            self.links[index].stage.drain(..staged);
        }
    }

    /// Reads a connection once; `None` when it has ended.
    fn read(&mut self, net: &mut Network, index: usize) -> Option<bool> {
        let Link { conn, end, .. } = self.links[index];
        if matches!(self.engine.rx_want(conn), RxWant::Blocked) {
            return Some(false);
        }
        let mut bytes = [0; 4096];
        match net.read(end, &mut bytes) {
            Ok(count) => self.links[index].inbox.extend(&bytes[..count]),
            Err(Errno::EAGAIN) => {}
            Err(_) => return None,
        }
        let mut any = false;
        loop {
            let inbox = std::mem::take(&mut self.links[index].inbox);
            let used = self.take(conn, &inbox);
            self.links[index].inbox = inbox[used..].to_vec();
            if used == 0 {
                return Some(any);
            }
            any = true;
        }
    }

    /// Takes bytes of the stream; returns how many.
    fn take(&mut self, conn: ConnId, bytes: &[u8]) -> usize {
        let (to, at, len) = match self.engine.rx_want(conn) {
            RxWant::Job => {
                self.act();
                self.engine.coll_job_done(conn);
                return match bytes.is_empty() {
                    true => 0,
                    false => self.take(conn, bytes),
                };
            }
            RxWant::Header => return self.engine.rx_header(conn, bytes).unwrap(),
            RxWant::Blocked => return 0,
            RxWant::Discard(len) => (None, 0, len),
            RxWant::Place(iov, at, len) => (Some(Ok(*iov)), at, len),
            RxWant::Keep(slot, total, at, len) => (Some(Err((slot, total))), at, len),
            RxWant::Store(..) => panic!("nobody writes"),
        };
        let len = bytes.len().min(len as usize);
        match to {
            None => {}
            Some(Ok(iov)) => self.memory.scatter(&iov, at, &bytes[..len]),
            Some(Err((slot, total))) => {
                self.slot(slot, total)[at as usize..][..len].copy_from_slice(&bytes[..len]);
            }
        }
        self.engine.rx_placed(conn, len as u64);
        len
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().unwrap())
}

/// Commutative and associative, as the model needs it.
fn combine(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

fn input(rank: usize, op: usize, index: usize) -> u64 {
    (rank as u64 + 1) << 40 | (op as u64) << 32 | index as u64
}

/// What is done: in which group, what, how much, and by whose root.
#[derive(Clone, Debug)]
struct Op {
    set: usize,
    coll: Collective,
    count: usize,
    root: usize,
    /// This member of the group has another count in mind.
    odd: Option<usize>,
}

#[derive(Clone, Debug)]
struct Program {
    nodes: usize,
    /// Members by rank.
    sets: Vec<Vec<usize>>,
    ops: Vec<Op>,
    timing: Timing,
    seed: u64,
    /// A stream that ends after some bytes: which, and how many.
    cut: Option<(usize, u64)>,
}

struct World {
    net: Network,
    nodes: Vec<Node>,
    now: u64,
}

impl World {
    fn new(program: &Program) -> Self {
        let mut net = Network::new(program.timing, program.seed);
        let mut nodes: Vec<Node> = (0..program.nodes).map(|_| Node::new()).collect();
        for host in 0..program.nodes {
            net.listen(host as u32);
        }
        for a in 0..program.nodes {
            for b in a + 1..program.nodes {
                let end = net.connect(a as u32, b as u32);
                nodes[a].connect(b, end);
                nodes[b].connect(a, end ^ 1);
                // Each connection is the only one asked for.
                while net.accept(b as u32).is_none() {
                    net.advance(None);
                }
            }
        }
        if let Some((which, bytes)) = program.cut {
            let ends: Vec<End> = nodes
                .iter()
                .flat_map(|node| node.links.iter().map(|link| link.end))
                .collect();
            if let Some(end) = ends.get(which % ends.len().max(1)) {
                net.cut_after(*end, bytes);
            }
        }
        Self { net, nodes, now: 0 }
    }

    /// Lets everything happen that does; returns whether `done` came true.
    fn run(&mut self, done: impl Fn(&[Node]) -> bool) -> bool {
        let mut idle = 0;
        let mut tick = self.now + SECOND / 20;
        let mut turns = 0;
        loop {
            turns += 1;
            assert!(
                turns < 3_000_000,
                "it does not end at {} after {idle} ticks",
                self.net.now()
            );
            let mut any = true;
            while any {
                any = false;
                for node in &mut self.nodes {
                    node.after(&mut self.net);
                    let mut index = 0;
                    while index < node.links.len() {
                        match node.read(&mut self.net, index) {
                            Some(moved) => {
                                any |= moved;
                                index += 1;
                            }
                            None => {
                                let link = node.links.swap_remove(index);
                                node.engine.close_conn(link.conn, Errno::ECONNRESET);
                                self.net.close(link.end);
                                any = true;
                            }
                        }
                    }
                    node.after(&mut self.net);
                }
            }
            if done(&self.nodes) {
                return true;
            }
            // Time passes: to the next arrival, or until the next look at the clock.
            self.net.advance(Some(tick));
            self.now = self.net.now();
            if self.now >= tick {
                idle += 1;
                for node in &mut self.nodes {
                    node.engine.coll_tick(Duration::from_nanos(tick));
                }
                tick += SECOND / 20;
            }
            if idle > 2_000 {
                return false;
            }
        }
    }

    fn join(&mut self, program: &Program) {
        for (me, node) in self.nodes.iter_mut().enumerate() {
            // Each begins with another set.
            for step in 0..program.sets.len() {
                let set = (step + me) % program.sets.len();
                let ranks = &program.sets[set];
                let Some(rank) = ranks.iter().position(|rank| *rank == me) else {
                    continue;
                };
                let members: Vec<FiAddr> = ranks.iter().map(|rank| FiAddr(*rank as u64)).collect();
                let group = node.engine.join_group(&Joining {
                    ep: node.ep,
                    members: &members,
                    me: rank as u32,
                    digest: set as u64 + 77,
                });
                node.groups.insert(group.unwrap(), set);
            }
        }
    }

    /// Starts an operation at all members; returns the results.
    fn start(&mut self, program: &Program, context: usize) -> HashMap<usize, SimBuf> {
        let op = &program.ops[context];
        let ranks = &program.sets[op.set];
        let mut results = HashMap::new();
        for (rank, me) in ranks.iter().enumerate() {
            let n = ranks.len();
            let count = op.count + usize::from(op.odd == Some(rank));
            let root = op.root % n;
            let node = &mut self.nodes[*me];
            let bytes = |count: usize| -> Vec<u8> {
                let word = |index| input(rank, context, index).to_ne_bytes();
                (0..count).flat_map(word).collect()
            };
            let (given, got) = match op.coll {
                Collective::Barrier => (0, 0),
                Collective::Broadcast => (0, 1),
                Collective::Alltoall => (n, n),
                Collective::Allgather | Collective::Gather => (1, n),
                Collective::Scatter | Collective::ReduceScatter => (n, 1),
                _ => (1, 1),
            };
            let given = node.memory.guarded(bytes(given * count), 0xaa);
            let result = match op.coll == Collective::Broadcast && rank == root {
                true => bytes(count),
                false => vec![0xdd; 8 * got * count],
            };
            let result = node.memory.guarded(result, 0xaa);
            let is = |(group, set): (&u32, &usize)| (*set == op.set).then_some(*group);
            let group = node.groups.iter().find_map(is).unwrap();
            let started = node.engine.start_coll(
                group,
                Request {
                    coll: op.coll,
                    datatype: Datatype::Uint64,
                    op: AtomicOp::Sum,
                    count: count as u64,
                    root: root as u32,
                    input: given,
                    result,
                    context,
                    completion: true,
                },
            );
            match started {
                Ok(()) => {
                    results.insert(*me, result);
                }
                Err(error) => panic!("{error}"),
            }
        }
        results
    }
}

/// What a member gets, or nothing where it gets nothing.
fn expected(op: &Op, context: usize, n: usize, me: usize) -> Vec<u64> {
    let (count, root) = (op.count, op.root % n);
    let of = |rank, index| input(rank, context, index);
    let sum = |index| (0..n).map(|rank| of(rank, index)).fold(0, combine);
    let mine = me * count..(me + 1) * count;
    match op.coll {
        Collective::Barrier => Vec::new(),
        Collective::Broadcast => (0..count).map(|index| of(root, index)).collect(),
        Collective::Alltoall => (0..n)
            .flat_map(|rank| mine.clone().map(move |index| of(rank, index)))
            .collect(),
        Collective::Allreduce => (0..count).map(sum).collect(),
        Collective::ReduceScatter => mine.map(sum).collect(),
        Collective::Scatter => mine.map(|index| of(root, index)).collect(),
        Collective::Reduce if me == root => (0..count).map(sum).collect(),
        Collective::Gather if me != root => Vec::new(),
        Collective::Allgather | Collective::Gather => (0..n)
            .flat_map(|rank| (0..count).map(move |index| of(rank, index)))
            .collect(),
        Collective::Reduce => Vec::new(),
    }
}

fn run(program: &Program) {
    let mut world = World::new(program);
    world.join(program);
    let up = world.run(|nodes| {
        nodes
            .iter()
            .all(|node| node.joined.len() == node.groups.len())
    });
    assert!(up, "joins do not end");
    let failed = world
        .nodes
        .iter()
        .any(|node| node.joined.values().any(Option::is_some));
    if failed {
        assert!(program.cut.is_some(), "a join failed");
        return;
    }
    let all: Vec<_> = (0..program.ops.len())
        .map(|context| world.start(program, context))
        .collect();
    let ended = world.run(|nodes| {
        let ended = |(context, results): (usize, &HashMap<usize, SimBuf>)| {
            let has = |me: &usize| nodes[*me].ended.contains_key(&context);
            results.keys().all(has)
        };
        all.iter().enumerate().all(ended)
    });
    assert!(ended, "operations do not end");
    for (context, results) in all.iter().enumerate() {
        let op = &program.ops[context];
        let ranks = &program.sets[op.set];
        let odd = op.odd.is_some_and(|odd| odd < ranks.len()) && ranks.len() > 1;
        let moves = op.coll != Collective::Barrier;
        for (me, result) in results {
            let rank = ranks.iter().position(|rank| rank == me).unwrap();
            let node = &world.nodes[*me];
            node.memory.assert_guards(0xaa);
            let error = node.ended[&context];
            if odd && moves {
                assert!(matches!(error, None | Some(Errno::EINVAL)) || program.cut.is_some());
                continue;
            }
            match error {
                Some(error) => assert!(program.cut.is_some(), "{op:?} {rank}: {error}"),
                None => {
                    let expected = expected(op, context, ranks.len(), rank);
                    let bytes = node.memory.bytes(*result);
                    let found: Vec<u64> = bytes.chunks(8).map(word).collect();
                    assert!(found[..expected.len()] == expected, "{op:?} {rank}");
                }
            }
        }
        if odd && moves && op.count > 0 && program.cut.is_none() {
            let noticed = |me: &usize| world.nodes[*me].ended[&context].is_some();
            assert!(results.keys().any(noticed), "{op:?}: nobody noticed");
        }
    }
    for node in &mut world.nodes {
        node.engine.close_ep(node.ep);
        node.after(&mut world.net);
        if program.cut.is_none() {
            assert_eq!(node.engine.kept(), 0, "something is kept");
        }
        assert!(
            node.slots.is_empty() || program.cut.is_some(),
            "a slot is left"
        );
    }
}

/// What the conformance suite can only wait for, where time is virtual: members that disagree know of
/// it as soon as their messages meet, and where each waits for the other, when they have asked each other
/// after a second.
#[test]
fn members_that_disagree_know_of_it_in_time() {
    const DELAY: u64 = 50_000;
    let at_once = 10 * DELAY;
    let asked = SECOND * 5 / 4;
    // How many elements each member has in mind, and whom it takes for the root.
    type Mind = fn(usize, usize) -> (u64, usize);
    let other: Mind = |me, n| (8, (me + 1) % n);
    let own: Mind = |me, _| (8, me);
    let more: Mind = |me, _| (8 + u64::from(me == 1), 0);
    for (n, coll, mind, most) in [
        (2, Collective::Broadcast, other, asked),
        (7, Collective::Broadcast, other, asked),
        (2, Collective::Gather, own, asked),
        (2, Collective::Allreduce, more, at_once),
        (2, Collective::Alltoall, more, at_once),
        (2, Collective::Allgather, more, at_once),
    ] {
        let program = Program {
            nodes: n,
            sets: vec![(0..n).collect()],
            ops: Vec::new(),
            timing: Timing {
                delay: DELAY,
                per_byte: 1,
                capacity: 100_000,
                choppy: false,
            },
            seed: 1,
            cut: None,
        };
        let mut world = World::new(&program);
        world.join(&program);
        assert!(world.run(|nodes| nodes.iter().all(|node| node.joined.len() == 1)));
        let start = world.net.now();
        for (me, node) in world.nodes.iter_mut().enumerate() {
            let (&group, _) = node.groups.iter().next().unwrap();
            let (count, root) = mind(me, n);
            let input = node.memory.guarded(vec![1; 72 * n], 0xaa);
            let result = node.memory.guarded(vec![2; 72 * n], 0xaa);
            let request = Request {
                coll,
                datatype: Datatype::Uint64,
                op: AtomicOp::Sum,
                count,
                root: root as u32,
                input,
                result,
                context: 1,
                completion: true,
            };
            node.engine.start_coll(group, request).unwrap();
        }
        let ended = world.run(|nodes| nodes.iter().all(|node| node.ended.contains_key(&1)));
        assert!(ended, "{coll:?} of {n} does not end");
        for node in &world.nodes {
            assert_eq!(node.ended[&1], Some(Errno::EINVAL), "{coll:?} of {n}");
        }
        let took = world.net.now() - start;
        assert!(took <= most, "{coll:?} of {n}: after {took} ns");
    }
}

/// Groups of more members than the random ones have, in the order of their ranks and in another.
#[test]
fn groups_of_many_compute_what_a_plain_reduction_does() {
    for n in [7, 16, 33] {
        let turned = (0..n).map(|rank| (rank * 5 + 3) % n).collect();
        let mut ops = Vec::new();
        for (at, coll) in Collective::ALL.into_iter().enumerate() {
            for (set, count) in [(0, 1), (1, 37), (0, 700)] {
                ops.push(Op {
                    set,
                    coll,
                    count,
                    root: at + count,
                    odd: None,
                });
            }
        }
        run(&Program {
            nodes: n,
            sets: vec![(0..n).collect(), turned],
            ops,
            timing: Timing {
                delay: 20_000,
                per_byte: 1,
                capacity: 20_000,
                choppy: false,
            },
            seed: n as u64,
            cut: None,
        });
    }
}

fn timings() -> impl Strategy<Value = Timing> {
    (
        1_000u64..200_000,
        0u64..20,
        600usize..100_000,
        any::<bool>(),
    )
        .prop_map(|(delay, per_byte, capacity, choppy)| Timing {
            delay,
            per_byte,
            capacity,
            choppy,
        })
}

fn counts() -> impl Strategy<Value = usize> {
    prop_oneof![
        0usize..40,
        0usize..1500,
        4_000usize..9_000,
        20_000usize..40_000
    ]
}

fn programs(odd: bool, cut: bool) -> impl Strategy<Value = Program> {
    (2usize..7).prop_flat_map(move |nodes| {
        let set = Just((0..nodes).collect::<Vec<_>>())
            .prop_shuffle()
            .prop_flat_map(move |all| (1..=nodes).prop_map(move |n| all[..n].to_vec()));
        let op = (0usize..9, counts(), 0usize..7, any::<u8>(), 0usize..7).prop_map(
            move |(coll, count, root, chance, member)| Op {
                set: chance as usize,
                coll: Collective::ALL[coll],
                count,
                root,
                odd: (odd && chance < 60).then_some(member),
            },
        );
        (
            prop::collection::vec(set, 1..4),
            prop::collection::vec(op, 1..8),
            timings(),
            any::<u64>(),
            (any::<usize>(), 0u64..100_000),
        )
            .prop_map(move |(sets, mut ops, timing, seed, at)| {
                for op in &mut ops {
                    op.set %= sets.len();
                    if timing.choppy {
                        // Every byte may come alone.
                        op.count %= 50;
                    }
                }
                Program {
                    nodes,
                    sets,
                    ops,
                    timing,
                    seed,
                    cut: cut.then_some(at),
                }
            })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn groups_compute_what_a_plain_reduction_does(program in programs(false, false)) {
        run(&program);
    }

    #[test]
    fn members_that_disagree_end_in_errors(program in programs(true, false)) {
        run(&program);
    }

    #[test]
    fn every_operation_ends_when_a_stream_is_cut(program in programs(false, true)) {
        run(&program);
    }
}
