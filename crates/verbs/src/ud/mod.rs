//! What devices have for datagrams: names of queue pairs, ports, and the ways to peers. `dgram/` makes endpoints of it.

mod name;
mod peers;
mod port;

pub(crate) use name::Name;
pub(crate) use peers::{Peers, Way};
pub(crate) use port::{Port, active_port};

/// What the names of domains for datagrams end with, as in C libfabric.
pub(crate) const SUFFIX: &str = "-dgram";

/// Bytes in front of what is received: a global routing header, or room for one.
pub(crate) const HEADER: usize = 40;
