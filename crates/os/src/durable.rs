#![allow(unsafe_code)]
//! Memory that outlives a crash.

use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Result};
use rustix::mm::{MsyncFlags, msync};

use crate::errno::errno;

/// Makes what was written to a buffer durable, if a file or persistent memory backs it; does
/// nothing for memory that nothing backs.
///
/// The kernel writes whole pages, and for persistent memory flushes the processor's caches.
///
/// # Errors
/// [`Errno::EIO`] when the file cannot be written, [`Errno::ENOMEM`] when the buffer is not
/// mapped.
pub fn make_durable(buf: UserBuf) -> Result<()> {
    if buf.is_empty() {
        return Ok(());
    }
    let page = rustix::param::page_size();
    let before = buf.addr() % page;
    let len = buf.len().checked_add(before).ok_or(Errno::EINVAL)?;
    let start = buf.as_ptr().wrapping_sub(before).cast();
    // SAFETY: the kernel only reads the mapping, and checks that it is one.
    unsafe { msync(start, len, MsyncFlags::SYNC) }.map_err(errno)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ripstop_mem::Parked;

    #[test]
    fn plain_memory_needs_nothing() {
        let parked = Parked::park(vec![1; 10_000]);
        assert_eq!(make_durable(parked.buf().skip(4097)), Ok(()));
        assert_eq!(make_durable(UserBuf::EMPTY), Ok(()));
        // SAFETY: the system call has returned.
        drop(unsafe { parked.unpark() });
    }
}
