//! What the interface promises of messages (man pages `fi_msg(3)`, `fi_tagged(3)`, `fi_cq(3)`,
//! `fi_cntr(3)`), held against what programs see: posts, completions, buffers and counters.
//!
//! * Every operation ends once: with a completion, or an error that says why; what asked for no
//!   completion ends silently.
//! * What a receive gets are the bytes of one message that it accepts, from their start, and nothing
//!   else of the buffer changes. No message is received twice.
//! * Of two messages from one process that a receive accepts, the first is received by an earlier
//!   receive than the second, and of two receives that accept a message the first one gets it.
//! * A message arrives unless its stream was cut or one of the two processes is gone. One that was
//!   reported as sent arrives although its sender has left.
//!
//! Payloads begin with the number of their message, as far as there is room. Where that does not
//! tell which message it is, any that it can be is right, as long as none is taken twice or missing:
//! see `sightings`.

pub mod onesided;
mod sightings;

use std::collections::{HashMap, HashSet};

use ripstop_core::Address;
use ripstop_mem::UserBuf;
use ripstop_types::{Completion, Errno, FiAddr, Flags};

use crate::memory::{CANARY, fill, read};
use crate::node::{Entry, Node};
use crate::transport::socket_addr;

use sightings::Sightings;

/// A node, by its place among the nodes of the world.
pub type Host = usize;

/// The address of a node.
#[must_use]
pub const fn address(host: Host) -> u16 {
    host as u16 + 1
}

/// A message that was accepted. Its place among all operations is its context.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Who sent it.
    pub host: Host,
    /// To whom.
    pub to: Host,
    /// Its tag, if it is tagged.
    pub tag: Option<u64>,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// Its bytes.
    pub payload: Vec<u8>,
    /// Where they are.
    pub iov: Vec<UserBuf>,
    /// It has a completion.
    pub completion: bool,
    /// That says that the peer has it.
    pub ack: bool,
}

/// A receive that was posted.
#[derive(Clone, Debug)]
pub struct Posted {
    /// Who posted it.
    pub host: Host,
    /// Tag and ignored bits, if it is tagged.
    pub tag: Option<(u64, u64)>,
    /// The only source.
    pub src: Option<Host>,
    /// Where the message goes.
    pub iov: Vec<UserBuf>,
    /// It has a completion.
    pub completion: bool,
    /// It takes several messages.
    pub multi: bool,
    /// It is of a message that was set aside.
    pub claim: bool,
}

#[derive(Clone, Debug)]
enum Kind {
    /// Nothing that ends; never accepted, or ended elsewhere.
    None,
    Sent(Sent),
    Posted(Posted),
    /// A look for a message: of whom, what tag, and whether it is set aside and dropped.
    Peek(Posted, bool, bool),
}

#[derive(Clone, Debug)]
struct Known {
    kind: Kind,
    /// The lives of who posted it, and of the peer of a message.
    lives: [u32; 2],
    /// It ended, well or not.
    ended: Option<bool>,
    cancelled: bool,
    /// A message that the receiver never gets, as it was cancelled before it was sent.
    unsent: bool,
}

