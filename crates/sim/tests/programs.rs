//! Random programs of posts on two to five nodes, in any interleaving, with the network in
//! any mood: what comes of them is what the interface promises.

use proptest::prelude::*;
use proptest::sample::select;
use ripstop_sim::model::address;
use ripstop_sim::model::onesided::CELL;
use ripstop_sim::program::{Level, Manner, OneSided, Wrong};
use ripstop_sim::{NodeConfig, Op, Setup, Timing, World};
use ripstop_types::{AtomicOp, Datatype};

/// Few tags, so that they meet.
fn tag() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(2), Just(u64::MAX)]
}

fn wanted() -> impl Strategy<Value = (u64, u64)> {
    let ignore = prop_oneof![3 => Just(0), 1 => Just(1), 1 => Just(2), 1 => Just(u64::MAX)];
    (tag(), ignore)
}

/// Zero to four segments; some lengths are beyond every limit.
fn segments() -> impl Strategy<Value = Vec<usize>> {
    let len = prop_oneof![
        2 => Just(0usize),
        6 => 1..64usize,
        4 => 64..300usize,
        2 => 300..1500usize
    ];
    prop_oneof![
        3 => len.clone().prop_map(|len| vec![len]),
        1 => prop::collection::vec(len, 0..=4)
    ]
}

fn host() -> impl Strategy<Value = usize> {
    0..5usize
}

fn send() -> impl Strategy<Value = Op> {
    let kind = prop_oneof![
        4 => Just((false, true)),
        1 => Just((false, false)),
        2 => Just((true, false)),
        1 => Just((true, true))
    ];
    (
        (host(), host()),
        prop::option::weighted(0.7, tag()),
        prop::option::weighted(0.3, any::<u64>()),
        segments(),
        kind,
        prop::bool::weighted(0.3),
    )
        .prop_map(|((from, to), tag, data, mut segments, kind, ack)| {
            let (inject, completion) = kind;
            if inject {
                segments.truncate(1);
                segments.iter_mut().for_each(|len| *len %= 129);
            }
            Op::Send {
                from,
                to,
                tag,
                data,
                segments,
                inject,
                completion,
                ack,
            }
        })
}

/// A receive, of which so many (0 to 1) are for several messages.
fn recv(multi: f64) -> impl Strategy<Value = Op> {
    (
        host(),
        prop::option::weighted(0.7, wanted()),
        prop::option::weighted(0.3, host()),
        segments(),
        prop::bool::weighted(0.8),
        prop::bool::weighted(multi),
    )
        .prop_map(|(host, mut tag, src, mut segments, completion, multi)| {
            if multi {
                tag = None;
                segments = vec![segments.iter().sum::<usize>() * 3 + 1];
            }
            Op::Recv {
                host,
                tag,
                src,
                segments,
                completion,
                multi,
            }
        })
}

fn look() -> impl Strategy<Value = Op> {
    let peek = (
        host(),
        prop::option::weighted(0.9, wanted()),
        prop::option::weighted(0.2, host()),
        any::<bool>(),
        prop::bool::weighted(0.2),
    )
        .prop_map(|(host, tag, src, claim, discard)| Op::Peek {
            host,
            tag,
            src,
            claim,
            discard,
        });
    let claim = (
        host(),
        any::<usize>(),
        0..400usize,
        prop::bool::weighted(0.3),
    )
        .prop_map(|(host, which, len, discard)| Op::Claim {
            host,
            which,
            len,
            discard,
        });
    prop_oneof![2 => peek, 1 => claim]
}

fn parts() -> impl Strategy<Value = Vec<(usize, usize, usize)>> {
    let len = prop_oneof![1 => Just(0usize), 6 => 1..40usize, 3 => 40..257usize];
    prop::collection::vec((0..2usize, 0..256usize, len), 1..=4)
}

/// Cells are divided into them, or two form one.
fn integer() -> impl Strategy<Value = Datatype> {
    let all = Datatype::ALL.into_iter();
    select(
        all.filter(|datatype| datatype.is_integer())
            .collect::<Vec<_>>(),
    )
}

/// A datatype that a cell can be, and how it may be compared.
fn named() -> impl Strategy<Value = (Datatype, AtomicOp)> {
    let cells = Datatype::ALL.into_iter().filter(|d| d.size() == CELL);
    let pairs = cells.flat_map(|datatype| AtomicOp::ALL.map(|op| (datatype, op)));
    let compares = |(datatype, op): &(Datatype, AtomicOp)| {
        *op != AtomicOp::Mswap && op.takes_comparison() && op.acts_on(*datatype)
    };
    select(pairs.filter(compares).collect::<Vec<_>>())
}

