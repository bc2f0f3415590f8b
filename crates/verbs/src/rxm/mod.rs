//! Reliable datagram endpoints in packets over RDMA devices, `verbs;ofi_rxm` (`docs/design/rxm.md`): a
//! transport of `ripstop-stream`, whose links carry the units of the engine's stream as messages, reads and
//! writes of a queue pair.

mod cache;
mod credits;
mod devices;
mod ear;
mod handshake;
mod incoming;
mod link;
mod listener;
mod outgoing;
mod params;
mod pipe;
mod provider;
mod readiness;
mod region;
mod registered;
mod transport;

pub use provider::RxmVerbsProvider;

/// The provider's name.
pub(crate) const NAME: &str = "verbs;ofi_rxm";
