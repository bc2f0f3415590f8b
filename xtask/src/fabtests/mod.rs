//! `cargo xtask fabtests --from DIR`: the C project's fabtests, built elsewhere, on our library.
//!
//! What their runner, `DIR/bin/runfabtests.sh`, says of each test is held against the committed
//! list `interop/fabtests.toml`: a listed test that does not pass has failed, and so has one that
//! passes and is not listed. Providers of RDMA devices run in guests of the laboratory.

mod guest;
mod list;
mod outcome;

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Args;
use indicatif::ProgressBar;
use rustix::process::{Pid, Signal, kill_process};

use crate::dist;
use crate::lab::Unavailable;
use crate::test::process::{self, End, Interrupt};
use crate::test::tally::Tally;
use crate::workspace::Workspace;
use guest::GuestRun;
use list::{List, Set};
use outcome::Outcomes;

/// The committed list, seen from the top of the tree.
const LIST: &str = "interop/fabtests.toml";

/// The address that both sides use.
const HOST: &str = "127.0.0.1";

/// The set whose tests are files of combinations for `fi_ubertest`, each a run of its own.
const COMPLEX: &str = "complex";

/// Set for everything that a run starts, so that it is found again.
const MARK: &str = "RIPSTOP_FABTESTS_RUN";

/// In the place of `ssh`, by which the runner reaches both sides: runs the command here.
const SSH: &str = r#"#!/bin/bash
while [ $# -gt 0 ]; do
    case $1 in
        -o) shift 2 ;;
        -*) shift ;;
        *) break ;;
    esac
done
shift
exec bash -c "$*"
"#;

/// In the place of `ps`: where the runner looks for every program on the machine that it could have
/// left behind, to kill it, it finds those of this run only.
const PS: &str = r#"#!/bin/bash
[ "$1" = -eo ] || exec "$(type -ap ps | sed -n 2p)" "$@"
for place in /proc/[0-9]*; do
    if grep -qsz "^RIPSTOP_FABTESTS_RUN=$RIPSTOP_FABTESTS_RUN$" "$place/environ"; then
        echo "$(cat "$place/comm") ${place#/proc/}"
    fi
done 2>/dev/null
"#;

/// What to run.
#[derive(Args)]
pub(crate) struct Options {
    /// Where fabtests are installed: the folder with bin/runfabtests.sh.
    #[arg(long, value_name = "DIR")]
    from: PathBuf,
    /// The provider to test, as the list names it: tcp, shm, lnx or tcp;ofi_rxm; with a kernel, such as verbs;ofi_rxm/6.1, in a
    /// guest of the laboratory. May be given several times; all of them if not said.
    #[arg(long, value_name = "NAME")]
    provider: Vec<String>,
    /// A set of their runner, as interop/fabtests.toml names it; may be given several times.
    #[arg(long, value_name = "SET", default_value = "quick")]
    set: Vec<String>,
    /// Test the libfabric.so.1 in this folder instead of target/dist.
    #[arg(long, value_name = "DIR")]
    lib: Option<PathBuf>,
    /// A variable of the library for every test, such as FI_SHM_COPY=ring; may be given several times. All others
    /// of the library are taken out of the environment.
    #[arg(long = "env", value_name = "FI_NAME=VALUE", value_parser = setting)]
    settings: Vec<(String, String)>,
    /// Seconds that each test may take.
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
    /// Minutes that each set may take.
    #[arg(long, value_name = "M", default_value_t = 120)]
    minutes: u64,
}

