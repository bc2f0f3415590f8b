//! Memory that somebody else may write.
//!
//! A fabric reads and writes memory it does not own: a buffer that the caller still holds, a
//! page that a peer process maps, a window that a device fills. A `&[u8]` promises that the
//! bytes do not change while it lives, and that promise cannot be kept here. So such memory is
//! a *value* in Ripstop, an address and a length, and this crate is the only one that touches
//! it (`ripstop-os` hands it to system calls):
//!
//! | type | whose memory | who may write it meanwhile |
//! |---|---|---|
//! | [`UserBuf`] | a caller's buffer of a posted operation | nobody, by `fi_msg(3)`; never checked twice all the same |
//! | [`Parked`] | a `Vec<u8>` lent to an operation | the operation |
//! | [`Region`] | memory shared with another process or a device | anybody, at any time |
//! | [`ring`] | the memory of a pair of endpoints | the peer, at any time |
//!
//! The reasons, and what each type does and does not promise, are written down in
//! `docs/design/peer-writable-memory.md`.
//!
//! # Who answers for the memory of a `UserBuf`
//!
//! A [`UserBuf`] is `Copy` and has no lifetime, and whoever has one may copy from and to it: that is
//! safe, so its memory has to be there as long as any copy of the value is used. Whoever makes one
//! from a pointer says `unsafe` and promises that. So does whoever frees the memory of a [`Parked`],
//! the one safe way to get a `UserBuf`. Code without `unsafe` can therefore not reach freed memory.
//!
//! The promise rests on the code that the value is given to: providers use a buffer only until its
//! operation is over, as `ripstop_core::provider` says. No compiler checks that.
//!
//! Nothing here allocates.
#![no_std]
#![deny(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::disallowed_macros,
        clippy::disallowed_methods,
        clippy::disallowed_types
    )
)]

extern crate alloc;

#[expect(
    clippy::disallowed_types,
    reason = "operands may be floats; a kernel does not call these"
)]
pub mod atomic;
mod buffer;
mod copy;
mod parked;
mod region;
pub mod ring;
mod user;

pub use atomic::AtomicError;
pub use copy::{copy, copy_in, copy_out};
pub use parked::Parked;
pub use region::{Region, RegionError, store};
pub use ripstop_engine::IOV_LIMIT;
pub use user::UserBuf;

#[cfg(all(test, not(loom)))]
mod tests;
