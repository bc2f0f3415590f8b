//! What happens while nothing does: questions to those that are waited for, a word for the log,
//! and an end where members wait for each other in different groups.

use core::time::Duration;

use ripstop_types::{Collective, Errno, FiAddr};

use super::group::{Collectives, Group, State};
use super::message::{Gone, Kind, Message};
use super::operation::{Action, Receiving, Sending};
use crate::Buffer;

/// After how long without progress a member asks those it waits for; a round.
const PATIENCE: Duration = Duration::from_secs(1);

/// Rounds until the log hears of it.
const LONG: u32 = 5;

/// Rounds after which two members that wait for each other, each to join another group, are
/// taken to wait for ever.
const CROSSED: u32 = 10;

/// Rounds for which a member's word holds that it waits for this one.
const HOLDS: u32 = 2;

/// Somebody who has been waited for long; see [`Action::Waits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// The operation and its number in the group, or `None` while the group is being joined.
    pub operation: Option<(Collective, u32)>,
    /// For how long.
    pub long: Duration,
    /// The members of the group.
    pub members: u32,
    /// The rank of the one that is waited for.
    pub rank: u32,
    /// Its place in the address vector.
    pub member: FiAddr,
    /// How many others are waited for besides.
    pub others: u32,
    /// It waits as well: for this member, to join another group.
    pub crossed: bool,
}

impl<B: Buffer> Collectives<B> {
    /// Time has passed. Returns whether to call again soon.
    pub fn tick(&mut self, now: Duration) -> bool {
        for id in 0..self.ops.end() {
            let Some(op) = self.ops.get_mut(id).filter(|op| op.error.is_none()) else {
                continue;
            };
            let since = *op.since.get_or_insert(now);
            if now.saturating_sub(since) >= PATIENCE {
                op.since = Some(now);
                op.rounds = op.rounds.saturating_add(1);
                self.ask(id);
                self.tell_of_operation(id);
            }
        }
        for id in 0..self.groups.end() {
            let joining = |group: &&mut Group| group.state == State::Joining;
            let Some(group) = self.groups.get_mut(id).filter(joining) else {
                continue;
            };
            let since = *group.since.get_or_insert(now);
            if now.saturating_sub(since) >= PATIENCE {
                group.since = Some(now);
                self.look_after(id);
            }
        }
        !self.ops.is_empty() || self.groups.ids().any(|id| self.is_joining(id))
    }

