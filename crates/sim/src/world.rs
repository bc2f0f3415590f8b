//! Programs on several nodes, in any interleaving, checked by the model.

mod onesided;
mod receives;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use fastrand::Rng;
use ripstop_core::lock::Shared;
use ripstop_core::provider::{CompletionQueue as _, Endpoint as _, SendKind};
use ripstop_mem::UserBuf;
use ripstop_stream::Cq;
use ripstop_types::{Errno, FiAddr, Flags, Result};

use crate::memory::{CANARY, Memory, fill};
use crate::model::onesided::OneSided;
use crate::model::{Host, Model, Posted, Sent, address};
use crate::network::{Nanos, Timing};
use crate::node::{Entry, Node, NodeConfig};
use crate::owner::Owner;
use crate::program::Op;
use crate::system::{Net, set_others};

use onesided::Exposed;
pub use onesided::{MARKED, STRIPE, SWAPPED};

/// Rounds in which a process that leaves waits for its completions.
const PATIENCE: u32 = 200;

/// Calls of progress in which a domain does what its poller tells of.
const ENOUGH: u32 = 2000;

/// Calls of progress after which a domain has asked its poller.
const LOOKS: u32 = 100;

/// Virtual time in which nothing moves any more, whatever there is to wait for.
const REST: Nanos = 10_000_000_000;

/// What a world is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Its nodes.
    pub nodes: Vec<NodeConfig>,
    /// How its streams behave.
    pub timing: Timing,
    /// From which all chance comes.
    pub seed: u64,
}

/// Who may make progress while a call of another waits.
#[derive(Debug, Default)]
struct Turns {
    queues: RefCell<Vec<Weak<Cq<crate::Sim, Shared>>>>,
    /// Whose call it is.
    turn: Cell<Host>,
}

/// Nodes, the network between them, and the model of what they must do.
#[derive(Debug)]
pub struct World {
    /// The nodes, but those that are away.
    pub nodes: Vec<Option<Node>>,
    /// The network.
    pub net: Net,
    /// The model.
    pub model: Model,
    setup: Setup,
    memory: Memory,
    turns: Rc<Turns>,
    /// The receives of nodes that have them themselves.
    owners: Vec<Owner>,
    /// Messages set aside: by whom, and as which receive.
    claims: Vec<(Host, usize, Posted)>,
    /// What reads, writes and atomics must do.
    sided: OneSided,
    /// What each node lets others reach.
    exposed: Vec<Exposed>,
    /// Buffers of operations that are under way, by context.
    lent: HashMap<usize, Vec<UserBuf>>,
    rng: Rng,
    pids: u32,
    /// Nodes that did not end well: their peers may hold streams to nobody.
    vanished: bool,
}

impl Drop for World {
    fn drop(&mut self) {
        set_others(None);
        if std::thread::panicking() {
            let Setup { timing, seed, .. } = &self.setup;
            let thread = std::thread::current();
            eprintln!(
                "it was a world of {} nodes with seed {seed} and {timing:?}; to run it again: cargo test \
                 -p ripstop-sim {}",
                self.nodes.len(),
                thread.name().unwrap_or_default(),
            );
        }
    }
}

