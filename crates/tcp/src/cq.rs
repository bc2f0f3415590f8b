//! Completion queues.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::provider::{CompletionQueue, CqAttr};
use ripstop_types::{Completion, CompletionError, Errno, Result, WaitObj};

use crate::domain::{Domain, Mode};
use crate::state::{State, Waited};
use crate::wait::Wait;

/// Entries of a queue whose opener named no number.
const DEFAULT_SIZE: usize = 1024;

/// Entries reserved at most when the queue is opened; beyond that it grows as needed.
const RESERVE: usize = 64 * 1024;

/// A completion queue of the tcp provider.
#[derive(Debug)]
pub struct Cq<K: Mode> {
    pub(crate) domain: Arc<Domain<K>>,
    pub(crate) id: u32,
    wait: Wait,
}

impl<K: Mode> Cq<K> {
    pub(crate) fn open(domain: &Arc<Domain<K>>, attr: &CqAttr) -> Result<Arc<Self>> {
        let wait = Wait::new(domain, attr.wait)?;
        let size = if attr.size == 0 {
            DEFAULT_SIZE
        } else {
            attr.size
        };
        let mut state = domain.lock();
        let id = state.engine.open_cq(size.min(RESERVE))?;
        wait.arm(&mut state, Waited::Cq(id));
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            wait,
        }))
    }
}

impl<K: Mode> Drop for Cq<K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        self.wait.disarm(&mut state);
        state.engine.close_cq(self.id);
    }
}

/// Takes up to `max` entries.
#[inline]
fn take(
    state: &mut State,
    id: u32,
    max: usize,
    entry: &mut impl FnMut(&Completion),
) -> Result<usize> {
    let cq = state.engine.cq_mut(id).ok_or(Errno::EINVAL)?;
    let mut count = 0;
    while count < max {
        match cq.pop() {
            Ok(completion) => {
                entry(&completion);
                count += 1;
            }
            Err(_) if count > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

impl<K: Mode> CompletionQueue for Cq<K> {
    #[inline]
    fn read(&self, max: usize, mut entry: impl FnMut(&Completion)) -> Result<usize> {
        self.domain.inner.note_activity();
        let mut state = self.domain.lock();
        let waiting = state
            .engine
            .cq_mut(self.id)
            .is_some_and(|cq| !cq.is_empty());
        if waiting {
            // No progress is needed, but what was put off must not wait for the next one.
            state.end_burst();
        } else if !state.progress() {
            if state.polls.in_vain() {
                drop(state);
                std::thread::yield_now();
            }
            return Err(Errno::EAGAIN);
        }
        let taken = take(&mut state, self.id, max, &mut entry);
        if taken.is_ok() {
            state.polls.found();
        }
        taken
    }

    fn sread(
        &self,
        max: usize,
        threshold: usize,
        timeout: Option<Duration>,
        mut entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        if self.wait.obj() == WaitObj::None {
            return Err(Errno::ENOSYS);
        }
        let id = self.id;
        let wanted = threshold.clamp(1, max.max(1));
        self.wait.wait(
            &self.domain,
            timeout,
            |_| Waited::Cq(id),
            |state| {
                let cq = state.engine.cq_mut(id)?;
                let enough = cq.len() >= wanted || (!cq.is_empty() && cq.has_error());
                enough.then(|| take(state, id, max, &mut entry))
            },
        )?
    }

    fn poll(&self) -> bool {
        self.domain.inner.note_activity();
        let mut state = self.domain.lock();
        state.progress();
        let cq = state.engine.cq_mut(self.id);
        cq.is_some_and(|cq| !cq.is_empty())
    }

    fn read_error(&self, entry: impl FnOnce(&CompletionError, &[u8])) -> Result<()> {
        let mut state = self.domain.lock();
        let cq = state.engine.cq_mut(self.id).ok_or(Errno::EINVAL)?;
        let error = cq.pop_error()?;
        entry(&error.error, error.data());
        Ok(())
    }

    fn signal(&self) -> Result<()> {
        self.wait.signal()
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait.obj()
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.wait.fd()
    }

    fn try_wait(&self) -> Result<()> {
        let id = self.id;
        self.wait
            .try_wait(&self.domain, Waited::Cq(id), move |state| {
                state.engine.cq_mut(id).is_some_and(|cq| !cq.is_empty())
            })
    }
}
