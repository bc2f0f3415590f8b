//! Reads, writes and atomics: what a node starts, and what it does for its peers.

use ripstop_engine::id::{ConnId, SlotId};
use ripstop_engine::mr::{Access, Mr};
use ripstop_engine::stream::{Appended, Atomic, Engine, Job, Rma, RmaPlan, RxWant};
use ripstop_engine::{Buffer as _, Iov, Reached};
use ripstop_types::{AtomicOp, Datatype, Errno, Result};
use ripstop_wire::xnet::base::MAX_HEADER;

use super::{Event, Node, Slot};
use crate::memory::SimBuf;
use crate::model::onesided::replaces;
use crate::network::Network;

/// Bytes of what atomics act on here.
pub const CELL: usize = 8;

/// The bits of an element of 1 to 16 bytes.
#[must_use]
pub fn element_of(bytes: &[u8]) -> u128 {
    let mut wide = [0; 16];
    match cfg!(target_endian = "little") {
        true => wide[..bytes.len()].copy_from_slice(bytes),
        false => wide[16 - bytes.len()..].copy_from_slice(bytes),
    }
    u128::from_ne_bytes(wide)
}

/// Gives an element of 1 to 16 bytes these bits, as far as it has them.
pub fn set_element(bytes: &mut [u8], bits: u128) {
    let (wide, len) = (bits.to_ne_bytes(), bytes.len());
    match cfg!(target_endian = "little") {
        true => bytes.copy_from_slice(&wide[..len]),
        false => bytes.copy_from_slice(&wide[16 - len..]),
    }
}

impl Node {
    /// Lets peers reach a block of so many zeros, and of no others beside it.
    ///
    /// # Panics
    /// If the key is taken.
    pub fn expose(&mut self, len: usize, base: u64, key: u64, access: Access, guard: u8) -> SimBuf {
        let memory = self.memory.guarded(vec![0; len], guard);
        let mr = self.engine.open_mr(Mr::new(memory, base, key, access));
        self.regions.push(mr.expect("another key"));
        self.durable.insert(memory.address(), vec![0; len]);
        memory
    }

    /// What a crash would leave of a block that peers reach.
    ///
    /// # Panics
    /// If they do not.
    #[must_use]
    pub fn durable(&self, memory: SimBuf) -> &[u8] {
        &self.durable[&memory.address()]
    }

    /// Takes the region of this number away from peers, whatever they do there.
    pub fn hide(&mut self, net: &mut Network, region: usize) {
        self.engine.close_mr(self.regions[region]);
        self.after(net);
    }

    /// Asserts that no operation uses what peers reach.
    ///
    /// # Panics
    /// If one does.
    pub(super) fn assert_idle(&self) {
        for id in &self.regions {
            assert!(!self.engine.mr_is_busy(*id), "a region is in use");
        }
    }

    /// Holds back what is posted next for a peer until what was before is done.
    pub fn fence(&mut self, peer: u32) {
        if let Some(conn) = self.peers.get(&peer) {
            self.engine.fence(*conn);
        }
    }

    /// Posts a read or write.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when a queue is full, [`Errno::ENOMEM`].
    pub fn rma(&mut self, net: &mut Network, peer: u32, rma: &Rma<SimBuf>) -> Result<()> {
        let start = |engine: &mut Engine<SimBuf>, id, header: &mut _| engine.rma(id, rma, header);
        self.start(net, peer, rma.context, &[rma.iov], start)
    }

    /// Posts an atomic.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`] towards a peer that has none; else as [`Node::rma`].
    pub fn atomic(&mut self, net: &mut Network, peer: u32, atomic: &Atomic<SimBuf>) -> Result<()> {
        let start =
            |engine: &mut Engine<SimBuf>, id, header: &mut _| engine.atomic(id, atomic, header);
        let payload = [atomic.operand, atomic.compare];
        self.start(net, peer, atomic.context, &payload, start)
    }

