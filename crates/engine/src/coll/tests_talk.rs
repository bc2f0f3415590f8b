//! What members make of each other's messages.

use core::time::Duration;
use std::vec;
use std::vec::Vec;

use ripstop_types::{AtomicOp, Collective, Datatype, Errno, FiAddr};

use super::{
    Action, Arrival, Collectives, Held, Joining, Kind, Message, Place, Purpose, Request, Task,
};
use crate::common::Mem;
use crate::id::{ConnId, EpId, GroupId, SlotId};

extern crate std;

const EP: EpId = EpId::FIRST;
const SETS: [u64; 2] = [11, 12];

pub(super) type Members = Collectives<Mem>;

pub(super) fn actions(coll: &mut Members) -> Vec<Action<Mem>> {
    std::iter::from_fn(|| coll.next_action()).collect()
}

/// Joins a group of those ranks, whose addresses are the same numbers.
fn join(coll: &mut Members, ranks: &[u64], me: u64, digest: u64) -> GroupId {
    let members: Vec<FiAddr> = ranks.iter().map(|rank| FiAddr(*rank)).collect();
    let rank = ranks.iter().position(|rank| *rank == me).unwrap();
    let joining = Joining {
        ep: EP,
        members: &members,
        me: rank as u32,
        digest,
    };
    coll.join(&joining).unwrap()
}

/// What members were told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    /// What joins ended with.
    joins: Vec<Option<Errno>>,
    /// What the log is to know.
    /// What waits, and whether the member it waits for does as well.
    waits: Vec<(Held, bool)>,
}

/// Carries what members say to each other until they are silent.
fn carry(members: &mut [Members]) -> Told {
    let mut told = Told::default();
    while !members.iter().all(Members::is_quiet) {
        for from in 0..members.len() {
            for action in actions(&mut members[from]) {
                match action {
                    Action::Send { to, message, .. } => {
                        deliver_to(&mut members[to.0 as usize], from, &message);
                    }
                    Action::Task(Task::Joined { error, .. }) => told.joins.push(error),
                    Action::Task(Task::Waits { held, crossed, .. }) => {
                        told.waits.push((held, crossed))
                    }
                    _ => {}
                }
            }
        }
    }
    told
}

/// The connection of a member.
fn conn_of(member: u32) -> ConnId {
    ConnId::new(member + 1).unwrap()
}

pub(super) fn deliver_to(to: &mut Members, from: usize, message: &Message) {
    let from = (EP, FiAddr(from as u64), ConnId::FIRST);
    match to.handle_message(from, message) {
        Arrival::Keep => drop(to.keep(from, *message, None).unwrap()),
        arrival => assert!(matches!(arrival, Arrival::Discard), "{arrival:?}"),
    }
}

fn allreduce(count: u64) -> Request<Mem> {
    let len = count as usize * 8;
    Request {
        coll: Collective::Allreduce,
        datatype: Datatype::Uint64,
        op: AtomicOp::Sum,
        count,
        root: 0,
        input: Mem(1 << 32, len),
        result: Mem(1 << 40, len),
        context: 5,
    }
}

/// Member 0 of a group of four, with an operation on 1 MiB under way; and what it has said.
fn started() -> (Members, Vec<Message>) {
    started_after(|_| ())
}

/// As [`started`]; `first` happens while the group is being joined.
fn started_after(first: impl FnOnce(&mut Members)) -> (Members, Vec<Message>) {
    let mut coll = Members::new();
    let group = join(&mut coll, &[0, 1, 2, 3], 0, SETS[0]);
    first(&mut coll);
    for from in 1..4 {
        let message = Message {
            kind: Kind::Join,
            group: SETS[0],
            check: 4,
            seq: 1,
            tag: 0,
            from,
            len: 0,
        };
        let arrival = coll.handle_message((EP, FiAddr(u64::from(from)), conn_of(from)), &message);
        assert!(matches!(arrival, Arrival::Discard));
    }
    assert_eq!(coll.members(group).map(<[FiAddr]>::len), Some(4));
    actions(&mut coll);
    let request = allreduce(1 << 17);
    let plan = coll.plan(group, &request).unwrap();
    assert!(Members::scratch(&plan, &request) > 0);
    coll.start(group, request, Some(SlotId::FIRST)).unwrap();
    let said = actions(&mut coll)
        .into_iter()
        .filter_map(|action| match action {
            Action::Send { message, .. } => Some(message),
            _ => None,
        });
    let said = said.collect();
    (coll, said)
}

