//! Completion queues.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ripstop_types::{Completion, CompletionError, Result, WaitObj};

#[cfg(doc)]
use ripstop_types::{Errno, Flags};

/// A completion queue (man page `fi_cq(3)`).
pub trait CompletionQueue: 'static {
    /// Makes progress and hands out up to `max` completions, oldest first.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when there are none; [`Errno::EAVAIL`] when the next entry is an
    /// error.
    fn read(&self, max: usize, entry: impl FnMut(&Completion)) -> Result<usize>;

    /// As [`CompletionQueue::read`], with the result as what the caller makes of it. Where that is
    /// done by the provider, at the end of a read, the caller can leave the call to it for good.
    #[inline]
    fn read_as<R: From<Result<usize>>>(&self, max: usize, entry: impl FnMut(&Completion)) -> R {
        R::from(self.read(max, entry))
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
