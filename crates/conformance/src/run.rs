//! Running cases, each in a process of its own.

#[cfg(feature = "rust")]
mod in_rust;
#[cfg(not(feature = "rust"))]
#[path = "run/no_rust.rs"]
mod in_rust;

use std::cmp::Reverse;
use std::env;
use std::io::Read;
use std::os::unix::process::ExitStatusExt as _;
use std::panic;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use ripstop_foreign::{Library, Shared, Single};
use ripstop_types::{EpType, Threading};
use serde::{Deserialize, Serialize};

use crate::case::{self, Case, Cx, Outcome, Stop};
use crate::cases;
use crate::mistakes;
use crate::pace;
use crate::subject::apart::{self, Apart};
use crate::subject::model::{Foreign, Model};
use crate::subject::{Setup, Subject};

/// The most that the bound of a rule about time is multiplied by, on whatever machine: a bound that is
/// doubled still tells what is promised, 5 s, from what is not.
const TIMED_SLOW: u32 = 2;

/// The most that a case may take which is tried with its sides apart.
const MOST_APART: Duration = Duration::from_secs(20);

/// How an implementation is reached.
#[derive(Clone, Debug)]
pub enum Way {
    /// A `libfabric.so.1`, through its C interface.
    Library(PathBuf),
    /// The Rust object model.
    Rust,
}

/// What to run, and on what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The implementation.
    pub way: Way,
    /// Provider and threading level.
    pub setup: Setup,
    /// Endpoint types.
    pub eps: Vec<EpType>,
    /// Parts of the ids to run; empty for all.
    pub filter: Vec<String>,
    /// Cases at a time.
    pub jobs: usize,
    /// Runs of each case.
    pub repeat: usize,
    /// Factor on every bound.
    pub slow: u32,
    /// Each side of a case is in a process of its own.
    pub apart: bool,
    /// The hook `debug` watches each case.
    pub debug: bool,
}

/// How a case ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "reason", rename_all = "snake_case")]
pub enum Ending {
    /// The rule holds.
    Passed,
    /// What the rule is about is not offered.
    NotOffered(String),
    /// This machine has not what it takes to try the rule.
    NotHere(String),
    /// The rule does not hold.
    Failed(String),
}

/// A case and how it ended.
#[derive(Clone, Debug)]
pub struct Ran {
    /// Its id.
    pub id: String,
    /// The case.
    pub case: Case,
    /// How it ended.
    pub ending: Ending,
    /// How long it took.
    pub took: Duration,
    /// What the hook `debug` has said of it.
    pub said: Vec<String>,
    /// How many objects it has left open.
    pub open: usize,
}

/// What the process of a case tells.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    #[serde(flatten)]
    ending: Ending,
    /// How many objects are open.
    open: usize,
}

/// What was seen of the process of a case.
struct Seen {
    ending: Ending,
    said: Vec<String>,
    open: usize,
}

/// Processors of this machine.
#[must_use]
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The cases of a plan with their ids.
#[must_use]
pub fn selected(plan: &Plan) -> Vec<(String, Case)> {
    let mut selected = Vec::new();
    for case in cases::all() {
        for ep_type in plan.eps.iter().filter(|e| case.eps.includes(**e)) {
            let id = case::id(*ep_type, case.name);
            // What is promised of times is tried without a process in between, and what takes long
            // takes longer with one.
            let is_long = case.is_timed || case.limit > MOST_APART;
            if plan.apart && (is_long || case.is_together) {
                continue;
            }
            if plan.filter.is_empty() || plan.filter.iter().any(|f| id.contains(f)) {
                selected.push((id, case));
            }
        }
    }
    selected
}

