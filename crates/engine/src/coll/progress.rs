//! How operations go on: by what has left, and step by step.

use ripstop_types::{Errno, FiAddr};

use crate::Buffer;
use crate::coll::action::{Action, Place, Task};
use crate::coll::collectives::Collectives;
use crate::coll::group::State;
use crate::coll::message::{EAGER, Gone, Kind, Message};
use crate::coll::operation::{Receiving, Sending};
use crate::coll::plan::{AHEAD_STEPS, Part, Range, Then};
use crate::id::{CollOpId, ConnId, EpId, GroupId};

impl<B: Buffer> Collectives<B> {
    /// The last byte of a message of an operation has left, or never will.
    pub fn sent(&mut self, id: CollOpId) {
        if let Some(op) = self.ops.get_mut(id) {
            op.unsent = op.unsent.saturating_sub(1);
            if op.sending == Sending::Posted {
                op.sending = Sending::Done;
            }
            op.touch();
            self.wake(id);
        }
    }

    /// A message of an operation cannot leave.
    pub fn send_failed(&mut self, id: CollOpId, error: Errno) {
        if let Some(op) = self.ops.get_mut(id) {
            op.unsent = op.unsent.saturating_sub(1);
            self.wake(id);
            self.fail(id, error, Some(Gone::of(error)));
        }
    }

    /// The driver has no memory for what an action of the operation says.
    pub fn no_memory(&mut self, id: CollOpId) {
        self.fail(id, Errno::ENOMEM, Some(Gone::Memory));
    }

    /// A connection to a peer ends, or there can be none: nothing more comes from it, and
    /// nothing gets there. `conn` is the connection, if there is one.
    pub fn lost(&mut self, ep: EpId, peer: FiAddr, conn: Option<ConnId>, error: Errno) {
        if let Some(conn) = conn {
            self.forget_conn(conn);
        }
        for group_id in self.groups.every_id() {
            let Some(group) = self.groups.get(group_id).filter(|group| group.ep == ep) else {
                continue;
            };
            let Some(rank) = group.rank_of(peer).filter(|rank| *rank != group.me) else {
                continue;
            };
            self.member_lost(group_id, rank, error);
        }
    }

    pub(super) fn member_lost(&mut self, group_id: GroupId, rank: u32, error: Errno) {
        let Some(group) = self.groups.get_mut(group_id) else {
            return;
        };
        if group.error_of(rank).is_none() {
            // Without memory for the note, those that wait ask again and again.
            let _ = crate::ring::try_push(&mut group.lost, (rank, error));
        }
        if group.state == State::Joining {
            return self.joining_lost(group_id, rank, error);
        }
        for id in self.ops.every_id() {
            if self.is_of(id, group_id) && self.needs(id, rank) {
                self.fail(id, error, Some(Gone::of(error)));
            }
        }
    }

    /// Whether an operation cannot end without a member that is gone.
    fn needs(&self, id: CollOpId, rank: u32) -> bool {
        let Some(op) = self.ops.get(id) else {
            return false;
        };
        let Some(step) = op.step else {
            return op.plan.involves(op.index, rank);
        };
        let with = |part: Option<Part>| part.is_some_and(|part| part.peer == rank);
        (op.receiving != Receiving::Done && with(step.recv))
            || (op.sending != Sending::Done && with(step.send))
            || op.plan.involves(op.index.saturating_add(1), rank)
    }

    /// What to do next. `None` when nothing is left; then more happens when something arrives,
    /// has left, or is started.
    pub fn next_action(&mut self) -> Option<Action<B>> {
        loop {
            if let Some(action) = self.pop_action() {
                return Some(action);
            }
            // A step begins when all that was to be done before it has been.
            let id = self.next_awake()?;
            self.advance(id);
        }
    }

    fn advance(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if op.error.is_some() {
            if op.unsent == 0 {
                self.end(id);
            }
            return;
        }
        let Some(step) = op.step else {
            return self.begin_step(id);
        };
        if op.receiving == Receiving::Waits {
            self.take_early(id, step.recv);
        }
        if let Some(op) = self.ops.get(id)
            && op.sending == Sending::Waits
        {
            self.post_if_ready(id, step.send);
        }
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if op.receiving != Receiving::Done || op.sending != Sending::Done {
            return;
        }
        op.step = None;
        op.index = op.index.saturating_add(1);
        op.touch();
        self.wake(id);
        self.do_then(id, &step.then);
    }

    fn do_then(&mut self, id: CollOpId, then: &Then) {
        let Some(op) = self.ops.get(id) else { return };
        let task = match then {
            Then::Nothing => return,
            Then::Copy { from, .. } if from.len == 0 => return,
            Then::Reduce { into, .. } if into.len == 0 => return,
            Then::Copy { from, to } => Task::Copy {
                op: id,
                from: op.place(from),
                to: op.place(to),
            },
            Then::Reduce { into, from, flip } => Task::Reduce {
                op: id,
                datatype: op.request.datatype,
                by: op.request.op,
                into: op.place(into),
                from: op.place(from),
                flip: *flip,
            },
        };
        self.push(Action::Task(task));
    }

