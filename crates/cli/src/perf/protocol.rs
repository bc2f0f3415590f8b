//! What the measuring processes and the one that started them say to each other: one JSON
//! value a line.

use serde::{Deserialize, Serialize};

use super::subject::Wanted;

/// Messages that may be under way at once in a stream.
pub const WINDOW: u32 = 64;

/// The receiver of a stream acknowledges this many messages at once, with [`WINDOW`] under way.
pub const BATCH: u32 = batch(WINDOW);

/// How many messages the receiver of a stream acknowledges at once, with so many under way. Counts of
/// streams are multiples of it.
pub const fn batch(depth: u32) -> u32 {
    match depth / 2 {
        0 => 1,
        half => half,
    }
}

/// What a process opens, which it is told when it starts. The library that it loads is an argument
/// of its own, since a path need not be text.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setup {
    /// The provider.
    pub provider: String,
    /// What its endpoint must do.
    pub wanted: Wanted,
    /// Which of the processes it is: the client before the server, or a member of a group.
    pub rank: usize,
    /// The core to run on.
    pub core: Option<usize>,
    /// The largest message there will be.
    pub largest: usize,
    /// No library at all, but what the machine can do for this provider.
    pub bare: bool,
    /// Memory that is reached can be mapped by the peer.
    pub memfd: bool,
}

/// Which end of a connection a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Starts each exchange and takes the time.
    Client,
    /// Answers.
    Server,
}

impl Side {
    /// That of the process of this rank.
    pub(super) fn of(rank: usize) -> Self {
        if rank == 0 {
            Self::Client
        } else {
            Self::Server
        }
    }
}

/// What is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// One message there and one back, again and again.
    Latency,
    /// Messages one way, as many under way at once as the test says.
    Stream,
    /// One message of each side, both ways at once, again and again.
    Exchange,
    /// As `Stream`, both ways at once.
    StreamBoth,
    /// Writes of the other side's memory, as many under way.
    Write,
    /// Reads of the other side's memory, as many under way.
    Read,
    /// As `Write`, by both sides at once.
    WriteBoth,
    /// As `Read`, by both sides at once.
    ReadBoth,
    /// Messages of many processes to one, which takes the time: each of them sends what the test says.
    Gather,
    /// Barriers of a group, one after the other.
    Barrier,
    /// Sums of what all members of a group have, one after the other.
    Allreduce,
    /// Insertions of peers into a new address vector.
    Insert,
}

impl Kind {
    /// In a progress line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Stream => "stream",
            Self::Exchange => "exchange",
            Self::StreamBoth => "streams both ways",
            Self::Write => "writes",
            Self::Read => "reads",
            Self::WriteBoth => "writes both ways",
            Self::ReadBoth => "reads both ways",
            Self::Gather => "messages of peers",
            Self::Barrier => "barrier",
            Self::Allreduce => "allreduce",
            Self::Insert => "insertions",
        }
    }

    /// Whether all processes do the same, so that a sample is the time of the one that took longest: one that
    /// begins late finds the others done, and is faster than it would be at the same time.
    pub(super) fn is_of_all(self) -> bool {
        match self {
            Self::Barrier | Self::Allreduce => true,
            Self::Exchange | Self::StreamBoth | Self::WriteBoth | Self::ReadBoth => true,
            Self::Latency
            | Self::Stream
            | Self::Write
            | Self::Read
            | Self::Gather
            | Self::Insert => false,
        }
    }
}

/// What is done for one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Test {
    /// What is timed.
    pub kind: Kind,
    /// Bytes of a message.
    pub size: usize,
    /// Messages one way, operations, or peers.
    pub count: u32,
    /// Messages or operations under way at once, where more than one is.
    pub depth: u32,
}

impl Test {
    /// One with [`WINDOW`] under way.
    pub const fn new(kind: Kind, size: usize, count: u32) -> Self {
        Self {
            kind,
            size,
            count,
            depth: WINDOW,
        }
    }
}

/// What it took.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Sample {
    /// Nanoseconds for all messages, operations or peers.
    pub nanos: u64,
    /// Bytes that the process has grown by, where peers were inserted.
    pub bytes: u64,
}

/// A provider of a library, as the library names it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Measured {
    /// The full name, with those of the providers it is layered over.
    pub name: String,
    /// The interface version it has.
    pub api: String,
}

/// What a process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// The addresses of all processes, by rank: know them, or join their group.
    Meet(Vec<Vec<u8>>),
    /// Take a sample.
    Run(Test),
    /// Hand a cache line of shared memory back and forth.
    HandOver {
        /// The memory's name.
        name: String,
        /// How often, there and back.
        count: u32,
    },
}

/// What a process answers.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// It is open.
    Ready {
        /// Its address.
        address: Vec<u8>,
        /// What it has opened.
        provider: Measured,
    },
    /// It has carried out an order, and what that took where it was measured.
    Took(Sample),
    /// It cannot go on, and why.
    Failed(String),
    /// Its library has not what is to be measured.
    Lacks(String),
}
