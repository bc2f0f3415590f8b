//! Ids in the order they came, and by what they are found again: what a receive context
//! ([`Matcher`](crate::matching::Matcher)) looks things up in once its queues are long.

use alloc::vec::Vec;

use ripstop_types::{Errno, Result};

use crate::id::Id;
use crate::ring::try_push;

/// The neighbours of an id in the order all came, and among those of its bucket.
#[derive(Clone, Copy, Debug)]
struct Link<I> {
    stamp: u64,
    before: Option<I>,
    after: Option<I>,
    prev: Option<I>,
    next: Option<I>,
    hash: u32,
    there: bool,
}

impl<I> Link<I> {
    const NONE: Self = Self {
        stamp: 0,
        before: None,
        after: None,
        prev: None,
        next: None,
        hash: 0,
        there: false,
    };
}

/// The first and the last id of a bucket.
#[derive(Clone, Copy, Debug)]
struct Ends<I> {
    head: Option<I>,
    tail: Option<I>,
}

impl<I> Ends<I> {
    const NONE: Self = Self {
        head: None,
        tail: None,
    };
}

/// Small ids with hashes, in the order they were added: adding, removing and finding the first
/// with a hash take a time that does not depend on their number. Ids with the same hash are in the
/// order they were added.
#[derive(Debug)]
pub(crate) struct Table<I> {
    /// By id.
    links: Vec<Link<I>>,
    /// None, or a power of two.
    buckets: Vec<Ends<I>>,
    all: Ends<I>,
    len: usize,
    stamp: u64,
}

impl<I: Id> Table<I> {
    /// Least buckets.
    const BUCKETS: usize = 64;

    /// No ids, and no memory.
    pub(crate) const fn new() -> Self {
        Self {
            links: Vec::new(),
            buckets: Vec::new(),
            all: Ends::NONE,
            len: 0,
            stamp: 0,
        }
    }

    /// Number of ids.
    #[inline]
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The id that was added first, if any.
    const fn oldest(&self) -> Option<I> {
        self.all.head
    }

    /// The ids in the order they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = I> + '_ {
        core::iter::successors(self.oldest(), |id| self.link(*id).after)
    }

    /// Rises with every id added.
    pub(crate) fn stamp(&self, id: I) -> u64 {
        self.link(id).stamp
    }

    /// The ids with this hash, in order.
    pub(crate) fn with_hash(&self, hash: u32) -> impl Iterator<Item = I> + '_ {
        let mut at = self.bucket(hash).and_then(|ends| ends.head);
        core::iter::from_fn(move || {
            while let Some(id) = at {
                let link = self.link(id);
                at = link.next;
                if link.hash == hash {
                    return Some(id);
                }
            }
            None
        })
    }

    /// Adds an id that is not there, behind all others.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`], with the table unchanged.
    pub(crate) fn insert(&mut self, id: I, hash: u32) -> Result<()> {
        while self.links.len() <= id.index() {
            try_push(&mut self.links, Link::NONE)?;
        }
        if self.len >= self.buckets.len() && self.grow().is_err() && self.buckets.is_empty() {
            return Err(Errno::ENOMEM);
        }
        self.stamp = self.stamp.wrapping_add(1);
        let link = Link {
            stamp: self.stamp,
            before: self.all.tail,
            hash,
            there: true,
            ..Link::NONE
        };
        self.set(id, link);
        match find(&mut self.links, self.all.tail) {
            Some(last) => last.after = Some(id),
            None => self.all.head = Some(id),
        }
        self.all.tail = Some(id);
        self.len = self.len.wrapping_add(1);
        self.chain(id, hash);
        Ok(())
    }

    /// Takes an id out; returns whether it was there.
    pub(crate) fn remove(&mut self, id: I) -> bool {
        let link = self.link(id);
        if !link.there {
            return false;
        }
        self.set(id, Link::NONE);
        match find(&mut self.links, link.before) {
            Some(before) => before.after = link.after,
            None => self.all.head = link.after,
        }
        match find(&mut self.links, link.after) {
            Some(after) => after.before = link.before,
            None => self.all.tail = link.before,
        }
        let at = self.place(link.hash);
        let Self { links, buckets, .. } = self;
        if let Some(ends) = buckets.get_mut(at) {
            match find(links, link.prev) {
                Some(prev) => prev.next = link.next,
                None => ends.head = link.next,
            }
            match find(links, link.next) {
                Some(next) => next.prev = link.prev,
                None => ends.tail = link.prev,
            }
        }
        self.len = self.len.wrapping_sub(1);
        true
    }

    fn link(&self, id: I) -> Link<I> {
        self.links.get(id.index()).copied().unwrap_or(Link::NONE)
    }

    fn set(&mut self, id: I, link: Link<I>) {
        if let Some(place) = self.links.get_mut(id.index()) {
            *place = link;
        }
    }

    fn place(&self, hash: u32) -> usize {
        hash as usize & self.buckets.len().wrapping_sub(1)
    }

    fn bucket(&self, hash: u32) -> Option<Ends<I>> {
        self.buckets.get(self.place(hash)).copied()
    }

    /// Puts an id behind the others of its bucket.
    fn chain(&mut self, id: I, hash: u32) {
        let at = self.place(hash);
        let Self { links, buckets, .. } = self;
        let Some(ends) = buckets.get_mut(at) else {
            return;
        };
        let tail = ends.tail.replace(id);
        match find(links, tail) {
            Some(last) => last.next = Some(id),
            None => ends.head = Some(id),
        }
        if let Some(link) = links.get_mut(id.index()) {
            link.prev = tail;
            link.next = None;
        }
    }

    /// Twice as many buckets. Without memory there are as many as before, and longer.
    fn grow(&mut self) -> Result<()> {
        let count = self.buckets.len().saturating_mul(2).max(Self::BUCKETS);
        let mut buckets = Vec::new();
        buckets
            .try_reserve_exact(count)
            .map_err(|_| Errno::ENOMEM)?;
        for _ in 0..count {
            try_push(&mut buckets, Ends::NONE)?;
        }
        self.buckets = buckets;
        let mut at = self.oldest();
        while let Some(id) = at {
            let link = self.link(id);
            self.chain(id, link.hash);
            at = link.after;
        }
        Ok(())
    }
}

