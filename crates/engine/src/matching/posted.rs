//! The posted receives of a context that are of one kind: with tags, or without.

use ripstop_types::FiAddr;

use super::{LONG_WALK, MAX_LIST_ITEMS, Recv, Want};
use crate::Buffer;
use crate::id::RecvId;
use crate::pool::{List, Pool};
use crate::table::{Table, mix};

/// Most classes of receives that are told apart.
const MAX_CLASSES: usize = 8;

/// The hash of receives of any other class.
const OTHER_CLASS: u32 = 0;

/// What receives look at in a message: those of one class that accept a message have one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    ignore: u64,
    directed: bool,
}

impl Class {
    const fn of(want: &Want) -> Self {
        let ignore = match want.tag {
            Some((_, ignore)) => ignore,
            None => 0,
        };
        Self {
            ignore,
            directed: want.src.is_specified(),
        }
    }

    const fn hash(self, tag: u64, src: FiAddr) -> u32 {
        let src = if self.directed { src.0 } else { u64::MAX };
        mix(tag & !self.ignore, src)
    }
}

/// Receives in the order they were posted: in a list, and once much of it was walked, in a table
/// by what they accept, until few are left.
#[derive(Debug)]
pub(super) struct Posted {
    /// Empty unless the table is.
    list: List<RecvId>,
    table: Table<RecvId>,
    classes: [Option<Class>; MAX_CLASSES],
    /// Some in the table are of another class.
    others: bool,
    /// How many receives long walks have passed.
    walked: usize,
}

impl Posted {
    pub(super) const fn new() -> Self {
        Self {
            list: List::new(),
            table: Table::new(),
            classes: [None; MAX_CLASSES],
            others: false,
            walked: 0,
        }
    }

    /// The first receive; `None` where there is none, or they are in the table.
    #[inline]
    pub(super) fn first(&self) -> Option<RecvId> {
        self.list.first()
    }