fn data(like: &Message, from: u32, tag: u32, len: u64) -> Message {
    Message {
        kind: Kind::Data,
        tag,
        from,
        len,
        ..*like
    }
}

fn deliver(coll: &mut Members, message: &Message) -> Arrival<Mem> {
    let src = FiAddr(u64::from(message.from));
    coll.handle_message((EP, src, conn_of(message.from)), message)
}

/// Tags of the last two steps.
const BACK: u32 = 1 << 24;

#[test]
fn all_long_messages_are_granted_at_the_start() {
    let (_, said) = started();
    let ready: Vec<(Kind, u32)> = said.iter().map(|m| (m.kind, m.tag)).collect();
    assert_eq!(ready, [(Kind::Ready, 2), (Kind::Ready, 2)]);
}

#[test]
fn data_of_a_later_step_goes_to_its_place_once() {
    let (mut coll, said) = started();
    // The last message of all comes first.
    let last = data(&said[0], 1, BACK, 512 << 10);
    let Arrival::Into { of, place } = deliver(&mut coll, &last) else {
        panic!("it has no place");
    };
    assert!(matches!(place, Place::User(Mem(at, len)) if at >= 1 << 40 && len == 512 << 10));
    assert!(matches!(deliver(&mut coll, &last), Arrival::Broken));
    assert!(matches!(of, Purpose::Early(_)));
    coll.arrived(of);
    assert!(matches!(deliver(&mut coll, &last), Arrival::Broken));
    let first = data(&said[0], 1, 0, 512 << 10);
    let Arrival::Into { of, place } = deliver(&mut coll, &first) else {
        panic!("it has no place");
    };
    assert!(matches!(place, Place::Slot { slot, .. } if slot == SlotId::FIRST));
    assert!(matches!(deliver(&mut coll, &first), Arrival::Broken));
    assert!(matches!(of, Purpose::Step(_)));
    coll.arrived(of);
}

#[test]
fn a_long_message_without_a_grant_breaks_the_connection() {
    let (mut coll, said) = started();
    for (from, tag, len) in [
        // Of another length, from another member, of no step.
        (1, BACK, 512 << 10 | 8),
        (2, BACK, 512 << 10),
        (1, 5, 512 << 10),
    ] {
        let message = data(&said[0], from, tag, len);
        assert!(matches!(deliver(&mut coll, &message), Arrival::Broken));
    }
    let none = Message {
        kind: Kind::Ready,
        tag: 0,
        from: 1,
        len: 0,
        ..said[0]
    };
    assert!(matches!(deliver(&mut coll, &none), Arrival::Broken));
}

#[test]
fn a_member_that_is_done_without_what_it_must_get_does_something_else() {
    let (_, said) = started();
    // Its word that it is ready, said by nobody of the group before that was up.
    let stranger = |coll: &mut Members| {
        let ready = Message {
            kind: Kind::Ready,
            tag: u32::MAX,
            from: 1,
            len: 0,
            ..said[0]
        };
        let from = (EP, FiAddr(9), conn_of(9));
        if let Arrival::Keep = coll.handle_message(from, &ready) {
            coll.keep(from, ready, None).unwrap();
        }
    };
    for strange in [false, true] {
        let (mut coll, _) = started_after(|coll| {
            if strange {
                stranger(coll);
            }
        });
        // All data of member 1 is there, but it has never granted that of this one.
        for (tag, len) in [(0, 512 << 10), (BACK, 512 << 10)] {
            match deliver(&mut coll, &data(&said[0], 1, tag, len)) {
                Arrival::Into { of, .. } => coll.arrived(of),
                other => panic!("{other:?}"),
            }
        }
        let done = Message {
            kind: Kind::Gone,
            tag: super::Gone::Done.number(),
            from: 1,
            len: 0,
            ..said[0]
        };
        assert!(matches!(deliver(&mut coll, &done), Arrival::Discard));
        let told = actions(&mut coll).into_iter().any(|action| {
            matches!(action, Action::Send { message, .. }
                if message.kind == Kind::Gone && message.tag == super::Gone::Mismatch.number())
        });
        assert!(told, "a stranger: {strange}");
    }
}

