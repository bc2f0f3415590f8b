//! The steps of one member of a group, made by pure functions.
//!
//! All members choose the same algorithm, for all know the operation, its size and the size of
//! the group. Small operations take a number of steps that grows with the logarithm of the
//! number of members; large ones move as few bytes as can be.
//!
//! A reduction combines each pair of partial results in one order, whichever member does it, so
//! that all members get the same bits.

mod block;
mod doubling;
mod halving;
mod ring;
mod tree;

use ripstop_types::{AtomicOp, Collective, Datatype};

use block::Blocks;

/// From how many bytes on an operation is divided instead of moved whole.
const DIVIDED_BYTES: u64 = 64 * 1024;

/// From how many bytes on a reduction to all is divided among a power of two of members, and from
/// how many it goes around a ring all the same: the ring needs no memory of its own, and each
/// member speaks with its neighbours only.
const HALVING_BYTES: u64 = 32 * 1024;
const RING_BYTES: u64 = 64 * 1024 * 1024;

/// Up to how many bytes a member's block of a gather or scatter takes part in a tree, where it
/// is moved several times.
const MAX_TREE_BLOCK: u64 = 8 * 1024;

/// How many steps ahead long messages are granted, and the step of one that arrives is looked for.
pub(super) const AHEAD_STEPS: u32 = 16;

/// Which memory of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buf {
    /// What the member puts in; never written.
    Input,
    /// What the member gets.
    Result,
    /// Memory of the operation's own, [`Plan::scratch`] bytes.
    Scratch,
}

/// Bytes of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Which.
    pub buf: Buf,
    /// The offset of the first byte.
    pub at: u64,
    /// How many.
    pub len: u64,
}

impl Range {
    /// No bytes.
    pub(super) const EMPTY: Self = Self::new(Buf::Input, 0, 0);

    pub(super) const fn new(buf: Buf, at: u64, len: u64) -> Self {
        Self { buf, at, len }
    }

    /// Whether the two have bytes in common.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.buf as u8 == other.buf as u8
            && self.len > 0
            && other.len > 0
            && self.at < other.at.saturating_add(other.len)
            && other.at < self.at.saturating_add(self.len)
    }
}

/// A message to or from a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The member's rank.
    pub peer: u32,
    /// What tells it from others between the same two members; the same at both.
    pub tag: u32,
    /// The bytes; no bytes are a message too.
    pub range: Range,
}

/// What a member does by itself at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// A copy between two ranges of one length.
    Copy {
        /// The source.
        from: Range,
        /// The destination.
        to: Range,
    },
    /// `into = into op from`, or with `flip` `into = from op into`, for each element.
    Reduce {
        /// One side, and the result.
        into: Range,
        /// The other side, as long.
        from: Range,
        /// Which of them is the left one.
        flip: bool,
    },
}

/// One step: it is done when the message to a member has left, that of a member has come, and
/// then the rest is done. The next step begins after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is sent.
    pub send: Option<Part>,
    /// What is received meanwhile.
    pub recv: Option<Part>,
    /// What is done with it.
    pub then: Then,
}

impl Step {
    const EMPTY: Self = Self {
        send: None,
        recv: None,
        then: Then::Nothing,
    };

    /// Whether it reads or writes bytes of a range.
    fn touches(&self, range: &Range) -> bool {
        let messages = [self.send, self.recv];
        let mut parts = messages.iter().flatten();
        parts.any(|part| part.range.overlaps(range))
            || match self.then {
                Then::Nothing => false,
                Then::Copy { from: a, to: b }
                | Then::Reduce {
                    into: a, from: b, ..
                } => a.overlaps(range) || b.overlaps(range),
            }
    }

    const fn copy(from: Range, to: Range) -> Self {
        Self {
            then: Then::Copy { from, to },
            ..Self::EMPTY
        }
    }

    /// Sends bytes to one member and receives others from one, under the same tag.
    const fn exchange(
        tag: u32,
        (to, send): (u32, Range),
        (from, recv): (u32, Range),
        then: Then,
    ) -> Self {
        Self {
            then,
            recv: Self::recv(from, tag, recv).recv,
            ..Self::send(to, tag, send)
        }
    }

    const fn send(peer: u32, tag: u32, range: Range) -> Self {
        Self {
            send: Some(Part { peer, tag, range }),
            ..Self::EMPTY
        }
    }

    const fn recv(peer: u32, tag: u32, range: Range) -> Self {
        Self {
            recv: Some(Part { peer, tag, range }),
            ..Self::EMPTY
        }
    }
}

/// How an operation is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Algorithm {
    /// A group of one.
    Alone,
    /// Every member tells another in each round, at twice the distance of the round before.
    Dissemination,
    /// A binomial tree.
    Tree,
    /// The root's data is divided down a tree and then goes around a ring.
    ScatterRing,
    /// Exchanges with partners at distances of powers of two.
    Doubling,
    /// Exchanges of a half of what is left with such partners, and back.
    Halving,
    /// As doubling, for any number of members.
    Bruck,
    /// Blocks go around a ring.
    Ring,
    /// The root has a message from or for each.
    Direct,
    /// Every member has a message for each.
    Pairwise,
}

