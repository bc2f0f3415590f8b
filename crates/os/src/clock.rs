#![allow(unsafe_code)]
//! Time.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Monotonic time since an arbitrary start, the same for all threads and processes of the
/// machine (`CLOCK_MONOTONIC`, in general read without a system call).
#[must_use]
#[inline]
pub fn now() -> Duration {
    // The C library's, not `rustix`'s: that one reads the vDSO's tables itself and crashes
    // under valgrind, which hides them (rustix issue 1559).
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: `time` is writable and outlives the call.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, time.as_mut_ptr()) };
    if code != 0 {
        // Every kernel has this clock. Without it, time stands still.
        return Duration::ZERO;
    }
    // SAFETY: the call succeeded, so it has filled in both fields.
    let time = unsafe { time.assume_init() };
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
