//! Memory regions that peers access without the byte stream, and those of peers.

pub(crate) mod attach;
pub(crate) mod close;
pub(crate) mod direct;
pub(crate) mod exposed;
pub(crate) mod half_closed;
