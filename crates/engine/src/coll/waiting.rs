//! What happens while nothing arrives, in rounds of a second ([`Collectives::tick`]): queries to those that are waited
//! for, a line for the log, and an end where members wait for each other in different groups.

use core::time::Duration;

use ripstop_types::{Collective, FiAddr};

use crate::Buffer;
use crate::coll::action::{Action, Task, Waits};
use crate::coll::collectives::Collectives;
use crate::coll::group::{Group, State};
use crate::coll::message::{Kind, Message};
use crate::coll::operation::{Receiving, Sending};
use crate::id::{CollOpId, EpId, GroupId};

/// After how long without progress a member queries those it waits for: a round.
const ROUND: Duration = Duration::from_secs(1);

/// Rounds until the log hears of it.
const LOG_ROUNDS: u32 = 5;

/// Members of a group that is being joined who are named, at most.
const MAX_NAMED: usize = 4;

/// Rounds after which members that wait for each other, each to join another group, are taken to
/// wait for ever.
const DEADLOCK_ROUNDS: u32 = 10;

/// What waits for another member.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// The endpoint.
    pub ep: EpId,
    /// The operation and its number in the group, or `None` while the group is being joined.
    pub operation: Option<(Collective, u32)>,
    /// The members of the group.
    pub members: u32,
    /// The rank of the one that is waited for.
    pub rank: u32,
    /// Its place in the address vector.
    pub member: FiAddr,
    /// How many others are waited for besides.
    pub others: u32,
    /// Since when nothing has happened, up to a round more.
    pub age: Duration,
}

impl<B: Buffer> Collectives<B> {
    /// Shows what waits for other members.
    pub fn visit_held(&self, visit: &mut dyn FnMut(Held)) {
        for id in self.ops.ids() {
            let Some(op) = self.ops.get(id).filter(|op| op.error.is_none()) else {
                continue;
            };
            let Some(step) = op.step else { continue };
            let recv = step.recv.filter(|_| op.receiving != Receiving::Done);
            let send = step.send.filter(|_| op.sending != Sending::Done);
            let (Some(part), Some(group)) = (recv.or(send), self.groups.get(op.group)) else {
                continue;
            };
            if let Some(member) = group.member(part.peer) {
                visit(Held {
                    ep: group.ep,
                    operation: Some((op.plan.collective(), op.seq)),
                    members: group.n(),
                    rank: part.peer,
                    member,
                    others: 0,
                    age: ROUND.saturating_mul(op.rounds),
                });
            }
        }
        for id in self.groups.ids() {
            let joining = |group: &&Group| group.state == State::Joining;
            let Some(group) = self.groups.get(id).filter(joining) else {
                continue;
            };
            let others = group.awaited().count().saturating_sub(1);
            for rank in group.awaited().take(MAX_NAMED) {
                let Some(member) = group.member(rank) else {
                    continue;
                };
                visit(Held {
                    ep: group.ep,
                    operation: None,
                    members: group.n(),
                    rank,
                    member,
                    others: u32::try_from(others).unwrap_or(u32::MAX),
                    age: ROUND.saturating_mul(group.rounds),
                });
            }
        }
    }

    /// Time has passed. Returns whether to call again soon.
    pub fn tick(&mut self, now: Duration) -> bool {
        for id in self.ops.every_id() {
            let Some(op) = self.ops.get_mut(id).filter(|op| op.error.is_none()) else {
                continue;
            };
            let since = *op.since.get_or_insert(now);
            if now.saturating_sub(since) >= ROUND {
                op.since = Some(now);
                op.rounds = op.rounds.saturating_add(1);
                self.query(id);
                self.tell_of_operation(id);
            }
        }
        for id in self.groups.every_id() {
            let joining = |group: &&mut Group| group.state == State::Joining;
            let Some(group) = self.groups.get_mut(id).filter(joining) else {
                continue;
            };
            let since = *group.since.get_or_insert(now);
            if now.saturating_sub(since) >= ROUND {
                group.since = Some(now);
                self.look_after(id);
            }
        }
        let joining = |group: &Group| group.state == State::Joining;
        !self.ops.is_empty() || self.groups.position(joining).is_some()
    }

    /// A word for the log, once for each operation.
    fn tell_of_operation(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if op.rounds < LOG_ROUNDS || op.told {
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
                long: ROUND.saturating_mul(LOG_ROUNDS),
                members: group.n(),
                rank: part.peer,
                member,
                others: 0,
                crossed: false,
            };
            self.push(Action::Task(Task::Waits {
                group: group_id,
                waits,
            }));
        }
    }

    /// A round of a group that is being joined.
    fn look_after(&mut self, id: GroupId) {
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        group.rounds = group.rounds.saturating_add(1);
        let rounds = group.rounds;
        let circling = group.circling();
        let crossed = group.next_round();
        self.probe(id);
        if rounds == LOG_ROUNDS {
            self.tell_of_join(id, circling);
        }
        if crossed >= DEADLOCK_ROUNDS {
            self.end_circle(id);
        }
    }

    fn tell_of_join(&mut self, id: GroupId, circling: Option<FiAddr>) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let waits_too = |rank: &u32| circling.is_some() && group.member(*rank) == circling;
        let Some(rank) = group
            .awaited()
            .find(waits_too)
            .or_else(|| group.awaited().next())
        else {
            return;
        };
        let Some(member) = group.member(rank) else {
            return;
        };
        let others = group.awaited().count().saturating_sub(1);
        let waits = Waits {
            operation: None,
            long: ROUND.saturating_mul(LOG_ROUNDS),
            members: group.n(),
            rank,
            member,
            others: u32::try_from(others).unwrap_or(u32::MAX),
            crossed: circling.is_some(),
        };
        self.push(Action::Task(Task::Waits { group: id, waits }));
    }

    /// Queries the members that an operation waits for: whether it has ended there.
    fn query(&mut self, id: CollOpId) {
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
            let query = Message {
                kind: Kind::Ask,
                group: name,
                check,
                seq,
                // Who is queried: one that knows no such group can say so.
                tag: rank,
                from: me,
                len: 0,
            };
            self.tell(ep, to, query);
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
