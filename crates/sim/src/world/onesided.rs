//! Steps that read and change the memory of others.

use std::sync::Arc;

use ripstop_core::lock::Shared;
use ripstop_core::provider::{AtomicCall, Domain as _, Endpoint as _, MrAttr, RmaCall, Sharing};
use ripstop_mem::{UserBuf, copy_out};
use ripstop_stream::Mr;
use ripstop_types::{AtomicKind, AtomicOp, Datatype, FiAddr, Flags, Result, RmaIov};

use super::World;
use crate::memory::{CANARY, Memory, fill, read};
use crate::model::onesided::{CELL, Does, Part, Sided};
use crate::model::{Host, address};
use crate::node::{Entry, Node};
use crate::program::{Level, Manner, OneSided, Wrong};
use crate::transport::Sim;

/// Bytes that a host has for each of the others, in each of two regions.
pub const STRIPE: usize = 256;
/// Cells in which atomics set bits.
pub const MARKED: usize = 6;
/// Cells behind them, which are swapped.
pub const SWAPPED: usize = 4;

/// How long the end of a region waits for operations that are under way there.
const EVICTION: u64 = 1_000_000_000;

/// The region that may be taken away.
const HIDDEN: usize = 1;
/// The region of the cells.
const CELLS: usize = 2;
/// The key of each region. The last is for reading only.
const KEYS: [u64; 4] = [1, 0xfeed_0000_0000_0001, 7, 9];

/// Bytes of elements of 1 to 16 bytes, as numbers.
fn element_of(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    wide[..bytes.len()].copy_from_slice(bytes);
    u128::from_le_bytes(wide)
}

/// What a host exposes, and what was given to its cells.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    pub(super) regions: Vec<UserBuf>,
    mrs: Vec<Option<Arc<Mr<Sim, Shared>>>>,
    /// What a region held when it was taken away from the others.
    left: Option<Vec<u8>>,
    bits: [u32; MARKED],
    names: Vec<u64>,
}

impl Exposed {
    /// Lets all hosts reach memory of a node, in the place of an earlier one. What was not sent to that
    /// may reach this one: its bits and names are not given again.
    pub(super) fn renew(&mut self, node: &Node, memory: &mut Memory, hosts: usize) {
        let both = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        let wide = hosts * STRIPE;
        let lens = [wide, wide, (MARKED + SWAPPED) * CELL, STRIPE];
        let rights = [both, both, both, Flags::REMOTE_READ];
        self.regions = lens.map(|len| memory.buffer(&vec![0; len])).to_vec();
        let regions = self.regions.iter().zip(KEYS).zip(rights);
        let register = |((region, key), access): ((&UserBuf, u64), Flags)| {
            let mr = node.domain.mr(&MrAttr {
                iov: vec![*region],
                access,
                offset: 0,
                requested_key: key,
                flags: Flags::empty(),
                shared: Sharing::Never,
            });
            Some(mr.expect("another key"))
        };
        self.mrs = regions.map(register).collect();
        self.left = None;
    }

