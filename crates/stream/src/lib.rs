//! What providers over connections share: domains, endpoints, queues, counters, address vectors and
//! memory regions, which are `ripstop-core`'s traits over any [`Transport`].
//!
//! What happens on a connection is decided by `ripstop-engine`; this crate moves the bytes
//! between its buffers and a [`Link`], makes and accepts connections, and gives the engine's objects
//! their form. A provider brings the transport, its parameters ([`Tunables`] and its own), and what
//! it offers ([`attr`]); with these, [`Fabric`] is the rest of it. `docs/architecture.md` follows a
//! message through it.
//!
//! # Threads
//!
//! All objects of a domain share one state behind its lock ([`Mode`]), and whoever holds that makes
//! progress for all. Nothing of a transport is called by two threads at once for one domain, except
//! [`Transport::bind`], [`Transport::bind_contexts`] and [`Transport::default_source`]. A thread that sleeps
//! does so in epoll, without the lock; what epoll cannot see is asked to tell before ([`Readiness`]).
#![deny(unsafe_code)]

#[macro_use]
mod logging;
mod addr;
mod api;
pub mod attr;
mod conn;
mod deferred;
mod ip;
mod progress;
mod region;
mod rx;
mod state;
mod system;
mod table;
mod transport;
mod tunables;
mod tx;
mod watch;

pub use addr::{Addr, Own, Peers};
pub use api::av::Av;
pub use api::counter::Counter;
pub use api::cq::Cq;
pub use api::domain::{Domain, Inner, Mode};
pub use api::endpoint::Endpoint;
pub use api::fabric::Fabric;
pub use api::group::Group;
pub use api::mr::Mr;
pub use api::owned::PeerRx;
pub use api::passive::PassiveEp;
pub use api::scalable::ScalableEp;
pub use api::source::bind;
pub use api::srx::SharedRx;
pub use api::stx::SharedTx;
pub use ripstop_engine::id::ConnId;
pub use ripstop_engine::mr::Access;
pub use ripstop_engine::stream::{PacketTerms, ReadBy};
pub use system::{Os, Poller, System, Timer};
pub use table::Table;
pub use transport::direct_access::{
    AttachState, Attached, DirectAccess, GET_PIECES, GetPieces, Got, LinkCopies, MAX_GETS, Payload,
};
pub use transport::in_place::InPlace;
pub use transport::joint_copy::JointCopy;
pub use transport::link::{Account, Link, Traffic};
pub use transport::listener::Listener;
pub use transport::offer::{Lent, Offer};
pub use transport::readiness::{EpollOnly, Readiness, ReadyLink};
pub use transport::registering::Registering;
pub use transport::{ConnectionBound, HandshakeError, Origin, Transport, rxm, xnet};
pub use tunables::{Defaults, Given, LISTEN_BACKLOG, Tunables};
