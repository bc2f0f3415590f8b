//! The tcp provider: `FI_EP_MSG` and `FI_EP_RDM` endpoints over TCP (man page `fi_tcp(7)`); and, for those
//! who ask for it by name, `tcp;ofi_rxm`, which speaks the protocol of that provider of C (`rxm`,
//! `docs/design/rxm.md`).
//!
//! It speaks the protocol of the C library's tcp provider (`docs/wire.md`). What happens on a
//! connection is decided by `ripstop-engine`, and the objects are those of `ripstop-stream`; this
//! crate brings the sockets, their addresses, the parameters, and what is offered.
//! `docs/architecture.md` follows a message through it.
#![forbid(unsafe_code)]

mod offers;
mod params;
mod provider;
mod row;
mod rxm;
mod socket;

pub use params::Params;
pub use provider::TcpProvider;
pub use rxm::{RxmTcp, RxmTcpProvider};
pub use socket::Tcp;

/// A fabric of the tcp provider: an IP network.
pub type Fabric = ripstop_stream::Fabric<Tcp>;
