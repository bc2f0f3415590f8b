//! Running callgrind and reading what it writes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::operation::Operation;

/// The first of two runs; the second has twice as many.
const MESSAGES: u32 = 2000;

/// What one message costs, or one read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Instructions outside this program.
    pub(crate) instructions: f64,
    /// The share of messages that the first read did not find.
    pub(crate) late: f64,
}

/// Runs after which the least count is taken as it is.
const RUNS: usize = 30;

/// Two counts of the same are no further apart, as a part of them: addresses differ from run to run,
/// and with them a few branches of copies and allocations.
const SAME: f64 = 0.005;

/// What several runs of the same counted.
///
/// A run may count more than it would alone: a read of an empty queue that finds others waiting for
/// the processor lets them run each time, and a message may come late. So the least counts, once
/// it was counted twice.
#[derive(Debug, Default)]
struct Runs(Vec<(u64, u32)>);

impl Runs {
    fn add(&mut self, run: (u64, u32)) {
        self.0.push(run);
        self.0.sort_unstable();
    }

    /// The least, and how many messages were late then.
    fn least(&self) -> (u64, u32) {
        self.0.first().copied().unwrap_or_default()
    }

    /// Whether the least was counted twice, or often enough without that.
    fn is_sure(&self) -> bool {
        let twice = |(least, next): (u64, u64)| (next - least) as f64 <= least as f64 * SAME;
        let next = self.0.get(1).map(|next| (self.least().0, next.0));
        next.is_some_and(twice) || self.0.len() >= RUNS
    }
}

/// Whether valgrind is installed.
pub(crate) fn is_there() -> bool {
    let mut version = Command::new("valgrind");
    version.arg("--version").stdout(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Counts one operation.
///
/// # Errors
/// When valgrind or the program under it fails.
pub(crate) fn measure(lib: &Path, provider: &str, operation: Operation) -> Result<Cost> {
    let dir = tempfile::tempdir()?;
    let sure = |messages| -> Result<(u64, u32)> {
        let mut runs = Runs::default();
        while !runs.is_sure() {
            runs.add(run(
                lib,
                provider,
                operation,
                messages,
                &dir.path().join("out"),
            )?);
        }
        Ok(runs.least())
    };
    let (once, late_once) = sure(MESSAGES)?;
    let (twice, late_twice) = sure(2 * MESSAGES)?;
    Ok(Cost {
        instructions: (twice as f64 - once as f64) / f64::from(MESSAGES),
        late: f64::from(late_once + late_twice) / f64::from(3 * MESSAGES),
    })
}

/// Instructions outside this program, and how many messages were late.
fn run(
    lib: &Path,
    provider: &str,
    operation: Operation,
    messages: u32,
    out: &Path,
) -> Result<(u64, u32)> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("valgrind");
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--compress-pos=no",
            "--compress-strings=no",
        ])
        .arg(format!("--toggle-collect={}", operation.function()))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(&program)
        .args([
            "client",
            "--provider",
            provider,
            "--operation",
            operation.key(),
        ])
        .args(["--messages", &messages.to_string(), "--lib"])
        .arg(lib);
    let output = command.output().context("cannot run valgrind")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{}: {}",
        operation.key(),
        errors.trim()
    );
    let late = String::from_utf8_lossy(&output.stdout).trim().parse();
    let late = late.context("the client did not say how many messages were late")?;
    let text = std::fs::read_to_string(out).context("callgrind wrote no file")?;
    let by_object = instructions_by_object(&text);
    let own = program.to_string_lossy();
    let others = by_object.iter().filter(|(object, _)| **object != own);
    let sum = others.map(|(_, instructions)| instructions).sum();
    ensure!(
        sum > 0,
        "callgrind counted nothing inside {}",
        operation.function()
    );
    Ok((sum, late))
}

/// The instructions of each file of code, without those of what it calls.
///
/// The format is that of `callgrind` without compression: `ob=` lines name the file of the
/// cost lines that follow; the cost line after a `calls=` line is that of the callee and counted
/// there.
fn instructions_by_object(text: &str) -> BTreeMap<&str, u64> {
    let mut sums = BTreeMap::new();
    let (mut object, mut of_callee) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name;
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit()) {
            let cost = line
                .split(' ')
                .nth(1)
                .and_then(|cost| cost.parse::<u64>().ok());
            if !std::mem::take(&mut of_callee) {
                *sums.entry(object).or_default() += cost.unwrap_or(0);
            }
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_counts_once_it_was_counted_twice() {
        let mut runs = Runs::default();
        for (count, sure) in [
            (410_000, false),
            (106_000, false),
            (409_000, false),
            (106_010, true),
        ] {
            runs.add((count, 0));
            assert_eq!(runs.is_sure(), sure, "{count}");
        }
        assert_eq!(runs.least(), (106_000, 0));
        let mut runs = Runs::default();
        (1..RUNS as u64).for_each(|run| runs.add((run * 1000, 0)));
        assert!(!runs.is_sure());
        runs.add((99_999, 0));
        assert_eq!((runs.is_sure(), runs.least().0), (true, 1000));
    }

    #[test]
    fn costs_belong_to_the_file_they_lie_in() {
        let text = "events: Ir\n\nob=/bin/bench\nfl=a.rs\nfn=client\n10 5\ncob=/lib/x.so\n\
                    cfi=b.c\ncfn=send\ncalls=3 20\n11 900\n12 1\n\nob=/lib/x.so\nfl=b.c\nfn=send\n\
                    20 300\n+1 2\n21 600\ncfn=copy\ncalls=1 0\n22 7\n\nfn=copy\n0 7\ntotals: 913\n";
        let sums = instructions_by_object(text);
        assert_eq!(sums.get("/bin/bench"), Some(&6));
        assert_eq!(sums.get("/lib/x.so"), Some(&907));
    }
}
