//! Random groups, sizes and operations over streams that are slow, short of room, and sometimes
//! cut, against a plain reduction.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use ripstop_core::FidToken;
use ripstop_core::eq::Event;
use ripstop_core::lock::Shared;
use ripstop_core::provider::{CollCall, Endpoint as _, Group as _, JoinCall};
use ripstop_mem::UserBuf;
use ripstop_sim::memory::read;
use ripstop_sim::model::address;
use ripstop_sim::{Entry, Memory, Net, Node, NodeConfig, Sim, Timing};
use ripstop_stream::Group;
use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr, Flags};

const SECOND: u64 = 1_000_000_000;

/// `FI_BARRIER_SET` to `FI_GATHER_SET`.
const ALL: Flags = Flags::from_bits_retain(0x1ff << 40);

/// A member of groups.
struct Member {
    node: Node,
    /// Groups by the number of their set, with what became of joining.
    groups: BTreeMap<usize, Arc<Group<Sim, Shared>>>,
    joined: HashMap<usize, Option<Errno>>,
    /// What operations ended with, by context.
    ended: HashMap<usize, Option<Errno>>,
}

impl Member {
    /// Makes progress, and notes what has ended.
    fn progress(&mut self) {
        while let Some(entry) = self.node.read() {
            let error = match &entry {
                Entry::Success(_) => None,
                Entry::Failure(error, _) => Some(error.err),
            };
            let context = entry.completion().context;
            let before = self.ended.insert(context, error);
            assert!(before.is_none(), "{context} ended twice");
        }
        if self.joined.len() == self.groups.len() {
            return;
        }
        let (context, error) = match self.node.eq.read() {
            Ok(Event::Done { context, .. }) => (context, None),
            Err(Errno::EAVAIL) => {
                let error = self.node.eq.read_error(true).unwrap();
                (error.context, Some(error.err))
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => return,
        };
        assert!(self.joined.insert(context, error).is_none(), "told twice");
    }

    fn start(&self, set: usize, call: &CollCall, input: UserBuf, result: UserBuf) {
        let group = self.groups[&set].addr();
        let call = CollCall { group, ..*call };
        self.node.ep.collective(input, result, &call).unwrap();
    }
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
    members: Vec<Member>,
    net: Net,
    memory: Memory,
    cut: Option<(usize, u64)>,
}

impl World {
    fn new(program: &Program) -> Self {
        let net = Net::enter(program.timing, program.seed);
        let known: Vec<u16> = (0..program.nodes).map(address).collect();
        let config = NodeConfig {
            kept_bytes: 4 << 20,
            kept_messages: 4096,
            kept_total: 8 << 20,
            eager_max: 1 << 20,
            patience: SECOND,
            selective: false,
            counted: false,
            ..NodeConfig::new(&known)
        };
        let member = |host| Member {
            node: Node::open(&net, address(host), 100 + host as u32, &config).unwrap(),
            groups: BTreeMap::new(),
            joined: HashMap::new(),
            ended: HashMap::new(),
        };
        Self {
            members: (0..program.nodes).map(member).collect(),
            net,
            memory: Memory::default(),
            cut: program.cut,
        }
    }

    /// Lets everything happen that does; returns whether `done` came true.
    fn run(&mut self, done: impl Fn(&[Member]) -> bool) -> bool {
        let end = self.net.lock().now() + 100 * SECOND;
        for _ in 0..3_000_000 {
            if let Some((which, bytes)) = self.cut {
                let mut net = self.net.lock();
                if net.cut_nth(which % self.members.len().pow(2), bytes) {
                    self.cut = None;
                }
            }
            let before = self.net.lock().moves();
            for member in &mut self.members {
                member.progress();
                while member.node.has_ready() {
                    member.progress();
                }
            }
            if done(&self.members) {
                return true;
            }
            let mut net = self.net.lock();
            if net.moves() == before && !net.advance() || net.now() > end {
                return false;
            }
        }
        panic!("it does not end at {}", self.net.lock().now());
    }

    fn join(&mut self, program: &Program) {
        for (me, member) in self.members.iter_mut().enumerate() {
            // Each begins with another set.
            for step in 0..program.sets.len() {
                let set = (step + me) % program.sets.len();
                let ranks = &program.sets[set];
                if !ranks.contains(&me) {
                    continue;
                }
                let node = &member.node;
                let addr = |rank: &usize| node.fi_addr(address(*rank));
                let members: Vec<FiAddr> = ranks.iter().map(addr).collect();
                let call = JoinCall {
                    members: &members,
                    operations: ALL,
                    context: set,
                };
                let group = node.ep.join(&call, FidToken(set)).unwrap();
                member.groups.insert(set, group);
            }
        }
    }

