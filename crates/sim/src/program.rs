//! Programs: what nodes do, and what happens to them.

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
    /// Cancels a receive.
    Cancel {
        /// Who.
        host: Host,
        /// Which of those posted.
        which: usize,
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
