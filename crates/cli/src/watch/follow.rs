//! From a process to what it waits for, and from there on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ripstop_core::status::{Peer, Wait, WaitKind};

use super::process::{Activity, Domain, Process};

/// What has waited for less is not followed: nothing may be wrong with it.
const LEAST: Duration = Duration::from_secs(1);

/// Ages that differ by less are of operations that were posted together, as far as a page tells.
const TOGETHER: Duration = Duration::from_secs(2);

/// Other causes that are told of, at most.
const MAX_OTHERS: usize = 3;

/// One process waits for another.
#[derive(Clone, Debug)]
pub(super) struct Step<'a> {
    pub(super) from: &'a Process,
    pub(super) wait: &'a Wait,
    /// `None` for a peer of which nothing is known here.
    pub(super) to: Option<&'a Process>,
}

/// Why a process waits.
#[derive(Clone, Debug)]
pub(super) enum Cause<'a> {
    /// It waits for nothing that has lasted.
    Nothing,
    /// A process has ended, was stopped, or does not poll.
    Inactive(&'a Process),
    /// A process makes progress, but not in the domain that the last step leads to.
    Unattended(&'a Process, &'a Domain),
    /// What a process waits for is in a domain in which it makes no progress.
    Unpolled(&'a Process, &'a Domain, &'a Wait),
    /// The network does not carry what one side of the last step sends to the other, for so long.
    Silent(Duration),
    /// A process does not take messages that have come.
    Unread(&'a Process, &'a Wait),
    /// A process makes progress and waits for nobody: it has not done what the last step waits for.
    Idle(&'a Process),
    /// What a process waits for is its own to do.
    Own(&'a Process, &'a Wait),
    /// A peer of which nothing is known on this machine.
    Unknown(&'a Wait),
    /// A process waits for any peer, and none of those that it knows is the cause.
    Anybody(&'a Process, &'a Wait),
    /// Processes wait for each other: from the last one on to the one with this place on the way.
    Circle(usize),
}

impl<'a> Cause<'a> {
    /// What tells it from others: which cause, and of whom.
    const fn key(&self) -> (&'static str, Option<u32>) {
        let who = self.process();
        (
            self.kind(),
            match who {
                Some(process) => Some(process.pid),
                None => None,
            },
        )
    }

    /// A word for it.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Inactive(process) => process.activity.word(),
            Self::Unattended(..) => "unattended",
            Self::Unpolled(..) => "unpolled",
            Self::Silent(_) => "silent",
            Self::Unread(..) => "unread",
            Self::Idle(_) => "idle",
            Self::Own(..) => "own",
            Self::Unknown(_) => "unknown",
            Self::Anybody(..) => "anybody",
            Self::Circle(_) => "circle",
        }
    }

    /// The process that it is about, if it is one.
    pub(super) const fn process(&self) -> Option<&'a Process> {
        match self {
            Self::Inactive(process)
            | Self::Unattended(process, _)
            | Self::Unpolled(process, ..)
            | Self::Unread(process, _)
            | Self::Idle(process)
            | Self::Own(process, _)
            | Self::Anybody(process, _) => Some(process),
            Self::Nothing | Self::Silent(_) | Self::Unknown(_) | Self::Circle(_) => None,
        }
    }
}

/// A way from a process to a cause.
#[derive(Clone, Debug)]
pub(super) struct Way<'a> {
    pub(super) steps: Vec<Step<'a>>,
    pub(super) cause: Cause<'a>,
}

impl Way<'_> {
    /// The most telling one first.
    fn order(&self) -> u32 {
        match &self.cause {
            Cause::Inactive(process) => match process.activity {
                Activity::Ended(_) => 0,
                Activity::Stopped(_) | Activity::Traced(_) => 2,
                _ => 3,
            },
            Cause::Silent(_) => 1,
            Cause::Unattended(..) => 3,
            Cause::Unread(..) => 4,
            Cause::Circle(place) if self.is_of_standing_receives(*place) => 7,
            Cause::Circle(_) => 5,
            Cause::Idle(_) => 6,
            Cause::Own(..) | Cause::Unpolled(..) => 8,
            Cause::Unknown(_) => 9,
            Cause::Anybody(..) => 10,
            Cause::Nothing => 11,
        }
    }

    /// Whether a circle has only receives, one of which its process had posted long before something else
    /// that it waits for: many programs keep a receive posted for each peer, and these make circles in
    /// which nothing is wrong.
    fn is_of_standing_receives(&self, place: usize) -> bool {
        let circle = self.steps.get(place..).unwrap_or_default();
        let stands = |step: &Step<'_>| {
            let limit = step.wait.age.saturating_sub(TOGETHER.as_nanos() as u64);
            let is_of_one = |wait: &Wait| wait.kind != WaitKind::AnyReceive;
            waits(step.from).any(|(_, wait)| is_of_one(wait) && wait.age < limit)
        };
        circle
            .iter()
            .all(|step| step.wait.kind == WaitKind::Receive)
            && circle.iter().any(stands)
    }
}