fn level() -> impl Strategy<Value = Level> {
    prop_oneof![
        3 => Just(Level::Sent),
        2 => Just(Level::Delivered),
        2 => Just(Level::Committed)
    ]
}

/// Writes and reads.
fn plain() -> impl Strategy<Value = OneSided> {
    let write = (
        parts(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        level(),
    )
        .prop_map(|(parts, data, inject, level)| OneSided::Write {
            parts,
            data,
            inject,
            level,
        });
    prop_oneof![
        4 => write,
        3 => parts().prop_map(|parts| OneSided::Read { parts })
    ]
}

fn remote() -> impl Strategy<Value = OneSided> {
    let way = select(vec![
        AtomicOp::Sum,
        AtomicOp::Diff,
        AtomicOp::Bor,
        AtomicOp::Bxor,
        AtomicOp::Mswap,
    ]);
    let flags = (
        any::<bool>(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        level(),
    );
    let mark = (any::<(usize, usize)>(), (integer(), way), flags).prop_map(
        |((cell, count), (datatype, op), (fetch, data, inject, level))| OneSided::Mark {
            cell,
            count,
            datatype,
            op,
            fetch,
            data,
            inject,
            level,
        },
    );
    let swap = (any::<usize>(), named(), prop::option::of(any::<usize>())).prop_map(
        |(cell, (datatype, op), compare)| OneSided::Swap {
            cell,
            datatype,
            compare: compare.map(|which| (op, which)),
        },
    );
    let look =
        (any::<(usize, usize)>(), integer()).prop_map(|((cell, count), datatype)| OneSided::Look {
            cell,
            count,
            datatype,
        });
    prop_oneof![
        7 => plain(),
        4 => mark,
        3 => swap,
        1 => look
    ]
}

/// The same with messages in packets, where atomics have no data and are not made durable.
fn remote_in_packets() -> impl Strategy<Value = OneSided> {
    remote().prop_map(|mut op| {
        if let OneSided::Mark { data, level, .. } = &mut op {
            *data = false;
            if *level == Level::Committed {
                *level = Level::Delivered;
            }
        }
        op
    })
}

fn manner() -> impl Strategy<Value = Manner> {
    let wrong = prop_oneof![Just(Wrong::Key), Just(Wrong::Access), Just(Wrong::Bounds)];
    (
        (host(), host()),
        prop::bool::weighted(0.9),
        prop::bool::weighted(0.1),
        prop::option::weighted(0.1, wrong),
    )
        .prop_map(|((from, to), completion, fence, wrong)| Manner {
            from,
            to,
            completion,
            fence,
            wrong,
        })
}

/// What one host does to the memory of another, some of it denied.
fn onesided(what: impl Strategy<Value = OneSided>) -> impl Strategy<Value = Op> {
    prop_oneof![
        60 => (manner(), what).prop_map(|(manner, op)| Op::OneSided(manner, op)),
        1 => host().prop_map(|host| Op::Hide { host })
    ]
}

fn mishap() -> impl Strategy<Value = Op> {
    let cut =
        (host(), host(), 0..600u64).prop_map(|(host, peer, after)| Op::Cut { host, peer, after });
    let stall = (host(), host(), 0..1_000_000u64).prop_map(|(host, peer, time)| Op::Stall {
        host,
        peer,
        time,
    });
    let restart = (host(), any::<bool>()).prop_map(|(host, quietly)| Op::Restart { host, quietly });
    prop_oneof![3 => cut, 3 => stall, 1 => restart]
}

/// One step, with so many of the memory of others, and mishaps, among 91 others.
fn op(remote: u32, mishaps: u32) -> impl Strategy<Value = Op> {
    op_with((remote, onesided(self::remote())), mishaps)
}

/// One step of any kind.
fn op_with(remote: (u32, impl Strategy<Value = Op>), mishaps: u32) -> impl Strategy<Value = Op> {
    op_of(0.2, 8, remote, mishaps)
}

/// One step of nodes whose receives are their own: they peek, claim and divide receives themselves.
fn op_of_owners() -> impl Strategy<Value = Op> {
    op_of(0.0, 0, (0, onesided(remote())), 0)
}

/// One step, with so many receives for several messages (0 to 1), and with these weights of looks at what has
/// arrived, of the memory of others and of mishaps, beside 83 of other kinds.
fn op_of(
    multi: f64,
    looks: u32,
    (remote, onesided): (u32, impl Strategy<Value = Op>),
    mishaps: u32,
) -> impl Strategy<Value = Op> {
    let cancel = (host(), any::<usize>()).prop_map(|(host, which)| Op::Cancel { host, which });
    let learn = (host(), host()).prop_map(|(host, peer)| Op::Learn { host, peer });
    prop_oneof![
        30 => send(),
        30 => recv(multi),
        looks => look(),
        2 => cancel,
        1 => learn,
        20 => (1..30u32).prop_map(Op::Run),
        remote => onesided,
        mishaps => mishap(),
    ]
}

fn timing() -> impl Strategy<Value = Timing> {
    (
        prop_oneof![Just(0u64), 1..5_000u64],
        prop_oneof![Just(0u64), 1..20u64],
        prop_oneof![Just(100usize), Just(300), Just(100_000)],
        prop::bool::weighted(0.8),
    )
        .prop_map(|(delay, per_byte, capacity, choppy)| Timing {
            delay,
            per_byte,
            capacity,
            choppy,
        })
}

fn node() -> impl Strategy<Value = NodeConfig> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let limits = (
        prop_oneof![Just(0usize), Just(64), Just(300)],
        prop_oneof![Just(0u64), Just(200), Just(100_000)],
        prop_oneof![Just(0u64), Just(1000), Just(100_000)],
        prop_oneof![Just(0u32), Just(3), Just(1000)],
        prop_oneof![Just(0u64), Just(1800), Just(1_000_000)],
    );
    (
        limits,
        flags,
        prop_oneof![Just(2usize), Just(1000)],
        prop_oneof![Just(0usize), Just(1), Just(100)],
        prop::collection::vec(0..5usize, 0..5),
    )
        .prop_map(|(limits, flags, tx_size, min_multi_recv, known)| {
            let (inline, eager_max, kept_bytes, kept_messages, kept_total) = limits;
            let (directed, source_err, counted, selective) = flags;
            let known: Vec<u16> = known.into_iter().map(address).collect();
            NodeConfig {
                inline,
                eager_max,
                kept_bytes,
                kept_messages,
                kept_total,
                directed,
                source_err,
                counted,
                selective,
                tx_size,
                min_multi_recv,
                ..NodeConfig::new(&known)
            }
        })
}

fn setup() -> impl Strategy<Value = Setup> {
    (prop::collection::vec(node(), 2..=5), timing(), any::<u64>()).prop_map(
        |(nodes, timing, seed)| Setup {
            nodes,
            timing,
            seed,
        },
    )
}

/// The same nodes, with messages in packets, and some that want few connections.
fn setup_in_packets() -> impl Strategy<Value = Setup> {
    let longest = prop_oneof![Just(0u64), Just(100), Just(1000)];
    let most = prop::collection::vec(prop_oneof![3 => Just(0usize), 2 => 1..3usize], 5);
    (setup(), longest, most).prop_map(|(mut setup, longest, most)| {
        for (node, most) in setup.nodes.iter_mut().zip(most) {
            node.packets = Some(longest);
            node.max_connections = most;
        }
        setup
    })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 3_000, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_ends_as_promised(
        setup in setup(),
        program in prop::collection::vec(op(0, 0), 0..80),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn every_operation_ends_as_promised_with_receives_of_an_owner(
        mut setup in setup(),
        owned in prop::collection::vec(prop::bool::weighted(0.8), 5),
        program in prop::collection::vec(op_of_owners(), 0..80),
    ) {
        for (node, owned) in setup.nodes.iter_mut().zip(owned) {
            node.owned = owned;
        }
        World::new(&setup).run(&program);
    }

    #[test]
    fn every_operation_ends_when_streams_are_cut_and_processes_die(
        setup in setup(),
        program in prop::collection::vec(op(0, 6), 0..80),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn every_operation_in_packets_ends_as_promised(
        setup in setup_in_packets(),
        program in prop::collection::vec(op(0, 0), 0..80),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn every_operation_in_packets_ends_when_streams_are_cut_and_processes_die(
        setup in setup_in_packets(),
        program in prop::collection::vec(op(0, 6), 0..80),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn memory_of_others_is_changed_in_packets_as_promised(
        setup in setup_in_packets(),
        program in prop::collection::vec(op_with((100, onesided(remote_in_packets())), 0), 0..100),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn memory_of_others_is_changed_in_packets_when_streams_are_cut_and_processes_die(
        setup in setup_in_packets(),
        program in prop::collection::vec(op_with((100, onesided(remote_in_packets())), 6), 0..100),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn memory_of_others_is_changed_as_promised(
        setup in setup(),
        program in prop::collection::vec(op(120, 0), 0..100),
    ) {
        World::new(&setup).run(&program);
    }

    #[test]
    fn memory_of_others_is_changed_as_promised_when_streams_are_cut_and_processes_die(
        setup in setup(),
        program in prop::collection::vec(op(120, 8), 0..100),
    ) {
        World::new(&setup).run(&program);
    }
}

/// Three nodes, and a message to node 0 from one that it may not know.
fn strangers(len: usize) -> (Setup, impl Fn(usize) -> Op) {
    let setup = Setup {
        nodes: vec![NodeConfig::new(&[]); 3],
        timing: Timing {
            delay: 1_000,
            per_byte: 0,
            capacity: 100_000,
            choppy: false,
        },
        seed: 1,
    };
    let send = move |from| Op::Send {
        from,
        to: 0,
        tag: Some(1),
        data: None,
        segments: vec![len],
        inject: false,
        completion: true,
        ack: false,
    };
    (setup, send)
}

fn receive(completion: bool) -> Op {
    Op::Recv {
        host: 0,
        tag: Some((1, 0)),
        src: None,
        segments: vec![100],
        completion,
        multi: false,
    }
}

/// A peek drops the one of two messages that look the same which was sent later, and a receive
/// without a completion gets the other.
#[test]
fn a_dropped_message_is_not_confused_with_one_that_looks_the_same() {
    let (setup, send) = strangers(40);
    let drop_one = Op::Peek {
        host: 0,
        tag: Some((1, 0)),
        src: None,
        claim: false,
        discard: true,
    };
    World::new(&setup).run(&[
        // Node 2 is connected, so its second message overtakes the first one of node 1.
        send(2),
        receive(true),
        Op::Run(500),
        send(1),
        send(2),
        Op::Run(500),
        drop_one,
        Op::Run(20),
        receive(false),
        Op::Run(20),
    ]);
}

/// Of two empty messages of strangers the one that was sent later is received first, and the other
/// when its sender has become known.
#[test]
fn an_empty_message_is_not_confused_with_one_that_looks_the_same() {
    let (setup, send) = strangers(0);
    World::new(&setup).run(&[
        // As above.
        send(2),
        receive(true),
        Op::Run(500),
        send(1),
        send(2),
        receive(true),
        Op::Run(500),
        Op::Learn { host: 0, peer: 1 },
    ]);
}

/// Each of five nodes wants one connection, and talks to all others: the rest end once nothing is under way, and the
/// next messages make them again.
#[test]
fn connections_beyond_a_bound_end_and_are_made_again() {
    const NODES: usize = 5;
    let (mut setup, _) = strangers(0);
    setup.nodes = vec![NodeConfig::new(&[1, 2, 3, 4, 5]); NODES];
    for node in &mut setup.nodes {
        (node.packets, node.max_connections) = (Some(100), 1);
    }
    let open = |world: &World| -> Vec<usize> {
        let peers = |host| (0..NODES).filter(move |peer| *peer != host);
        let count = |host| peers(host).filter(move |peer| world.end(host, *peer).is_some());
        (0..NODES).map(|host| count(host).count()).collect()
    };
    let mut world = World::new(&setup);
    for round in 0..3 {
        for (from, to) in (0..NODES * NODES).map(|pair| (pair / NODES, pair % NODES)) {
            if from == to {
                continue;
            }
            // Those of 300 bytes are announced.
            for len in [10, 300] {
                world.perform(&Op::Send {
                    from,
                    to,
                    tag: None,
                    data: None,
                    segments: vec![len],
                    inject: len == 10,
                    completion: len != 10,
                    ack: false,
                });
                world.perform(&Op::Recv {
                    host: to,
                    tag: None,
                    src: None,
                    segments: vec![300],
                    completion: true,
                    multi: false,
                });
            }
        }
        world.perform(&Op::Run(500));
        world.settle();
        let open = open(&world);
        assert!(
            open.iter().all(|count| *count <= 1),
            "round {round}: {open:?}"
        );
    }
    world.finish();
}
