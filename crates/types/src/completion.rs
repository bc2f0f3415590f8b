//! What a completion queue reports.

use crate::{Errno, FiAddr, Flags};

/// The caller's operation context (`void *context`), carried through an operation and
/// returned in its completion. The library never dereferences it.
pub type Context = usize;

/// A successful completion, the union of all completion queue formats
/// (man page `fi_cq(3)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The operation's context.
    pub context: Context,
    /// What completed: `FI_SEND`, `FI_RECV`, `FI_MSG`, `FI_TAGGED`, `FI_REMOTE_CQ_DATA`, ...
    pub flags: Flags,
    /// Bytes received; undefined for sends.
    pub len: usize,
    /// Start of the data inside a multi-receive buffer (address), else 0.
    pub buf: usize,
    /// Remote CQ data, valid with [`Flags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The sender's tag, valid with [`Flags::TAGGED`].
    pub tag: u64,
    /// Source of a received message where known, else [`FiAddr::NOTAVAIL`].
    pub src: FiAddr,
}

impl Completion {
    /// One of which nothing is known, to fill in.
    pub const BLANK: Self = Self {
        context: 0,
        flags: Flags::empty(),
        len: 0,
        buf: 0,
        data: 0,
        tag: 0,
        src: FiAddr::NOTAVAIL,
    };
}

/// A failed operation (`struct fi_cq_err_entry`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionError {
    /// What is known of the operation, as for a success.
    pub entry: Completion,
    /// Bytes of a truncated message that did not fit.
    pub olen: usize,
    /// The reason.
    pub err: Errno,
    /// The provider's own code; the providers here use the operating system's `errno`.
    pub prov_errno: i32,
}