/// An operation as one member carries it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    coll: Collective,
    algorithm: Algorithm,
    /// Members of the group.
    n: u32,
    /// The member's rank.
    me: u32,
    /// The root's rank.
    root: u32,
    /// Bytes of an element.
    size: u64,
    /// Bytes of a block: what a member contributes or gets.
    block: u64,
    /// The operands may change places.
    commutes: bool,
}

impl Plan {
    /// The plan of member `me` of `n`. `count` is the number of elements of a block: all that a
    /// member has for a broadcast or a reduction to all or to the root, and what it has for
    /// each or gets from each otherwise. `None` if the whole has more than 2^63 bytes, or for a
    /// rank that there is not.
    #[must_use]
    pub fn new(
        coll: Collective,
        (datatype, op): (Datatype, AtomicOp),
        count: u64,
        (n, me, root): (u32, u32, u32),
    ) -> Option<Self> {
        let size = datatype.size() as u64;
        let block = match coll {
            Collective::Barrier => 0,
            _ => count.checked_mul(size)?,
        };
        let all = block.checked_mul(u64::from(n))?;
        // A scratch area may take twice as much.
        if all > i64::MAX as u64 / 4 || me >= n || root >= n {
            return None;
        }
        let commutes = !matches!(op, AtomicOp::AtomicRead | AtomicOp::AtomicWrite);
        let mut plan = Self {
            coll,
            algorithm: Algorithm::Alone,
            n,
            me,
            root: if coll.has_root() { root } else { 0 },
            size,
            block,
            commutes,
        };
        plan.algorithm = plan.choose();
        Some(plan)
    }

    /// Depends on nothing that is not the same at all members.
    const fn choose(&self) -> Algorithm {
        let Self {
            n, block, commutes, ..
        } = *self;
        if n == 1 {
            return Algorithm::Alone;
        }
        let all = block.saturating_mul(n as u64);
        let divisible = commutes && block >= self.size.saturating_mul(n as u64);
        match self.coll {
            Collective::Barrier => Algorithm::Dissemination,
            Collective::Broadcast if n > 2 && block >= DIVIDED_BYTES => Algorithm::ScatterRing,
            Collective::Broadcast => Algorithm::Tree,
            Collective::Alltoall => Algorithm::Pairwise,
            Collective::Allreduce
                if divisible
                    && n.is_power_of_two()
                    && block >= HALVING_BYTES
                    && block < RING_BYTES =>
            {
                Algorithm::Halving
            }
            Collective::Allreduce if divisible && block >= DIVIDED_BYTES => Algorithm::Ring,
            Collective::Allreduce => Algorithm::Doubling,
            Collective::Allgather if all >= DIVIDED_BYTES => Algorithm::Ring,
            Collective::Allgather if n.is_power_of_two() => Algorithm::Doubling,
            Collective::Allgather => Algorithm::Bruck,
            Collective::ReduceScatter if commutes && all >= DIVIDED_BYTES => Algorithm::Ring,
            Collective::ReduceScatter => Algorithm::Doubling,
            Collective::Reduce if divisible && n > 2 && block >= DIVIDED_BYTES => Algorithm::Ring,
            Collective::Reduce => Algorithm::Tree,
            Collective::Scatter | Collective::Gather if block <= MAX_TREE_BLOCK => Algorithm::Tree,
            Collective::Scatter | Collective::Gather => Algorithm::Direct,
        }
    }

    /// What is done.
    #[must_use]
    pub const fn collective(&self) -> Collective {
        self.coll
    }

    /// Bytes that the member puts in, at the least.
    #[must_use]
    pub const fn input(&self) -> u64 {
        let all = self.block.saturating_mul(self.n as u64);
        match self.coll {
            Collective::Barrier | Collective::Broadcast => 0,
            Collective::Scatter if self.me != self.root => 0,
            Collective::Alltoall | Collective::ReduceScatter | Collective::Scatter => all,
            _ => self.block,
        }
    }

    /// Bytes that the member gets. The buffer of a broadcast is what every member gets, and
    /// the root has already.
    #[must_use]
    pub const fn result(&self) -> u64 {
        let all = self.block.saturating_mul(self.n as u64);
        match self.coll {
            Collective::Barrier => 0,
            Collective::Reduce | Collective::Gather if self.me != self.root => 0,
            Collective::Alltoall | Collective::Allgather | Collective::Gather => all,
            _ => self.block,
        }
    }

