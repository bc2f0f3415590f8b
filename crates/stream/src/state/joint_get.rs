//! Joint copies of this side that wait for the sender.

use ripstop_engine::id::ConnId;

/// A payload of which all parts are claimed, and the sender has not yet copied its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JointGet {
    pub(crate) id: ConnId,
    /// The index of the message.
    pub(crate) index: u16,
    /// This side has copied its own.
    pub(crate) done: bool,
}
