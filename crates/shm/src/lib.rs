//! The shm provider: `FI_EP_RDM` endpoints of the processes on one machine (man page `fi_shm(7)`).
//!
//! Two connected endpoints share memory that no third process can reach. It has two rings, which
//! carry the byte stream of `ripstop-engine` as a socket would. The rings, their layout and their
//! checks against a hostile peer are in [`ripstop_mem::ring`]; the objects of OFI are those of
//! `ripstop-stream`. This crate adds the [`Transport`](ripstop_stream::Transport): endpoint names, the
//! handshake over a Unix socket, polling of the rings, and direct access to regions of the peer.
//! `docs/design/shm.md` has the reasons.
//!
//! # Where things are
//!
//! | what | modules |
//! |---|---|
//! | what `fi_getinfo` offers, and parameters | `provider`, `params` |
//! | from a name to a connection: names, listening sockets, the handshake and what it carries | `name`, `listener`, `transport`, `greeting` |
//! | a connection: its socket and rings (`link`), small messages (`link/in_place`), regions of the peer (`link/direct`), payloads that both sides copy (`link/joint`) | `link` |
//! | which connections of a domain have something to read, and how the domain sleeps | `readiness` |
//! | regions of the peer: what the sides tell each other, those that are mapped, those that are reached by address | `records`, `windows`, `attach` |
//! | ring or attach: measuring and choosing (next section), and counts of the ways taken | `copy_choice`, `copy_waits`, `copies` |
//!
//! # Ring or attach
//!
//! Each connection has one `CopyChoice` (`copy_choice.rs`). It learns what copies through the ring take from
//! `Connection::timed` (`link/timing.rs`), and what copies by attach take from `Attach` (`attach.rs`). It is asked
//!
//! - for reads and writes by their initiator, in `choose_attach` (`link/direct.rs`), which also looks at whether the peer
//!   polls (`attach/poll_watch.rs`);
//! - for messages by their receiver, which tells the sender from which length on to announce them: `take_get_limit` of
//!   `link/direct.rs`, and `engine/stream/get.rs` at the sender.
#![forbid(unsafe_code)]

mod attach;
mod copies;
mod copy_choice;
mod copy_cost;
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
