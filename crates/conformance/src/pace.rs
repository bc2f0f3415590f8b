//! How long things may take on this machine.
//!
//! The cases state their bounds for a machine that has nothing else to do. Where others want the
//! processor too, `--slow` multiplies every bound, so that only what hangs exceeds it. A rule that
//! states a time would be empty then: its case runs after the others, alone, and its bounds are
//! doubled at most (`Case::timed`).

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

static FACTOR: AtomicU32 = AtomicU32::new(1);

/// Sets the factor on every bound, for the whole process.
pub fn slow_down(factor: u32) {
    FACTOR.store(factor.max(1), Ordering::Relaxed);
}

/// A bound, given for a machine that does nothing else, on this one.
#[must_use]
pub fn bound(idle: Duration) -> Duration {
    idle.saturating_mul(FACTOR.load(Ordering::Relaxed))
}

/// How long one step may take.
#[must_use]
pub fn soon() -> Duration {
    bound(Duration::from_secs(3))
}
