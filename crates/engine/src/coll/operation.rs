//! An operation in flight at one member.

use core::time::Duration;

use ripstop_types::{AtomicOp, Collective, Context, Datatype, Errno, FiAddr};

use crate::Buffer;
use crate::coll::message::Message;
use crate::coll::plan::{Buf, Plan, Range, Step};
use crate::id::{CollOpId, ConnId, EarlyId, EpId, GroupId, SlotId};

/// An operation to be started.
#[derive(Clone, Copy, Debug)]
pub struct Request<B> {
    /// What is done.
    pub coll: Collective,
    /// What elements are; any of one byte for a barrier.
    pub datatype: Datatype,
    /// How they are reduced, where they are.
    pub op: AtomicOp,
    /// Elements of a block, see [`Plan::new`].
    pub count: u64,
    /// The root's rank, or 0.
    pub root: u32,
    /// What the member puts in, at least [`Plan::input`] bytes.
    pub input: B,
    /// What it gets, at least [`Plan::result`] bytes.
    pub result: B,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
}

impl<B> Request<B> {
    /// What all members must agree on, as a number.
    pub(super) fn check(&self) -> u64 {
        let (datatype, op) = match self.coll {
            Collective::Barrier => (0, 0),
            _ if self.coll.reduces() => (self.datatype.number(), self.op.number()),
            _ => (self.datatype.number(), 0),
        };
        let kind = u64::from(self.coll.number()) << 16 | u64::from(datatype) << 8 | u64::from(op);
        let root = if self.coll.has_root() { self.root } else { 0 };
        let count = match self.coll {
            Collective::Barrier => 0,
            _ => self.count,
        };
        mix(mix(mix(kind) ^ count) ^ u64::from(root))
    }
}

/// Spreads the bits of a number over all 64.
pub(super) const fn mix(number: u64) -> u64 {
    let n = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Memory for some bytes of a step.
#[derive(Clone, Copy, Debug)]
pub enum Place<B> {
    /// The caller's.
    User(B),
    /// A slot of the driver's.
    Slot {
        /// Which.
        slot: SlotId,
        /// Its length in bytes.
        total: u64,
        /// Where the bytes begin.
        at: u64,
        /// How many.
        len: u64,
    },
}

impl<B: Buffer> Place<B> {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Self::User(buffer) => buffer.len() as u64,
            Self::Slot { len, .. } => *len,
        }
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How an operation ended at this member.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// The endpoint.
    pub ep: EpId,
    /// The caller's context.
    pub context: Context,
    /// Whether success is reported.
    pub completion: bool,
    /// What it ended with, unless well.
    pub error: Option<Errno>,
}

/// What the driver is to do next, before it asks for more and before it reads on.
#[derive(Clone, Copy, Debug)]
pub enum Action<B> {
    /// Send a message to a member.
    Send {
        /// From this endpoint.
        ep: EpId,
        /// To this place in its address vector.
        to: FiAddr,
        /// What to tell [`Collectives::sent`](super::Collectives::sent) when the last byte has
        /// left, if anything.
        op: Option<CollOpId>,
        /// The message.
        message: Message,
        /// Its payload, where it has one.
        payload: Place<B>,
    },
    /// Something that the driver does by itself.
    Task(Task<B>),
    /// The rest of the payload that is arriving on a connection goes nowhere.
    Drop {
        /// The connection.
        conn: ConnId,
        /// What it was for.
        of: Purpose,
    },
    /// A kept message is of no more use.
    Forget {
        /// The connection whose account it was on, if that is there.
        conn: Option<ConnId>,
        /// Where its payload was, if it had one.
        slot: Option<SlotId>,
        /// Bytes of that.
        len: u64,
    },
    /// A slot is of no more use.
    Free {
        /// Which.
        slot: SlotId,
    },
    /// An operation has ended.
    Ended(Outcome),
}

