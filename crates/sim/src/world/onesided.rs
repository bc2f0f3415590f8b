//! Steps that read and change the memory of others.

use ripstop_engine::Iov;
use ripstop_engine::mr::Access;
use ripstop_engine::stream::{Atomic, Level, Rma, RmaKind};
use ripstop_types::{AtomicKind, AtomicOp, Datatype, Errno, Flags, Result, RmaIov};
use ripstop_wire::xnet::base::RmaIovs;

use super::{World, address};
use crate::memory::SimBuf;
use crate::model::onesided::{Does, Part, Sided};
use crate::model::{CANARY, Host};
use crate::node::{CELL, Node, element_of, set_element};

/// Bytes that a host has for each of the others, in each of two regions.
pub const STRIPE: usize = 256;
/// Cells in which atomics set bits.
pub const MARKED: usize = 6;
/// Cells behind them, which are swapped.
pub const SWAPPED: usize = 4;

/// The region that may be taken away.
const HIDDEN: usize = 1;
/// The region of the cells.
const CELLS: usize = 2;
/// Key and address of the first byte of each region. The last is for reading only.
const REGIONS: [(u64, u64); 4] = [
    (1, 0),
    (0xfeed_0000_0000_0001, 0x10_0000),
    (7, 0x1000),
    (9, 0),
];

/// What makes an operation impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nobody has the key.
    Key,
    /// The region may not be written.
    Access,
    /// The region ends before.
    Bounds,
}

/// One step that is about the memory of another host. Lengths and offsets are taken modulo what
/// there is.
#[derive(Clone, Debug)]
pub enum OneSided {
    /// Writes.
    Write {
        /// Region, offset and length of each run of bytes.
        parts: Vec<(usize, usize, usize)>,
        /// Completion data.
        data: bool,
        /// The buffer is free when the call returns.
        inject: bool,
        /// When it is done.
        level: Level,
    },
    /// Reads.
    Read {
        /// Region, offset and length of each run of bytes.
        parts: Vec<(usize, usize, usize)>,
    },
    /// Sets a bit that nobody else sets, in several cells.
    Mark {
        /// The first.
        cell: usize,
        /// How many.
        count: usize,
        /// What the cells are taken for: integers.
        datatype: Datatype,
        /// How.
        op: AtomicOp,
        /// Fetches what was there before.
        fetch: bool,
        /// Completion data.
        data: bool,
        /// The buffer is free when the call returns.
        inject: bool,
        /// When it is done.
        level: Level,
    },
    /// Gives a cell a new name.
    Swap {
        /// Which.
        cell: usize,
        /// What the cell is taken for, of its size.
        datatype: Datatype,
        /// If it compares so with this one, of those that were given.
        compare: Option<(AtomicOp, usize)>,
    },
    /// Fetches cells.
    Look {
        /// The first.
        cell: usize,
        /// How many.
        count: usize,
        /// What the cells are taken for.
        datatype: Datatype,
    },
}

/// Who does it to whom, and how.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Who.
    pub from: Host,
    /// To whom; may be the same.
    pub to: Host,
    /// Ask for a completion.
    pub completion: bool,
    /// After what was posted before.
    pub fence: bool,
    /// It is denied.
    pub wrong: Option<Wrong>,
}

/// What a host exposes, and what was given to its cells.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    pub(super) regions: Vec<SimBuf>,
    /// What a region held when it was taken away from the others.
    pub(super) left: Option<Vec<u8>>,
    bits: [u32; MARKED],
    names: Vec<u64>,
}

impl Exposed {
    /// Lets all hosts reach memory of a node.
    pub(super) fn new(node: &mut Node, hosts: usize) -> Self {
        let both = Access {
            read: true,
            write: true,
        };
        let wide = hosts * STRIPE;
        let lens = [wide, wide, (MARKED + SWAPPED) * CELL, STRIPE];
        let rights = [both, both, both, Access::READ];
        let regions = REGIONS.iter().zip(lens).zip(rights);
        Self {
            regions: regions
                .map(|(((key, base), len), access)| node.expose(len, *base, *key, access, CANARY))
                .collect(),
            ..Self::default()
        }
    }

    /// The same for a node that took the place of another.
    pub(super) fn again(&mut self, node: &mut Node, hosts: usize) {
        self.regions = Self::new(node, hosts).regions;
        self.left = None;
    }
}

/// How a bit is set.
struct Marking {
    datatype: Datatype,
    op: AtomicOp,
    fetch: bool,
    data: bool,
    inject: bool,
    level: Level,
}

