//! Completion queues.

use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::lock::Lock;
use ripstop_core::provider::{CompletionQueue, CqAttr};
use ripstop_engine::id::CqId;
use ripstop_types::{Completion, CompletionError, Errno, Result, WaitObj};

use crate::api::domain::{Domain, Inner, Mode};
use crate::api::wait::{OnSignal, Wait};
use crate::progress::poll::FastPoll;
use crate::state::State;
use crate::state::waiters::Waited;
use crate::transport::in_place::InPlace as _;
use crate::transport::{InPlaceOf, Transport};

/// Entries of a queue whose opener named no number.
const DEFAULT_ENTRIES: usize = 1024;

/// Entries reserved at most when the queue is opened; beyond that it grows as needed.
const MAX_RESERVED_ENTRIES: usize = 64 * 1024;

/// A completion queue.
#[derive(Debug)]
pub struct Cq<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) inner: Arc<Inner<T, K>>,
    pub(crate) id: CqId,
    wait: Wait,
}

impl<T: Transport, K: Mode> Cq<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, attr: &CqAttr) -> Result<Arc<Self>> {
        let wait = Wait::new(domain, attr.wait)?;
        let size = if attr.size == 0 {
            DEFAULT_ENTRIES
        } else {
            attr.size
        };
        let mut state = domain.lock();
        let id = state.engine.open_cq(size.min(MAX_RESERVED_ENTRIES))?;
        drop(state);
        let cq = Arc::new(Self {
            domain: Arc::clone(domain),
            inner: Arc::clone(&domain.inner),
            id,
            wait,
        });
        if matches!(cq.wait.obj(), WaitObj::Fd | WaitObj::PollFd) {
            cq.wait.fd(domain, || Waited::Cq(id, 1))?;
        }
        Ok(cq)
    }
}

impl<T: Transport, K: Mode> Drop for Cq<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        self.wait.close(&mut state);
        state.engine.close_cq(self.id);
    }
}

