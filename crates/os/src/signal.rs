#![allow(unsafe_code)]
//! A signal to the process that a thread waits for.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};

use ripstop_types::{Errno, Result};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::errno::{errno, retry};

/// Where the handler writes to; below zero while there is none.
static WRITE_END: AtomicI32 = AtomicI32::new(-1);

/// The descriptor behind it, which stays open as long as the process.
static KEPT: Mutex<Option<OwnedFd>> = Mutex::new(None);

/// The handler: a write to a pipe is all it does, and a full one is as good.
extern "C" fn handle(_: libc::c_int) {
    let fd = WRITE_END.load(Ordering::Relaxed);
    // SAFETY: the place of this thread's errno, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    // SAFETY: one byte; `write(2)` may be called by handlers (signal-safety(7)).
    unsafe { libc::write(fd, [1_u8].as_ptr().cast(), 1) };
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// A signal that this process has no other use for.
#[derive(Debug)]
pub struct Signal(OwnedFd);

impl Signal {
    /// Takes over a signal, by its number. Only one can be taken in a process.
    ///
    /// # Errors
    ///
    /// [`Errno::EBUSY`] when the program handles it itself, and for a second one; `EINVAL` for one
    /// that cannot be handled; those of `pipe(2)`.
    pub fn take(number: i32) -> Result<Self> {
        let mut kept = KEPT.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.is_some() {
            return Err(Errno::EBUSY);
        }
        // SAFETY: all zeros are a `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a place for the present one.
        if unsafe { libc::sigaction(number, std::ptr::null(), &raw mut action) } != 0 {
            return Err(Errno::EINVAL);
        }
        if action.sa_sigaction != libc::SIG_DFL {
            return Err(Errno::EBUSY);
        }
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).map_err(errno)?;
        rustix::io::ioctl_fionbio(&write, true).map_err(errno)?;
        WRITE_END.store(write.as_raw_fd(), Ordering::Relaxed);
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
        // SAFETY: a handler that may be called at any moment, with an empty mask.
        if unsafe { libc::sigaction(number, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(Errno::EINVAL);
        }
        *kept = Some(write);
        Ok(Self(read))
    }

    /// Waits until the signal has come since the last call; several count as one or more.
    ///
    /// # Errors
    ///
    /// Those of `read(2)`.
    pub fn wait(&self) -> Result<()> {
        let mut bytes = [0_u8; 64];
        retry(|| rustix::io::read(&self.0, &mut bytes)).map(|_| ())
    }

    /// The number of a signal by its name, `USR2` or `SIGUSR2`, or as text.
    #[must_use]
    pub fn number(name: &str) -> Option<i32> {
        let name = name.trim();
        let short = name.strip_prefix("SIG").unwrap_or(name);
        match short {
            "USR1" => Some(libc::SIGUSR1),
            "USR2" => Some(libc::SIGUSR2),
            "HUP" => Some(libc::SIGHUP),
            "WINCH" => Some(libc::SIGWINCH),
            number => number
                .parse()
                .ok()
                .filter(|number| *number > 0 && !is_fault(*number)),
        }
    }
}

/// Whether it is one by which the system says that the program has made a mistake: it would come again and again.
const fn is_fault(number: i32) -> bool {
    matches!(
        number,
        libc::SIGSEGV
            | libc::SIGBUS
            | libc::SIGFPE
            | libc::SIGILL
            | libc::SIGTRAP
            | libc::SIGSYS
            | libc::SIGABRT
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_wakes_a_thread() {
        let number = Signal::number("SIGUSR2").unwrap();
        assert_eq!(Signal::number("USR2"), Some(number));
        assert_eq!(Signal::number("12"), Some(12));
        assert_eq!(Signal::number("nothing"), None);
        assert_eq!(Signal::number("11"), None, "a fault");
        let signal = Signal::take(number).unwrap();
        let waiting = std::thread::spawn(move || signal.wait());
        // SAFETY: a signal that is handled.
        assert_eq!(unsafe { libc::raise(number) }, 0);
        assert_eq!(waiting.join().unwrap(), Ok(()));
        assert_eq!(Signal::take(number).unwrap_err(), Errno::EBUSY);
    }
}
