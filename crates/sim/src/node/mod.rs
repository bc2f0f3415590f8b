//! The smallest complete driver of an engine: one process with one RDM endpoint.
//!
//! * `send.rs`: from a post to the stream
//! * `recv.rs`: from the stream to user memory
//! * `owner.rs`: receives that the node has and the engine has not
//! * `onesided.rs`: reads, writes and atomics, on either end
//! * `connect.rs`: connections made when first needed, by either side

mod connect;
mod onesided;
mod owner;
mod recv;
mod send;

use std::collections::{BTreeMap, VecDeque};

pub use onesided::{CELL, element_of, set_element};

use fastrand::Rng;
use ripstop_engine::counter::Counter;
use ripstop_engine::cq::ErrorEntry;
use ripstop_engine::id::{ConnId, CounterId, CqId, EpId, MrId, SlotId, SrxId};
use ripstop_engine::matching::Matcher;
use ripstop_engine::stream::cm::CmReader;
use ripstop_engine::stream::{ConnConfig, Engine, EpConfig, Limits, Output, PEER_NAME};
use ripstop_types::{Completion, Errno, FiAddr, Result};
use ripstop_wire::ByteOrder;

use crate::memory::{Memory, SimBuf};
use crate::network::{End, Nanos, Network};
use crate::tap::{Seen, Tap};
use owner::Owner;

/// What a node is like.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Bounds of its engine.
    pub limits: Limits,
    /// Byte order of its processor.
    pub order: ByteOrder,
    /// Whether it speaks the version of the protocol with the rendezvous.
    pub rendezvous: bool,
    /// Whether it speaks what goes beyond the protocol of the C library.
    pub extended: bool,
    /// Whether receives may name their source.
    pub directed: bool,
    /// Whether completions of messages from strangers are errors.
    pub source_err: bool,
    /// Most sends not completed.
    pub tx_size: usize,
    /// Whether sends are counted.
    pub counted: bool,
    /// Least free bytes of a multi-receive buffer.
    pub min_multi_recv: u64,
    /// Whether the node has the receives itself, and is asked about every message. It has no
    /// multi-receive buffers and no peeks, and does not know when messages that wait are lost:
    /// for programs in which no stream is cut and nobody dies.
    pub owned: bool,
    /// Whether a stream is read to its end where it cannot be written any more, or a new process
    /// has asked under the same address, as the providers do. The model of memory takes what was
    /// not read then for lost: programs of reads and writes do without.
    pub reads_on: bool,
    /// Addresses in its address vector.
    pub known: Vec<u32>,
    /// How long it tries to reach a peer.
    pub patience: Nanos,
    /// Of 256 slots that need memory, how many get none.
    pub shortage: u8,
    /// Peers that do not keep to the protocol: what they send is in no [`Event`].
    pub hostile: Vec<u32>,
}

impl NodeConfig {
    /// A node like most, that knows these peers.
    #[must_use]
    pub fn new(known: &[u32]) -> Self {
        Self {
            limits: Limits {
                tx_buffer: 4096,
                inline: 256,
                rendezvous: 1000,
                kept_bytes: 6144,
                kept_messages: 8,
                kept_longest: u64::MAX,
                kept_total: 15_000,
                ask_first: 100,
            },
            order: ByteOrder::Little,
            rendezvous: true,
            extended: true,
            directed: true,
            source_err: false,
            tx_size: 1000,
            counted: true,
            min_multi_recv: 64,
            owned: false,
            reads_on: false,
            known: known.to_vec(),
            patience: 1_000_000,
            shortage: 0,
            hostile: Vec::new(),
        }
    }
}

