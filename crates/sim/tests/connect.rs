//! Connections of RDM endpoints: both sides at once, restarts, loopback, refusals.

use ripstop_sim::model::address;
use ripstop_sim::{Node, NodeConfig, Op, Setup, Timing, World};

const TIMING: Timing = Timing {
    delay: 1000,
    per_byte: 1,
    capacity: 500,
    choppy: true,
};

fn world(nodes: usize, seed: u64) -> World {
    let known: Vec<u16> = (0..nodes).map(address).collect();
    World::new(&Setup {
        nodes: vec![NodeConfig::new(&known); nodes],
        timing: TIMING,
        seed,
    })
}

fn send(from: usize, to: usize, len: usize) -> Op {
    Op::Send {
        from,
        to,
        tag: Some(1),
        data: None,
        segments: vec![len],
        inject: false,
        completion: true,
        ack: true,
    }
}

fn recv(host: usize, src: usize) -> Op {
    Op::Recv {
        host,
        tag: Some((1, 0)),
        src: Some(src),
        segments: vec![5000],
        completion: true,
        multi: false,
    }
}

/// How many streams each of two nodes has to the other.
fn streams(world: &mut World, a: usize, b: usize) -> [usize; 2] {
    [(a, b), (b, a)].map(|(host, peer)| world.node(host).streams_with(address(peer)))
}

#[test]
fn of_two_connections_at_once_one_survives() {
    for seed in 0..100 {
        let mut world = world(2, seed);
        let mut last = 0;
        for len in [10, 1500] {
            for (a, b) in [(0, 1), (1, 0)] {
                last = world.net.lock().now();
                world.perform(&recv(b, a));
                world.perform(&send(a, b, len));
                // The second node asks a little later, up to never on its own account.
                world.perform(&Op::Run((seed % 23) as u32));
            }
        }
        // All get through without a time-out, the least of which is 50 ms.
        while !(world.model.is_done(0) && world.model.is_done(1)) {
            world.perform(&Op::Run(1));
        }
        let took = world.net.lock().now() - last;
        assert!(took < 300_000, "seed {seed}: {took} ns");
        world.settle();
        assert_eq!(streams(&mut world, 0, 1), [1, 1], "seed {seed}");
        world.finish();
    }
}

#[test]
fn everybody_connects_to_everybody_at_once() {
    for seed in 0..50 {
        let mut world = world(5, seed);
        for a in 0..5 {
            for b in 0..5 {
                world.perform(&recv(b, a));
                world.perform(&send(a, b, 100));
            }
        }
        world.settle();
        for a in 0..5 {
            for b in 0..a {
                assert_eq!(streams(&mut world, a, b), [1, 1], "seed {seed}");
            }
        }
        world.finish();
    }
}

#[test]
fn an_endpoint_sends_to_itself() {
    for seed in 0..50 {
        let mut world = world(1, seed);
        for len in [0, 10, 1500] {
            world.perform(&send(0, 0, len));
            world.perform(&recv(0, 0));
        }
        world.settle();
        // Both ends of one stream.
        assert_eq!(streams(&mut world, 0, 0), [2, 2]);
        world.finish();
    }
}

#[test]
fn a_restarted_peer_is_reached_and_reaches_others() {
    for seed in 0..100 {
        let mut world = world(2, seed);
        for (a, b) in [(0, 1), (1, 0)] {
            world.perform(&recv(b, a));
            world.perform(&send(a, b, 100));
        }
        world.settle();
        let quietly = seed % 2 == 0;
        world.perform(&Op::Restart { host: 1, quietly });
        // Of a peer that vanished nobody knows until it asks again.
        let (from, to) = if quietly { (1, 0) } else { (0, 1) };
        if !quietly {
            world.settle();
        }
        for len in [10, 1500] {
            world.perform(&recv(to, from));
            world.perform(&send(from, to, len));
            world.perform(&Op::Run((seed % 17) as u32));
        }
        world.settle();
        // The old stream stays until its end, which the system finds if nobody else tells.
        world.net.lock().reset_orphans();
        world.settle();
        assert_eq!(streams(&mut world, 0, 1), [1, 1], "seed {seed}");
        world.perform(&recv(from, to));
        world.perform(&send(to, from, 10));
        world.finish();
    }
}

/// Longer than a node tries to reach a peer.
const AWAY: u64 = 300_000_000;

/// Lets so many steps of time pass in which only these nodes make progress.
fn only(world: &mut World, hosts: &[usize], steps: u64, step: u64) {
    for _ in 0..steps {
        for host in hosts {
            // A node that polls idly lets the others make progress.
            while world.node(*host).has_ready() {
                let entry = world.node(*host).read();
                assert!(entry.is_none(), "{entry:?}");
            }
        }
        world.net.lock().pass(step);
    }
}

/// Each node has sent a message to the other one. The first makes no progress until its time to connect is over; one
/// connection then carries both messages.
fn connects_though_the_first_node_is_away(mut world: World, seed: u64) {
    only(&mut world, &[1], 100, AWAY / 100);
    // The model does not allow for failures: no process has ended.
    for (host, src) in [(0, 1), (1, 0)] {
        world.perform(&recv(host, src));
    }
    world.settle();
    assert_eq!(streams(&mut world, 0, 1), [1, 1], "seed {seed}");
    world.finish();
}

#[test]
fn a_peer_that_starts_and_asks_while_this_side_is_away_is_reached() {
    for seed in 0..40 {
        let mut world = world(2, seed);
        drop(world.nodes[1].take());
        world.perform(&send(0, 1, 10));
        only(&mut world, &[0], 20, 1000);
        let peer = NodeConfig::new(&[address(0), address(1)]);
        let peer = Node::open(&world.net, address(1), 7, &peer);
        world.nodes[1] = Some(peer.unwrap());
        world.perform(&send(1, 0, 10));
        connects_though_the_first_node_is_away(world, seed);
    }
}

#[test]
fn a_request_of_the_peer_counts_that_comes_while_this_side_is_away() {
    for seed in 0..40 {
        let mut world = world(2, seed);
        world.perform(&send(1, 0, 10));
        // What the second node writes to the stream that it opens comes later than its refusal.
        world.net.lock().stall(1, AWAY / 3);
        world.perform(&send(0, 1, 10));
        only(&mut world, &[0, 1], 100, 1000);
        connects_though_the_first_node_is_away(world, seed);
    }
}

#[test]
fn what_was_sent_to_a_peer_that_does_not_listen_fails() {
    let mut world = world(2, 1);
    world.net.lock().kill(address(1));
    world.model.cut(0, 1);
    for len in [0, 100, 1500] {
        world.perform(&send(0, 1, len));
    }
    // The model holds an error that names the peer against each of them.
    while !world.model.is_done(0) {
        world.perform(&Op::Run(1));
    }
    let now = world.net.lock().now() / 1_000_000;
    assert!((100..=250).contains(&now), "{now} ms");
    assert_eq!(streams(&mut world, 0, 1), [0, 0]);
}
