//! `cargo xtask test`: every job, a line for each, and the counts at the end.
//!
//! A script that takes part prints `PASS name`, `FAIL name` and `SKIP name: reason` lines, or a line of counts
//! like the last one here, and fails with its exit status. It finds the library under `$RIPSTOP_DIST`.
//!
//! A test of Rust's harness that finds that it cannot be made here prints `SKIP: reason` and returns. One that only
//! another test runs, as a process of its own, has a name that begins with [`jobs::CHILD`].

mod ahead;
mod floors;
mod jobs;
pub(crate) mod process;
pub(crate) mod tally;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::env;
use std::fs::{self, File};
use std::io::Write as _;
use std::iter;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use indicatif::{MultiProgress, ProgressBar};
use serde_json::json;

use crate::dist;
use crate::workspace::Workspace;
use ahead::Ahead;
use floors::Floors;
use jobs::{Beside, JOBS, Job, Plan};
use process::{End, Interrupt};
use tally::{Skip, Tally, Told};

/// How much of a failed job's log is shown.
const TAIL: usize = 40;

/// How many remarks of a job are shown at the end.
const REMARKS: usize = 20;

/// How many lines of a failed job are said once more at the end, where they are found.
const FAILURES: usize = 20;

/// How much of a line is shown at the end, in characters.
const WIDTH: usize = 240;

/// How many jobs run beside each other, of those that may: each has programs of two processes and more.
const LANES: usize = 2;

/// Why a lock is never poisoned, nor a thread lost: they end only with the whole tool.
const WHOLE: &str = "a job panicked";

/// What to run and how to tell it.
#[derive(Args)]
pub(crate) struct Options {
    /// Run this job only; may be given several times. `lab-full` runs only so.
    #[arg(long, value_name = "JOB", value_parser = job_name)]
    only: Vec<String>,
    /// List the jobs and run nothing.
    #[arg(long)]
    list: bool,
    /// Print at the end every reason why something was skipped, and how often.
    #[arg(long)]
    why_skipped: bool,
    /// Write how many have passed to xtask/floors.toml, where that is more.
    #[arg(long)]
    raise_floors: bool,
    /// Print one JSON document on standard output; the lines for people go to standard error.
    #[arg(long)]
    json: bool,
}

/// What became of a job.
struct Outcome {
    job: &'static Job,
    tally: Tally,
    /// What went wrong that no program has told.
    remarks: Vec<String>,
    /// How many were skipped, by reason.
    skips: BTreeMap<String, u64>,
    /// Tests that the harness was told to leave to others.
    children: u64,
    /// What repeats the values tried at random.
    seeds: String,
    /// What went wrong, in its own words.
    failures: Vec<String>,
    took: Duration,
    log: PathBuf,
}

fn job_name(name: &str) -> Result<String, String> {
    let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
    let known = names.contains(&name);
    known
        .then(|| name.to_owned())
        .ok_or_else(|| format!("the jobs are {}", names.join(", ")))
}

