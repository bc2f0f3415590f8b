//! Interfaces and names of the network.

mod interface;
mod resolve;

pub use interface::{Interface, OperState, interfaces, is_local};
pub use resolve::resolve;
