//! What data calls are, besides the local memory; sides and options of an endpoint.

use ripstop_mem::UserBuf;
use ripstop_types::{AtomicKind, AtomicOp, Context, Datatype, FiAddr, Flags, RmaIov};

/// Plain or tagged message, with the tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendKind {
    /// `fi_send` and its forms.
    Msg,
    /// `fi_tsend` and its forms, with the tag.
    Tagged(u64),
}

/// What a read or write of a peer's memory is, besides the memory (man page `fi_rma(3)`).
#[derive(Clone, Copy, Debug)]
pub struct RmaCall<'a> {
    /// The peer's memory, at most `rma_iov_limit` pieces, as long as the local memory in all.
    pub remote: &'a [RmaIov],
    /// The peer; ignored on connected endpoints.
    pub peer: FiAddr,
    /// Remote CQ data of a write.
    pub data: Option<u64>,
    /// The caller's context.
    pub context: Context,
    /// Operation flags; `None` for the endpoint's own.
    pub flags: Option<Flags>,
}

/// What an atomic on a peer's memory is, besides the operands (man page `fi_atomic(3)`).
#[derive(Clone, Copy, Debug)]
pub struct AtomicCall<'a> {
    /// Whether it fetches, and compares.
    pub kind: AtomicKind,
    /// What the memory holds.
    pub datatype: Datatype,
    /// What is done with it.
    pub op: AtomicOp,
    /// What to compare with, or masks, for [`AtomicKind::Compare`]; else nothing.
    pub compare: &'a [UserBuf],
    /// Where what was there before goes; nothing for [`AtomicKind::Plain`].
    pub result: &'a [UserBuf],
    /// The peer's memory, with lengths in bytes, as many as there are operands.
    pub remote: &'a [RmaIov],
    /// The peer; ignored on connected endpoints.
    pub peer: FiAddr,
    /// Remote CQ data.
    pub data: Option<u64>,
    /// The caller's context.
    pub context: Context,
    /// Operation flags; `None` for the endpoint's own.
    pub flags: Option<Flags>,
}

/// Plain or tagged receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvKind {
    /// `fi_recv` and its forms.
    Msg,
    /// `fi_trecv` and its forms.
    Tagged {
        /// The wanted tag.
        tag: u64,
        /// Bits of the tag that do not matter.
        ignore: u64,
    },
}

/// Which side of an endpoint a counter or flag concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Transmit context.
    Tx,
    /// Receive context.
    Rx,
}

/// Endpoint options (`FI_OPT_*` of level `FI_OPT_ENDPOINT`, man page `fi_endpoint(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpOption {
    /// Least free space at which a multi-receive buffer stays in use, bytes.
    MinMultiRecv,
    /// Most bytes of connection data.
    CmDataSize,
    /// Largest message, bytes.
    MaxMsgSize,
    /// Largest tagged message, bytes.
    MaxTaggedSize,
    /// Largest RMA transfer, bytes.
    MaxRmaSize,
    /// Largest atomic, bytes.
    MaxAtomicSize,
    /// Largest injected message, bytes.
    InjectMsgSize,
    /// Largest injected tagged message, bytes.
    InjectTaggedSize,
    /// Largest injected write, bytes.
    InjectRmaSize,
    /// Largest injected atomic, bytes.
    InjectAtomicSize,
    /// Whether peers cannot connect to this process, 1 or 0. It cannot be set.
    FirewallAddr,
}
