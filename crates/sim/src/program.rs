//! Programs: what nodes do, and what happens to them.

use ripstop_types::{AtomicOp, Datatype, Flags};

use crate::model::Host;
use crate::network::Nanos;

/// One step of a program. Hosts are taken modulo their number.
#[derive(Clone, Debug)]
pub enum Op {
    /// Posts a message.
    Send {
        /// Who sends.
        from: Host,
        /// To whom; may be the same.
        to: Host,
        /// Its tag, if tagged.
        tag: Option<u64>,
        /// Remote CQ data.
        data: Option<u64>,
        /// Length of each segment.
        segments: Vec<usize>,
        /// The buffer is free when the call returns.
        inject: bool,
        /// Ask for a completion.
        completion: bool,
        /// Wait for the acknowledgement.
        ack: bool,
    },
    /// Posts a receive.
    Recv {
        /// Who.
        host: Host,
        /// Tag and ignored bits, if tagged.
        tag: Option<(u64, u64)>,
        /// The only source.
        src: Option<Host>,
        /// Length of each segment.
        segments: Vec<usize>,
        /// Ask for a completion.
        completion: bool,
        /// Several messages into one buffer.
        multi: bool,
    },
    /// Looks for a message.
    Peek {
        /// Who.
        host: Host,
        /// Tag and ignored bits, if tagged.
        tag: Option<(u64, u64)>,
        /// The only source.
        src: Option<Host>,
        /// Set it aside.
        claim: bool,
        /// Drop it.
        discard: bool,
    },
    /// Receives or drops a message set aside.
    Claim {
        /// Who.
        host: Host,
        /// Which of those set aside.
        which: usize,
        /// Length of the buffer.
        len: usize,
        /// Drop it.
        discard: bool,
    },
    /// Cancels a receive or a send.
    Cancel {
        /// Who.
        host: Host,
        /// Which of those posted.
        which: usize,
    },
    /// Reads or changes the memory of a host.
    OneSided(Manner, OneSided),
    /// Takes a region of memory away from the others.
    Hide {
        /// Whose.
        host: Host,
    },
    /// Puts a peer into the address vector.
    Learn {
        /// Whose.
        host: Host,
        /// Which peer.
        peer: Host,
    },
    /// Cuts the stream from one node to another after some more bytes.
    Cut {
        /// Towards whom.
        host: Host,
        /// From whom.
        peer: Host,
        /// How many bytes still come through.
        after: u64,
    },
    /// Holds back what comes from a peer.
    Stall {
        /// Towards whom.
        host: Host,
        /// From whom.
        peer: Host,
        /// For how long.
        time: Nanos,
    },
    /// A process dies and another takes its address.
    Restart {
        /// Which.
        host: Host,
        /// Its peers are not told.
        quietly: bool,
    },
    /// A process ends, or closes its endpoint, and comes back under its address.
    Leave {
        /// Which.
        host: Host,
        /// It makes progress until all it was promised a completion for has one.
        done: bool,
        /// The process stays the same: it closes its endpoint and opens another.
        reopens: bool,
        /// For how many rounds it is away.
        away: u32,
    },
    /// Lets things take their course for a while.
    Run(u32),
}

/// When a write or an atomic is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// When its buffer is free.
    Sent,
    /// When the target has done it.
    Delivered,
    /// When it outlives a crash of the target.
    Committed,
}

impl Level {
    /// The flags that ask for it.
    #[must_use]
    pub fn flags(self) -> Flags {
        match self {
            Self::Sent => Flags::empty(),
            Self::Delivered => Flags::DELIVERY_COMPLETE,
            Self::Committed => Flags::COMMIT_COMPLETE,
        }
    }
}

/// What makes an operation impossible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Nobody has the key.
    Key,
    /// The region may not be written.
    Access,
    /// The region ends before.
    Bounds,
}

/// One step that is about the memory of another host. Lengths and offsets are taken modulo what
/// there is.
#[derive(Clone, Debug)]
pub enum OneSided {
    /// Writes.
    Write {
        /// Region, offset and length of each run of bytes.
        parts: Vec<(usize, usize, usize)>,
        /// Completion data.
        data: bool,
        /// The buffer is free when the call returns.
        inject: bool,
        /// When it is done.
        level: Level,
    },
    /// Reads.
    Read {
        /// Region, offset and length of each run of bytes.
        parts: Vec<(usize, usize, usize)>,
    },
    /// Sets a bit that nobody else sets, in several cells.
    Mark {
        /// The first.
        cell: usize,
        /// How many.
        count: usize,
        /// What the cells are taken for: integers.
        datatype: Datatype,
        /// How.
        op: AtomicOp,
        /// Fetches what was there before.
        fetch: bool,
        /// Completion data.
        data: bool,
        /// The buffer is free when the call returns.
        inject: bool,
        /// When it is done.
        level: Level,
    },
    /// Gives a cell a new name.
    Swap {
        /// Which.
        cell: usize,
        /// What the cell is taken for, of its size.
        datatype: Datatype,
        /// If it compares so with this one, of those that were given.
        compare: Option<(AtomicOp, usize)>,
    },
    /// Fetches cells.
    Look {
        /// The first.
        cell: usize,
        /// How many.
        count: usize,
        /// What the cells are taken for.
        datatype: Datatype,
    },
}

/// Who does it to whom, and how.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Who.
    pub from: Host,
    /// To whom; may be the same.
    pub to: Host,
    /// Ask for a completion.
    pub completion: bool,
    /// After what was posted before.
    pub fence: bool,
    /// It is denied.
    pub wrong: Option<Wrong>,
}
