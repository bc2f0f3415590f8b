//! What a connection for packets has beside any other (`docs/design/rxm.md`).

use alloc::vec::Vec;

use ripstop_types::AtomicKind;
use ripstop_wire::xnet::base::RmaIovs;

use crate::stream::indices::IndexTable;

/// How the peers of a connection for packets read messages that are announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBy {
    /// By the stream, which acknowledges what is delivered.
    Stream,
    /// By a device, for which memory is registered. That what was sent has come to the peer's device does not
    /// say that it is delivered; that it was read does.
    Device,
}

/// What a connection for packets has beside any other.
#[derive(Debug)]
pub(super) struct Packets {
    /// The number that packets to the peer say.
    pub(super) to: u64,
    /// How the peer reads what is announced.
    pub(super) announced: ReadBy,
    /// As that of [`PacketTerms`](super::PacketTerms).
    pub(super) segmented_max: u64,
    /// Bytes of messages that were sent in segments since the peer has last read an announced one.
    pub(super) segmented_unheard: u64,
    /// The messages of which a packet has come and payload is still to come, under indices of this side.
    pub(super) expected: IndexTable<Expected>,
    /// Those of them that come in segments.
    pub(super) segmented: Vec<u16>,
    /// The segment that is arriving.
    pub(super) segment: Option<ArrivingSegment>,
    /// The atomic of the peer that is arriving or carried out.
    pub(super) served: Option<Served>,
    /// Whether the peer agrees on ends of connections.
    pub(super) parts: bool,
    /// Whether this one is to end.
    pub(super) parting: PartState,
    /// Where the last answer to a question about that ends in what was queued: a peer asks again after it has read that.
    pub(super) answered: u64,
}

/// How far the end of a connection is agreed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PartState {
    /// It is not to end.
    #[default]
    Staying,
    /// This side has asked.
    Asked,
    /// Both sides have asked, and this one has agreed as well.
    Crossed,
    /// Both sides are to end it.
    Agreed,
}

/// An atomic of the peer, as its result names it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Served {
    /// What the peer calls it.
    pub(super) id: u64,
    pub(super) kind: AtomicKind,
    /// The numbers of datatype and operation, known ones or not.
    pub(super) datatype: u8,
    pub(super) op: u8,
}

/// A message whose payload has not come whole.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// It was announced, and is to be read.
    Announced {
        /// What the sender calls it.
        id: u64,
        /// Where its payload is.
        memory: RmaIovs,
    },
    /// It comes in segments.
    Segments(Received),
}

/// What has been received of a message in segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received {
    /// What the sender calls it.
    pub(super) id: u64,
    /// The number of its next segment.
    pub(super) next: u32,
    /// Bytes of its payload that have come.
    pub(super) have: u64,
}

/// A segment that is arriving.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivingSegment {
    /// The index of its message.
    pub(super) index: u16,
    /// Its length in bytes.
    pub(super) len: u64,
}

impl Packets {
    pub(super) const fn new(to: u64, announced: ReadBy, parts: bool, segmented_max: u64) -> Self {
        Self {
            to,
            announced,
            parts,
            segmented_max,
            segmented_unheard: 0,
            parting: PartState::Staying,
            answered: 0,
            expected: IndexTable::new(),
            segmented: Vec::new(),
            segment: None,
            served: None,
        }
    }
}
