//! The calling thread.

use nix::sys::resource::{UsageWho, getrusage};

/// How often the calling thread has lost its processor to another one while it could have run
/// on; `None` where the system does not say (`getrusage(2)`, `RUSAGE_THREAD`). A call to
/// [`std::thread::yield_now`] that lets another thread run counts, one that finds none does not.
#[must_use]
pub fn switches() -> Option<u64> {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).ok()?;
    u64::try_from(usage.involuntary_context_switches()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn threads_that_have_to_share_processors_lose_them() {
        let stop = AtomicBool::new(false);
        let before = switches().unwrap();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::thread::yield_now();
                    }
                });
            }
            // Ends, as one of the processors has two of the threads.
            while switches().unwrap() == before {
                std::thread::yield_now();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
