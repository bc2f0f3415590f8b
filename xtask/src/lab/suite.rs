//! The laboratory's own suite: the cases of `lab/cases.toml`, each in guests of its own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use indicatif::ProgressBar;
use serde::Deserialize;
use serde_json::json;

use crate::lab::guest::{self, Ended, Task};
use crate::lab::kernel::Series;
use crate::lab::packages::Unavailable;
use crate::lab::{Lab, Rdma, SKIPPED, SOURCES, told, userland};
use crate::test::tally::Tally;
use crate::workspace::{SUITE, Workspace};

/// The table of cases, in the folder of the laboratory.
const TABLE: &str = "cases.toml";

/// How many lines of the console of a failed case are shown.
const TAIL: usize = 60;

/// What to run.
#[derive(Args)]
pub(super) struct Options {
    /// Run the slow cases too.
    #[arg(long)]
    full: bool,
    /// Run only the case of this name, or those whose name contains it; may be given several times.
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,
    /// List the cases and run nothing.
    #[arg(long)]
    list: bool,
    /// Print the console of every case, not only of those that fail.
    #[arg(long)]
    verbose: bool,
    /// Print one JSON document on standard output; the lines for people go to standard error.
    #[arg(long)]
    json: bool,
}

/// A row of the table.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// The name, without the kernel.
    name: String,
    /// What is shown when it passes.
    about: String,
    /// The script, below `lab/cases`.
    script: String,
    /// The kernels of the fast suite.
    #[serde(default)]
    fast: Vec<Series>,
    /// The kernels with which it is in the slow suite only.
    #[serde(default)]
    slow: Vec<Series>,
    #[serde(default)]
    rdma: Rdma,
    #[serde(default = "one")]
    nodes: u8,
    /// Memory of each guest, in MiB.
    #[serde(default = "usual_memory")]
    memory: u32,
    /// Seconds that the script may take.
    limit: u64,
    /// The exit status that is right.
    #[serde(default)]
    status: u8,
    /// Whether it runs programs of target/dist.
    #[serde(default)]
    needs_dist: bool,
    /// A program that is built for it and put into the guest's path.
    example: Option<Example>,
    /// Whether it runs the conformance suite, whose lists are in `/usr/local/share/required`.
    #[serde(default)]
    runs_suite: bool,
    /// Programs of `interop/mpi`, which it runs with MPICH.
    #[serde(default)]
    mpi: Vec<String>,
    /// Files that come back, by their path below `$OUT`, and what is in them.
    #[serde(default)]
    files: std::collections::BTreeMap<String, String>,
}

/// An example of a package of this tree.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Example {
    package: String,
    name: String,
    /// Features of the package.
    #[serde(default)]
    features: Vec<String>,
}

impl Example {
    /// Builds it, and says where it is.
    fn build(&self, ws: &Workspace) -> anyhow::Result<PathBuf> {
        let mut cargo = ws.build_with_tests(["--example", &self.name]);
        for feature in &self.features {
            cargo.args(["--features", &format!("{}/{feature}", self.package)]);
        }
        let status = cargo.status()?;
        ensure!(status.success(), "cargo cannot build example {}", self.name);
        Ok(ws.built_with_tests(&format!("examples/{}", self.name)))
    }
}

/// Builds the conformance suite; its program and its lists.
fn suite_files(ws: &Workspace) -> anyhow::Result<[PathBuf; 2]> {
    let mut cargo = ws.build_with_tests(["--bin", SUITE]);
    ensure!(
        cargo.status()?.success(),
        "cargo cannot build the conformance suite"
    );
    let lists = ws.root.join("crates/conformance/required");
    Ok([ws.built_with_tests(SUITE), lists])
}

