//! What the measuring processes and the one that started them say to each other: one JSON
//! value a line.

use serde::{Deserialize, Serialize};

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// One message there and one back, again and again.
    Latency,
    /// Messages one way, [`WINDOW`](super::plan::WINDOW) under way at once.
    Stream,
    /// Writes of the other side's memory, as many under way.
    Write,
    /// Reads of the other side's memory, as many under way.
    Read,
    /// Barriers of a group, one after the other.
    Barrier,
    /// Sums of what all members of a group have, one after the other.
    Allreduce,
}

impl Kind {
    /// In a progress line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Stream => "stream",
            Self::Write => "writes",
            Self::Read => "reads",
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
        }
    }
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Test {
    /// What is timed.
    pub(super) kind: Kind,
    /// Bytes of a message.
    pub(super) size: usize,
    /// Messages one way, or operations.
    pub(super) count: u32,
}

/// What a process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// The address of the other process.
    Peer(Vec<u8>),
    /// The addresses of all members of the group, by rank.
    Join(Vec<Vec<u8>>),
    /// Take a sample.
    Run(Test),
    /// Hand a cache line of shared memory back and forth.
    HandOver {
        /// The memory's name.
        name: String,
        /// How often, there and back.
        count: u32,
    },
    /// Insert this many peers into a new address vector.
    Insert(u32),
}

/// What a process answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is open.
    Ready {
        /// Its address.
        address: Vec<u8>,
        /// The provider's full name.
        provider: String,
        /// The interface version of its library.
        api: String,
    },
    /// It knows the other process, or the group.
    Introduced,
    /// A sample; on the server's side only that it is over.
    Took {
        /// Nanoseconds for all messages.
        nanos: u64,
    },
    /// Peers were inserted.
    Inserted {
        /// Nanoseconds for all of them.
        nanos: u64,
        /// Bytes that the process has grown by.
        bytes: u64,
    },
    /// It cannot go on, and why.
    Failed(String),
    /// Its library has not what is to be measured.
    Lacks(String),
}
