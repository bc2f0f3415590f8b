//! Builds that later jobs begin with, run beside the first jobs, which only compile.
//!
//! They optimise all crates of a program as one, which takes minutes of one processor. A build that fails here says
//! so in its log, and fails again in the job that needs it.

use std::fs::File;
use std::mem;
use std::path::Path;
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;

use crate::test::process::{self, Interrupt};

/// The longest that one may take.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Builds under way; dropping it waits for them.
pub(super) struct Ahead {
    threads: Vec<JoinHandle<()>>,
}

impl Ahead {
    /// Starts `builds` at once, with logs in the folder `logs`. An interrupt ends them.
    ///
    /// # Errors
    /// When a log cannot be written.
    pub(super) fn start(
        builds: Vec<Command>,
        logs: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Self> {
        let mut ahead = Self {
            threads: Vec::new(),
        };
        for (number, mut build) in builds.into_iter().enumerate() {
            let log = logs.join(format!("ahead-{number}.log"));
            let log = File::create(log).context("cannot write a log")?;
            let interrupt = interrupt.clone();
            ahead.threads.push(thread::spawn(move || {
                // What becomes of it is seen by the job that needs it.
                let _ = process::run(&mut build, &log, LIMIT, &interrupt);
            }));
        }
        Ok(ahead)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        for thread in mem::take(&mut self.threads) {
            let _ = thread.join();
        }
    }
}
