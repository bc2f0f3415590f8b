//! A timer as a descriptor, for waits that must end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ripstop_types::{Errno, Result};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use crate::errno::errno;

/// A timer that makes its descriptor readable (`timerfd_create(2)`), to be added to an
/// [`Epoll`](crate::Epoll).
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// A timer that is not set.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENOMEM` and the others of `timerfd_create(2)`.
    pub fn new() -> Result<Self> {
        timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )
        .map(Self)
        .map_err(errno)
    }

    /// Sets the timer to go off every `period`, first after one; zero stops it.
    ///
    /// # Errors
    ///
    /// Those of `timerfd_settime(2)`.
    pub fn set(&self, period: Duration) -> Result<()> {
        let period = Timespec::try_from(period).map_err(|_| Errno::EINVAL)?;
        let spec = Itimerspec {
            it_interval: period,
            it_value: period,
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &spec)
            .map(drop)
            .map_err(errno)
    }

    /// Makes the descriptor unreadable until the timer goes off again.
    pub fn drain(&self) {
        let mut count = [0; 8];
        // Nothing to read only says that it has not gone off.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoll, Events, Interest};

    #[test]
    fn goes_off_until_stopped() {
        let (timer, epoll) = (Timer::new().unwrap(), Epoll::new().unwrap());
        let mut events = Events::with_capacity(1);
        epoll.add(&timer, 1, Interest::READ).unwrap();
        timer.set(Duration::from_millis(5)).unwrap();
        for _ in 0..2 {
            let n = epoll.wait(&mut events, Some(Duration::from_secs(60)));
            assert_eq!(n, Ok(1));
            timer.drain();
        }
        timer.set(Duration::ZERO).unwrap();
        let quiet = epoll.wait(&mut events, Some(Duration::from_millis(20)));
        assert_eq!(quiet, Ok(0));
    }
}
