//! What a cache remembers: which memory is registered, and which of that was not used for the longest time.
//!
//! It is behind the lock that the thread of the memory's watch takes while the program gives memory back, which may be within
//! `free(3)`. So nothing here allocates or frees: all room is made at first, and registrations that end are kept until
//! somebody takes them ([`Table::take_ended`]) who does not hold the lock.

use std::ops::Range;
use std::sync::Arc;

use ripstop_ibverbs::Access;
use ripstop_os::{Given, Observer};

/// Room for entries that are not found any more and not taken yet, beside those that are.
const SPARE: usize = 64;

/// The place of an entry.
pub(super) type Slot = usize;

/// Where an entry is that can be found, or is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    device: u32,
    start: usize,
    end: usize,
    slot: Slot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Its memory is being registered by who has its slot; it has a key.
    Begun,
    /// As before, and its memory was given back meanwhile, or registered by somebody else; it has no key.
    BegunGone,
    /// It can be found.
    Ready,
    /// It is to be taken.
    Ended,
}

/// An entry: some memory of a device's process.
#[derive(Debug)]
struct Entry<R> {
    state: State,
    region: Option<Arc<R>>,
    access: Access,
    /// What was watched for it, as far as it is mapped still.
    pages: Range<usize>,
    /// Neighbours in the order of use, of those that can be found.
    older: Option<Slot>,
    newer: Option<Slot>,
}

/// What was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Begun {
    pub(super) slot: Slot,
    /// What was asked, and what the entries had that this one replaces: a buffer that is sent and received by turns is
    /// registered for both.
    pub(super) access: Access,
}

/// An entry that is found no longer.
#[derive(Debug)]
pub(super) struct Ended<R> {
    /// What was watched for it.
    pub(super) pages: Range<usize>,
    pub(super) region: Option<Arc<R>>,
}

/// See the module. Entries of one device have no byte in common.
#[derive(Debug)]
pub(super) struct Table<R> {
    entries: Vec<Entry<R>>,
    free: Vec<Slot>,
    ended: Vec<Slot>,
    /// By device and start.
    keys: Vec<Key>,
    oldest: Option<Slot>,
    newest: Option<Slot>,
    max_count: usize,
    max_bytes: usize,
    /// Of all entries that have a key.
    bytes: usize,
    page: usize,
    /// Entries that ended since the program gave memory back.
    given_back: u64,
}

impl<R> Table<R> {
    /// Room for so many entries, of so many bytes together.
    pub(super) fn new(max_count: usize, max_bytes: usize, page: usize) -> Self {
        let room = max_count + SPARE;
        let entries = (0..room).map(|_| Entry {
            state: State::Free,
            region: None,
            access: Access::empty(),
            pages: 0..0,
            older: None,
            newer: None,
        });
        Self {
            entries: entries.collect(),
            free: (0..room).rev().collect(),
            ended: Vec::with_capacity(room),
            keys: Vec::with_capacity(room),
            oldest: None,
            newest: None,
            max_count,
            max_bytes,
            bytes: 0,
            page,
            given_back: 0,
        }
    }

    /// The pages that these bytes are in.
    pub(super) fn pages_of(&self, bytes: &Range<usize>) -> Range<usize> {
        let end = bytes.end.checked_next_multiple_of(self.page);
        bytes.start / self.page * self.page..end.unwrap_or(bytes.end)
    }

    /// Whether [`take_ended`](Self::take_ended) has something.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// How many entries have ended since the program gave memory back.
    pub(super) fn given_back(&self) -> u64 {
        self.given_back
    }

    /// The registration that all of these bytes are in, with this access at least. It is the newest then.
    pub(super) fn find(
        &mut self,
        device: u32,
        bytes: &Range<usize>,
        access: Access,
    ) -> Option<Arc<R>> {
        let upto = (device, bytes.start);
        let behind = self
            .keys
            .partition_point(|key| (key.device, key.start) <= upto);
        let key = *self.keys.get(behind.checked_sub(1)?)?;
        let entry = &self.entries[key.slot];
        let fits = key.device == device && bytes.end <= key.end && entry.access.contains(access);
        if !fits || entry.state != State::Ready {
            return None;
        }
        let region = entry.region.clone();
        self.unlink(key.slot);
        self.link(key.slot);
        region
    }

    /// Begins an entry of these bytes, in place of those that it has bytes in common with. The caller registers them, and calls
    /// [`finish`](Self::finish) or [`abandon`](Self::abandon). `None` where there is no room, since what there is is in use.
    pub(super) fn begin(
        &mut self,
        device: u32,
        bytes: Range<usize>,
        access: Access,
    ) -> Option<Begun> {
        if self.max_count == 0 || bytes.is_empty() || bytes.len() > self.max_bytes {
            return None;
        }
        let mut all = access;
        let first = |keys: &[Key]| {
            keys.partition_point(|key| (key.device, key.end) <= (device, bytes.start))
        };
        let at = first(&self.keys);
        while let Some(key) = self.keys.get(at)
            && key.device == device
            && key.start < bytes.end
        {
            all |= self.entries[key.slot].access;
            self.end(at);
        }
        while self.keys.len() >= self.max_count || self.bytes > self.max_bytes - bytes.len() {
            if !self.evict() {
                return None;
            }
        }
        let slot = self.free.pop()?;
        let pages = self.pages_of(&bytes);
        let entry = &mut self.entries[slot];
        (entry.state, entry.access, entry.pages) = (State::Begun, all, pages);
        let key = Key {
            device,
            start: bytes.start,
            end: bytes.end,
            slot,
        };
        self.bytes += bytes.len();
        self.keys.insert(first(&self.keys), key);
        Some(Begun { slot, access: all })
    }

