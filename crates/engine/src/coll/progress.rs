//! How operations go on: by what arrives and by what has left.

use ripstop_types::{Errno, FiAddr};

use crate::Buffer;
use crate::coll::group::{Collectives, State};
use crate::coll::message::{EAGER, Gone, Kind, Message};
use crate::coll::operation::{Action, Place, Purpose, Receiving, Sending, Task};
use crate::coll::plan::{Part, Then};
use crate::id::{CollOpId, ConnId, EpId, GroupId};

/// Messages about operations this far ahead, and no farther, can be of a peer that keeps to the
/// window.
const MAX_AHEAD: u32 = 4 * super::group::WINDOW as u32;

/// How many steps ahead members are asked for data, and data is looked for.
const AHEAD_STEPS: u32 = 16;

/// What to do with a message that has arrived, and its payload.
#[derive(Clone, Copy, Debug)]
pub enum Arrival<B> {
    /// Its payload is of no use.
    Discard,
    /// Its payload goes there; then call [`Collectives::arrived`]. If it does not come whole,
    /// [`Collectives::lost`] follows.
    Into {
        /// What it is for.
        of: Purpose,
        /// The place, as long as the payload.
        place: Place<B>,
    },
    /// It comes too early: call [`Collectives::keep`], or deliver it again later.
    Keep,
    /// Its sender breaks the protocol.
    Broken,
}

impl<B: Buffer> Collectives<B> {
    /// Takes a message for an endpoint, from `src` in its address vector, on a connection. All
    /// actions must have been done, unless there is no payload.
    pub fn handle_message(
        &mut self,
        (ep, src, conn): (EpId, FiAddr, ConnId),
        message: &Message,
    ) -> Arrival<B> {
        if !src.is_specified() {
            // A member that the address vector has no more is like one that is silent.
            return Arrival::Discard;
        }
        let pointless = message.kind == Kind::Ready && message.tag == 0;
        if (message.len > 0 && message.kind != Kind::Data) || pointless {
            return Arrival::Broken;
        }
        match message.kind {
            Kind::Ping => {
                self.note_ping(ep, src, message);
                Arrival::Discard
            }
            Kind::Join | Kind::Joined | Kind::Decline => {
                match self.handle_joining(ep, src, message) {
                    true => Arrival::Discard,
                    false => Arrival::Keep,
                }
            }
            _ => self.handle_of_group((ep, src, conn), message),
        }
    }

    fn handle_of_group(
        &mut self,
        (ep, src, conn): (EpId, FiAddr, ConnId),
        message: &Message,
    ) -> Arrival<B> {
        let Some(group_id) = self.find_group(ep, message.group) else {
            return self.of_no_group(ep, src, message);
        };
        let Some(group) = self.groups.get(group_id) else {
            return Arrival::Discard;
        };
        if !group.is_member(message.from, src) {
            return Arrival::Broken;
        }
        let next = group.next;
        if let Some(id) = self.find_op(group_id, message.seq) {
            return self.of_operation(id, (ep, src, conn), message);
        }
        let ahead = message.seq.wrapping_sub(next);
        if ahead > u32::MAX / 2 {
            self.of_the_past(group_id, src, message);
            return Arrival::Discard;
        }
        match message.kind {
            // The answer is known when the operation has been started.
            Kind::Ask => Arrival::Discard,
            _ if ahead > MAX_AHEAD || message.len > EAGER => Arrival::Broken,
            _ => Arrival::Keep,
        }
    }

    /// A member that does not know yet that all have joined keeps what comes before that.
    fn of_no_group(&mut self, ep: EpId, src: FiAddr, message: &Message) -> Arrival<B> {
        if self.joins(ep) && message.kind != Kind::Ask {
            return match message.len > EAGER {
                true => Arrival::Broken,
                false => Arrival::Keep,
            };
        }
        if message.kind == Kind::Ask {
            let answer = Message {
                kind: Kind::Gone,
                tag: Gone::Left.number(),
                check: 0,
                from: message.tag,
                ..*message
            };
            self.tell(ep, src, answer);
        }
        Arrival::Discard
    }

