//! An operation in flight at one member.

use core::time::Duration;

use ripstop_types::{AtomicOp, Collective, Context, Datatype, Errno};

use crate::Buffer;
use crate::coll::action::Place;
use crate::coll::plan::{Buf, Plan, Range, Step};
use crate::id::{ConnId, GroupId, SlotId};

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
    /// The steps before this one have no long message that its sender was not granted.
    pub(super) granted: u32,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    /// Messages whose bytes have not left.
    pub(super) unsent: u32,
    pub(super) error: Option<Errno>,
    /// In the list of operations that can go on.
    pub(super) awake: bool,
    /// Since when nothing has happened, once that was looked at.
    pub(super) since: Option<Duration>,
    /// How often it has queried members since then.
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
