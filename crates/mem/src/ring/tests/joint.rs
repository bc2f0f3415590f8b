//! Joint copies on one thread; `ring/model.rs` has them on two.

use super::direction;
use crate::ring::{JointPayload, MAX_JOINT_PARTS};

fn payload(address: u64) -> JointPayload {
    JointPayload {
        address,
        len: 1 << 20,
        index: 4,
    }
}

#[test]
fn parts_are_claimed_from_both_ends_until_they_meet() {
    let (writer, reader) = direction(16, 1024);
    let (sender, receiver) = (writer.joint(), reader.joint());
    assert_eq!(sender.payload(), None);
    assert!(receiver.is_finished());
    receiver.open(payload(1), 5);
    assert!(!receiver.is_finished());
    assert_eq!(sender.payload(), Some(payload(1)));
    assert_eq!(sender.claim(payload(1), MAX_JOINT_PARTS), Some(4));
    assert_eq!(receiver.claim(), Some(0));
    assert_eq!(sender.claim(payload(1), MAX_JOINT_PARTS), Some(3));
    assert_eq!(receiver.claim(), Some(1));
    assert_eq!(receiver.claim(), Some(2));
    assert_eq!(
        (receiver.claim(), sender.claim(payload(1), MAX_JOINT_PARTS)),
        (None, None)
    );
    assert_eq!(receiver.taken(), 2);
    sender.copied(true);
    assert!(!receiver.is_finished(), "the sender is at its other part");
    sender.copied(true);
    assert!(receiver.is_finished() && !receiver.has_failed());
}

#[test]
fn nothing_is_claimed_of_one_that_is_closed_or_over() {
    let (writer, reader) = direction(16, 1024);
    let (sender, receiver) = (writer.joint(), reader.joint());
    receiver.open(payload(1), 3);
    assert_eq!(sender.claim(payload(1), MAX_JOINT_PARTS), Some(2));
    receiver.close();
    assert_eq!(
        (receiver.claim(), sender.claim(payload(1), MAX_JOINT_PARTS)),
        (None, None)
    );
    assert!(!receiver.is_finished());
    sender.copied(false);
    assert!(receiver.is_finished() && receiver.has_failed());
    receiver.open(payload(9), 2);
    assert!(!receiver.has_failed());
    assert_eq!(
        sender.claim(payload(1), MAX_JOINT_PARTS),
        None,
        "it is another one"
    );
    assert_eq!(sender.claim(payload(9), MAX_JOINT_PARTS), Some(1));
}

#[test]
fn words_of_a_liar_are_no_parts() {
    let (writer, reader) = direction(16, 1024);
    let (sender, receiver) = (writer.joint(), reader.joint());
    receiver.open(payload(1), 3);
    // It says that it has copied more parts than there are.
    for _ in 0..200 {
        sender.copied(true);
    }
    while receiver.claim().is_some() {}
    assert!(!receiver.is_finished(), "what is claimed here is not there");
}
