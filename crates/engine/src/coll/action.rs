//! What the driver of [`Collectives`](super::Collectives) is asked to do, and with which memory.

use core::time::Duration;

use ripstop_types::{AtomicOp, Collective, Context, Datatype, Errno, FiAddr};

use crate::Buffer;
use crate::coll::message::Message;
use crate::id::{CollOpId, ConnId, EarlyId, EpId, GroupId, SlotId};

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
    /// Write to the log that a member has been waited for long.
    Waits {
        /// The group.
        group: GroupId,
        /// What waits, and for whom.
        held: Held,
        /// That member waits as well, for this one or for one that does so, to join another group.
        crossed: bool,
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

/// What waits for another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
