//! The messages of a receive context that no receive has taken yet.

use alloc::vec::Vec;

use ripstop_types::{Context, FiAddr};

use super::{Envelope, LONG_WALK, MAX_LIST_ITEMS, Unexpected, Want};
use crate::id::MessageId;
use crate::pool::{List, Pool};
use crate::ring::try_push;
use crate::table::{Table, mix};

/// Most tables: as many kinds of receives take turns before one is made anew.
const MAX_TABLES: usize = 4;

/// The hash of messages that no receive of a kind accepts.
const UNMATCHED: u32 = 0;

/// What a receive looks at in a message: those that it accepts have one hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Kind {
    /// Bits of the tag that do not matter; `None` for messages without.
    ignore: Option<u64>,
    directed: bool,
}

impl Kind {
    const fn of(want: &Want) -> Self {
        let ignore = match want.tag {
            Some((_, ignore)) => Some(ignore),
            None => None,
        };
        Self {
            ignore,
            directed: want.src.is_specified(),
        }
    }

    const fn hash(self, tag: Option<u64>, src: FiAddr) -> u32 {
        let src = if self.directed { src.0 } else { u64::MAX };
        match (self.ignore, tag) {
            (Some(ignore), Some(tag)) => mix(tag & !ignore, src),
            (None, None) => mix(0, src),
            _ => UNMATCHED,
        }
    }

    const fn hash_of(self, message: &Envelope) -> u32 {
        self.hash(message.tag, message.src)
    }
}

/// All messages, by what one kind of receives looks at.
#[derive(Debug)]
struct Keyed {
    kind: Kind,
    table: Table<MessageId>,
    /// When it was last looked up in.
    used: u64,
}

/// Messages in the order they came: in a list, and once much of it was walked, in tables for the
/// kinds of receives that look for them, until few are left.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Empty unless there is no table.
    list: List<MessageId>,
    tables: Vec<Keyed>,
    count: usize,
    /// How many messages long walks have passed.
    walked: usize,
    lookups: u64,
}

impl Waiting {
    pub(super) const fn new() -> Self {
        Self {
            list: List::new(),
            tables: Vec::new(),
            count: 0,
            walked: 0,
            lookups: 0,
        }
    }

    /// Whether there are none.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds a message behind all others.
    pub(super) fn add(&mut self, pool: &mut Pool<MessageId, Unexpected>, id: MessageId) {
        let Some(message) = pool.get(id) else { return };
        let envelope = message.envelope;
        self.count = self.count.wrapping_add(1);
        let enter = |keyed: &mut Keyed| keyed.table.insert(id, keyed.kind.hash_of(&envelope));
        if self
            .tables
            .iter_mut()
            .map(enter)
            .any(|entered| entered.is_err())
        {
            for keyed in &mut self.tables {
                keyed.table.remove(id);
            }
            // A list needs no memory.
            self.flatten(pool);
        }
        if self.tables.is_empty() {
            self.list.push_back(pool, id);
        }
    }

    /// The first message that fits. With `claim`, only one set aside for that context; without,
    /// none that is set aside.
    pub(super) fn find(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        want: &Want,
        claim: Option<Context>,
    ) -> Option<MessageId> {
        let kind = Kind::of(want);
        let fits = |message: &Unexpected| {
            let Envelope { tag, src, .. } = message.envelope;
            message.claimed == claim && want.accepts(tag, src)
        };
        self.lookups = self.lookups.wrapping_add(1);
        if let Some(keyed) = self.tables.iter_mut().find(|keyed| keyed.kind == kind) {
            keyed.used = self.lookups;
            let hash = kind.hash(want.tag.map(|(tag, _)| tag), want.src);
            let mut ids = keyed.table.with_hash(hash);
            return ids.find(|id| pool.get(*id).is_some_and(fits));
        }
        let mut steps = 0usize;
        let found = self.walk(pool, |_, message| {
            steps = steps.wrapping_add(1);
            fits(message)
        });
        self.note(pool, steps, kind);
        found
    }

