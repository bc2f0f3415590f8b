//! Joint copies of this side that wait for the sender.

use ripstop_engine::id::ConnId;

use crate::transport::direct_access::Payload;

/// A payload of which all parts are claimed, and the sender has not yet copied its own. A connection has one
/// at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JointGet {
    pub(crate) id: ConnId,
    /// The index of the message.
    pub(crate) index: u16,
    pub(crate) payload: Payload,
    /// This side has copied its own.
    pub(crate) done: bool,
}
