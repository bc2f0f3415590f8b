//! Counts of the ways that long payloads take: [`DomainCopies`] of a domain, which all of its connections
//! add to. [`Copies`] is what a program gets of them; `ripstop top` shows them by domain and by peer
//! (`stream/src/watch/show.rs`).

use std::sync::atomic::{AtomicU64, Ordering};

use ripstop_core::provider::{Copied, Copies};

/// [`Copied`] that threads may read at any time. Only the holder of the domain's lock adds, so that no addition is
/// lost, and none has to be atomic.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    payloads: AtomicU64,
    bytes: AtomicU64,
}

impl Tally {
    /// Called under the domain's lock.
    pub(crate) fn add(&self, more: Copied) {
        let Copied { payloads, bytes } = self.read() + more;
        self.payloads.store(payloads, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Copied {
        Copied {
            payloads: self.payloads.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }
}

/// What the connections of one domain have copied.
#[derive(Debug, Default)]
pub(crate) struct DomainCopies {
    /// Of connections that have ended; `State::copies` of the stream core adds those of the others.
    pub(crate) ring: Tally,
    /// The same.
    pub(crate) mapped: Tally,
    /// Of all connections.
    pub(crate) attach: Tally,
    /// See [`Copies::joint`].
    joint: AtomicU64,
    /// See [`Copies::attach_refused`].
    attach_refused: AtomicU64,
}

impl DomainCopies {
    /// One of the payloads by attach was copied by its sender, too.
    pub(crate) fn note_joint(&self) {
        self.joint.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection whose peer may not be reached by attach. Returns whether it is the first one of the
    /// domain, of which the log has a line.
    pub(crate) fn note_refusal(&self) -> bool {
        self.attach_refused.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// What was counted so far.
    pub(crate) fn read(&self) -> Copies {
        Copies {
            ring: self.ring.read(),
            attach: self.attach.read(),
            joint: self.joint.load(Ordering::Relaxed),
            mapped: self.mapped.read(),
            attach_refused: self.attach_refused.load(Ordering::Relaxed),
        }
    }
}
