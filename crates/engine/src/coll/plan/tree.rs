//! Binomial trees, and their flat kin in which the root speaks with each.
//!
//! Places in a tree are counted from the root. A member's children are at distances of powers
//! of two below the lowest bit of its place; below each is a run of neighbouring places.

use super::doubling::{distance, levels, reduce};
use super::{Buf, Plan, Range, Step};

/// A place in a tree.
#[derive(Clone, Copy)]
pub(super) struct Tree {
    n: u32,
    place: u32,
    /// Children there would be in a whole tree.
    children: u32,
}

impl Tree {
    pub(super) fn of(n: u32, place: u32) -> Self {
        let children = match place {
            0 => levels(n),
            _ => place.trailing_zeros(),
        };
        Self { n, place, children }
    }

    /// One step with the parent, if there is one, and one for each child there would be.
    pub(super) const fn steps(&self) -> u32 {
        self.children.saturating_add((self.place != 0) as u32)
    }

    fn parent(&self) -> u32 {
        self.place & self.place.saturating_sub(1)
    }

    /// The child at the distance of that power of two.
    fn child(&self, level: u32) -> Option<u32> {
        let child = self.place.saturating_add(distance(level));
        (child < self.n).then_some(child)
    }

    /// Places in the part of the tree from here on.
    fn size(&self) -> u32 {
        let whole = match self.place {
            0 => self.n,
            _ => distance(self.children),
        };
        whole.min(self.n.saturating_sub(self.place))
    }
}

impl Plan {
    /// The rank at a place counted from the root.
    fn at_place(&self, place: u32) -> u32 {
        self.plus(self.root, place)
    }

    /// A step down a tree: from the parent, then to the children, the farthest first. The
    /// ranges are those of some places, where this member has them and where it gets them.
    pub(super) fn down(
        &self,
        tree: &Tree,
        index: u32,
        have: impl Fn(u32, u32) -> Range,
        get: impl Fn(u32, u32) -> Range,
    ) -> Step {
        let sent = match (tree.place, index) {
            (0, _) => index,
            (_, 0) => {
                let range = get(tree.place, tree.size());
                return Step::recv(self.at_place(tree.parent()), 0, range);
            }
            _ => index.saturating_sub(1),
        };
        let level = tree.children.saturating_sub(1).saturating_sub(sent);
        match tree.child(level) {
            Some(child) => {
                let range = have(child, Tree::of(self.n, child).size());
                Step::send(self.at_place(child), 0, range)
            }
            None => Step::EMPTY,
        }
    }

    pub(super) fn broadcast_tree(&self, index: u32) -> Option<Step> {
        let tree = Tree::of(self.n, self.place());
        let all = |_, _| Range::new(Buf::Result, 0, self.block);
        (index < tree.steps()).then(|| self.down(&tree, index, all, all))
    }

    /// Operands that may not change places are reduced at member 0, which sends the result on.
    pub(super) fn reduce_tree(&self, index: u32) -> Option<Step> {
        let top = if self.commutes { self.root } else { 0 };
        let tree = Tree::of(self.n, self.minus(self.me, top));
        let sum = match self.me == self.root && top == self.root {
            true => Range::new(Buf::Result, 0, self.block),
            false => Range::new(Buf::Scratch, 0, self.block),
        };
        let other = Range::new(Buf::Scratch, self.block, self.block);
        let rank = |place| self.plus(top, place);
        if index == 0 {
            return Some(Step::copy(Range::new(Buf::Input, 0, self.block), sum));
        }
        let level = index.saturating_sub(1);
        if level < tree.children {
            return Some(match tree.child(level) {
                Some(child) => Step {
                    then: reduce(sum, other, false),
                    ..Step::recv(rank(child), 0, other)
                },
                None => Step::EMPTY,
            });
        }
        let onward = 1;
        match level.saturating_sub(tree.children) {
            0 if tree.place != 0 => Some(Step::send(rank(tree.parent()), 0, sum)),
            0 => Some(Step::EMPTY),
            1 if top == self.root => None,
            1 if self.me == top => Some(Step::send(self.root, onward, sum)),
            1 if self.me == self.root => {
                let result = Range::new(Buf::Result, 0, self.block);
                Some(Step::recv(top, onward, result))
            }
            _ => None,
        }
    }

    /// Blocks of a tree's places, those of this member first.
    fn of_places(&self, buf: Buf, first: u32, count: u32) -> Range {
        self.some(buf, first.saturating_sub(self.place()), count)
    }

    pub(super) fn gather_tree(&self, index: u32) -> Option<Step> {
        let tree = Tree::of(self.n, self.place());
        if index == 0 {
            return Some(self.own(Buf::Input, 0, Buf::Scratch, 0));
        }
        let level = index.saturating_sub(1);
        if level < tree.children {
            return Some(match tree.child(level) {
                Some(child) => {
                    let count = Tree::of(self.n, child).size();
                    let range = self.of_places(Buf::Scratch, child, count);
                    Step::recv(self.at_place(child), 0, range)
                }
                None => Step::EMPTY,
            });
        }
        let last = level.saturating_sub(tree.children);
        if tree.place != 0 {
            let all = self.of_places(Buf::Scratch, tree.place, tree.size());
            let up = || Step::send(self.at_place(tree.parent()), 0, all);
            return (last == 0).then(up);
        }
        self.turned(last, Buf::Scratch, Buf::Result, false)
    }

    /// The two copies that turn blocks by rank into those by place, or back.
    fn turned(&self, index: u32, from: Buf, to: Buf, by_rank: bool) -> Option<Step> {
        let behind = self.n.saturating_sub(self.root);
        // By place the blocks from the root on come first.
        let (place, rank, count) = match index {
            0 => (0, self.root, behind),
            1 => (behind, 0, self.root),
            _ => return None,
        };
        let (source, target) = match by_rank {
            true => (rank, place),
            false => (place, rank),
        };
        let from = self.some(from, source, count);
        Some(Step::copy(from, self.some(to, target, count)))
    }

    pub(super) fn scatter_tree(&self, index: u32) -> Option<Step> {
        let tree = Tree::of(self.n, self.place());
        let index = match (tree.place, index) {
            (0, 0 | 1) => return self.turned(index, Buf::Input, Buf::Scratch, true),
            (0, _) => index.saturating_sub(2),
            _ => index,
        };
        if index < tree.steps() {
            let below = |first, count| self.of_places(Buf::Scratch, first, count);
            return Some(self.down(&tree, index, below, below));
        }
        let own = || self.own(Buf::Scratch, 0, Buf::Result, 0);
        (index == tree.steps()).then(own)
    }

    pub(super) fn gather_direct(&self, index: u32) -> Option<Step> {
        if self.me != self.root {
            let input = self.one(Buf::Input, 0);
            return (index == 0).then(|| Step::send(self.root, 0, input));
        }
        let peer = self.plus(self.me, index);
        match index {
            0 => Some(self.own(Buf::Input, 0, Buf::Result, self.me)),
            _ if index < self.n => Some(Step::recv(peer, 0, self.one(Buf::Result, peer))),
            _ => None,
        }
    }

    pub(super) fn scatter_direct(&self, index: u32) -> Option<Step> {
        if self.me != self.root {
            let result = self.one(Buf::Result, 0);
            return (index == 0).then(|| Step::recv(self.root, 0, result));
        }
        let peer = self.plus(self.me, index);
        match index {
            0 => Some(self.own(Buf::Input, self.me, Buf::Result, 0)),
            _ if index < self.n => Some(Step::send(peer, 0, self.one(Buf::Input, peer))),
            _ => None,
        }
    }
}
