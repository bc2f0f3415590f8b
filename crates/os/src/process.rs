//! Other processes, and their memory as far as it can be read and written.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::uio::{RemoteIoVec, process_vm_readv, process_vm_writev};
use ripstop_types::{Errno, Result};
use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use thiserror::Error;

use crate::epoll::is_ready;
use crate::errno::{errno, nix_errno};
use crate::iovec::{IoVec, IoVecMut, slices, slices_mut};

/// Most pieces on either side of [`Process::read`] and [`Process::write`] (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// No such process; fabrics have no name for it.
const ESRCH: Errno = Errno(libc::ESRCH);

/// A process that is held by a descriptor, which is readable once the process has ended. It
/// names no other process, also when the number is used again.
#[derive(Debug)]
pub struct Process {
    fd: OwnedFd,
    pid: u32,
    /// It is the process that made this value: asked once, since `getpid(2)` is a system call.
    is_own: bool,
}

/// A piece of another process's memory, by the address that it has there.
pub type Remote = RemoteIoVec;

/// Why the memory of a process could not be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// This machine does not let this process reach the other's memory, or nobody any
    /// (`EPERM`, `ENOSYS`, `EACCES`): it will not later either.
    #[error("the memory of that process may not be reached from here")]
    NotAllowed,
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// There is no memory at one of the addresses, or not for this.
    #[error("no memory at the address")]
    Fault,
    /// Something else.
    #[error("the memory of that process cannot be reached: {}", .0.text())]
    Failed(Errno),
}

type Attached<T> = std::result::Result<T, AttachError>;

impl AttachError {
    const fn of(error: Errno) -> Self {
        match error {
            Errno::EPERM | Errno::ENOSYS | Errno::EACCES => Self::NotAllowed,
            ESRCH => Self::Gone,
            Errno::EFAULT => Self::Fault,
            other => Self::Failed(other),
        }
    }
}

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

    pub(crate) fn of(fd: OwnedFd, pid: u32) -> Self {
        let is_own = pid == crate::pid();
        Self { fd, pid, is_own }
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
        Ok(!is_ready(&mut [PollFd::new(&self.fd, PollFlags::IN)])?)
    }

    /// Copies the pieces of the process's memory into those here, in order, and returns how
    /// many bytes were copied: fewer where the room ends, or where the process has no more
    /// memory. What is in them is the process's own affair, and may change while it is
    /// copied. The system goes by the number, which may be another process's once this one has ended: where that
    /// matters, ask [`is_alive`](Self::is_alive), or read what only this process has, and not long before.
    ///
    /// # Errors
    ///
    /// [`AttachError`]; the pieces here may then have been written.
    pub fn read(&self, from: &[Remote], into: &mut [IoVecMut<'_>]) -> Attached<usize> {
        let from = from.get(..MAX_PIECES).unwrap_or(from);
        let pieces = into.len().min(MAX_PIECES);
        process_vm_readv(self.number()?, slices_mut(&mut into[..pieces]), from)
            .map_err(|error| AttachError::of(nix_errno(error)))
    }

    /// As [`read`](Self::read), the other way: copies the pieces here into those of the process's
    /// memory. It is for processes that have asked for it: what they have there is written over.
    /// For this process it is [`AttachError::NotAllowed`].
    ///
    /// # Errors
    ///
    /// [`AttachError`]; some of the pieces there may then have been written.
    pub fn write(&self, into: &[Remote], from: &[IoVec<'_>]) -> Attached<usize> {
        let into = into.get(..MAX_PIECES).unwrap_or(into);
        let from = from.get(..MAX_PIECES).unwrap_or(from);
        if self.is_own {
            return Err(AttachError::NotAllowed);
        }
        process_vm_writev(self.number()?, slices(from), into)
            .map_err(|error| AttachError::of(nix_errno(error)))
    }

    /// None is 0: that would be of a process in another namespace, which has no number here.
    fn number(&self) -> Attached<nix::unistd::Pid> {
        let pid = i32::try_from(self.pid).ok().filter(|pid| *pid > 0);
        pid.map(nix::unistd::Pid::from_raw).ok_or(AttachError::Gone)
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

    fn remote(base: usize, len: usize) -> Remote {
        Remote { base, len }
    }

    fn at(bytes: &[u8]) -> Remote {
        remote(bytes.as_ptr().addr(), bytes.len())
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

    /// Where a child has the words of its environment.
    fn environment_of(child: u32, len: usize) -> Remote {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        let fields: Vec<_> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
        // `env_start`, the 50th of all.
        remote(fields[47].parse().unwrap(), len)
    }

    #[test]
    fn memory_of_a_child_is_written_and_read() {
        let text = "attach me";
        let mut command = Command::new("cat");
        command.env_clear().env("A", text).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        let process = Process::open(child.id()).unwrap();
        let all = 2 + text.len();
        let place = environment_of(child.id(), all);
        let mut room = vec![0; all];
        let read = |room: &mut [u8]| process.read(&[place], &mut [IoVecMut::from_slice(room)]);
        assert_eq!(read(&mut room), Ok(all));
        assert_eq!(room, format!("A={text}").as_bytes());
        let pieces = [
            IoVec::from_slice(b"B="),
            IoVec::from_slice(b"detach "),
            IoVec::EMPTY,
            IoVec::from_slice(b"it"),
        ];
        assert_eq!(process.write(&[place], &pieces), Ok(all));
        assert_eq!(read(&mut room), Ok(all));
        assert_eq!(room, b"B=detach it");
        let none = process.write(&[remote(8, all)], &pieces);
        assert_eq!(none, Err(AttachError::Fault));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(process.write(&[place], &pieces), Err(AttachError::Gone));
    }

    /// That would be any of its own memory, from safe code.
    #[test]
    fn a_process_does_not_write_itself() {
        let room = vec![7; 64];
        let text = [IoVec::from_slice(&[1; 64])];
        let written = own().write(&[at(&room)], &text);
        assert_eq!(written, Err(AttachError::NotAllowed));
        assert_eq!(room, [7; 64]);
    }

    #[test]
    fn addresses_that_are_no_memory_are_refused() {
        let mut room = [7; 64];
        let mut read = |from: Remote| own().read(&[from], &mut [IoVecMut::from_slice(&mut room)]);
        assert_eq!(read(remote(8, 64)), Err(AttachError::Fault));
        assert_eq!(read(remote(usize::MAX - 8, 4)), Err(AttachError::Fault));
        assert_eq!(read(remote(0, 0)), Ok(0));
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
        let read = process.read(&[remote(4096, 8)], &mut [IoVecMut::from_slice(&mut room)]);
        assert_eq!(read, Err(AttachError::Gone));
        assert_eq!(Process::open(child.id()).err(), Some(ESRCH));
        for none in [0, u32::MAX] {
            assert_eq!(Process::open(none).err(), Some(ESRCH));
        }
    }

    #[test]
    fn refusals_are_told_apart() {
        for error in [Errno::EPERM, Errno::ENOSYS, Errno::EACCES] {
            assert_eq!(AttachError::of(error), AttachError::NotAllowed);
        }
        assert_eq!(AttachError::of(ESRCH), AttachError::Gone);
        let other = AttachError::of(Errno::ENOMEM);
        assert_eq!(other, AttachError::Failed(Errno::ENOMEM));
    }
}
