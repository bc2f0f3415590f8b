//! What an engine keeps beside its objects: peers that have gone, reads it answers, deferred work that
//! has begun, what it has refused, and output for the driver.

use ripstop_types::{Context, RmaIov};
use ripstop_wire::xnet::base::Reason;

use crate::id::{ConnId, CounterId, DepartedId, SlotId, SrxId};
use crate::stream::conn::ConnConfig;
use crate::stream::request::{Regions, RmaKind};

/// A sender whose connection is gone. There are never more of them than messages that are kept.
#[derive(Debug)]
pub(super) struct Departed {
    /// The endpoint it sent to, and its address.
    pub(super) config: ConnConfig,
    /// The receive context its messages wait in.
    pub(super) srx: SrxId,
    /// Messages of it that wait.
    pub(super) messages: usize,
}

/// By whom a message has come: a connection, or a sender that has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) conn: Option<ConnId>,
    pub(super) departed: Option<DepartedId>,
}

impl Origin {
    /// A connection that is there.
    pub(super) const fn conn(conn: ConnId) -> Self {
        Self {
            conn: Some(conn),
            departed: None,
        }
    }
}

/// What has something to send that the driver did not ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A connection.
    Conn(ConnId),
    /// The payload of the rendezvous of this index, to be got from the peer's memory:
    /// [`Engine::get`](super::Engine::get).
    Get(ConnId, u16),
    /// Something has changed in the joint copies of a connection, see
    /// [`Engine::tell_joint`](super::Engine::tell_joint).
    Joint(ConnId),
    /// The peer of a connection has got some payloads, see
    /// [`Engine::take_has_peer_got`](super::Engine::take_has_peer_got).
    PeerGot(ConnId),
    /// A connection ends by agreement: nothing is under way on it, and what waits for it goes by another one
    /// ([`Engine::move_postponed`](super::Engine::move_postponed)) once it is closed.
    Parted {
        /// The connection.
        conn: ConnId,
        /// Whether this side is to close it; otherwise the peer does.
        closes: bool,
    },
    /// Members of groups: [`Engine::coll_next`](super::Engine::coll_next) says what.
    Coll,
}

/// A one-sided operation of a peer that was refused, for the log.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// The connection it came on.
    pub conn: ConnId,
    /// What it was.
    pub kind: RmaKind,
    /// The first segment that was denied.
    pub iov: RmaIov,
    /// Why.
    pub reason: Reason,
}

/// A read by a peer that is being answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    pub(super) regions: Regions,
    /// Where it is kept, if not in a region.
    pub(super) slot: Option<SlotId>,
    /// How many bytes are kept.
    pub(super) fetched: u64,
}

/// Deferred work whose operation has begun.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The counter to be told, if any.
    pub counter: Option<CounterId>,
    /// The context of the entry in the endpoint's completion queue, if there is to be one; then
    /// the endpoint's own counters are told as well.
    pub entry: Option<Context>,
}
