//! Processes that leave at any step: they close their endpoint, or end, and come back.
//!
//! What was reported as sent arrives at whoever lives and makes progress; every operation ends;
//! nothing is delivered twice. The model holds the last two against every event.

use proptest::prelude::*;
use ripstop_sim::model::address;
use ripstop_sim::{NodeConfig, Op, Setup, Timing, World};

const TIMING: Timing = Timing {
    delay: 10,
    per_byte: 1,
    capacity: 200,
    choppy: false,
};

fn setup(nodes: usize, timing: Timing, seed: u64) -> Setup {
    let known: Vec<u16> = (0..nodes).map(address).collect();
    let mut config = NodeConfig::new(&known);
    config.eager_max = 150;
    config.inline = 20;
    Setup {
        nodes: vec![config; nodes],
        timing,
        seed,
    }
}

fn send(from: usize, to: usize, tag: u64, len: usize, inject: bool) -> Op {
    message(from, to, tag, len, inject, false)
}

fn message(from: usize, to: usize, tag: u64, len: usize, inject: bool, ack: bool) -> Op {
    Op::Send {
        from,
        to,
        tag: Some(tag),
        data: None,
        segments: vec![len],
        inject,
        completion: !inject,
        ack,
    }
}

fn recv(host: usize, tag: u64, len: usize) -> Op {
    recv_from(host, tag, len, None)
}

fn recv_from(host: usize, tag: u64, len: usize, src: Option<usize>) -> Op {
    Op::Recv {
        host,
        tag: Some((tag, 0)),
        src,
        segments: vec![len],
        completion: true,
        multi: false,
    }
}

/// Messages both ways: small, kept, with a rendezvous, expected and not.
fn traffic() -> Vec<Op> {
    let mut ops = vec![recv(1, 1, 60), recv(0, 1, 60)];
    for tag in 1..4 {
        for (from, to) in [(0, 1), (1, 0)] {
            ops.push(send(from, to, tag, 40, false));
            ops.push(send(from, to, tag, 20, true));
            ops.push(send(from, to, 10 + tag, 170, false));
        }
    }
    ops.extend([recv(1, 11, 170), recv(0, 12, 90), recv(1, 2, 10)]);
    ops
}

#[test]
fn whoever_leaves_at_any_step_has_sent_what_was_reported() {
    for host in 0..2 {
        for reopens in [false, true] {
            for done in [false, true] {
                for step in 0..80 {
                    let mut world = World::new(&setup(2, TIMING, step.into()));
                    for op in traffic() {
                        world.perform(&op);
                    }
                    world.perform(&Op::Run(step));
                    world.perform(&Op::Leave {
                        host,
                        done,
                        reopens,
                        away: step % 7,
                    });
                    // The next one under its address talks at once, and is answered.
                    world.perform(&send(host, 1 - host, 20, 30, false));
                    world.perform(&Op::Run(step % 11));
                    world.perform(&send(1 - host, host, 21, 170, false));
                    world.perform(&recv(1 - host, 20, 30));
                    world.finish();
                }
            }
        }
    }
}

/// A message is lost with the process that had sent it to itself; the next process drops one that
/// looks the same.
#[test]
fn a_dropped_message_is_not_taken_for_one_of_an_earlier_process() {
    let mut world = World::new(&setup(2, TIMING, 1));
    let to_itself = send(1, 1, 2, 22, false);
    world.perform(&to_itself);
    world.perform(&Op::Run(60));
    world.perform(&Op::Leave {
        host: 1,
        done: false,
        reopens: false,
        away: 0,
    });
    world.perform(&to_itself);
    world.perform(&Op::Run(200));
    world.perform(&Op::Peek {
        host: 1,
        tag: Some((2, 0)),
        src: None,
        claim: false,
        discard: true,
    });
    world.finish();
}

fn op() -> impl Strategy<Value = Op> {
    let host = || 0..4usize;
    let tag = || 0..3u64;
    let len = prop_oneof![0..64usize, 64..600usize];
    let manner = prop_oneof![
        3 => Just((false, false)),
        3 => Just((true, false)),
        2 => Just((false, true)),
    ];
    let sends = ((host(), host()), tag(), len.clone(), manner).prop_map(
        |((from, to), tag, len, (inject, ack))| {
            let len = if inject { len % 129 } else { len };
            message(from, to, tag, len, inject, ack)
        },
    );
    let receives = (host(), tag(), len, prop::option::weighted(0.2, host()))
        .prop_map(|(host, tag, len, src)| recv_from(host, tag, len, src));
    let leaves =
        (host(), any::<bool>(), any::<bool>(), 0..40u32).prop_map(|(host, done, reopens, away)| {
            Op::Leave {
                host,
                done,
                reopens,
                away,
            }
        });
    prop_oneof![
        10 => sends,
        8 => receives,
        5 => (1..20u32).prop_map(Op::Run),
        2 => leaves,
    ]
}

fn timing() -> impl Strategy<Value = Timing> {
    (
        prop_oneof![Just(0u64), 1..5_000u64],
        prop_oneof![Just(0u64), 1..20u64],
        prop_oneof![Just(100usize), Just(300), Just(100_000)],
        any::<bool>(),
    )
        .prop_map(|(delay, per_byte, capacity, choppy)| Timing {
            delay,
            per_byte,
            capacity,
            choppy,
        })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn what_was_reported_arrives_though_processes_leave_at_any_step(
        nodes in 2..=4usize,
        timing in timing(),
        seed in any::<u64>(),
        small in any::<bool>(),
        program in prop::collection::vec(op(), 0..80),
    ) {
        let mut setup = setup(nodes, timing, seed);
        if !small {
            for node in &mut setup.nodes {
                node.kept_bytes = 100_000;
                node.kept_messages = 1000;
                node.kept_total = 1_000_000;
                node.eager_max = 1000;
            }
        }
        World::new(&setup).run(&program);
    }
}
