//! What reads, writes and atomics promise (man pages `fi_rma(3)`, `fi_atomic(3)`, `fi_cq(3)`),
//! as a plain model of memory that knows posts, streams and completions only.
//!
//! * Of a pair of processes each byte is written by one of them only. What the other may find
//!   there is the last write that has certainly been done, or one behind it that may have been:
//!   those of one stream are done in order. Where a stream was cut, any of them may be done or not.
//! * A write is certainly done when its completion promises so, when its completion data
//!   arrived, or when an operation behind it on the stream is.
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

use ripstop_mem::UserBuf;
use ripstop_types::{AtomicOp, Errno, Flags};

use super::{Host, Model};
use crate::memory::read;
use crate::node::Entry;

/// Bytes of what atomics act on here.
pub const CELL: usize = 8;

/// Two hosts, from whose start on all goes by one stream unless that is cut, with their lives.
type Link = (Host, Host, [u32; 2]);

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
    Read(Vec<UserBuf>),
    /// Sets a bit in each cell; what was there before goes to local memory.
    Mark(Vec<u32>, Option<Vec<UserBuf>>),
    /// Gives each cell a name if it compares so with another, or anyhow.
    Swap {
        /// The names.
        names: Vec<u64>,
        /// How, and what to compare with.
        compare: Option<(AtomicOp, Vec<u64>)>,
        /// Where what was there before goes.
        result: Vec<UserBuf>,
    },
    /// Reads the cells at once; to local memory.
    Look(Vec<UserBuf>),
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
    /// It has completion data, which is its context.
    pub data: bool,
    /// Flags of its completion.
    pub flags: Flags,
}

#[derive(Clone, Debug)]
struct Known {
    op: Sided,
    /// Its stream; its place there is that among all operations.
    link: Link,
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
    /// Regions that were taken away: host, life and number.
    hidden: HashSet<(Host, u32, usize)>,
    /// Errors that may come without an operation, because that was over before it was denied.
    late: Vec<u32>,
}

