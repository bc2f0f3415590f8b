#![allow(unsafe_code)]
//! Other processes, and what can be read of their memory.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ripstop_types::{Errno, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::errno::{errno, last_errno, retry};
use crate::iovec::IoVecMut;

/// Most pieces on either side of [`Process::read`] (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// No such process; fabrics have no name for it.
const ESRCH: Errno = Errno(libc::ESRCH);

/// A process that is held by a descriptor, which is readable once the process has ended. It
/// names no other process, also when the number is used again.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
    pid: u32,
}

/// A piece of another process's memory, by the address that it has there.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Remote(libc::iovec);

// SAFETY: an address of another process, which this one never follows.
unsafe impl Send for Remote {}
// SAFETY: as for `Send`.
unsafe impl Sync for Remote {}

impl Remote {
    /// The `len` bytes at `addr`.
    #[must_use]
    pub const fn new(addr: usize, len: usize) -> Self {
        Self(libc::iovec {
            iov_base: std::ptr::without_provenance_mut(addr),
            iov_len: len,
        })
    }
}

/// Why nothing could be read of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// This machine does not let this process read the other's memory, or nobody any
    /// (`EPERM`, `ENOSYS`, `EACCES`): it will not later either.
    NotAllowed,
    /// The process has ended.
    Gone,
    /// There is no memory at the other's address, or not for reading.
    Fault,
    /// Something else.
    Failed(Errno),
}

impl ReadError {
    const fn of(error: Errno) -> Self {
        match error {
            Errno::EPERM | Errno::ENOSYS | Errno::EACCES => Self::NotAllowed,
            ESRCH => Self::Gone,
            Errno::EFAULT => Self::Fault,
            other => Self::Failed(other),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed => f.write_str("memory of other processes cannot be read here"),
            Self::Gone => f.write_str("the process has ended"),
            Self::Fault => f.write_str("no memory at the address of the other process"),
            Self::Failed(error) => write!(f, "cannot read the other process: {}", error.text()),
        }
    }
}

impl std::error::Error for ReadError {}

impl Process {
    /// The process of a number.
    ///
    /// # Errors
    ///
    /// `ESRCH` if there is none, `EMFILE`, `ENOSYS` before Linux 5.3.
    pub fn open(pid: u32) -> Result<Self> {
        let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let fd = pidfd_open(number.ok_or(ESRCH)?, PidfdFlags::empty());
        Ok(Self::of(fd.map_err(errno)?, pid))
    }

    pub(crate) const fn of(fd: OwnedFd, pid: u32) -> Self {
        Self { fd, pid }
    }

    /// The number of the process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether the process has not ended.
    ///
    /// # Errors
    ///
    /// Those of `poll(2)`.
    pub fn is_alive(&self) -> Result<bool> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let ready = retry(|| poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&now)))?;
        Ok(ready == 0)
    }

    /// Copies the pieces of the process's memory into those here, in order, and returns how
    /// many bytes were copied: fewer where the room ends, or where the process has no more
    /// memory. What is in them is the process's own affair, and may change while it is
    /// copied.
    ///
    /// # Errors
    ///
    /// [`ReadError`]; the pieces here may then have been written.
    pub fn read(
        &self,
        from: &[Remote],
        into: &mut [IoVecMut<'_>],
    ) -> std::result::Result<usize, ReadError> {
        self.check()?;
        let from = from.get(..MAX_PIECES).unwrap_or(from);
        let pieces = into.len().min(MAX_PIECES);
        let pid = libc::pid_t::try_from(self.pid).map_err(|_| ReadError::Gone)?;
        // SAFETY: an `IoVecMut` is an `iovec` of memory that may be written, `pieces` of them
        // are there; the other addresses are followed in the other process only.
        let count = unsafe {
            libc::process_vm_readv(
                pid,
                into.as_mut_ptr().cast(),
                pieces as libc::c_ulong,
                from.as_ptr().cast(),
                from.len() as libc::c_ulong,
                0,
            )
        };
        let failed = usize::try_from(count).map_err(|_| ReadError::of(last_errno()));
        // As it is alive still, the number was its own all the time.
        self.check()?;
        failed
    }

    fn check(&self) -> std::result::Result<(), ReadError> {
        match self.is_alive() {
            Ok(true) => Ok(()),
            Ok(false) => Err(ReadError::Gone),
            Err(error) => Err(ReadError::Failed(error)),
        }
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn own() -> Process {
        Process::open(crate::pid()).unwrap()
    }

    fn at(bytes: &[u8]) -> Remote {
        Remote::new(bytes.as_ptr().addr(), bytes.len())
    }

    #[test]
    fn memory_comes_in_pieces() {
        let (first, second) = (vec![1; 5000], vec![2; 3000]);
        let (mut near, mut far) = (vec![0; 6000], vec![0; 4000]);
        let count = own().read(
            &[at(&first), at(&second)],
            &mut [
                IoVecMut::from_slice(&mut near),
                IoVecMut::from_slice(&mut far),
            ],
        );
        assert_eq!(count, Ok(8000));
        assert_eq!(near, [vec![1; 5000], vec![2; 1000]].concat());
        assert_eq!(far, [vec![2; 2000], vec![0; 2000]].concat());
    }

    #[test]
    fn addresses_that_are_no_memory_are_refused() {
        let mut room = [7; 64];
        let mut read = |from: Remote| own().read(&[from], &mut [IoVecMut::from_slice(&mut room)]);
        assert_eq!(read(Remote::new(8, 64)), Err(ReadError::Fault));
        assert_eq!(read(Remote::new(usize::MAX - 8, 4)), Err(ReadError::Fault));
        assert_eq!(read(Remote::new(0, 0)), Ok(0));
        assert_eq!(room, [7; 64]);
    }

    #[test]
    fn a_process_that_has_ended_is_seen() {
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let process = Process::open(child.id()).unwrap();
        assert_eq!(process.is_alive(), Ok(true));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(process.is_alive(), Ok(false));
        let mut room = [0; 8];
        let read = process.read(
            &[Remote::new(4096, 8)],
            &mut [IoVecMut::from_slice(&mut room)],
        );
        assert_eq!(read, Err(ReadError::Gone));
        assert_eq!(Process::open(child.id()).err(), Some(ESRCH));
        for none in [0, u32::MAX] {
            assert_eq!(Process::open(none).err(), Some(ESRCH));
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        for error in [Errno::EPERM, Errno::ENOSYS, Errno::EACCES] {
            assert_eq!(ReadError::of(error), ReadError::NotAllowed);
        }
        assert_eq!(ReadError::of(ESRCH), ReadError::Gone);
        let other = ReadError::of(Errno::ENOMEM);
        assert_eq!(other, ReadError::Failed(Errno::ENOMEM));
    }
}