    /// Starts an operation at all members; returns the results.
    fn start(&mut self, program: &Program, context: usize) -> HashMap<usize, UserBuf> {
        let op = &program.ops[context];
        let ranks = &program.sets[op.set];
        let mut results = HashMap::new();
        for (rank, me) in ranks.iter().enumerate() {
            let n = ranks.len();
            let count = op.count + usize::from(op.odd == Some(rank));
            let root = op.root % n;
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
            let given = self.memory.buffer(&bytes(given * count));
            let result = match op.coll == Collective::Broadcast && rank == root {
                true => bytes(count),
                false => vec![0xdd; 8 * got * count],
            };
            let result = self.memory.buffer(&result);
            let member = &self.members[*me];
            let root = member.node.fi_addr(address(ranks[root]));
            member.start(op.set, &call(op.coll, count, root, context), given, result);
            results.insert(*me, result);
        }
        results
    }
}

fn call(coll: Collective, count: usize, root: FiAddr, context: usize) -> CollCall {
    CollCall {
        coll,
        datatype: Datatype::Uint64,
        op: AtomicOp::Sum,
        count,
        group: FiAddr::UNSPEC,
        root,
        context,
        flags: None,
    }
}

/// What a member gets, or nothing where it gets nothing.
fn expected(op: &Op, context: usize, n: usize, me: usize) -> Vec<u64> {
    let (count, root) = (op.count, op.root % n);
    let of = |rank, index| input(rank, context, index);
    let sum = |index| {
        (0..n)
            .map(|rank| of(rank, index))
            .fold(0, u64::wrapping_add)
    };
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
    let up = world.run(|members| {
        let mut members = members.iter();
        members.all(|member| member.joined.len() == member.groups.len())
    });
    assert!(up, "joins do not end");
    let mut members = world.members.iter();
    if members.any(|member| member.joined.values().any(Option::is_some)) {
        assert!(program.cut.is_some(), "a join failed");
        return;
    }
    let all: Vec<_> = (0..program.ops.len())
        .map(|context| world.start(program, context))
        .collect();
    let ended = world.run(|members| {
        let ended = |(context, results): (usize, &HashMap<usize, UserBuf>)| {
            let has = |me: &usize| members[*me].ended.contains_key(&context);
            results.keys().all(has)
        };
        all.iter().enumerate().all(ended)
    });
    assert!(ended, "operations do not end");
    world.memory.assert_guards();
    for (context, results) in all.iter().enumerate() {
        check(&world, program, context, results);
    }
}

/// Checks what an operation has ended with, and in.
fn check(world: &World, program: &Program, context: usize, results: &HashMap<usize, UserBuf>) {
    let op = &program.ops[context];
    let ranks = &program.sets[op.set];
    let odd = op.odd.is_some_and(|odd| odd < ranks.len()) && ranks.len() > 1;
    let moves = op.coll != Collective::Barrier;
    for (me, result) in results {
        let rank = ranks.iter().position(|rank| rank == me).unwrap();
        let error = world.members[*me].ended[&context];
        if odd && moves {
            assert!(matches!(error, None | Some(Errno::EINVAL)) || program.cut.is_some());
            continue;
        }
        match error {
            Some(error) => assert!(program.cut.is_some(), "{op:?} {rank}: {error}"),
            None => {
                let expected = expected(op, context, ranks.len(), rank);
                let bytes = read(&[*result]);
                let words = bytes.chunks(8);
                let found: Vec<u64> = words
                    .map(|word| u64::from_ne_bytes(word.try_into().unwrap()))
                    .collect();
                assert!(found[..expected.len()] == expected, "{op:?} {rank}");
            }
        }
    }
    if odd && moves && op.count > 0 && program.cut.is_none() {
        let noticed = |me: &usize| world.members[*me].ended[&context].is_some();
        assert!(results.keys().any(noticed), "{op:?}: nobody noticed");
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
    type Mind = fn(usize, usize) -> (usize, usize);
    let other: Mind = |me, n| (8, (me + 1) % n);
    let own: Mind = |me, _| (8, me);
    let more: Mind = |me, _| (8 + usize::from(me == 1), 0);
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
        assert!(world.run(|members| members.iter().all(|member| member.joined.len() == 1)));
        let start = world.net.lock().now();
        for (me, member) in world.members.iter().enumerate() {
            let (count, root) = mind(me, n);
            let root = member.node.fi_addr(address(root));
            let buffers = [1, 2].map(|byte| world.memory.buffer(&vec![byte; 72 * n]));
            member.start(0, &call(coll, count, root, 1), buffers[0], buffers[1]);
        }
        let ended = world.run(|members| members.iter().all(|m| m.ended.contains_key(&1)));
        assert!(ended, "{coll:?} of {n} does not end");
        for member in &world.members {
            assert_eq!(member.ended[&1], Some(Errno::EINVAL), "{coll:?} of {n}");
        }
        let took = world.net.lock().now() - start;
        assert!(took <= most, "{coll:?} of {n}: after {took} ns");
    }
}

/// Member 0 of a group of four sees its connection from a member end before that member knows that
/// there is one, so that it connects again and joins a group that the others have given up.
#[test]
fn a_join_ends_where_only_one_side_sees_the_cut() {
    for bytes in 0..150 {
        for which in 0..16 {
            run(&Program {
                nodes: 4,
                sets: vec![vec![0, 1], vec![2, 0, 3, 1]],
                ops: Vec::new(),
                timing: Timing {
                    delay: 1000,
                    per_byte: 0,
                    capacity: 600,
                    choppy: false,
                },
                seed: 14756,
                cut: Some((which, bytes)),
            });
        }
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
            .prop_map(move |(mut sets, mut ops, timing, seed, at)| {
                // Members join groups of the same ranks in one order, or they are taken for each other.
                let mut known = HashSet::new();
                sets.retain(|set| known.insert(set.clone()));
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
