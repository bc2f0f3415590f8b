//! Counters.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ripstop_core::provider::{self, CounterAttr};
use ripstop_engine::counter::Counter as Values;
use ripstop_types::{Errno, Result, WaitObj};

use crate::domain::{Domain, Mode};
use crate::state::State;
use crate::transport::Transport;
use crate::wait::{OnSignal, Wait};
use crate::waiters::Waited;

/// A counter.
#[derive(Debug)]
pub struct Counter<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: u32,
    wait: Wait,
    /// The sum of the values that the program has read last.
    told: AtomicU64,
}

impl<T: Transport, K: Mode> Counter<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, attr: &CounterAttr) -> Result<Arc<Self>> {
        // A wait is always possible: without an object it polls.
        let wait = Wait::new(domain, attr.wait)?;
        let values = Values {
            bytes: attr.bytes,
            ..Values::default()
        };
        let id = domain.lock().engine.open_counter(values)?;
        let counter = Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            wait,
            told: AtomicU64::new(0),
        });
        if matches!(counter.wait.obj(), WaitObj::Fd | WaitObj::PollFd) {
            counter.wait.fd(domain, counter.news())?;
        }
        Ok(counter)
    }

    fn poll(&self) -> Values {
        self.domain.inner.note_activity();
        let mut state = self.domain.lock();
        let before = self.values(&mut state);
        state.progress();
        let now = self.values(&mut state);
        self.told.store(sum(&now), Ordering::Relaxed);
        if now != before {
            state.polls.found();
        } else if state.polls.in_vain() {
            drop(state);
            self.domain.inner.pause();
        }
        now
    }

    fn values(&self, state: &mut State<T>) -> Values {
        let values = state.engine.counter_mut(self.id);
        values.map_or_else(Values::default, |c| *c)
    }

    /// That the program does not know all of what it would read.
    fn news(&self) -> Waited {
        Waited::Counter(self.id, self.told.load(Ordering::Relaxed))
    }

    fn change(&self, change: impl FnOnce(&mut Values)) {
        let mut state = self.domain.lock();
        if let Some(values) = state.engine.counter_mut(self.id) {
            change(values);
        }
        state.after();
    }
}

impl<T: Transport, K: Mode> Drop for Counter<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        self.wait.close(&mut state);
        state.drop_works_with(self.id);
        state.engine.close_counter(self.id);
    }
}

impl<T: Transport, K: Mode> provider::Counter for Counter<T, K> {
    fn read(&self) -> u64 {
        self.poll().value
    }

    fn read_error(&self) -> u64 {
        self.poll().errors
    }

    fn add(&self, value: u64) {
        self.change(|c| c.value = c.value.wrapping_add(value));
    }

    fn set(&self, value: u64) {
        self.change(|c| c.value = value);
    }

    fn add_error(&self, value: u64) {
        self.change(|c| c.errors = c.errors.wrapping_add(value));
    }

    fn set_error(&self, value: u64) {
        self.change(|c| c.errors = value);
    }

    fn is_busy(&self) -> bool {
        self.domain.lock().works_with(self.id)
    }

    fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let id = self.id;
        let errors = self.poll().errors;
        let outcome = self.wait.wait(
            &self.domain,
            timeout,
            OnSignal::GoOn,
            |state| {
                let seen = state.engine.counter_mut(id).map_or(0, |c| sum(c));
                Waited::Counter(id, seen)
            },
            |state| {
                let values = state.engine.counter_mut(id)?;
                if values.errors != errors {
                    return Some(Err(Errno::EAVAIL));
                }
                (values.value >= threshold).then_some(Ok(()))
            },
        );
        match outcome {
            Ok(outcome) => outcome,
            Err(Errno::EAGAIN) => Err(Errno::ETIMEDOUT),
            Err(error) => Err(error),
        }
    }

    fn wait_obj(&self) -> WaitObj {
        self.wait.obj()
    }

    fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        self.wait.fd(&self.domain, self.news())
    }

    fn try_wait(&self) -> Result<()> {
        let (id, news) = (self.id, self.news());
        self.wait.try_wait(&self.domain, news, move |state| {
            let now = state.engine.counter_mut(id).map(|c| sum(c));
            now.is_some_and(|now| news != Waited::Counter(id, now))
        })
    }
}

/// What tells a change of either value.
const fn sum(values: &Values) -> u64 {
    values.value.wrapping_add(values.errors)
}
