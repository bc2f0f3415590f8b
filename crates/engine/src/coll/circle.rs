//! Members that wait for each other in a circle, each to join another group.
//!
//! Each round a member sends those it waits for a number of its own, a *probe*. Who gets one, and
//! does not join that set but waits itself, passes it on to those it waits for. One that comes
//! back has found a circle: everybody on its way waits for the next one. When a member has seen
//! that for long, its join ends, and the word of it goes back along the way and ends all the
//! others.
//!
//! Only a number greater than a member's own is passed on, so the greatest of a circle goes round.

use ripstop_types::{Errno, FiAddr};

use crate::Buffer;
use crate::coll::collectives::Collectives;
use crate::coll::group::{Group, State};
use crate::coll::message::{Gone, Kind, Message};
use crate::coll::operation::mix;
use crate::coll::probe::{MAX_KEPT_PROBES, Probe};
use crate::id::{EpId, GroupId};

impl Group {
    /// The probe of this join, which is that of no other one.
    fn probe(&self) -> u64 {
        let attempt = u64::from(self.me) << 32 | u64::from(self.attempt);
        mix(mix(self.digest) ^ attempt)
    }

    /// The member that is seen to wait for this one elsewhere, itself or by way of others.
    pub(super) fn circling(&self) -> Option<FiAddr> {
        let own = self.probe();
        let is_back = |known: &&Probe| known.number == own && known.is_current();
        let back = self.probes.known.iter().find(is_back);
        back.map(|known| known.src)
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
    pub(super) fn probe(&mut self, id: GroupId) {
        if let Some(number) = self.groups.get(id).map(Group::probe) {
            self.send_probe(id, number);
        }
    }

    /// Sends a probe to those that a join waits for.
    fn send_probe(&mut self, id: GroupId, number: u64) {
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
        if self.groups.position(known).is_some() {
            return;
        }
        let probe = Probe {
            number: message.check,
            src,
            digest: message.group,
            rank: message.tag,
            age: 0,
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
    pub(super) fn end_circle(&mut self, id: GroupId) {
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

    fn break_circle(&mut self, id: GroupId, number: u64) {
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
            let (about, tag) = ((probe.digest, number), Gone::Circle.number());
            let message = about_probe(Kind::Decline, about, tag, probe.rank);
            let (ep, to) = (group.ep, probe.src);
            self.tell(ep, to, message);
        }
        self.decline(id, Gone::Mismatch);
        self.join_failed(id, Errno::EINVAL);
    }
}