impl World {
    /// A world in which nothing has happened.
    ///
    /// # Panics
    /// If its nodes cannot be opened.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let mut rng = Rng::with_seed(setup.seed);
        let net = Net::enter(setup.timing, rng.u64(..));
        let hosts = setup.nodes.len();
        let mut world = Self {
            nodes: Vec::new(),
            net,
            model: Model::new(hosts),
            setup: setup.clone(),
            memory: Memory::default(),
            turns: Rc::default(),
            owners: Vec::new(),
            claims: Vec::new(),
            sided: OneSided::new(hosts),
            exposed: Vec::new(),
            lent: HashMap::new(),
            rng,
            pids: 100,
            vanished: false,
        };
        for host in 0..hosts {
            world.owners.push(Owner::default());
            world.exposed.push(Exposed::default());
            let node = world.open(host);
            world.nodes.push(Some(node));
            world.learn_known(host);
        }
        world.note_turns();
        let turns = Rc::clone(&world.turns);
        set_others(Some(Rc::new(move || {
            for (host, queue) in turns.queues.borrow().iter().enumerate() {
                if host != turns.turn.get()
                    && let Some(queue) = queue.upgrade()
                {
                    queue.poll();
                }
            }
        })));
        world
    }

    fn open(&mut self, host: Host) -> Node {
        self.pids += 1;
        let node = Node::open(&self.net, address(host), self.pids, &self.setup.nodes[host]);
        let node = node.expect("an endpoint");
        let hosts = self.setup.nodes.len();
        self.exposed[host].renew(&node, &mut self.memory, hosts);
        node
    }

    fn learn_known(&mut self, host: Host) {
        for peer in self.setup.nodes[host].known.clone() {
            self.model.learned(host, usize::from(peer) - 1);
        }
    }

    fn note_turns(&self) {
        let queue = |node: &Option<Node>| {
            node.as_ref()
                .map_or(Weak::new(), |node| Arc::downgrade(&node.cq))
        };
        let queues = self.nodes.iter().map(queue);
        self.turns.queues.replace(queues.collect());
    }

    /// A node, for a call of its program.
    ///
    /// # Panics
    /// If it is away.
    pub fn node(&mut self, host: Host) -> &mut Node {
        self.turns.turn.set(host);
        self.nodes[host].as_mut().expect("it is not away")
    }

    /// Runs a program to its end, and checks that everything has ended.
    pub fn run(&mut self, program: &[Op]) {
        for op in program {
            self.perform(op);
        }
        self.finish();
    }

    fn host(&self, host: Host) -> Host {
        host % self.nodes.len()
    }

    /// Does one step of a program.
    pub fn perform(&mut self, op: &Op) {
        match op {
            Op::Send { from, to, .. } => self.send(self.host(*from), self.host(*to), op),
            Op::Recv {
                host,
                tag,
                src,
                segments,
                completion,
                multi,
            } => {
                let completion = *completion || *multi;
                let recv = self.recv(self.host(*host), *tag, *src, segments, completion);
                self.post(Posted {
                    multi: *multi,
                    ..recv
                });
            }
            Op::Peek {
                host,
                tag,
                src,
                claim,
                discard,
            } => {
                let what = self.recv(self.host(*host), *tag, *src, &[], true);
                self.peek(what, *claim, *discard);
            }
            Op::Claim {
                host,
                which,
                len,
                discard,
            } => self.claim(self.host(*host), *which, *len, *discard),
            Op::Cancel { host, which } => {
                let host = self.host(*host);
                let recvs = self.model.open_recvs(host);
                let sends = self.model.open_sends(host);
                let place = which % (recvs.len() + sends.len()).max(1);
                if let Some(context) = recvs.get(place) {
                    self.cancel(host, *context);
                } else if let Some(context) = sends.get(place - recvs.len()) {
                    self.cancel_send(host, *context);
                } else if !self.setup.nodes[host].owned {
                    let context = self.model.context();
                    assert_eq!(self.node(host).ep.cancel(context), Err(Errno::ENOENT));
                }
            }
            Op::OneSided(manner, op) => self.perform_onesided(manner, op),
            Op::Hide { host } => self.hide(self.host(*host)),
            Op::Learn { host, peer } => {
                self.learn(self.host(*host), self.host(*peer));
            }
            Op::Cut { host, peer, after } => {
                let (host, peer) = (self.host(*host), self.host(*peer));
                if let Some(end) = self.end(host, peer) {
                    self.model.cut(host, peer);
                    self.net.lock().cut_after(end, *after);
                }
            }
            Op::Stall { host, peer, time } => {
                if let Some(end) = self.end(self.host(*host), self.host(*peer)) {
                    self.net.lock().stall(end, *time);
                }
            }
            Op::Restart { host, quietly } => self.restart(self.host(*host), *quietly),
            Op::Leave {
                host, done, away, ..
            } => self.leave(self.host(*host), *done, *away),
            Op::Run(rounds) => {
                for _ in 0..*rounds {
                    self.round();
                }
            }
        }
    }

    /// The end at one node of a stream to another.
    #[must_use]
    pub fn end(&self, host: Host, peer: Host) -> Option<usize> {
        let net = self.net.lock();
        net.ends_between(address(host), address(peer)).last()
    }

    /// Buffers of these lengths, one behind the other with `bytes` in them.
    fn buffers(&mut self, lens: &[usize], bytes: &[u8]) -> Vec<UserBuf> {
        let mut at = 0;
        let mut buffer = |len: &usize| {
            at += len;
            self.memory.buffer(&bytes[at - len..at])
        };
        lens.iter().map(&mut buffer).collect()
    }

    fn learn(&mut self, host: Host, peer: Host) -> FiAddr {
        self.model.learned(host, peer);
        self.node(host).learn(address(peer))
    }

    fn send(&mut self, from: Host, to: Host, op: &Op) {
        let Op::Send {
            tag,
            data,
            segments,
            inject,
            completion,
            ack,
            ..
        } = op
        else {
            return;
        };
        // One sends only to peers in the address vector.
        let dest = self.learn(from, to);
        let context = self.model.context();
        let mut payload = vec![0; segments.iter().sum()];
        self.rng.fill(&mut payload);
        let number = (context as u32).to_le_bytes();
        let front = payload.len().min(number.len());
        payload[..front].copy_from_slice(&number[..front]);
        let iov = self.buffers(segments, &payload);
        let selective = self.setup.nodes[from].selective;
        let kind = tag.map_or(SendKind::Msg, SendKind::Tagged);
        let mut flags = Flags::empty();
        flags.set(Flags::COMPLETION, *completion && selective);
        flags.set(Flags::DELIVERY_COMPLETE, *ack);
        flags.set(Flags::INJECT, *inject);
        flags.set(Flags::MORE, self.rng.u8(..) < 20);
        let silent = *inject && !*completion && !*ack && iov.len() == 1;
        let given = (!flags.is_empty() || self.rng.bool()).then_some(flags);
        let ep = Arc::clone(&self.node(from).ep);
        let done = match silent {
            true => ep.inject(kind, iov[0], *data, dest),
            false => ep.send(kind, &iov, *data, dest, context, given),
        };
        if *inject && done.is_ok() {
            fill(&iov, !CANARY);
        }
        self.accepted(done, from, to).then(|| {
            let sent = Sent {
                host: from,
                to,
                tag: *tag,
                data: *data,
                payload,
                iov,
                completion: !silent && (*completion || !selective),
                ack: *ack,
            };
            self.model.sent(context, sent);
        });
        self.sync_or_not(from);
    }

    /// Whether an operation was accepted, or refused as it may be.
    fn accepted(&self, done: Result<()>, from: Host, to: Host) -> bool {
        match done {
            Ok(()) => true,
            Err(Errno::EAGAIN) => false,
            Err(error) => {
                assert!(self.model.is_troubled(from, to), "{error}");
                false
            }
        }
    }

    fn restart(&mut self, host: Host, quietly: bool) {
        let mut net = self.net.lock();
        match quietly {
            true => net.vanish(address(host)),
            false => net.kill(address(host)),
        }
        drop(net);
        self.vanished |= quietly;
        self.close(host, true);
        self.renew(host);
    }

    /// A process ends.
    fn close(&mut self, host: Host, dead: bool) {
        self.turns.turn.set(host);
        self.model.restarted(host, dead);
        self.claims.retain(|(owner, ..)| *owner != host);
        self.owners[host] = Owner::default();
        self.sided.restarted(host);
        self.exposed[host].close();
        drop(self.nodes[host].take());
        self.note_turns();
    }

    /// Another process takes the address of one that ended.
    fn renew(&mut self, host: Host) {
        self.nodes[host] = Some(self.open(host));
        self.learn_known(host);
        self.note_turns();
    }

    fn leave(&mut self, host: Host, done: bool, away: u32) {
        // What nobody receives may never be done.
        for _ in 0..PATIENCE {
            if !done || self.model.is_done(host) {
                break;
            }
            self.round();
        }
        self.sync(host);
        self.close(host, false);
        for _ in 0..away {
            self.round();
        }
        self.renew(host);
    }

    /// Reads what a node has completed, and tells the model; each read makes progress.
    fn sync(&mut self, host: Host) {
        loop {
            self.turns.turn.set(host);
            let Some(node) = &self.nodes[host] else {
                return;
            };
            let entries: Vec<Entry> = match node.read() {
                Some(entry) => vec![entry],
                None => self.owners[host].answer(node),
            };
            if entries.is_empty() {
                return;
            }
            for entry in entries {
                self.note(host, &entry);
            }
        }
    }

    /// After a post: makes progress, or leaves that to later, as in a burst of posts.
    fn sync_or_not(&mut self, host: Host) {
        if self.rng.u8(..) < 100 {
            self.sync(host);
        }
    }

    fn note(&mut self, host: Host, entry: &Entry) {
        if self.completed(host, entry) {
            return;
        }
        let node = self.nodes[host].as_ref().expect("it is not away");
        self.model.completed(host, node, entry);
    }

    /// Nodes make progress in any order, or time passes. Returns whether anything moved.
    fn round(&mut self) -> bool {
        let before = self.net.lock().moves();
        let first = self.rng.usize(..self.nodes.len());
        for step in 0..self.nodes.len() {
            let host = (first + step) % self.nodes.len();
            for _ in 0..self.rng.u32(1..4) {
                self.sync(host);
            }
            if self.net.lock().moves() != before && self.rng.bool() {
                return true;
            }
        }
        for host in 0..self.nodes.len() {
            self.catch_up(host);
        }
        self.net.lock().moves() != before || self.net.lock().advance()
    }

    /// All nodes make progress until they have asked their pollers, which also tell of ends that nobody
    /// waits for. Returns whether there is something to do again.
    fn look_again(&mut self) -> bool {
        let before = self.net.lock().moves();
        for host in 0..self.nodes.len() {
            (0..LOOKS).for_each(|_| self.sync(host));
        }
        let mut net = self.net.lock();
        net.moves() != before || net.advance()
    }

    /// A node makes progress until its domain has done what its poller tells of.
    fn catch_up(&mut self, host: Host) {
        for _ in 0..ENOUGH {
            match &self.nodes[host] {
                Some(node) if node.has_ready() => self.sync(host),
                _ => return,
            }
        }
        panic!("node {host} does not do what its poller tells of: a wake-up is lost");
    }

    /// Lets things take their course until nothing moves any more.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn settle(&mut self) {
        let (mut moves, mut last) = (0, 0);
        for _ in 0..200_000 {
            let any = self.round() || self.look_again();
            let net = self.net.lock();
            if net.moves() != moves {
                (moves, last) = (net.moves(), net.now());
            }
            // Timers may go on that have nothing to do.
            if !any || net.now() > last + REST {
                return;
            }
        }
        panic!("it does not come to rest at {}", self.net.lock().now());
    }

    /// Receives everything that waits, closes everything, and checks that nothing is left.
    pub fn finish(&mut self) {
        self.settle();
        if self.vanished {
            // Sooner or later the system notices that nobody is there.
            self.net.lock().reset_orphans();
            self.settle();
        }
        for host in 0..self.nodes.len() {
            for context in self.model.open_recvs(host) {
                self.cancel(host, context);
            }
            while self.claims.iter().any(|(owner, ..)| *owner == host) {
                let discard = self.rng.bool();
                self.claim(host, 0, 64, discard);
            }
        }
        self.settle();
        while self.receive_waiting() {
            self.settle();
        }
        // What a look had found may have gone with its connection before it was received.
        for host in 0..self.nodes.len() {
            let troubled = self.is_troubled(host);
            for context in self.model.open_recvs(host).into_iter().filter(|_| troubled) {
                self.cancel(host, context);
            }
        }
        self.settle();
        for host in 0..self.nodes.len() {
            for context in self.model.open_recvs(host) {
                self.model.found_silent(context);
            }
            let counted = self.setup.nodes[host].counted;
            let node = self.nodes[host].as_ref().expect("all are back");
            self.model.check_over(host, node, counted);
            self.check_exposed(host);
        }
        for host in 0..self.nodes.len() {
            self.close(host, true);
        }
        self.memory.assert_guards();
    }

    /// A sum of all that went over the network, and when.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.net.lock().digest
    }
}
