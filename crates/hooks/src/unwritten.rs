//! What a hook has kept of open objects until it is written: when they are closed, and when the
//! process ends with them open.

use std::fs::{File, OpenOptions};
use std::io;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use ripstop_core::fi_warn;
use ripstop_core::log::Subsys;

/// All that a hook has not yet written for the last time.
#[derive(Debug)]
pub(crate) struct Unwritten<T> {
    all: Mutex<Vec<Arc<T>>>,
    /// The process that keeps it. A forked child writes nothing of its parent's.
    process: OnceLock<u32>,
}

impl<T> Unwritten<T> {
    pub(crate) const fn new() -> Self {
        Self {
            all: Mutex::new(Vec::new()),
            process: OnceLock::new(),
        }
    }

    /// Keeps this.
    pub(crate) fn add(&self, one: T) -> Arc<T> {
        self.process.get_or_init(std::process::id);
        let one = Arc::new(one);
        self.all.lock().push(Arc::clone(&one));
        one
    }

    /// What is kept now.
    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        self.all.lock().clone()
    }

    /// What of it is written now, for the last time.
    pub(crate) fn take(&self, is_over: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
        let mut all = self.all.lock();
        let (over, rest) = all.drain(..).partition(|one| is_over(one));
        *all = rest;
        over
    }

    /// The process ends: what is left to write.
    pub(crate) fn take_at_end(&self) -> Vec<Arc<T>> {
        if self.process.get() != Some(&std::process::id()) {
            return Vec::new();
        }
        // A thread that was ended in the middle may hold the lock.
        let all = self.all.try_lock();
        all.map_or_else(Vec::new, |mut all| std::mem::take(&mut *all))
    }
}

/// Writes behind what the file at this path has, for the hook of this name, whose variable gave the path.
/// Whether it was written; the log says why not.
pub(crate) fn append(hook: &str, path: &str, write: impl FnOnce(File) -> io::Result<()>) -> bool {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    let result = opened.and_then(write);
    if let Err(error) = &result {
        fi_warn!(
            "core",
            Subsys::Core,
            "the hook {hook} cannot write to {path} (FI_{}_FILE): {error}",
            hook.to_ascii_uppercase()
        );
    }
    result.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_written_once() {
        let unwritten = Unwritten::new();
        for number in 0..4 {
            unwritten.add(number);
        }
        let numbers = |all: Vec<Arc<u32>>| all.iter().map(|one| **one).collect::<Vec<u32>>();
        assert_eq!(numbers(unwritten.all()), [0, 1, 2, 3]);
        assert_eq!(numbers(unwritten.take(|one| one % 2 == 0)), [0, 2]);
        assert_eq!(numbers(unwritten.take_at_end()), [1, 3]);
        assert_eq!(numbers(unwritten.take_at_end()), []);
    }
}
