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
//! - Fields carry the meaning of the man page that their struct names.
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

/// Constants of one type that share a line of documentation. `type NAME = INTEGER` declares the type
/// of a C enumeration with its values.
macro_rules! constants {
    () => {};
    ($doc:literal type $type:ident = $integer:ty { $($constants:tt)* } $($rest:tt)*) => {
        #[doc = concat!($doc, " Any value may arrive from C.")]
        pub type $type = $integer;
        constants! { $doc $type { $($constants)* } $($rest)* }
    };
    ($doc:literal $type:ty { $($name:ident = $value:expr,)* } $($rest:tt)*) => {
        $(#[doc = $doc] pub const $name: $type = $value;)*
        constants! { $($rest)* }
    };
}

/// Structs, unions and operation tables as C lays them out. Each size, and the offset after each
/// field's `@`, is what a C compiler gives for the headers on 64-bit Linux, and is asserted.
///
/// An `ops` table begins with its `size`; each of its functions is an
/// `Option<unsafe extern "C" fn>`. The `default` of a union zeroes all bytes of its widest member.
macro_rules! structs {
    () => {};
    ($(#[$meta:meta])* struct $name:ident: $size:literal bytes {
        $($(#[$field_meta:meta])* $field:ident @ $offset:literal: $type:ty,)*
    } $($rest:tt)*) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name {
            $($(#[$field_meta])* #[allow(missing_docs)] pub $field: $type,)*
        }

        #[cfg(target_pointer_width = "64")]
        const _: () = {
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() <= 8);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };

        structs! { $($rest)* }
    };
    ($(#[$meta:meta])* ops $name:ident: $size:literal bytes {
        $($function:ident @ $offset:literal:
            fn($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)?,)*
    } $($rest:tt)*) => {
        structs! {
            $(#[$meta])*
            struct $name: $size bytes {
                size @ 0: usize,
                $($function @ $offset:
                    Option<unsafe extern "C" fn($($arg: $type),*) $(-> $result)?>,)*
            }
            $($rest)*
        }
    };
    ($(#[$meta:meta])* union $name:ident {
        $($field:ident: $type:ty,)*
    } default $zero:tt $($rest:tt)*) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub union $name {
            $(#[allow(missing_docs)] pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self $zero
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(concat!(stringify!($name), " { .. }"))
            }
        }

        structs! { $($rest)* }
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
