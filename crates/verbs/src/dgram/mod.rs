//! Datagram endpoints (`FI_EP_DGRAM`): unreliable datagram queue pairs of devices (UD).
//!
//! They share domains, regions, queues and counters with connected endpoints. `docs/design/verbs.md` says why it
//! is so.

mod av;
mod endpoint;
mod offer;

pub use av::Av;
pub(crate) use endpoint::Datagrams;
pub(crate) use offer::answer;
