//! What travels between peers: every protocol data unit (PDU), as a plain value with a
//! `parse` that checks each field and an `emit` that writes it.
//!
//! Peers are hostile. A `parse` here accepts any bytes whatsoever and answers with either a
//! value whose lengths and counts may be relied on, or a [`WireError`] that names the field.
//! Nothing here allocates, does I/O, or keeps state: what a PDU *means* is for the engines.
//!
//! `docs/wire.md` describes the protocols in prose.
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]
#![deny(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic
    )
)]

#[cfg(test)]
extern crate std;

mod cursor;
mod error;
mod op;
mod order;
mod packet_kind;
pub mod rxm;
pub mod xnet;

pub use error::WireError;
pub use order::ByteOrder;
