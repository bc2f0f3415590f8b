//! Joint copies: long payloads that both ends of a link copy, see
//! [`JointLeader`](ripstop_mem::ring::JointLeader).

use std::fmt::Debug;

use ripstop_mem::UserBuf;
use ripstop_mem::ring::{JointAccess, JointMessage};

use crate::transport::direct_access::{Got, Payload};

/// Long payloads that both ends of a link with [direct access](crate::DirectAccess) copy together: those of
/// messages, and of reads and writes ([`DirectAccess::attach`](crate::DirectAccess::attach)). A transport with such
/// copies defines all of it; the bodies given here are for those without.
pub trait JointCopy<L>: Debug + 'static {
    /// Whether there are such copies.
    const SUPPORTED: bool;

    /// The receiver begins to get a payload to a buffer as long; the message has this index. It tells the
    /// sender, and then calls [`JointCopy::copy`]. `false` if that cannot be, or one is under way already.
    fn open(_link: &L, _payload: &Payload, _index: u16, _into: UserBuf) -> bool {
        false
    }

    /// The receiver copies its parts of the payload that was opened.
    fn copy(_link: &L, _payload: &Payload, _into: UserBuf) -> Got {
        Got::UseStream
    }

    /// What the receiver has of a copy that was [`Got::Pending`], and whether its own parts were `done`:
    /// `None` while the sender is at its parts, then whether the whole payload is copied.
    fn outcome(_link: &L, _payload: &Payload, _done: bool) -> Option<bool> {
        None
    }

    /// The message of this side that the peer says it is getting so.
    fn asked(_link: &L) -> Option<JointMessage> {
        None
    }

    /// The sender copies parts of a message that the peer is getting, from where it is. Returns whether
    /// there was one.
    fn help(_link: &L, _message: JointMessage, _from: UserBuf) -> bool {
        false
    }

    /// The read or write in memory of this side that the peer says it is at.
    fn asked_access(_link: &L) -> Option<JointAccess> {
        None
    }

    /// The owner of the memory copies parts of a read or write of it, or of none that the peer is at.
    fn help_access(_link: &L, _access: JointAccess, _memory: UserBuf) {}
}

/// Not supported.
impl<L> JointCopy<L> for () {
    const SUPPORTED: bool = false;
}
