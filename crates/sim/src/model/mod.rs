//! What the interface promises (man pages `fi_msg(3)`, `fi_tagged(3)`, `fi_cq(3)`,
//! `fi_cntr(3)`), told from posts and from what went over the streams, without any look into
//! an engine.
//!
//! * A message that arrives goes to the first posted receive that accepts it; a receive that
//!   is posted takes the first message that arrived and fits. So messages of one peer match
//!   in order.
//! * Every operation ends once: with a completion, or an error that says why; sends without
//!   completion end silently.
//! * What a receive gets are the bytes that were sent, from its start, and nothing else of
//!   the buffer changes.
//!
//! `onesided.rs` has the rest: reads, writes and atomics. `recv.rs` predicts the completions of receives exactly. Those of sends may come at several
//! times, so for them `Model::check_sent` asks whether the one that came may come.

pub mod onesided;
mod recv;

use std::collections::{HashMap, HashSet, VecDeque};

use ripstop_engine::Iov;
use ripstop_engine::id::ConnId;
use ripstop_engine::matching::Want;
use ripstop_engine::stream::Send;
use ripstop_types::{Completion, Errno, FiAddr, Flags};

use crate::memory::SimBuf;
use crate::network::End;
use crate::node::{Entry, Event, Node};
use crate::tap::Seen;

/// What fills receive buffers before anything is received.
pub const CANARY: u8 = 0xee;

/// A node, by its place among the nodes of the world.
pub type Host = usize;

/// What the model knows of a node's configuration.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts {
    /// Its address.
    pub address: u32,
    /// Whether receives may name their source.
    pub directed: bool,
    /// Whether completions of messages from strangers are errors.
    pub source_err: bool,
    /// Whether sends are counted.
    pub counted: bool,
    /// Least free bytes of a multi-receive buffer.
    pub min_multi_recv: u64,
}

/// A message that was posted. Its index is its context.
#[derive(Clone, Debug)]
struct Sent {
    host: Host,
    send: Send<SimBuf>,
    payload: Vec<u8>,
    conn: Option<ConnId>,
    /// Its header is on the stream.
    staged: bool,
    /// It was received whole, or dropped by the receiver.
    delivered: bool,
    /// It has been matched, or dropped by the receiver.
    matched: bool,
    /// It waits for leave to send its payload.
    rendezvous: bool,
    over: bool,
}

/// A receive that was posted.
#[derive(Clone, Debug)]
struct Posted {
    host: Host,
    context: usize,
    iov: Iov<SimBuf>,
    want: Want,
    completion: bool,
    multi: bool,
    used: u64,
    filling: u32,
    /// Takes no more messages.
    released: bool,
}

/// A message that arrived.
#[derive(Clone, Debug)]
struct Arrived {
    sent: usize,
    host: Host,
    end: End,
    src: FiAddr,
    /// Index of its rendezvous.
    index: Option<u8>,
    placed: u64,
    target: Target,
    claimed: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Unexpected,
    /// A receive, and where in its buffer.
    Recv(usize, u64),
    Dropped,
    /// Nothing more happens to it.
    Over,
}

/// A completion that must come now.
#[derive(Clone, Debug)]
struct Expected {
    completion: Completion,
    /// Error code, overflow length and the peer that is named.
    failure: Option<(Errno, usize, Option<u32>)>,
    /// It may also not come: the send may have succeeded without a completion.
    optional: bool,
}

#[derive(Clone, Debug, Default)]
struct HostState {
    facts: Facts,
    /// Receives in the order they were posted.
    posted: Vec<usize>,
    /// Messages in the order they arrived.
    unexpected: Vec<usize>,
    expected: Vec<Expected>,
    /// Messages that are in place: receive, offset and message.
    received: Vec<(usize, u64, usize)>,
    /// Messages accepted.
    posts: u64,
    /// Counted: successes and errors of sends and of receives.
    tx: (u64, u64),
    rx: (u64, u64),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Model {
    hosts: Vec<HostState>,
    sent: Vec<Option<Sent>>,
    recvs: Vec<Posted>,
    messages: Vec<Arrived>,
    /// Messages on the stream towards an end, in order.
    wires: HashMap<End, VecDeque<usize>>,
    /// The message whose payload arrives at an end.
    current: HashMap<End, usize>,
    /// Messages that arrived at an end and are not whole.
    partial: HashMap<End, Vec<usize>>,
    closed: HashSet<End>,
    /// Who knows whom.
    known: HashSet<(Host, u32)>,
}

impl Model {
    /// A model of nodes.
    #[must_use]
    pub fn new(nodes: impl IntoIterator<Item = Facts>) -> Self {
        let host = |facts| HostState {
            facts,
            ..HostState::default()
        };
        Self {
            hosts: nodes.into_iter().map(host).collect(),
            ..Self::default()
        }
    }

    /// A context nobody uses.
    pub fn context(&mut self) -> usize {
        self.sent.push(None);
        self.sent.len() - 1
    }

