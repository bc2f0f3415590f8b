//! What is done with a message that arrives, by what it says and what it is about.

use ripstop_types::{Errno, FiAddr};

use crate::Buffer;
use crate::coll::action::{Place, Purpose};
use crate::coll::collectives::{Collectives, WINDOW};
use crate::coll::message::{EAGER, Gone, Kind, Message};
use crate::coll::operation::{Receiving, Sending};
use crate::coll::plan::{AHEAD_STEPS, Part};
use crate::id::{CollOpId, ConnId, EpId, GroupId};

/// Messages about operations this far ahead, and no farther, can be of a peer that keeps to the
/// window.
const MAX_AHEAD: u32 = 4 * WINDOW as u32;

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
    /// step if nothing uses that until then, as is so for all that a grant was sent for.
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
            true => op.granted,
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
        let needs_grant = |part: &Part| part.peer == peer && part.range.len > EAGER;
        let now = op.step;
        let recv = now.and_then(|step| step.recv.filter(|_| op.receiving == Receiving::Waits));
        let send = now.and_then(|step| step.send.filter(|_| op.sending == Sending::Waits));
        let later = || (next..).map_while(|index| op.plan.step(index));
        let data = recv.iter().any(missing) || later().any(|step| step.recv.iter().any(missing));
        let sends = later().filter_map(|step| step.send).chain(send);
        let ungranted = sends.filter(needs_grant).count() > self.granted_by(key, peer) as usize;
        if data || ungranted {
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
}
