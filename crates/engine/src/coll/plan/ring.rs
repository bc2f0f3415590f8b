//! Algorithms that move as few bytes as can be: each member sends to one neighbour and receives
//! from the other, and what goes around is divided.

use super::doubling::reduce;
use super::tree::Tree;
use super::{Buf, Plan, Range, Step, Then};

/// Tags of what follows a first phase.
const SECOND: u32 = 1 << 24;

impl Plan {
    /// The last step of one turn around the ring.
    const fn turn(&self) -> u32 {
        self.n.saturating_sub(1)
    }

    fn around(&self, tag: u32, send: Range, recv: Range, then: Then) -> Step {
        let send = (self.plus(self.me, 1), send);
        let recv = (self.minus(self.me, 1), recv);
        Step::exchange(tag, send, recv, then)
    }

    /// Each share is reduced on its way around, and then goes around whole.
    pub(super) fn allreduce_ring(&self, index: u32) -> Option<Step> {
        let shares = self.shares();
        let part = |buf, number| shares.range(buf, number, 1);
        if index < self.turn() {
            // What is sent first is the member's own.
            let sent = if index == 0 { Buf::Input } else { Buf::Result };
            let number = self.minus(self.me, index.saturating_add(1));
            let into = part(Buf::Result, number);
            return Some(self.around(
                index,
                part(sent, self.minus(self.me, index)),
                into,
                reduce(into, part(Buf::Input, number), false),
            ));
        }
        let index = index.saturating_sub(self.turn());
        (index < self.turn()).then(|| {
            self.around(
                SECOND | index,
                part(Buf::Result, self.minus(self.me.saturating_add(1), index)),
                part(Buf::Result, self.minus(self.me, index)),
                Then::Nothing,
            )
        })
    }

    /// The steps that reduce on the way around: of `n` parts each member ends with its own.
    /// Partial results lie in the two halves of the scratch memory by turns, `half` bytes each.
    fn reduce_around(&self, index: u32, half: u64, part: impl Fn(u32) -> Range) -> Step {
        let at = if index & 1 == 0 { 0 } else { half };
        let before = half.saturating_sub(at);
        let sent = part(self.minus(self.me, index.saturating_add(1)));
        let own = part(self.minus(self.minus(self.me, 1), index.saturating_add(1)));
        let send = match index {
            0 => sent,
            _ => Range::new(Buf::Scratch, before, sent.len),
        };
        let recv = Range::new(Buf::Scratch, at, own.len);
        self.around(index, send, recv, reduce(recv, own, false))
    }

    /// Where the reduced part is after the last step of that.
    fn reduced(&self, half: u64, len: u64) -> Range {
        let last = self.turn().saturating_sub(1);
        let at = if last & 1 == 0 { 0 } else { half };
        Range::new(Buf::Scratch, at, len)
    }

    pub(super) fn reduce_scatter_ring(&self, index: u32) -> Option<Step> {
        if index < self.turn() {
            let part = |number| self.one(Buf::Input, number);
            return Some(self.reduce_around(index, self.block, part));
        }
        let result = self.one(Buf::Result, 0);
        let reduced = self.reduced(self.block, self.block);
        (index == self.turn()).then(|| Step::copy(reduced, result))
    }

    /// Each share is reduced on its way around, and the root collects them.
    pub(super) fn reduce_ring(&self, index: u32) -> Option<Step> {
        let shares = self.shares();
        let half = shares.longest();
        let share = |buf, number| shares.range(buf, number, 1);
        let Some(rest) = index.checked_sub(self.turn()) else {
            return Some(self.reduce_around(index, half, |number| share(Buf::Input, number)));
        };
        let reduced = self.reduced(half, share(Buf::Result, self.me).len);
        if self.me != self.root {
            return (rest == 0).then(|| Step::send(self.root, SECOND, reduced));
        }
        match rest {
            0 => Some(Step::copy(reduced, share(Buf::Result, self.me))),
            _ if rest > self.turn() => None,
            _ => {
                let peer = self.plus(self.me, rest);
                Some(Step::recv(peer, SECOND, share(Buf::Result, peer)))
            }
        }
    }

    pub(super) fn allgather_ring(&self, index: u32) -> Option<Step> {
        let Some(index) = index.checked_sub(1) else {
            return Some(self.own(Buf::Input, 0, Buf::Result, self.me));
        };
        let part = |distance| self.one(Buf::Result, self.minus(self.me, distance));
        (index < self.turn()).then(|| {
            let recv = part(index.saturating_add(1));
            self.around(index, part(index), recv, Then::Nothing)
        })
    }

    /// A broadcast: the root's data is divided down a tree, by places counted from the root,
    /// and its shares go around.
    pub(super) fn scatter_ring(&self, index: u32) -> Option<Step> {
        let shares = self.shares();
        let place = self.place();
        let tree = Tree::of(self.n, place);
        if index < tree.steps() {
            let below = |first, count| shares.range(Buf::Result, first, count);
            return Some(self.down(&tree, index, below, below));
        }
        let index = index.saturating_sub(tree.steps());
        let part = |distance| shares.range(Buf::Result, self.minus(place, distance), 1);
        (index < self.turn()).then(|| {
            let recv = part(index.saturating_add(1));
            self.around(SECOND | index, part(index), recv, Then::Nothing)
        })
    }

    /// Every member has a block for each: one sent and one received a step.
    pub(super) fn pairwise(&self, index: u32) -> Option<Step> {
        if index == 0 {
            return Some(self.own(Buf::Input, self.me, Buf::Result, self.me));
        }
        let (to, from) = match self.n.is_power_of_two() {
            true => (self.me ^ index, self.me ^ index),
            false => (self.plus(self.me, index), self.minus(self.me, index)),
        };
        let send = (to, self.one(Buf::Input, to));
        let recv = (from, self.one(Buf::Result, from));
        (index < self.n).then(|| Step::exchange(index, send, recv, Then::Nothing))
    }
}