    /// The next step; behind the last one the operation is done.
    fn begin_step(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        let Some(step) = op.plan.step(op.index) else {
            return self.end(id);
        };
        op.step = Some(step);
        op.receiving = match step.recv {
            Some(_) => Receiving::Waits,
            None => Receiving::Done,
        };
        op.sending = match step.send {
            Some(_) => Sending::Waits,
            None => Sending::Done,
        };
        self.wake(id);
        self.grant_ahead(id);
    }

    /// Grants members their long messages: those of this step and of the next ones, as far as nothing
    /// uses the place of each until then. One message to a member grants many, so that few are sent
    /// and nobody has to wait for them.
    fn grant_ahead(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        let index = op.index;
        // As long as the next one has been granted too, there is time.
        if op.granted > index.saturating_add(1) {
            return;
        }
        let mut grants = [(0_u32, 0_u32); AHEAD_STEPS as usize];
        for later in op.granted.max(index)..index.saturating_add(AHEAD_STEPS) {
            let Some(step) = op.plan.step(later) else {
                op.granted = u32::MAX;
                break;
            };
            if let Some(part) = step.recv.filter(|part| part.range.len > EAGER) {
                if !op.plan.is_free(index, later) {
                    break;
                }
                let mut places = grants.iter_mut();
                if let Some((peer, count)) =
                    places.find(|(peer, count)| *count == 0 || *peer == part.peer)
                {
                    (*peer, *count) = (part.peer, count.saturating_add(1));
                }
            }
            op.granted = later.saturating_add(1);
        }
        for (peer, count) in grants.into_iter().take_while(|(_, count)| *count > 0) {
            self.send_grant(id, peer, count);
        }
    }

    fn send_grant(&mut self, id: CollOpId, peer: u32, count: u32) {
        let part = Part {
            peer,
            tag: count,
            range: Range::EMPTY,
        };
        if let (Some(message), Some((ep, to))) =
            (self.message(id, Kind::Ready, &part), self.route(id, peer))
        {
            self.tell(ep, to, message);
        }
    }

    /// The endpoint of an operation, and the address of a member.
    fn route(&self, id: CollOpId, peer: u32) -> Option<(EpId, FiAddr)> {
        let group = self.groups.get(self.ops.get(id)?.group)?;
        Some((group.ep, group.member(peer)?))
    }

    fn message(&self, id: CollOpId, kind: Kind, part: &Part) -> Option<Message> {
        let op = self.ops.get(id)?;
        let group = self.groups.get(op.group)?;
        Some(Message {
            kind,
            group: group.id,
            check: op.check,
            seq: op.seq,
            tag: part.tag,
            from: group.me,
            len: part.range.len,
        })
    }

    fn post_if_ready(&mut self, id: CollOpId, part: Option<Part>) {
        let (Some(part), Some(op)) = (part, self.ops.get(id)) else {
            return;
        };
        let key = (op.group, op.seq);
        if part.range.len > EAGER {
            let Some(early) = self.early_for(Kind::Ready, key, (part.peer, part.tag)) else {
                return;
            };
            let same = self
                .early
                .get(early)
                .is_some_and(|early| early.message.check == op.check);
            self.use_grant(early);
            if !same {
                return self.fail(id, Errno::EINVAL, Some(Gone::Mismatch));
            }
        }
        self.post(id, &part);
    }

    fn post(&mut self, id: CollOpId, part: &Part) {
        let (Some(message), Some((ep, to))) = (
            self.message(id, Kind::Data, part),
            self.route(id, part.peer),
        ) else {
            return;
        };
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        op.sending = Sending::Posted;
        op.unsent = op.unsent.saturating_add(1);
        let payload = op.place(&part.range);
        self.push(Action::Send {
            ep,
            to,
            op: Some(id),
            message,
            payload,
        });
    }

    /// Takes the data of a step if it has come already.
    fn take_early(&mut self, id: CollOpId, part: Option<Part>) {
        let (Some(part), Some(op)) = (part, self.ops.get(id)) else {
            return;
        };
        let key = (op.group, op.seq);
        let Some(found) = self.early_for(Kind::Data, key, (part.peer, part.tag)) else {
            return;
        };
        let Some(early) = self.early.get(found).copied() else {
            return;
        };
        let len = early.message.len;
        if early.message.check != op.check || len != part.range.len {
            return self.fail(id, Errno::EINVAL, Some(Gone::Mismatch));
        }
        let to = op.place(&part.range);
        if let (true, Some(slot)) = (len > 0 && !early.placed, early.slot) {
            let from = Place::Slot {
                slot,
                total: len,
                at: 0,
                len,
            };
            self.push(Action::Task(Task::Copy { op: id, from, to }));
        }
        self.forget_early(found);
        if let Some(op) = self.ops.get_mut(id) {
            op.receiving = Receiving::Done;
            op.touch();
        }
    }
}
