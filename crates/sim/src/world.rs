//! Programs of posts on several nodes, in any interleaving, checked by the model.

mod onesided;

use std::collections::{HashMap, HashSet};

use fastrand::Rng;
use ripstop_engine::Iov;
use ripstop_engine::matching::{ENTRY, Recv, Want};
use ripstop_engine::stream::{RecvFlags, Send};
use ripstop_types::{Errno, FiAddr, Flags};

use crate::memory::SimBuf;
use crate::model::onesided::OneSided as Sided;
use crate::model::{CANARY, Facts, Host, Model};
use crate::network::{End, Nanos, Network, Timing};
use crate::node::{Entry, Event, Node, NodeConfig};

pub use onesided::{MARKED, Manner, OneSided, STRIPE, SWAPPED, Wrong};

/// Rounds in which a process that leaves waits for its completions.
const PATIENCE: u32 = 200;

/// One step of a program. Hosts are taken modulo their number.
#[derive(Clone, Debug)]
pub enum Op {
    /// Posts a message.
    Send {
        /// Who sends.
        from: Host,
        /// To whom; may be the same.
        to: Host,
        /// Its tag, if tagged.
        tag: Option<u64>,
        /// Remote CQ data.
        data: Option<u64>,
        /// Length of each segment.
        segments: Vec<usize>,
        /// The buffer is free when the call returns.
        inject: bool,
        /// Ask for a completion.
        completion: bool,
        /// Wait for the acknowledgement.
        ack: bool,
    },
    /// Posts a receive.
    Recv {
        /// Who.
        host: Host,
        /// Tag and ignored bits, if tagged.
        tag: Option<(u64, u64)>,
        /// The only source.
        src: Option<Host>,
        /// Length of each segment.
        segments: Vec<usize>,
        /// Ask for a completion.
        completion: bool,
        /// Several messages into one buffer.
        multi: bool,
    },
    /// Looks for a message.
    Peek {
        /// Who.
        host: Host,
        /// Tag and ignored bits, if tagged.
        tag: Option<(u64, u64)>,
        /// The only source.
        src: Option<Host>,
        /// Set it aside.
        claim: bool,
        /// Drop it.
        discard: bool,
    },
    /// Receives or drops a message set aside.
    Claim {
        /// Who.
        host: Host,
        /// Which of those set aside.
        which: usize,
        /// Length of the buffer.
        len: usize,
        /// Drop it.
        discard: bool,
    },
    /// Cancels a receive.
    Cancel {
        /// Who.
        host: Host,
        /// Which of those posted.
        which: usize,
    },
    /// Reads or changes the memory of a host.
    OneSided(Manner, OneSided),
    /// Takes a region of memory away from the others.
    Hide {
        /// Whose.
        host: Host,
    },
    /// Puts a peer into the address vector.
    Learn {
        /// Whose.
        host: Host,
        /// Which peer.
        peer: Host,
    },
    /// Cuts the stream from one node to another after some more bytes.
    Cut {
        /// Towards whom.
        host: Host,
        /// From whom.
        peer: Host,
        /// How many bytes still come through.
        after: u64,
    },
    /// Holds back what comes from a peer.
    Stall {
        /// Towards whom.
        host: Host,
        /// From whom.
        peer: Host,
        /// For how long.
        time: Nanos,
    },
    /// A process dies and another takes its address.
    Restart {
        /// Which.
        host: Host,
        /// Its peers are not told.
        quietly: bool,
    },
    /// A process ends, or closes its endpoint, and comes back under its address.
    Leave {
        /// Which.
        host: Host,
        /// It makes progress until all it was promised a completion for has one.
        done: bool,
        /// The process stays the same: it closes its endpoint and opens another.
        reopens: bool,
        /// For how many rounds it is away.
        away: u32,
    },
    /// Lets things take their course for a while.
    Run(u32),
}

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

