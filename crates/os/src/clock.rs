//! Time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Monotonic time since an arbitrary start, the same for all threads and processes of the
/// machine (`CLOCK_MONOTONIC`, read without a system call).
#[must_use]
#[inline]
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_passes() {
        let before = now();
        std::thread::sleep(Duration::from_millis(5));
        assert!(now() >= before + Duration::from_millis(5));
    }
}
