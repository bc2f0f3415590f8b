//! What reads, writes and atomics promise (man pages `fi_rma(3)`, `fi_atomic(3)`, `fi_cq(3)`),
//! as a plain model of memory that knows posts, streams and completions only.
//!
//! * Of a pair of processes each byte is written by one of them only. What the other may find
//!   there is the last write that has certainly been done, or one behind it that may have been:
//!   those of one stream are done in order, and what a stream that ended had carried is done or
//!   not.
//! * A write is certainly done when its completion promises so, when its completion data
//!   arrived, or when an operation behind it on the stream is. A commit completion promises it
//!   of what a crash leaves, too.
//! * A read finds what was written before it on its stream, and may find what comes behind it.
//! * Each atomic on a cell sets a bit that no other has. So what one fetches names all that
//!   were done before it: these sets must form a chain, without those that come behind it on
//!   its stream, and with all before it.
//! * Cells that are swapped get names that no other operation gives. So no name is replaced
//!   twice.
//! * A region that is taken away does not change any more. What was under way there is done, or
//!   an error; a part of it may be done.
//! * What is denied changes nothing, and is an error of its own operation only.

use std::collections::{BTreeMap, HashMap, HashSet};

use ripstop_engine::Iov;
use ripstop_engine::id::ConnId;
use ripstop_types::{AtomicOp, Errno, Flags};

use super::Host;
use crate::memory::SimBuf;
use crate::node::{CELL, Entry, Node};

/// A stream as its initiator knows it: the host, its life, the connection and which one of
/// that number it is.
type Link = (Host, u32, ConnId, u32);

/// A run of bytes of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number of the region.
    pub region: usize,
    /// Offset of the first byte.
    pub at: usize,
    /// Length in bytes.
    pub len: usize,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub enum Does {
    /// Writes these bytes to the parts, one behind the other.
    Write(Vec<u8>),
    /// Reads the parts to local memory.
    Read(Iov<SimBuf>),
    /// Sets a bit in each cell; what was there before goes to local memory.
    Mark(Vec<u32>, Option<Iov<SimBuf>>),
    /// Gives each cell a name if it compares so with another, or anyhow.
    Swap {
        /// The names.
        names: Vec<u64>,
        /// How, and what to compare with.
        compare: Option<(AtomicOp, Vec<u64>)>,
        /// Where what was there before goes.
        result: Iov<SimBuf>,
    },
    /// Reads the cells at once; to local memory.
    Look(Iov<SimBuf>),
    /// Is denied.
    Nothing,
}

/// An operation that was posted.
#[derive(Clone, Debug)]
pub struct Sided {
    /// Who posted it.
    pub host: Host,
    /// Whose memory it is about.
    pub to: Host,
    /// Which.
    pub parts: Vec<Part>,
    /// What it does there.
    pub does: Does,
    /// Its success is reported.
    pub completion: bool,
    /// Success means that the target has done it.
    pub delivered: bool,
    /// Success means that it outlives a crash.
    pub committed: bool,
    /// It has completion data, which is its context.
    pub data: bool,
    /// The target has the memory for it.
    pub sure: bool,
    /// Flags of its completion.
    pub flags: Flags,
}