#[derive(Clone, Debug, Default)]
struct HostState {
    life: u32,
    /// Since which operation it knows others.
    known: HashMap<Host, usize>,
    /// Errors counted of sends; successes and errors of receives.
    counted: [u64; 3],
    /// Receives that were cancelled, and may have failed before: their errors may be counted.
    cancelled_late: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Model {
    ops: Vec<Known>,
    hosts: Vec<HostState>,
    /// What was seen of messages at those to whom they were sent.
    sightings: Sightings,
    /// Of these two a stream was cut, or one died.
    cut: HashSet<(Host, Host)>,
    /// Hosts that were away.
    left: HashSet<Host>,
}

/// A message, the receive that got it, the place of that among all operations, and where in its buffer.
type Match<'a> = (&'a Sent, &'a Posted, usize, usize);

fn flags_of(tag: bool) -> Flags {
    match tag {
        true => Flags::TAGGED,
        false => Flags::MSG,
    }
}

fn accepts(recv: &Posted, sent: &Sent) -> bool {
    let from = recv.src.is_none_or(|src| src == sent.host);
    from && match (recv.tag, sent.tag) {
        (None, None) => true,
        (Some((wanted, ignore)), Some(tag)) => (wanted ^ tag) & !ignore == 0,
        _ => false,
    }
}

impl Model {
    /// A model of so many nodes.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        let mut model = Self {
            hosts: vec![HostState::default(); hosts],
            ..Self::default()
        };
        // Errors that belong to no operation any more have context 0.
        model.context();
        model
    }

    /// A context nobody uses.
    pub fn context(&mut self) -> usize {
        self.ops.push(Known {
            kind: Kind::None,
            lives: [0; 2],
            ended: None,
            cancelled: false,
            unsent: false,
        });
        self.ops.len() - 1
    }

    /// How often a host was started again.
    #[must_use]
    pub fn life(&self, host: Host) -> u32 {
        self.hosts[host].life
    }

    fn put(&mut self, context: usize, kind: Kind, host: Host, peer: Host) {
        self.ops[context] = Known {
            kind,
            lives: [self.life(host), self.life(peer)],
            ended: None,
            cancelled: false,
            unsent: false,
        };
    }

    /// A message was accepted.
    pub fn sent(&mut self, context: usize, sent: Sent) {
        let (host, to) = (sent.host, sent.to);
        self.put(context, Kind::Sent(sent), host, to);
    }

    /// A receive was accepted.
    pub fn posted(&mut self, context: usize, recv: Posted) {
        let host = recv.host;
        self.put(context, Kind::Posted(recv), host, host);
    }

    /// A look for a message was accepted.
    pub fn peeked(&mut self, context: usize, what: Posted, claim: bool, discard: bool) {
        let host = what.host;
        self.put(context, Kind::Peek(what, claim, discard), host, host);
    }

    /// A receive or a send was cancelled. A message that had not failed was not sent then.
    pub fn cancelled(&mut self, context: usize) {
        let known = &self.ops[context];
        let unsent = match &known.kind {
            Kind::Sent(sent) => !self.is_troubled(sent.host, sent.to),
            _ => false,
        };
        let known = &mut self.ops[context];
        (known.cancelled, known.unsent) = (true, unsent);
    }

    /// A host knows another from now on.
    pub fn learned(&mut self, host: Host, peer: Host) {
        let now = self.ops.len();
        self.hosts[host].known.entry(peer).or_insert(now);
    }

    /// A stream between two hosts is cut.
    pub fn cut(&mut self, a: Host, b: Host) {
        self.cut.extend([(a, b), (b, a)]);
    }

    /// A process is gone, and another takes its address; `dead` if it had no time to finish.
    pub fn restarted(&mut self, host: Host, dead: bool) {
        self.left.insert(host);
        for other in (0..self.hosts.len()).filter(|_| dead) {
            self.cut(host, other);
        }
        let life = self.hosts[host].life + 1;
        self.hosts[host] = HostState {
            life,
            ..HostState::default()
        };
    }

    /// Whether operations between two hosts may fail.
    #[must_use]
    pub fn is_troubled(&self, a: Host, b: Host) -> bool {
        self.cut.contains(&(a, b)) || self.left.contains(&a) || self.left.contains(&b)
    }

    /// The receives of a host that have not ended, as far as is known.
    #[must_use]
    pub fn open_recvs(&self, host: Host) -> Vec<usize> {
        let life = self.life(host);
        let open = |known: &Known| {
            let own = matches!(&known.kind, Kind::Posted(recv) if recv.host == host && !recv.claim);
            own && known.lives[0] == life && known.ended.is_none() && !known.cancelled
        };
        let ops = self.ops.iter().enumerate();
        ops.filter(|(_, known)| open(known))
            .map(|(context, _)| context)
            .collect()
    }

    /// The sends of a host that have not ended, as far as is known.
    #[must_use]
    pub fn open_sends(&self, host: Host) -> Vec<usize> {
        let life = self.life(host);
        let open = |known: &Known| {
            let own = matches!(&known.kind, Kind::Sent(sent) if sent.host == host);
            own && known.lives[0] == life && known.ended.is_none() && !known.cancelled
        };
        let ops = self.ops.iter().enumerate();
        ops.filter(|(_, known)| open(known))
            .map(|(context, _)| context)
            .collect()
    }

    /// Whether all sends of a host that complete have.
    #[must_use]
    pub fn is_done(&self, host: Host) -> bool {
        self.unfinished(host).next().is_none()
    }

    /// Whether an operation has ended, and how.
    #[must_use]
    pub fn outcome(&self, context: usize) -> Option<bool> {
        self.ops[context].ended
    }

    fn unfinished(&self, host: Host) -> impl Iterator<Item = (usize, &Known)> {
        let life = self.life(host);
        let own = move |known: &Known| match &known.kind {
            Kind::Sent(sent) => sent.host == host && (sent.completion || known.cancelled),
            Kind::Peek(what, ..) => what.host == host,
            Kind::Posted(recv) => {
                recv.host == host && (recv.claim && recv.completion || known.cancelled)
            }
            Kind::None => false,
        };
        let ops = self.ops.iter().enumerate();
        ops.filter(move |(_, known)| own(known) && known.lives[0] == life && known.ended.is_none())
    }

    /// Takes an entry of a completion queue.
    ///
    /// # Panics
    /// If it should not have come.
    pub fn completed(&mut self, host: Host, node: &Node, entry: &Entry) {
        let completion = *entry.completion();
        if completion.context == 0 && completion.flags.contains(Flags::SEND) {
            // Of a message that was injected, whose call has no context.
            let troubled = (0..self.hosts.len()).any(|to| self.is_troubled(host, to));
            let failed = matches!(entry, Entry::Failure(..));
            assert!(failed && troubled, "a completion of nothing: {entry:?}");
            self.hosts[host].counted[0] += 1;
            return;
        }
        let known = self.ops.get(completion.context);
        let known = known.unwrap_or_else(|| panic!("a completion of nothing: {entry:?}"));
        assert!(
            known.ended.is_none(),
            "it ended before: {entry:?} of {known:?}"
        );
        assert_eq!(
            known.lives[0],
            self.life(host),
            "of an earlier life: {entry:?}"
        );
        let error = match entry {
            Entry::Success(_) => None,
            Entry::Failure(error, data) => {
                assert_eq!(error.prov_errno, error.err.0, "{entry:?}");
                Some((error.err, error.olen, data.as_slice()))
            }
        };
        match known.kind.clone() {
            Kind::None => panic!("a completion of nothing: {entry:?}"),
            Kind::Sent(sent) => self.send_ended(host, &sent, &completion, error),
            Kind::Posted(recv) => self.recv_ended(node, recv, &completion, error),
            Kind::Peek(what, claim, discard) => {
                self.peek_ended(node, &what, (claim, discard), &completion, error);
            }
        }
    }

    fn send_ended(
        &mut self,
        host: Host,
        sent: &Sent,
        entry: &Completion,
        error: Option<(Errno, usize, &[u8])>,
    ) {
        assert_eq!(sent.host, host, "{entry:?}");
        let flags = Flags::SEND | flags_of(sent.tag.is_some());
        assert_eq!(*entry, blank(entry.context, flags), "of {sent:?}");
        match error {
            None => assert!(sent.completion, "nobody asked for it: {entry:?}"),
            Some((error, olen, peer)) => {
                let cancelled = error == Errno::ECANCELED && self.ops[entry.context].cancelled;
                let may_fail = cancelled || self.is_troubled(host, sent.to);
                assert!(may_fail, "{error} for {sent:?}");
                assert_eq!((olen, peer), (0, &name(sent.to)[..]), "{entry:?}");
                self.hosts[host].counted[0] += 1;
            }
        }
        // The buffer is the program's again.
        fill(&sent.iov, !CANARY);
        self.ops[entry.context].ended = Some(error.is_none());
    }

    /// The messages that a receive accepts and that look right.
    fn which(&self, recv: &Posted, looks: impl Fn(usize, &Sent) -> bool) -> Vec<usize> {
        let ops = self.ops.iter().enumerate();
        ops.filter_map(|(at, known)| match &known.kind {
            Kind::Sent(sent) if !known.unsent => {
                (sent.to == recv.host && accepts(recv, sent) && looks(at, sent)).then_some(at)
            }
            _ => None,
        })
        .collect()
    }

    /// Whether a message is as an entry says, of this length, and begins so.
    fn fits(
        &self,
        node: &Node,
        (message, sent): (usize, &Sent),
        entry: &Completion,
        len: usize,
        front: &[u8],
    ) -> bool {
        let known = self.hosts[sent.to].known.get(&sent.host);
        let knows = known.is_some_and(|since| *since <= message);
        let from = node.fi_addr(address(sent.host));
        let tag = sent.tag.unwrap_or_default();
        (entry.src == from || entry.src == FiAddr::NOTAVAIL && !knows)
            && flags_of(sent.tag.is_some()) == entry.flags & (Flags::TAGGED | Flags::MSG)
            && (tag, sent.data.unwrap_or_default()) == (entry.tag, entry.data)
            && sent.data.is_some() == entry.flags.contains(Flags::REMOTE_CQ_DATA)
            && sent.payload.len() == len
            && sent.payload.starts_with(front)
    }

    /// A receive got one of these messages, at this place of its buffer, or a look dropped it or set
    /// it aside. Returns whether that can be.
    fn see(&mut self, recv: &Posted, context: usize, at: usize, may_be: &[usize]) -> bool {
        match recv.claim {
            true => self.sightings.see_again(context, may_be),
            false => self.sightings.see(context, at, may_be),
        }
    }

    fn recv_ended(
        &mut self,
        node: &Node,
        recv: Posted,
        entry: &Completion,
        error: Option<(Errno, usize, &[u8])>,
    ) {
        let (host, context) = (recv.host, entry.context);
        let released = !recv.multi || entry.flags.contains(Flags::MULTI_RECV);
        let kind = Flags::RECV | flags_of(recv.tag.is_some());
        assert!(entry.flags.contains(kind), "{entry:?} of {recv:?}");
        let olen = match error {
            None => 0,
            Some((Errno::ETRUNC, olen, _)) => olen,
            Some((Errno::EADDRNOTAVAIL, ..)) if entry.src == FiAddr::NOTAVAIL => 0,
            // Of the program: the end of a connection, which may have the same code, names a peer.
            Some((Errno::ECANCELED, _, [])) if self.ops[context].cancelled => {
                self.ops[context].ended = Some(false);
                self.hosts[host].cancelled_late += u64::from(self.may_fail(&recv));
                return;
            }
            Some((error, ..)) => {
                assert!(self.may_fail(&recv), "{error} for {recv:?}");
                self.hosts[host].counted[2] += 1;
                if released {
                    self.ops[context].ended = Some(false);
                }
                return;
            }
        };
        assert!(
            recv.completion || error.is_some() || recv.multi && released,
            "nobody asked for it: {entry:?}"
        );
        let at = match recv.multi {
            true => entry.buf - recv.iov[0].addr(),
            false => 0,
        };
        let whole = read(&recv.iov);
        let front = &whole[at..at + entry.len];
        let may_be = self.which(&recv, |message, sent| {
            error.is_none_or(|(_, _, peer)| peer == name(sent.host))
                && self.fits(node, (message, sent), entry, entry.len + olen, front)
        });
        assert!(
            self.see(&recv, context, at, &may_be),
            "none of {may_be:?} is left for {entry:?}, {error:?}, {front:x?} of {recv:?}"
        );
        if olen > 0 {
            assert_eq!(
                at + entry.len,
                whole.len(),
                "cut off though there is room: {entry:?}"
            );
        }
        self.hosts[host].counted[if olen > 0 { 2 } else { 1 }] += 1;
        if !recv.multi {
            let rest = &whole[entry.len..];
            assert!(
                rest.iter().all(|byte| *byte == CANARY),
                "bytes behind the message: {entry:?}"
            );
        }
        if released {
            self.ops[context].ended = Some(true);
        }
    }

    /// Whether a receive may fail, as a host has trouble with one that may send to it.
    fn may_fail(&self, recv: &Posted) -> bool {
        let mut from = (0..self.hosts.len()).filter(|from| recv.src.is_none_or(|src| src == *from));
        from.any(|from| self.is_troubled(from, recv.host))
    }

    fn peek_ended(
        &mut self,
        node: &Node,
        what: &Posted,
        (claim, discard): (bool, bool),
        entry: &Completion,
        error: Option<(Errno, usize, &[u8])>,
    ) {
        let context = entry.context;
        self.ops[context].ended = Some(error.is_none());
        if let Some((error, ..)) = error {
            return assert_eq!(error, Errno::ENOMSG, "{entry:?}");
        }
        let may_be = self.which(what, |message, sent| {
            self.fits(node, (message, sent), entry, entry.len, &[])
        });
        let waits = match claim || discard {
            true => self.see(what, context, 0, &may_be),
            false => self.sightings.is_left(&may_be),
        };
        assert!(waits, "none of {may_be:?} is left for {entry:?}");
        if !claim && !discard {
            self.ops[context].kind = Kind::None;
        }
    }

    /// A receive that asked for no completion is not posted any more: it has got a message.
    ///
    /// # Panics
    /// If its buffer holds none.
    pub fn found_silent(&mut self, context: usize) {
        let Kind::Posted(recv) = self.ops[context].kind.clone() else {
            panic!("{context} is no receive");
        };
        assert!(!recv.completion, "it ended without a completion: {recv:?}");
        let whole = read(&recv.iov);
        let may_be = self.which(&recv, |_, sent| {
            let rest = whole.strip_prefix(&sent.payload[..]);
            rest.is_some_and(|rest| rest.iter().all(|byte| *byte == CANARY))
        });
        assert!(
            self.see(&recv, context, 0, &may_be),
            "none of {may_be:?} is left for {recv:?}"
        );
        self.hosts[recv.host].counted[1] += 1;
        self.ops[context].ended = Some(true);
    }

    /// Checks that everything has ended once and in order, now that nothing moves.
    ///
    /// # Panics
    /// If it has not.
    pub fn check_over(&self, host: Host, node: &Node, counted: bool) {
        let unfinished: Vec<_> = self.unfinished(host).collect();
        assert!(unfinished.is_empty(), "not over: {unfinished:#?}");
        let ops = self.ops.iter().enumerate();
        let arrived = ops.filter_map(|(at, known)| match &known.kind {
            Kind::Sent(sent) if sent.to == host => (!self.may_be_lost(sent, known)).then_some(at),
            _ => None,
        });
        if let Some(lost) = self.sightings.missing(&arrived.collect::<Vec<_>>()) {
            panic!("message {lost} is lost: {:?}", self.ops[lost]);
        }
        for from in 0..self.hosts.len() {
            if !self.cut.contains(&(from, host)) {
                self.check_order(from, host);
            }
        }
        if counted {
            let [(_, tx_errors), rx] = node.counted();
            let [sends, ok, failed] = self.hosts[host].counted;
            let most = failed + self.hosts[host].cancelled_late;
            assert!(
                rx.0 == ok && (failed..=most).contains(&rx.1),
                "counter of receives of {host}: {rx:?}, but {ok} arrived and {failed} to {most} failed"
            );
            assert!(tx_errors >= sends, "counter of sends of {host}");
        }
    }

    fn may_be_lost(&self, sent: &Sent, known: &Known) -> bool {
        let [from, to] = known.lives;
        let (left, gone) = (self.life(sent.host) != from, self.life(sent.to) != to);
        match (known.ended, sent.completion) {
            (Some(false), _) => true,
            (Some(true), _) if sent.ack => gone,
            (Some(true), _) => gone || self.cut.contains(&(sent.host, sent.to)),
            // What nobody was told of, or could be.
            (None, false) => left || gone || self.is_troubled(sent.host, sent.to),
            (None, true) => left || gone,
        }
    }

    /// What one process sent to another was received in order.
    fn check_order(&self, from: Host, to: Host) {
        let mut of_lives: HashMap<[u32; 2], Vec<Match<'_>>> = HashMap::new();
        for (message, recv, at) in self.sightings.exact() {
            let known = &self.ops[message];
            let (Kind::Sent(sent), Kind::Posted(posted)) = (&known.kind, &self.ops[recv].kind)
            else {
                continue;
            };
            // Sources of those who were not known can change while they wait.
            let knows = self.hosts[to].known.get(&from);
            if (sent.host, sent.to) == (from, to)
                && !posted.claim
                && (posted.src.is_none() || knows.is_some_and(|since| *since <= message))
            {
                let of_life = of_lives.entry(known.lives).or_default();
                of_life.push((sent, posted, recv, at));
            }
        }
        for of_life in of_lives.values() {
            for (index, (first, _, earlier, place)) in of_life.iter().enumerate() {
                for (second, by, later, behind) in &of_life[index + 1..] {
                    let right = (earlier, place) <= (later, behind) || !accepts(by, first);
                    assert!(
                        right,
                        "{second:?} overtook {first:?}, received by {later} and {earlier}"
                    );
                }
            }
        }
    }
}

/// How errors name a host.
fn name(host: Host) -> Vec<u8> {
    Address::Ip(socket_addr(address(host))).to_bytes()
}

fn blank(context: usize, flags: Flags) -> Completion {
    Completion {
        context,
        flags,
        ..Completion::BLANK
    }
}
