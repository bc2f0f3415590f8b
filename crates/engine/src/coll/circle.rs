//! Members that wait for each other in a circle, each to join another group.
//!
//! Each round a member sends those it waits for a number of its own, a *probe*. Who gets one, and
//! does not join that set but waits itself, passes it on to those it waits for. One that comes
//! back has found a circle: everybody on its way waits for the next one. When a member has seen
//! that for long, its join ends, and the word of it goes back along the way and ends all the
//! others.
//!
//! Only a number greater than a member's own is passed on, so the greatest of a circle goes round.

use alloc::vec::Vec;

use ripstop_types::{Errno, FiAddr};

use super::group::{Collectives, Group, State};
use super::message::{Gone, Kind, Message};
use super::operation::mix;
use crate::Buffer;
use crate::id::EpId;
use crate::ring::try_push;

/// Probes that a member keeps for each join, the greatest.
const MAX_KEPT_PROBES: usize = 16;

/// Probes that are passed on for a join in a round.
const MAX_PASSED_PROBES: u32 = 32;

/// Rounds for which a probe's word holds.
const PROBE_ROUNDS: u32 = 2;

/// A probe that has come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    number: u64,
    /// The member that waits for this one.
    src: FiAddr,
    /// To join this set.
    digest: u64,
    /// In which this one has this rank.
    rank: u32,
    /// So many rounds.
    holds: u32,
    /// It went on in this round.
    passed: bool,
}

/// The probes of a join.
#[derive(Debug, Default)]
pub(super) struct Probes {
    known: Vec<Probe>,
    /// How many went on in this round.
    passed: u32,
    /// Rounds in a row in which that of this member had come back.
    back: u32,
}

impl Probes {
    /// Notes one; returns whether it is to go on now.
    fn note(&mut self, probe: Probe, own: u64) -> bool {
        let first = probe.number != own
            && self.passed < MAX_PASSED_PROBES
            && !self
                .known
                .iter()
                .any(|known| known.passed && known.number == probe.number);
        let probe = Probe {
            passed: first,
            ..probe
        };
        if !self.keep(probe) {
            return false;
        }
        self.passed = self.passed.saturating_add(u32::from(first));
        first
    }

    fn keep(&mut self, probe: Probe) -> bool {
        let same =
            |of: &Probe| (of.number, of.src, of.digest) == (probe.number, probe.src, probe.digest);
        if let Some(known) = self.known.iter_mut().find(|known| same(known)) {
            known.passed |= probe.passed;
            (known.rank, known.holds) = (probe.rank, probe.holds);
            return true;
        }
        if self.known.len() < MAX_KEPT_PROBES {
            return try_push(&mut self.known, probe).is_ok();
        }
        let least = self.known.iter_mut().min_by_key(|known| known.number);
        match least.filter(|least| least.number < probe.number) {
            Some(least) => {
                *least = probe;
                true
            }
            None => false,
        }
    }

    /// A round is over. If the probe `own` has come back in it, returns in how many in a row its
    /// word held, else 0.
    fn next_round(&mut self, own: u64) -> u32 {
        let back = self.known.iter().filter(|known| known.number == own);
        let longest = back.map(|known| known.holds).max();
        self.back = match longest {
            Some(_) => self.back.saturating_add(1),
            None => 0,
        };
        for known in &mut self.known {
            known.holds = known.holds.saturating_sub(1);
            known.passed = false;
        }
        self.known.retain(|known| known.holds > 0);
        self.passed = 0;
        match longest {
            Some(PROBE_ROUNDS) => self.back,
            _ => 0,
        }
    }
}

impl Group {
    /// The probe of this join, which is that of no other one.
    fn probe(&self) -> u64 {
        let attempt = u64::from(self.me) << 32 | u64::from(self.attempt);
        mix(mix(self.digest) ^ attempt)
    }