/// Runs the jobs; `true` when none failed.
pub(crate) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<bool> {
    let wanted = |job: &&Job| match options.only.as_slice() {
        [] => options.list || !jobs::BY_NAME.contains(&job.name),
        only => only.iter().any(|name| name == job.name),
    };
    let jobs: Vec<&'static Job> = JOBS.iter().filter(wanted).collect();
    if options.list {
        for job in jobs {
            println!("{:<14} {}; skipped: {}", job.name, job.about, job.skipped);
        }
        return Ok(true);
    }
    let names: Vec<&str> = JOBS.iter().map(|job| job.name).collect();
    let floors = Mutex::new(Floors::load(ws, &names)?);
    let runner = Runner {
        ws,
        raises: options.raise_floors,
        spinners: MultiProgress::new(),
        is_ci: is_ci(env::var("CI").ok().as_deref()),
        logs: ws.target.join("test-logs"),
        interrupt: Interrupt::listen()?,
        json: options.json,
    };
    fs::create_dir_all(&runner.logs)?;
    // One job alone builds what it needs itself.
    let mut ahead = match options.only.is_empty() {
        true => Some(Ahead::start(
            jobs::long_builds(ws)?,
            &runner.logs,
            &runner.interrupt,
        )?),
        false => None,
    };
    let mut outcomes: Vec<Outcome> = Vec::new();
    for group in jobs.chunk_by(|a, b| (a.beside, b.beside) == (Beside::Tests, Beside::Tests)) {
        if group.iter().any(|job| job.beside != Beside::Builds) {
            drop(ahead.take());
        }
        let done = outcomes.len();
        let places = (done + 1..).map(|number| format!("[{number:>2}/{}]", jobs.len()));
        let numbered = group.iter().copied().zip(places).collect();
        outcomes.extend(runner.run_group(numbered, &floors)?);
    }
    if options.raise_floors {
        floors.into_inner().expect(WHOLE).save()?;
    }
    outcomes.sort_by_key(|outcome| jobs.iter().position(|job| job.name == outcome.job.name));
    Ok(runner.summarise(&outcomes, options.why_skipped))
}

/// Whether the environment variable `CI` has this meaning: all that the checks need is there.
fn is_ci(value: Option<&str>) -> bool {
    matches!(value, Some("true" | "1"))
}

/// What every job needs to run.
struct Runner<'a> {
    ws: &'a Workspace,
    logs: PathBuf,
    interrupt: Interrupt,
    is_ci: bool,
    json: bool,
    /// Whether what has passed becomes the floor.
    raises: bool,
    /// A spinner for each job that runs.
    spinners: MultiProgress,
}

