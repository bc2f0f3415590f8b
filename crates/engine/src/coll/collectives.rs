//! The groups of some endpoints and their operations, from the call that starts one to its end.

use ripstop_types::{Errno, FiAddr, Result};

use crate::Buffer;
use crate::coll::action::{Action, Outcome, Place, Purpose, Task};
use crate::coll::early::Early;
use crate::coll::group::{Group, Refused, State};
use crate::coll::message::{EAGER, Gone, Kind, Message};
use crate::coll::operation::{Op, Receiving, Request, Sending, mix};
use crate::coll::plan::{Buf, Plan, Range};
use crate::id::{CollOpId, EarlyId, EpId, GroupId, SlotId};
use crate::pool::Pool;
use crate::ring::Ring;

/// Most operations between the oldest one in flight of an endpoint and its newest. What others
/// keep of an operation that they have not started is so bounded too.
pub(super) const WINDOW: u64 = 256;

/// How an operation of the past ended, for those that ask, as many as this.
const MAX_ENDED: usize = 32;

/// The groups of some endpoints, and their operations; see the [module](super).
#[derive(Debug)]
pub struct Collectives<B> {
    pub(super) groups: Pool<GroupId, Group>,
    pub(super) ops: Pool<CollOpId, Op<B>>,
    pub(super) early: Pool<EarlyId, Early>,
    pub(super) actions: Ring<Action<B>>,
    pub(super) run: Ring<CollOpId>,
    started: u64,
    /// Groups whose names this side has made.
    pub(super) named: u64,
    /// How often a group was joined.
    pub(super) attempts: u32,
    /// Members whose joins fail as soon as this member 0 hears of them.
    pub(super) refused: Ring<Refused>,
}

impl<B: Buffer> Default for Collectives<B> {
    fn default() -> Self {
        Self::new()
    }
}