    /// A word for the log, once for each operation.
    fn tell_of_operation(&mut self, id: u32) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if op.rounds < LONG || op.told {
            return;
        }
        let Some(step) = op.step else { return };
        let recv = step.recv.filter(|_| op.receiving != Receiving::Done);
        let send = step.send.filter(|_| op.sending != Sending::Done);
        let Some(part) = recv.or(send) else { return };
        op.told = true;
        let operation = Some((op.plan.collective(), op.seq));
        let group_id = op.group;
        let Some(group) = self.groups.get(group_id) else {
            return;
        };
        if let Some(member) = group.member(part.peer) {
            let waits = Waits {
                operation,
                long: PATIENCE.saturating_mul(LONG),
                members: group.n(),
                rank: part.peer,
                member,
                others: 0,
                crossed: false,
            };
            self.push(Action::Waits {
                group: group_id,
                waits,
            });
        }
    }

    /// A round of a group that is being joined.
    fn look_after(&mut self, id: u32) {
        self.look_for_missing(id);
        let crossing = self.crossing(id);
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        group.pinged.1 = group.pinged.1.saturating_sub(1);
        group.rounds = group.rounds.saturating_add(1);
        group.crossed = match crossing {
            Some(_) => group.crossed.saturating_add(1),
            None => 0,
        };
        let (rounds, crossed) = (group.rounds, group.crossed);
        if rounds == LONG {
            self.tell_of_join(id, crossing);
        }
        if let Some(rank) = crossing.filter(|_| crossed >= CROSSED) {
            self.end_crossed(id, rank);
        }
    }

    fn tell_of_join(&mut self, id: u32, crossing: Option<u32>) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let Some(rank) = crossing.or_else(|| group.awaited().next()) else {
            return;
        };
        let Some(member) = group.member(rank) else {
            return;
        };
        let others = group.awaited().count().saturating_sub(1);
        let waits = Waits {
            operation: None,
            long: PATIENCE.saturating_mul(LONG),
            members: group.n(),
            rank,
            member,
            others: u32::try_from(others).unwrap_or(u32::MAX),
            crossed: crossing.is_some(),
        };
        self.push(Action::Waits { group: id, waits });
    }

    /// A member that this one waits for, and which waits for this one to join another group.
    pub(super) fn crossing(&self, id: u32) -> Option<u32> {
        let group = self.groups.get(id)?;
        group.awaited().find(|rank| {
            let pinged = group.pinged.0 == *rank && group.pinged.1 > 0;
            let asked = |src| self.asks_elsewhere(group.ep, src, group.digest);
            pinged || group.member(*rank).is_some_and(asked)
        })
    }

    /// Member 0 of a set looks for this one, which does not join that.
    pub(super) fn note_ping(&mut self, ep: u32, src: FiAddr, message: &Message) {
        let known = |group: &Group| group.ep == ep && group.digest == message.group;
        let is_known = |id| self.groups.get(id).is_some_and(known);
        if self.groups.ids().any(is_known) {
            return;
        }
        for id in 0..self.groups.end() {
            let joins = |group: &&mut Group| group.ep == ep && group.state == State::Joining;
            if let Some(group) = self.groups.get_mut(id).filter(joins)
                && let Some(rank) = group.rank_of(src)
                && group.awaited().any(|awaited| awaited == rank)
            {
                group.pinged = (rank, HOLDS);
            }
        }
    }

    /// Ends a join, and that of the member which waits for this one elsewhere.
    pub(super) fn end_crossed(&mut self, id: u32, rank: u32) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let (ep, digest, src) = (group.ep, group.digest, group.member(rank));
        self.decline(id, Gone::Mismatch);
        while let Some(message) = src.and_then(|src| self.take_elsewhere(ep, src, digest)) {
            let Some(to) = src else { break };
            let answer = Message {
                kind: Kind::Decline,
                tag: Gone::Mismatch as u32,
                from: 0,
                ..message
            };
            self.tell(ep, to, answer);
        }
        self.join_failed(id, Errno::EINVAL);
    }

    fn is_joining(&self, id: u32) -> bool {
        let group = self.groups.get(id);
        group.is_some_and(|group| group.state == State::Joining)
    }

    /// Asks the members that an operation waits for.
    fn ask(&mut self, id: u32) {
        let Some(op) = self.ops.get(id) else { return };
        let Some(step) = op.step else { return };
        let recv = step.recv.filter(|_| op.receiving == Receiving::Waits);
        let send = step.send.filter(|_| op.sending == Sending::Waits);
        let (check, seq) = (op.check, op.seq);
        let Some(group) = self.groups.get(op.group) else {
            return;
        };
        let (ep, name, me) = (group.ep, group.id, group.me);
        let peers = [recv, send].map(|part| Some((part?.peer, group.member(part?.peer)?)));
        for (rank, to) in peers.into_iter().flatten() {
            let question = Message {
                kind: Kind::Ask,
                group: name,
                check,
                seq,
                // Who is asked: one that knows no such group can say so.
                tag: rank,
                from: me,
                len: 0,
            };
            self.tell(ep, to, question);
        }
    }

    fn look_for_missing(&mut self, id: u32) {
        for index in 0.. {
            let Some(group) = self.groups.get(id) else {
                return;
            };
            let Some(rank) = group.missing.get(index).copied() else {
                return;
            };
            let message = Message {
                kind: Kind::Ping,
                group: group.digest,
                check: 0,
                seq: 0,
                tag: 0,
                from: group.me,
                len: 0,
            };
            if let Some(to) = group.member(rank) {
                self.tell(group.ep, to, message);
            }
        }
    }
}

impl Group {
    /// Who has to be heard of before the group is up.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> + '_ {
        let leader = (self.me != 0).then_some(0);
        self.missing.iter().copied().chain(leader)
    }
}
