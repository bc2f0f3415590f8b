//! The C interface of OpenFabrics Interfaces as Rust types: every public struct, operation
//! table and constant of the v2.6.0 headers, under its C name.
//!
//! There is one module per header, and every name is also at the root. Nothing here has
//! behaviour. Each struct's size and field offsets are compared at compile time with
//! those a C compiler gives for the headers (64-bit Linux), so a mistake does not build.
//!
//! - A C enumeration is an integer alias plus constants, since a C caller can pass any value.
//! - A function pointer is `Option<unsafe extern "C" fn>`; an operation table may be shorter
//!   than its type, so compare `size` with the offset of a member before reading the member.
//! - Pointers keep C's constness. `Default` is the all-zero value.
//! - [`history`] holds the layouts that binaries of older releases use.
//! - [`functions`] holds the types of the exported functions.
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
#![allow(non_camel_case_types, non_upper_case_globals)]
#![allow(clippy::type_complexity)] // the shapes are C's

/// Constants of one type that share a line of documentation.
macro_rules! constants {
    ($doc:literal $type:ty { $($name:ident = $value:expr,)* }) => {
        $(#[doc = $doc] pub const $name: $type = $value;)*
    };
}

/// Asserts the size, at most pointer alignment, and the field offsets of structs.
macro_rules! layout {
    ($($name:ident: $size:literal { $($field:ident = $offset:literal),* })*) => {
        #[cfg(target_pointer_width = "64")]
        const _: () = {
            $(
                assert!(core::mem::size_of::<$name>() == $size);
                assert!(core::mem::align_of::<$name>() <= 8);
                $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
            )*
        };
    };
}

pub mod fabric;
pub mod fi_atomic;
pub mod fi_cm;
pub mod fi_collective;
pub mod fi_domain;
pub mod fi_endpoint;
pub mod fi_eq;
pub mod fi_errno;
pub mod fi_ext;
pub mod fi_log;
pub mod fi_peer;
pub mod fi_profile;
pub mod fi_prov;
pub mod fi_rma;
pub mod fi_tagged;
pub mod fi_trigger;
pub mod functions;
pub mod history;

pub use fabric::*;
pub use fi_atomic::*;
pub use fi_cm::*;
pub use fi_collective::*;
pub use fi_domain::*;
pub use fi_endpoint::*;
pub use fi_eq::*;
pub use fi_errno::*;
pub use fi_ext::*;
pub use fi_log::*;
pub use fi_peer::*;
pub use fi_profile::*;
pub use fi_prov::*;
pub use fi_rma::*;
pub use fi_tagged::*;
pub use fi_trigger::*;
