//! Protocol engines without I/O, time or payload.
//!
//! An engine is a state machine: `handle_*` and `post_*` methods take what happened, other
//! methods say what to do next, and the caller (a provider, a simulation, a kernel module)
//! moves the bytes. Payload is known by opaque buffer handles ([`Buffer`]); only headers pass
//! through as byte slices. Time is an argument.
//!
//! Everything here builds for a kernel: `no_std`, memory is reserved fallibly and reported as
//! [`Errno::ENOMEM`](ripstop_types::Errno::ENOMEM) or
//! [`Errno::EAGAIN`](ripstop_types::Errno::EAGAIN), no floats, no panics on input.
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
#![cfg_attr(no_global_oom_handling, feature(vec_push_within_capacity))]
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

extern crate alloc;
#[cfg(test)]
extern crate self as ripstop_engine;

mod buffer;
pub mod coll;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
pub mod counter;
pub mod cq;
pub mod id;
pub mod ids;
pub mod matching;
pub mod mr;
pub mod pool;
pub mod ring;
pub mod stream;
mod table;
pub mod triggered;

pub use buffer::{Buffer, IOV_LIMIT, Iov, REACH, Reached};