    /// A message was accepted.
    pub fn sent(&mut self, host: Host, send: &Send<SimBuf>, payload: Vec<u8>) {
        self.hosts[host].posts += 1;
        self.sent[send.context] = Some(Sent {
            host,
            send: *send,
            payload,
            conn: None,
            staged: false,
            delivered: false,
            matched: false,
            rendezvous: false,
            over: false,
        });
    }

    /// What happened in a node.
    ///
    /// # Panics
    /// If it should not have.
    pub fn happened(&mut self, host: Host, node: &mut Node, event: Event) {
        match event {
            Event::Completed(entry) => self.completed(host, node, &entry),
            Event::Staged { conn, end, context } => self.staged(conn, end, context),
            Event::Deferred { conn, context } => {
                self.sent[context].as_mut().expect("it was posted").conn = Some(conn);
            }
            Event::Moved { from, to } => {
                for sent in self.sent.iter_mut().flatten() {
                    if sent.host == host && sent.conn == Some(from) && !sent.staged && !sent.over {
                        sent.conn = Some(to);
                    }
                }
            }
            Event::Header { end, seen } => self.header(host, end, seen),
            Event::Placed { end, bytes } => self.placed(end, bytes),
            Event::Closed {
                conn,
                end,
                peer,
                error,
            } => {
                self.fail_sends(host, conn, peer, error);
                if let Some(end) = end {
                    self.fail_receives(end, peer, error);
                }
            }
        }
    }

    fn staged(&mut self, conn: ConnId, end: End, context: usize) {
        let sent = self.sent[context].as_mut().expect("it was posted");
        assert!(!sent.staged && !sent.over, "sent twice");
        sent.staged = true;
        sent.conn = Some(conn);
        // In order with all others from this node to that peer: contexts rise.
        let wire = self.wires.entry(end ^ 1).or_default();
        if let Some(last) = wire.back() {
            assert!(*last < context, "{context} overtook {last}");
        }
        wire.push_back(context);
    }

    fn header(&mut self, host: Host, end: End, seen: Seen) {
        match seen {
            Seen::Message {
                tag,
                data,
                len,
                index,
                ack,
            } => {
                let wire = self.wires.get_mut(&end).expect("something was sent");
                let context = wire.pop_front().expect("something was sent");
                let sent = self.sent[context].as_mut().expect("it was posted");
                let payload = sent.payload.len() as u64;
                let expected = (sent.send.tag, sent.send.data, payload, sent.send.ack);
                assert_eq!((tag, data, len, ack), expected, "another message");
                sent.rendezvous = index.is_some();
                let peer = self.hosts[sent.host].facts.address;
                let src = if self.known.contains(&(host, peer)) {
                    FiAddr(u64::from(peer))
                } else {
                    FiAddr::NOTAVAIL
                };
                self.arrived(Arrived {
                    sent: context,
                    host,
                    end,
                    src,
                    index,
                    placed: 0,
                    target: Target::Unexpected,
                    claimed: None,
                });
            }
            Seen::Data(index) => self.data(end, index),
            Seen::ClearToSend(_) | Seen::Ack | Seen::Other => {}
        }
    }

    /// Everything that was not over on a connection fails. What was injected without
    /// completion and is on the stream may be lost without a word, unless it is counted.
    fn fail_sends(&mut self, host: Host, conn: ConnId, peer: u32, error: Errno) {
        let Self { sent, hosts, .. } = self;
        let state = &mut hosts[host];
        for (context, sent) in sent.iter_mut().enumerate() {
            let Some(sent) = sent else { continue };
            if sent.host != host || sent.conn != Some(conn) || sent.over {
                continue;
            }
            sent.over = true;
            let send = &sent.send;
            let silent = send.inject && !send.completion && !send.ack;
            if sent.staged && silent && !state.facts.counted {
                continue;
            }
            state.expected.push(Expected {
                completion: blank(context, Flags::SEND | kind(send.tag)),
                failure: Some((error, 0, Some(peer))),
                optional: sent.staged && !send.completion,
            });
        }
    }

    fn completed(&mut self, host: Host, node: &mut Node, entry: &Entry) {
        match entry {
            Entry::Success(completion) if completion.flags.contains(Flags::SEND) => {
                self.check_sent(host, node, completion);
            }
            _ => self.check_expected(host, entry),
        }
    }

    /// Checks that all has happened that must have.
    ///
    /// # Panics
    /// If it has not.
    pub fn check(&mut self, host: Host, node: &mut Node) {
        let state = &mut self.hosts[host];
        state.expected.retain(|expected| !expected.optional);
        assert!(state.expected.is_empty(), "missing: {:#?}", state.expected);
        for (recv, base, message) in std::mem::take(&mut state.received) {
            self.check_bytes(node, recv, base, message);
        }
        self.check_counters(host, node);
    }

