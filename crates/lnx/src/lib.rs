//! The lnx provider: one `FI_EP_RDM` endpoint for all peers (man page `fi_lnx(7)`). Peers of this
//! machine are reached through shm, all others through tcp.
//!
//! lnx is a [`Transport`](ripstop_stream::Transport) whose links are those of [`ripstop_shm`] or of [`ripstop_tcp`], so that one
//! engine, one address vector, one set of queues and one matching serve all peers. Its endpoints are
//! named by the address of their tcp listener, and listen on a Unix socket of the shm provider
//! beside it, whose name is made from that address. Who connects tries that socket first.
//! `docs/design/lnx.md` has the reasons.
#![forbid(unsafe_code)]

mod link;
mod listener;
mod name;
mod params;
mod provider;
mod readiness;
mod transport;

pub use provider::LnxProvider;
pub use transport::Lnx;

/// A fabric of the lnx provider: this machine and its network.
pub type Fabric = ripstop_stream::Fabric<Lnx>;