/// Has `interop/guest` get MPICH and compile programs for it; what it says goes into the guest.
///
/// # Errors
/// [`Unavailable`] where MPICH or a compiler cannot be had.
fn mpi_files(ws: &Workspace, programs: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    if programs.is_empty() {
        return Ok(Vec::new());
    }
    let mut command = Command::new(ws.root.join("interop/guest"));
    command.args(programs).env("CARGO_TARGET_DIR", &ws.target);
    let output = command.output().context("cannot run interop/guest")?;
    let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(
        output.status.code() != Some(SKIPPED.into()),
        Unavailable(told)
    );
    ensure!(output.status.success(), "interop/guest: {told}");
    let files = String::from_utf8_lossy(&output.stdout);
    Ok(files.lines().map(PathBuf::from).collect())
}

#[derive(Deserialize)]
struct Table {
    case: Vec<Row>,
}

/// A row with one of its kernels.
struct Case<'a> {
    row: &'a Row,
    series: Series,
    is_slow: bool,
}

/// How a case went.
enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

fn one() -> u8 {
    1
}

fn usual_memory() -> u32 {
    guest::MEMORY
}

impl Case<'_> {
    fn name(&self) -> String {
        format!("{}/{}", self.row.name, self.series.name())
    }
}

/// Runs the cases; the exit status says whether none failed.
pub(super) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let table = load(&ws.root.join(SOURCES))?;
    let mut cases = cases(&table);
    cases.retain(|case| options.full || !case.is_slow);
    let names: Vec<String> = cases.iter().map(Case::name).collect();
    if !options.filter.is_empty() {
        cases.retain(|case| is_chosen(&case.name(), &options.filter, &names));
    }
    ensure!(!cases.is_empty(), "no case is called so");
    if options.list {
        for case in &cases {
            let suite = if case.is_slow { "slow" } else { "fast" };
            println!("{:<24} {suite}: {}", case.name(), case.row.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let suite = Suite { ws, options };
    let tally = suite.run(&cases)?;
    Ok(match tally.failed {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Whether a case is meant by one of `texts`, each the name of a case or a part of names.
fn is_chosen(name: &str, texts: &[String], names: &[String]) -> bool {
    let mut texts = texts.iter();
    texts.any(|text| match names.contains(text) {
        true => name == text,
        false => name.contains(text),
    })
}

/// Reads the table and looks for its scripts.
fn load(sources: &Path) -> anyhow::Result<Table> {
    let path = sources.join(TABLE);
    let text = fs::read_to_string(&path).with_context(|| format!("no {}", path.display()))?;
    let table: Table =
        toml::from_str(&text).with_context(|| format!("{} makes no sense", path.display()))?;
    for row in &table.case {
        let script = sources.join("cases").join(&row.script);
        ensure!(script.is_file(), "{}: no {}", row.name, script.display());
    }
    Ok(table)
}

/// Each row with each of its kernels.
fn cases(table: &Table) -> Vec<Case<'_>> {
    let mut cases = Vec::new();
    for row in &table.case {
        for (list, is_slow) in [(&row.fast, false), (&row.slow, true)] {
            cases.extend(list.iter().map(|series| Case {
                row,
                series: *series,
                is_slow,
            }));
        }
    }
    cases
}

struct Suite<'a> {
    ws: &'a Workspace,
    options: &'a Options,
}

impl Suite<'_> {
    fn run(&self, cases: &[Case]) -> anyhow::Result<Tally> {
        let lab = match Lab::open(self.ws) {
            Ok(lab) => Ok(lab),
            Err(error) if error.is::<Unavailable>() => Err(format!("{error:#}")),
            Err(error) => return Err(error),
        };
        let mut tally = Tally::default();
        let mut told = Vec::new();
        for (number, case) in (1..).zip(cases) {
            let name = case.name();
            let place = format!("[{number:>2}/{}]", cases.len());
            let spinner = ProgressBar::new_spinner().with_message(format!("{place} {name} ..."));
            spinner.enable_steady_tick(Duration::from_millis(200));
            let started = Instant::now();
            let outcome = match &lab {
                Ok(lab) => self.run_case(lab, case, &spinner)?,
                Err(why) => Outcome::Skipped(why.clone()),
            };
            let seconds = started.elapsed().as_secs_f64();
            spinner.finish_and_clear();
            let (result, why) = match &outcome {
                Outcome::Passed => {
                    tally.passed += 1;
                    self.say(&format!("PASS {name} ({seconds:.1} s): {}", case.row.about));
                    ("passed", None)
                }
                Outcome::Failed(why) => {
                    tally.failed += 1;
                    self.say(&format!("FAIL {name} ({seconds:.1} s): {why}"));
                    ("failed", Some(why))
                }
                Outcome::Skipped(why) => {
                    tally.skipped += 1;
                    self.say(&format!("SKIP {name}: {why}"));
                    ("skipped", Some(why))
                }
            };
            told.push(json!({"name": name, "result": result, "why": why, "seconds": seconds}));
        }
        if self.options.json {
            let Tally {
                passed,
                failed,
                skipped,
            } = tally;
            println!(
                "{}",
                json!({"cases": told, "passed": passed, "failed": failed, "skipped": skipped})
            );
        }
        self.say(&tally.to_string());
        Ok(tally)
    }

    /// A line for people.
    fn say(&self, line: &str) {
        match self.options.json {
            true => eprintln!("{line}"),
            false => println!("{line}"),
        }
    }

    /// Builds and gets what a case runs.
    fn added(&self, row: &Row) -> anyhow::Result<Vec<PathBuf>> {
        let mut added = mpi_files(self.ws, &row.mpi)?;
        if let Some(example) = &row.example {
            added.push(example.build(self.ws)?);
        }
        if row.runs_suite {
            added.extend(suite_files(self.ws)?);
        }
        Ok(added)
    }

    fn run_case(&self, lab: &Lab, case: &Case, spinner: &ProgressBar) -> anyhow::Result<Outcome> {
        let row = case.row;
        if row.needs_dist && !userland::has_prefix(self.ws) {
            let why = "target/dist has no library: run `cargo xtask dist`";
            return Ok(Outcome::Skipped(why.to_owned()));
        }
        let kernel = lab.kernel(case.series, row.rdma);
        let prepared = kernel.and_then(|kernel| Ok((kernel, self.added(row)?)));
        let (kernel, added) = match prepared {
            Ok(prepared) => prepared,
            Err(error) if error.is::<Unavailable>() => {
                return Ok(Outcome::Skipped(format!("{error:#}")));
            }
            Err(error) => return Err(error),
        };
        let folder = lab.run_folder(&case.name().replace('/', "-"))?;
        let initrd = lab.initrd(&kernel, &added, &folder.path)?;
        let script = self.ws.root.join(SOURCES).join("cases").join(&row.script);
        let task = Task {
            kernel: &kernel,
            initrd: &initrd,
            script: Some(&script),
            nodes: row.nodes,
            rdma: row.rdma.name(),
            memory: row.memory,
            limit: Duration::from_secs(row.limit),
            folder: &folder.path,
        };
        let several = row.nodes > 1;
        let ended = task.run(&lab.interrupt, &|node, line| {
            spinner.set_message(format!("{}: {}", case.name(), line.text));
            if self.options.verbose {
                spinner.suspend(|| self.say(&told(node, line, several)));
            }
        })?;
        fs::remove_file(initrd)?;
        let outcome = judge(row, &ended)?;
        if matches!(outcome, Outcome::Failed(_)) && !self.options.verbose {
            spinner.suspend(|| self.show(&ended, several));
        }
        Ok(outcome)
    }

    /// The ends of the consoles of a failed case.
    fn show(&self, ended: &Ended, several: bool) {
        for node in &ended.nodes {
            let from = node.console.len().saturating_sub(TAIL);
            for line in &node.console[from..] {
                self.say(&format!("    {}", told(node.node, line, several)));
            }
        }
    }
}

/// Whether the guests have ended as the row says, with its files.
fn judge(row: &Row, ended: &Ended) -> anyhow::Result<Outcome> {
    let nodes: BTreeSet<u8> = ended.nodes.iter().map(|node| node.status).collect();
    if nodes != BTreeSet::from([row.status]) {
        let node = |node: &super::guest::Node| {
            let remark = node.remark.as_deref().unwrap_or("the script ended so");
            format!("node {} has status {} ({remark})", node.node, node.status)
        };
        let told: Vec<String> = ended.nodes.iter().map(node).collect();
        return Ok(Outcome::Failed(format!(
            "{}; {} is right",
            told.join(", "),
            row.status
        )));
    }
    for (file, content) in &row.files {
        match fs::read_to_string(ended.out.join(file)) {
            Ok(found) if found == *content => {}
            Ok(found) => return Ok(Outcome::Failed(format!("{file} holds {found:?}"))),
            Err(error) => return Ok(Outcome::Failed(format!("{file}: {error}"))),
        }
    }
    Ok(Outcome::Passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::guest::Node;

    fn row(text: &str) -> Row {
        toml::from_str(text).expect("a row")
    }

    fn ended(statuses: &[u8], out: &Path) -> Ended {
        let node = |(number, status): (u8, &u8)| Node {
            node: number,
            status: *status,
            remark: None,
            seconds: 1.0,
            console: Vec::new(),
        };
        Ended {
            kernel: "6.1".to_owned(),
            status: 0,
            nodes: (1..).zip(statuses).map(node).collect(),
            out: out.to_path_buf(),
        }
    }

    const PLAIN: &str = "name = 'a'\nabout = 'b'\nscript = 'c'\nlimit = 1\nfast = ['6.1']\n";

    #[test]
    fn a_whole_name_is_that_of_one_case() {
        let names = ["rxm/6.1", "rxm/6.12", "ping/6.1"].map(str::to_owned);
        let chosen = |text: &str| {
            let texts = [text.to_owned()];
            let chosen = |name: &&String| is_chosen(name, &texts, &names);
            names.iter().filter(chosen).count()
        };
        assert_eq!(
            ["rxm/6.1", "rxm", "6.1", "6.12", "6.2"].map(chosen),
            [1, 2, 3, 1, 0]
        );
    }

    #[test]
    fn every_node_must_end_as_expected() {
        let folder = tempfile::tempdir().expect("a folder");
        let passes = |text: &str, statuses: &[u8]| {
            let outcome = judge(&row(text), &ended(statuses, folder.path())).expect("judged");
            matches!(outcome, Outcome::Passed)
        };
        assert!(passes(PLAIN, &[0]) && passes(PLAIN, &[0, 0]));
        assert!(!passes(PLAIN, &[3]) && !passes(PLAIN, &[0, 124]));
        let fails = format!("{PLAIN}status = 3\n");
        assert!(passes(&fails, &[3]) && !passes(&fails, &[0]) && !passes(&fails, &[3, 0]));
    }

    #[test]
    fn files_must_come_back_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let row = row(&format!("{PLAIN}files = {{ 'log' = 'text' }}\n"));
        let passes = || {
            let outcome = judge(&row, &ended(&[0], folder.path())).expect("judged");
            matches!(outcome, Outcome::Passed)
        };
        assert!(!passes());
        fs::write(folder.path().join("log"), "tex").expect("written");
        assert!(!passes());
        fs::write(folder.path().join("log"), "text").expect("written");
        assert!(passes());
    }

    #[test]
    fn the_committed_table_can_be_read() {
        let ws = Workspace::load().expect("a workspace");
        let table = load(&ws.root.join(SOURCES)).expect("a table");
        let cases = cases(&table);
        let names: BTreeSet<String> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len(), "a name is given twice");
        assert!(cases.iter().any(|case| case.is_slow) && cases.iter().any(|case| !case.is_slow));
    }
}
