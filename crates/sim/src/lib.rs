//! A deterministic network under the shipped driver of streams.
//!
//! [`network::Network`] carries byte streams under virtual time: with delay, bandwidth, short reads
//! and writes, stalls and cuts, all from one seed. [`Sim`] is a transport over it, so that a
//! [`Node`] is an endpoint of `ripstop-stream` as programs have it: the same domains, connections
//! and progress as over tcp, with the network in place of sockets, epoll and the clock.
//!
//! Only tests use this crate.
#![deny(unsafe_code)]

pub mod memory;
pub mod model;
pub mod network;
pub mod node;
mod owner;
pub mod program;
mod system;
mod transport;
pub mod world;

pub use memory::Memory;
pub use model::Model;
pub use network::Timing;
pub use node::{Entry, Node, NodeConfig};
pub use program::Op;
pub use system::{Net, SimPoller, SimTimer, Virtual, set_others};
pub use transport::{Params, Sim, SimLink, SimListener};
pub use world::{Setup, World};
