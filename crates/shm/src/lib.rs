//! The shm provider: `FI_EP_RDM` endpoints of the processes on one machine (man page `fi_shm(7)`).
//!
//! Two connected endpoints share memory that no third process can reach. It has two rings, which
//! carry the byte stream of `ripstop-engine` as a socket would. The rings, their layout and their
//! checks against a hostile peer are in [`ripstop_mem::ring`]; the objects of OFI are those of
//! `ripstop-stream`. This crate adds the [`Transport`](ripstop_stream::Transport): endpoint names, the
//! handshake over a Unix socket, polling of the rings, and direct access to regions of the peer.
//! `docs/design/shm.md` has the reasons.
#![forbid(unsafe_code)]

mod attach;
mod copies;
mod copy_choice;
mod copy_waits;
mod greeting;
mod link;
mod listener;
mod name;
mod params;
mod provider;
mod readiness;
mod records;
mod transport;
mod windows;

pub use params::Params;
pub use provider::{ShmProvider, require_allocated};
pub use transport::Shm;

/// A fabric of the shm provider: this machine.
pub type Fabric = ripstop_stream::Fabric<Shm>;

#[cfg(test)]
extern crate self as ripstop_shm;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod fast_path_tests;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod hostile_tests;
