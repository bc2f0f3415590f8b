//! What happens while nothing arrives, in rounds of a second ([`Collectives::tick`]): queries to those that are waited
//! for, a line for the log, and an end where members wait for each other in different groups.

use core::time::Duration;

use ripstop_types::FiAddr;

use crate::Buffer;
use crate::coll::action::{Action, Held, Task};
use crate::coll::collectives::Collectives;
use crate::coll::group::{Group, State};
use crate::coll::message::{Kind, Message};
use crate::coll::operation::{Op, Receiving, Sending};
use crate::id::{CollOpId, GroupId};

/// After how long without progress a member queries those it waits for: a round.
const ROUND: Duration = Duration::from_secs(1);

/// Rounds until the log hears of it.
const LOG_ROUNDS: u32 = 5;

/// Members of a group that is being joined who are named, at most.
const MAX_NAMED: usize = 4;

/// Rounds after which members that wait for each other, each to join another group, are taken to
/// wait for ever.
const DEADLOCK_ROUNDS: u32 = 10;

impl<B: Buffer> Collectives<B> {
    /// Shows what waits for other members.
    pub fn visit_held(&self, visit: &mut dyn FnMut(Held)) {
        for id in self.ops.ids() {
            if let Some(held) = self.held_operation(id) {
                visit(held);
            }
        }
        for id in self.groups.ids() {
            let joining = |group: &&Group| group.state == State::Joining;
            let Some(group) = self.groups.get(id).filter(joining) else {
                continue;
            };
            for rank in group.awaited().take(MAX_NAMED) {
                if let Some(held) = group.held_join(rank) {
                    visit(held);
                }
            }
        }
    }

    /// The operation, if its step waits for a member.
    fn held_operation(&self, id: CollOpId) -> Option<Held> {
        let op = self.ops.get(id).filter(|op| op.error.is_none())?;
        let step = op.step?;
        let recv = step.recv.filter(|_| op.receiving != Receiving::Done);
        let send = step.send.filter(|_| op.sending != Sending::Done);
        let rank = recv.or(send)?.peer;
        let group = self.groups.get(op.group)?;
        Some(Held {
            ep: group.ep,
            operation: Some((op.plan.collective(), op.seq)),
            members: group.n(),
            rank,
            member: group.member(rank)?,
            others: 0,
            age: ROUND.saturating_mul(op.rounds),
        })
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
                self.log_operation(id);
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

    /// Has a line written to the log, once for each operation.
    fn log_operation(&mut self, id: CollOpId) {
        let due = |op: &&Op<B>| op.rounds >= LOG_ROUNDS && !op.told;
        let Some(group) = self.ops.get(id).filter(due).map(|op| op.group) else {
            return;
        };
        let Some(held) = self.held_operation(id) else {
            return;
        };
        if let Some(op) = self.ops.get_mut(id) {
            op.told = true;
        }
        let crossed = false;
        self.push(Action::Task(Task::Waits {
            group,
            held,
            crossed,
        }));
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
            self.log_join(id, circling);
        }
        if crossed >= DEADLOCK_ROUNDS {
            self.end_circle(id);
        }
    }

    /// Has a line written to the log: for whom a join waits, first of all for one that is seen to wait itself.
    fn log_join(&mut self, id: GroupId, circling: Option<FiAddr>) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let waits_too = |rank: &u32| circling.is_some() && group.member(*rank) == circling;
        let first = group.awaited().find(waits_too);
        let rank = first.or_else(|| group.awaited().next());
        if let Some(held) = rank.and_then(|rank| group.held_join(rank)) {
            let (group, crossed) = (id, circling.is_some());
            self.push(Action::Task(Task::Waits {
                group,
                held,
                crossed,
            }));
        }
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

    /// That the join waits for this member.
    fn held_join(&self, rank: u32) -> Option<Held> {
        let others = self.awaited().count().saturating_sub(1);
        Some(Held {
            ep: self.ep,
            operation: None,
            members: self.n(),
            rank,
            member: self.member(rank)?,
            others: u32::try_from(others).unwrap_or(u32::MAX),
            age: ROUND.saturating_mul(self.rounds),
        })
    }
}
