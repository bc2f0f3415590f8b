//! What a connection waits for from its peer, and owes it.

use crate::Iov;
use crate::matching::Envelope;
use crate::stream::arriving::Target;
use crate::stream::request::{TxDone, TxInfo};

/// A read that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadEntry<B> {
    pub(super) iov: Iov<B>,
    pub(super) info: TxInfo,
    /// It is that of a message which was announced in a packet, under this index.
    pub(super) message: Option<u16>,
    /// Where the request, and what an atomic sends with it, end in the stream. An answer that comes
    /// before this was sent is none.
    pub(super) end: u64,
}

impl<B: Copy> ReadEntry<B> {
    /// A read that is being posted.
    pub(super) const fn posted(iov: Iov<B>, info: TxInfo) -> Self {
        Self {
            iov,
            info,
            message: None,
            end: 0,
        }
    }

    /// A read of a message, whose request ends there.
    pub(super) const fn of_message(iov: Iov<B>, index: u16, end: u64) -> Self {
        Self {
            iov,
            info: TxDone::BLANK.info,
            message: Some(index),
            end,
        }
    }
}

/// When an operation that is posted will be done.
pub(super) enum Until<B> {
    /// Nobody asks.
    Nothing,
    /// When its last byte has been written, and acknowledged if it says so.
    Written(TxInfo),
    /// When its response has come.
    Answered(ReadEntry<B>),
    /// When the packet with the result of this index has come (an atomic in a packet).
    Result(u16),
}

/// An operation of this side that the peer answers by the index which this side has given it.
#[derive(Clone, Copy, Debug)]
pub(super) enum IndexedTx<B> {
    /// A message that was announced.
    Message(RtsEntry<B>),
    /// An atomic in a packet.
    Atomic(AtomicEntry<B>),
}

impl<B> IndexedTx<B> {
    pub(super) const fn message(&self) -> Option<&RtsEntry<B>> {
        match self {
            Self::Message(entry) => Some(entry),
            Self::Atomic(_) => None,
        }
    }

    pub(super) const fn message_mut(&mut self) -> Option<&mut RtsEntry<B>> {
        match self {
            Self::Message(entry) => Some(entry),
            Self::Atomic(_) => None,
        }
    }

    pub(super) const fn atomic(&self) -> Option<&AtomicEntry<B>> {
        match self {
            Self::Message(_) => None,
            Self::Atomic(entry) => Some(entry),
        }
    }

    /// The same, to be changed.
    pub(super) const fn info_mut(&mut self) -> &mut TxInfo {
        match self {
            Self::Message(entry) => &mut entry.info,
            Self::Atomic(entry) => &mut entry.info,
        }
    }

    /// What its end is reported with.
    pub(super) const fn info(&self) -> TxInfo {
        match self {
            Self::Message(entry) => entry.info,
            Self::Atomic(entry) => entry.info,
        }
    }
}

/// A message whose receiver has been asked for leave to send the payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct RtsEntry<B> {
    /// The receiver knows the payload's address, and may get it from there.
    pub(super) is_get: bool,
    /// [`Engine::visit_announced`](super::Engine::visit_announced) has come by.
    pub(super) seen: bool,
    /// How often the peer may read it, of one that is announced in a packet.
    pub(super) reads_left: u8,
    /// The payload.
    pub(super) iov: Iov<B>,
    pub(super) info: TxInfo,
}

/// An atomic in a packet whose result is awaited.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtomicEntry<B> {
    /// Where it ends in the stream, once it is queued ([`post`](super::rma::post)).
    pub(super) end: u64,
    /// Where its result goes.
    pub(super) result: Iov<B>,
    pub(super) info: TxInfo,
}

/// A rendezvous whose payload has its place here, a receive or a slot: the sender was asked for it, or the
/// driver is to get it from the address.
#[derive(Clone, Copy, Debug)]
pub(super) struct CtsEntry {
    pub(super) address: Option<u64>,
    pub(super) target: Target,
    pub(super) envelope: Envelope,
}
