//! A foe that asks for the end of its connection, or is asked for it, and breaks the rules.

use ripstop_wire::rxm::{Body, Message, Parting};

use crate::moves::Move;
use crate::scene::{FOE, Scene};

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