#[derive(Clone, Debug)]
struct Known {
    op: Sided,
    /// Its stream, the place there, and the life of the target.
    staged: Option<(Link, usize, u32)>,
    /// It has certainly been done.
    done: bool,
    /// It has certainly not been done, and will not be.
    never: bool,
    over: bool,
    /// Its data has arrived.
    arrived: bool,
    /// What it found in each part.
    found: Option<Vec<u64>>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct OneSided {
    ops: BTreeMap<usize, Known>,
    /// How many connections of a number a host has had.
    links: HashMap<(Host, ConnId), u32>,
    closed: HashSet<Link>,
    /// How often a host was started.
    lives: Vec<u32>,
    staged: usize,
    /// Regions that were taken away: host, life and number.
    hidden: HashSet<(Host, u32, usize)>,
    /// Errors that may come without an operation, because that was over before it was denied.
    late: Vec<u32>,
}

impl Known {
    /// Whether it is done when its turn comes.
    const fn is_sure(&self) -> bool {
        self.op.sure || self.done || matches!(self.op.does, Does::Write(_))
    }
}

impl OneSided {
    /// A model of so many hosts.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        Self {
            lives: vec![0; hosts],
            late: vec![0; hosts],
            ..Self::default()
        }
    }

    /// Whether a context is one of these operations.
    #[must_use]
    pub fn has(&self, context: usize) -> bool {
        self.ops.contains_key(&context)
    }

    /// Whose memory an operation is about.
    ///
    /// # Panics
    /// If it was not posted.
    #[must_use]
    pub fn target(&self, context: usize) -> Host {
        self.ops[&context].op.to
    }

    /// An operation was accepted.
    pub fn posted(&mut self, context: usize, op: Sided) {
        let denied = matches!(op.does, Does::Nothing);
        if !op.delivered && !fetches(&op.does) {
            self.late[op.host] += 1;
        }
        let known = Known {
            staged: None,
            done: false,
            never: denied,
            over: false,
            arrived: false,
            found: None,
            op,
        };
        self.ops.insert(context, known);
    }

    fn link(&self, host: Host, conn: ConnId) -> Link {
        let which = self.links.get(&(host, conn)).copied().unwrap_or(0);
        (host, self.lives[host], conn, which)
    }

    /// An operation is on its stream.
    ///
    /// # Panics
    /// If it was before.
    pub fn staged(&mut self, host: Host, conn: ConnId, context: usize) {
        let link = self.link(host, conn);
        self.staged += 1;
        let at = self.staged;
        let known = self.ops.get_mut(&context).expect("it was posted");
        assert!(known.staged.is_none() && !known.over, "sent twice");
        known.staged = Some((link, at, self.lives[known.op.to]));
    }

    /// A connection of a host ended.
    pub fn closed(&mut self, host: Host, conn: ConnId) {
        self.closed.insert(self.link(host, conn));
        *self.links.entry((host, conn)).or_default() += 1;
    }

    /// A host took a region away from the others; returns whether they could reach it.
    pub fn hidden(&mut self, host: Host, region: usize) -> bool {
        self.hidden.insert((host, self.lives[host], region))
    }

    /// Whether an operation is about a region that was taken away.
    fn is_hidden(&self, known: &Known) -> bool {
        let to = known.op.to;
        let life = known.staged.map_or(self.lives[to], |(_, _, life)| life);
        let gone = |part: &Part| self.hidden.contains(&(to, life, part.region));
        known.op.parts.iter().any(gone)
    }

    /// A host died, with its memory, and another took its place.
    pub fn restarted(&mut self, host: Host) {
        for known in self.ops.values_mut() {
            known.over |= known.op.host == host;
            let gone = known.op.to == host && known.staged.is_some();
            known.never |= gone || (known.op.host == host && known.staged.is_none());
            known.done &= !gone;
        }
        self.lives[host] += 1;
        self.late[host] = 0;
        self.links.retain(|(other, _), _| *other != host);
    }

    /// Takes an entry of a completion queue, if it is of such an operation; returns the one
    /// that has certainly been done now.
    ///
    /// # Panics
    /// If the entry should not have come.
    pub fn completed(&mut self, host: Host, node: &Node, entry: &Entry) -> Option<Option<usize>> {
        let (context, flags) = match entry {
            Entry::Success(completion) => (completion.context, completion.flags),
            Entry::Failure(failure) => (failure.error.entry.context, failure.error.entry.flags),
        };
        if flags.contains(Flags::REMOTE_WRITE) {
            return Some(self.data_arrived(host, entry));
        }
        if context == 0 && flags.intersects(Flags::RMA | Flags::ATOMIC) {
            assert!(matches!(entry, Entry::Failure(_)), "success of nothing");
            assert!(self.late[host] > 0, "not expected: {entry:?}");
            self.late[host] -= 1;
            return Some(None);
        }
        let known = self.ops.get_mut(&context)?;
        assert!(known.op.host == host && !known.over, "{entry:?}");
        assert_eq!(flags, known.op.flags, "{entry:?}");
        known.over = true;
        match entry {
            Entry::Failure(failure) => {
                self.failed(context, failure.error.err);
                Some(None)
            }
            Entry::Success(completion) => {
                assert!(known.staged.is_some(), "done before it was sent");
                assert!(known.op.completion, "nobody asked for it");
                let mut plain = *completion;
                (plain.context, plain.flags) = (0, Flags::empty());
                assert_eq!(plain, super::blank(0, Flags::empty()));
                Some(self.succeeded(context, node))
            }
        }
    }

    fn failed(&mut self, context: usize, error: Errno) {
        let hidden = self.is_hidden(&self.ops[&context]);
        let known = self.ops.get_mut(&context).expect("it is there");
        let Some((link, ..)) = known.staged else {
            known.never = true;
            return;
        };
        // An error of its own says that it was refused.
        if !self.closed.contains(&link) {
            let denied = matches!(known.op.does, Does::Nothing);
            assert!(denied || hidden || !known.op.sure, "{error} for {known:?}");
            // What cannot be made durable has been written, and a part of what was stopped.
            known.never |= !known.op.committed && !hidden;
        }
    }

    fn succeeded(&mut self, context: usize, node: &Node) -> Option<usize> {
        let known = self.ops.get_mut(&context).expect("it is there");
        let fetched = fetches(&known.op.does);
        let promised = known.op.delivered || fetched;
        let denied = matches!(known.op.does, Does::Nothing);
        assert!(!(promised && denied), "it was denied: {known:?}");
        if fetched {
            let into = match &known.op.does {
                Does::Read(iov) | Does::Mark(_, Some(iov)) | Does::Look(iov) => iov,
                Does::Swap { result, .. } => result,
                _ => return None,
            };
            let bytes = node.memory.gather(into);
            if let Does::Read(_) = known.op.does {
                known.done = true;
                self.check_read(context, &bytes);
                return None;
            }
            let words = bytes.chunks_exact(CELL);
            let words = words.map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()));
            known.found = Some(words.collect());
        }
        if !promised {
            return None;
        }
        known.done = true;
        Some(context)
    }

    /// Completion data came to a target.
    fn data_arrived(&mut self, host: Host, entry: &Entry) -> Option<usize> {
        let Entry::Success(completion) = entry else {
            panic!("a write of a peer failed: {entry:?}");
        };
        let context = completion.data as usize;
        let known = self.ops.get_mut(&context).expect("no such data was sent");
        let what = match known.op.does {
            Does::Write(_) => Flags::RMA,
            _ => Flags::ATOMIC,
        };
        let flags = what | Flags::REMOTE_WRITE | Flags::REMOTE_CQ_DATA;
        assert_eq!(completion.flags, flags);
        let (link, at, life) = known.staged.expect("it was sent");
        assert!(known.op.data && known.op.to == host && life == self.lives[host]);
        assert!(
            !known.arrived && !known.never,
            "{context} arrived twice, or was refused"
        );
        (known.arrived, known.done) = (true, true);
        let behind = self.ops.values().any(|other| {
            other.arrived && matches!(other.staged, Some((l, a, _)) if l == link && a > at)
        });
        assert!(!behind, "data was overtaken");
        Some(context)
    }

    /// The last place on each stream that has certainly been reached.
    fn reached(&self) -> HashMap<Link, usize> {
        let mut reached = HashMap::new();
        for known in self.ops.values().filter(|known| known.done) {
            if let Some((link, at, _)) = known.staged {
                let last = reached.entry(link).or_insert(0);
                *last = at.max(*last);
            }
        }
        reached
    }

    /// What may stand in a part of a host's memory, for each byte. With a reader, at the time of
    /// its turn.
    fn may_hold(&self, host: Host, part: Part, reader: Option<(Link, usize)>) -> Vec<Vec<u8>> {
        let mut reached = self.reached();
        if let Some((link, at)) = reader {
            // It stands behind those before it, whatever came later.
            reached.insert(link, at);
        }
        // By stream: what may be there, and whether something certainly is.
        let mut streams: HashMap<Link, Vec<Option<Vec<u8>>>> = HashMap::new();
        for known in self.ops.values().filter(|known| !known.never) {
            let (Does::Write(bytes), Some((link, at, life))) = (&known.op.does, known.staged)
            else {
                continue;
            };
            if known.op.to != host || life != self.lives[host] {
                continue;
            }
            let passed = reached.get(&link).is_some_and(|last| at <= *last);
            let certain = passed && (known.done || !self.is_hidden(known));
            let mut from = 0;
            for own in &known.op.parts {
                for index in 0..own.len {
                    let Some(place) = (own.at + index).checked_sub(part.at) else {
                        continue;
                    };
                    if own.region != part.region || place >= part.len {
                        continue;
                    }
                    let seen = streams.entry(link).or_insert_with(|| vec![None; part.len]);
                    let values = &mut seen[place];
                    let value = bytes[from + index];
                    match (certain, values) {
                        (true, values) => *values = Some(vec![value]),
                        (false, Some(values)) => values.push(value),
                        // Nothing is certain: what was there before may still be.
                        (false, values) => *values = Some(vec![0, value]),
                    }
                }
                from += own.len;
            }
        }
        let mut all = vec![Vec::new(); part.len];
        for seen in streams.values() {
            for (all, values) in all.iter_mut().zip(seen) {
                all.extend(values.iter().flatten());
            }
        }
        for values in &mut all {
            if values.is_empty() {
                values.push(0);
            }
        }
        all
    }

    fn check_read(&self, context: usize, bytes: &[u8]) {
        let known = &self.ops[&context];
        let (link, at, _) = known.staged.expect("it was sent");
        let mut rest = bytes;
        for part in &known.op.parts {
            let (now, later) = rest.split_at(part.len);
            let may = self.may_hold(known.op.to, *part, Some((link, at)));
            assert_may(now, &may, "a read found");
            rest = later;
        }
    }

    /// Checks that an operation that has certainly been done has been: in the memory of its
    /// target, and for a commit in what a crash would leave.
    ///
    /// # Panics
    /// If it has not.
    pub fn check_done(&self, context: usize, target: &Node, regions: &[SimBuf]) {
        let known = &self.ops[&context];
        let current = |(_, _, life): (_, _, u32)| life == self.lives[known.op.to];
        if !known.staged.is_some_and(current) {
            return;
        }
        match &known.op.does {
            Does::Write(_) => {}
            Does::Mark(bits, _) => return check_marked(known, bits, target, regions),
            _ => return,
        }
        for part in &known.op.parts {
            let memory = regions[part.region];
            let may = self.may_hold(known.op.to, *part, None);
            let now = target.memory.bytes(memory.part(part.at, part.len));
            assert_may(now, &may, "a write left");
            if known.op.committed && known.over {
                // What came behind it need not be durable.
                let turn = known.staged.map(|(link, at, _)| (link, at));
                let may = self.may_hold(known.op.to, *part, turn);
                let durable = &target.durable(memory)[part.at..][..part.len];
                assert_may(durable, &may, "a crash would leave");
            }
        }
    }

    /// Checks a host's memory when nothing moves any more: streams that live have carried all.
    ///
    /// # Panics
    /// If it holds what nobody can have put there, or an operation has not ended.
    pub fn check_rest(&mut self, host: Host, node: &Node, regions: &[SimBuf], cells: usize) {
        let hidden = self.ops.iter();
        let hidden = hidden.filter(|(_, known)| self.is_hidden(known));
        let hidden: HashSet<usize> = hidden.map(|(context, _)| *context).collect();
        for (context, known) in &mut self.ops {
            let ends = !known.op.completion || known.over || known.op.host != host;
            assert!(ends, "{context} is not over: {known:?}");
            if let Some((link, ..)) = known.staged {
                known.done |= known.op.to == host
                    && !known.never
                    && known.is_sure()
                    && !hidden.contains(context)
                    && self.lives[link.0] == link.1
                    && !self.closed.contains(&link);
            }
        }
        for (region, memory) in regions.iter().enumerate() {
            let bytes = node.memory.bytes(*memory);
            if region == cells {
                self.check_cells(host, region, bytes);
                continue;
            }
            let part = Part {
                region,
                at: 0,
                len: bytes.len(),
            };
            let may = self.may_hold(host, part, None);
            assert_may(bytes, &may, "memory holds");
        }
    }

    fn check_cells(&self, host: Host, region: usize, bytes: &[u8]) {
        for (index, word) in bytes.chunks_exact(CELL).enumerate() {
            let last = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let touched = self.touched(host, region, index * CELL);
            let marks = |(known, _): &&(&Known, usize)| matches!(known.op.does, Does::Mark(..));
            if touched.iter().any(|one| marks(&one)) {
                self.check_marks(&touched, last);
            } else {
                check_swaps(&touched, last);
            }
        }
    }

    /// The operations on a cell in a host's life, with the place of the cell among theirs.
    fn touched(&self, host: Host, region: usize, at: usize) -> Vec<(&Known, usize)> {
        let mut touched = Vec::new();
        for known in self.ops.values() {
            let current = known
                .staged
                .is_some_and(|(_, _, life)| life == self.lives[host]);
            if known.op.to != host || !current {
                continue;
            }
            let mut first = 0;
            for part in &known.op.parts {
                if part.region == region && (part.at..part.at + part.len).contains(&at) {
                    touched.push((known, first + (at - part.at) / CELL));
                }
                first += part.len / CELL;
            }
        }
        touched
    }

    /// Each operation set a bit of its own: what they found, and what is left, is a chain.
    fn check_marks(&self, touched: &[(&Known, usize)], last: u64) {
        let reached = self.reached();
        let mut all = 0;
        let mut found = vec![(last, 0)];
        for (known, index) in touched {
            let own = bit(known, *index);
            let (link, at, _) = known.staged.expect("it was sent");
            if !known.never {
                all |= own;
            }
            let certain = !known.never && known.is_sure();
            if certain && reached.get(&link).is_some_and(|last| at <= *last) {
                assert!(last & own == own, "{known:?} is not in {last:#x}");
            }
            let Some(words) = &known.found else { continue };
            let word = words[*index];
            found.push((word, own));
            assert!(word & own == 0 || own == 0, "{known:?} found itself");
            for (other, index) in touched.iter().filter(|(other, _)| !other.never) {
                let (of, turn, _) = other.staged.expect("it was sent");
                let (set, sure) = (bit(other, *index), other.is_sure());
                if of == link && turn != at && set != 0 {
                    let there = word & set == set;
                    let right = there == (turn < at) || !(there || sure);
                    assert!(right, "out of order: {set:#x} in {word:#x}");
                }
            }
        }
        found.sort_by_key(|(word, own)| (word.count_ones(), *own != 0));
        for pair in found.windows(2) {
            let ((before, own), (after, _)) = (pair[0], pair[1]);
            let set = before | own;
            assert_eq!(after & set, set, "{after:#x} is not behind {set:#x}");
        }
        assert_eq!(last & !all, 0, "{last:#x} has more than {all:#x}");
    }
}

