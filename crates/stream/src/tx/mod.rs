//! Transmit: messages, reads, writes and atomics, from the post of the caller to the link.

pub(crate) mod atomic;
pub(crate) mod fast;
pub(crate) mod flush;
pub(crate) mod inject;
pub(crate) mod rma;
pub(crate) mod send;
