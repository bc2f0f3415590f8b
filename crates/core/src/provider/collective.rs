//! Collective groups and operations.

use ripstop_types::{AtomicOp, Collective, Context, Datatype, FiAddr, Flags};

/// Who is to be in a group (`fi_join_collective`).
#[derive(Clone, Copy, Debug)]
pub struct JoinCall<'a> {
    /// The members by rank, each once, the endpoint itself among them.
    pub members: &'a [FiAddr],
    /// The operations the group is for, as `FI_BARRIER_SET` and so on.
    pub operations: Flags,
    /// The caller's context, for the event.
    pub context: Context,
}

/// What a collective operation is, besides the memory (man page `fi_collective(3)`).
///
/// `count` is the number of elements of a block. For a broadcast and for reductions to all or to
/// the root a block is all there is. Otherwise it is what a member has for each, or gets from
/// each: an alltoall, a reduce-scatter and the root of a scatter put in as many blocks as there
/// are members, and an allgather, an alltoall and the root of a gather get as many.
#[derive(Clone, Copy, Debug)]
pub struct CollCall {
    /// What is done.
    pub coll: Collective,
    /// What elements are; not looked at in a barrier.
    pub datatype: Datatype,
    /// How they are reduced; not looked at where they are not.
    pub op: AtomicOp,
    /// Elements of a block.
    pub count: usize,
    /// The group.
    pub group: FiAddr,
    /// The root, where there is one.
    pub root: FiAddr,
    /// The caller's context.
    pub context: Context,
    /// Operation flags; `None` for the endpoint's own.
    pub flags: Option<Flags>,
}

/// Limits of a collective operation (`struct fi_collective_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollLimit {
    /// Most elements of a block.
    pub count: usize,
    /// Most members of a group.
    pub members: usize,
}

/// A group that an endpoint has joined, or is joining. Dropping it leaves the group; what is in
/// flight there ends in error.
pub trait Group: 'static {
    /// The address of the group, for [`Endpoint::collective`](super::Endpoint::collective).
    fn addr(&self) -> FiAddr;
}