#[test]
fn an_operation_that_fails_lets_go_of_what_arrives_for_later() {
    let (mut coll, said) = started();
    let last = data(&said[0], 1, BACK, 512 << 10);
    let Arrival::Into { of, .. } = deliver(&mut coll, &last) else {
        panic!("it has no place");
    };
    assert!(matches!(of, Purpose::Early(_)));
    coll.lost(EP, FiAddr(2), None, Errno::ECONNRESET);
    let found = actions(&mut coll);
    let place = |wanted: &dyn Fn(&Action<Mem>) -> bool| found.iter().position(wanted);
    let conn_id = conn_of(1);
    let dropped = place(
        &|action| matches!(action, Action::Drop { conn, of: dropped } if (*conn, *dropped) == (conn_id, of)),
    );
    let ended = place(&|action| matches!(action, Action::Ended(_)));
    assert!(dropped.unwrap() < ended.unwrap(), "{found:?}");
}

/// Seconds pass.
fn pass(members: &mut [Members], seconds: std::ops::Range<u64>) -> Told {
    let mut told = Told::default();
    for second in seconds {
        for coll in &mut *members {
            coll.tick(Duration::from_secs(second));
        }
        let more = carry(members);
        told.joins.extend(more.joins);
        told.waits.extend(more.waits);
    }
    told
}

fn nodes(n: usize) -> Vec<Members> {
    (0..n).map(|_| Members::new()).collect()
}

#[test]
fn members_that_wait_for_each_other_in_different_groups_end() {
    // By who is member 0 of which: one of both, each of its own, the other of each.
    for sets in [
        [[0, 1, 2], [0, 1, 3]],
        [[0, 1, 2], [1, 0, 2]],
        [[1, 0, 2], [0, 1, 2]],
    ] {
        let mut members = nodes(4);
        join(&mut members[0], &sets[0], 0, SETS[0]);
        join(&mut members[1], &sets[1], 1, SETS[1]);
        let told = pass(&mut members, 0..8);
        assert_eq!(told.joins, [], "too early: {sets:?}");
        assert!(told.waits.iter().any(|(_, crossed)| *crossed), "{sets:?}");
        let told = pass(&mut members, 8..30);
        assert_eq!(told.joins, [Some(Errno::EINVAL); 2], "{sets:?}");
    }
}

/// The sets of a circle: each member joins one of which the next one is to be a member, and does
/// not join that of the one before.
pub(super) fn join_in_circle(members: &mut [Members], n: u64, first: impl Fn(u64) -> bool) {
    for me in 0..n {
        let next = (me + 1) % n;
        let ranks = match first(me) {
            true => [me, next],
            false => [next, me],
        };
        join(&mut members[me as usize], &ranks, me, 100 + me);
    }
}

#[test]
fn members_that_wait_for_each_other_in_a_circle_end() {
    for n in 2..=9 {
        // By who is member 0: who joins, who is waited for, and both.
        for first in [|_| true, |_| false, |me| me % 2 == 0] {
            let mut members = nodes(n as usize);
            join_in_circle(&mut members, n, first);
            let told = pass(&mut members, 0..10);
            assert_eq!(told.joins, [], "too early: {n}");
            assert!(told.waits.iter().any(|(_, crossed)| *crossed), "{n}");
            let told = pass(&mut members, 10..30);
            assert_eq!(told.joins, vec![Some(Errno::EINVAL); n as usize], "{n}");
        }
    }
}

#[test]
fn who_waits_for_a_circle_hears_of_it_and_others_wait_on() {
    let mut members = nodes(7);
    join_in_circle(&mut members, 3, |_| true);
    // One that has joined the set of a member of the circle.
    for me in [4, 5] {
        let ranks = [me, 0, 6];
        join(&mut members[me as usize], &ranks, me, 200 + me);
    }
    join(&mut members[3], &[0, 3], 3, 300);
    let told = pass(&mut members, 0..60);
    assert_eq!(told.joins, [Some(Errno::EINVAL); 3]);
    // The circle is gone, and who waited for one of it gets what it waited for.
    join(&mut members[0], &[4, 0, 6], 0, 204);
    join(&mut members[6], &[4, 0, 6], 6, 204);
    join(&mut members[0], &[0, 3], 0, 300);
    assert_eq!(carry(&mut members).joins, [None; 5]);
}