impl World {
    pub(super) fn perform_onesided(&mut self, manner: &Manner, op: &OneSided) {
        let manner = Manner {
            from: self.host(manner.from),
            to: self.host(manner.to),
            ..*manner
        };
        self.learn(manner.from, manner.to);
        if manner.fence {
            self.nodes[manner.from].fence(address(manner.to));
        }
        match op {
            OneSided::Write {
                parts,
                data,
                inject,
                level,
            } => self.write(&manner, parts, *data, *inject, *level),
            OneSided::Read { parts } => self.read(&manner, parts),
            OneSided::Mark {
                cell,
                count,
                datatype,
                op,
                fetch,
                data,
                inject,
                level,
            } => {
                let fetch = *fetch || op.takes_comparison();
                let how = Marking {
                    datatype: *datatype,
                    op: *op,
                    fetch,
                    data: *data,
                    inject: *inject && !fetch,
                    level: *level,
                };
                self.mark(&manner, (*cell, *count), &how);
            }
            OneSided::Swap {
                cell,
                datatype,
                compare,
            } => self.swap(&manner, *cell, *datatype, *compare),
            OneSided::Look {
                cell,
                count,
                datatype,
            } => self.look(&manner, (*cell, *count), *datatype),
        }
    }

    /// The runs of bytes of a host's own stripe.
    fn parts(&self, from: Host, parts: &[(usize, usize, usize)]) -> Vec<Part> {
        let part = |(region, at, len): &(usize, usize, usize)| {
            let at = at % STRIPE;
            Part {
                region: region % 2,
                at: from * STRIPE + at,
                len: len % (STRIPE - at + 1),
            }
        };
        parts.iter().take(4).map(part).collect()
    }

    fn place(&self, manner: &Manner, parts: &[Part]) -> Option<RmaIovs> {
        let iovs: Vec<RmaIov> = parts
            .iter()
            .map(|part| {
                let (key, base) = REGIONS[part.region];
                RmaIov {
                    addr: base + part.at as u64,
                    len: part.len as u64,
                    key,
                }
            })
            .collect();
        let mut iovs = iovs;
        // One run of bytes is wrong, and all are denied.
        let last = iovs.iter_mut().rev().find(|iov| iov.len > 0);
        match (manner.wrong, last) {
            (None, _) => {}
            (Some(_), None) => return None,
            (Some(Wrong::Key), Some(last)) => last.key ^= 0x40,
            (Some(Wrong::Access), Some(last)) => (last.key, last.addr) = (9, 0),
            (Some(Wrong::Bounds), Some(last)) => last.addr += 1 << 20,
        }
        RmaIovs::new(&iovs).ok()
    }

    fn sided(&self, manner: &Manner, parts: Vec<Part>, does: Does, flags: Flags) -> Sided {
        Sided {
            host: manner.from,
            to: manner.to,
            parts,
            does: match manner.wrong {
                Some(_) => Does::Nothing,
                None => does,
            },
            completion: manner.completion,
            delivered: false,
            committed: false,
            data: false,
            sure: self.nodes[manner.to].config().shortage == 0,
            flags,
        }
    }

    fn write(
        &mut self,
        manner: &Manner,
        parts: &[(usize, usize, usize)],
        data: bool,
        inject: bool,
        level: Level,
    ) {
        let mut parts = self.parts(manner.from, parts);
        if inject {
            parts.iter_mut().for_each(|part| part.len %= 33);
        }
        let Some(remote) = self.place(manner, &parts) else {
            return;
        };
        let len = parts.iter().map(|part| part.len).sum();
        let local = self.local(manner.from, len, true);
        let bytes = self.nodes[manner.from].memory.gather(&local);
        let context = self.model.context();
        let rma = Rma {
            kind: RmaKind::Write,
            iov: local,
            remote,
            data: data.then_some(context as u64),
            context,
            completion: manner.completion,
            inject,
            level,
            work: false,
        };
        let flags = Flags::RMA | Flags::WRITE;
        let mut op = self.sided(manner, parts, Does::Write(bytes), flags);
        op.data = data;
        op.delivered = level != Level::Sent;
        op.committed = level == Level::Committed;
        let done = self.nodes[manner.from].rma(&mut self.net, address(manner.to), &rma);
        self.started(context, op, done, local, inject);
    }

    fn read(&mut self, manner: &Manner, parts: &[(usize, usize, usize)]) {
        if manner.wrong == Some(Wrong::Access) {
            return;
        }
        let parts = self.parts(manner.from, parts);
        let Some(remote) = self.place(manner, &parts) else {
            return;
        };
        let len = parts.iter().map(|part| part.len).sum();
        let local = self.local(manner.from, len, false);
        let context = self.model.context();
        let rma = Rma {
            kind: RmaKind::Read,
            iov: local,
            remote,
            data: None,
            context,
            completion: manner.completion,
            inject: false,
            level: Level::Sent,
            work: false,
        };
        let mut op = self.sided(manner, parts, Does::Read(local), Flags::RMA | Flags::READ);
        op.delivered = true;
        let done = self.nodes[manner.from].rma(&mut self.net, address(manner.to), &rma);
        self.started(context, op, done, local, false);
    }

