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
mod link;
mod mr;
mod msg;
mod owned;
mod params;
mod passive;
mod place;
mod polls;
mod post;
mod rdm;
mod rma;
mod scalable;
mod small;
mod srx;
mod stage;
mod state;
mod stream;
mod stx;
mod triggered;
mod wait;

pub use av::Av;
pub use coll::Group;
pub use counter::Counter;
pub use cq::Cq;
pub use domain::{Domain, Inner, Mode};
pub use endpoint::Endpoint;
pub use fabric::{Fabric, TcpProvider};
pub use mr::Mr;
pub use passive::PassiveEp;
pub use scalable::ScalableEp;
pub use srx::SharedRx;
pub use stx::SharedTx;
