//! From a process to what it waits for, and from there on.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ripstop_core::status::{Wait, WaitKind};

use super::process::{Activity, Process};

/// What has waited for less is not followed: nothing may be wrong with it.
const LEAST: Duration = Duration::from_secs(1);

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

impl Cause<'_> {
    /// The most telling one first.
    const fn order(&self) -> u32 {
        match self {
            Self::Inactive(process) => match process.activity {
                Activity::Ended(_) => 0,
                Activity::Stopped(_) | Activity::Traced(_) => 1,
                _ => 2,
            },
            Self::Unread(..) => 3,
            Self::Circle(_) => 4,
            Self::Idle(_) => 5,
            Self::Own(..) => 6,
            Self::Unknown(_) => 7,
            Self::Anybody(..) => 8,
            Self::Nothing => 9,
        }
    }
}

/// A way from a process to a cause.
#[derive(Clone, Debug)]
pub(super) struct Way<'a> {
    pub(super) steps: Vec<Step<'a>>,
    pub(super) cause: Cause<'a>,
}

/// What a process waits for, the oldest first.
fn waits(process: &Process) -> impl Iterator<Item = &Wait> {
    let mut waits: Vec<&Wait> = process
        .domains
        .iter()
        .flat_map(|domain| &domain.shown.waits)
        .collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.age));
    let lasted = |wait: &&Wait| u128::from(wait.age) >= LEAST.as_nanos();
    waits.into_iter().filter(lasted)
}

/// The process that a peer is.
struct Peers<'a> {
    by_name: BTreeMap<&'a str, &'a Process>,
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
                    by_name.insert(endpoint.name.as_str(), process);
                }
            }
        }
        Self { by_name, by_pid }
    }

    fn find(&self, wait: &Wait) -> Option<&'a Process> {
        self.known(wait.peer.as_deref(), wait.pid)
    }

    /// The process with an endpoint of this name; or with this number, where the name is of this machine.
    fn known(&self, name: Option<&str>, pid: Option<u32>) -> Option<&'a Process> {
        if let Some(process) = name.and_then(|name| self.by_name.get(name)) {
            return Some(process);
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
        pid.and_then(|pid| self.by_pid.get(&pid)).copied()
    }

    /// Those that a process has connections with.
    fn all_of(&self, process: &'a Process) -> Vec<&'a Process> {
        let peers = process
            .domains
            .iter()
            .flat_map(|domain| &domain.shown.peers);
        let found = peers.filter_map(|peer| self.known(Some(&peer.name), peer.pid));
        found.filter(|peer| peer.pid != process.pid).collect()
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
        for wait in waits(process) {
            match wait.kind {
                WaitKind::AnyReceive if wait.peer.is_none() => continue,
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
        let to = self.peers.find(wait);
        let mut on = steps.to_vec();
        on.push(Step { from, wait, to });
        let Some(to) = to else {
            return self.end(&on, Cause::Unknown(wait));
        };
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
        let Some(wait) = waits(process).find(|wait| wait.kind == WaitKind::AnyReceive) else {
            return self.end(
                steps,
                match steps.is_empty() {
                    true => Cause::Nothing,
                    false => Cause::Idle(process),
                },
            );
        };
        for to in self.peers.all_of(process) {
            if is_inactive(to) {
                let mut on = steps.to_vec();
                on.push(Step {
                    from: process,
                    wait,
                    to: Some(to),
                });
                self.end(&on, Cause::Inactive(to));
            }
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

/// The most telling way from a process, by the fewest steps.
pub(super) fn follow<'a>(processes: &'a [Process], from: &'a Process) -> Way<'a> {
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
    let ways = search.ways.into_iter();
    let first = ways.min_by_key(|way| (way.cause.order(), way.steps.len()));
    first.unwrap_or(Way {
        steps: Vec::new(),
        cause: Cause::Nothing,
    })
}

const fn is_inactive(process: &Process) -> bool {
    !matches!(
        process.activity,
        Activity::Polls | Activity::Sleeps | Activity::Served
    )
}