/// What a process waits for, the oldest first, each with its domain.
fn waits(process: &Process) -> impl Iterator<Item = (&Domain, &Wait)> {
    let mut waits: Vec<(&Domain, &Wait)> = Vec::new();
    for domain in &process.domains {
        waits.extend(domain.shown.waits.iter().map(|wait| (domain, wait)));
    }
    waits.sort_by_key(|(_, wait)| std::cmp::Reverse(wait.age));
    let lasted = |(_, wait): &(&Domain, &Wait)| u128::from(wait.age) >= LEAST.as_nanos();
    waits.into_iter().filter(lasted)
}

/// A connection of one process with another one.
fn connections(from: &Process, is_with: impl Fn(&Peer) -> bool) -> impl Iterator<Item = &Peer> {
    let peers = from.domains.iter().flat_map(|domain| &domain.shown.peers);
    peers.filter(move |peer| is_with(peer))
}

fn has_endpoint(process: &Process, name: &str) -> bool {
    let mut endpoints = process
        .domains
        .iter()
        .flat_map(|domain| &domain.shown.endpoints);
    endpoints.any(|endpoint| endpoint.name == name)
}

/// For how long the network has not carried what one of two sends to the other.
fn silence(from: &Process, peer: &str, to: Option<&Process>) -> Option<Duration> {
    // What a process that is away has written down may be over.
    let now = |process: &Process, is_with: &dyn Fn(&Peer) -> bool| {
        let fresh = process.domains.iter().filter(|domain| domain.is_fresh());
        let peers = fresh.flat_map(|domain| &domain.shown.peers);
        peers
            .filter(|peer| is_with(peer))
            .filter_map(|peer| peer.silence)
            .max()
    };
    let is_from = |peer: &Peer| peer.pid == Some(from.pid) && has_endpoint(from, &peer.name);
    let here = now(from, &|other| other.name == peer);
    let there = to.and_then(|to| now(to, &is_from));
    here.max(there).map(Duration::from_nanos)
}

/// A process, and its domain that has the endpoint, if that is known.
type Found<'a> = (&'a Process, Option<&'a Domain>);

/// The process that a peer is.
struct Peers<'a> {
    all: &'a [Process],
    by_name: BTreeMap<&'a str, (&'a Process, &'a Domain)>,
    by_pid: BTreeMap<u32, &'a Process>,
}

impl<'a> Peers<'a> {
    fn of(processes: &'a [Process]) -> Self {
        let (mut by_name, mut by_pid) = (BTreeMap::new(), BTreeMap::new());
        // Of two with one address, that lives or is younger comes last.
        let mut sorted: Vec<&Process> = processes.iter().collect();
        sorted.sort_by_key(|process| !matches!(process.activity, Activity::Ended(_)));
        for process in sorted {
            by_pid.insert(process.pid, process);
            for domain in &process.domains {
                for endpoint in domain.shown.endpoints.iter() {
                    by_name.insert(endpoint.name.as_str(), (process, domain));
                }
            }
        }
        Self {
            all: processes,
            by_name,
            by_pid,
        }
    }

    fn find(&self, wait: &Wait) -> Option<Found<'a>> {
        self.known(wait.peer.as_deref(), wait.pid)
    }

    /// The process with an endpoint of this name; or with this number, where the name is of this machine.
    fn known(&self, name: Option<&str>, pid: Option<u32>) -> Option<Found<'a>> {
        if let Some((process, domain)) = name.and_then(|name| self.by_name.get(name)) {
            return Some((process, Some(domain)));
        }
        let is_here = |host: IpAddr| {
            let names = self.by_name.keys();
            host.is_loopback()
                || names
                    .filter_map(|name| self::host(name))
                    .any(|own| own == host)
        };
        if name.and_then(host).is_some_and(|host| !is_here(host)) {
            return None;
        }
        let process = pid.and_then(|pid| self.by_pid.get(&pid))?;
        Some((process, None))
    }

    /// Those that a process has connections with.
    fn all_of(&self, process: &'a Process) -> Vec<(&'a Peer, Option<Found<'a>>)> {
        let peers = connections(process, |peer| peer.pid != Some(process.pid));
        let found = peers.map(|peer| (peer, self.known(Some(&peer.name), peer.pid)));
        let is_other = |(_, found): &(_, Option<Found<'_>>)| {
            found.is_none_or(|(peer, _)| peer.pid != process.pid)
        };
        found.filter(is_other).collect()
    }

    /// Those that have ended and had connections with a process, of which it shows nothing any more.
    fn ended_peers_of(&self, process: &'a Process) -> impl Iterator<Item = &'a Process> {
        let ended = |other: &&Process| matches!(other.activity, Activity::Ended(_));
        let knew = move |other: &&Process| {
            let is_this =
                |peer: &Peer| peer.pid == Some(process.pid) && has_endpoint(process, &peer.name);
            connections(other, is_this).next().is_some()
        };
        self.all.iter().filter(ended).filter(knew)
    }
}

/// The machine in an address of tcp.
fn host(name: &str) -> Option<IpAddr> {
    name.parse::<SocketAddr>().ok().map(|addr| addr.ip())
}