/// Takes up to `max` entries.
#[inline]
fn take<T: Transport>(
    state: &mut State<T>,
    id: CqId,
    max: usize,
    entry: &mut impl FnMut(&Completion),
) -> Result<usize> {
    let cq = state.engine.cq_mut(id).ok_or(Errno::EINVAL)?;
    if max == 0 && cq.is_empty() {
        return Err(Errno::EAGAIN);
    }
    let mut count = 0;
    while count < max {
        match cq.take(&mut *entry) {
            Ok(()) => count += 1,
            Err(_) if count > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// Whether an entry waits.
#[inline]
fn waits<T: Transport>(state: &State<T>, id: CqId) -> bool {
    state.engine.cq(id).is_some_and(|cq| !cq.is_empty())
}

/// A read is a fast poll, inlined into the caller ([`CompletionQueue::read_as`]); then, if that found
/// something, [`Cq::read_found`]; then, if it is not what is frequent, [`Cq::progress_and_take`].
/// With `K::SHARED` the lock is held from the first step to the last. Without, it costs nothing: each
/// step drops it and the next one (`read_unshared`, `read_unshared_rest`) takes it again.
impl<T: Transport, K: Mode> Cq<T, K> {
    /// Goes on after the fast poll.
    #[inline(always)]
    fn read_rest<R: From<Result<usize>>>(
        &self,
        state: impl DerefMut<Target = State<T>>,
        found: Option<FastPoll>,
        max: usize,
        entry: impl FnMut(&Completion),
    ) -> R {
        if K::SHARED {
            return self.read_found(state, found, max, entry);
        }
        drop(state);
        match found {
            Some(FastPoll::Insufficient) => {
                self.read_unshared_rest(FastPoll::Insufficient, max, entry)
            }
            _ => self.read_unshared(found, max, entry),
        }
    }

    #[inline(never)]
    fn read_unshared<R: From<Result<usize>>>(
        &self,
        found: Option<FastPoll>,
        max: usize,
        entry: impl FnMut(&Completion),
    ) -> R {
        self.read_found(self.inner.state.lock(), found, max, entry)
    }

    /// Takes what waits, or one small message that a fast poll has found, which is not queued first.
    /// `found` is `None` where entries wait.
    #[inline(always)]
    fn read_found<R: From<Result<usize>>>(
        &self,
        mut state: impl DerefMut<Target = State<T>>,
        found: Option<FastPoll>,
        max: usize,
        mut entry: impl FnMut(&Completion),
    ) -> R {
        // Who asks for no entries asks for progress.
        if max > 0 {
            let Some(found) = found else {
                // No progress is needed, but what was put off must not wait for the next one.
                state.end_burst();
                let taken = take(&mut state, self.id, max, &mut entry);
                return R::from(taken.inspect(|_| state.yield_policy.note_found()));
            };
            if let Some(completion) = state.fast_receive(self.id, found) {
                entry(&completion);
                state.yield_policy.note_found();
                return R::from(Ok(1));
            }
        }
        let found = found.unwrap_or(FastPoll::Insufficient);
        if K::SHARED {
            return R::from(self.progress_and_take(state, found, max, entry));
        }
        drop(state);
        self.read_unshared_rest(found, max, entry)
    }

    #[inline(never)]
    fn read_unshared_rest<R: From<Result<usize>>>(
        &self,
        found: FastPoll,
        max: usize,
        entry: impl FnMut(&Completion),
    ) -> R {
        R::from(self.progress_and_take(self.inner.state.lock(), found, max, entry))
    }

    /// All other reads. A payload that arrives in parts may give no completion for many of them, so
    /// that these yield too.
    #[inline]
    fn progress_and_take(
        &self,
        mut state: impl DerefMut<Target = State<T>>,
        found: FastPoll,
        max: usize,
        mut entry: impl FnMut(&Completion),
    ) -> Result<usize> {
        let any = match found {
            FastPoll::Insufficient => state.progress_all(),
            // They complete nothing.
            FastPoll::Readable
                if InPlaceOf::<T>::SUPPORTED
                    && state.active.short_writes
                    && state.receive_short_writes() =>
            {
                return Err(Errno::EAGAIN);
            }
            found => {
                state.handle_found(found);
                true
            }
        };
        let taken = take(&mut state, self.id, max, &mut entry);
        if taken.is_ok() {
            state.yield_policy.note_found();
        } else if !any && taken == Err(Errno::EAGAIN) && state.yield_policy.is_yield_due() {
            drop(state);
            self.inner.pause();
        }
        taken
    }
}

impl<T: Transport, K: Mode> CompletionQueue for Cq<T, K> {
    #[inline]
    fn read(&self, max: usize, entry: impl FnMut(&Completion)) -> Result<usize> {
        self.read_as(max, entry)
    }

    #[inline(always)]
    fn read_as<R: From<Result<usize>>>(&self, max: usize, entry: impl FnMut(&Completion)) -> R {
        let inner = &*self.inner;
        inner.note_activity();
        let mut state = inner.state.lock();
        if waits(&state, self.id) {
            return self.read_rest(state, None, max, entry);
        }
        match state.fast_poll() {
            FastPoll::Nothing => {
                let pause = state.yield_policy.is_yield_due();
                drop(state);
                if pause {
                    inner.pause();
                }
                R::from(Err(Errno::EAGAIN))
            }
            found => self.read_rest(state, Some(found), max, entry),
        }
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
            OnSignal::End,
            |_| Waited::Cq(id, wanted),
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
        self.wait.fd(&self.domain, || Waited::Cq(self.id, 1))
    }

    fn try_wait(&self) -> Result<()> {
        let id = self.id;
        self.wait.try_wait(
            &self.domain,
            || Waited::Cq(id, 1),
            move |state| state.engine.cq_mut(id).is_some_and(|cq| !cq.is_empty()),
        )
    }
}
