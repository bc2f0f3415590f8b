//! How a group comes to be: each member tells member 0 that it joins, and member 0, once it has
//! heard of all, tells them what messages call the group.

use alloc::vec::Vec;

use ripstop_types::{Errno, FiAddr, Result};

use crate::Buffer;
use crate::coll::action::{Action, Task};
use crate::coll::collectives::Collectives;
use crate::coll::group::{Group, Joining, Refused, State};
use crate::coll::message::{Gone, Kind, Message};
use crate::coll::probe::Probes;
use crate::id::{EpId, GroupId};
use crate::ring::{Ring, try_push};

/// Refused members that are remembered, the latest.
const MAX_REFUSED: usize = 256;

impl<B: Buffer> Collectives<B> {
    /// Joins a group; [`Task::Joined`](super::Task::Joined) says when all members have.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a rank that there is not, [`Errno::ENOMEM`].
    pub fn join(&mut self, joining: &Joining<'_>) -> Result<GroupId> {
        let Joining {
            ep,
            members,
            me,
            digest,
        } = *joining;
        let mut list = Vec::new();
        list.try_reserve_exact(members.len())
            .map_err(|_| Errno::ENOMEM)?;
        let mut missing = Vec::new();
        for (rank, member) in (0..).zip(members) {
            try_push(&mut list, *member)?;
            if me == 0 && rank != me {
                try_push(&mut missing, rank)?;
            }
        }
        if usize::try_from(me).map_or(true, |me| me >= list.len()) {
            return Err(Errno::EINVAL);
        }
        // Never 0, which is no attempt.
        self.attempts = self.attempts.checked_add(1).unwrap_or(1);
        let id = self.groups.insert(Group {
            ep,
            members: list,
            me,
            digest,
            id: 0,
            state: State::Joining,
            missing,
            joined: Vec::new(),
            attempt: self.attempts,
            lost: Vec::new(),
            next: 0,
            failed: Ring::new(),
            since: None,
            rounds: 0,
            probes: Probes::default(),
        })?;
        match me {
            0 => {
                // Who joins from now on joins this group.
                let again = |refused: &Refused| (refused.ep, refused.digest) == (ep, digest);
                self.refused.retain(|refused| !again(refused));
                self.collect(id);
            }
            _ => self.ask_to_join(id),
        }
        Ok(id)
    }

    /// A message of this member about joining, for a member's attempt or its own.
    fn about(group: &Group, kind: Kind, attempt: u32, tag: u32) -> Message {
        Message {
            kind,
            group: group.digest,
            check: u64::from(group.n()),
            seq: attempt,
            tag,
            from: group.me,
            len: 0,
        }
    }

    fn ask_to_join(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let (ep, digest, leader) = (group.ep, group.digest, group.member(0));
        let of_leader = |message: &Message, src| message.from == 0 && Some(src) == leader;
        if let Some(message) = self.take_joining(Kind::Decline, ep, digest, of_leader) {
            let reason = Gone::told(message.tag);
            return self.join_failed(id, reason.errno());
        }
        let Some(group) = self.groups.get(id) else {
            return;
        };
        if let Some(leader) = leader {
            let message = Self::about(group, Kind::Join, group.attempt, 0);
            self.tell(ep, leader, message);
        }
    }

    /// Member 0: takes those that have joined already.
    fn collect(&mut self, id: GroupId) {
        while let Some(group) = self.groups.get(id) {
            let (ep, digest, n) = (group.ep, group.digest, group.n());
            let Ok(members) = group.missing_members() else {
                return self.join_failed(id, Errno::ENOMEM);
            };
            let fits = |message: &Message, src| {
                message.check == u64::from(n) && members.contains(&(message.from, src))
            };
            let Some(message) = self.take_joining(Kind::Join, ep, digest, fits) else {
                break;
            };
            self.has_joined(id, &message);
        }
        self.complete_join(id);
    }