    fn start(
        &mut self,
        net: &mut Network,
        peer: u32,
        context: usize,
        payload: &[Iov<SimBuf>],
        accept: impl FnOnce(&mut Engine<SimBuf>, ConnId, &mut [u8; MAX_HEADER]) -> Result<RmaPlan>,
    ) -> Result<()> {
        let conn = match self.peers.get(&peer) {
            Some(conn) => *conn,
            None => self.connect(net, peer)?,
        };
        let mut header = [0; MAX_HEADER];
        match accept(&mut self.engine, conn, &mut header)? {
            RmaPlan::Append(Appended { header_len, inline }) => {
                let bytes = match inline {
                    true => self.gather(payload),
                    false => Vec::new(),
                };
                self.stage(conn, &header[..header_len], &bytes, context);
            }
            RmaPlan::Defer { slot } => {
                if slot.is_some() && self.is_short() {
                    self.engine.take_back(conn);
                    self.after(net);
                    return Err(Errno::ENOMEM);
                }
                if let Some(slot) = slot {
                    let bytes = self.gather(payload);
                    self.slots.insert(slot, Slot::of(bytes));
                }
                self.events.push(Event::Deferred { conn, context });
            }
        }
        if self.rng.bool() {
            self.flush(net, conn);
        } else if let Some(stream) = self.streams.get_mut(&conn) {
            stream.dirty = true;
        }
        Ok(())
    }

    fn gather(&self, payload: &[Iov<SimBuf>]) -> Vec<u8> {
        let parts = payload.iter().map(|iov| self.memory.gather(iov));
        parts.flatten().collect()
    }

    /// Does what the engine asks for before the stream is read on.
    pub(super) fn run_job(&mut self, id: ConnId) {
        while matches!(self.engine.rx_want(id), RxWant::Job) {
            match self.engine.job(id).expect("a job was announced") {
                Job::Commit(target) => {
                    let target = *target;
                    let done = self.commit(&target);
                    self.engine.job_done(id, done, None);
                }
                Job::Atomic {
                    target,
                    datatype,
                    op,
                    operands,
                    compare,
                    fetch,
                } => {
                    let target = *target;
                    self.run_atomic(id, (&target, datatype, op), operands, compare, fetch);
                }
                Job::Collective => panic!("nobody has joined a group"),
            }
        }
    }

    /// Copies what was written to where a crash leaves it, or fails to.
    fn commit(&mut self, target: &Reached<SimBuf>) -> bool {
        if self.is_short() {
            return false;
        }
        for part in target.segments().iter().filter(|part| !part.is_empty()) {
            let bytes = self.memory.bytes(*part).to_vec();
            let (base, image) = self
                .durable
                .range_mut(..=part.address())
                .next_back()
                .expect("a region");
            image[part.address() - base..][..bytes.len()].copy_from_slice(&bytes);
        }
        true
    }

    fn run_atomic(
        &mut self,
        id: ConnId,
        (target, datatype, op): (&Reached<SimBuf>, Datatype, AtomicOp),
        operands: Option<SlotId>,
        compare: bool,
        fetch: bool,
    ) {
        let len = target.len() as usize;
        let given = operands.and_then(|slot| self.slots.get(&slot));
        let given = given.map_or(Vec::new(), |slot| slot.bytes.clone());
        let expected = match op {
            AtomicOp::AtomicRead => 0,
            _ => len * (1 + usize::from(compare)),
        };
        assert_eq!(given.len(), expected, "operands");
        let before = self.memory.gather(target);
        let mut after = before.clone();
        let size = datatype.size();
        assert_eq!(len % size, 0, "a part of an element");
        for at in (0..len).step_by(size) {
            let element = |bytes: &[u8], at: usize| {
                let element = bytes.get(at..at + size);
                element.map_or(0, element_of)
            };
            let (old, value) = (element(&before, at), element(&given, at));
            let with = element(&given, len + at);
            let new = match op {
                AtomicOp::Sum => old.wrapping_add(value),
                AtomicOp::Diff => old.wrapping_sub(value),
                AtomicOp::Bor => old | value,
                AtomicOp::Bxor => old ^ value,
                AtomicOp::AtomicRead => old,
                AtomicOp::AtomicWrite => value,
                AtomicOp::Mswap => (value & with) | (old & !with),
                _ if replaces(op, with, old) => value,
                _ => old,
            };
            set_element(&mut after[at..at + size], new);
        }
        if fetch && self.is_short() {
            return self.engine.job_done(id, false, None);
        }
        self.memory.scatter(target, 0, &after);
        let slot = fetch.then(|| self.engine.fetched_slot().expect("a slot"));
        if let Some(slot) = slot {
            self.slots.insert(slot, Slot::of(before));
        }
        self.engine.job_done(id, true, slot);
    }
}
