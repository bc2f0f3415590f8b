//! What is to be done once the lock of a table is free: wakers to call and to drop.

use std::task::Waker;

/// What must not happen under the lock: calling wakers, and dropping them (the last owner of
/// a task may be its waker, and the task may own operations of this table).
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Later {
    wake: Vec<Waker>,
    waste: Vec<Waker>,
}

impl Later {
    pub(crate) fn wake(&mut self, waker: impl IntoIterator<Item = Waker>) {
        self.wake.extend(waker);
    }

    /// Whether a task is woken.
    pub(crate) const fn wakes(&self) -> bool {
        !self.wake.is_empty()
    }

    pub(crate) fn drop(&mut self, waker: impl IntoIterator<Item = Waker>) {
        self.waste.extend(waker);
    }

    /// Does it, without the lock.
    pub(crate) fn run(self) {
        self.wake.into_iter().for_each(Waker::wake);
    }
}
