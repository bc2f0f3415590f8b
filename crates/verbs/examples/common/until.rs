//! Waiting with a bound.

use std::time::{Duration, Instant};

/// Repeats until there is something, for no longer than anything here takes.
pub(crate) fn until<T>(patience: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < patience, "no {what} in {patience:?}");
    }
}
