//! A group, as one of its members knows it.

use alloc::vec::Vec;

use ripstop_types::{Errno, FiAddr};

use crate::coll::message::{Gone, Kind, Message};
use crate::coll::probe::Probes;
use crate::id::EpId;
use crate::ring::Ring;

/// Who is to be in a group.
#[derive(Clone, Copy, Debug)]
pub struct Joining<'a> {
    /// The endpoint that joins.
    pub ep: EpId,
    /// The members' places in its address vector, by rank, each once.
    pub members: &'a [FiAddr],
    /// The rank of the endpoint.
    pub me: u32,
    /// A number that is the same at all members for the same members in the same order, and
    /// hardly for others.
    pub digest: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Not all have joined.
    Joining,
    /// In use.
    Up,
    /// Not to be used, and gone when the last operation is.
    Closed,
}

#[derive(Debug)]
pub(super) struct Group {
    pub(super) ep: EpId,
    pub(super) members: Vec<FiAddr>,
    pub(super) me: u32,
    pub(super) digest: u64,
    /// What messages call it, once it is up.
    pub(super) id: u64,
    pub(super) state: State,
    /// Who has not joined, as far as member 0 knows.
    pub(super) missing: Vec<u32>,
    /// What those who have joined call that, which is different each time.
    pub(super) joined: Vec<(u32, u32)>,
    /// What this member calls it.
    pub(super) attempt: u32,
    /// Members that cannot be reached, and why.
    pub(super) lost: Vec<(u32, Errno)>,
    /// The next operation.
    pub(super) next: u32,
    /// Operations that did not end well.
    pub(super) failed: Ring<(u32, Gone)>,
    /// When those missing were looked for.
    pub(super) since: Option<core::time::Duration>,
    /// How often they were.
    pub(super) rounds: u32,
    /// Of those that wait for this member elsewhere.
    pub(super) probes: Probes,
}

impl Group {
    pub(super) fn n(&self) -> u32 {
        u32::try_from(self.members.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn member(&self, rank: u32) -> Option<FiAddr> {
        self.members.get(usize::try_from(rank).ok()?).copied()
    }

    pub(super) fn is_member(&self, rank: u32, addr: FiAddr) -> bool {
        self.member(rank) == Some(addr) && rank != self.me
    }

    pub(super) fn rank_of(&self, addr: FiAddr) -> Option<u32> {
        let rank = self.members.iter().position(|member| *member == addr)?;
        u32::try_from(rank).ok()
    }

    /// Says how an operation has ended here.
    pub(super) fn gone(&self, seq: u32, reason: Gone) -> Message {
        Message {
            kind: Kind::Gone,
            group: self.id,
            seq,
            tag: reason.number(),
            from: self.me,
            ..Message::default()
        }
    }

    pub(super) fn error_of(&self, rank: u32) -> Option<Errno> {
        let is = |(lost, _): &&(u32, Errno)| *lost == rank;
        self.lost.iter().find(is).map(|(_, error)| *error)
    }
}

/// A member that could not be told that a join of its set has failed: it was out of reach, and had not
/// joined as far as member 0 knew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    pub(super) ep: EpId,
    pub(super) digest: u64,
    pub(super) member: FiAddr,
    pub(super) reason: Gone,
}