    /// The cells from one on.
    fn cells(from: usize, count: usize) -> Vec<Part> {
        vec![Part {
            region: CELLS,
            at: from * CELL,
            len: count * CELL,
        }]
    }

    /// The first of several cells of so many, and how many. An element may be of two.
    fn span(cell: usize, count: usize, all: usize, datatype: Datatype) -> (usize, usize) {
        let each = datatype.size().div_ceil(CELL);
        let cell = cell % all / each * each;
        let rest = (all - cell) / each;
        (cell, (1 + count % rest) * each)
    }

    fn mark(&mut self, manner: &Manner, (cell, count): (usize, usize), how: &Marking) {
        let Marking {
            datatype,
            op,
            fetch,
            level,
            ..
        } = *how;
        let (cell, count) = Self::span(cell, count, MARKED, datatype);
        let parts = Self::cells(cell, count);
        let bits = self.exposed[manner.to].bits[cell..cell + count].to_vec();
        let Some(remote) = self.place(manner, &parts) else {
            return;
        };
        if bits.iter().any(|bit| *bit >= u64::BITS) {
            return;
        }
        let words = bits.iter().map(|bit| 1_u64 << bit);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let compare = match op {
            AtomicOp::Mswap => self.bytes(manner.from, &bytes),
            _ => Iov::EMPTY,
        };
        if op == AtomicOp::Diff {
            for element in bytes.chunks_exact_mut(datatype.size()) {
                let negative = element_of(element).wrapping_neg();
                set_element(element, negative);
            }
        }
        let operand = self.bytes(manner.from, &bytes);
        let result = self.local(manner.from, count * CELL, false);
        let kind = match (op, fetch) {
            (AtomicOp::Mswap, _) => AtomicKind::Compare,
            (_, true) => AtomicKind::Fetch,
            (_, false) => AtomicKind::Plain,
        };
        let result = if fetch { result } else { Iov::EMPTY };
        let does = Does::Mark(bits, fetch.then_some(result));
        let mut known = self.sided(manner, parts, does, flags(kind));
        known.delivered = level != Level::Sent || fetch;
        known.committed = level == Level::Committed;
        known.data = how.data;
        let what = (datatype, op);
        let atomic = self.atomic(manner, kind, what, remote, [operand, compare, result]);
        let atomic = Atomic {
            level,
            inject: how.inject,
            data: how.data.then_some(atomic.context as u64),
            ..atomic
        };
        if self.start_atomic(manner, known, &atomic) && manner.wrong.is_none() {
            for bit in &mut self.exposed[manner.to].bits[cell..cell + count] {
                *bit += 1;
            }
        }
    }

    fn swap(
        &mut self,
        manner: &Manner,
        cell: usize,
        datatype: Datatype,
        compare: Option<(AtomicOp, usize)>,
    ) {
        let parts = Self::cells(MARKED + cell % SWAPPED, 1);
        let Some(remote) = self.place(manner, &parts) else {
            return;
        };
        let exposed = &self.exposed[manner.to];
        let name = exposed.names.len() as u64 + 1;
        let known = exposed.names.len() + 1;
        let compare = compare.map(|(op, which)| match which % known {
            0 => (op, 0),
            which => (op, exposed.names[which - 1]),
        });
        let operand = self.words(manner.from, [name]);
        let result = self.local(manner.from, CELL, false);
        let (kind, op, with) = match compare {
            Some((op, compare)) => {
                let with = self.words(manner.from, [compare]);
                (AtomicKind::Compare, op, with)
            }
            None => (AtomicKind::Fetch, AtomicOp::AtomicWrite, Iov::EMPTY),
        };
        let does = Does::Swap {
            names: vec![name],
            compare: compare.map(|(op, compare)| (op, vec![compare])),
            result,
        };
        let mut known = self.sided(manner, parts, does, flags(kind));
        known.delivered = true;
        let what = (datatype, op);
        let atomic = self.atomic(manner, kind, what, remote, [operand, with, result]);
        if self.start_atomic(manner, known, &atomic) {
            self.exposed[manner.to].names.push(name);
        }
    }

