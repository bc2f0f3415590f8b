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

/// A counter that goes on evenly, by 1 to 5 a nanosecond, and wraps; that of another processor may
/// differ. It takes a few instructions, and tells a moment from a while where that decides nothing
/// but what is worth it.
#[must_use]
#[inline(always)]
pub fn ticks() -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: the instruction only reads the counter. The C library of this target needs
        // processors that have it, and programs may use it unless they ask the kernel otherwise.
        let ticks = unsafe { core::arch::x86_64::_rdtsc() };
        ticks as u32
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        now().as_nanos() as u32
    }
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

    #[test]
    fn ticks_are_between_one_and_five_a_nanosecond() {
        let (before, start) = (ticks(), now());
        std::thread::sleep(Duration::from_millis(50));
        let (count, took) = (ticks().wrapping_sub(before), now() - start);
        let each = f64::from(count) / took.as_nanos() as f64;
        assert!(
            (0.9..5.5).contains(&each) || took > Duration::from_millis(500),
            "{each}"
        );
    }
}