/// What happened in a node, in order; for the model.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a simulation has few of them")]
pub enum Event {
    /// The completion queue had an entry.
    Completed(Entry),
    /// A message or another operation, by its context, was put on the stream written at `end`.
    Staged {
        /// Connection.
        conn: ConnId,
        /// Stream.
        end: End,
        /// Its context.
        context: usize,
    },
    /// A message or another operation, by its context, waits until its connection is up.
    Deferred {
        /// Connection.
        conn: ConnId,
        /// Its context.
        context: usize,
    },
    /// What waited for one connection waits for another.
    Moved {
        /// The old connection.
        from: ConnId,
        /// The new one.
        to: ConnId,
    },
    /// A header was read at `end`.
    Header {
        /// Stream.
        end: End,
        /// What it says.
        seen: Seen,
    },
    /// Payload was put where the engine said.
    Placed {
        /// Stream.
        end: End,
        /// How many bytes.
        bytes: u64,
    },
    /// A connection ended.
    Closed {
        /// Connection.
        conn: ConnId,
        /// Stream, if it had one.
        end: Option<End>,
        /// The peer's address.
        peer: u32,
        /// What was said to be the reason.
        error: Errno,
    },
}

/// How far a stream has come.
#[derive(Debug)]
enum Phase {
    /// The attempt was refused; the next is made then.
    Waiting(Nanos),
    /// The request is out.
    Asking(Box<CmReader>),
    Up,
}

#[derive(Debug)]
struct Stream {
    peer: u32,
    peer_pid: Option<u32>,
    end: Option<End>,
    phase: Phase,
    order: ByteOrder,
    /// When to stop trying.
    deadline: Nanos,
    /// There may be something to write, or the stream would not take it all.
    dirty: bool,
    /// It cannot be written any more. What the peer sent before is read; the end is behind that.
    write_ended: bool,
    /// Handshake bytes to be written before all else.
    preamble: VecDeque<u8>,
    /// The engine's staging buffer.
    stage: VecDeque<u8>,
    /// Bytes read and not yet handed on.
    inbox: VecDeque<u8>,
    /// Watches what a peer sends that keeps to the protocol.
    tap: Option<Tap>,
}

#[derive(Debug)]
struct Accepting {
    end: End,
    reader: CmReader,
}

#[derive(Debug, Default)]
struct Slot {
    bytes: Vec<u8>,
    /// The connection that fills it, while there is one.
    conn: Option<ConnId>,
    /// It holds a message to be sent, operands of an atomic, or what one fetched.
    other: bool,
}

impl Slot {
    /// One that holds no message that waits for a receive.
    const fn of(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            conn: None,
            other: true,
        }
    }
}

/// An entry of the completion queue.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::large_enum_variant, reason = "a simulation has few of them")]
pub enum Entry {
    /// A success.
    Success(Completion),
    /// An error.
    Failure(ErrorEntry),
}

/// One process.
#[derive(Debug)]
pub struct Node {
    /// Its address, which is also the fabric address others know it by.
    pub address: u32,
    pid: u32,
    config: NodeConfig,
    /// The engine; only its public interface is used.
    pub engine: Engine<SimBuf>,
    /// User memory.
    pub memory: Memory,
    ep: EpId,
    srx: SrxId,
    cq: CqId,
    tx_counter: CounterId,
    rx_counter: CounterId,
    streams: BTreeMap<ConnId, Stream>,
    /// The connection used for each peer.
    peers: BTreeMap<u32, ConnId>,
    accepting: Vec<Accepting>,
    slots: BTreeMap<SlotId, Slot>,
    owner: Owner,
    /// Memory that peers reach.
    regions: Vec<MrId>,
    /// What a crash would leave of it, by its address.
    durable: BTreeMap<usize, Vec<u8>>,
    events: Vec<Event>,
    rng: Rng,
}