    /// What was begun is registered, for this access: it can be found from now on, unless its memory was given back meanwhile.
    /// Gives back what is not kept.
    pub(super) fn finish(&mut self, slot: Slot, region: Arc<R>, access: Access) -> Option<Arc<R>> {
        let entry = &mut self.entries[slot];
        if entry.state != State::Begun {
            entry.state = State::Ended;
            self.ended.push(slot);
            return Some(region);
        }
        (entry.state, entry.access, entry.region) = (State::Ready, access, Some(region));
        self.link(slot);
        None
    }

    /// What was begun is not registered, or not to be found.
    pub(super) fn abandon(&mut self, slot: Slot, watched: bool) {
        if let Some(at) = self.keys.iter().position(|key| key.slot == slot) {
            self.remove_key(at);
        }
        let entry = &mut self.entries[slot];
        entry.state = State::Ended;
        if !watched {
            entry.pages = 0..0;
        }
        self.ended.push(slot);
    }

    /// Ends the one that was not used for the longest time, of those that nobody uses; `false` if there is none.
    pub(super) fn evict(&mut self) -> bool {
        let mut next = self.oldest;
        while let Some(slot) = next {
            let entry = &self.entries[slot];
            let is_idle = entry
                .region
                .as_ref()
                .is_none_or(|region| Arc::strong_count(region) == 1);
            if is_idle && let Some(at) = self.keys.iter().position(|key| key.slot == slot) {
                self.end(at);
                return true;
            }
            next = entry.newer;
        }
        false
    }

    /// Ends all of a device.
    pub(super) fn forget(&mut self, device: u32) {
        while let Some(at) = self.keys.iter().position(|key| key.device == device) {
            self.end(at);
        }
    }

    /// Takes what has ended.
    pub(super) fn take_ended(&mut self) -> Option<Ended<R>> {
        let slot = self.ended.pop()?;
        let entry = &mut self.entries[slot];
        entry.state = State::Free;
        self.free.push(slot);
        Some(Ended {
            pages: std::mem::take(&mut entry.pages),
            region: entry.region.take(),
        })
    }

    /// The first pages in this range that an entry has which can be found, or is being made: these stay watched.
    pub(super) fn first_in_use(&self, range: &Range<usize>) -> Option<Range<usize>> {
        let pages = |key: &Key| self.pages_of(&(key.start..key.end));
        let all = self.keys.iter().map(pages);
        let touching = all.filter(|pages| pages.start < range.end && range.start < pages.end);
        touching.min_by_key(|pages| pages.start)
    }

    /// Ends the entry of the key at this place.
    fn end(&mut self, at: usize) {
        let Key { slot, .. } = self.remove_key(at);
        if self.entries[slot].state == State::Begun {
            self.entries[slot].state = State::BegunGone;
            return;
        }
        self.unlink(slot);
        self.entries[slot].state = State::Ended;
        self.ended.push(slot);
    }

    fn remove_key(&mut self, at: usize) -> Key {
        let key = self.keys.remove(at);
        self.bytes -= key.end - key.start;
        key
    }

    /// Makes it the newest.
    fn link(&mut self, slot: Slot) {
        let before = self.newest.replace(slot);
        match before {
            Some(before) => self.entries[before].newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        let entry = &mut self.entries[slot];
        (entry.older, entry.newer) = (before, None);
    }

    fn unlink(&mut self, slot: Slot) {
        let entry = &mut self.entries[slot];
        let (older, newer) = (entry.older.take(), entry.newer.take());
        match older {
            Some(older) => self.entries[older].newer = newer,
            None => self.oldest = newer,
        }
        match newer {
            Some(newer) => self.entries[newer].older = older,
            None => self.newest = older,
        }
    }
}

impl<R: std::fmt::Debug + Send + Sync + 'static> Observer for Table<R> {
    fn gone(&mut self, range: Range<usize>, given: Given) {
        let mut at = 0;
        while let Some(key) = self.keys.get(at) {
            let pages = self.pages_of(&(key.start..key.end));
            if pages.start < range.end && range.start < pages.end {
                self.given_back += 1;
                self.end(at);
            } else {
                at += 1;
            }
        }
        if given == Given::Pages {
            return;
        }
        // What is mapped there next may be watched by somebody else.
        for entry in &mut self.entries {
            let pages = &mut entry.pages;
            if pages.start < range.start && range.start < pages.end {
                pages.end = range.start;
            } else if range.start <= pages.start && pages.start < range.end {
                pages.start = range.end.min(pages.end);
            }
        }
    }
}

#[cfg(test)]
mod tests;
