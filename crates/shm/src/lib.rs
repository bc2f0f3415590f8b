//! The shm provider: `FI_EP_RDM` endpoints of the processes on one machine (man page `fi_shm(7)`).
//!
//! Endpoints of a pair share memory that no third process can reach: two rings, which carry the
//! stream of bytes that `ripstop-engine` speaks on any connection. The rings, their layout and what
//! holds against a peer that does not keep to them are in [`ripstop_mem::ring`]; the objects are those
//! of `ripstop-stream`. This crate brings names, the handshake over a Unix socket, and what is
//! looked at before anybody sleeps. `docs/design/shm.md` has the reasons.
#![forbid(unsafe_code)]

mod attach;
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

pub use provider::ShmProvider;
pub use transport::Shm;

/// A fabric of the shm provider: this machine.
pub type Fabric = ripstop_stream::Fabric<Shm>;

#[cfg(test)]
extern crate self as ripstop_shm;
#[cfg(test)]
#[expect(dead_code, reason = "each test takes what it needs")]
#[path = "../tests/common/mod.rs"]
mod common;
#[cfg(test)]
mod fast_path_tests;
#[cfg(test)]
mod handshake_tests;
#[cfg(test)]
mod hostile;