impl Node {
    /// A process with an open endpoint.
    ///
    /// # Panics
    /// If the engine cannot open its objects.
    #[must_use]
    pub fn new(address: u32, pid: u32, config: NodeConfig, seed: u64) -> Self {
        let mut engine = Engine::new(config.limits);
        let matcher = Matcher::new(config.min_multi_recv, config.directed);
        let srx = match config.owned {
            true => engine.open_owned_srx(),
            false => engine.open_srx(matcher),
        };
        let srx = srx.expect("srx");
        let cq = engine.open_cq(4).expect("cq");
        let tx_counter = engine.open_counter(Counter::default()).expect("counter");
        let rx_counter = engine.open_counter(Counter::default()).expect("counter");
        let ep = EpConfig {
            srx: Some(srx),
            tx_cq: Some(cq),
            rx_cq: Some(cq),
            tx_counter: config.counted.then_some(tx_counter),
            rx_counter: Some(rx_counter),
            tx_size: config.tx_size,
            source: true,
            source_err: config.source_err,
            ..EpConfig::NONE
        };
        let ep = engine.open_ep(ep).expect("endpoint");
        Self {
            address,
            pid,
            config,
            engine,
            memory: Memory::default(),
            ep,
            srx,
            cq,
            tx_counter,
            rx_counter,
            streams: BTreeMap::new(),
            peers: BTreeMap::new(),
            accepting: Vec::new(),
            slots: BTreeMap::new(),
            owner: Owner::default(),
            regions: Vec::new(),
            durable: BTreeMap::new(),
            events: Vec::new(),
            rng: Rng::with_seed(seed),
        }
    }

    /// What the node is like.
    #[must_use]
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The id of its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The fabric address of a peer, if it is in the address vector.
    #[must_use]
    pub fn fi_addr(&self, peer: u32) -> FiAddr {
        if self.config.known.contains(&peer) {
            FiAddr(u64::from(peer))
        } else {
            FiAddr::NOTAVAIL
        }
    }

    /// Puts a peer into the address vector: connections it made before have a name now.
    pub fn learn(&mut self, peer: u32) {
        if self.config.known.contains(&peer) {
            return;
        }
        self.config.known.push(peer);
        for (conn, stream) in &self.streams {
            if stream.peer == peer {
                self.engine.set_source(*conn, FiAddr(u64::from(peer)));
            }
        }
    }

