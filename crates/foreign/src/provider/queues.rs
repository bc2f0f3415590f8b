//! Completion queues and counters.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use ripstop_core::log::Subsys;
use ripstop_core::provider as model;
use ripstop_core::{fi_info, fi_warn};
use ripstop_types::{Completion, CompletionError, Errno, Result, WaitObj};

use super::{LOG, told};
use crate::PollSet;
use crate::threading::Threading;
use crate::{Counter, Cq, Error};

/// Why a queue gave nothing: nothing to tell where that is an answer.
#[inline]
fn answer(error: Error) -> Errno {
    match error.errno {
        Errno::EAGAIN | Errno::EAVAIL => error.errno,
        _ => told(error),
    }
}

impl<M: Threading> Cq<M> {
    /// A poll set with the queue alone.
    fn polls(&self) -> crate::Result<&PollSet<M>> {
        if let Some(polls) = self.polls.get() {
            return Ok(polls);
        }
        let polls = self.owned.parent().open_polls()?;
        polls.add_fid(self.owned.fid())?;
        Ok(self.polls.get_or_init(|| polls))
    }
}

impl<M: Threading> model::CompletionQueue for Cq<M> {
    #[inline]
    fn read(&self, max: usize, entry: impl FnMut(&Completion)) -> Result<usize> {
        self.each_now(max, entry).map_err(answer)
    }

    fn sread(
        &self,
        max: usize,
        threshold: usize,
        timeout: Option<Duration>,
        entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        let how = self.blocking(threshold.max(1), timeout);
        self.each(max, how, entry).map_err(answer)
    }

    fn poll(&self) -> bool {
        let ready = self.polls().and_then(|polls| polls.poll(1));
        ready.map_err(told).is_ok_and(|ready| !ready.is_empty())
    }

    fn read_error(&self, entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()> {
        let (error, data) = self.readerr().map_err(answer)?;
        let text = self.strerror(error.prov_errno);
        fi_info!(
            LOG,
            Subsys::Cq,
            "operation failed: {} ({:?}), {text}",
            error.err,
            error.err
        );
        entry(&error, &data);
        Ok(())
    }

    fn signal(&self) -> Result<()> {
        self.wake().map_err(told)
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.descriptor().map_err(|_| Errno::ENODATA)
    }

    fn try_wait(&self) -> Result<()> {
        let fabric = self.owned.parent().fabric();
        fabric.trywait(&mut [self.owned.fid()]).map_err(answer)
    }
}

/// Says that a counter did not change: the object model has no answer for that.
fn changed(result: crate::Result<()>) {
    if let Err(error) = result {
        fi_warn!(LOG, Subsys::Cntr, "{error}");
    }
}

impl<M: Threading> model::Counter for Counter<M> {
    fn read(&self) -> u64 {
        self.successes()
    }

    fn read_error(&self) -> u64 {
        self.errors()
    }

    fn add(&self, value: u64) {
        changed(self.add_successes(value));
    }

    fn set(&self, value: u64) {
        changed(self.set_successes(value));
    }

    fn add_error(&self, value: u64) {
        changed(self.add_errors(value));
    }

    fn set_error(&self, value: u64) {
        changed(self.set_errors(value));
    }

    fn is_busy(&self) -> bool {
        // The library says so when it is closed.
        false
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let waited = self.wait_for(threshold, timeout);
        waited.map_err(|error| match error.errno {
            Errno::ETIMEDOUT | Errno::EAVAIL => error.errno,
            _ => told(error),
        })
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.descriptor().map_err(|_| Errno::ENODATA)
    }

    fn try_wait(&self) -> Result<()> {
        let fabric = self.owned.parent().fabric();
        fabric.trywait(&mut [self.owned.fid()]).map_err(answer)
    }
}
