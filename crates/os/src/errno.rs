//! Errors of system calls as fabric errors: Linux numbers are `FI_E*` numbers below 256.

use ripstop_types::{Errno, Result};

/// The fabric error of a failed system call.
#[inline]
pub(crate) fn errno(err: rustix::io::Errno) -> Errno {
    Errno(err.raw_os_error())
}

/// The fabric error of a failed call of `nix`.
pub(crate) fn nix_errno(err: nix::Error) -> Errno {
    Errno(err as i32)
}

/// The fabric error of a failed call of the C library.
pub(crate) fn last_errno() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(Errno::EOTHER.0),
    )
}

/// Sets `errno` of this thread, for a C function that tells its caller of an error so.
pub fn set_errno(errno: Errno) {
    nix::errno::Errno::set_raw(errno.0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_calls_are_repeated() {
        let mut left = 3;
        let result = retry(|| match left {
            0 => Ok("done"),
            _ => {
                left -= 1;
                Err(rustix::io::Errno::INTR)
            }
        });
        assert_eq!(result, Ok("done"));
    }

    #[test]
    fn other_errors_end_the_call() {
        let mut calls = 0;
        let result: Result<()> = retry(|| {
            calls += 1;
            Err(rustix::io::Errno::AGAIN)
        });
        assert_eq!((result, calls), (Err(Errno::EAGAIN), 1));
    }

    #[test]
    fn numbers_of_linux_are_fabric_numbers() {
        use rustix::io::Errno as E;
        for (linux, fabric) in [
            (E::AGAIN, Errno::EAGAIN),
            (E::CONNREFUSED, Errno::ECONNREFUSED),
            (E::CONNRESET, Errno::ECONNRESET),
            (E::TIMEDOUT, Errno::ETIMEDOUT),
            (E::PIPE, Errno::EPIPE),
            (E::HOSTUNREACH, Errno::EHOSTUNREACH),
            (E::ADDRINUSE, Errno::EADDRINUSE),
            (E::ADDRNOTAVAIL, Errno::EADDRNOTAVAIL),
            (E::MSGSIZE, Errno::EMSGSIZE),
            (E::CANCELED, Errno::ECANCELED),
        ] {
            assert_eq!(errno(linux), fabric);
        }
    }
}
