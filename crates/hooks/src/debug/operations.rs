//! The operations that are under way in a domain.
//!
//! One is followed from its post to the read of its completion, which is found by its queue and context.
//! Where several of one queue have the same context, none of them is looked at: which of them has
//! completed is not known.

use core::hash::Hasher as _;
use std::collections::HashMap;
use std::hash::DefaultHasher;

use ripstop_abi as abi;
use ripstop_mem::UserBuf;

use super::objects::Name;
use super::ranges::Ranges;
use crate::call::{CallInfo, Kind};
use crate::completions::Completion;

/// So many bytes at the begin and at the end of payload are compared.
const COMPARED: usize = 4096;

/// So many operations are followed at most.
const FOLLOWED: usize = 1 << 20;

/// One operation.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) call: &'static CallInfo,
    pub(super) kind: Kind,
    pub(super) endpoint: Name,
    /// The number of its queue.
    pub(super) queue: u64,
    pub(super) context: usize,
    /// Whether it stays for more completions.
    pub(super) is_multi: bool,
    /// Its memory and descriptors; none for those that are not looked into.
    pub(super) pieces: Vec<(UserBuf, usize)>,
    /// What its payload was; `None` where that may change.
    pub(super) payload: Option<u64>,
    /// The post is under way still.
    pub(super) is_posting: bool,
    /// Another one of its queue has its context.
    pub(super) is_one_of_several: bool,
}

impl Operation {
    /// Whether it writes the memory of this side.
    const fn writes(&self) -> bool {
        matches!(self.kind, Kind::Recv | Kind::Read)
    }

    const fn is_sure(&self) -> bool {
        !self.is_posting && !self.is_one_of_several
    }
}

/// What was found of an operation: the other one's call and endpoint.
#[derive(Debug)]
pub(super) struct Other {
    pub(super) call: &'static CallInfo,
    pub(super) endpoint: Name,
    pub(super) context: usize,
    /// The memory of the other one that is concerned.
    pub(super) memory: (usize, usize),
    /// Whether the other one writes it.
    pub(super) writes: bool,
}

/// All that are under way.
#[derive(Debug, Default)]
pub(super) struct Operations {
    all: HashMap<u64, Operation>,
    by_context: HashMap<usize, Vec<u64>>,
    written: Ranges,
    read: Ranges,
    last: u64,
    /// Transmit operations of each queue.
    sent: HashMap<u64, usize>,
}

