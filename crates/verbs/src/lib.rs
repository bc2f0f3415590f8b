//! The verbs provider: `FI_EP_MSG` and `FI_EP_DGRAM` endpoints over RDMA devices (man page `fi_verbs(7)`).
//!
//! An endpoint is a reliable connected queue pair, which `librdmacm` connects, or one of datagrams (`dgram/`). Messages, reads and
//! writes go from the caller's memory to the device and back; this crate gives requests to the device,
//! keeps their contexts in order, and makes completions of what the device says. It speaks with
//! C libfabric's provider of this name: what a connection request carries is in `private_data.rs`, and
//! the rest is InfiniBand's.
//!
//! `docs/design/verbs.md` says why it is so, and what is missing. The provider `verbs;ofi_rxm`, `FI_EP_RDM`
//! endpoints over the same devices, is a transport of `ripstop-stream` (`rxm`, `docs/design/rxm.md`).
#![forbid(unsafe_code)]

mod answer;
mod atomic;
mod batch;
mod call;
mod cm;
mod connection;
mod counter;
mod cq;
mod devices;
mod dgram;
mod domain;
mod ear;
mod endpoint;
mod fabric;
mod link;
mod mr;
mod none;
mod offer;
mod open;
mod ops;
mod params;
mod passive;
mod post;
mod private_data;
mod provider;
mod queue;
mod regions;
mod rxm;
mod shared_rx;
mod sides;
mod ud;
mod watch;

pub use counter::Counter;
pub use cq::Cq;
pub use dgram::Av;
pub use domain::Domain;
pub use endpoint::Endpoint;
pub use fabric::Fabric;
pub use mr::Mr;
pub use passive::PassiveEp;
pub use provider::VerbsProvider;
pub use rxm::RxmVerbsProvider;
pub use shared_rx::SharedRx;