/// Nodes, the network between them, and the model of what they must do.
#[derive(Debug)]
pub struct World {
    /// The network.
    pub net: Network,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The model.
    pub model: Model,
    /// Contexts of messages set aside, by node.
    claims: Vec<(Host, usize, Want)>,
    /// What reads, writes and atomics must do.
    sided: Sided,
    /// What each node lets others reach.
    exposed: Vec<onesided::Exposed>,
    /// Buffers of operations that are under way, by context.
    lent: HashMap<usize, Iov<SimBuf>>,
    rng: Rng,
    pids: u32,
    /// Nodes that did not end well: their peers may hold streams to nobody.
    vanished: bool,
    /// Messages that were put on a stream, by context, and the end they were written at.
    staged: HashMap<usize, End>,
    /// Messages that were reported as sent: they arrive, if who gets them lives.
    reported: Vec<usize>,
    /// Ends of streams whose process has left.
    left: HashSet<End>,
    /// No stream was cut, and nobody died without being able to finish what the system does.
    lossless: bool,
}

/// The address of a node.
#[must_use]
pub fn address(host: Host) -> u32 {
    host as u32 + 1
}

impl World {
    /// A world in which nothing has happened.
    #[must_use]
    pub fn new(setup: &Setup) -> Self {
        let mut rng = Rng::with_seed(setup.seed);
        let mut net = Network::new(setup.timing, rng.u64(..));
        let mut nodes = Vec::new();
        for (host, config) in setup.nodes.iter().enumerate() {
            let pid = 100 + host as u32;
            nodes.push(Node::new(address(host), pid, config.clone(), rng.u64(..)));
            net.listen(address(host));
        }
        let facts = setup.nodes.iter().enumerate().map(|(host, config)| Facts {
            address: address(host),
            directed: config.directed,
            source_err: config.source_err,
            counted: config.counted,
            min_multi_recv: config.min_multi_recv,
        });
        let mut model = Model::new(facts);
        // Errors that belong to no operation any more have context 0.
        model.context();
        let hosts = nodes.len();
        let exposed = nodes.iter_mut();
        let exposed = exposed.map(|node| onesided::Exposed::new(node, hosts));
        let exposed = exposed.collect();
        for (host, config) in setup.nodes.iter().enumerate() {
            for peer in &config.known {
                model.learned(host, *peer);
            }
        }
        Self {
            net,
            nodes,
            model,
            claims: Vec::new(),
            sided: Sided::new(hosts),
            exposed,
            lent: HashMap::new(),
            rng,
            pids: 1000,
            vanished: false,
            staged: HashMap::new(),
            reported: Vec::new(),
            left: HashSet::new(),
            lossless: true,
        }
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
            Op::Send {
                from,
                to,
                tag,
                data,
                segments,
                inject,
                completion,
                ack,
            } => {
                let from = self.host(*from);
                let iov = self.buffers(from, segments, true);
                let send = Send {
                    tag: *tag,
                    data: *data,
                    iov,
                    context: self.model.context(),
                    completion: *completion,
                    inject: *inject,
                    ack: *ack,
                    work: false,
                };
                self.send(from, self.host(*to), &send);
            }
            Op::Recv {
                host,
                tag,
                src,
                segments,
                completion,
                multi,
            } => {
                let host = self.host(*host);
                let want = self.want(host, *tag, *src);
                let iov = self.buffers(host, segments, false);
                let mut recv = Recv::new(iov, want, self.model.context());
                recv.completion = *completion;
                recv.multi = *multi;
                self.post(host, recv);
            }
            Op::Peek {
                host,
                tag,
                src,
                claim,
                discard,
            } => {
                let host = self.host(*host);
                let want = self.want(host, *tag, *src);
                self.peek(host, want, *claim, *discard);
            }
            Op::Claim {
                host,
                which,
                len,
                discard,
            } => self.claim(self.host(*host), *which, *len, *discard),
            Op::Cancel { host, which } => self.cancel(self.host(*host), *which),
            Op::OneSided(manner, op) => {
                // A peer without our extensions ends the connection where it denies something.
                self.lossless = false;
                self.perform_onesided(manner, op);
            }
            Op::Hide { host } => self.hide(self.host(*host)),
            Op::Learn { host, peer } => self.learn(self.host(*host), self.host(*peer)),
            Op::Cut { host, peer, after } => {
                if let Some(end) = self.end(*host, *peer) {
                    self.lossless = false;
                    self.net.cut_after(end, *after);
                }
            }
            Op::Stall { host, peer, time } => {
                if let Some(end) = self.end(*host, *peer) {
                    self.net.stall(end, *time);
                }
            }
            Op::Leave {
                host,
                done,
                reopens,
                away,
            } => self.leave(self.host(*host), *done, *reopens, *away),
            Op::Restart { host, quietly } => self.restart(self.host(*host), *quietly),
            Op::Run(rounds) => {
                for _ in 0..*rounds {
                    self.round();
                }
            }
        }
    }

    fn end(&self, host: Host, peer: Host) -> Option<usize> {
        let peer = address(self.host(peer));
        self.nodes[self.host(host)].end_of(peer)
    }

    /// Buffers of these lengths: with something to send, or to receive into.
    fn buffers(&mut self, host: Host, segments: &[usize], full: bool) -> Iov<SimBuf> {
        let memory = &mut self.nodes[host].memory;
        let segments: Vec<SimBuf> = segments
            .iter()
            .map(|len| {
                let mut bytes = vec![CANARY; *len];
                if full {
                    self.rng.fill(&mut bytes);
                }
                memory.guarded(bytes, CANARY)
            })
            .collect();
        Iov::new(&segments).expect("at most four segments")
    }

    fn want(&self, host: Host, tag: Option<(u64, u64)>, src: Option<Host>) -> Want {
        let src = src.map_or(FiAddr::UNSPEC, |src| {
            self.nodes[host].fi_addr(address(self.host(src)))
        });
        Want { tag, src }
    }

    fn send(&mut self, from: Host, to: Host, send: &Send<SimBuf>) {
        let payload = self.nodes[from].memory.gather(&send.iov);
        // One sends only to peers in the address vector.
        self.learn(from, to);
        let node = &mut self.nodes[from];
        match node.send(&mut self.net, address(to), send) {
            Ok(()) => {
                self.model.sent(from, send, payload);
                if send.inject {
                    let memory = &mut self.nodes[from].memory;
                    for buf in send.iov.segments() {
                        memory.bytes_mut(*buf).fill(!CANARY);
                    }
                }
            }
            Err(error) => assert!(matches!(error, Errno::EAGAIN | Errno::ENOMEM)),
        }
        self.sync(from);
    }

    fn post(&mut self, host: Host, recv: Recv<SimBuf>) {
        if self.nodes[host].post_recv(&mut self.net, recv).is_ok() {
            self.model.posted(host, &recv);
        }
        self.sync(host);
    }

    fn peek(&mut self, host: Host, want: Want, claim: bool, discard: bool) {
        let context = self.model.context();
        let flags = RecvFlags {
            peek: true,
            claim,
            discard,
        };
        if self.model.peeked(host, &want, context, flags) && claim && !discard {
            self.claims.push((host, context, want));
        }
        self.nodes[host].peek(&mut self.net, want, context, flags);
        self.sync(host);
    }

    fn claim(&mut self, host: Host, which: usize, len: usize, discard: bool) {
        let claims = self.claims.iter().enumerate();
        let own: Vec<usize> = claims
            .filter(|(_, (owner, ..))| *owner == host)
            .map(|(index, _)| index)
            .collect();
        let (context, want) = match own.get(which % own.len().max(1)) {
            Some(index) => {
                let (_, context, want) = self.claims.remove(*index);
                (context, want)
            }
            // Nothing is set aside for this one.
            None => (self.model.context(), self.want(host, Some((0, 1)), None)),
        };
        let iov = self.buffers(host, &[len], false);
        let recv = Recv::new(iov, want, context);
        let flags = RecvFlags {
            peek: false,
            claim: true,
            discard,
        };
        let found = self.model.claimed(host, &recv, flags);
        let outcome = self.nodes[host].claim(&mut self.net, recv, flags);
        assert_eq!(outcome, if found { Ok(()) } else { Err(Errno::ENOMSG) });
        self.sync(host);
    }

    fn cancel(&mut self, host: Host, which: usize) {
        let posted = self.model.posted_contexts(host);
        let context = match posted.get(which % posted.len().max(1)) {
            Some(context) => *context,
            None => self.model.context(),
        };
        let found = self.model.cancelled(host, context);
        let outcome = self.nodes[host].cancel(context);
        assert_eq!(outcome, if found { Ok(()) } else { Err(Errno::ENOENT) });
        self.sync(host);
    }

    fn learn(&mut self, host: Host, peer: Host) {
        self.nodes[host].learn(address(peer));
        self.model.learned(host, address(peer));
    }

    fn restart(&mut self, host: Host, quietly: bool) {
        let address = address(host);
        self.lossless = false;
        if quietly {
            self.net.vanish(address);
            self.vanished = true;
        } else {
            self.net.kill(address);
        }
        self.pids += 1;
        self.renew(host, self.pids);
        self.net.listen(address);
    }

    /// Another endpoint takes the address of a node.
    fn renew(&mut self, host: Host, pid: u32) {
        let config = self.nodes[host].config().clone();
        self.nodes[host] = Node::new(address(host), pid, config, self.rng.u64(..));
        self.model.restarted(host);
        self.sided.restarted(host);
        let hosts = self.nodes.len();
        // What was not sent yet may reach the new one: its bits and names are not given again.
        self.exposed[host].again(&mut self.nodes[host], hosts);
        self.claims.retain(|(owner, ..)| *owner != host);
    }

    fn leave(&mut self, host: Host, done: bool, reopens: bool, away: u32) {
        // What nobody receives may never be done.
        for _ in 0..PATIENCE {
            if !done || self.model.is_done(host) {
                break;
            }
            self.round();
        }
        let flushed: HashSet<End> = self.nodes[host].flushed().collect();
        for (context, end) in &self.staged {
            if flushed.contains(end) && self.model.is_injected(host, *context) {
                self.reported.push(*context);
            }
        }
        self.left.extend(self.net.leave(address(host)));
        let pid = match reopens {
            true => self.nodes[host].pid(),
            false => {
                self.pids += 1;
                self.pids
            }
        };
        self.renew(host, pid);
        for _ in 0..away {
            self.round();
        }
        self.net.listen(address(host));
    }

    /// What was reported as sent has arrived, if who gets it has not left.
    fn check_reported(&self) {
        for context in &self.reported {
            let end = self.staged.get(context).expect("it was on a stream");
            assert!(
                self.left.contains(&(end ^ 1)) || self.model.is_delivered(*context),
                "message {context} was reported and is lost"
            );
        }
    }

    /// Tells the model what happened in a node, and compares.
    fn sync(&mut self, host: Host) {
        for event in self.nodes[host].take_events() {
            match event {
                Event::Staged { end, context, .. } if !self.sided.has(context) => {
                    self.staged.insert(context, end);
                }
                Event::Completed(Entry::Success(done)) if done.flags.contains(Flags::SEND) => {
                    self.reported.push(done.context);
                }
                _ => {}
            }
            match event {
                Event::Staged { conn, context, .. } if self.sided.has(context) => {
                    self.sided.staged(host, conn, context);
                }
                Event::Deferred { context, .. } if self.sided.has(context) => {}
                Event::Completed(entry) if self.completed(host, &entry) => {}
                event => {
                    if let Event::Closed { conn, .. } = event {
                        self.sided.closed(host, conn);
                    }
                    self.model.happened(host, &mut self.nodes[host], event);
                }
            }
        }
        self.model.check(host, &mut self.nodes[host]);
    }

    /// An operation that is no message has ended, or completion data of one came; returns
    /// whether it was one.
    fn completed(&mut self, host: Host, entry: &Entry) -> bool {
        let Some(done) = self.sided.completed(host, &self.nodes[host], entry) else {
            return false;
        };
        if let Some(context) = done {
            let target = self.sided.target(context);
            let regions = &self.exposed[target].regions;
            self.sided.check_done(context, &self.nodes[target], regions);
        }
        if let Entry::Success(completion) = entry
            && let Some(local) = self.lent.remove(&completion.context)
        {
            self.overwrite(host, &local);
        }
        true
    }

    /// One node makes progress, or time passes. Returns whether anything moved.
    fn round(&mut self) -> bool {
        let first = self.rng.usize(..self.nodes.len());
        let mut moved = self.net.refuse();
        for step in 0..self.nodes.len() {
            let host = (first + step) % self.nodes.len();
            moved |= self.nodes[host].progress(&mut self.net);
            self.sync(host);
            if moved && self.rng.bool() {
                return true;
            }
        }
        if moved {
            return true;
        }
        let timers = self.nodes.iter().filter_map(Node::next_timer);
        let timer = timers.min();
        self.net.advance(timer)
    }

    /// Lets things take their course until nothing moves any more.
    ///
    /// # Panics
    /// If that does not happen.
    pub fn settle(&mut self) {
        for _ in 0..200_000 {
            if !self.round() {
                return self.assert_rightly_blocked();
            }
        }
        panic!("it does not come to rest at {}", self.net.now());
    }

    /// Asserts that what is kept is accounted for, and that no stream is held up by a message
    /// there would be room for.
    fn assert_rightly_blocked(&self) {
        for (host, node) in self.nodes.iter().enumerate() {
            let limits = node.config().limits;
            let mut kept = self.model.kept(host);
            let mut next = Vec::new();
            for end in node.blocked() {
                let last = kept.iter().rposition(|(other, _)| *other == end);
                next.push(kept.remove(last.expect("it is blocked on something")));
            }
            let all: u64 = kept.iter().map(|(_, len)| len + ENTRY).sum();
            assert_eq!(node.engine.kept(), all);
            for (end, len) in next {
                let own = kept.iter().filter(|(other, _)| *other == end);
                let count = own.clone().count() as u32;
                let bytes: u64 = own.map(|(_, len)| len + ENTRY).sum();
                let full = count >= limits.kept_messages
                    || bytes + len + ENTRY > limits.kept_bytes
                    || all + len + ENTRY > limits.kept_total;
                let short = node.config().shortage > 0;
                assert!(
                    full || short,
                    "blocked with {count}, {bytes} bytes of {all}"
                );
            }
        }
    }

    /// Receives everything that waits, closes everything, and checks that nothing is left.
    pub fn finish(&mut self) {
        self.settle();
        if self.vanished {
            // Sooner or later the system notices that nobody is there.
            self.net.reset_orphans();
            self.settle();
        }
        for host in 0..self.nodes.len() {
            while !self.model.posted_contexts(host).is_empty() {
                self.cancel(host, 0);
            }
            while self.claims.iter().any(|(owner, ..)| *owner == host) {
                let discard = self.rng.bool();
                self.claim(host, 0, 64, discard);
            }
        }
        self.settle();
        self.receive_the_rest();
        if self.lossless {
            self.check_reported();
        }
        for host in 0..self.nodes.len() {
            self.model.check_over(host, &mut self.nodes[host]);
            self.check_exposed(host);
        }
        for host in 0..self.nodes.len() {
            self.nodes[host].close_all(&mut self.net, Errno::ESHUTDOWN);
            self.sync(host);
            self.nodes[host].assert_empty();
            self.nodes[host].memory.assert_guards(CANARY);
        }
    }

    fn receive_the_rest(&mut self) {
        loop {
            let mut any = false;
            for host in 0..self.nodes.len() {
                while let Some((tag, _)) = self.model.waiting(host).first() {
                    any = true;
                    let segments = vec![self.rng.usize(..3000)];
                    self.perform(&Op::Recv {
                        host,
                        tag: tag.map(|_| (0, u64::MAX)),
                        src: None,
                        segments,
                        completion: true,
                        multi: false,
                    });
                }
            }
            self.settle();
            if !any {
                return;
            }
        }
    }
}
