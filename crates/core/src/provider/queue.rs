//! Completion queues.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ripstop_types::{Completion, CompletionError, Result, WaitObj};

#[cfg(doc)]
use ripstop_types::{Errno, Flags};

/// What [`CompletionQueue::look`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Nothing was to be done, and there is nothing to be read: [`Errno::EAGAIN`].
    Nothing,
    /// As `Nothing`, and it has been so for a while: call [`CompletionQueue::pause`].
    Pause,
    /// Call [`CompletionQueue::read_more`] with this, before anything else.
    More(isize),
}

/// A completion queue (man page `fi_cq(3)`).
pub trait CompletionQueue: 'static {
    /// Makes progress and hands out up to `max` completions, oldest first.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there are none; [`Errno::EAVAIL`] when the next entry is an
    /// error.
    fn read(&self, max: usize, entry: impl FnMut(&Completion)) -> Result<usize>;

    /// Makes progress as far as a short look does it. [`CompletionQueue::read`] may begin with
    /// this: a caller that remembers nothing for the frequent case that there is nothing gets
    /// along with few instructions.
    #[inline]
    fn look(&self) -> Look {
        Look::More(0)
    }

    /// Goes on after [`Look::Pause`]; then there is nothing to be read.
    fn pause(&self) {}

    /// Goes on after [`Look::More`], as [`CompletionQueue::read`].
    ///
    /// # Errors
    /// As for [`CompletionQueue::read`].
    #[inline]
    fn read_more(
        &self,
        _found: isize,
        max: usize,
        entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        self.read(max, entry)
    }

    /// As [`CompletionQueue::read`], but waits for at least `threshold` completions (taken as
    /// 1 when 0), at most `timeout` (`None`: for ever).
    ///
    /// # Errors
    /// As for `read`; [`Errno::EAGAIN`] also when the time is over, after
    /// [`CompletionQueue::signal`], and when the process got a signal while the call slept
    /// (`fi_cq(3)`).
    fn sread(
        &self,
        max: usize,
        threshold: usize,
        timeout: Option<Duration>,
        entry: impl FnMut(&Completion),
    ) -> Result<usize>;

    /// Makes progress; whether there is an entry to be read (`fi_poll(3)`).
    fn poll(&self) -> bool;

    /// Takes the next error entry; `data` receives bytes that describe it (the peer's
    /// address for [`Flags::SOURCE_ERR`]), borrowed for the call.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the next entry is not an error.
    fn read_error(&self, entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()>;

    /// Wakes whoever waits in [`CompletionQueue::sread`].
    ///
    /// # Errors
    /// [`Errno::ENOSYS`] without a wait object.
    fn signal(&self) -> Result<()>;

    /// The wait object it was opened with.
    fn wait_obj(&self) -> WaitObj;

    /// The descriptor that becomes readable when [`CompletionQueue::read`] should be called
    /// (`FI_GETWAIT`).
    ///
    /// # Errors
    /// [`Errno::ENODATA`] without one.
    fn wait_fd(&self) -> Result<BorrowedFd<'_>>;

    /// Whether it is safe to block on the descriptor (`fi_trywait(3)`).
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when the queue should be read first.
    fn try_wait(&self) -> Result<()>;
}