/// A variable of the library and its value.
fn setting(text: &str) -> anyhow::Result<(String, String)> {
    let (name, value) = text.split_once('=').unwrap_or_default();
    ensure!(name.starts_with("FI_"), "{text} is not FI_NAME=VALUE");
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs the sets; `true` when everything is as the list says.
pub(crate) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<bool> {
    let list = List::load(&ws.root.join(LIST))?;
    let from = fs::canonicalize(&options.from)
        .with_context(|| format!("{} is not there", options.from.display()))?;
    let runner = from.join("bin/runfabtests.sh");
    ensure!(runner.is_file(), "{} is not there", runner.display());
    let lib = match &options.lib {
        Some(lib) => lib.clone(),
        None => dist::prefix(ws).join("lib"),
    };
    let library = lib.join(dist::SONAME);
    let library = fs::canonicalize(&library)
        .with_context(|| format!("{} is not there: run `cargo xtask dist`", library.display()))?;
    let mut bench = Bench {
        folder: ws.target.join("fabtests"),
        from,
        library,
        interrupt: Interrupt::listen()?,
        options,
        mark: format!("{}", std::process::id()),
    };
    bench.prepare()?;
    let providers = match options.provider.is_empty() {
        true => list.providers(),
        false => options.provider.clone(),
    };
    let mut sets = Vec::new();
    for provider in &providers {
        for set in &options.set {
            sets.push((provider, set, list.set(provider, set)?));
        }
    }
    println!("library: {}", bench.library.display());
    let mut total = Tally::default();
    for (provider, name, set) in sets {
        total += match guest::parse(provider) {
            None => bench.run(provider, name, set)?,
            Some(_) => bench.run_in_guest(ws, provider, name, set)?,
        };
    }
    println!("{total}");
    Ok(total.failed == 0)
}

/// Holds what happened against the list, and prints what is not as it must be.
fn tell(set: &Set, outcomes: &Outcomes) -> Tally {
    let mut tally = Tally::default();
    for verdict in set.judge(outcomes) {
        tally += verdict.tally();
        if let Some(line) = verdict.line() {
            println!("{line}");
        }
    }
    tally
}

/// What the runs of the sets have in common.
struct Bench<'a> {
    folder: PathBuf,
    from: PathBuf,
    library: PathBuf,
    interrupt: Interrupt,
    options: &'a Options,
    mark: String,
}