/// A search through processes, nearest first.
struct Search<'a> {
    peers: Peers<'a>,
    ways: Vec<Way<'a>>,
    /// How each process was reached first.
    reached: BTreeMap<u32, Vec<Step<'a>>>,
    queue: VecDeque<&'a Process>,
}

impl<'a> Search<'a> {
    fn end(&mut self, steps: &[Step<'a>], cause: Cause<'a>) {
        self.ways.push(Way {
            steps: steps.to_vec(),
            cause,
        });
    }

    /// Looks at what a process waits for, which was reached by these steps.
    fn look_at(&mut self, process: &'a Process, steps: &[Step<'a>]) {
        if is_inactive(process) {
            return self.end(steps, Cause::Inactive(process));
        }
        let mut follows = false;
        for (domain, wait) in waits(process) {
            if wait.kind == WaitKind::AnyReceive && wait.peer.is_none() {
                continue;
            }
            if !domain.is_attended() {
                self.end(steps, Cause::Unpolled(process, domain, wait));
            }
            match wait.kind {
                WaitKind::Unread => self.end(steps, Cause::Unread(process, wait)),
                WaitKind::Threshold => self.end(steps, Cause::Own(process, wait)),
                _ => self.step(process, wait, steps),
            }
            follows = true;
        }
        if !follows {
            self.end_at(process, steps);
        }
    }

    /// Goes on to the peer that a process waits for.
    fn step(&mut self, from: &'a Process, wait: &'a Wait, steps: &[Step<'a>]) {
        let found = self.peers.find(wait);
        let to = found.map(|(to, _)| to);
        let mut on = steps.to_vec();
        on.push(Step { from, wait, to });
        let name = wait.peer.as_deref().unwrap_or_default();
        if let Some(silence) = silence(from, name, to) {
            self.end(&on, Cause::Silent(silence));
        }
        let Some((to, domain)) = found else {
            return self.end(&on, Cause::Unknown(wait));
        };
        if let Some(domain) = domain.filter(|domain| !domain.is_attended() && !is_inactive(to)) {
            self.end(&on, Cause::Unattended(to, domain));
        }
        if let Some(place) = on.iter().position(|step| step.from.pid == to.pid) {
            self.end(&on, Cause::Circle(place));
        } else if let Entry::Vacant(first) = self.reached.entry(to.pid) {
            first.insert(on);
            self.queue.push_back(to);
        }
    }

    /// A process waits for nobody in particular. Where it waits for any peer, one that can send nothing
    /// may be the cause.
    fn end_at(&mut self, process: &'a Process, steps: &[Step<'a>]) {
        let mut waits = waits(process).map(|(_, wait)| wait);
        let Some(wait) = waits.find(|wait| wait.kind == WaitKind::AnyReceive) else {
            return self.end(
                steps,
                match steps.is_empty() {
                    true => Cause::Nothing,
                    false => Cause::Idle(process),
                },
            );
        };
        let step = |to| {
            let last = Step {
                from: process,
                wait,
                to,
            };
            [steps, &[last]].concat()
        };
        for (peer, found) in self.peers.all_of(process) {
            let to = found.map(|(to, _)| to);
            if let Some(silence) = silence(process, &peer.name, to) {
                self.end(&step(to), Cause::Silent(silence));
            }
            match found {
                Some((to, _)) if is_inactive(to) => self.end(&step(Some(to)), Cause::Inactive(to)),
                Some((to, Some(domain))) if !domain.is_attended() => {
                    self.end(&step(Some(to)), Cause::Unattended(to, domain));
                }
                _ => {}
            }
        }
        let ended: Vec<&Process> = self.peers.ended_peers_of(process).collect();
        for to in ended {
            self.end(&step(Some(to)), Cause::Inactive(to));
        }
        self.end(
            steps,
            match steps.is_empty() {
                true => Cause::Anybody(process, wait),
                false => Cause::Idle(process),
            },
        );
    }
}

/// The ways from a process to what may be the cause, the most telling one first, and of those that tell as
/// much the one with the fewest steps. There is at least one.
pub(super) fn follow<'a>(processes: &'a [Process], from: &'a Process) -> Vec<Way<'a>> {
    let mut search = Search {
        peers: Peers::of(processes),
        ways: Vec::new(),
        reached: BTreeMap::from([(from.pid, Vec::new())]),
        queue: VecDeque::from([from]),
    };
    while let Some(process) = search.queue.pop_front() {
        let steps = search
            .reached
            .get(&process.pid)
            .cloned()
            .unwrap_or_default();
        search.look_at(process, &steps);
    }
    let mut ways = search.ways;
    ways.sort_by_key(|way| (way.order(), way.steps.len()));
    let mut told = BTreeSet::new();
    ways.retain(|way| told.insert(way.cause.key()));
    ways.truncate(1 + MAX_OTHERS);
    if ways.is_empty() {
        ways.push(Way {
            steps: Vec::new(),
            cause: Cause::Nothing,
        });
    }
    ways
}

const fn is_inactive(process: &Process) -> bool {
    !matches!(
        process.activity,
        Activity::Polls | Activity::Sleeps | Activity::Served
    )
}
