//! A circle of joins whose members are not polled in step, as processes that share a processor
//! are not.

use core::time::Duration;
use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;
use ripstop_types::Errno;

use super::tests_talk::{Members, actions, deliver_to, join_in_circle};
use super::{Action, Message, Task};

extern crate std;

/// A member is polled.
#[derive(Clone, Debug)]
struct Turn {
    member: usize,
    /// Milliseconds after the turn before.
    after: u64,
}

/// Most turns follow each other closely; in some gaps nobody runs.
fn turns(n: usize) -> impl Strategy<Value = Vec<Turn>> {
    let after = prop_oneof![9 => 0..60_u64, 1 => 0..1_500_u64];
    let turn = (0..n, after).prop_map(|(member, after)| Turn { member, after });
    prop::collection::vec(turn, 400)
}

/// The longest that a member is not polled.
const IDLE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Polled {
    coll: Members,
    arriving: VecDeque<(usize, Message)>,
    /// What its join ended with.
    ended: Option<Option<Errno>>,
    last: Duration,
}

fn poll(members: &mut [Polled], member: usize, now: Duration) {
    let polled = &mut members[member];
    polled.last = now;
    for (from, message) in polled.arriving.drain(..) {
        deliver_to(&mut polled.coll, from, &message);
    }
    polled.coll.tick(now);
    for action in actions(&mut polled.coll) {
        match action {
            Action::Send { to, message, .. } => {
                members[to.0 as usize].arriving.push_back((member, message));
            }
            Action::Task(Task::Joined { error, .. }) => members[member].ended = Some(error),
            _ => {}
        }
    }
}

/// Polls members in that order, again and again, for two minutes.
fn run(members: &mut [Polled], turns: &[Turn]) {
    let mut now = Duration::ZERO;
    for turn in turns.iter().cycle() {
        now += Duration::from_millis(turn.after + 1);
        if now > Duration::from_secs(120) {
            break;
        }
        poll(members, turn.member, now);
        for member in 0..members.len() {
            if now - members[member].last > IDLE {
                poll(members, member, now);
            }
        }
    }
}

proptest! {
    #[test]
    fn members_out_of_step_in_a_circle_all_end(
        (n, turns) in (2..6_usize).prop_flat_map(|n| (Just(n), turns(n)))
    ) {
        let mut colls: Vec<Members> = (0..n).map(|_| Members::new()).collect();
        join_in_circle(&mut colls, n as u64, |me| me % 2 == 0);
        let polled = |coll| Polled { coll, ..Polled::default() };
        let mut members: Vec<Polled> = colls.into_iter().map(polled).collect();
        run(&mut members, &turns);
        for member in members {
            prop_assert_eq!(member.ended, Some(Some(Errno::EINVAL)));
        }
    }
}
