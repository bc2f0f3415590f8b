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

/// A message whose receiver has been asked for leave to send the payload, or an atomic in a packet, whose
/// result goes to `iov`.
#[derive(Clone, Copy, Debug)]
pub(super) struct RtsEntry<B> {
    /// The receiver knows the payload's address, and may get it from there.
    pub(super) is_get: bool,
    /// [`Engine::visit_announced`](super::Engine::visit_announced) has come by.
    pub(super) seen: bool,
    /// How often the peer may read it, of one that is announced in a packet.
    pub(super) reads_left: u8,
    /// Of an atomic: where it ends in the stream.
    pub(super) atomic_end: Option<u64>,
    pub(super) iov: Iov<B>,
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