#[test]
fn a_chain_of_waiting_members_is_no_circle() {
    let mut members = nodes(5);
    for me in 0..4 {
        join(&mut members[me as usize], &[me, me + 1], me, 100 + me);
    }
    let told = pass(&mut members, 0..100);
    assert_eq!(told.joins, []);
    assert!(told.waits.iter().all(|(_, crossed)| !crossed));
    for me in 1..5 {
        join(&mut members[me as usize], &[me - 1, me], me, 99 + me);
    }
    assert_eq!(carry(&mut members).joins, [None; 8]);
}

#[test]
fn a_circle_that_opens_in_time_ends_nothing() {
    let mut members = nodes(3);
    join_in_circle(&mut members, 3, |me| me == 1);
    assert_eq!(pass(&mut members, 0..9).joins, []);
    join(&mut members[0], &[0, 2], 0, 102);
    let told = pass(&mut members, 9..40);
    assert_eq!(told.joins, [None; 2]);
}

#[test]
fn a_word_of_a_circle_that_nobody_looked_for_ends_nothing() {
    let mut members = nodes(2);
    join(&mut members[0], &[0, 1], 0, SETS[0]);
    let word = |check| Message {
        kind: Kind::Decline,
        group: SETS[0],
        check,
        seq: 0,
        tag: super::Gone::Circle.number(),
        from: 1,
        len: 0,
    };
    for check in 0..3 {
        deliver_to(&mut members[0], 1, &word(check));
    }
    assert_eq!(carry(&mut members).joins, []);
}

#[test]
fn probes_without_end_are_passed_on_in_bounds() {
    let mut coll = Members::new();
    join(&mut coll, &[0, 1], 0, SETS[0]);
    let mut said = 0;
    for number in 1..10_000_u64 {
        let probe = Message {
            kind: Kind::Ping,
            group: SETS[1],
            check: u64::MAX - 10_000 + number,
            seq: 0,
            tag: 1,
            from: 0,
            len: 0,
        };
        deliver_to(&mut coll, 1, &probe);
        said += actions(&mut coll).len();
    }
    assert!((1..=32).contains(&said), "{said}");
}

#[test]
fn the_end_of_a_crossed_join_does_not_end_the_next() {
    let mut members = nodes(2);
    join(&mut members[0], &[1, 0], 0, SETS[1]);
    // What member 0 of that set said when it gave up came late.
    let late = Message {
        kind: Kind::Decline,
        group: SETS[1],
        check: 0,
        seq: 0,
        tag: super::Gone::Mismatch.number(),
        from: 0,
        len: 0,
    };
    deliver_to(&mut members[0], 1, &late);
    assert_eq!(carry(&mut members).joins, []);
    join(&mut members[1], &[1, 0], 1, SETS[1]);
    assert_eq!(carry(&mut members).joins, [None; 2]);
}

/// A message about joining `SETS[0]`.
fn about_joining(kind: Kind, from: u32, seq: u32) -> Message {
    Message {
        kind,
        group: SETS[0],
        check: 2,
        seq,
        tag: 0,
        from,
        len: 0,
    }
}

/// What member 0 of a group of two answers a join of member 1 after it has lost it, and `then`.
fn answer_after_loss(then: impl FnOnce(&mut Members)) -> Vec<(Kind, u32)> {
    let mut coll = Members::new();
    join(&mut coll, &[0, 1], 0, SETS[0]);
    coll.lost(EP, FiAddr(1), None, Errno::ECONNRESET);
    then(&mut coll);
    actions(&mut coll);
    let message = about_joining(Kind::Join, 1, 7);
    deliver_to(&mut coll, 1, &message);
    let said = |action| match action {
        Action::Send { message, .. } => Some((message.kind, message.seq)),
        _ => None,
    };
    actions(&mut coll).into_iter().filter_map(said).collect()
}