    /// Takes [`Posted::first`] out.
    #[inline]
    pub(super) fn pop_first<B>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>) -> Option<RecvId> {
        self.list.pop_front(recvs)
    }

    /// Takes [`Posted::first`] out and drops it.
    #[inline(always)]
    pub(super) fn discard_first<B>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>) {
        self.list.discard_front(recvs);
    }

    /// Adds a receive behind all others; it has been in no list.
    #[inline]
    pub(super) fn add<B: Buffer>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>, id: RecvId) {
        if self.table.is_empty() {
            self.list.push_new(recvs, id);
        } else {
            self.add_to_table(recvs, id);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_to_table<B: Buffer>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>, id: RecvId) {
        if !self.enter(recvs, id) {
            // A list needs no memory.
            self.flatten(recvs);
            self.list.push_back(recvs, id);
        }
    }

    /// Finds the first receive that accepts the message, and takes it out unless it is a
    /// multi-receive buffer.
    #[inline(never)]
    pub(super) fn find<B: Buffer>(
        &mut self,
        recvs: &mut Pool<RecvId, Recv<B>>,
        tag: Option<u64>,
        src: FiAddr,
    ) -> Option<RecvId> {
        let mut steps = 0usize;
        let found = if self.table.is_empty() {
            self.list.find(recvs, |_, recv| {
                steps = steps.wrapping_add(1);
                recv.want.accepts(tag, src)
            })
        } else {
            self.find_in_table(recvs, tag, src)
        };
        if let Some(id) = found
            && recvs.get(id).is_some_and(|recv| !recv.multi)
        {
            self.remove(recvs, id);
        }
        if steps > LONG_WALK {
            self.walked = self.walked.saturating_add(steps);
            if self.walked >= recvs.len() {
                self.index(recvs);
            }
        }
        found
    }

    fn find_in_table<B: Buffer>(
        &self,
        recvs: &Pool<RecvId, Recv<B>>,
        tag: Option<u64>,
        src: FiAddr,
    ) -> Option<RecvId> {
        let fits = |id: &RecvId| {
            recvs
                .get(*id)
                .is_some_and(|recv| recv.want.accepts(tag, src))
        };
        let first = |hash| self.table.with_hash(hash).find(fits);
        let classes = self.classes.iter().flatten();
        let known = classes.map(|class| first(class.hash(tag.unwrap_or_default(), src)));
        let other = self.others.then(|| first(OTHER_CLASS));
        known
            .chain(other)
            .flatten()
            .min_by_key(|id| self.table.stamp(*id))
    }

    /// Takes a receive out; returns whether it was there.
    pub(super) fn remove<B>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>, id: RecvId) -> bool {
        if self.table.is_empty() {
            return self.list.take(recvs, |other, _| other == id).is_some();
        }
        let there = self.table.remove(id);
        if self.table.len() <= MAX_LIST_ITEMS {
            self.flatten(recvs);
        }
        there
    }

    /// Takes the first receive for which `wanted` holds out.
    pub(super) fn take<B>(
        &mut self,
        recvs: &mut Pool<RecvId, Recv<B>>,
        wanted: impl FnMut(RecvId, &Recv<B>) -> bool,
    ) -> Option<RecvId> {
        self.flatten(recvs);
        self.list.take(recvs, wanted)
    }

    /// Takes all receives for which `wanted` holds out, into a list of their own.
    pub(super) fn split<B>(
        &mut self,
        recvs: &mut Pool<RecvId, Recv<B>>,
        wanted: impl FnMut(RecvId, &Recv<B>) -> bool,
    ) -> List<RecvId> {
        self.flatten(recvs);
        self.list.split(recvs, wanted)
    }

    /// Whether `wanted` holds for one.
    pub(super) fn any<B>(
        &self,
        recvs: &Pool<RecvId, Recv<B>>,
        mut wanted: impl FnMut(&Recv<B>) -> bool,
    ) -> bool {
        let mut in_table = self.table.iter().filter_map(|id| recvs.get(id));
        in_table.any(&mut wanted) || self.list.find(recvs, |_, recv| wanted(recv)).is_some()
    }

    /// Shows the first `most` receives.
    pub(super) fn visit<B>(
        &self,
        recvs: &mut Pool<RecvId, Recv<B>>,
        most: usize,
        visit: &mut dyn FnMut(RecvId, &mut Recv<B>),
    ) {
        let mut show = |recvs: &mut Pool<RecvId, Recv<B>>, id: RecvId| {
            if let Some(recv) = recvs.get_mut(id) {
                visit(id, recv);
            }
        };
        for id in self.table.iter().take(most) {
            show(recvs, id);
        }
        let mut at = self.list.first();
        for _ in 0..most {
            let Some(id) = at else { break };
            show(recvs, id);
            at = self.list.after(recvs, id);
        }
    }

    /// Puts the receives into the table. Without memory they stay in the list.
    #[cold]
    #[inline(never)]
    pub(super) fn index<B: Buffer>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>) {
        self.walked = 0;
        let mut at = self.list.first();
        while let Some(id) = at {
            if !self.enter(recvs, id) {
                return self.forget_table();
            }
            at = self.list.after(recvs, id);
        }
        if !self.table.is_empty() {
            self.list = List::new();
        }
    }

    /// Puts the receives into the list.
    pub(super) fn flatten<B>(&mut self, recvs: &mut Pool<RecvId, Recv<B>>) {
        for id in self.table.iter() {
            self.list.push_back(recvs, id);
        }
        self.forget_table();
    }

    fn forget_table(&mut self) {
        self.table = Table::new();
        self.classes = [None; MAX_CLASSES];
        self.others = false;
    }

    /// Adds a receive to the table, if there is memory.
    fn enter<B>(&mut self, recvs: &Pool<RecvId, Recv<B>>, id: RecvId) -> bool {
        let Some(recv) = recvs.get(id) else {
            return false;
        };
        let want = recv.want;
        let class = Class::of(&want);
        let known = self
            .classes
            .iter_mut()
            .find(|known| known.is_none_or(|known| known == class));
        let hash = match known {
            Some(known) => {
                *known = Some(class);
                class.hash(want.tag.map_or(0, |(tag, _)| tag), want.src)
            }
            None => {
                self.others = true;
                OTHER_CLASS
            }
        };
        self.table.insert(id, hash).is_ok()
    }
}