impl OneSided {
    /// A model of so many hosts.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        Self {
            late: vec![0; hosts],
            ..Self::default()
        }
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
    pub fn posted(&mut self, model: &Model, context: usize, op: Sided) {
        let denied = matches!(op.does, Does::Nothing);
        if !op.delivered && !fetches(&op.does) {
            self.late[op.host] += 1;
        }
        let known = Known {
            link: (
                op.host,
                op.to,
                [op.host, op.to].map(|host| model.life(host)),
            ),
            done: false,
            never: denied,
            over: false,
            arrived: false,
            found: None,
            op,
        };
        self.ops.insert(context, known);
    }

    /// A host took a region away from the others; returns whether they could reach it.
    pub fn hidden(&mut self, model: &Model, host: Host, region: usize) -> bool {
        self.hidden.insert((host, model.life(host), region))
    }

    /// Whether an operation is about a region that was taken away.
    fn is_hidden(&self, known: &Known) -> bool {
        let (_, to, [_, life]) = known.link;
        let gone = |part: &Part| self.hidden.contains(&(to, life, part.region));
        known.op.parts.iter().any(gone)
    }

    /// A host died, with its memory, and another took its place.
    pub fn restarted(&mut self, host: Host) {
        for known in self.ops.values_mut() {
            known.over |= known.op.host == host;
            known.done &= known.op.to != host;
        }
        self.late[host] = 0;
    }

    /// Takes an entry of a completion queue, if it is of such an operation; returns the one
    /// that has certainly been done now.
    ///
    /// # Panics
    /// If the entry should not have come.
    pub fn completed(&mut self, model: &Model, host: Host, entry: &Entry) -> Option<Option<usize>> {
        let completion = entry.completion();
        let (context, flags) = (completion.context, completion.flags);
        if flags.contains(Flags::REMOTE_WRITE) {
            return Some(self.data_arrived(model, host, entry));
        }
        if context == 0 && flags.intersects(Flags::RMA | Flags::ATOMIC) {
            assert!(matches!(entry, Entry::Failure(..)), "success of nothing");
            assert!(self.late[host] > 0, "not expected: {entry:?}");
            self.late[host] -= 1;
            return Some(None);
        }
        let known = self.ops.get_mut(&context)?;
        assert!(known.op.host == host && !known.over, "{entry:?}");
        assert_eq!(flags, known.op.flags, "{entry:?}");
        known.over = true;
        match entry {
            Entry::Failure(failure, _) => {
                self.failed(model, context, failure.err);
                Some(None)
            }
            Entry::Success(completion) => {
                assert!(known.op.completion, "nobody asked for it");
                let mut plain = *completion;
                (plain.context, plain.flags) = (0, Flags::empty());
                assert_eq!(plain, super::blank(0, Flags::empty()));
                Some(self.succeeded(model, context))
            }
        }
    }

    fn failed(&mut self, model: &Model, context: usize, error: Errno) {
        let hidden = self.is_hidden(&self.ops[&context]);
        let known = self.ops.get_mut(&context).expect("it is there");
        // An error of its own says that it was refused.
        if !is_loose(model, known.link) {
            let denied = matches!(known.op.does, Does::Nothing);
            assert!(denied || hidden, "{error} for {known:?}");
            // Of what was stopped a part may be done.
            known.never |= !hidden;
        }
    }

    fn succeeded(&mut self, model: &Model, context: usize) -> Option<usize> {
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
            let bytes = read(into);
            if let Does::Read(_) = known.op.does {
                known.done = true;
                self.check_read(model, context, &bytes);
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
    fn data_arrived(&mut self, model: &Model, host: Host, entry: &Entry) -> Option<usize> {
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
        let link = known.link;
        assert!(known.op.data && known.op.to == host, "{entry:?}");
        assert!(
            !known.arrived && !known.never,
            "{context} arrived twice, or was refused"
        );
        (known.arrived, known.done) = (true, true);
        let mut behind = self.ops.range(context + 1..);
        let behind = behind.any(|(_, other)| other.arrived && other.link == link);
        assert!(!behind || is_loose(model, link), "data was overtaken");
        Some(context)
    }

    /// The last place on each stream that has certainly been reached.
    fn reached(&self) -> HashMap<Link, usize> {
        let mut reached = HashMap::new();
        for (at, known) in self.ops.iter().filter(|(_, known)| known.done) {
            let last = reached.entry(known.link).or_insert(0);
            *last = *at.max(last);
        }
        reached
    }

    /// What may stand in a part of a host's memory, for each byte. With a reader, at the time of
    /// its turn.
    fn may_hold(
        &self,
        model: &Model,
        host: Host,
        part: Part,
        reader: Option<(Link, usize)>,
    ) -> Vec<Vec<u8>> {
        let mut reached = self.reached();
        if let Some((link, at)) = reader {
            // It stands behind those before it, whatever came later.
            reached.insert(link, at);
        }
        // By stream: what may be there, and whether something certainly is.
        let mut streams: HashMap<Link, Vec<Option<Vec<u8>>>> = HashMap::new();
        for (at, known) in self.ops.iter().filter(|(_, known)| !known.never) {
            let Does::Write(bytes) = &known.op.does else {
                continue;
            };
            if known.op.to != host {
                continue;
            }
            let link = known.link;
            let passed = reached.get(&link).is_some_and(|last| at <= last);
            let sure = !is_loose(model, link);
            let certain = sure && passed && (known.done || !self.is_hidden(known));
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

    fn check_read(&self, model: &Model, context: usize, bytes: &[u8]) {
        let known = &self.ops[&context];
        let mut rest = bytes;
        for part in &known.op.parts {
            let (now, later) = rest.split_at(part.len);
            let may = self.may_hold(model, known.op.to, *part, Some((known.link, context)));
            assert_may(now, &may, "a read found");
            rest = later;
        }
    }

    /// Checks that an operation that has certainly been done has been, in the memory of its target.
    ///
    /// # Panics
    /// If it has not.
    pub fn check_done(&self, model: &Model, context: usize, regions: &[UserBuf]) {
        let known = &self.ops[&context];
        if is_loose(model, known.link) {
            return;
        }
        match &known.op.does {
            Does::Write(_) => {}
            Does::Mark(bits, _) => return check_marked(known, bits, regions),
            _ => return,
        }
        for part in &known.op.parts {
            let now = part.read(regions);
            let may = self.may_hold(model, known.op.to, *part, None);
            assert_may(&now, &may, "a write left");
        }
    }

    /// Checks a host's memory when nothing moves any more: streams that live have carried all.
    ///
    /// # Panics
    /// If it holds what nobody can have put there, or an operation has not ended.
    pub fn check_rest(&mut self, model: &Model, host: Host, regions: &[UserBuf], cells: usize) {
        let hidden = self.ops.iter();
        let hidden = hidden.filter(|(_, known)| self.is_hidden(known));
        let hidden: HashSet<usize> = hidden.map(|(context, _)| *context).collect();
        for (context, known) in &mut self.ops {
            let ends = !known.op.completion || known.over || known.op.host != host;
            assert!(ends, "{context} is not over: {known:?}");
            known.done |= known.op.to == host
                && !known.never
                && !hidden.contains(context)
                && !is_loose(model, known.link);
        }
        for (region, memory) in regions.iter().enumerate() {
            let bytes = read(&[*memory]);
            if region == cells {
                self.check_cells(model, host, region, &bytes);
                continue;
            }
            let part = Part {
                region,
                at: 0,
                len: bytes.len(),
            };
            let may = self.may_hold(model, host, part, None);
            assert_may(&bytes, &may, "memory holds");
        }
    }

    fn check_cells(&self, model: &Model, host: Host, region: usize, bytes: &[u8]) {
        // What was not sent to an earlier process may have come to this one, or not.
        let again = model.life(host) > 0;
        for (index, word) in bytes.chunks_exact(CELL).enumerate() {
            let last = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            let touched = self.touched(host, region, index * CELL);
            let marks = |(_, known, _): &&Touch<'_>| matches!(known.op.does, Does::Mark(..));
            if touched.iter().any(|one| marks(&one)) {
                self.check_marks(model, &touched, last, again);
            } else if !again {
                check_swaps(&touched, last);
            }
        }
    }

    /// The operations on a cell in a host's life, with the place of the cell among theirs.
    fn touched(&self, host: Host, region: usize, at: usize) -> Vec<Touch<'_>> {
        let mut touched = Vec::new();
        for (context, known) in &self.ops {
            if known.op.to != host {
                continue;
            }
            let mut first = 0;
            for part in &known.op.parts {
                if part.region == region && (part.at..part.at + part.len).contains(&at) {
                    touched.push((*context, known, first + (at - part.at) / CELL));
                }
                first += part.len / CELL;
            }
        }
        touched
    }

    /// Each operation set a bit of its own: what they found, and what is left, is a chain.
    fn check_marks(&self, model: &Model, touched: &[Touch<'_>], last: u64, again: bool) {
        let reached = self.reached();
        let mut all = 0;
        let mut found = vec![(last, 0)];
        for (at, known, index) in touched {
            let own = bit(known, *index);
            if !known.never {
                all |= own;
            }
            let sure = !is_loose(model, known.link);
            let passed = reached.get(&known.link).is_some_and(|last| at <= last);
            if sure && passed && !known.never {
                assert!(last & own == own, "{known:?} is not in {last:#x}");
            }
            let Some(words) = &known.found else { continue };
            let word = words[*index];
            found.push((word, own));
            assert!(word & own == 0 || own == 0, "{known:?} found itself");
            for (turn, other, index) in touched.iter().filter(|(_, other, _)| !other.never) {
                let set = bit(other, *index);
                if sure && other.link == known.link && turn != at && set != 0 {
                    let right = (word & set == set) == (turn < at);
                    assert!(right, "out of order: {set:#x} in {word:#x}");
                }
            }
        }
        assert_eq!(last & !all, 0, "{last:#x} has more than {all:#x}");
        if again {
            return;
        }
        found.sort_by_key(|(word, own)| (word.count_ones(), *own != 0));
        for pair in found.windows(2) {
            let ((before, own), (after, _)) = (pair[0], pair[1]);
            let set = before | own;
            assert_eq!(after & set, set, "{after:#x} is not behind {set:#x}");
        }
    }
}

/// An operation on a cell: its place among all, and the place of the cell among its own.
type Touch<'a> = (usize, &'a Known, usize);

/// Whether a stream was cut, or one of its hosts is another process now: nothing of it is certain.
fn is_loose(model: &Model, (from, to, lives): Link) -> bool {
    model.is_troubled(from, to) || [from, to].map(|host| model.life(host)) != lives
}

impl Part {
    fn read(&self, regions: &[UserBuf]) -> Vec<u8> {
        let part = regions[self.region].slice(self.at, self.len);
        read(&[part.expect("it is inside")])
    }
}

/// The bits of an operation are in its cells.
fn check_marked(known: &Known, bits: &[u32], regions: &[UserBuf]) {
    for part in &known.op.parts {
        for (word, bit) in part.read(regions).chunks_exact(CELL).zip(bits) {
            let word = u64::from_ne_bytes(word.try_into().unwrap_or_default());
            assert_eq!(word >> bit & 1, 1, "{known:?} is not in {word:#x}");
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
fn check_swaps(touched: &[Touch<'_>], last: u64) {
    let mut given = HashSet::from([0]);
    for (_, known, index) in touched {
        if let Does::Swap { names, .. } = &known.op.does {
            given.insert(names[*index]);
        }
    }
    assert!(given.contains(&last), "nobody gave {last:#x}");
    let mut replaced = HashSet::new();
    let mut put = HashSet::from([0]);
    let mut unsure = false;
    for (_, known, index) in touched {
        let Some(words) = &known.found else {
            unsure |= matches!(known.op.does, Does::Swap { .. }) && !known.never;
            continue;
        };
        let word = words[*index];
        assert!(given.contains(&word), "nobody gave {word:#x}");
        if let Does::Swap { names, compare, .. } = &known.op.does
            && compare
                .as_ref()
                .is_none_or(|(op, wanted)| replaces(*op, wanted[*index], word))
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
fn replaces(op: AtomicOp, compare: u64, there: u64) -> bool {
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