    fn has_joined(&mut self, id: GroupId, message: &Message) {
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        match try_push(&mut group.joined, (message.from, message.seq)) {
            Ok(()) => group.missing.retain(|rank| *rank != message.from),
            Err(error) => {
                self.decline(id, Gone::Memory);
                self.join_failed(id, error);
            }
        }
    }

    /// Member 0: if nobody is missing, the group is up.
    fn complete_join(&mut self, id: GroupId) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        if !group.missing.is_empty() || group.state != State::Joining {
            return;
        }
        let (ep, digest, n) = (group.ep, group.digest, group.n());
        let name = self.new_name(ep, digest);
        for rank in 1..n {
            let Some(group) = self.groups.get(id) else {
                return;
            };
            if let Some(to) = group.member(rank) {
                let message = Message {
                    check: name,
                    ..Self::about(group, Kind::Joined, group.attempt_of(rank), 0)
                };
                self.tell(ep, to, message);
            }
        }
        self.up(id, name);
    }

    fn up(&mut self, id: GroupId, name: u64) {
        if let Some(group) = self.groups.get_mut(id) {
            group.id = name;
            group.state = State::Up;
            self.push(Action::Task(Task::Joined {
                group: id,
                error: None,
            }));
            self.forget_unknown();
        }
    }

    /// Tells those who wait for this member that it does not join.
    pub(super) fn decline(&mut self, id: GroupId, reason: Gone) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let last = if group.me == 0 { group.n() } else { 1 };
        self.tell_members(id, 0..last, |group, rank| {
            let attempt = group.attempt_of(rank);
            Self::about(group, Kind::Decline, attempt, reason.number())
        });
    }

    pub(super) fn join_failed(&mut self, id: GroupId, error: Errno) {
        let Some(group) = self.groups.get_mut(id) else {
            return;
        };
        if group.state != State::Joining {
            return;
        }
        group.state = State::Closed;
        self.push(Action::Task(Task::Joined {
            group: id,
            error: Some(error),
        }));
        self.forget_unknown();
    }

    /// Takes a message about joining; `false` if it is to be kept.
    pub(super) fn handle_joining(&mut self, ep: EpId, src: FiAddr, message: &Message) -> bool {
        if message.kind == Kind::Decline && Gone::told(message.tag) == Gone::Circle {
            self.note_circle(ep, src, message);
            return true;
        }
        let fits = |group: &Group| {
            group.ep == ep
                && group.state == State::Joining
                && group.digest == message.group
                && group.is_member(message.from, src)
                && match message.kind {
                    // The oldest that has not heard of this member.
                    Kind::Join => group.me == 0 && group.missing.contains(&message.from),
                    Kind::Decline if group.me == 0 => {
                        group.joined.contains(&(message.from, message.seq))
                    }
                    // That a crossed join has ended says nothing of one begun since.
                    Kind::Decline if message.seq == 0 => {
                        message.from == 0 && Gone::told(message.tag) != Gone::Mismatch
                    }
                    _ => message.from == 0 && message.seq == group.attempt,
                }
        };
        let Some(id) = self.groups.position(fits) else {
            return match message.kind {
                Kind::Joined => true,
                Kind::Decline if message.from != 0 => {
                    self.take_back(ep, src, message);
                    true
                }
                // Not kept: a later join of that set has nothing to do with it.
                Kind::Decline => Gone::told(message.tag) == Gone::Mismatch,
                _ => self.refuse(ep, src, message),
            };
        };
        match message.kind {
            Kind::Join => {
                self.has_joined(id, message);
                self.complete_join(id);
            }
            Kind::Joined if self.find_group(ep, message.check).is_some() => {
                self.join_failed(id, Errno::EADDRINUSE);
            }
            Kind::Joined => self.up(id, message.check),
            _ => {
                let reason = Gone::told(message.tag);
                // Member 0 tells the others; another one that what it said is void, where
                // member 0 had not heard it.
                let of_leader = |group: &Group| group.me == 0;
                if message.seq == 0 || self.groups.get(id).is_some_and(of_leader) {
                    self.decline(id, reason);
                }
                self.join_failed(id, reason.errno());
            }
        }
        true
    }

    /// Member 0 hears that a member does not join after all: what it said before is forgotten,
    /// or it has left the group that came of that.
    fn take_back(&mut self, ep: EpId, src: FiAddr, message: &Message) {
        self.take_refused(ep, message.group, src);
        let same = |early: &Message, from| {
            (early.from, early.seq, from) == (message.from, message.seq, src)
        };
        if self
            .take_joining(Kind::Join, ep, message.group, same)
            .is_some()
        {
            return;
        }
        let left = |group: &Group| {
            (group.ep, group.digest, group.state) == (ep, message.group, State::Up)
                && group.is_member(message.from, src)
                && group.joined.contains(&(message.from, message.seq))
        };
        if let Some(id) = self.groups.position(left) {
            self.member_lost(id, message.from, Errno::ECANCELED);
        }
    }

    /// A member of a group that is being joined cannot be reached.
    ///
    /// Its end of the connection may not have heard of that: where it was still connecting, it tries
    /// again. So each end lets the other know that it gave up.
    pub(super) fn joining_lost(&mut self, id: GroupId, rank: u32, error: Errno) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let reason = Gone::of(error);
        if group.me == 0 {
            self.decline(id, reason);
        } else if rank != 0 {
            return;
        }
        self.tell_lost(id, rank, reason);
        self.join_failed(id, error);
    }

    /// Tells a member that is out of reach that this one's join has failed, in case it can be reached
    /// again. One that has not joined, as far as member 0 knows, hears of it when it does.
    fn tell_lost(&mut self, id: GroupId, rank: u32, reason: Gone) {
        let Some(group) = self.groups.get(id) else {
            return;
        };
        let (ep, digest, attempt) = (group.ep, group.digest, group.attempt_of(rank));
        let Some(member) = group.member(rank) else {
            return;
        };
        if attempt != 0 {
            let message = Self::about(group, Kind::Decline, attempt, reason.number());
            return self.tell(ep, member, message);
        }
        self.take_refused(ep, digest, member);
        if self.refused.len() == MAX_REFUSED {
            self.refused.skip();
        }
        // Without memory for it the member waits, and the log says for whom.
        let _ = self.refused.push(Refused {
            ep,
            digest,
            member,
            reason,
        });
    }

    /// Member 0: answers a member whose join has failed already; `false` if it has not.
    fn refuse(&mut self, ep: EpId, src: FiAddr, join: &Message) -> bool {
        let Some(reason) = self.take_refused(ep, join.group, src) else {
            return false;
        };
        let answer = Message {
            kind: Kind::Decline,
            tag: reason.number(),
            from: 0,
            ..*join
        };
        self.tell(ep, src, answer);
        true
    }

    fn take_refused(&mut self, ep: EpId, digest: u64, member: FiAddr) -> Option<Gone> {
        let is = |of: &Refused| (of.ep, of.digest, of.member) == (ep, digest, member);
        let mut all = (0..self.refused.len()).filter_map(|index| self.refused.get(index));
        let reason = all.find(is)?.reason;
        self.refused.retain(|refused| !is(refused));
        Some(reason)
    }
}

impl Group {
    /// Ranks and addresses of those who have not joined.
    fn missing_members(&self) -> Result<Vec<(u32, FiAddr)>> {
        let mut found = Vec::new();
        for rank in &self.missing {
            if let Some(member) = self.member(*rank) {
                try_push(&mut found, (*rank, member))?;
            }
        }
        Ok(found)
    }

    /// What a member calls its joining, or 0 for one that has not joined as far as is known.
    fn attempt_of(&self, rank: u32) -> u32 {
        if self.me != 0 {
            return self.attempt;
        }
        let is = |(joined, _): &&(u32, u32)| *joined == rank;
        let joined = self.joined.iter().find(is);
        joined.map_or(0, |(_, attempt)| *attempt)
    }
}