impl Runner<'_> {
    /// A line for people.
    fn say(&self, line: &str) {
        self.spinners.suspend(|| match self.json {
            true => eprintln!("{line}"),
            false => println!("{line}"),
        });
    }

    /// Runs `jobs`, each with its place among all, in their order and at most [`LANES`] at a time.
    fn run_group(
        &self,
        jobs: Vec<(&'static Job, String)>,
        floors: &Mutex<Floors>,
    ) -> anyhow::Result<Vec<Outcome>> {
        let lanes = jobs.len().min(LANES);
        let jobs = Mutex::new(jobs.into_iter());
        let next = || jobs.lock().expect(WHOLE).next();
        let lane = || -> anyhow::Result<Vec<Outcome>> {
            iter::from_fn(next)
                .map(|(job, place)| self.run(job, &place, floors))
                .collect()
        };
        let mut outcomes = Vec::new();
        for result in thread::scope(|scope| {
            let threads: Vec<_> = (0..lanes).map(|_| scope.spawn(lane)).collect();
            let join = |thread: ScopedJoinHandle<'_, _>| thread.join().expect(WHOLE);
            threads.into_iter().map(join).collect::<Vec<_>>()
        }) {
            outcomes.extend(result?);
        }
        Ok(outcomes)
    }

    fn run(
        &self,
        job: &'static Job,
        place: &str,
        floors: &Mutex<Floors>,
    ) -> anyhow::Result<Outcome> {
        let spinner = ProgressBar::new_spinner().with_message(format!("{place} {} ...", job.name));
        let spinner = self.spinners.add(spinner);
        spinner.enable_steady_tick(Duration::from_millis(200));
        let started = Instant::now();
        let log = self.logs.join(format!("{}.log", job.name));
        let mut outcome = Outcome {
            job,
            tally: Tally::default(),
            remarks: Vec::new(),
            skips: BTreeMap::new(),
            children: 0,
            seeds: String::new(),
            failures: Vec::new(),
            took: Duration::ZERO,
            log,
        };
        let file = File::create(&outcome.log).context("cannot write a log")?;
        match job.plan(self.ws) {
            Plan::Run(steps) => {
                for step in steps {
                    self.run_step(step, &file, &mut outcome)?;
                }
            }
            Plan::Skip(reason) => {
                outcome.tally.skipped = 1;
                outcome.skips.insert(reason, 1);
            }
            Plan::Broken(reason) => {
                outcome.fail(format!("FAIL {reason}"));
            }
        }
        if outcome.tally == Tally::default() {
            outcome.fail("FAIL the job has nothing to run".to_owned());
        }
        let (tally, children) = (outcome.tally, outcome.children);
        let mut floors = floors.lock().expect(WHOLE);
        if self.raises {
            floors.raise(job.name, tally, children);
        }
        // What failed is missing from the count, and said already.
        let complaint = floors.complaint(job.name, tally, children, self.is_ci);
        drop(floors);
        if let Some(complaint) = complaint.filter(|_| tally.failed == 0) {
            outcome.fail(complaint);
        }
        outcome.took = started.elapsed();
        spinner.finish_and_clear();
        self.report(place, &outcome)?;
        Ok(outcome)
    }

    fn run_step(
        &self,
        mut step: jobs::Step,
        file: &File,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let seeds: Vec<String> = step
            .seeds
            .iter()
            .map(|(name, seed)| format!("{name}={}", seed.to_string_lossy()))
            .collect();
        if !seeds.is_empty() {
            outcome.seeds = seeds.join(" ");
            let mut log = file;
            writeln!(log, "seeds: {}", outcome.seeds)?;
        }
        let before = fs::metadata(&outcome.log)?.len() as usize;
        let command = step
            .command
            .current_dir(&self.ws.root)
            .env("RIPSTOP_DIST", dist::prefix(self.ws))
            .env("CARGO_TERM_COLOR", "never");
        if self.is_ci {
            // A fresh machine builds each crate once: what incremental builds keep fills its disk.
            command.env("CARGO_INCREMENTAL", "0");
        }
        let limit = outcome.job.limit();
        let end = process::run(command, file, limit, &self.interrupt)?;
        let output = fs::read(&outcome.log)?;
        let output = String::from_utf8_lossy(output.get(before..).unwrap_or_default()).into_owned();
        match &end {
            End::Exit { .. } => {}
            End::Unstarted(why) => outcome.remarks.push(why.clone()),
            End::Timeout => {
                let program = step.command.get_program().display();
                let limit = limit.as_secs();
                outcome
                    .remarks
                    .push(format!("{program} had not ended after {limit} s"));
            }
        }
        let told = Told::of(step.voice, end == End::Exit { success: true }, &output);
        if told.is_silent {
            let program = step.command.get_program().display();
            outcome
                .failures
                .push(format!("FAIL {program} ended well, and made no check"));
        } else if told.tally.failed > 0 {
            let lines = tally::failures(&output);
            outcome
                .failures
                .extend(lines.into_iter().map(str::to_owned));
        }
        if told.tally.failed > 0 && !seeds.is_empty() {
            outcome
                .failures
                .push(format!("try the same again with {}", outcome.seeds));
        }
        outcome.tally += told.tally;
        outcome.children += told.filtered;
        for Skip { reason, count } in told.skips {
            *outcome.skips.entry(reason).or_default() += count;
        }
        Ok(())
    }

    /// The line of a finished job; for a failed one also the end of its log.
    fn report(&self, place: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let Outcome {
            job,
            tally,
            skips,
            took,
            log,
            ..
        } = outcome;
        let seconds = took.as_secs_f64();
        let reason = skips.keys().next();
        let reason = reason.filter(|_| tally.passed + tally.failed == 0);
        let note = reason.map_or_else(|| tally.to_string(), Clone::clone);
        let seeds = match outcome.seeds.as_str() {
            "" => String::new(),
            seeds => format!(", {seeds}"),
        };
        let mut lines = vec![format!(
            "{place} {:<14} {:<8} {note} ({seconds:.1} s{seeds})",
            job.name,
            outcome.word()
        )];
        if tally.failed > 0 {
            lines.extend(tail(log)?.iter().map(|line| format!("    {line}")));
            lines.push(format!("    whole log: {}", log.display()));
        }
        // In one piece: another job may report at the same time.
        self.say(&lines.join("\n"));
        Ok(())
    }

    /// The first `most` of `lines`, and how many there are beyond.
    fn list(&self, name: &str, lines: &[String], most: usize) {
        for line in lines.iter().take(most) {
            self.say(&format!("{name}: {}", start_of(line)));
        }
        if let Some(more) = lines.len().checked_sub(most).filter(|more| *more > 0) {
            self.say(&format!("{name}: and {more} more, in its log"));
        }
    }

    /// What was skipped and why, the reasons all of them where that was asked for; what failed, and the last line.
    fn summarise(&self, outcomes: &[Outcome], why_skipped: bool) -> bool {
        let mut total = Tally::default();
        for Outcome {
            job,
            tally,
            remarks,
            skips,
            ..
        } in outcomes
        {
            total += *tally;
            self.list(job.name, remarks, REMARKS);
            let most = if why_skipped { usize::MAX } else { REMARKS };
            self.list(job.name, &by_count(skips), most);
        }
        for Outcome { job, failures, .. } in outcomes {
            self.list(&format!("FAILED {}", job.name), failures, FAILURES);
        }
        if self.json {
            println!("{}", as_json(outcomes, total));
        }
        self.say(&total.to_string());
        total.failed == 0
    }
}

