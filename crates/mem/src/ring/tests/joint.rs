//! Joint copies on one thread; `ring/model.rs` has them on two.

use super::direction;
use crate::ring::{JointMessage, MAX_JOINT_PARTS};

fn payload(address: u64) -> JointMessage {
    JointMessage {
        address,
        len: 1 << 20,
        index: 4,
    }
}

#[test]
fn parts_are_claimed_from_both_ends_until_they_meet() {
    let (writer, reader) = direction(16, 1024);
    let (helper, leader) = (writer.joint_messages(), reader.joint_messages());
    assert_eq!(helper.payload(), None);
    assert!(leader.is_finished());
    leader.open(payload(1), 5);
    assert!(!leader.is_finished());
    assert_eq!(helper.payload(), Some(payload(1)));
    assert_eq!(helper.claim(payload(1), MAX_JOINT_PARTS), Some(4));
    assert_eq!(leader.claim(), Some(0));
    assert_eq!(helper.claim(payload(1), MAX_JOINT_PARTS), Some(3));
    assert_eq!(leader.claim(), Some(1));
    assert_eq!(leader.claim(), Some(2));
    assert_eq!(
        (leader.claim(), helper.claim(payload(1), MAX_JOINT_PARTS)),
        (None, None)
    );
    assert_eq!(leader.taken(), 2);
    helper.copied(true);
    assert!(!leader.is_finished(), "the helper is at its other part");
    helper.copied(true);
    assert!(leader.is_finished() && !leader.has_failed());
}

#[test]
fn nothing_is_claimed_of_one_that_is_closed_or_over() {
    let (writer, reader) = direction(16, 1024);
    let (helper, leader) = (writer.joint_messages(), reader.joint_messages());
    leader.open(payload(1), 3);
    assert_eq!(helper.claim(payload(1), MAX_JOINT_PARTS), Some(2));
    leader.close();
    assert_eq!(
        (leader.claim(), helper.claim(payload(1), MAX_JOINT_PARTS)),
        (None, None)
    );
    assert!(!leader.is_finished());
    helper.copied(false);
    assert!(leader.is_finished() && leader.has_failed());
    leader.open(payload(9), 2);
    assert!(!leader.has_failed());
    assert_eq!(
        helper.claim(payload(1), MAX_JOINT_PARTS),
        None,
        "it is another one"
    );
    assert_eq!(helper.claim(payload(9), MAX_JOINT_PARTS), Some(1));
}

#[test]
fn words_of_a_liar_are_no_parts() {
    let (writer, reader) = direction(16, 1024);
    let (helper, leader) = (writer.joint_messages(), reader.joint_messages());
    leader.open(payload(1), 3);
    // It says that it has copied more parts than there are.
    for _ in 0..200 {
        helper.copied(true);
    }
    while leader.claim().is_some() {}
    assert!(!leader.is_finished(), "what is claimed here is not there");
}