    /// Takes a message out; returns whether it was there.
    pub(super) fn remove(&mut self, pool: &mut Pool<MessageId, Unexpected>, id: MessageId) -> bool {
        let mut there = false;
        let mut steps = 0usize;
        if self.tables.is_empty() {
            let is_it = |other, _: &Unexpected| {
                steps = steps.wrapping_add(1);
                other == id
            };
            there = self.list.take(pool, is_it).is_some();
        }
        for keyed in &mut self.tables {
            there = keyed.table.remove(id);
        }
        self.count = self.count.wrapping_sub(usize::from(there));
        if self.count <= MAX_LIST_ITEMS {
            self.flatten(pool);
        } else if self.tables.is_empty() {
            // Any table can take a message out at once.
            let kind = Kind {
                ignore: Some(0),
                directed: true,
            };
            self.note(pool, steps, kind);
        }
        there
    }

    /// Takes all messages for which `wanted` holds out, into a list of their own.
    pub(super) fn split(
        &mut self,
        pool: &mut Pool<MessageId, Unexpected>,
        mut wanted: impl FnMut(&Unexpected) -> bool,
    ) -> List<MessageId> {
        self.flatten(pool);
        let mut count = 0usize;
        let taken = self.list.split(pool, |_, message| {
            let wanted = wanted(message);
            count = count.wrapping_add(usize::from(wanted));
            wanted
        });
        self.count = self.count.wrapping_sub(count);
        taken
    }

    /// Calls `visit` on every message in order; it leaves tag and source as they are.
    pub(super) fn for_each(
        &self,
        pool: &mut Pool<MessageId, Unexpected>,
        mut visit: impl FnMut(MessageId, &mut Unexpected),
    ) {
        let Some(Keyed { table, .. }) = self.tables.first() else {
            return self.list.for_each(pool, visit);
        };
        for id in table.iter() {
            if let Some(message) = pool.get_mut(id) {
                visit(id, message);
            }
        }
    }

    /// Puts the messages into the list.
    pub(super) fn flatten(&mut self, pool: &mut Pool<MessageId, Unexpected>) {
        if let Some(Keyed { table, .. }) = self.tables.first() {
            for id in table.iter() {
                self.list.push_back(pool, id);
            }
        }
        self.tables = Vec::new();
    }

    /// The first message in order for which `wanted` holds.
    fn walk(
        &self,
        pool: &Pool<MessageId, Unexpected>,
        mut wanted: impl FnMut(MessageId, &Unexpected) -> bool,
    ) -> Option<MessageId> {
        let Some(Keyed { table, .. }) = self.tables.first() else {
            return self.list.find(pool, wanted);
        };
        table
            .iter()
            .find(|id| pool.get(*id).is_some_and(|message| wanted(*id, message)))
    }

    /// Takes note of how far somebody had to walk who looked for a message of this kind.
    fn note(&mut self, pool: &mut Pool<MessageId, Unexpected>, steps: usize, kind: Kind) {
        if steps > LONG_WALK {
            self.walked = self.walked.saturating_add(steps);
            if self.walked >= self.count {
                self.index(pool, kind);
            }
        }
    }

    /// Puts the messages into a table, in place of the one that was not used for longest if there
    /// are too many. Without memory all stays as it is.
    #[cold]
    #[inline(never)]
    fn index(&mut self, pool: &mut Pool<MessageId, Unexpected>, kind: Kind) {
        self.walked = 0;
        let mut table = Table::new();
        let mut enter =
            |id, message: &Unexpected| table.insert(id, kind.hash_of(&message.envelope)).is_err();
        if self.walk(pool, &mut enter).is_some() {
            return;
        }
        let keyed = Keyed {
            kind,
            table,
            used: self.lookups,
        };
        if self.tables.len() >= MAX_TABLES {
            let oldest = self.tables.iter_mut().min_by_key(|keyed| keyed.used);
            if let Some(oldest) = oldest {
                *oldest = keyed;
            }
        } else if try_push(&mut self.tables, keyed).is_ok() {
            self.list = List::new();
        }
    }

    /// Has the messages in a table for this kind of receives, whatever was walked.
    #[cfg(test)]
    pub(super) fn index_for(&mut self, pool: &mut Pool<MessageId, Unexpected>, want: &Want) {
        let kind = Kind::of(want);
        if !self.is_empty() && self.tables.iter().all(|keyed| keyed.kind != kind) {
            self.index(pool, kind);
        }
    }
}
