//! Every plan against what its operation is, for groups of 1 to 17.

use std::collections::HashMap;
use std::vec;
use std::vec::Vec;

use ripstop_types::{AtomicOp, Collective, Datatype};

use super::plan::{Buf, Part, Plan, Range, Step, Then};

extern crate std;

const SIZE: u64 = 8;

/// A member with memory of words.
struct Member {
    plan: Plan,
    index: u32,
    input: Vec<u64>,
    result: Vec<u64>,
    scratch: Vec<u64>,
    sent: bool,
}

type Messages = HashMap<(u32, u32, u32), Vec<u64>>;

/// Not associative, and no operand may take the place of the other: what is not reduced in one
/// order everywhere differs.
fn combine(a: u64, b: u64) -> u64 {
    (a.rotate_left(9) ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b.rotate_left(17)
}

fn words(range: &Range) -> std::ops::Range<usize> {
    assert!(
        range.at.is_multiple_of(SIZE) && range.len.is_multiple_of(SIZE),
        "{range:?}"
    );
    (range.at / SIZE) as usize..((range.at + range.len) / SIZE) as usize
}

impl Member {
    fn memory(&mut self, buf: Buf) -> &mut Vec<u64> {
        match buf {
            Buf::Input => &mut self.input,
            Buf::Result => &mut self.result,
            Buf::Scratch => &mut self.scratch,
        }
    }

    fn get(&mut self, range: &Range) -> Vec<u64> {
        self.memory(range.buf)[words(range)].to_vec()
    }

    fn put(&mut self, range: &Range, data: &[u64]) {
        assert_ne!(range.buf, Buf::Input, "the input is written");
        self.memory(range.buf)[words(range)].copy_from_slice(data);
    }

    /// Does what it can; returns whether anything was done.
    fn advance(&mut self, me: u32, messages: &mut Messages, op: fn(u64, u64) -> u64) -> bool {
        let Some(step) = self.plan.step(self.index) else {
            return false;
        };
        self.check(&step);
        let mut any = false;
        if !self.sent {
            if let Some(Part { peer, tag, range }) = step.send {
                let data = self.get(&range);
                let before = messages.insert((me, peer, tag), data);
                assert!(before.is_none(), "two messages with one tag");
            }
            self.sent = true;
            any = true;
        }
        if let Some(Part { peer, tag, range }) = step.recv {
            let Some(data) = messages.remove(&(peer, me, tag)) else {
                return any;
            };
            assert_eq!(data.len(), words(&range).len(), "{step:?}");
            self.put(&range, &data);
        }
        match step.then {
            Then::Nothing => {}
            Then::Copy { from, to } => {
                let data = self.get(&from);
                self.put(&to, &data);
            }
            Then::Reduce { into, from, flip } => {
                let (a, b) = (self.get(&into), self.get(&from));
                let pairs = a.into_iter().zip(b);
                let data: Vec<u64> = pairs
                    .map(|(a, b)| if flip { op(b, a) } else { op(a, b) })
                    .collect();
                self.put(&into, &data);
            }
        }
        self.index += 1;
        self.sent = false;
        true
    }

    /// What arrives may not disturb what leaves.
    fn check(&self, step: &Step) {
        let (Some(send), Some(recv)) = (step.send, step.recv) else {
            return;
        };
        assert!(!send.range.overlaps(&recv.range), "{step:?}");
    }
}

fn input(rank: u32, index: usize) -> u64 {
    u64::from(rank) << 32 | index as u64
}

fn run(
    coll: Collective,
    by: AtomicOp,
    op: fn(u64, u64) -> u64,
    (n, root): (u32, u32),
    count: u64,
) -> Vec<Vec<u64>> {
    let mut members: Vec<Member> = (0..n)
        .map(|me| {
            let plan = Plan::new(coll, (Datatype::Uint64, by), count, (n, me, root)).unwrap();
            let fill = |len: u64| (0..(len / SIZE) as usize).map(|i| input(me, i)).collect();
            let mut result = vec![u64::MAX; (plan.result() / SIZE) as usize];
            if coll == Collective::Broadcast && me == root {
                result = fill(plan.result());
            }
            Member {
                input: fill(plan.input()),
                result,
                scratch: vec![u64::MAX; (plan.scratch() / SIZE) as usize],
                index: 0,
                sent: false,
                plan,
            }
        })
        .collect();
    let mut messages = Messages::new();
    loop {
        let mut any = false;
        for (me, member) in (0..).zip(&mut members) {
            any |= member.advance(me, &mut messages, op);
        }
        if !any {
            break;
        }
    }
    let context = std::format!("{coll:?} {by:?} n {n} root {root} count {count}");
    assert!(messages.is_empty(), "{context}: {messages:?}");
    for member in &members {
        assert!(member.plan.step(member.index).is_none(), "{context}: stuck");
    }
    members.into_iter().map(|member| member.result).collect()
}

/// What member `me` gets of a plain one, element by element.
fn expected(coll: Collective, (n, root): (u32, u32), count: u64, me: u32) -> Vec<u64> {
    let count = count as usize;
    let sum = |index| {
        (0..n)
            .map(|rank| input(rank, index))
            .fold(0, u64::wrapping_add)
    };
    let blocks = |of: &dyn Fn(u32, usize) -> u64| -> Vec<u64> {
        (0..n)
            .flat_map(|rank| (0..count).map(move |index| (rank, index)))
            .map(|(rank, index)| of(rank, index))
            .collect()
    };
    let mine = me as usize * count;
    let for_root = |all: Vec<u64>| if me == root { all } else { Vec::new() };
    match coll {
        Collective::Barrier => Vec::new(),
        Collective::Broadcast => (0..count).map(|index| input(root, index)).collect(),
        Collective::Alltoall => blocks(&|rank, index| input(rank, mine + index)),
        Collective::Allreduce => (0..count).map(sum).collect(),
        Collective::Allgather => blocks(&input),
        Collective::ReduceScatter => (mine..mine + count).map(sum).collect(),
        Collective::Reduce => for_root((0..count).map(sum).collect()),
        Collective::Scatter => (mine..mine + count)
            .map(|index| input(root, index))
            .collect(),
        Collective::Gather => for_root(blocks(&input)),
    }
}

/// Counts on both sides of where algorithms change, and those that do not divide.
fn counts(n: u32) -> Vec<u64> {
    let n = u64::from(n);
    let mut counts = vec![
        0,
        1,
        2,
        n - 1,
        n,
        n + 1,
        511,
        1024,
        1025,
        4096,
        4099,
        8192,
        8193,
    ];
    counts.push(8192 / n + 1);
    counts
}

fn roots(coll: Collective, n: u32) -> Vec<u32> {
    match coll.has_root() {
        true => (0..n).collect(),
        false => vec![0],
    }
}

#[test]
fn every_plan_does_what_its_operation_is() {
    for coll in Collective::ALL {
        for n in 1..=17 {
            for count in counts(n) {
                for root in roots(coll, n) {
                    let results = run(coll, AtomicOp::Sum, u64::wrapping_add, (n, root), count);
                    for (me, result) in (0..).zip(&results) {
                        let expected = expected(coll, (n, root), count, me);
                        assert!(
                            *result == expected,
                            "{coll:?} n {n} root {root} count {count} me {me}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn all_get_the_same_bits() {
    for n in 1..=17 {
        for count in counts(n) {
            let results = run(Collective::Allreduce, AtomicOp::Sum, combine, (n, 0), count);
            for result in &results {
                assert!(*result == results[0], "n {n} count {count}");
            }
        }
    }
}

#[test]
fn operands_that_may_not_change_places_do_not() {
    let first = |a, _| a;
    let last = |_, b| b;
    for n in 1..=17 {
        for count in [1, 3, 8193] {
            for root in 0..n {
                for (by, op, rank) in [
                    (AtomicOp::AtomicRead, first as fn(u64, u64) -> u64, 0),
                    (AtomicOp::AtomicWrite, last, n - 1),
                ] {
                    let wanted = |from: usize| -> Vec<u64> {
                        (from..from + count as usize)
                            .map(|i| input(rank, i))
                            .collect()
                    };
                    let reduced = run(Collective::Reduce, by, op, (n, root), count);
                    assert_eq!(reduced[root as usize], wanted(0));
                    if root > 0 {
                        continue;
                    }
                    for result in run(Collective::Allreduce, by, op, (n, 0), count) {
                        assert_eq!(result, wanted(0));
                    }
                    let scattered = run(Collective::ReduceScatter, by, op, (n, 0), count);
                    for (me, result) in scattered.into_iter().enumerate() {
                        assert_eq!(result, wanted(me * count as usize));
                    }
                }
            }
        }
    }
}

#[test]
fn small_ones_take_few_steps() {
    for coll in Collective::ALL {
        if coll == Collective::Alltoall {
            continue;
        }
        for n in [2, 16, 17, 1000] {
            let plan = Plan::new(coll, (Datatype::Uint64, AtomicOp::Sum), 1, (n, 1, 0)).unwrap();
            let steps = (0..).map_while(|index| plan.step(index)).count();
            assert!(steps <= n.ilog2() as usize + 5, "{coll:?} n {n}: {steps}");
        }
    }
}

#[test]
fn what_is_too_large_has_no_plan() {
    let plan = |count, ranks| {
        Plan::new(
            Collective::Allgather,
            (Datatype::LongDoubleComplex, AtomicOp::Sum),
            count,
            ranks,
        )
    };
    assert!(plan(u64::MAX, (2, 0, 0)).is_none());
    assert!(plan(1 << 58, (4, 0, 0)).is_none());
    assert!(plan(1, (4, 4, 0)).is_none());
    assert!(plan(1, (4, 0, 4)).is_none());
    assert!(plan(0, (0, 0, 0)).is_none());
    assert!(plan(1, (4, 3, 3)).is_some());
}