    fn look(&mut self, manner: &Manner, (cell, count): (usize, usize), datatype: Datatype) {
        if manner.wrong == Some(Wrong::Access) {
            return;
        }
        let (cell, count) = Self::span(cell, count, MARKED + SWAPPED, datatype);
        let parts = Self::cells(cell, count);
        let Some(remote) = self.place(manner, &parts) else {
            return;
        };
        let result = self.local(manner.from, count * CELL, false);
        let kind = AtomicKind::Fetch;
        let mut known = self.sided(manner, parts, Does::Look(result), flags(kind));
        known.delivered = true;
        let buffers = [Iov::EMPTY, Iov::EMPTY, result];
        let what = (datatype, AtomicOp::AtomicRead);
        let atomic = self.atomic(manner, kind, what, remote, buffers);
        self.start_atomic(manner, known, &atomic);
    }

    fn atomic(
        &mut self,
        manner: &Manner,
        kind: AtomicKind,
        (datatype, op): (Datatype, AtomicOp),
        remote: RmaIovs,
        [operand, compare, result]: [Iov<SimBuf>; 3],
    ) -> Atomic<SimBuf> {
        Atomic {
            kind,
            datatype,
            op,
            operand,
            compare,
            result,
            remote,
            data: None,
            context: self.model.context(),
            completion: manner.completion,
            inject: false,
            level: Level::Sent,
            work: false,
        }
    }

    fn start_atomic(&mut self, manner: &Manner, op: Sided, atomic: &Atomic<SimBuf>) -> bool {
        let node = &mut self.nodes[manner.from];
        let done = node.atomic(&mut self.net, address(manner.to), atomic);
        self.started(atomic.context, op, done, atomic.operand, atomic.inject)
    }

    /// Notes an operation that was accepted.
    fn started(
        &mut self,
        context: usize,
        op: Sided,
        done: Result<()>,
        local: Iov<SimBuf>,
        inject: bool,
    ) -> bool {
        let host = op.host;
        match done {
            Ok(()) => {
                let reads = matches!(op.does, Does::Read(_));
                self.sided.posted(context, op);
                if inject {
                    self.overwrite(host, &local);
                } else if !reads {
                    self.lent.insert(context, local);
                }
            }
            Err(error) => assert!(
                matches!(error, Errno::EAGAIN | Errno::ENOMEM | Errno::EOPNOTSUPP),
                "{error}"
            ),
        }
        self.sync(host);
        done.is_ok()
    }

    /// What is done with a buffer that is the application's again.
    pub(super) fn overwrite(&mut self, host: Host, local: &Iov<SimBuf>) {
        for buf in local.segments() {
            self.nodes[host].memory.bytes_mut(*buf).fill(!CANARY);
        }
    }

    /// Local memory of this length, in several pieces.
    fn local(&mut self, host: Host, len: usize, full: bool) -> Iov<SimBuf> {
        let mut pieces = Vec::new();
        let mut rest = len;
        while rest > 0 && pieces.len() < 3 && self.rng.bool() {
            let piece = self.rng.usize(0..=rest);
            pieces.push(piece);
            rest -= piece;
        }
        pieces.push(rest);
        let iov = self.buffers(host, &pieces, full);
        if full {
            // Zeros are what was there before.
            for buf in iov.segments() {
                for byte in self.nodes[host].memory.bytes_mut(*buf) {
                    *byte = (*byte).max(1);
                }
            }
        }
        iov
    }

    fn words(&mut self, host: Host, words: impl IntoIterator<Item = u64>) -> Iov<SimBuf> {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.bytes(host, &bytes)
    }

    fn bytes(&mut self, host: Host, bytes: &[u8]) -> Iov<SimBuf> {
        let iov = self.local(host, bytes.len(), false);
        self.nodes[host].memory.scatter(&iov, 0, bytes);
        iov
    }

    /// Takes a region away from the others.
    pub(super) fn hide(&mut self, host: Host) {
        if self.sided.hidden(host, HIDDEN) {
            let memory = self.exposed[host].regions[HIDDEN];
            let node = &mut self.nodes[host];
            node.hide(&mut self.net, HIDDEN);
            self.exposed[host].left = Some(node.memory.bytes(memory).to_vec());
            self.sync(host);
        }
    }

    /// Checks what peers left in a host's memory, now that nothing moves.
    pub(super) fn check_exposed(&mut self, host: Host) {
        let regions = &self.exposed[host].regions;
        if let Some(left) = &self.exposed[host].left {
            let now = self.nodes[host].memory.bytes(regions[HIDDEN]);
            assert_eq!(now, left, "a region that was taken away");
        }
        self.sided
            .check_rest(host, &self.nodes[host], regions, CELLS);
    }
}

/// Flags of an atomic's completion.
fn flags(kind: AtomicKind) -> Flags {
    match kind {
        AtomicKind::Plain => Flags::ATOMIC | Flags::WRITE,
        _ => Flags::ATOMIC | Flags::READ,
    }
}