impl<B: Buffer> Collectives<B> {
    /// Without groups.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            groups: Pool::new(),
            ops: Pool::new(),
            early: Pool::new(),
            actions: Ring::new(),
            run: Ring::new(),
            started: 0,
            named: 0,
            attempts: 0,
            refused: Ring::new(),
        }
    }

    /// Whether [`Collectives::next_action`] has anything.
    #[must_use]
    pub const fn is_quiet(&self) -> bool {
        self.actions.is_empty() && self.run.is_empty()
    }

    /// Whether there is no group at all.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.groups.is_empty() && self.early.is_empty()
    }

    /// How many members a group has. `None` for one that is not up.
    #[must_use]
    pub fn members(&self, group: GroupId) -> Option<&[FiAddr]> {
        let group = self.groups.get(group)?;
        (group.state == State::Up).then_some(group.members.as_slice())
    }

    /// The endpoint that joined a group.
    #[must_use]
    pub fn ep_of(&self, group: GroupId) -> Option<EpId> {
        Some(self.groups.get(group)?.ep)
    }

    /// The rank of a member of a group that is up.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for an address that is not a member's.
    pub fn rank(&self, group: GroupId, member: FiAddr) -> Result<u32> {
        let group = self.groups.get(group).ok_or(Errno::EINVAL)?;
        group.rank_of(member).ok_or(Errno::EINVAL)
    }

    /// The plan of an operation of a group.
    ///
    /// # Errors
    /// [`Errno::EOPBADSTATE`] for a group that is not up; [`Errno::EMSGSIZE`].
    pub fn plan(&self, group: GroupId, request: &Request<B>) -> Result<Plan> {
        let group = self.groups.get(group).ok_or(Errno::EINVAL)?;
        if group.state != State::Up {
            return Err(Errno::EOPBADSTATE);
        }
        let ranks = (group.n(), group.me, request.root);
        let elements = (request.datatype, request.op);
        Plan::new(request.coll, elements, request.count, ranks).ok_or(Errno::EMSGSIZE)
    }

    /// Bytes of scratch memory that an operation needs, those for a copy of its input included.
    #[must_use]
    pub fn scratch(plan: &Plan, request: &Request<B>) -> u64 {
        let copy = match in_place(&trimmed(plan, *request)) {
            true => plan.input(),
            false => 0,
        };
        plan.scratch().saturating_add(copy)
    }

    /// Starts an operation. `slot` is for [`Collectives::scratch`] bytes, if there are
    /// any; it is freed by an action.
    ///
    /// # Errors
    /// As for [`Collectives::plan`]; [`Errno::EINVAL`] for buffers that are too short;
    /// [`Errno::EAGAIN`] when too many are in flight, [`Errno::ENOMEM`].
    pub fn start(
        &mut self,
        group_id: GroupId,
        request: Request<B>,
        slot: Option<SlotId>,
    ) -> Result<()> {
        let plan = self.plan(group_id, &request)?;
        let short = (request.input.len() as u64) < plan.input()
            || (request.result.len() as u64) < plan.result();
        if short {
            return Err(Errno::EINVAL);
        }
        self.check_window(group_id)?;
        self.make_room_for_operation()?;
        // All operations can go on at once.
        let turns = self.run.len().saturating_add(self.ops.len());
        self.run.reserve(turns.saturating_add(1), CollOpId::FIRST)?;
        let request = trimmed(&plan, request);
        let group = self.groups.get_mut(group_id).ok_or(Errno::EINVAL)?;
        let seq = group.next;
        let op = Op {
            group: group_id,
            seq,
            check: request.check(),
            plan,
            slot,
            total: Self::scratch(&plan, &request),
            copied: in_place(&request).then(|| plan.scratch()),
            request,
            ordinal: self.started,
            step: None,
            index: 0,
            granted: if plan.fits(EAGER) { u32::MAX } else { 0 },
            sending: Sending::Done,
            receiving: Receiving::Done,
            unsent: 0,
            error: None,
            awake: false,
            since: None,
            rounds: 0,
            told: false,
        };
        let id = self.ops.insert(op)?;
        group.next = seq.wrapping_add(1);
        self.started = self.started.wrapping_add(1);
        self.begin(id);
        Ok(())
    }

    fn begin(&mut self, id: CollOpId) {
        let Some(op) = self.ops.get(id) else { return };
        let (group, seq) = (op.group, op.seq);
        if op.copied.is_some() {
            let from = Place::User(op.request.input);
            let to = op.place(&Range::new(Buf::Input, 0, op.request.input.len() as u64));
            self.push(Action::Task(Task::Copy { op: id, from, to }));
        }
        self.wake(id);
        if let Some(reason) = self.early_end(group, seq) {
            self.fail(id, reason.errno(), None);
        }
        if self.early_differs(id) {
            self.fail(id, Errno::EINVAL, Some(Gone::Mismatch));
        }
        let lost = self.groups.get(group).and_then(|group| {
            let op = self.ops.get(id)?;
            let needed = |(rank, _): &&(u32, Errno)| op.plan.involves(0, *rank);
            group.lost.iter().find(needed).map(|(_, error)| *error)
        });
        if let Some(error) = lost {
            self.fail(id, error, Some(Gone::Lost));
        }
    }

    fn check_window(&self, group: GroupId) -> Result<()> {
        let ep = self.ep_of(group);
        let of_ep = |id: CollOpId| {
            let op = self.ops.get(id)?;
            (self.ep_of(op.group) == ep).then_some(op.ordinal)
        };
        let oldest = self.ops.ids().filter_map(of_ep).min();
        match oldest.map(|oldest| self.started.wrapping_sub(oldest)) {
            Some(distance) if distance >= WINDOW => Err(Errno::EAGAIN),
            _ => Ok(()),
        }
    }

    /// Leaves a group: what is in flight ends, and the other members hear of it.
    pub fn close(&mut self, group_id: GroupId) {
        let Some(group) = self.groups.get(group_id) else {
            return;
        };
        match group.state {
            State::Joining => self.decline(group_id, Gone::Left),
            State::Up => {
                for id in self.ops.every_id() {
                    if self.is_of(id, group_id) {
                        self.fail(id, Errno::ECANCELED, Some(Gone::Left));
                    }
                }
            }
            State::Closed => return,
        }
        if let Some(group) = self.groups.get_mut(group_id) {
            group.state = State::Closed;
            self.clear(group_id);
        }
    }

    /// Forgets all of an endpoint; nothing is reported.
    pub fn close_ep(&mut self, ep: EpId) {
        for id in self.ops.every_id() {
            let Some(group) = self.ops.get(id).map(|op| op.group) else {
                continue;
            };
            if self.ep_of(group) == Some(ep)
                && let Some(op) = self.ops.remove(id)
                && let Some(slot) = op.slot
            {
                self.push_owed(Action::Free { slot });
            }
        }
        for id in self.groups.every_id() {
            if self.ep_of(id) == Some(ep) {
                self.groups.discard(id);
            }
        }
        self.run.retain(|id| self.ops.get(*id).is_some());
        let outdated = |action: &Action<B>| match action {
            Action::Send { ep: of, .. } => *of == ep,
            Action::Task(Task::Copy { op, .. } | Task::Reduce { op, .. }) => {
                self.ops.get(*op).is_none()
            }
            Action::Task(Task::Joined { group, .. } | Task::Waits { group, .. }) => {
                self.groups.get(*group).is_none()
            }
            Action::Ended(outcome) => outcome.ep == ep,
            Action::Drop { .. } | Action::Forget { .. } | Action::Free { .. } => false,
        };
        self.actions.retain(|action| !outdated(action));
        self.forget_all(|_, early| early.ep == ep);
        self.refused.retain(|refused| refused.ep != ep);
    }

    /// A closed group goes with its last operation.
    fn clear(&mut self, group_id: GroupId) {
        let closed = |group: &Group| group.state == State::Closed;
        let used = self.ops.position(|op| op.group == group_id);
        if self.groups.get(group_id).is_some_and(closed) && used.is_none() {
            self.groups.discard(group_id);
            self.forget_unknown();
        }
    }

    /// Forgets early messages of groups that there are not, unless they may come to be.
    pub(super) fn forget_unknown(&mut self) {
        self.forget_all(|this, early| {
            let of_group = !matches!(early.message.kind, Kind::Join | Kind::Decline);
            of_group
                && this.find_group(early.ep, early.message.group).is_none()
                && !this.joins(early.ep)
        });
    }

    /// Whether a peer is a member of a group that this endpoint has joined, or joins.
    #[must_use]
    pub fn has_member(&self, ep: EpId, peer: FiAddr) -> bool {
        let has = |group: &Group| group.ep == ep && group.rank_of(peer).is_some();
        self.groups.position(has).is_some()
    }

    /// Whether an endpoint waits for others to join.
    pub(super) fn joins(&self, ep: EpId) -> bool {
        let joining = |group: &Group| group.ep == ep && group.state == State::Joining;
        self.groups.position(joining).is_some()
    }

    /// The group that messages to an endpoint call so.
    pub(super) fn find_group(&self, ep: EpId, id: u64) -> Option<GroupId> {
        self.groups
            .position(|group| group.ep == ep && group.id == id && group.state == State::Up)
    }

    pub(super) fn find_op(&self, group: GroupId, seq: u32) -> Option<CollOpId> {
        self.ops.position(|op| op.group == group && op.seq == seq)
    }

    /// Whether this is an operation of a group.
    pub(super) fn is_of(&self, id: CollOpId, group: GroupId) -> bool {
        self.ops.get(id).is_some_and(|op| op.group == group)
    }

    /// Ends an operation in error. With `tell` the other members hear why.
    pub(super) fn fail(&mut self, id: CollOpId, error: Errno, tell: Option<Gone>) {
        let Some(op) = self.ops.get_mut(id) else {
            return;
        };
        if op.error.is_some() {
            return;
        }
        op.error = Some(error);
        let arriving = op.receiving;
        op.receiving = Receiving::Done;
        let (group_id, seq) = (op.group, op.seq);
        if let Receiving::Arrives(conn) = arriving {
            let of = Purpose::Step(id);
            self.push_owed(Action::Drop { conn, of });
        }
        self.drop_ahead(group_id, seq);
        self.wake(id);
        let Some(reason) = tell else { return };
        let Some(group) = self.groups.get(group_id) else {
            return;
        };
        let message = group.gone(seq, reason);
        self.tell_members(group_id, 0..group.n(), |_, _| message);
    }

    /// Sends a message without payload to those of these ranks that can be reached, but not to
    /// this member.
    pub(super) fn tell_members(
        &mut self,
        group_id: GroupId,
        ranks: core::ops::Range<u32>,
        message: impl Fn(&Group, u32) -> Message,
    ) {
        for rank in ranks {
            let Some(group) = self.groups.get(group_id) else {
                return;
            };
            let reached = rank != group.me && group.error_of(rank).is_none();
            if let (true, Some(to)) = (reached, group.member(rank)) {
                self.tell(group.ep, to, message(group, rank));
            }
        }
    }

    /// Ends an operation whose bytes have all left.
    pub(super) fn end(&mut self, id: CollOpId) {
        let Some(op) = self.ops.remove(id) else {
            return;
        };
        if let Some(slot) = op.slot {
            self.push_owed(Action::Free { slot });
        }
        let Some(group) = self.groups.get_mut(op.group) else {
            return;
        };
        let (ep, name) = (group.ep, group.id);
        if let Some(error) = op.error {
            while group.failed.len() >= MAX_ENDED {
                group.failed.pop();
            }
            let reason = Gone::of(error);
            // Without memory those that ask hear that it is over, which is enough.
            let _ = group.failed.push((op.seq, reason));
        }
        self.drop_ahead(op.group, op.seq);
        self.forget_all(|_, early| {
            let message = &early.message;
            (early.ep, message.group, message.seq) == (ep, name, op.seq)
                && !matches!(message.kind, Kind::Join | Kind::Decline)
        });
        self.push_owed(Action::Ended(Outcome {
            ep,
            context: op.request.context,
            error: op.error,
        }));
        self.clear(op.group);
    }

    /// A name for a group that nobody else has.
    pub(super) fn new_name(&mut self, ep: EpId, digest: u64) -> u64 {
        loop {
            self.named = self.named.wrapping_add(1);
            let name = mix(mix(digest) ^ self.named);
            if self.find_group(ep, name).is_none() {
                return name;
            }
        }
    }
}

/// With no more memory than the plan uses.
fn trimmed<B: Buffer>(plan: &Plan, request: Request<B>) -> Request<B> {
    let first = |buffer: B, len: u64| {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        buffer.slice(0, len).unwrap_or(B::EMPTY)
    };
    Request {
        input: first(request.input, plan.input()),
        result: first(request.result, plan.result()),
        ..request
    }
}

/// Whether the result lies over the input.
fn in_place<B: Buffer>(request: &Request<B>) -> bool {
    let (input, result) = (request.input, request.result);
    !input.is_empty()
        && !result.is_empty()
        && input.address() < result.address().saturating_add(result.len())
        && result.address() < input.address().saturating_add(input.len())
}