impl Operations {
    /// Follows one that is about to be posted; its number, unless there are too many.
    pub(super) fn insert(&mut self, mut operation: Operation) -> Option<u64> {
        if self.all.len() >= FOLLOWED {
            return None;
        }
        self.last += 1;
        let id = self.last;
        let same = self.by_context.entry(operation.context).or_default();
        for other in same.iter() {
            if let Some(other) = self
                .all
                .get_mut(other)
                .filter(|other| other.queue == operation.queue)
            {
                other.is_one_of_several = true;
                operation.is_one_of_several = true;
            }
        }
        same.push(id);
        let ranges = match operation.writes() {
            true => &mut self.written,
            false => &mut self.read,
        };
        for (buf, _) in &operation.pieces {
            ranges.insert(buf.addr(), buf.len(), id);
        }
        if operation.kind.is_transmit() {
            *self.sent.entry(operation.queue).or_default() += 1;
        }
        self.all.insert(id, operation);
        Some(id)
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Operation> {
        let operation = self.all.remove(&id)?;
        if let Some(same) = self.by_context.get_mut(&operation.context) {
            same.retain(|other| *other != id);
            if same.is_empty() {
                self.by_context.remove(&operation.context);
            }
        }
        let ranges = match operation.writes() {
            true => &mut self.written,
            false => &mut self.read,
        };
        for (buf, _) in &operation.pieces {
            ranges.remove(buf.addr(), id);
        }
        if operation.kind.is_transmit()
            && let Some(sent) = self.sent.get_mut(&operation.queue)
        {
            *sent = sent.saturating_sub(1);
        }
        Some(operation)
    }

    /// The post was accepted.
    pub(super) fn accepted(&mut self, id: u64) -> Option<&Operation> {
        let operation = self.all.get_mut(&id)?;
        operation.is_posting = false;
        Some(operation)
    }

    /// The payload of this one may change, which is told of already.
    pub(super) fn forget_payload(&mut self, id: u64) {
        if let Some(operation) = self.all.get_mut(&id) {
            operation.payload = None;
        }
    }

    /// Another operation that uses memory which this one writes, or writes what it uses.
    ///
    /// Several receives into the same place are a place for what nobody wants, and the part of a multi-receive
    /// buffer that is filled is the program's. A receive that no message has come for writes nothing, which a program may
    /// know that reads into its memory meanwhile, as fabtests do.
    pub(super) fn overlapping(&self, id: u64) -> Option<(u64, Other)> {
        let this = self.all.get(&id).filter(|this| this.is_sure())?;
        for (buf, _) in &this.pieces {
            let (start, len) = (buf.addr(), buf.len());
            let written = self.written.overlapping(start, len);
            let written = written.filter(|(at, _)| !this.writes() || *at != start);
            let read = self.read.overlapping(start, len);
            let read = read.filter(|_| this.writes());
            for (at, id) in written.chain(read) {
                let Some(other) = self.all.get(&id).filter(|other| other.is_sure()) else {
                    continue;
                };
                let both_write = this.writes() && other.writes();
                let is_of_another_kind = both_write && this.kind != other.kind;
                let is_partly_filled = this.is_multi || other.is_multi;
                if core::ptr::eq(other, this)
                    || is_of_another_kind
                    || (is_partly_filled && !both_write)
                {
                    continue;
                }
                let piece = other.pieces.iter().find(|(buf, _)| buf.addr() == at);
                let len = piece.map_or(0, |(buf, _)| buf.len());
                return Some((id, Other::of(other, (at, len))));
            }
        }
        None
    }

    /// Another operation with the context of this one.
    pub(super) fn same_context(&self, id: u64) -> Option<Other> {
        let this = self.all.get(&id).filter(|this| this.context != 0)?;
        let same = self.by_context.get(&this.context)?;
        let mut others = same.iter().filter(|other| **other != id);
        let other =
            others.find_map(|other| self.all.get(other).filter(|other| !other.is_posting))?;
        Some(Other::of(other, (0, 0)))
    }

    /// How many transmit operations will write an entry to this queue.
    pub(super) fn sent(&self, queue: u64) -> usize {
        self.sent.get(&queue).copied().unwrap_or_default()
    }

    /// One that uses this descriptor.
    pub(super) fn with_desc(&self, desc: usize, only_transmits: bool) -> Option<Other> {
        let uses = |operation: &&Operation| {
            operation.is_sure()
                && (!only_transmits || operation.kind.is_transmit())
                && operation.pieces.iter().any(|(_, its)| *its == desc)
        };
        let operation = self.all.values().find(uses)?;
        Some(Other::of(operation, (0, 0)))
    }

    /// A completion was read from a queue: the operation, if that was its last one.
    pub(super) fn completed(
        &mut self,
        queue: u64,
        entry: Completion,
        in_error: bool,
    ) -> Option<Operation> {
        let same = self.by_context.get(&entry.context.addr())?;
        let of_queue = |id: &&u64| self.all.get(*id).is_some_and(|one| one.queue == queue);
        let fits = |id: &&u64| {
            self.all
                .get(*id)
                .is_some_and(|one| one.kind.fits(entry.flags))
        };
        let mut fitting = same.iter().filter(of_queue).filter(fits);
        let id = *fitting.next().or_else(|| same.iter().find(of_queue))?;
        let goes_on = self.all.get(&id)?.is_multi && entry.flags & abi::FI_MULTI_RECV == 0;
        if goes_on && !in_error {
            return None;
        }
        self.remove(id)
    }

    /// Those of an endpoint that is closed are over.
    pub(super) fn endpoint_closed(&mut self, endpoint: u64) -> usize {
        let all = self
            .all
            .iter()
            .filter(|(_, one)| one.endpoint.id == endpoint);
        let gone: Vec<u64> = all.map(|(id, _)| *id).collect();
        for id in &gone {
            self.remove(*id);
        }
        gone.len()
    }
}

impl Other {
    const fn of(operation: &Operation, memory: (usize, usize)) -> Self {
        Self {
            call: operation.call,
            endpoint: operation.endpoint,
            context: operation.context,
            memory,
            writes: operation.writes(),
        }
    }
}

/// A number that is another one, but for chance, when payload has changed near its ends.
pub(super) fn digest(pieces: &[(UserBuf, usize)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut bytes = [0; COMPARED];
    let mut add = |buf: UserBuf| {
        let count = ripstop_mem::copy_in(&mut bytes, buf);
        hasher.write(&bytes[..count]);
    };
    if let Some((first, _)) = pieces.first() {
        add(first.first(COMPARED));
    }
    if let Some((last, _)) = pieces.last() {
        add(last.skip(last.len().saturating_sub(COMPARED)));
    }
    hasher.finish()
}
