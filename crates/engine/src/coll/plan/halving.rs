//! A reduction to all in which partners at distances of powers of two divide what there is, each
//! level half of it, and then give each other the results: as few bytes as around a ring, in
//! twice the logarithm of the members' number of steps.

use super::block::Blocks;
use super::doubling::{distance, levels, reduce};
use super::{Buf, Plan, Range, Step, Then};

/// Tags of what is given back.
const BACK: u32 = 1 << 24;

/// A run of shares.
#[derive(Clone, Copy)]
struct Run {
    first: u32,
    count: u32,
}

impl Run {
    /// The lower or the upper half.
    const fn half(self, upper: bool) -> Self {
        let count = self.count >> 1;
        let first = self.first.saturating_add(if upper { count } else { 0 });
        Self { first, count }
    }

    fn len(self, shares: &Blocks) -> u64 {
        self.range(shares, Buf::Result).len
    }

    /// Where it is in a buffer of the whole block.
    fn range(self, shares: &Blocks, buf: Buf) -> Range {
        shares.range(buf, self.first, self.count)
    }
}

/// Whether a member is the upper one of its partners at a level.
fn is_upper(rank: u32, level: u32) -> bool {
    rank & distance(level) != 0
}

impl Plan {
    /// What a member has left before the division of that level.
    fn left(&self, me: u32, level: u32) -> Run {
        let all = Run {
            first: 0,
            count: self.n,
        };
        (0..level).fold(all, |run, level| run.half(is_upper(me, level)))
    }

    /// Where partial results of what is left after a level are. Each level has its own place, so
    /// that all partners may send before this member comes to it.
    fn partial(&self, shares: &Blocks, level: u32, run: Run) -> Range {
        if level.saturating_add(1) == levels(self.n) {
            return run.range(shares, Buf::Result);
        }
        let before = |level: u32| self.left(self.me, level.saturating_add(1)).len(shares);
        let base = (0..level).map(before).fold(0, u64::saturating_add);
        let whole = self.left(self.me, level.saturating_add(1));
        let inside = shares
            .start(run.first)
            .saturating_sub(shares.start(whole.first));
        let range = run.range(shares, Buf::Scratch);
        Range::new(Buf::Scratch, base.saturating_add(inside), range.len)
    }

    /// Bytes of all such places that are not in the result.
    pub(super) fn partials(&self) -> u64 {
        let shares = self.shares();
        let last = levels(self.n).saturating_sub(1);
        (1..=last)
            .map(|level| self.left(self.me, level).len(&shares))
            .fold(0, u64::saturating_add)
    }

    /// For a power of two of members.
    pub(super) fn allreduce_halving(&self, index: u32) -> Option<Step> {
        let shares = self.shares();
        let rounds = levels(self.n);
        if index < rounds {
            return Some(self.halve(&shares, index));
        }
        let back = index.saturating_sub(rounds);
        let level = rounds.checked_sub(back)?.checked_sub(1)?;
        let before = self.left(self.me, level);
        let upper = is_upper(self.me, level);
        let peer = self.me ^ distance(level);
        let half = |upper| (peer, before.half(upper).range(&shares, Buf::Result));
        let (send, recv) = (half(upper), half(!upper));
        Some(Step::exchange(BACK | level, send, recv, Then::Nothing))
    }

    /// Sends a half of what is left, and reduces the other.
    fn halve(&self, shares: &Blocks, level: u32) -> Step {
        let before = self.left(self.me, level);
        let upper = is_upper(self.me, level);
        let (kept, given) = (before.half(upper), before.half(!upper));
        let own = |run: Run| match level.checked_sub(1) {
            None => run.range(shares, Buf::Input),
            Some(level) => self.partial(shares, level, run),
        };
        let peer = self.me ^ distance(level);
        let theirs = self.partial(shares, level, kept);
        // The lower one's on the left.
        let then = reduce(theirs, own(kept), !upper);
        Step::exchange(level, (peer, own(given)), (peer, theirs), then)
    }
}