    fn check_sent(&mut self, host: Host, node: &mut Node, completion: &Completion) {
        let sent = self.sent[completion.context].as_mut();
        let sent = sent.expect("a completion of nothing");
        assert_eq!(sent.host, host);
        assert!(!sent.over, "completed twice: {completion:?}");
        assert!(sent.staged, "completed before it was sent");
        assert!(sent.send.completion, "nobody asked for it");
        assert!(!sent.send.ack || sent.delivered, "before it was delivered");
        assert!(!sent.rendezvous || sent.matched, "before it was matched");
        let flags = Flags::SEND | kind(sent.send.tag);
        assert_eq!(*completion, blank(completion.context, flags));
        sent.over = true;
        self.hosts[host].tx.0 += 1;
        // The buffer is the application's again.
        for buf in sent.send.iov.segments() {
            node.memory.bytes_mut(*buf).fill(!CANARY);
        }
    }

    fn check_expected(&mut self, host: Host, entry: &Entry) {
        let state = &mut self.hosts[host];
        let Some(index) = state.expected.iter().position(|e| e.is(entry)) else {
            panic!("not expected: {entry:?}; would be: {:#?}", state.expected);
        };
        let expected = state.expected.remove(index);
        if expected.completion.flags.contains(Flags::SEND) {
            state.tx.1 += 1;
        }
    }

    fn check_counters(&self, host: Host, node: &mut Node) {
        let [tx, rx] = node.counted();
        let state = &self.hosts[host];
        assert_eq!((rx.value, rx.errors), state.rx, "counter of receives");
        if state.facts.counted {
            assert_eq!(tx.errors, state.tx.1, "counter of failed sends");
            assert!(tx.value >= state.tx.0, "counter of sends");
        }
    }

    /// Checks that everything has ended once.
    ///
    /// # Panics
    /// If something has not.
    pub fn check_over(&self, host: Host, node: &mut Node) {
        let unfinished: Vec<String> = self.unfinished(host);
        assert!(unfinished.is_empty(), "not over: {unfinished:#?}");
        let state = &self.hosts[host];
        if state.facts.counted {
            let [tx, _] = node.counted();
            assert_eq!(tx.value + tx.errors, state.posts, "counter of sends");
        }
        assert!(state.posted.is_empty(), "receives left");
        assert!(state.unexpected.is_empty(), "messages left");
    }

    /// A node died and another took its address: what it had posted will not end, and what
    /// had arrived there is gone.
    pub fn restarted(&mut self, host: Host) {
        for sent in self.sent.iter_mut().flatten() {
            sent.over |= sent.host == host;
        }
        let Self {
            messages,
            partial,
            current,
            ..
        } = self;
        for message in messages.iter_mut().filter(|m| m.host == host) {
            message.target = Target::Over;
        }
        for ids in partial.values_mut() {
            ids.retain(|id| messages[*id].host != host);
        }
        current.retain(|_, id| messages[*id].host != host);
        self.hosts[host] = HostState {
            facts: self.hosts[host].facts,
            ..HostState::default()
        };
    }

    /// Whether all sends of a node that complete have.
    #[must_use]
    pub fn is_done(&self, host: Host) -> bool {
        self.unfinished(host).is_empty()
    }

    /// Whether a message was injected by a node, and nobody is told more.
    #[must_use]
    pub fn is_injected(&self, host: Host, context: usize) -> bool {
        let sent = self.sent.get(context).and_then(Option::as_ref);
        sent.is_some_and(|sent| sent.host == host && sent.send.inject && !sent.over)
    }

    /// Whether a message was received whole, or dropped by who got it.
    #[must_use]
    pub fn is_delivered(&self, context: usize) -> bool {
        let sent = self.sent.get(context).and_then(Option::as_ref);
        sent.is_some_and(|sent| sent.delivered)
    }

    /// Sends of a node that are not over and should be.
    fn unfinished(&self, host: Host) -> Vec<String> {
        let sent = self.sent.iter().flatten();
        sent.filter(|sent| sent.host == host && !sent.over && sent.send.completion)
            .map(|sent| format!("{sent:?}"))
            .collect()
    }
}

impl Expected {
    fn is(&self, entry: &Entry) -> bool {
        match (entry, self.failure) {
            (Entry::Success(completion), None) => *completion == self.completion,
            (Entry::Failure(entry), Some((err, olen, peer))) => {
                let error = entry.error;
                let name = peer.map_or(Vec::new(), |peer| peer.to_be_bytes().to_vec());
                error.entry == self.completion
                    && (error.err, error.olen, error.prov_errno) == (err, olen, err.0)
                    && entry.data() == name
            }
            _ => false,
        }
    }
}

fn kind(tag: Option<u64>) -> Flags {
    match tag {
        Some(_) => Flags::TAGGED,
        None => Flags::MSG,
    }
}

fn blank(context: usize, flags: Flags) -> Completion {
    Completion {
        context,
        flags,
        len: 0,
        buf: 0,
        data: 0,
        tag: 0,
        src: FiAddr::NOTAVAIL,
    }
}