/// The bits of an operation are in its cells, and after a commit in what a crash would leave.
fn check_marked(known: &Known, bits: &[u32], target: &Node, regions: &[SimBuf]) {
    for part in &known.op.parts {
        let memory = regions[part.region];
        let now = target.memory.bytes(memory.part(part.at, part.len));
        let durable = &target.durable(memory)[part.at..][..part.len];
        let images = [Some(now), known.op.committed.then_some(durable)];
        for image in images.into_iter().flatten() {
            for (word, bit) in image.chunks_exact(CELL).zip(bits) {
                let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
                assert_eq!(word >> bit & 1, 1, "{known:?} is not in {word:#x}");
            }
        }
    }
}

/// What an operation sets in one of its cells.
fn bit(known: &Known, index: usize) -> u64 {
    match &known.op.does {
        Does::Mark(bits, _) => 1 << bits[index],
        _ => 0,
    }
}

/// No name is replaced twice, and none is found that was not given.
fn check_swaps(touched: &[(&Known, usize)], last: u64) {
    let mut given = HashSet::from([0]);
    for (known, index) in touched {
        if let Does::Swap { names, .. } = &known.op.does {
            given.insert(names[*index]);
        }
    }
    assert!(given.contains(&last), "nobody gave {last:#x}");
    let mut replaced = HashSet::new();
    let mut put = HashSet::from([0]);
    let mut unsure = false;
    for (known, index) in touched {
        let Some(words) = &known.found else {
            unsure |= matches!(known.op.does, Does::Swap { .. }) && !known.never;
            continue;
        };
        let word = words[*index];
        assert!(given.contains(&word), "nobody gave {word:#x}");
        if let Does::Swap { names, compare, .. } = &known.op.does
            && compare
                .as_ref()
                .is_none_or(|(op, wanted)| replaces(*op, wanted[*index].into(), word.into()))
        {
            assert!(replaced.insert(word), "{word:#x} was replaced twice");
            put.insert(names[*index]);
        }
    }
    assert!(!replaced.contains(&last), "{last:#x} was replaced");
    if !unsure {
        // Every name that was put was replaced, but the last.
        put.remove(&last);
        assert_eq!(put, replaced, "names were lost");
    }
}

/// Whether an operation that compares changes what is there. Names are so small that all
/// datatypes of their size have them in one order.
///
/// # Panics
/// If it does not compare.
#[must_use]
pub fn replaces(op: AtomicOp, compare: u128, there: u128) -> bool {
    match op {
        AtomicOp::Cswap => compare == there,
        AtomicOp::CswapNe => compare != there,
        AtomicOp::CswapLe => compare <= there,
        AtomicOp::CswapLt => compare < there,
        AtomicOp::CswapGe => compare >= there,
        AtomicOp::CswapGt => compare > there,
        _ => panic!("{op:?} does not compare"),
    }
}

const fn fetches(does: &Does) -> bool {
    !matches!(does, Does::Write(_) | Does::Mark(_, None) | Does::Nothing)
}

fn assert_may(bytes: &[u8], may: &[Vec<u8>], what: &str) {
    for (index, (byte, may)) in bytes.iter().zip(may).enumerate() {
        assert!(
            may.contains(byte),
            "{what} {byte:#x} at {index}, not one of {may:x?}"
        );
    }
}
