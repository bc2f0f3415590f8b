//! Counters.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ripstop_core::provider::{self, CounterAttr, Threshold};
use ripstop_engine::counter::Counter as Values;
use ripstop_engine::id::CounterId;
use ripstop_engine::triggered::{Basis, When};
use ripstop_types::{Errno, Result, WaitObj};

use crate::api::domain::{Domain, Mode};
use crate::api::wait::{OnSignal, Wait};
use crate::state::State;
use crate::state::waiters::Waited;
use crate::transport::Transport;

/// A counter.
#[derive(Debug)]
pub struct Counter<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: CounterId,
    wait: Wait,
    /// What the program has read last of successes and of errors, and whether it ever reads them;
    /// written and read under the domain's lock. Where it reads both, a look at one says nothing
    /// about the other, which may have changed between the two calls.
    told: [AtomicU64; 2],
    read: [AtomicBool; 2],
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
            told: [const { AtomicU64::new(0) }; 2],
            read: [const { AtomicBool::new(false) }; 2],
        });
        if matches!(counter.wait.obj(), WaitObj::Fd | WaitObj::PollFd) {
            counter.wait.fd(domain, || counter.news())?;
        }
        Ok(counter)
    }

    /// Makes progress; the program reads what `which` says, if it does.
    fn poll(&self, which: Option<Which>) -> Values {
        self.domain.inner.note_activity();
        let mut state = self.domain.lock();
        let before = self.values(&mut state);
        state.progress();
        let now = self.values(&mut state);
        if let Some(which) = which {
            self.tell(which as usize, both(&now));
        }
        if now != before {
            state.yield_policy.note_found();
        } else if state.yield_policy.is_yield_due() {
            drop(state);
            self.domain.inner.pause();
        }
        now
    }

    /// The program reads one of the values. The other is no news either, if it never reads it.
    fn tell(&self, which: usize, now: [u64; 2]) {
        self.read[which].store(true, Ordering::Relaxed);
        self.told[which].store(now[which], Ordering::Relaxed);
        let other = 1 - which;
        if !self.read[other].load(Ordering::Relaxed) {
            self.told[other].store(now[other], Ordering::Relaxed);
        }
    }

    fn values(&self, state: &mut State<T>) -> Values {
        let values = state.engine.counter_mut(self.id);
        values.map_or_else(Values::default, |c| *c)
    }

    /// That the program does not know all of what it would read; under the domain's lock.
    fn news(&self) -> Waited {
        let told = self.told.each_ref();
        Waited::Counter(self.id, told.map(|value| value.load(Ordering::Relaxed)))
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
        self.poll(Some(Which::Successes)).value
    }

    fn read_error(&self) -> u64 {
        self.poll(Some(Which::Errors)).errors
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
        // Before any progress: an error that is found by waiting ends the wait.
        let errors = self.values(&mut self.domain.lock()).errors;
        let outcome = self.wait.wait(
            &self.domain,
            timeout,
            OnSignal::GoOn,
            |state| {
                let seen = state.engine.counter_mut(id).map_or([0; 2], |c| both(c));
                Waited::Counter(id, seen)
            },
            |state| {
                let values = state.engine.counter_mut(id)?;
                if values.value >= threshold {
                    return Some(Ok(()));
                }
                (values.errors != errors).then_some(Err(Errno::EAVAIL))
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
        self.wait.fd(&self.domain, || self.news())
    }

    fn try_wait(&self) -> Result<()> {
        let news = || self.news();
        self.wait.try_wait(&self.domain, news, |state| {
            let now = state.engine.counter_mut(self.id).map(|c| both(c));
            now.is_some_and(|now| news() != Waited::Counter(self.id, now))
        })
    }
}

/// One of the two values.
#[derive(Clone, Copy)]
enum Which {
    Successes,
    Errors,
}

/// The values, as [`Which`] counts them.
const fn both(values: &Values) -> [u64; 2] {
    [values.value, values.errors]
}

impl<T: Transport, K: Mode> Domain<T, K> {
    /// The id of a counter of this domain.
    ///
    /// # Errors
    /// As for [`Domain::check_same`].
    pub(crate) fn counter_id(self: &Arc<Self>, counter: &Counter<T, K>) -> Result<CounterId> {
        self.check_same(&counter.domain, "the counter")?;
        Ok(counter.id)
    }

    /// What an operation waits for, in the words of the engine.
    pub(crate) fn reached(
        self: &Arc<Self>,
        when: Threshold<'_, Self>,
        basis: Basis,
    ) -> Result<When> {
        Ok(When {
            counter: self.counter_id(when.counter)?,
            basis,
            threshold: when.value,
        })
    }
}
