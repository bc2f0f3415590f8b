//! A deterministic network of engines.
//!
//! [`Network`] carries byte streams under virtual time: with delay, bandwidth, short reads and
//! writes, stalls and cuts, all from one seed. A [`Node`] drives one
//! [`Engine`](ripstop_engine::stream::Engine) over it, by the engine's public interface only:
//! it is the smallest complete driver, and shows which call follows which. A [`World`] runs
//! programs of posts on several nodes in any interleaving, and holds every completion
//! against a [`Model`] that was written from the man pages; reads, writes and atomics against
//! a plain model of memory, [`model::onesided`].
//!
//! Only tests use this crate.
#![forbid(unsafe_code)]

pub mod memory;
pub mod model;
pub mod network;
pub mod node;
pub mod tap;
pub mod world;

pub use memory::{Memory, SimBuf};
pub use model::Model;
pub use network::{Network, Timing};
pub use node::{Event, Node};
pub use world::World;