    /// The regions end, with their process.
    pub(super) fn close(&mut self) {
        self.mrs.clear();
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

/// An atomic but for what the model knows of it.
struct Atomic {
    kind: AtomicKind,
    what: (Datatype, AtomicOp),
    remote: Vec<RmaIov>,
    /// Operands, what to compare with, and where what was there goes.
    buffers: [Vec<UserBuf>; 3],
    level: Level,
    inject: bool,
}

impl World {
    pub(super) fn perform_onesided(&mut self, manner: &Manner, op: &OneSided) {
        let manner = Manner {
            from: self.host(manner.from),
            to: self.host(manner.to),
            ..*manner
        };
        self.learn(manner.from, manner.to);
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

    fn place(manner: &Manner, parts: &[Part]) -> Option<Vec<RmaIov>> {
        let iovs: Vec<RmaIov> = parts
            .iter()
            .map(|part| RmaIov {
                addr: part.at as u64,
                len: part.len as u64,
                key: KEYS[part.region],
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
        Some(iovs)
    }

    fn sided(&self, manner: &Manner, parts: Vec<Part>, does: Does, flags: Flags) -> Sided {
        let selective = self.setup.nodes[manner.from].selective;
        Sided {
            host: manner.from,
            to: manner.to,
            parts,
            does: match manner.wrong {
                Some(_) => Does::Nothing,
                None => does,
            },
            completion: manner.completion || !selective,
            delivered: false,
            data: false,
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
        let Some(remote) = Self::place(manner, &parts) else {
            return;
        };
        let len = parts.iter().map(|part| part.len).sum();
        let local = self.local(len, true);
        let bytes = read(&local);
        let context = self.model.context();
        let flags = Flags::RMA | Flags::WRITE;
        let mut op = self.sided(manner, parts, Does::Write(bytes), flags);
        op.data = data;
        op.delivered = level != Level::Sent;
        let data = data.then_some(context as u64);
        let (peer, ep) = self.started_by(manner);
        let silent = inject && !manner.completion && level == Level::Sent;
        let done = if let ([only], [place], true) = (&local[..], &remote[..], silent) {
            op.completion = false;
            ep.inject_write(*only, *place, data, peer)
        } else {
            let flags = self.flags_for(manner, level, inject);
            ep.write(
                &local,
                &RmaCall {
                    remote: &remote,
                    peer,
                    data,
                    context,
                    flags: Some(flags),
                },
            )
        };
        self.started(context, op, done, local, inject);
    }

    /// Who does it, and what it calls the other one.
    fn started_by(
        &mut self,
        manner: &Manner,
    ) -> (FiAddr, Arc<ripstop_stream::Endpoint<Sim, Shared>>) {
        let node = self.node(manner.from);
        (node.fi_addr(address(manner.to)), Arc::clone(&node.ep))
    }

    fn flags_for(&self, manner: &Manner, level: Level, inject: bool) -> Flags {
        let selective = self.setup.nodes[manner.from].selective;
        let mut flags = level.flags();
        flags.set(Flags::COMPLETION, manner.completion && selective);
        flags.set(Flags::FENCE, manner.fence);
        flags.set(Flags::INJECT, inject);
        flags
    }

    fn read(&mut self, manner: &Manner, parts: &[(usize, usize, usize)]) {
        if manner.wrong == Some(Wrong::Access) {
            return;
        }
        let parts = self.parts(manner.from, parts);
        let Some(remote) = Self::place(manner, &parts) else {
            return;
        };
        let len = parts.iter().map(|part| part.len).sum();
        let local = self.local(len, false);
        let context = self.model.context();
        let mut op = self.sided(
            manner,
            parts,
            Does::Read(local.clone()),
            Flags::RMA | Flags::READ,
        );
        op.delivered = true;
        let (peer, ep) = self.started_by(manner);
        let call = RmaCall {
            remote: &remote,
            peer,
            data: None,
            context,
            flags: Some(self.flags_for(manner, Level::Sent, false)),
        };
        let done = ep.read(&local, &call);
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
        let Some(remote) = Self::place(manner, &parts) else {
            return;
        };
        if bits.iter().any(|bit| *bit >= u64::BITS) {
            return;
        }
        let words = bits.iter().map(|bit| 1_u64 << bit);
        let mut bytes: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        let compare = match op {
            AtomicOp::Mswap => self.bytes(&bytes),
            _ => Vec::new(),
        };
        if op == AtomicOp::Diff {
            for element in bytes.chunks_exact_mut(datatype.size()) {
                let negative = element_of(element).wrapping_neg().to_le_bytes();
                element.copy_from_slice(&negative[..element.len()]);
            }
        }
        let operand = self.bytes(&bytes);
        let result = self.local(count * CELL, false);
        let kind = match (op, fetch) {
            (AtomicOp::Mswap, _) => AtomicKind::Compare,
            (_, true) => AtomicKind::Fetch,
            (_, false) => AtomicKind::Plain,
        };
        let result = if fetch { result } else { Vec::new() };
        let does = Does::Mark(bits, fetch.then(|| result.clone()));
        let mut known = self.sided(manner, parts, does, flags(kind));
        known.delivered = level != Level::Sent || fetch;
        known.data = how.data;
        let atomic = Atomic {
            kind,
            what: (datatype, op),
            remote,
            buffers: [operand, compare, result],
            level,
            inject: how.inject,
        };
        if self.start_atomic(manner, known, atomic) && manner.wrong.is_none() {
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
        let Some(remote) = Self::place(manner, &parts) else {
            return;
        };
        let exposed = &self.exposed[manner.to];
        let name = exposed.names.len() as u64 + 1;
        let known = exposed.names.len() + 1;
        let compare = compare.map(|(op, which)| match which % known {
            0 => (op, 0),
            which => (op, exposed.names[which - 1]),
        });
        let operand = self.words([name]);
        let result = self.local(CELL, false);
        let (kind, op, with) = match compare {
            Some((op, compare)) => {
                let with = self.words([compare]);
                (AtomicKind::Compare, op, with)
            }
            None => (AtomicKind::Fetch, AtomicOp::AtomicWrite, Vec::new()),
        };
        let does = Does::Swap {
            names: vec![name],
            compare: compare.map(|(op, compare)| (op, vec![compare])),
            result: result.clone(),
        };
        let mut known = self.sided(manner, parts, does, flags(kind));
        known.delivered = true;
        let atomic = Atomic {
            kind,
            what: (datatype, op),
            remote,
            buffers: [operand, with, result],
            level: Level::Sent,
            inject: false,
        };
        if self.start_atomic(manner, known, atomic) {
            self.exposed[manner.to].names.push(name);
        }
    }

    fn look(&mut self, manner: &Manner, (cell, count): (usize, usize), datatype: Datatype) {
        if manner.wrong == Some(Wrong::Access) {
            return;
        }
        let (cell, count) = Self::span(cell, count, MARKED + SWAPPED, datatype);
        let parts = Self::cells(cell, count);
        let Some(remote) = Self::place(manner, &parts) else {
            return;
        };
        let result = self.local(count * CELL, false);
        let kind = AtomicKind::Fetch;
        let mut known = self.sided(manner, parts, Does::Look(result.clone()), flags(kind));
        known.delivered = true;
        let atomic = Atomic {
            kind,
            what: (datatype, AtomicOp::AtomicRead),
            remote,
            buffers: [Vec::new(), Vec::new(), result],
            level: Level::Sent,
            inject: false,
        };
        self.start_atomic(manner, known, atomic);
    }

    fn start_atomic(&mut self, manner: &Manner, mut op: Sided, atomic: Atomic) -> bool {
        let context = self.model.context();
        let Atomic {
            kind,
            what: (datatype, what),
            remote,
            buffers: [operand, compare, result],
            level,
            inject,
        } = atomic;
        let data = op.data.then_some(context as u64);
        let (peer, ep) = self.started_by(manner);
        let silent = inject && !manner.completion && level == Level::Sent && data.is_none();
        let done = if let ([only], [place], true) = (&operand[..], &remote[..], silent) {
            op.completion = false;
            ep.inject_atomic(*only, datatype, what, *place, peer)
        } else {
            let call = AtomicCall {
                kind,
                datatype,
                op: what,
                compare: &compare,
                result: &result,
                remote: &remote,
                peer,
                data,
                context,
                flags: Some(self.flags_for(manner, level, inject)),
            };
            ep.atomic(&operand, &call)
        };
        self.started(context, op, done, operand, inject)
    }

    /// Notes an operation that was accepted.
    fn started(
        &mut self,
        context: usize,
        op: Sided,
        done: Result<()>,
        local: Vec<UserBuf>,
        inject: bool,
    ) -> bool {
        let (host, to) = (op.host, op.to);
        let accepted = self.accepted(done, host, to);
        if accepted {
            let reads = matches!(op.does, Does::Read(_));
            self.sided.posted(&self.model, context, op);
            if inject {
                fill(&local, !CANARY);
            } else if !reads {
                self.lent.insert(context, local);
            }
        }
        self.sync_or_not(host);
        accepted
    }

    /// Local memory of this length, in several pieces.
    fn local(&mut self, len: usize, full: bool) -> Vec<UserBuf> {
        let mut pieces = Vec::new();
        let mut rest = len;
        while rest > 0 && pieces.len() < 3 && self.rng.bool() {
            let piece = self.rng.usize(0..=rest);
            pieces.push(piece);
            rest -= piece;
        }
        pieces.push(rest);
        let mut bytes = vec![CANARY; len];
        if full {
            // Zeros are what was there before.
            bytes.fill_with(|| self.rng.u8(1..));
        }
        self.buffers(&pieces, &bytes)
    }

    fn words(&mut self, words: impl IntoIterator<Item = u64>) -> Vec<UserBuf> {
        let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
        self.bytes(&bytes)
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<UserBuf> {
        let iov = self.local(bytes.len(), false);
        let mut at = 0;
        for buf in &iov {
            at += copy_out(*buf, &bytes[at..]);
        }
        iov
    }

    /// Takes a region away from the others.
    pub(super) fn hide(&mut self, host: Host) {
        if self.sided.hidden(&self.model, host, HIDDEN) {
            self.turns.turn.set(host);
            let start = self.net.lock().now();
            let exposed = &mut self.exposed[host];
            exposed.mrs[HIDDEN] = None;
            exposed.left = Some(read(&[exposed.regions[HIDDEN]]));
            if self.net.lock().now() >= start + EVICTION {
                // Connections that were at work there too long are ended.
                (0..self.nodes.len()).for_each(|peer| self.model.cut(host, peer));
            }
            self.sync(host);
        }
    }

    /// Checks what peers left in a host's memory, now that nothing moves.
    pub(super) fn check_exposed(&mut self, host: Host) {
        let regions = &self.exposed[host].regions;
        if let Some(left) = &self.exposed[host].left {
            let now = read(&[regions[HIDDEN]]);
            assert_eq!(now, *left, "a region that was taken away");
        }
        self.sided.check_rest(&self.model, host, regions, CELLS);
    }

    /// An operation that is no message has ended, or completion data of one came; returns
    /// whether it was one.
    pub(super) fn completed(&mut self, host: Host, entry: &Entry) -> bool {
        let Some(done) = self.sided.completed(&self.model, host, entry) else {
            return false;
        };
        if let Some(context) = done {
            let regions = &self.exposed[self.sided.target(context)].regions;
            self.sided.check_done(&self.model, context, regions);
        }
        if let Entry::Success(completion) = entry
            && let Some(local) = self.lent.remove(&completion.context)
        {
            fill(&local, !CANARY);
        }
        true
    }
}

/// Flags of an atomic's completion.
fn flags(kind: AtomicKind) -> Flags {
    match kind {
        AtomicKind::Plain => Flags::ATOMIC | Flags::WRITE,
        _ => Flags::ATOMIC | Flags::READ,
    }
}