impl Bench<'_> {
    /// Puts the stand-ins and the library, alone, where the runner finds them.
    fn prepare(&mut self) -> anyhow::Result<()> {
        let (bin, lib) = (self.folder.join("bin"), self.folder.join("lib"));
        for place in [&bin, &lib] {
            fs::create_dir_all(place)?;
        }
        for (name, text) in [("ssh", SSH), ("ps", PS)] {
            let path = bin.join(name);
            fs::write(&path, text)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        let staged = lib.join(dist::SONAME);
        let _ = fs::remove_file(&staged);
        symlink(&self.library, &staged)?;
        self.require_library()
    }

    /// The programs load the library under test, and no other.
    fn require_library(&self) -> anyhow::Result<()> {
        let mut command = self.command(&self.from.join("bin/fi_getinfo_test"))?;
        let done = command.env("LD_TRACE_LOADED_OBJECTS", "1").output();
        let done = done.context("cannot run fi_getinfo_test")?;
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        let staged = self.folder.join("lib").join(dist::SONAME);
        ensure!(
            text.contains(&*staged.to_string_lossy()),
            "fi_getinfo_test does not load {}:\n{text}",
            staged.display()
        );
        Ok(())
    }

    /// A program with the environment of a test.
    fn command(&self, program: &Path) -> anyhow::Result<Command> {
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [self.folder.join("bin"), self.from.join("bin")]
            .into_iter()
            .chain(env::split_paths(&path));
        let mut command = Command::new(program);
        for (name, _) in env::vars_os() {
            if name.to_string_lossy().starts_with("FI_") {
                command.env_remove(name);
            }
        }
        command
            .envs(self.options.settings.iter().cloned())
            .env("PATH", env::join_paths(path)?)
            .env("LD_LIBRARY_PATH", self.folder.join("lib"))
            .env(MARK, &self.mark);
        Ok(command)
    }

    /// Runs one set and tells how each of its tests went.
    fn run(&self, provider: &str, name: &str, set: &Set) -> anyhow::Result<Tally> {
        println!("{provider} {name}: {} must pass", set.must.len());
        let configs: Vec<Option<&str>> = match name {
            COMPLEX => set.configs().map(Some).collect(),
            _ => vec![None],
        };
        let mut outcomes = Outcomes::default();
        let mut tally = Tally::default();
        for config in configs {
            if let Some(failure) = self.run_once(provider, name, config, set, &mut outcomes)? {
                println!("FAIL {provider} {name}: {failure}");
                tally.failed += 1;
            }
        }
        tally += tell(set, &outcomes);
        println!("{provider} {name}: {tally}");
        Ok(tally)
    }

    /// Runs one set in a guest and tells how each of its tests went.
    fn run_in_guest(
        &self,
        ws: &Workspace,
        provider: &str,
        name: &str,
        set: &Set,
    ) -> anyhow::Result<Tally> {
        println!("{provider} {name}: {} must pass", set.must.len());
        guest::require(ws, self.options.lib.is_some(), name)?;
        let (inner, series) = guest::parse(provider).context("a provider in a guest")?;
        let run = GuestRun {
            ws,
            from: &self.from,
            folder: &self
                .folder
                .join(format!("{inner}-{}-{name}", series.name())),
            provider: inner,
            series,
            set: name,
            settings: &self.options.settings,
            timeout: self.options.timeout,
            limit: Duration::from_secs(self.options.minutes * 60),
        };
        let mut outcomes = Outcomes::default();
        let mut tally = Tally::default();
        match run.run(SSH, &mut outcomes, &|line| println!("  {line}")) {
            Ok(None) => {}
            Ok(Some(failure)) => {
                println!("FAIL {provider} {name}: {failure}");
                tally.failed += 1;
            }
            Err(error) if error.is::<Unavailable>() => {
                println!("SKIP {provider} {name}: {error:#}");
                tally.skipped += 1;
                return Ok(tally);
            }
            Err(error) => return Err(error),
        }
        tally += tell(set, &outcomes);
        println!("{provider} {name}: {tally}");
        Ok(tally)
    }

    /// One run of the runner; what it says goes to `outcomes`. Returns what went wrong with itself.
    fn run_once(
        &self,
        provider: &str,
        name: &str,
        config: Option<&str>,
        set: &Set,
        outcomes: &mut Outcomes,
    ) -> anyhow::Result<Option<String>> {
        let folder = self.folder.join(format!("{provider}-{name}"));
        // The runner does not find its own exclusions there: they leave out much that passes here.
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        let configs = self.from.join("share/fabtests/test_configs");
        let path = self.folder.join(format!("{provider}-{name}.log"));
        let log = File::create(&path)?;
        let mut command = self.command(&self.from.join("bin/runfabtests.sh"))?;
        command.current_dir(&folder).arg("-v");
        command.args(["-T", &self.options.timeout.to_string(), "-t", name]);
        command.arg("-p").arg(self.from.join("bin"));
        if let Some(config) = config {
            command.arg("-u").arg(configs.join(provider).join(config));
        }
        command.args([provider, HOST, HOST]);
        let limit = Duration::from_secs(self.options.minutes * 60);
        let bar = ProgressBar::new(set.len() as u64);
        let mut reader = BufReader::new(File::open(&path)?);
        let mut line = String::new();
        let mut look = || {
            while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
                // The rest of a line comes later.
                if !line.ends_with('\n') {
                    break;
                }
                if let Some((test, outcome)) = outcomes.read(line.trim_end(), provider, config) {
                    bar.inc(1);
                    let position = bar.position();
                    bar.suspend(|| println!("  [{position}] {outcome} {test}"));
                }
                line.clear();
            }
        };
        let end = process::watch(&mut command, &log, limit, &self.interrupt, &mut look);
        look();
        bar.finish_and_clear();
        self.end_all();
        Ok(match end? {
            // Its status counts what failed, which the list may know.
            End::Exit { .. } => None,
            End::Unstarted(why) => Some(why),
            End::Timeout => Some(format!("had not ended after {} min", self.options.minutes)),
        })
    }

    /// Ends what a run has left behind: `timeout` has each test in a process group of its own.
    fn end_all(&self) {
        let mark = format!("{MARK}={}", self.mark);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.parse().ok());
            let Some(pid) = pid.and_then(Pid::from_raw) else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark.as_bytes())
            {
                // It may have ended this moment.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        self.end_all();
    }
}