    /// The member that is seen to wait for this one elsewhere, itself or by way of others.
    pub(super) fn circling(&self) -> Option<FiAddr> {
        let own = self.probe();
        let mut back = self.probes.known.iter().filter(|known| known.number == own);
        back.next().map(|known| known.src)
    }

    /// A round is over. If this member was seen to be in a circle in it, returns in how many in a
    /// row it was, else 0.
    pub(super) fn next_round(&mut self) -> u32 {
        let own = self.probe();
        self.probes.next_round(own)
    }
}

/// A word about the probe of this number, from a member of a group that is being joined.
const fn about_probe(kind: Kind, (digest, number): (u64, u64), tag: u32, from: u32) -> Message {
    Message {
        kind,
        group: digest,
        check: number,
        seq: 0,
        tag,
        from,
        len: 0,
    }
}

impl<B: Buffer> Collectives<B> {
    /// Looks for those who have not joined.
    pub(super) fn probe(&mut self, id: u32) {
        if let Some(number) = self.groups.get(id).map(Group::probe) {
            self.send_probe(id, number);
        }
    }

    /// Sends a probe to those that a join waits for.
    fn send_probe(&mut self, id: u32, number: u64) {
        for index in 0.. {
            let Some(group) = self.groups.get(id) else {
                return;
            };
            let Some(rank) = group.awaited().nth(index) else {
                return;
            };
            let message = about_probe(Kind::Ping, (group.digest, number), rank, group.me);
            if let Some(to) = group.member(rank) {
                self.tell(group.ep, to, message);
            }
        }
    }

    /// A member waits for this one to join a set.
    pub(super) fn note_ping(&mut self, ep: EpId, src: FiAddr, message: &Message) {
        let known = |group: &Group| group.ep == ep && group.digest == message.group;
        let is_known = |id| self.groups.get(id).is_some_and(known);
        if self.groups.ids().any(is_known) {
            return;
        }
        let probe = Probe {
            number: message.check,
            src,
            digest: message.group,
            rank: message.tag,
            holds: PROBE_ROUNDS,
            passed: false,
        };
        for id in self.groups.every_id() {
            let joins = |group: &&mut Group| group.ep == ep && group.state == State::Joining;
            let Some(group) = self.groups.get_mut(id).filter(joins) else {
                continue;
            };
            let own = group.probe();
            if probe.number >= own && group.probes.note(probe, own) {
                self.send_probe(id, probe.number);
            }
        }
    }

    /// This member is in a circle: its join ends, and those of the others.
    pub(super) fn end_circle(&mut self, id: u32) {
        if let Some(number) = self.groups.get(id).map(Group::probe) {
            self.break_circle(id, number);
        }
    }

    /// A member that this one waits for has found that they are in a circle.
    pub(super) fn note_circle(&mut self, ep: EpId, src: FiAddr, message: &Message) {
        for id in self.groups.every_id() {
            let Some(group) = self.groups.get(id) else {
                continue;
            };
            let waits = (group.ep, group.digest, group.state)
                == (ep, message.group, State::Joining)
                && group.is_member(message.from, src)
                && group.awaited().any(|rank| rank == message.from);
            let mut probes = group.probes.known.iter();
            if waits && probes.any(|known| known.number == message.check) {
                self.break_circle(id, message.check);
            }
        }
    }

    fn break_circle(&mut self, id: u32, number: u64) {
        for index in 0..MAX_KEPT_PROBES {
            let Some(group) = self.groups.get(id) else {
                return;
            };
            let Some(probe) = group.probes.known.get(index) else {
                break;
            };
            if probe.number != number {
                continue;
            }
            let (about, tag) = ((probe.digest, number), Gone::Circle as u32);
            let message = about_probe(Kind::Decline, about, tag, probe.rank);
            let (ep, to) = (group.ep, probe.src);
            self.tell(ep, to, message);
        }
        self.decline(id, Gone::Mismatch);
        self.join_failed(id, Errno::EINVAL);
    }
}
