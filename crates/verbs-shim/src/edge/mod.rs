#![allow(unsafe_code)]
//! The C functions: `libibverbs.so.1`'s and `librdmacm.so.1`'s, by their names.

mod addrinfo;
mod ah;
mod args;
mod building;
mod cm;
mod device;
mod ids;
mod made;
mod objects;
mod poll;
mod post;
mod refused;
mod srq;
#[cfg(test)]
mod tests;
mod turn;
mod wr;

use core::ffi::c_int;

use ripstop_types::Errno;

/// Writes C functions whose bodies are safe.
///
/// Each argument is `name: Type`, where `Type` is an [`Arg`](args::Arg) and decides the C type.
macro_rules! exports {
    ($(
        $(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => { $(
        $(#[$meta])*
        // SAFETY: nothing else in the library has this name, and nothing else is meant by it: the object is
        // loaded in front of those that have it.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            $($arg: <$type as $crate::edge::args::Arg>::C),*
        ) $(-> $ret)? {
            $(
                // SAFETY: C calls this function with the arguments that its manual page asks for.
                #[allow(unused_mut)]
                let mut $arg = unsafe { <$type as $crate::edge::args::Arg>::from_c($arg) };
            )*
            #[deny(unsafe_code)]
            $body
        }
    )* };
}

pub(crate) use exports;

/// What a call returns that returns the number of an error.
fn number(result: Result<(), Errno>) -> c_int {
    result.map_or_else(|errno| errno.0, |()| 0)
}

/// What a call returns that sets `errno` and returns -1.
fn minus_one(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            ripstop_os::set_errno(errno);
            -1
        }
    }
}

/// What a call returns that sets `errno` and returns NULL.
fn or_null<T>(result: Result<*mut T, Errno>) -> *mut T {
    result.unwrap_or_else(|errno| {
        ripstop_os::set_errno(errno);
        core::ptr::null_mut()
    })
}

/// The error of a failed call of the standard library.
fn errno_of(error: std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::EIO.0))
}
