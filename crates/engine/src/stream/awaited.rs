//! What a connection waits for from its peer, and owes it.

use crate::Iov;
use crate::matching::Envelope;
use crate::stream::arriving::Target;
use crate::stream::request::TxInfo;

/// A read that waits for its response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadEntry<B> {
    pub(super) iov: Iov<B>,
    pub(super) info: TxInfo,
}

/// When an operation that is posted will be done.
pub(super) enum Until<B> {
    /// Nobody asks.
    Nothing,
    /// When its last byte has been written, and acknowledged if it says so.
    Written(TxInfo),
    /// When its response has come.
    Answered(ReadEntry<B>),
}

/// A message whose receiver has been asked for leave to send the payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct RtsEntry<B> {
    pub(super) iov: Iov<B>,
    pub(super) info: TxInfo,
}

/// A rendezvous this side has asked the sender to go on with.
#[derive(Clone, Copy, Debug)]
pub(super) struct CtsEntry {
    pub(super) target: Target,
    pub(super) envelope: Envelope,
}
