//! One engine, its peer played by hand: headers in, what it says to do out. Whole networks
//! of engines are in `crates/sim`.

mod atomic;
mod cancel;
mod close;
mod device_reads;
mod eager;
mod get;
mod owned;
mod packet_atomics;
mod packets;
mod packets_announced;
mod parting;
mod rma;
mod rx;
mod tx;
mod work;

use alloc::vec::Vec;

use ripstop_types::{Completion, Errno, FiAddr, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::rxm::MAX_UNIT_HEADER;
use ripstop_wire::xnet::base::{Header, MAX_HEADER, Op};
use ripstop_wire::xnet::cm::Extensions;

use super::*;
use crate::Iov;
use crate::common::Mem;
use crate::counter::Counter;
use crate::id::{ConnId, CounterId, CqId, EpId, SrxId};
use crate::matching::{ENTRY, Matcher, Recv, Want};

const LIMITS: Limits = Limits {
    tx_buffer: 1024,
    inline: 64,
    eager_max: 4096,
    kept_bytes: 100 + 3 * ENTRY,
    kept_messages: 3,
    kept_longest: u64::MAX,
    kept_total: 3000,
    ask_first: 1000,
};

/// The extensions of transports whose peers do not reach each other's memory.
const STREAM_ONLY: Extensions =
    Extensions::all().difference(Extensions::GET.union(Extensions::JOINT));

/// An engine with one endpoint and one connection to a peer at address 7.
struct Fixture {
    engine: Engine<Mem>,
    srx: SrxId,
    cq: CqId,
    counter: CounterId,
    ep: EpId,
    conn: ConnId,
}

impl Fixture {
    fn new() -> Self {
        let mut fixture = Self::down();
        fixture.up();
        fixture
    }

    /// As `new`, with the connection not up yet.
    fn down() -> Self {
        Self::with(|engine| engine.open_srx(Matcher::new(16, true)))
    }

    /// As `down`, with this receive context.
    fn with(open: impl FnOnce(&mut Engine<Mem>) -> Result<SrxId>) -> Self {
        Self::of(LIMITS, open)
    }

    fn of(limits: Limits, open: impl FnOnce(&mut Engine<Mem>) -> Result<SrxId>) -> Self {
        let mut engine = Engine::new(limits);
        let srx = open(&mut engine).unwrap();
        let cq = engine.open_cq(8).unwrap();
        let counter = engine.open_counter(Counter::default()).unwrap();
        let mut fixture = Self {
            engine,
            srx,
            cq,
            counter,
            ep: EpId::FIRST,
            conn: ConnId::FIRST,
        };
        fixture.ep = fixture.open_ep();
        fixture.conn = fixture.open_conn(fixture.ep, 7);
        fixture
    }

    /// As `new`, where what follows a read waits for its answer.
    fn ordered() -> Self {
        let mut fixture = Self::ordered_down();
        fixture.up();
        fixture
    }

    /// As `ordered`, with the connection not up yet.
    fn ordered_down() -> Self {
        let mut fixture = Self::down();
        fixture
            .engine
            .change_ep(fixture.ep, |config| config.after_reads = true);
        fixture.conn = fixture.open_conn(fixture.ep, 7);
        fixture
    }

    fn open_ep(&mut self) -> EpId {
        let config = EpConfig {
            srx: Some(self.srx),
            tx_cq: Some(self.cq),
            rx_cq: Some(self.cq),
            rx_counter: Some(self.counter),
            tx_size: 1000,
            source: true,
            ..EpConfig::NONE
        };
        self.engine.open_ep(config).unwrap()
    }

    fn open_conn(&mut self, ep: EpId, src: u64) -> ConnId {
        let config = ConnConfig {
            ep,
            src: FiAddr(src),
            name: [0; PEER_NAME],
            name_len: 0,
        };
        self.engine.open_conn(config).unwrap()
    }

    fn up(&mut self) {
        self.up_with(STREAM_ONLY);
    }

    fn up_with(&mut self, extensions: Extensions) {
        let terms = Terms {
            packets: None,
            order: ByteOrder::Little,
            has_rendezvous: true,
            extensions,
        };
        self.engine.conn_up(self.conn, terms);
    }

    fn send(&mut self, context: usize, tag: Option<u64>, len: usize) -> Result<SendPlan> {
        let send = Send {
            tag,
            data: None,
            iov: Iov::one(Mem(0x1000, len)),
            context,
            completion: true,
            inject: false,
            ack: false,
            work: false,
        };
        self.engine.send(self.conn, &send)
    }

    /// The context of the next operation whose turn has come.
    fn start_postponed(&mut self) -> Result<Option<usize>> {
        let mut header = [0; MAX_UNIT_HEADER];
        let started = self.engine.start_postponed(self.conn, &mut header)?;
        Ok(started.map(|started| started.postponed.posted.context()))
    }

    /// Posts a receive for a tag, or for plain messages; returns what to copy.
    fn recv(&mut self, context: usize, tag: Option<u64>, len: usize) -> Vec<CopyOut<Mem>> {
        let want = Want {
            tag: tag.map(|tag| (tag, 0)),
            src: FiAddr::UNSPEC,
        };
        self.post(Recv::new(Iov::one(Mem(0x2000, len)), want, context))
    }

    fn post(&mut self, recv: Recv<Mem>) -> Vec<CopyOut<Mem>> {
        let mut copies = Vec::new();
        if let Some(id) = self.engine.post_recv(self.srx, recv).unwrap() {
            while let Some(copy) = self.engine.next_match(self.srx, id) {
                copies.push(copy);
            }
        }
        copies
    }

    /// A header from the peer.
    fn header(&mut self, header: &Header) -> Result<()> {
        let mut bytes = [0; MAX_HEADER];
        let len = header.emit(ByteOrder::Little, &mut bytes).unwrap();
        let used = self.engine.rx_header(self.conn, &bytes[..len])?;
        assert_eq!(used, len);
        Ok(())
    }

    /// The header of a tagged message from the peer.
    fn message(&mut self, tag: u64, len: u64) {
        let header = Header {
            tag,
            ..Header::new(Op::Tag, len)
        };
        self.header(&header).unwrap();
    }

    fn rts(&mut self, tag: u64, index: u16, len: u64) -> Result<()> {
        self.header(&Header {
            tag,
            rts_size: len,
            ..Header::new(Op::TagRts, 0).with_index(index)
        })
    }

    fn pop(&mut self) -> Result<Completion> {
        self.engine.cq_mut(self.cq).unwrap().pop()
    }

    /// The contexts of all successes.
    fn done(&mut self) -> Vec<usize> {
        core::iter::from_fn(|| self.pop().ok())
            .map(|completion| completion.context)
            .collect()
    }

    /// The contexts and codes of all entries, which are errors.
    fn failed(&mut self) -> Vec<(usize, Errno)> {
        let cq = self.engine.cq_mut(self.cq).unwrap();
        core::iter::from_fn(|| cq.pop_error().ok())
            .map(|entry| (entry.error.entry.context, entry.error.err))
            .collect()
    }

    /// How many bytes each piece of output has.
    fn output(&self) -> Vec<(char, usize)> {
        let mut chunks = [Chunk::TxBuffer(0); 32];
        let count = self.engine.transmit(self.conn, &mut chunks);
        chunks[..count]
            .iter()
            .map(|chunk| match chunk {
                Chunk::Control {
                    header: bytes,
                    skip,
                } => ('c', bytes.len() - usize::from(*skip)),
                Chunk::TxBuffer(len) => ('s', *len),
                Chunk::User { len, .. } => ('u', *len),
                Chunk::Slot { len, .. } => ('k', *len),
            })
            .collect()
    }

    /// Writes everything there is.
    fn flush(&mut self) {
        loop {
            let len: usize = self.output().iter().map(|(_, len)| len).sum();
            if len == 0 {
                return;
            }
            self.engine.sent(self.conn, len);
        }
    }
}
