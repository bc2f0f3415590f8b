//! How long a direct access waits until the peer has applied what was sent before: it must not overtake that.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Connection;

/// Polls until the peer has applied all earlier operations, before a direct access to its memory: this
/// many, and one more for each [`BYTES_PER_APPLIED_POLL`] of the access, which the ring would copy twice.
const APPLIED_POLLS: u32 = 256;
const BYTES_PER_APPLIED_POLL: u64 = 1024;

/// Direct accesses that do not wait, at most, after waits that timed out.
const MAX_SKIPPED_WAITS: u32 = 255;

/// Decides whether a direct access waits until the peer has applied earlier operations: after a wait
/// that timed out, the next 1, 3, ... [`MAX_SKIPPED_WAITS`] accesses do not.
#[derive(Debug, Default)]
pub(super) struct AppliedBackoff {
    /// Accesses that will not wait.
    skips_left: AtomicU32,
    /// The value that `skips_left` started from.
    skips: AtomicU32,
}

impl AppliedBackoff {
    /// Polls `is_done` up to `polls` times, unless this access is to skip the wait. Returns what it said.
    #[cold]
    #[inline(never)]
    fn wait(&self, polls: u32, is_done: impl Fn() -> bool) -> bool {
        let skips_left = self.skips_left.load(Ordering::Relaxed);
        if skips_left > 0 {
            self.skips_left.store(skips_left - 1, Ordering::Relaxed);
            return false;
        }
        for _ in 0..polls {
            if is_done() {
                self.skips.store(0, Ordering::Relaxed);
                return true;
            }
            std::hint::spin_loop();
        }
        let skips = (2 * self.skips.load(Ordering::Relaxed) + 1).min(MAX_SKIPPED_WAITS);
        self.skips.store(skips, Ordering::Relaxed);
        self.skips_left.store(skips, Ordering::Relaxed);
        false
    }
}

impl Connection {
    /// Whether the peer has applied all that was sent; waits a moment for it, before an access of `len` bytes.
    #[inline]
    pub(super) fn wait_applied(&self, len: u64) -> bool {
        let polls = APPLIED_POLLS.saturating_add((len / BYTES_PER_APPLIED_POLL) as u32);
        let is_done = || self.rings.writer.all_applied();
        is_done() || self.applied_backoff.wait(polls, is_done)
    }
}