    fn of_the_past(&mut self, group_id: GroupId, src: FiAddr, message: &Message) {
        let Some(group) = self.groups.get(group_id) else {
            return;
        };
        if message.kind != Kind::Ask {
            return;
        }
        let known = (0..group.failed.len()).filter_map(|index| group.failed.get(index));
        let mut ended = known.filter(|(seq, _)| *seq == message.seq);
        let reason = ended.next().map_or(Gone::Done, |(_, reason)| reason);
        let answer = group.gone(message.seq, reason);
        self.tell(group.ep, src, answer);
    }

    fn of_operation(
        &mut self,
        id: CollOpId,
        from: (EpId, FiAddr, ConnId),
        message: &Message,
    ) -> Arrival<B> {
        let Some(op) = self.ops.get_mut(id) else {
            return Arrival::Discard;
        };
        if op.error.is_some() {
            return self.of_the_failed(id, message);
        }
        if message.kind != Kind::Gone && message.check != op.check {
            self.fail(id, Errno::EINVAL, Some(Gone::Mismatch));
            return Arrival::Discard;
        }
        match message.kind {
            Kind::Data => {
                let key = (message.from, message.tag);
                let is = |part: &Part| (part.peer, part.tag) == key;
                let wanted = op.step.and_then(|step| step.recv).filter(is);
                let Some(part) = wanted.filter(|_| op.receiving == Receiving::Waits) else {
                    return self.of_later_step(id, from, message);
                };
                let group = op.group;
                if part.range.len != message.len || self.is_ahead(group, message) {
                    return Arrival::Broken;
                }
                let Some(op) = self.ops.get_mut(id) else {
                    return Arrival::Discard;
                };
                op.touch();
                if message.len == 0 {
                    op.receiving = Receiving::Done;
                    self.wake(id);
                    return Arrival::Discard;
                }
                op.receiving = Receiving::Arrives(from.2);
                Arrival::Into {
                    of: Purpose::Step(id),
                    place: op.place(&part.range),
                }
            }
            // Taken by the steps that it is for.
            Kind::Ready => {
                op.touch();
                Arrival::Keep
            }
            Kind::Gone => {
                match Gone::told(message.tag) {
                    Gone::Done => self.check_done(id, message.from),
                    reason => self.fail(id, reason.errno(), None),
                }
                Arrival::Discard
            }
            _ => Arrival::Discard,
        }
    }

    /// Data of an operation that is not what its step waits for: it goes to the place of its own
    /// step if nothing uses that until then, as is so for all that was asked for.
    fn of_later_step(
        &mut self,
        id: CollOpId,
        from: (EpId, FiAddr, ConnId),
        message: &Message,
    ) -> Arrival<B> {
        let long = message.len > EAGER;
        let early = if long { Arrival::Broken } else { Arrival::Keep };
        let Some(op) = self.ops.get_mut(id) else {
            return Arrival::Discard;
        };
        let key = (message.from, message.tag);
        let next = op.index.saturating_add(u32::from(op.step.is_some()));
        let end = match long {
            true => op.asked,
            false => next.saturating_add(AHEAD_STEPS),
        };
        let part = |index| Some((index, op.plan.step(index)?.recv));
        let found = (next..end)
            .map_while(part)
            .find_map(|(index, part)| Some((index, part.filter(|p| (p.peer, p.tag) == key)?)));
        let Some((index, part)) = found else {
            return early;
        };
        if part.range.len != message.len {
            return Arrival::Broken;
        }
        if message.len == 0 || (!long && !op.plan.is_free(op.index, index)) {
            return early;
        }
        op.touch();
        let (group, place) = (op.group, op.place(&part.range));
        if self.is_ahead(group, message) {
            return Arrival::Broken;
        }
        match self.note_ahead(from, *message) {
            Ok(id) => Arrival::Into {
                of: Purpose::Early(id),
                place,
            },
            Err(_) => {
                self.no_memory(id);
                Arrival::Discard
            }
        }
    }

