//! The object model of OpenFabrics Interfaces (OFI) in safe Rust: what every provider and
//! every front end (Rust, C) shares, and no protocol.
//!
//! * [`Info`] and [`Hints`]: what a provider offers and what a caller asks for
//!   (man page `fi_getinfo(3)`), and [`hints`]: whether the one meets the other, and why not.
//! * [`registry`]: the providers of the process.
//! * [`ip`] and [`resolve`]: interfaces and names of IP providers.
//! * [`av`]: address vectors of IP peers.
//! * [`eq`]: event queues.
//! * [`param`] and [`log`]: environment variables and log lines.
//! * [`status`]: what a domain tells other processes of itself.
//! * [`weak`]: lists of objects that do not keep them alive.
#![forbid(unsafe_code)]

mod address;
mod attr;
pub mod av;
pub mod caps;
pub mod eq;
mod filter;
pub mod hints;
mod info;
pub mod ip;
mod layers;
pub mod lock;
pub mod log;
pub mod names;
mod nic;
pub mod param;
pub mod provider;
pub mod registry;
pub mod resolve;
mod setup;
pub mod sockaddr;
pub mod status;
mod token;
pub mod weak;

pub use address::{Address, AddressError};
pub use attr::{AUTH_KEY_PER_AV, DomainAttr, EpAttr, FabricAttr, RxAttr, SHARED_CONTEXT, TxAttr};
pub use av::AddressTable;
pub use eq::{EventQueue, ProgressSource};
pub use filter::Filter;
pub use info::{Handle, Hints, Info};
pub use nic::{BusAttr, DeviceAttr, LinkAttr, LinkState, Nic, PciAttr};
pub use ripstop_types as types;
pub use setup::{DEFAULT_STALL, init, params};
pub use token::FidToken;