    /// Takes what happened since the last call.
    ///
    /// # Panics
    /// If the completion queue lost an entry.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.read_cq();
        std::mem::take(&mut self.events)
    }

    fn read_cq(&mut self) {
        let Some(cq) = self.engine.cq_mut(self.cq) else {
            return;
        };
        loop {
            let entry = match cq.pop() {
                Ok(completion) => Entry::Success(completion),
                Err(Errno::EAVAIL) => {
                    Entry::Failure(cq.pop_error().expect("an error was announced"))
                }
                Err(Errno::EAGAIN) => return,
                Err(error) => panic!("{error}"),
            };
            self.events.push(Event::Completed(entry));
        }
    }

    /// Successes and errors counted of sends and of receives.
    pub fn counted(&mut self) -> [Counter; 2] {
        [self.tx_counter, self.rx_counter]
            .map(|id| self.engine.counter_mut(id).copied().unwrap_or_default())
    }

    /// One round of progress on everything there is, in any order and for any length. Returns
    /// whether anything moved.
    pub fn progress(&mut self, net: &mut Network) -> bool {
        let mut moved = self.progress_connecting(net);
        let mut ids: Vec<ConnId> = self.streams.keys().copied().collect();
        self.rng.shuffle(&mut ids);
        for conn in ids {
            for _ in 0..self.rng.u32(1..4) {
                // As with a readiness interface: what is not known to have output is not asked.
                let dirty = self.streams.get(&conn).is_some_and(|s| s.dirty);
                if dirty && self.rng.bool() {
                    moved |= self.flush(net, conn);
                }
                moved |= self.read(net, conn);
                if dirty {
                    moved |= self.flush(net, conn);
                }
            }
        }
        moved
    }

    /// What the engine left to be done after it was called.
    fn after(&mut self, net: &mut Network) {
        loop {
            if let Some(slot) = self.engine.pop_freed() {
                self.slots.remove(&slot);
            } else if let Some(output) = self.engine.pop_output() {
                let Output::Conn(conn) = output else {
                    panic!("output of members of groups, of which there are none");
                };
                assert!(self.engine.conn(conn).is_some(), "output of none");
                self.flush(net, conn);
            } else if let Some(conn) = self.engine.pop_resumed() {
                assert!(self.engine.conn(conn).is_some(), "none is resumed");
                if self.engine.rx_retry(conn) {
                    self.consume(net, conn);
                }
            } else if let Some(refusal) = self.engine.pop_refusal() {
                assert!(self.engine.conn(refusal.conn).is_some(), "refused to none");
            } else if let Some((conn, error)) = self.engine.pop_broken() {
                assert!(self.engine.conn(conn).is_some(), "none is broken");
                self.lost(net, conn, error);
            } else if !self.answer() {
                assert!(self.engine.is_quiet());
                return;
            }
        }
    }

    /// The streams that took all that was put on them.
    pub fn flushed(&self) -> impl Iterator<Item = End> + '_ {
        let flushed = |(conn, stream): &(&ConnId, &Stream)| {
            let quiet = self.engine.conn(**conn).is_some_and(|c| !c.has_output());
            quiet && matches!(stream.phase, Phase::Up) && stream.preamble.is_empty()
        };
        let streams = self.streams.iter().filter(flushed);
        streams.filter_map(|(_, stream)| stream.end)
    }

    /// How many streams to a peer are up.
    #[must_use]
    pub fn connections(&self, peer: u32) -> usize {
        let up = |stream: &&Stream| stream.peer == peer && matches!(stream.phase, Phase::Up);
        self.streams.values().filter(up).count()
    }

    fn open_conn(&mut self, peer: u32) -> Result<ConnId> {
        let mut name = [0; PEER_NAME];
        let bytes = peer.to_be_bytes();
        name[..bytes.len()].copy_from_slice(&bytes);
        let src = self.fi_addr(peer);
        self.engine.open_conn(ConnConfig {
            ep: self.ep,
            src,
            name,
            name_len: bytes.len() as u8,
        })
    }

    /// A connection is gone: all that waits for it fails.
    fn lost(&mut self, net: &mut Network, conn: ConnId, error: Errno) {
        let Some(stream) = self.streams.remove(&conn) else {
            return;
        };
        if let Some(end) = stream.end {
            net.close(end);
        }
        if self.peers.get(&stream.peer) == Some(&conn) {
            self.peers.remove(&stream.peer);
        }
        self.read_cq();
        self.engine.close_conn(conn, error);
        for slot in self.slots.values_mut() {
            if slot.conn == Some(conn) {
                slot.conn = None;
            }
        }
        let closed = Event::Closed {
            conn,
            end: stream.end,
            peer: stream.peer,
            error,
        };
        self.events.push(closed);
        self.after(net);
    }

    /// The streams that are not read because a message there has no place.
    pub fn blocked(&self) -> impl Iterator<Item = End> + '_ {
        let blocked = |conn: &ConnId| {
            matches!(
                self.engine.rx_want(*conn),
                ripstop_engine::stream::RxWant::Blocked
            )
        };
        let streams = self.streams.iter();
        streams
            .filter(move |(conn, _)| blocked(conn))
            .filter_map(|(_, stream)| stream.end)
    }

    /// Ends all connections.
    pub fn close_all(&mut self, net: &mut Network, error: Errno) {
        while let Some(conn) = self.streams.keys().next().copied() {
            self.lost(net, conn, error);
        }
    }

    /// Asserts that nothing is left of what was posted, received or kept.
    ///
    /// # Panics
    /// If something is.
    pub fn assert_empty(&mut self) {
        assert_eq!(self.engine.outstanding(self.ep), 0, "sends outstanding");
        let srx = self.engine.srx_mut(self.srx).expect("it is open");
        assert!(srx.is_empty(), "{} receives left", srx.len());
        assert!(srx.nothing_unexpected(), "messages left");
        assert!(self.slots.is_empty(), "slots left: {:?}", self.slots);
        self.owner.assert_empty();
        self.assert_idle();
        assert!(self.take_events().is_empty(), "completions left");
        assert!(self.engine.pop_freed().is_none());
        assert!(self.engine.pop_output().is_none());
        assert!(self.engine.pop_resumed().is_none());
        assert!(self.engine.pop_broken().is_none());
    }
}