/// What the driver does by itself for collective operations, at once.
#[derive(Clone, Copy, Debug)]
pub enum Task<B> {
    /// Copy bytes; the places may overlap.
    Copy {
        /// Whose they are: [`Collectives::no_memory`](super::Collectives::no_memory) if it
        /// cannot be done.
        op: CollOpId,
        /// From there.
        from: Place<B>,
        /// To there, as many.
        to: Place<B>,
    },
    /// Reduce elements: `into = into op from`, or with `flip` `into = from op into`.
    Reduce {
        /// As for a copy.
        op: CollOpId,
        /// What the elements are.
        datatype: Datatype,
        /// The operation.
        by: AtomicOp,
        /// One side, and the result.
        into: Place<B>,
        /// The other side.
        from: Place<B>,
        /// Which of them is the left one.
        flip: bool,
    },
    /// Somebody has been waited for long: a word for the log.
    Waits {
        /// The group.
        group: GroupId,
        /// Who.
        waits: Waits,
    },
    /// A group has been joined, or not.
    Joined {
        /// The group.
        group: GroupId,
        /// Why not.
        error: Option<Errno>,
    },
}

/// What a payload between members is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The step that an operation is at.
    Step(CollOpId),
    /// A later step, or an operation that has not been started: the message is noted.
    Early(EarlyId),
}

/// What became of the message that a step sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// The receiver has not said that it is ready.
    Waits,
    /// It is on its way.
    Posted,
    /// It has left, or there is none.
    Done,
}

/// What became of the message that a step receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiving {
    Waits,
    /// It is arriving on this connection.
    Arrives(ConnId),
    Done,
}

#[derive(Debug)]
pub(super) struct Op<B> {
    pub(super) group: GroupId,
    pub(super) seq: u32,
    pub(super) check: u64,
    pub(super) plan: Plan,
    pub(super) request: Request<B>,
    /// Scratch memory, if it needs any.
    pub(super) slot: Option<SlotId>,
    /// Bytes of that.
    pub(super) total: u64,
    /// Where in that a copy of the input is, if the result lies over the input.
    pub(super) copied: Option<u64>,
    /// The place among all operations that were started.
    pub(super) ordinal: u64,
    /// The step that is under way, once it is.
    pub(super) step: Option<Step>,
    pub(super) index: u32,
    /// Up to which step members have heard that what is too long to be sent unasked may come.
    pub(super) asked: u32,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    /// Messages whose bytes have not left.
    pub(super) unsent: u32,
    pub(super) error: Option<Errno>,
    /// In the list of operations that can go on.
    pub(super) awake: bool,
    /// Since when nothing has happened, once that was looked at.
    pub(super) since: Option<Duration>,
    /// How often it has asked since then.
    pub(super) rounds: u32,
    /// The log knows that it waits.
    pub(super) told: bool,
}

impl<B: Buffer> Op<B> {
    /// The memory of a range of the plan.
    pub(super) fn place(&self, range: &Range) -> Place<B> {
        let user = |buffer: B| {
            let (Ok(at), Ok(len)) = (usize::try_from(range.at), usize::try_from(range.len)) else {
                return Place::User(B::EMPTY);
            };
            Place::User(buffer.slice(at, len).unwrap_or(B::EMPTY))
        };
        let slot = |base: u64| match self.slot {
            Some(slot) => Place::Slot {
                slot,
                total: self.total,
                at: base.saturating_add(range.at),
                len: range.len,
            },
            None => Place::User(B::EMPTY),
        };
        match (range.buf, self.copied) {
            (Buf::Result, _) => user(self.request.result),
            (Buf::Input, None) => user(self.request.input),
            (Buf::Input, Some(base)) => slot(base),
            (Buf::Scratch, _) => slot(0),
        }
    }

    /// Something happened.
    pub(super) const fn touch(&mut self) {
        self.since = None;
        self.rounds = 0;
    }
}

/// A message that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    pub(super) ep: EpId,
    pub(super) src: FiAddr,
    /// The connection whose account it is on, unless that is gone.
    pub(super) conn: Option<ConnId>,
    pub(super) message: Message,
    /// Where its payload is, if it has one that is kept.
    pub(super) slot: Option<SlotId>,
    /// Its payload is where its step wants it, and on nobody's account.
    pub(super) placed: bool,
    /// The payload is there.
    pub(super) whole: bool,
}

impl Early {
    /// A message without a place for its payload, by the endpoint that it came to, its sender and
    /// the connection.
    pub(super) const fn new((ep, src, conn): (EpId, FiAddr, ConnId), message: Message) -> Self {
        Self {
            ep,
            src,
            conn: Some(conn),
            message,
            slot: None,
            placed: false,
            whole: message.len == 0,
        }
    }
}

/// Somebody who has been waited for long; see [`Task::Waits`].
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
    /// It waits as well, for this member or for one that does so, to join another group.
    pub crossed: bool,
}
