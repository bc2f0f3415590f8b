//! Arguments of address vector sets and collectives, as cases give them to a [`Subject`](super::Subject).

use ripstop_core::av::set;
use ripstop_types::{Collective, FiAddr, Flags};

use super::{Fid, Token, When};

/// Attributes of an address vector set (`struct fi_av_set_attr`).
#[derive(Clone, Copy, Debug)]
pub struct AvSetAttr {
    /// Members expected, or 0.
    pub count: usize,
    /// The first and the last address of a range, or [`FiAddr::NOTAVAIL`] twice.
    pub range: (FiAddr, FiAddr),
    /// Every how many-th address of the range; 0 without one.
    pub stride: u64,
    /// `FI_UNIVERSE`, and the operations the set is for.
    pub flags: Flags,
}

impl AvSetAttr {
    /// An empty set for all operations.
    pub const EMPTY: Self = Self {
        count: 0,
        range: (FiAddr::NOTAVAIL, FiAddr::NOTAVAIL),
        stride: 0,
        flags: Flags::empty(),
    };
}

impl AvSetAttr {
    /// The same in the words of the object model.
    pub(super) fn open(self) -> set::AvSetAttr {
        set::AvSetAttr {
            count: self.count,
            start: self.range.0,
            end: self.range.1,
            stride: self.stride,
            comm_key: false,
            flags: self.flags,
        }
    }
}

/// A change of a set.
#[derive(Clone, Copy, Debug)]
pub enum SetChange {
    /// `fi_av_set_union`.
    Union(Fid),
    /// `fi_av_set_intersect`.
    Intersect(Fid),
    /// `fi_av_set_diff`.
    Diff(Fid),
    /// `fi_av_set_insert`.
    Insert(FiAddr),
    /// `fi_av_set_remove`.
    Remove(FiAddr),
}

/// A collective operation to start. Its buffers come back with its completion: operand, then
/// result.
#[derive(Clone, Debug)]
pub struct Coll {
    /// Which.
    pub coll: Collective,
    /// `enum fi_datatype`: any number, known or not.
    pub datatype: u32,
    /// `enum fi_op`: any number, known or not.
    pub op: u32,
    /// Elements of a block.
    pub count: usize,
    /// The group.
    pub group: FiAddr,
    /// The root, where there is one.
    pub root: FiAddr,
    /// The operand; a null pointer when empty. Not that of a broadcast.
    pub input: Vec<u8>,
    /// Room for the result, and the buffer of a broadcast; a null pointer when empty.
    pub result: Vec<u8>,
    /// Flags of the call. With some, a barrier is `fi_barrier2`.
    pub flags: Flags,
    /// What it waits for, with `FI_TRIGGER`.
    pub when: Option<When>,
    /// Comes back with the completion; 0 until it is posted.
    pub token: Token,
}
