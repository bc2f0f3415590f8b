//! The operations of data headers.

use ripstop_types::numbered;

numbered! {
    /// What a header announces.
    #[derive(PartialOrd, Ord)]
    pub enum Op: u8 as u8 {
        /// A message, or with [`OP_ACK`](crate::xnet::base::OP_ACK) an acknowledgement.
        Msg = 0 => "msg",
        /// A tagged message.
        Tag = 1 => "tag",
        /// A request to read memory.
        ReadReq = 2 => "read request",
        /// What was read.
        ReadRsp = 3 => "read response",
        /// A write into memory.
        Write = 4 => "write",
        /// A tagged message whose payload waits for a [`Op::Cts`] (rendezvous, since
        /// [`Protocol::V1`](crate::xnet::rdm::Protocol::V1)).
        TagRts = 5 => "tag RTS",
        /// Clear to send: the payload of a [`Op::TagRts`] may come.
        Cts = 6 => "CTS",
        /// The payload of a [`Op::TagRts`].
        Data = 7 => "data",
        /// A one-sided operation was refused, see [`Answer`](crate::xnet::base::Answer) and [`Reason`](crate::xnet::base::Reason). Only between peers
        /// that agreed on [`Extensions::REFUSE`](crate::xnet::cm::Extensions::REFUSE).
        Refuse = 64 => "refusal",
        /// An atomic that fetches nothing. This and the next two only between peers that agreed on
        /// [`Extensions::ATOMIC`](crate::xnet::cm::Extensions::ATOMIC).
        Atomic = 65 => "atomic",
        /// An atomic answered by a [`Op::ReadRsp`] with what was there before.
        FetchAtomic = 66 => "fetching atomic",
        /// The same with operands to compare or mask, which follow the others.
        CompareAtomic = 67 => "comparing atomic",
        /// A message between members of a collective group, see [`Coll`](crate::xnet::base::Coll). Only between peers that
        /// agreed on [`Extensions::COLL`](crate::xnet::cm::Extensions::COLL).
        Coll = 68 => "collective",
        /// The receiver sets the length from which tagged messages wait for their receive at the sender,
        /// see [`Header::eager_limit`](crate::xnet::base::Header::eager_limit). Only between peers that agreed on
        /// [`Extensions::EAGER_LIMIT`](crate::xnet::cm::Extensions::EAGER_LIMIT).
        EagerLimit = 69 => "eager limit",
        /// A message whose payload is at an address in the sender's process, from where the receiver
        /// gets it once a receive matches, or asks for it by [`Op::Cts`]. This and the next three only
        /// between peers that agreed on [`Extensions::GET`](crate::xnet::cm::Extensions::GET).
        MsgGet = 70 => "msg to get",
        /// The same with a tag.
        TagGet = 71 => "tag to get",
        /// Acknowledge to send: the receiver has got the payload of a [`Op::MsgGet`] or [`Op::TagGet`].
        Ats = 72 => "ATS",
        /// The receiver sets the length from which messages come as [`Op::MsgGet`] or [`Op::TagGet`],
        /// see [`Header::get_limit`](crate::xnet::base::Header::get_limit).
        GetLimit = 73 => "get limit",
        /// Both sides may copy the payload of a message that is being got: the receiver says that it has
        /// begun, or the sender that it has copied its parts. Only between peers that agreed on
        /// [`Extensions::JOINT`](crate::xnet::cm::Extensions::JOINT).
        Joint = 74 => "joint copy",
    }
}
