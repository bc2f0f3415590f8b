//! Running callgrind and reading what it writes.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::device::Device;
use crate::operation::Operation;

/// The first of two runs; the second has twice as many.
const MESSAGES: u32 = 2000;

/// What one message costs, or one read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Instructions outside this program.
    pub(crate) instructions: f64,
    /// System calls outside this program, but for the time.
    pub(crate) calls: f64,
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
struct Runs(Vec<Count>);

/// What one run counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Count {
    instructions: u64,
    calls: u64,
    /// Messages that were late.
    late: u32,
}

impl Runs {
    fn add(&mut self, run: Count) {
        self.0.push(run);
        self.0.sort_unstable();
    }

    /// What was counted where there were the fewest instructions.
    fn least(&self) -> Count {
        self.0.first().copied().unwrap_or_default()
    }

    /// Whether the least was counted twice, or often enough without that.
    fn is_sure(&self) -> bool {
        let twice = |(least, next): (u64, u64)| (next - least) as f64 <= least as f64 * SAME;
        let least = self.least().instructions;
        let next = self.0.get(1).map(|next| (least, next.instructions));
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
pub(crate) fn measure(
    lib: &Path,
    provider: &str,
    device: Option<&Device>,
    operation: Operation,
) -> Result<Cost> {
    let dir = tempfile::tempdir()?;
    let subject = Subject {
        lib,
        provider,
        device,
    };
    let sure = |messages| -> Result<Count> {
        let mut runs = Runs::default();
        while !runs.is_sure() {
            let out = dir.path().join("out");
            runs.add(run(&subject, operation, messages, &out)?);
        }
        Ok(runs.least())
    };
    let (once, twice) = (sure(MESSAGES)?, sure(2 * MESSAGES)?);
    let each = |once: u64, twice: u64| (twice as f64 - once as f64) / f64::from(MESSAGES);
    Ok(Cost {
        instructions: each(once.instructions, twice.instructions),
        calls: each(once.calls, twice.calls),
        late: f64::from(once.late + twice.late) / f64::from(3 * MESSAGES),
    })
}

/// What is counted.
struct Subject<'a> {
    lib: &'a Path,
    provider: &'a str,
    /// What the provider uses in place of one of the machine's.
    device: Option<&'a Device>,
}

/// What is counted outside this program and its device, and how many messages were late.
fn run(subject: &Subject<'_>, operation: Operation, messages: u32, out: &Path) -> Result<Count> {
    let program = std::env::current_exe()?;
    let mut command = Command::new("valgrind");
    if let Some(device) = subject.device {
        command.envs(device.environment());
    }
    // What a domain does once a second is not the cost of a message, which takes a hundred times as long here.
    command.envs([("FI_LOG_STALL", "0"), ("FI_STATUS_PAGE", "0")]);
    command
        .args([
            "--quiet",
            "--tool=callgrind",
            "--compress-pos=no",
            "--compress-strings=no",
            "--collect-systime=yes",
        ])
        .arg(format!("--toggle-collect={}", operation.function()))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(&program)
        .args([
            "client",
            "--provider",
            subject.provider,
            "--operation",
            operation.key(),
        ])
        .args(["--messages", &messages.to_string(), "--lib"])
        .arg(subject.lib);
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
    let mut own = vec![program.to_string_lossy()];
    own.extend(subject.device.map(|device| device.object()));
    let (instructions, calls) = counted(&text, &own);
    ensure!(
        instructions > 0,
        "callgrind counted nothing inside {}",
        operation.function()
    );
    Ok(Count {
        instructions,
        calls,
        late,
    })
}

/// A function whose system calls are valgrind's doing, which hides from programs where the kernel
/// lets them read the time.
const TIME: &str = "clock_gettime";

/// Instructions and system calls, without those of the files `own`.
///
/// The format is that of `callgrind` without compression: `ob=` and `fn=` lines name the file and the
/// function of the cost lines that follow; the cost line after a `calls=` line is that of the callee
/// and counted there. Costs that are 0 are left out at the end of a line.
fn counted(text: &str, own: &[impl AsRef<str>]) -> (u64, u64) {
    let (mut instructions, mut calls) = (0, 0);
    let (mut object, mut function, mut of_callee) = ("", "", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("ob=") {
            object = name;
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            of_callee = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit())
            && !std::mem::take(&mut of_callee)
            && own.iter().all(|own| own.as_ref() != object)
        {
            let mut costs = line.split(' ').skip(1).map_while(|cost| cost.parse().ok());
            instructions += costs.next().unwrap_or(0_u64);
            if !function.starts_with(TIME) {
                calls += costs.next().unwrap_or(0_u64);
            }
        }
    }
    (instructions, calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(instructions: u64) -> Count {
        Count {
            instructions,
            calls: instructions / 100,
            late: 0,
        }
    }

    #[test]
    fn the_least_counts_once_it_was_counted_twice() {
        let mut runs = Runs::default();
        for (count, sure) in [
            (410_000, false),
            (106_000, false),
            (409_000, false),
            (106_010, true),
        ] {
            runs.add(run(count));
            assert_eq!(runs.is_sure(), sure, "{count}");
        }
        assert_eq!(runs.least(), run(106_000));
        let mut runs = Runs::default();
        (1..RUNS as u64).for_each(|count| runs.add(run(count * 1000)));
        assert!(!runs.is_sure());
        runs.add(run(99_999));
        assert_eq!((runs.is_sure(), runs.least()), (true, run(1000)));
    }

    #[test]
    fn costs_belong_to_the_file_they_lie_in() {
        let text = "events: Ir sysCount sysTime\n\nob=/bin/bench\nfl=a.rs\nfn=client\n10 5 1 7\n\
                    cob=/lib/x.so\ncfi=b.c\ncfn=send\ncalls=3 20\n11 900 4\n12 1\n\n\
                    ob=/lib/x.so\nfl=b.c\nfn=send\n20 300\n+1 2\n21 600 2 9\ncfn=copy\n\
                    calls=1 0\n22 7\n\nfn=copy\n0 7 3\n0 0 1 1\n\nob=/lib/c.so\n\
                    fn=clock_gettime@@X\n0 4 20 1\ntotals: 919\n";
        assert_eq!(counted(text, &["/bin/bench"]), (907 + 4, 6));
        assert_eq!(counted(text, &["/lib/x.so"]).0, 6 + 4);
        assert_eq!(counted(text, &["/lib/x.so", "/bin/bench"]), (4, 0));
    }
}
