//! Programs that the distribution runs.

use std::process::Command;

use anyhow::{Context as _, ensure};

/// Runs a program to its end; returns what it printed. `missing` says what to do where it is not installed.
///
/// # Errors
/// When it cannot be run, and when it fails, with what it said.
pub(super) fn output(command: &mut Command, missing: &str) -> anyhow::Result<Vec<u8>> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}: {missing}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed: {said}");
    Ok(output.stdout)
}
