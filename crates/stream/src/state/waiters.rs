//! Whoever sleeps until a queue or counter changes, and how each of them is woken.
//!
//! Every sleeper has a doorbell of its own. It is rung by whoever changes what the sleeper waits for,
//! under the domain's lock, and drained by the sleeper alone, which looks again before it sleeps the
//! next time. So nobody can drain what is to wake another one, and this holds at every moment
//! that the lock is free:
//!
//! - a thread that sleeps in a call is armed here for what it found last, or its doorbell rings;
//! - the descriptor that a program sleeps on outside is armed here, or readable, from when
//!   `fi_trywait(3)` has allowed it, whoever else reads the object meanwhile.
//!
//! `waiters/model.rs` shows it under loom.

use std::sync::Arc;

use ripstop_engine::id::{CounterId, CqId};
use ripstop_os::EventFd;

/// What wakes one sleeper.
pub(crate) trait Doorbell: Clone {
    /// From now on the sleeper does not sleep, until it drains the doorbell.
    fn ring(&self);

    /// Whether it is the same doorbell.
    fn is(&self, other: &Self) -> bool;
}

impl Doorbell for Arc<EventFd> {
    fn ring(&self) {
        // Of a descriptor that is open nothing fails.
        let _ = self.signal();
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// A queue has this many entries, or an error.
    Cq(CqId, usize),
    /// The counter and its values last seen: of successes, and of errors. Their sum may stay the
    /// same while both change, since a program sets them as it likes.
    Counter(CounterId, [u64; 2]),
    /// Operations wait for a counter, see [`crate::deferred::triggered`].
    Work,
}

#[derive(Debug)]
struct Waiter<B> {
    what: Waited,
    doorbell: B,
    /// The program may sleep on its descriptor, for as long as it likes.
    outside: bool,
}

/// Those of a domain; used under its lock.
#[derive(Debug)]
pub(crate) struct Waiters<B>(Vec<Waiter<B>>);

impl<B> Default for Waiters<B> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<B> Waiters<B> {
    /// Whether nobody has to be woken by a change.
    #[inline(always)]
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a program may sleep on a descriptor.
    pub(crate) fn any_outside(&self) -> bool {
        self.0.iter().any(|waiter| waiter.outside)
    }

    /// Whether operations wait for a counter.
    pub(crate) fn has_work(&self) -> bool {
        self.0.iter().any(|waiter| waiter.what == Waited::Work)
    }

    /// Those operations are gone.
    pub(crate) fn drop_work(&mut self) {
        self.0.retain(|waiter| waiter.what != Waited::Work);
    }
}

impl<B: Doorbell> Waiters<B> {
    /// From now on a change rings: to be called with nothing to report, by the sleeper.
    pub(crate) fn arm(&mut self, doorbell: &B, what: Waited) {
        self.disarm(doorbell);
        self.0.push(Waiter {
            what,
            doorbell: doorbell.clone(),
            outside: false,
        });
    }

    /// The sleeper of this doorbell has left; nobody else's is touched.
    pub(crate) fn disarm(&mut self, doorbell: &B) {
        self.0.retain(|waiter| !waiter.doorbell.is(doorbell));
    }

    /// The program may sleep on the descriptor of this doorbell, which is armed.
    pub(crate) fn go_outside(&mut self, doorbell: &B) {
        for waiter in &mut self.0 {
            waiter.outside |= waiter.doorbell.is(doorbell);
        }
    }

    /// Rings the doorbells of all whose wait `is_over`, each once until it is armed again. `None` says
    /// that nobody sleeps on this one, and it stays.
    pub(crate) fn wake(&mut self, mut is_over: impl FnMut(Waited) -> Option<bool>) {
        self.0.retain(|waiter| match is_over(waiter.what) {
            Some(true) => {
                waiter.doorbell.ring();
                false
            }
            Some(false) | None => true,
        });
    }
}

/// Calls from outside to those that wait for one object (`fi_cq_signal`), under a lock of their
/// own: a thread may call while another one holds the domain.
///
/// A call ends the wait of every thread that waits at that moment. One that no wait has ended by,
/// since nobody waited or what they waited for came first, ends the next one.
#[derive(Debug)]
pub(crate) struct Calls<B> {
    count: u64,
    left: bool,
    doorbells: Vec<B>,
}

impl<B> Default for Calls<B> {
    fn default() -> Self {
        Self {
            count: 0,
            left: false,
            doorbells: Vec::new(),
        }
    }
}

impl<B> Calls<B> {
    /// For [`Calls::hear`]; to be asked when a wait begins.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// Whether there was a call that ends a wait which began when there were `count`.
    pub(crate) const fn hear(&mut self, count: u64) -> bool {
        let left = self.take_left();
        left || self.count != count
    }

    /// Whether there was a call that has not ended a wait.
    pub(crate) const fn take_left(&mut self) -> bool {
        std::mem::replace(&mut self.left, false)
    }
}

impl<B: Doorbell> Calls<B> {
    /// Somebody calls.
    pub(crate) fn call(&mut self) {
        self.count = self.count.wrapping_add(1);
        self.left = true;
        for doorbell in &self.doorbells {
            doorbell.ring();
        }
    }

    /// The sleeper of this doorbell may sleep, after it has listened once more.
    pub(crate) fn enter(&mut self, doorbell: &B) {
        self.doorbells.push(doorbell.clone());
    }

    /// It has left.
    pub(crate) fn leave(&mut self, doorbell: &B) {
        self.doorbells.retain(|other| !other.is(doorbell));
    }
}

#[cfg(test)]
mod model;