#[test]
fn a_member_that_was_out_of_reach_hears_that_its_join_failed() {
    let declined = [(Kind::Decline, 7)];
    assert_eq!(answer_after_loss(|_| {}), declined);
    // Another one than what it joins was lost with it.
    let other = |coll: &mut Members| {
        join(coll, &[0, 1], 0, SETS[1]);
    };
    assert_eq!(answer_after_loss(other), declined);
    // It knows: this is another attempt, and so is that of member 0.
    let knows = |coll: &mut Members| deliver_to(coll, 1, &about_joining(Kind::Decline, 1, 6));
    assert_eq!(answer_after_loss(knows), []);
    let again = |coll: &mut Members| {
        join(coll, &[0, 1], 0, SETS[0]);
    };
    assert_eq!(answer_after_loss(again), [(Kind::Joined, 7)]);
}

#[test]
fn both_ends_of_a_lost_connection_say_that_they_gave_up() {
    // Member 1 tells member 0, which may know of its join and not of the loss.
    let mut members = nodes(2);
    join(&mut members[0], &[0, 1, 2], 0, SETS[0]);
    join(&mut members[1], &[0, 1, 2], 1, SETS[0]);
    assert_eq!(carry(&mut members).joins, []);
    members[1].lost(EP, FiAddr(0), None, Errno::ECONNRESET);
    let mut joins: Vec<Option<Errno>> = Vec::new();
    for from in [1, 0] {
        for action in actions(&mut members[from]) {
            match action {
                Action::Send {
                    to: FiAddr(to),
                    message,
                    ..
                } if to < 2 => {
                    deliver_to(&mut members[to as usize], from, &message);
                }
                Action::Task(Task::Joined { error, .. }) => joins.push(error),
                _ => {}
            }
        }
    }
    assert_eq!(joins, [Some(Errno::ECONNRESET), Some(Errno::ECONNABORTED)]);
}

#[test]
fn a_member_that_comes_late_is_waited_for() {
    let mut members = nodes(2);
    join(&mut members[0], &[0, 1], 0, SETS[0]);
    let told = pass(&mut members, 0..300);
    assert_eq!(told.joins, []);
    let [(held, crossed)] = told.waits[..] else {
        panic!("not one line for the log: {told:?}");
    };
    assert_eq!((held.rank, held.member), (1, FiAddr(1)));
    assert!(!crossed && held.operation.is_none());
    join(&mut members[1], &[0, 1], 1, SETS[0]);
    assert_eq!(carry(&mut members).joins, [None; 2]);
}

#[test]
fn joins_in_another_order_are_no_disagreement() {
    let mut members = nodes(2);
    join(&mut members[0], &[0, 1], 0, SETS[0]);
    join(&mut members[1], &[1, 0], 1, SETS[1]);
    assert_eq!(pass(&mut members, 0..7).joins, []);
    join(&mut members[0], &[1, 0], 0, SETS[1]);
    join(&mut members[1], &[0, 1], 1, SETS[0]);
    assert_eq!(carry(&mut members).joins, [None; 4]);
}

#[test]
fn an_operation_that_waits_says_for_whom_once() {
    let (mut coll, _) = started();
    let mut waits = Vec::new();
    for second in 0..30 {
        coll.tick(Duration::from_secs(second));
        for action in actions(&mut coll) {
            if let Action::Task(Task::Waits { held, .. }) = action {
                waits.push((second, held));
            }
        }
    }
    let [(second, found)] = waits[..] else {
        panic!("not one line for the log: {waits:?}");
    };
    assert_eq!(second, 5);
    assert_eq!(found.operation, Some((Collective::Allreduce, 0)));
    assert_eq!((found.rank, found.member, found.members), (1, FiAddr(1), 4));
}