    /// Bytes of scratch memory.
    #[must_use]
    pub fn scratch(&self) -> u64 {
        let all = self.block.saturating_mul(u64::from(self.n));
        match (self.coll, self.algorithm) {
            (Collective::Allreduce, Algorithm::Doubling) => self.block,
            (Collective::Allreduce, Algorithm::Halving) => self.partials(),
            (Collective::ReduceScatter, Algorithm::Doubling) => all.saturating_mul(2),
            (Collective::Allgather, Algorithm::Bruck) => all,
            (Collective::ReduceScatter, Algorithm::Ring) => self.block.saturating_mul(2),
            (Collective::Reduce, Algorithm::Tree) => self.block.saturating_mul(2),
            (Collective::Reduce, Algorithm::Ring) => self.shares().longest().saturating_mul(2),
            (Collective::Scatter | Collective::Gather, Algorithm::Tree) => all,
            _ => 0,
        }
    }

    /// The step with this index, or `None` behind the last one.
    #[must_use]
    pub fn step(&self, index: u32) -> Option<Step> {
        use Algorithm as A;
        use Collective as C;
        match (self.coll, self.algorithm) {
            (_, A::Alone) => self.alone(index),
            (C::Barrier, _) => self.dissemination(index),
            (C::Broadcast, A::ScatterRing) => self.scatter_ring(index),
            (C::Broadcast, _) => self.broadcast_tree(index),
            (C::Allreduce, A::Halving) => self.allreduce_halving(index),
            (C::Allreduce, A::Ring) => self.allreduce_ring(index),
            (C::Allreduce, _) => self.allreduce_doubling(index),
            (C::ReduceScatter, A::Ring) => self.reduce_scatter_ring(index),
            (C::ReduceScatter, _) => self.reduce_scatter_doubling(index),
            (C::Reduce, A::Ring) => self.reduce_ring(index),
            (C::Reduce, _) => self.reduce_tree(index),
            (C::Allgather, A::Ring) => self.allgather_ring(index),
            (C::Allgather, A::Doubling) => self.allgather_doubling(index),
            (C::Allgather, _) => self.bruck(index),
            (C::Alltoall, _) => self.pairwise(index),
            (C::Gather, A::Direct) => self.gather_direct(index),
            (C::Gather, _) => self.gather_tree(index),
            (C::Scatter, A::Direct) => self.scatter_direct(index),
            (C::Scatter, _) => self.scatter_tree(index),
        }
    }

    /// Whether no message of the operation can be longer than this.
    #[must_use]
    pub const fn fits(&self, len: u64) -> bool {
        self.block.saturating_mul(self.n as u64) <= len
    }

    /// Whether what comes in step `later` may come during step `index` already: nothing from
    /// there on touches its place.
    #[must_use]
    pub fn is_free(&self, index: u32, later: u32) -> bool {
        let place = |step: Step| Some(step.recv?.range);
        let Some(place) = self.step(later).and_then(place) else {
            return true;
        };
        (index..later)
            .map_while(|index| self.step(index))
            .all(|step| !step.touches(&place))
    }

    /// Whether a step from `index` on has a message from or to a member.
    #[must_use]
    pub fn involves(&self, index: u32, peer: u32) -> bool {
        (index..).map_while(|index| self.step(index)).any(|step| {
            [step.send, step.recv]
                .iter()
                .flatten()
                .any(|part| part.peer == peer)
        })
    }

    /// All that a group of one has to do.
    fn alone(&self, index: u32) -> Option<Step> {
        let moves = !matches!(self.coll, Collective::Barrier | Collective::Broadcast);
        (index == 0 && moves).then(|| self.own(Buf::Input, 0, Buf::Result, 0))
    }

    /// Copies one block.
    fn own(&self, from: Buf, from_block: u32, to: Buf, to_block: u32) -> Step {
        Step::copy(self.one(from, from_block), self.one(to, to_block))
    }

    /// One block of a buffer of blocks of one length.
    fn one(&self, buf: Buf, block: u32) -> Range {
        self.some(buf, block, 1)
    }

    /// Neighbouring blocks.
    fn some(&self, buf: Buf, first: u32, count: u32) -> Range {
        Range::new(
            buf,
            self.block.saturating_mul(u64::from(first)),
            self.block.saturating_mul(u64::from(count)),
        )
    }

    /// The member at this distance behind another, around the group.
    fn plus(&self, rank: u32, distance: u32) -> u32 {
        let n = u64::from(self.n);
        let sum = u64::from(rank).saturating_add(u64::from(distance));
        sum.checked_rem(n).unwrap_or(0) as u32
    }

    /// The member at this distance before another; no distance is more than around the group.
    fn minus(&self, rank: u32, distance: u32) -> u32 {
        self.plus(rank, self.n.saturating_sub(distance))
    }

    /// The rank counted from the root.
    fn place(&self) -> u32 {
        self.minus(self.me, self.root)
    }

    /// The block divided among the members, in whole elements.
    const fn shares(&self) -> Blocks {
        Blocks {
            n: self.n,
            unit: self.size,
            total: self.block,
        }
    }
}