/// Runs the cases of a plan, as far as they are wanted.
///
/// # Errors
///
/// When this program cannot start itself.
pub fn all(plan: &Plan, wanted: impl Fn(&str) -> bool, progress: bool) -> anyhow::Result<Vec<Ran>> {
    let exe = env::current_exe().context("cannot find this program to start it again")?;
    let mut work = selected(plan);
    work.retain(|(id, _)| wanted(id));
    let ids: Vec<_> = work.iter().map(|(id, _)| id.clone()).collect();
    // The longest first, so that none is left alone at the end.
    work.sort_by_key(|(_, case)| Reverse(case.limit));
    let (timed, others): (Vec<_>, Vec<_>) = work.into_iter().partition(|(_, case)| case.is_timed);
    let results = Mutex::new(Vec::new());
    // What is about a time runs when nothing else of this run wants a processor.
    for (work, jobs) in [(others, plan.jobs), (timed, 1)] {
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some((id, case)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                        if progress {
                            eprint!("\r\x1b[K{id}");
                        }
                        let ran = repeatedly(plan, &exe, id, case);
                        let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                        results.push((id.clone(), ran));
                    }
                });
            }
        });
    }
    if progress {
        eprint!("\r\x1b[K");
    }
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut ordered = Vec::new();
    for id in &ids {
        for (found, ran) in &results {
            if found == id {
                ordered.push(ran.clone());
            }
        }
    }
    Ok(ordered)
}

/// Runs a case as often as asked; the first run that does not pass counts.
fn repeatedly(plan: &Plan, exe: &Path, id: &str, case: &Case) -> Ran {
    let mut ran = once(plan, exe, id, case);
    for turn in 1..plan.repeat {
        if ran.ending != Ending::Passed {
            if let Ending::Failed(why) = &mut ran.ending {
                why.push_str(&format!(" [run {turn} of {}]", plan.repeat));
            }
            break;
        }
        ran = once(plan, exe, id, case);
    }
    ran
}

/// Runs a case in a process of its own.
fn once(plan: &Plan, exe: &Path, id: &str, case: &Case) -> Ran {
    let start = Instant::now();
    let slow = match case.is_timed {
        true => plan.slow.min(TIMED_SLOW),
        false => plan.slow,
    };
    let mut command = again(plan, exe);
    command
        .args(["--case", id, "--slow", &slow.to_string()])
        .args(["--ep", id.split(':').next().unwrap_or_default()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if plan.apart {
        command.arg("--apart");
    }
    command.envs(case.params.iter().copied());
    if plan.debug {
        command.env("FI_HOOK", "debug");
    }
    let Seen { ending, said, open } = match command.spawn() {
        Ok(child) => watch(child, case.limit * slow),
        Err(e) => Seen {
            ending: Ending::Failed(format!("the case's process did not start: {e}")),
            said: Vec::new(),
            open: 0,
        },
    };
    Ran {
        id: id.to_owned(),
        case: *case,
        ending,
        took: start.elapsed(),
        said,
        open,
    }
}

/// This program again, on what the plan says.
fn again(plan: &Plan, exe: &Path) -> Command {
    let mut command = Command::new(exe);
    command
        .args(["--provider", &plan.setup.provider])
        .args(["--node", &plan.setup.node.to_string()])
        .args(["--threading", plan.setup.level()]);
    match &plan.way {
        Way::Library(path) => command.arg("--lib").arg(path),
        Way::Rust => command.arg("--rust"),
    };
    command
}

/// Waits for a case's process, at most `limit`, and reads how it ended.
fn watch(mut child: Child, limit: Duration) -> Seen {
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let (out, err) = (read_all(out), read_all(err));
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(2)),
            Ok(None) | Err(_) => break None,
        }
    };
    if status.is_none() {
        // It may have ended this moment; either way it is gone afterwards.
        let _ = child.kill();
        let _ = child.wait();
    }
    let out = out.join().unwrap_or_default();
    let err = err.join().unwrap_or_default();
    let told = out.lines().rev().find_map(|l| serde_json::from_str(l).ok());
    let (told, open) = match told {
        Some(Told { ending, open }) => (Some(ending), open),
        None => (None, 0),
    };
    Seen {
        ending: conclude(status, told, limit, &err),
        said: mistakes::said(&err),
        open,
    }
}

/// What a process's end, its answer and its messages come to.
fn conclude(
    status: Option<ExitStatus>,
    told: Option<Ending>,
    limit: Duration,
    err: &str,
) -> Ending {
    let with_words = |what: String| {
        let last: Vec<_> = err.lines().rev().take(3).collect();
        let last: Vec<_> = last.into_iter().rev().collect();
        match last.is_empty() {
            true => Ending::Failed(what),
            false => Ending::Failed(format!("{what}; it said: {}", last.join(" / "))),
        }
    };
    match (status, told) {
        (None, _) => with_words(format!("not finished after {limit:?}")),
        (Some(status), Some(told)) if status.success() => told,
        (Some(status), told) => {
            let when = match told {
                Some(_) => "after its end, ",
                None => "",
            };
            match (status.signal(), status.code()) {
                (Some(signal), _) => with_words(format!("{when}killed by signal {signal}")),
                (None, code) => with_words(format!("{when}exit status {}", code.unwrap_or(-1))),
            }
        }
    }
}