    /// An operation that waits for its bytes to leave before it ends in error.
    fn of_the_failed(&mut self, id: CollOpId, message: &Message) -> Arrival<B> {
        if message.kind == Kind::Ask
            && let Some(op) = self.ops.get(id)
            && let Some(group) = self.groups.get(op.group)
            && let Some(to) = group.member(message.from)
        {
            let answer = group.gone(message.seq, op.error.map_or(Gone::Lost, Gone::of));
            self.tell(group.ep, to, answer);
        }
        Arrival::Discard
    }

    /// A member says that it is done. What it sent is here already: if more is expected of it,
    /// it had another operation in mind.
    fn check_done(&mut self, id: CollOpId, peer: u32) {
        let Some(op) = self.ops.get(id) else { return };
        let key = (op.group, op.seq);
        let next = match op.step {
            Some(_) => op.index.saturating_add(1),
            None => op.index,
        };
        let missing = |part: &Part| {
            part.peer == peer && self.early_for(Kind::Data, key, (peer, part.tag)).is_none()
        };
        let waits = |part: &Part| part.peer == peer && part.range.len > EAGER;
        let now = op.step;
        let recv = now.and_then(|step| step.recv.filter(|_| op.receiving == Receiving::Waits));
        let send = now.and_then(|step| step.send.filter(|_| op.sending == Sending::Waits));
        let later = || (next..).map_while(|index| op.plan.step(index));
        let data = recv.iter().any(missing) || later().any(|step| step.recv.iter().any(missing));
        let sends = later().filter_map(|step| step.send).chain(send);
        let unasked = sends.filter(waits).count() > self.asked_by(key, peer) as usize;
        if data || unasked {
            self.fail(id, Errno::EINVAL, Some(Gone::Mismatch));
        }
    }

    /// The payload of a message has come whole, see [`Arrival::Into`].
    pub fn arrived(&mut self, of: Purpose) {
        match of {
            Purpose::Step(id) => self.step_arrived(id),
            Purpose::Early(id) => self.early_arrived(id),
        }
    }

    /// There is no memory for the payload of a message that is arriving.
    pub fn arrival_lost(&mut self, of: Purpose) {
        match of {
            Purpose::Step(id) => self.no_memory(id),
            Purpose::Early(id) => self.early_lost(id),
        }
    }

    fn step_arrived(&mut self, id: CollOpId) {
        if let Some(op) = self.ops.get_mut(id)
            && matches!(op.receiving, Receiving::Arrives(_))
        {
            op.receiving = Receiving::Done;
            op.touch();
            self.wake(id);
        }
    }

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
        self.ask_ahead(id);
    }

    /// Says to members that what they may not send unasked may come: what this step is for and
    /// the next ones, as far as nothing uses its place until then. Much is asked for at once, so
    /// that few messages do, and nobody has to wait for them.
    fn ask_ahead(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        let index = op.index;
        // As long as the next one has been asked for too, there is time.
        if op.asked > index.saturating_add(1) {
            return;
        }
        let mut asked = [(0_u32, 0_u32); AHEAD_STEPS as usize];
        for later in op.asked.max(index)..index.saturating_add(AHEAD_STEPS) {
            let Some(step) = op.plan.step(later) else {
                op.asked = u32::MAX;
                break;
            };
            if let Some(part) = step.recv.filter(|part| part.range.len > EAGER) {
                if !op.plan.is_free(index, later) {
                    break;
                }
                let mut places = asked.iter_mut();
                if let Some((peer, count)) =
                    places.find(|(peer, count)| *count == 0 || *peer == part.peer)
                {
                    (*peer, *count) = (part.peer, count.saturating_add(1));
                }
            }
            op.asked = later.saturating_add(1);
        }
        for (peer, count) in asked.into_iter().take_while(|(_, count)| *count > 0) {
            self.say_ready(id, peer, count);
        }
    }

    fn say_ready(&mut self, id: CollOpId, peer: u32, count: u32) {
        let part = Part {
            peer,
            tag: count,
            range: super::plan::Range::EMPTY,
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
            self.take_ready(early);
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
