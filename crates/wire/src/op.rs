//! The operations of data headers.

/// What a header announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Op {
    /// A message, or with [`OP_ACK`](crate::xnet::base::OP_ACK) an acknowledgement.
    Msg = 0,
    /// A tagged message.
    Tag = 1,
    /// A request to read memory.
    ReadReq = 2,
    /// What was read.
    ReadRsp = 3,
    /// A write into memory.
    Write = 4,
    /// A tagged message whose payload waits for a [`Op::Cts`] (rendezvous, since
    /// [`Protocol::V1`](crate::xnet::rdm::Protocol::V1)).
    TagRts = 5,
    /// Clear to send: the payload of a [`Op::TagRts`] may come.
    Cts = 6,
    /// The payload of a [`Op::TagRts`].
    Data = 7,
    /// A one-sided operation was refused, see [`Answer`](crate::xnet::base::Answer) and [`Reason`](crate::xnet::base::Reason). Only between peers
    /// that agreed on [`Extensions::REFUSE`](crate::xnet::cm::Extensions::REFUSE).
    Refuse = 64,
    /// An atomic that fetches nothing. This and the next two only between peers that agreed on
    /// [`Extensions::ATOMIC`](crate::xnet::cm::Extensions::ATOMIC).
    Atomic = 65,
    /// An atomic answered by a [`Op::ReadRsp`] with what was there before.
    FetchAtomic = 66,
    /// The same with operands to compare or mask, which follow the others.
    CompareAtomic = 67,
    /// A message between members of a collective group, see [`Coll`](crate::xnet::base::Coll). Only between peers that
    /// agreed on [`Extensions::COLL`](crate::xnet::cm::Extensions::COLL).
    Coll = 68,
    /// The receiver sets the length from which tagged messages wait for their receive at the sender,
    /// see [`Header::eager_limit`](crate::xnet::base::Header::eager_limit). Only between peers that agreed on
    /// [`Extensions::EAGER_LIMIT`](crate::xnet::cm::Extensions::EAGER_LIMIT).
    EagerLimit = 69,
}