/// The start of `line`, as much as is shown.
fn start_of(line: &str) -> String {
    match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line.to_owned(),
    }
}

/// A line for each reason, those with most skips first.
fn by_count(skips: &BTreeMap<String, u64>) -> Vec<String> {
    let mut reasons: Vec<_> = skips.iter().collect();
    reasons.sort_by_key(|(_, count)| Reverse(**count));
    let line = |(reason, count): (&String, &u64)| format!("{count} skipped: {reason}");
    reasons.into_iter().map(line).collect()
}

impl Outcome {
    /// One more check that failed.
    fn fail(&mut self, why: String) {
        self.tally.failed += 1;
        self.failures.push(why);
    }

    fn word(&self) -> &'static str {
        match self.tally {
            Tally { failed: 1.., .. } => "FAILED",
            Tally { passed: 0, .. } => "skipped",
            _ => "ok",
        }
    }
}

/// The last lines of a log.
fn tail(log: &Path) -> anyhow::Result<Vec<String>> {
    let bytes = fs::read(log)?;
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(TAIL);
    Ok(lines[from..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect())
}

fn as_json(outcomes: &[Outcome], total: Tally) -> serde_json::Value {
    let counts = |tally: Tally| (tally.passed, tally.failed, tally.skipped);
    let job = |outcome: &Outcome| {
        let (passed, failed, skipped) = counts(outcome.tally);
        json!({
            "name": outcome.job.name,
            "result": outcome.word(),
            "passed": passed, "failed": failed, "skipped": skipped,
            "remarks": outcome.remarks,
            "skips": outcome.skips,
            "seeds": outcome.seeds,
            "failures": outcome.failures,
            "seconds": outcome.took.as_secs_f64(),
            "log": outcome.log,
        })
    };
    let jobs: Vec<serde_json::Value> = outcomes.iter().map(job).collect();
    let (passed, failed, skipped) = counts(total);
    json!({ "jobs": jobs, "passed": passed, "failed": failed, "skipped": skipped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_is_what_says_so() {
        assert!(is_ci(Some("true")) && is_ci(Some("1")));
        assert!(!is_ci(None) && !is_ci(Some("")) && !is_ci(Some("false")));
    }

    #[test]
    fn reasons_are_told_by_count() {
        let skips = BTreeMap::from([("a".to_owned(), 1), ("b".to_owned(), 30)]);
        assert_eq!(by_count(&skips), ["30 skipped: b", "1 skipped: a"]);
    }
}