/// The neighbours of an id, if there is one.
fn find<I: Id>(links: &mut [Link<I>], id: Option<I>) -> Option<&mut Link<I>> {
    links.get_mut(id?.index())
}

/// Mixes two words into a hash, the low bits of which say as much as the high ones.
pub(crate) const fn mix(a: u64, b: u64) -> u32 {
    let word = a ^ b.rotate_left(32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (word >> 32) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::id::MessageId;

    /// What is there, in order.
    fn all(table: &Table<MessageId>) -> Vec<MessageId> {
        table.iter().collect()
    }

    proptest! {
        #[test]
        fn it_is_a_list_that_is_found_by_hash(
            steps in prop::collection::vec((any::<bool>(), 1..300u32, 0..9u32), 0..600)
        ) {
            let mut table = Table::new();
            let mut list: Vec<(MessageId, u32)> = Vec::new();
            for (add, id, hash) in steps {
                let id = MessageId::new(id).unwrap();
                // Some are the same but for bits that tell buckets apart only when there are many.
                let hash = (hash % 3) | ((hash / 3) << 7);
                let at = list.iter().position(|(other, _)| *other == id);
                match at {
                    None if add => {
                        table.insert(id, hash).unwrap();
                        list.push((id, hash));
                    }
                    None => prop_assert!(!table.remove(id)),
                    Some(at) => {
                        prop_assert!(table.remove(id));
                        list.remove(at);
                    }
                }
                prop_assert_eq!(table.len(), list.len());
                let found: Vec<MessageId> = table.with_hash(hash).collect();
                let same = list.iter().filter(|(_, other)| *other == hash);
                prop_assert_eq!(found, same.map(|(id, _)| *id).collect::<Vec<_>>());
            }
            prop_assert_eq!(all(&table), list.iter().map(|(id, _)| *id).collect::<Vec<_>>());
            let stamps: Vec<u64> = all(&table).iter().map(|id| table.stamp(*id)).collect();
            prop_assert!(stamps.is_sorted());
        }
    }

    #[test]
    fn hashes_of_neighbours_fill_the_buckets() {
        // Tags in a row, tags that differ in high bits only, and sources in a row.
        for shift in [0, 20, 40] {
            for by_source in [false, true] {
                let mut buckets = [0; 256];
                for word in 0..1024u64 {
                    let (a, b) = if by_source {
                        (5, word)
                    } else {
                        (word << shift, 5)
                    };
                    buckets[mix(a, b) as usize % 256] += 1;
                }
                assert!(
                    buckets.iter().all(|count| *count < 20),
                    "{shift} {by_source}"
                );
            }
        }
    }
}
