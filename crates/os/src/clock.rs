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

/// The same counter at its full width, for intervals of any length. [`Scale`] says how many
/// nanoseconds they are.
#[must_use]
#[inline(always)]
pub fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: as in `ticks`.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        now().as_nanos() as u64
    }
}

/// What [`counter`] counts, measured between a moment and a later one.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    start: u64,
    at: Duration,
}

impl Scale {
    /// Begins to measure.
    #[must_use]
    pub fn start() -> Self {
        let (start, at) = (counter(), now());
        Self { start, at }
    }

    /// The counter when it began, and the time.
    #[must_use]
    pub const fn origin(&self) -> (u64, Duration) {
        (self.start, self.at)
    }

    /// How many nanoseconds a step of the counter is by now. It is more precise the later it is asked.
    #[must_use]
    pub fn nanoseconds_a_step(&self) -> f64 {
        let steps = counter().wrapping_sub(self.start);
        let took = now().saturating_sub(self.at);
        if steps == 0 {
            return 1.0;
        }
        took.as_nanos() as f64 / steps as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_gives_the_length_of_an_interval() {
        let scale = Scale::start();
        let (before, start) = (counter(), now());
        std::thread::sleep(Duration::from_millis(50));
        let counted = (counter() - before) as f64 * scale.nanoseconds_a_step();
        let took = (now() - start).as_nanos() as f64;
        assert!(
            (counted / took - 1.0).abs() < 0.2 || took > 500e6,
            "{counted} {took}"
        );
    }

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
