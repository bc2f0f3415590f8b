//! Descriptors that others open.

use std::os::fd::BorrowedFd;

use ripstop_types::Result;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

use crate::errno::errno;

/// Has calls on a descriptor return `EAGAIN` where they would wait.
///
/// # Errors
///
/// Those of `fcntl(2)`.
pub fn set_nonblocking(fd: BorrowedFd<'_>) -> Result<()> {
    let flags = fcntl_getfl(fd).map_err(errno)?;
    fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(errno)
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn an_empty_descriptor_says_so_instead_of_waiting() {
        let (mut here, _there) = UnixStream::pair().expect("a pair");
        set_nonblocking(here.as_fd()).expect("set");
        let error = here.read(&mut [0]).expect_err("nothing to read");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}