fn read_all(from: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // What could be read counts.
            let _ = from.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Runs one case in this process and prints how it ended, as one line of JSON.
#[must_use]
pub fn child(plan: &Plan, id: &str) -> ExitCode {
    pace::slow_down(plan.slow);
    let (outcome, open) = match run_here(plan, id) {
        Ok(told) => told,
        Err(e) => (Err(Stop::Fail(format!("{e:#}"))), 0),
    };
    let ending = match outcome {
        Ok(()) => Ending::Passed,
        Err(Stop::NotOffered(why)) => Ending::NotOffered(why),
        Err(Stop::NotHere(why)) => Ending::NotHere(why),
        Err(Stop::Fail(why)) => Ending::Failed(why),
    };
    match serde_json::to_string(&Told { ending, open }) {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Serves as the process of a side until the case ends, for endpoints of the plan's first type.
#[must_use]
pub fn side(plan: &Plan, side: usize) -> ExitCode {
    let ep_type = plan.eps.first().copied().unwrap_or(EpType::Rdm);
    let served = on_subject(plan, ep_type, |s, _| apart::serve(s, side));
    match served {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(e)) => {
            eprintln!("the process of a side: {e}");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("the process of a side: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// The implementation where several threads may use it.
type Threads = Option<&'static (dyn Subject + Sync)>;

/// Opens the way into the implementation of a plan, for endpoints of a type. It stays open: a case
/// that failed may have left the library in any state, so the process ends without closing what is
/// open.
fn on_subject<T>(
    plan: &Plan,
    ep_type: EpType,
    body: impl FnOnce(&'static dyn Subject, Threads) -> T,
) -> anyhow::Result<T> {
    match (&plan.way, plan.setup.threading) {
        (Way::Library(path), Threading::Safe) => {
            let library = Foreign::<Shared>::new(Library::open(path)?);
            let s = Box::leak(Box::new(Model::new(library)));
            Ok(body(s, Some(s)))
        }
        (Way::Library(path), _) => {
            let library = Foreign::<Single>::new(Library::open(path)?);
            let s = Box::leak(Box::new(Model::new(library)));
            Ok(body(s, None))
        }
        (Way::Rust, _) => in_rust::on_subject(plan, ep_type, body),
    }
}

/// Runs one case; how it ended, and how many objects it has left open.
fn run_here(plan: &Plan, id: &str) -> anyhow::Result<(Outcome, usize)> {
    let found = selected(plan).into_iter().find(|(found, _)| found == id);
    let (_, case) = found.with_context(|| format!("no case is called {id}"))?;
    let ep_type = match id.split(':').next() {
        Some("msg") => EpType::Msg,
        Some("dgram") => EpType::Dgram,
        _ => EpType::Rdm,
    };
    let body = |s: &dyn Subject, threads| {
        let cx = Cx {
            s,
            threads,
            setup: &plan.setup,
            ep_type,
        };
        panic::catch_unwind(panic::AssertUnwindSafe(|| (case.body)(&cx)))
            .unwrap_or_else(|_| Err(Stop::Fail("the case panicked".to_owned())))
    };
    if !plan.apart {
        return on_subject(plan, ep_type, |s, threads| (body(s, threads), s.open()));
    }
    let exe = env::current_exe().context("cannot find this program to start it again")?;
    let start = |side: usize| {
        let mut command = again(plan, &exe);
        command.args(["--ep", case::ep_name(ep_type)]);
        command.args(["--side", &side.to_string()]);
        command
    };
    on_subject(plan, ep_type, |s, _| {
        let apart = Apart::new(s, &start);
        let outcome = body(&apart, None).and_then(|()| match apart.is_apart() {
            true => Ok(()),
            false => Err(Stop::not_offered("there is nothing in a second process")),
        });
        (outcome, s.open())
    })
}
