//! The tcp provider: `FI_EP_MSG` and `FI_EP_RDM` endpoints over TCP (man page `fi_tcp(7)`).
//!
//! It speaks the protocol of the C library's tcp provider (`docs/wire.md`). What happens on a
//! connection is decided by `ripstop-engine`; this crate owns the sockets, moves the bytes
//! and gives the engine's objects the form of `ripstop-core`'s traits. `docs/architecture.md`
//! follows a message through it.
#![forbid(unsafe_code)]

#[macro_use]
mod logging;
mod accept;
mod addr;
mod atomic;
mod attr;
mod av;
mod coll;
mod core_ep;
mod counter;
mod cq;
mod domain;
mod ending;
mod endpoint;
mod ep_state;
mod events;
mod fabric;
mod hot;
mod ip;
mod link;
mod mr;
mod msg;
mod offers;
mod owned;
mod params;
mod passive;
mod place;
mod polls;
mod post;
mod provider;
mod rdm;
mod rma;
mod row;
mod scalable;
mod small;
mod socket;
mod srx;
mod stage;
mod state;
mod stream;
mod stx;
mod transport;
mod triggered;
mod tunables;
mod wait;

pub use provider::TcpProvider;
pub use socket::Tcp;

/// A fabric of the tcp provider: an IP network.
pub type Fabric = fabric::Fabric<Tcp>;
