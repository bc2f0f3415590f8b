//! Algorithms whose number of steps is about the logarithm of the number of members.

use super::{Buf, Plan, Range, Step, Then};

/// Tags of the messages before and after the exchanges.
const FOLD: u32 = 1 << 24;
const UNFOLD: u32 = 2 << 24;

/// How often one must be doubled to reach `n`.
pub(super) const fn levels(n: u32) -> u32 {
    u32::BITS.saturating_sub(n.saturating_sub(1).leading_zeros())
}

/// Two to the power of `level`.
pub(super) fn distance(level: u32) -> u32 {
    1u32.checked_shl(level).unwrap_or(0)
}

/// Members that exchange, after those beyond a power of two have given what they have to a
/// neighbour. Neighbours stay neighbours, so that operands keep their order.
#[derive(Clone, Copy)]
struct Folded {
    /// Pairs, which come first; the even one of each takes part.
    pairs: u32,
    /// Rounds of exchange.
    rounds: u32,
}

impl Folded {
    fn of(n: u32) -> Self {
        let rounds = n.checked_ilog2().unwrap_or(0);
        let pairs = n.saturating_sub(distance(rounds));
        Self { pairs, rounds }
    }

    fn in_pair(self, rank: u32) -> bool {
        rank < self.pairs.saturating_mul(2)
    }

    /// The place among those that take part.
    fn place(self, rank: u32) -> Option<u32> {
        match self.in_pair(rank) {
            true if rank & 1 == 1 => None,
            true => Some(rank >> 1),
            false => Some(rank.saturating_sub(self.pairs)),
        }
    }

    fn rank(self, place: u32) -> u32 {
        match place < self.pairs {
            true => place.saturating_mul(2),
            false => place.saturating_add(self.pairs),
        }
    }
}

impl Plan {
    /// A barrier: after round k a member has heard, through others, of 2^(k+1) - 1 before it.
    pub(super) fn dissemination(&self, index: u32) -> Option<Step> {
        let step = distance(index);
        let nothing = Range::new(Buf::Scratch, 0, 0);
        let to = (self.plus(self.me, step), nothing);
        let from = (self.minus(self.me, step), nothing);
        (index < levels(self.n)).then(|| Step::exchange(index, to, from, Then::Nothing))
    }

    pub(super) fn allreduce_doubling(&self, index: u32) -> Option<Step> {
        let sum = Range::new(Buf::Result, 0, self.block);
        let other = Range::new(Buf::Scratch, 0, self.block);
        self.doubling(index, sum, other)
    }

    /// All is reduced at all, and each takes its block.
    pub(super) fn reduce_scatter_doubling(&self, index: u32) -> Option<Step> {
        let sum = self.some(Buf::Scratch, 0, self.n);
        let other = self.some(Buf::Scratch, self.n, self.n);
        let last = Folded::of(self.n).rounds.saturating_add(3);
        if index == last {
            return Some(self.own(Buf::Scratch, self.me, Buf::Result, 0));
        }
        self.doubling(index, sum, other)
    }

    /// Reduces the inputs of all into `sum` at all.
    fn doubling(&self, index: u32, sum: Range, other: Range) -> Option<Step> {
        let folded = Folded::of(self.n);
        let unfold = folded.rounds.saturating_add(2);
        let odd = self.me & 1 == 1;
        let neighbour = self.me ^ 1;
        let exchange = match index {
            0 => {
                let input = Range::new(Buf::Input, 0, sum.len);
                return Some(Step::copy(input, sum));
            }
            1 if !folded.in_pair(self.me) => return Some(Step::EMPTY),
            1 if odd => return Some(Step::send(neighbour, FOLD, sum)),
            1 => {
                let recv = Step::recv(neighbour, FOLD, other);
                return Some(Step {
                    then: reduce(sum, other, false),
                    ..recv
                });
            }
            _ if index == unfold && !folded.in_pair(self.me) => return Some(Step::EMPTY),
            _ if index == unfold && odd => return Some(Step::recv(neighbour, UNFOLD, sum)),
            _ if index == unfold => return Some(Step::send(neighbour, UNFOLD, sum)),
            _ if index > unfold => return None,
            _ => index.saturating_sub(2),
        };
        let Some(place) = folded.place(self.me) else {
            return Some(Step::EMPTY);
        };
        let peer = folded.rank(place ^ distance(exchange));
        // Both compute the lower one's part op the higher one's.
        let then = reduce(sum, other, peer < self.me);
        Some(Step::exchange(exchange, (peer, sum), (peer, other), then))
    }

    /// An allgather of a power of two members: what is exchanged doubles.
    pub(super) fn allgather_doubling(&self, index: u32) -> Option<Step> {
        let Some(level) = index.checked_sub(1) else {
            return Some(self.own(Buf::Input, 0, Buf::Result, self.me));
        };
        let count = distance(level);
        if level >= levels(self.n) {
            return None;
        }
        let peer = self.me ^ count;
        let whole = !count.saturating_sub(1);
        let blocks = |rank: u32| (peer, self.some(Buf::Result, rank & whole, count));
        let (send, recv) = (blocks(self.me), blocks(peer));
        Some(Step::exchange(level, send, recv, Then::Nothing))
    }

    /// An allgather of any number of members. Blocks are kept from the member's own on, around
    /// the group, and brought into their order at the end.
    pub(super) fn bruck(&self, index: u32) -> Option<Step> {
        let Some(level) = index.checked_sub(1) else {
            return Some(self.own(Buf::Input, 0, Buf::Scratch, 0));
        };
        let rounds = levels(self.n);
        let behind = self.n.saturating_sub(self.me);
        if level == rounds {
            let from = self.some(Buf::Scratch, 0, behind);
            return Some(Step::copy(from, self.some(Buf::Result, self.me, behind)));
        }
        if level > rounds {
            let from = self.some(Buf::Scratch, behind, self.me);
            let to = self.some(Buf::Result, 0, self.me);
            return (level == rounds.saturating_add(1)).then(|| Step::copy(from, to));
        }
        let have = distance(level);
        let count = have.min(self.n.saturating_sub(have));
        let send = (self.minus(self.me, have), self.some(Buf::Scratch, 0, count));
        let recv = (
            self.plus(self.me, have),
            self.some(Buf::Scratch, have, count),
        );
        Some(Step::exchange(level, send, recv, Then::Nothing))
    }
}

/// `into = into op from`, or with `flip` the other way round.
pub(super) const fn reduce(into: Range, from: Range, flip: bool) -> Then {
    Then::Reduce { into, from, flip }
}
