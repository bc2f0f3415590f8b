//! Errors of system calls as fabric errors: Linux numbers are `FI_E*` numbers below 256.

use ripstop_types::{Errno, Result};

/// The fabric error of a failed system call.
#[inline]
pub(crate) fn errno(err: rustix::io::Errno) -> Errno {
    Errno(err.raw_os_error())
}

/// The fabric error of a failed call of the C library.
pub(crate) fn last_errno() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(Errno::EOTHER.0),
    )
}

/// Repeats a system call until no signal interrupts it.
#[inline(always)]
pub(crate) fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> Result<T> {
    loop {
        match call() {
            Ok(value) => return Ok(value),
            Err(rustix::io::Errno::INTR) => {}
            Err(err) => return Err(errno(err)),
        }
    }
}
