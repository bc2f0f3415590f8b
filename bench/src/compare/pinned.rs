//! Programs that were made elsewhere, on a core of their own, which end with this one.

use std::io::Read as _;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

/// A command whose program runs on a core, if one is given, and is killed when this program ends,
/// however that ends: some would poll for ever. Its program and arguments are appended to it.
pub(super) fn pinned(core: Option<usize>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(core) = core {
        command.args(["taskset", "-c", &core.to_string()]);
    }
    command
}

/// A program that is stopped when this is dropped.
pub(super) struct Ended(pub(super) Child);

impl Ended {
    /// Waits until it ends: what it has written to its standard output, if that is a pipe.
    ///
    /// # Errors
    /// When it does not end in this time.
    pub(super) fn output(&mut self, patience: Duration) -> Result<String> {
        let since = Instant::now();
        while self.0.try_wait()?.is_none() {
            ensure!(
                since.elapsed() < patience,
                "no end after {} s",
                patience.as_secs()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut text = String::new();
        if let Some(mut out) = self.0.stdout.take() {
            out.read_to_string(&mut text)?;
        }
        Ok(text)
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
