//! The same seed gives the same run, to the last byte and nanosecond.

use ripstop_sim::model::address;
use ripstop_sim::{NodeConfig, Op, Setup, Timing, World};

fn digest(seed: u64) -> u64 {
    let known: Vec<u16> = (0..4).map(address).collect();
    let mut world = World::new(&Setup {
        nodes: vec![NodeConfig::new(&known); 4],
        timing: Timing {
            delay: 700,
            per_byte: 2,
            capacity: 400,
            choppy: true,
        },
        seed,
    });
    for step in 0..60 {
        let (from, to) = (step % 4, (step * 7 + 1) % 4);
        world.perform(&Op::Send {
            from,
            to,
            tag: Some(1),
            data: None,
            segments: vec![step * 37 % 1500],
            inject: step % 5 == 0 && step * 37 % 1500 < 128,
            completion: step % 5 != 0,
            ack: step % 3 == 0,
        });
        world.perform(&Op::Recv {
            host: to,
            tag: Some((1, 0)),
            src: None,
            segments: vec![1500],
            completion: true,
            multi: false,
        });
        world.perform(&Op::Run(step as u32 % 6));
        if step == 40 {
            world.perform(&Op::Restart {
                host: 2,
                quietly: false,
            });
        }
    }
    world.finish();
    world.digest()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let runs: Vec<u64> = (0..8).map(digest).collect();
    assert_eq!(runs, (0..8).map(digest).collect::<Vec<_>>());
    let other = |index: usize| runs[index + 1..].contains(&runs[index]);
    assert!(!(0..8).any(other), "seeds make no difference");
}
