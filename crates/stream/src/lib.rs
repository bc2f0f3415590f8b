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
#![forbid(unsafe_code)]

#[macro_use]
mod logging;
mod accept;
mod active;
mod addr;
mod atomic;
mod attach;
pub mod attr;
mod av;
mod coll;
mod connection;
mod core_ep;
mod counter;
mod cq;
mod direct;
mod domain;
mod ending;
mod endpoint;
mod ep_state;
mod events;
mod exposed;
mod fabric;
mod fast_receive;
mod fast_send;
mod inject;
mod ip;
mod link;
mod mr;
mod msg;
mod owned;
mod passive;
mod place;
mod post;
mod progress;
mod rdm;
mod readiness;
mod rma;
mod scalable;
mod slots;
mod srx;
mod state;
mod stx;
mod system;
mod table;
mod transport;
mod triggered;
mod tunables;
mod tx_buffer;
mod wait;
mod waiters;
mod yield_policy;

pub use addr::{Addr, Own, Peers};
pub use av::Av;
pub use coll::Group;
pub use core_ep::bind;
pub use counter::Counter;
pub use cq::Cq;
pub use domain::{Domain, Inner, Mode};
pub use endpoint::Endpoint;
pub use exposed::{Lent, Offer};
pub use fabric::Fabric;
pub use mr::Mr;
pub use owned::PeerRx;
pub use passive::PassiveEp;
pub use readiness::{EpollOnly, Readiness, ReadyLink};
pub use ripstop_engine::id::ConnId;
pub use scalable::ScalableEp;
pub use srx::SharedRx;
pub use stx::SharedTx;
pub use system::{Os, Poller, System, Timer};
pub use table::Table;
pub use transport::{Attached, HandshakeError, Link, Listener, Origin, Transport};
pub use tunables::{Defaults, LISTEN_BACKLOG, Tunables};
