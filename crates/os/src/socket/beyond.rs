#![allow(unsafe_code)]
//! What `rustix` does not have of sockets.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use ripstop_types::Result;
use rustix::ioctl::{Getter, Opcode, ioctl};

use super::Socket;
use crate::errno::errno;

impl Socket {
    /// Bytes that the kernel has taken and not sent yet, because the peer's system has no room for
    /// them or the network is not that fast (`SIOCOUTNSD` of `linux/sockios.h`).
    ///
    /// # Errors
    ///
    /// Those of `ioctl(2)`.
    pub fn not_sent(&self) -> Result<usize> {
        const SIOCOUTNSD: Opcode = 0x894b;
        // SAFETY: this operation writes one C int, which is what the getter has room for.
        let getter = unsafe { Getter::<SIOCOUTNSD, libc::c_int>::new() };
        // SAFETY: as above; the descriptor is open as long as it is borrowed.
        let count = unsafe { ioctl(self.0.as_fd(), getter) }.map_err(errno)?;
        Ok(usize::try_from(count).unwrap_or(0))
    }
}

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
