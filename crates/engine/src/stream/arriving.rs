//! What is arriving on a connection, and where it goes.

use ripstop_types::{AtomicKind, AtomicOp, Datatype};
use ripstop_wire::xnet::base::{Answer, Reason};

use crate::coll::{Message, Place, Purpose};
use crate::id::{MessageId, RecvId, SlotId};
use crate::stream::request::{NO_REGIONS, Regions};
use crate::{Buffer, Iov, Reached};

/// A payload between members that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incoming<B> {
    /// A message whose place is not known yet.
    pub(super) waits: Option<Message>,
    pub(super) place: Place<B>,
    pub(super) iov: Iov<B>,
    /// What it is for, once that is known.
    pub(super) of: Option<Purpose>,
}

impl<B: Buffer> Incoming<B> {
    pub(super) const NOTHING: Self = Self {
        waits: None,
        place: Place::User(B::EMPTY),
        iov: Iov::EMPTY,
        of: None,
    };
}

/// An atomic that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivingAtomic {
    pub(super) kind: AtomicKind,
    pub(super) datatype: Datatype,
    pub(super) op: AtomicOp,
    /// Where its operands are collected, if it has any.
    pub(super) slot: Option<SlotId>,
}

/// A write or an atomic that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivingWrite<B> {
    pub(super) iov: Reached<B>,
    pub(super) regions: Regions,
    /// What is answered if it is refused.
    pub(super) refusal: (Answer, Reason),
    /// The atomic that is carried out in the memory, if it is not just written.
    pub(super) atomic: Option<ArrivingAtomic>,
    /// It is to be durable before it is acknowledged.
    pub(super) commit: bool,
    /// The kind of an atomic that has been carried out, and the slot with what it fetched.
    pub(super) carried_out: Option<(AtomicKind, Option<SlotId>)>,
}

impl<B: Buffer> ArrivingWrite<B> {
    pub(super) const NOTHING: Self = Self {
        iov: Reached::EMPTY,
        regions: NO_REGIONS,
        refusal: (Answer::None, Reason::Key),
        atomic: None,
        commit: false,
        carried_out: None,
    };
}

/// What the next bytes of the stream are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RxState {
    Header,
    Payload {
        target: Target,
        done: u64,
        left: u64,
    },
    /// The driver has something to do before it reads on.
    Job,
    /// A message nobody waits for and that there is no room to keep: its place among the
    /// unexpected ones, unless it is of a group.
    Blocked(Option<MessageId>),
}

/// Where the payload that is arriving goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A receive; the offset in its memory where the message starts.
    Recv(RecvId, u64),
    /// An unexpected message.
    Unexpected(MessageId),
    /// The regions of the write that is arriving.
    Write,
    /// The slot for the operands of the atomic that is arriving.
    Operands,
    /// The memory of the oldest read.
    Read,
    /// The memory for what an atomic in a packet fetches, by its index.
    Result(u16),
    /// Where a member's message goes.
    Coll,
    /// Nowhere: a write that was refused.
    Refused,
    /// Nowhere.
    Discard,
}