/// Carries all that members say and send, and has everything done that they ask for; what
/// operations ended with, by member, in order.
fn run(members: &mut [Members], ended: &mut [Vec<(usize, Option<Errno>)>]) {
    while !members.iter().all(Members::is_quiet) {
        for from in 0..members.len() {
            for action in actions(&mut members[from]) {
                match action {
                    Action::Send {
                        to, op, message, ..
                    } => {
                        if let Some(op) = op {
                            members[from].sent(op);
                        }
                        let to = &mut members[to.0 as usize];
                        let source = (EP, FiAddr(from as u64), ConnId::FIRST);
                        match to.handle_message(source, &message) {
                            Arrival::Discard => {}
                            Arrival::Into { of, .. } => to.arrived(of),
                            Arrival::Keep => {
                                let id = to.keep(source, message, None).unwrap();
                                if message.len > 0 {
                                    to.early_arrived(id);
                                }
                            }
                            Arrival::Broken => panic!("{message:?} breaks the protocol"),
                        }
                    }
                    Action::Ended(outcome) => ended[from].push((outcome.context, outcome.error)),
                    _ => {}
                }
            }
        }
    }
}

/// Three begin to join the same group, which each of them gives the same number.
fn join_all(members: &mut [Members]) -> GroupId {
    let joined = (0..).zip(members);
    let groups: Vec<_> = joined
        .map(|(me, coll)| join(coll, &[0, 1, 2], me, SETS[0]))
        .collect();
    assert_eq!(groups, [groups[0]; 3]);
    groups[0]
}

/// Operations are numbered with 32 bits, which a long computation uses up.
#[test]
fn operations_end_where_their_numbers_wrap() {
    const OPS: usize = 8;
    for first in [0, (1 << 31) - 3, u32::MAX - 4, u32::MAX - 3, u32::MAX] {
        // One of them is ahead of the others by all operations.
        for fast in 0..3 {
            let mut members = nodes(3);
            let group = join_all(&mut members);
            assert_eq!(carry(&mut members).joins, [None; 3]);
            for coll in &mut members {
                coll.groups.get_mut(group).unwrap().next = first;
            }
            let name = members[0].groups.get(group).unwrap().id;
            let mut ended = [const { Vec::new() }; 3];
            let start = |coll: &mut Members, context: usize| {
                let request = Request {
                    coll: match context % 2 {
                        0 => Collective::Barrier,
                        _ => Collective::Allreduce,
                    },
                    context,
                    ..allreduce((context % 2) as u64)
                };
                coll.start(group, request, None).unwrap();
            };
            for context in 0..OPS {
                start(&mut members[fast], context);
            }
            run(&mut members, &mut ended);
            assert!(ended.iter().all(Vec::is_empty), "nobody else was there");
            for context in 0..OPS {
                for slow in (0..3).filter(|me| *me != fast) {
                    start(&mut members[slow], context);
                    run(&mut members, &mut ended);
                }
            }
            let all: Vec<_> = (0..OPS).map(|context| (context, None)).collect();
            assert_eq!(ended, [(); 3].map(|()| all.clone()), "{first} {fast}");
            assert!(members.iter().all(|coll| coll.early.is_empty()));
            // Who asks for one of the past hears that it is done; of the next nothing is known.
            for ahead in 0..=OPS as u32 {
                let ask = Message {
                    kind: Kind::Ask,
                    group: name,
                    check: 0,
                    seq: first.wrapping_add(ahead),
                    tag: 0,
                    from: 1,
                    len: 0,
                };
                deliver_to(&mut members[0], 1, &ask);
                let said = actions(&mut members[0]);
                let done = matches!(said[..], [Action::Send { message, .. }]
                    if message.kind == Kind::Gone && message.tag == super::Gone::Done.number());
                assert_eq!(done, ahead < OPS as u32, "{first} {ahead}: {said:?}");
            }
        }
    }
}

#[test]
fn a_group_is_joined_again_where_the_numbers_of_attempts_wrap() {
    let mut members = nodes(3);
    for coll in &mut members {
        coll.attempts = u32::MAX - 2;
    }
    for _ in 0..5 {
        let group = join_all(&mut members);
        assert!(members.iter().all(|coll| coll.attempts != 0));
        assert_eq!(carry(&mut members).joins, [None; 3]);
        let mut ended = [const { Vec::new() }; 3];
        for coll in &mut members {
            coll.start(group, allreduce(1), None).unwrap();
        }
        run(&mut members, &mut ended);
        assert_eq!(ended, [(); 3].map(|()| vec![(5, None)]));
        for coll in &mut members {
            coll.close(group);
        }
        carry(&mut members);
    }
}
