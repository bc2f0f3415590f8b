//! A message that has come before what it is for.

use ripstop_types::FiAddr;

use crate::coll::message::Message;
use crate::id::{ConnId, EpId, SlotId};

/// A message that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Early {
    pub(super) ep: EpId,
    pub(super) src: FiAddr,
    /// The connection whose account it is on, unless that is gone.
    pub(super) conn: Option<ConnId>,
    pub(super) message: Message,
    /// Where its payload is, if it has one that is kept.
    pub(super) slot: Option<SlotId>,
    /// Its payload is where its step wants it, and on nobody's account.
    pub(super) placed: bool,
    /// The payload is there.
    pub(super) whole: bool,
}

impl Early {
    /// A message without a place for its payload, by the endpoint that it came to, its sender and
    /// the connection.
    pub(super) const fn new((ep, src, conn): (EpId, FiAddr, ConnId), message: Message) -> Self {
        Self {
            ep,
            src,
            conn: Some(conn),
            message,
            slot: None,
            placed: false,
            whole: message.len == 0,
        }
    }
}
