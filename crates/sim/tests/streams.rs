//! One stream between two nodes: split at every byte, and cut at every byte.

use proptest::prelude::*;
use proptest::sample::select;
use ripstop_sim::model::address;
use ripstop_sim::{NodeConfig, Op, Setup, Timing, World};

/// What a message counts that is kept, beside its bytes.
const ENTRY: u64 = 256;

const TIMING: Timing = Timing {
    delay: 10,
    per_byte: 1,
    capacity: 200,
    choppy: false,
};

fn world(timing: Timing, owned: bool) -> World {
    let mut config = NodeConfig::new(&[address(0), address(1)]);
    config.owned = owned;
    config.eager_max = 150;
    config.inline = 20;
    config.kept_bytes = 60 + 2 * ENTRY;
    config.kept_messages = 3;
    World::new(&Setup {
        nodes: vec![config.clone(), config],
        timing,
        seed: 7,
    })
}

fn send(tag: Option<u64>, data: Option<u64>, segments: &[usize]) -> Op {
    Op::Send {
        from: 0,
        to: 1,
        tag,
        data,
        segments: segments.to_vec(),
        inject: false,
        completion: true,
        ack: segments.len() > 1,
    }
}

fn recv(tag: Option<u64>, segments: &[usize]) -> Op {
    Op::Recv {
        host: 1,
        tag: tag.map(|tag| (tag, 0)),
        src: None,
        segments: segments.to_vec(),
        completion: true,
        multi: false,
    }
}

/// Every kind of message, expected and unexpected, fitting and truncated.
fn program() -> Vec<Op> {
    vec![
        recv(Some(1), &[8, 8]),
        recv(None, &[30]),
        send(Some(1), None, &[12]),
        send(None, Some(9), &[10, 0, 15, 3]),
        send(Some(2), Some(8), &[]),
        send(Some(3), None, &[40]),
        send(Some(4), None, &[170]),
        send(Some(5), None, &[100, 100]),
        Op::Run(40),
        recv(Some(4), &[170]),
        recv(Some(5), &[50]),
        recv(Some(3), &[20, 30]),
        recv(Some(2), &[]),
        send(None, None, &[70]),
        Op::Run(40),
        recv(None, &[70]),
    ]
}

#[test]
fn runs_of_every_length_arrive() {
    for owned in [false, true] {
        // The capacity bounds every run of bytes, so that headers and payloads are split at
        // every place, in the request and its answer too.
        for capacity in 1..=200 {
            let timing = Timing { capacity, ..TIMING };
            world(timing, owned).run(&program());
        }
    }
}

#[test]
fn a_stream_cut_at_any_byte_ends_what_was_on_it_and_nothing_else() {
    // The stream towards the receiver has some 850 bytes, that towards the sender 100.
    for (host, peer, bytes) in [(1, 0, 900), (0, 1, 150)] {
        for after in 0..bytes {
            let mut world = world(TIMING, false);
            let mut ops = program().into_iter();
            // Up to the first message, so that there is a stream.
            for op in ops.by_ref().take(3) {
                world.perform(&op);
            }
            while world.end(host, peer).is_none() {
                world.perform(&Op::Run(1));
            }
            world.perform(&Op::Cut { host, peer, after });
            for op in ops {
                world.perform(&op);
            }
            // Whatever it came to: the two can talk again.
            world.perform(&recv(Some(9), &[10]));
            world.perform(&send(Some(9), None, &[10]));
            world.finish();
        }
    }
}

/// Lengths about that of a receive buffer, with a header and without, and such as are far from it.
fn lengths() -> impl Strategy<Value = Vec<usize>> {
    let about = |len: usize| len - 1..=len + 1;
    let len = prop_oneof![
        3 => select(vec![0, 1, 100, 900]),
        2 => prop_oneof![about(1024 - 24), about(1024), about(5000)],
        3 => prop_oneof![about(16_384 - 24), about(16_384), about(17_000), about(40_000)],
    ];
    prop::collection::vec(len, 1..12)
}

proptest! {
    /// Long and short messages in any order, of which some are received before they come. Reads are shorter after long ones.
    #[test]
    fn messages_of_any_length_arrive_behind_each_other(
        lens in lengths(),
        posted in prop::collection::vec(any::<bool>(), 12),
        runs in prop::collection::vec(0..3u32, 12),
        capacity in select(vec![1_000, 20_000, 1_000_000]),
        choppy in any::<bool>(),
        inline in select(vec![0, 60_000]),
    ) {
        let timing = Timing { capacity, choppy, ..TIMING };
        let mut config = NodeConfig::new(&[address(0), address(1)]);
        config.eager_max = 60_000;
        config.inline = inline;
        (config.kept_bytes, config.kept_total) = (1_000_000, 1_000_000);
        let mut world = World::new(&Setup { nodes: vec![config.clone(), config], timing, seed: 3 });
        let number = |tag| Some(tag as u64);
        for (tag, len) in lens.iter().enumerate().filter(|(tag, _)| posted[*tag]) {
            world.perform(&recv(number(tag), &[*len]));
        }
        for (tag, len) in lens.iter().enumerate() {
            world.perform(&send(number(tag), None, &[*len]));
            world.perform(&Op::Run(runs[tag]));
        }
        for (tag, len) in lens.iter().enumerate().filter(|(tag, _)| !posted[*tag]) {
            world.perform(&recv(number(tag), &[*len]));
        }
        world.settle();
        prop_assert!(world.model.open_recvs(1).is_empty(), "not all were received");
        world.finish();
    }
}
