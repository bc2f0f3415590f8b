//! What makes progress when a queue is read.

use core::time::Duration;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};

use crate::weak::WeakList;

/// Something that makes progress by being called, such as a domain, and may push events then.
pub trait ProgressSource: Send + Sync {
    /// Makes what progress is possible without blocking.
    fn progress(&self);

    /// A descriptor that is readable while a call of [`progress`](Self::progress) has
    /// something to do, always the same one. Without one, a waiting queue calls every
    /// millisecond.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Somebody will wait for the descriptor, who called [`progress`](Self::progress) before.
    /// Returns whether there is something to do, so that it must not. Otherwise
    /// [`after_wait`](Self::after_wait) follows, unless nobody knows for how long the program waits
    /// (`fi_trywait(3)`).
    fn before_wait(&self) -> bool {
        false
    }

    /// Somebody has waited for the descriptor.
    fn after_wait(&self) {}

    /// How long a queue may wait from now on without calling again, even though the
    /// descriptor stays unreadable; `None` for ever.
    fn wait_limit(&self) -> Option<Duration> {
        None
    }
}

/// How often sources without a descriptor are called by a waiting queue.
const WITHOUT_DESCRIPTOR: Duration = Duration::from_millis(1);

/// Sources that a queue does not keep alive.
pub(super) type Sources = WeakList<dyn ProgressSource>;

impl Sources {
    /// Asks all sources whether somebody may wait. Returns those that were asked, to be told
    /// afterwards, or none where one has something to do.
    pub(super) fn before_wait(&self) -> Option<Vec<Weak<dyn ProgressSource>>> {
        let mut asked = Vec::new();
        let mut next = 0;
        while let Some(source) = self.at(&mut next) {
            if source.before_wait() {
                Self::after_wait(asked);
                return None;
            }
            asked.push(Arc::downgrade(&source));
        }
        Some(asked)
    }

    /// Tells those that [`Sources::before_wait`] has asked.
    pub(super) fn after_wait(asked: Vec<Weak<dyn ProgressSource>>) {
        for source in asked.iter().filter_map(Weak::upgrade) {
            source.after_wait();
        }
    }

    /// The longest wait that all sources allow.
    pub(super) fn wait_limit(&self) -> Option<Duration> {
        let mut limit: Option<Duration> = None;
        self.each(|source| {
            let own = source.wait_limit();
            let slice = source.wait_fd().is_none().then_some(WITHOUT_DESCRIPTOR);
            limit = [limit, own, slice].into_iter().flatten().min();
        });
        limit
    }
}
