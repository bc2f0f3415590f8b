#![allow(unsafe_code)]
//! The one socket option that `rustix` does not have.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Lets `connect` choose the source port instead of `bind`, so that connections to different
/// peers may share one (`IP_BIND_ADDRESS_NO_PORT`; also for IPv6 sockets). Without it, a
/// machine has as many connections as ephemeral ports. Kernels before 4.2 lack it: no error.
pub(super) fn bind_address_no_port(fd: BorrowedFd<'_>) {
    let on: libc::c_int = 1;
    // SAFETY: the value is a C int that outlives the call, and the length is its own.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_BIND_ADDRESS_NO_PORT,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
}
