//! Everything that `cargo xtask test` runs, in order; what runs beside what is said by `Beside`. Of the jobs
//! that run beside each other the longest come first, so that both lanes end at about the same time.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use crate::dist;
use crate::sanitizer;
use crate::test::tally::Voice;
use crate::workspace::{FEATURES, SUITE, Workspace};

/// One entry of the table.
pub(super) struct Job {
    /// What `--only` takes; the log has this name too.
    pub(super) name: &'static str,
    /// What passes when the job does.
    pub(super) about: &'static str,
    /// When it is skipped.
    pub(super) skipped: &'static str,
    /// Minutes that each of its programs may take.
    minutes: u64,
    /// What may run beside it.
    pub(super) beside: Beside,
    /// What to run in this tree.
    plan: fn(&Workspace) -> Plan,
}

/// What may run beside a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beside {
    /// The long builds of later jobs: it only compiles.
    Builds,
    /// One other such job: its programs wait more than they compute, or their bounds on time are wide.
    Tests,
    /// Nothing.
    Nothing,
}

/// What a job comes to in a given tree.
pub(super) enum Plan {
    /// Run these, each to its end, whether or not the one before it passed.
    Run(Vec<Step>),
    /// Nothing to run here, and why: something that is not part of the tree is missing.
    Skip(String),
    /// Nothing to run, because something of the tree itself is missing.
    Broken(String),
}

/// One program of a job.
pub(super) struct Step {
    /// The program with its arguments and environment.
    pub(super) command: Command,
    /// How it tells what it did.
    pub(super) voice: Voice,
    /// Variables that repeat what it tried at random.
    pub(super) seeds: Vec<(&'static str, OsString)>,
}

impl Job {
    /// The programs of this job, or why there are none.
    pub(super) fn plan(&self, ws: &Workspace) -> Plan {
        (self.plan)(ws)
    }

    /// The longest that one of its programs may take.
    pub(super) fn limit(&self) -> Duration {
        Duration::from_secs(self.minutes * 60)
    }
}

/// The folder whose tests are a job of their own.
const FUZZ: &str = "fuzz";

/// The C library that `interop` fetches, below the target folder.
const C_LIBRARY: &str = "interop/venv/lib/mpich/libfabric.so.1";

/// Why a job that needs the library is skipped.
const NO_LIBRARY: &str = "target/dist has no library: run `cargo xtask dist`";

/// The table.
pub(super) static JOBS: [Job; 17] = [
    Job {
        name: "fmt",
        about: "the code is formatted",
        skipped: "never",
        minutes: 10,
        beside: Beside::Builds,
        plan: |ws| {
            Plan::Run(
                manifests(ws)
                    .iter()
                    .map(|manifest| fmt(ws, manifest))
                    .collect(),
            )
        },
    },
    Job {
        name: "clippy",
        about: "no warning in any target",
        skipped: "never",
        minutes: 40,
        beside: Beside::Builds,
        plan: |ws| {
            let mut command = cargo(ws, "clippy --locked --workspace --all-targets");
            command.args(["--features", FEATURES, "--", "-D", "warnings"]);
            one(command, Voice::Status)
        },
    },
    Job {
        name: "check",
        about: "the rules of the house hold",
        skipped: "never",
        minutes: 10,
        beside: Beside::Builds,
        plan: |ws| one(cargo(ws, "xtask check"), Voice::Status),
    },
    Job {
        name: "rustdoc",
        about: "the documentation builds without a warning",
        skipped: "never",
        minutes: 20,
        beside: Beside::Builds,
        plan: |ws| one(rustdoc(ws), Voice::Status),
    },
    Job {
        name: "kernel-floors",
        about: "floors L0 and L1 build as a kernel builds them",
        skipped: "without Debian's Rust sources for the kernel target",
        minutes: 30,
        beside: Beside::Builds,
        plan: |ws| script(ws, ".ci/kernel-floors"),
    },
    Job {
        name: "model",
        about: "what is lock-free holds in every order that the memory model allows",
        skipped: "never",
        minutes: 20,
        beside: Beside::Builds,
        plan: model,
    },
    Job {
        name: "unit",
        about: "unit, integration and documentation tests of every crate",
        skipped: "never",
        minutes: 45,
        beside: Beside::Nothing,
        plan: unit,
    },
    Job {
        name: "dist",
        about: "libfabric.so.1 links and exports exactly its table, and packages are made of it",
        skipped: "never",
        minutes: 45,
        beside: Beside::Nothing,
        plan: distribution,
    },
    Job {
        name: "interop",
        about: "programs and peers that exist today work with the library",
        skipped: "without target/dist, or where a script cannot get its peer",
        minutes: 45,
        beside: Beside::Tests,
        plan: interop,
    },
    Job {
        name: "conformance",
        about: "every provider passes the common suite",
        skipped: "without target/dist",
        minutes: 30,
        beside: Beside::Tests,
        plan: conformance,
    },
    Job {
        name: "asan",
        about: "the address sanitizer finds nothing in the crates with unsafe code, and in the suite",
        skipped: "where the toolchain has no AddressSanitizer",
        minutes: 20,
        beside: Beside::Tests,
        plan: asan,
    },
    Job {
        name: "apart",
        about: "every provider passes the common suite with each side of a case in a process of its own",
        skipped: "without target/dist",
        minutes: 30,
        beside: Beside::Tests,
        plan: apart,
    },
    Job {
        name: "lab",
        about: "guests with RDMA devices boot, and programs work in them",
        skipped: "without QEMU or Debian's packages; our programs in guests without target/dist",
        minutes: 20,
        beside: Beside::Tests,
        plan: |ws| one(cargo(ws, "xtask lab test"), Voice::Script),
    },
    Job {
        name: "fuzz",
        about: "every decoder survives a short run of hostile input",
        skipped: "never",
        minutes: 20,
        beside: Beside::Tests,
        plan: fuzz,
    },
    Job {
        name: "reference",
        about: "the common suite says of the C library what is known of it",
        skipped: "where interop could not get MPICH, which brings a C library",
        minutes: 20,
        beside: Beside::Nothing,
        plan: reference,
    },
    Job {
        name: "budget",
        about: "instructions and system calls of messages stay within the committed budget",
        skipped: "without valgrind",
        minutes: 30,
        beside: Beside::Nothing,
        plan: |ws| script(ws, "bench/budget"),
    },
    Job {
        name: "lab-full",
        about: "what takes too long for `lab`: siw, faults, every case on every kernel",
        skipped: "as `lab`",
        minutes: 60,
        beside: Beside::Nothing,
        plan: |ws| one(cargo(ws, "xtask lab test --full"), Voice::Script),
    },
];

/// Jobs that run only when `--only` names them.
pub(super) const BY_NAME: [&str; 1] = ["lab-full"];

/// What `dist` and `budget` build that takes long and one processor: begun beside the jobs before them.
pub(super) fn long_builds(ws: &Workspace) -> anyhow::Result<Vec<Command>> {
    if ws.package("capi").is_none() {
        return Ok(Vec::new());
    }
    let mut builds = dist::builds(ws)?;
    if let Some(bench) = ws.package("bench") {
        let mut budget = cargo(ws, "build --locked --release --package");
        budget.arg(&bench.name);
        builds.push(budget);
    }
    Ok(builds)
}

/// A job of one program.
fn one(command: Command, voice: Voice) -> Plan {
    Plan::Run(vec![Step {
        command,
        voice,
        seeds: Vec::new(),
    }])
}

/// Cargo with `arguments`, split at blanks.
fn cargo(ws: &Workspace, arguments: &str) -> Command {
    let mut command = ws.cargo();
    command.args(arguments.split(' '));
    command
}

/// The manifests of the workspaces in the tree that cargo can load.
fn manifests(ws: &Workspace) -> Vec<PathBuf> {
    const LINKED: [&str; 2] = ["libfabric/Cargo.toml", "libfabric/shm/Cargo.toml"];
    let linked = ws.package("capi").map(|_| LINKED);
    let all = ["Cargo.toml"]
        .into_iter()
        .chain(linked.into_iter().flatten())
        .chain(["fuzz/Cargo.toml"]);
    all.map(|manifest| ws.root.join(manifest))
        .filter(|manifest| manifest.exists())
        .collect()
}

fn fmt(ws: &Workspace, manifest: &Path) -> Step {
    let mut command = cargo(ws, "fmt --check --manifest-path");
    command.arg(manifest);
    if manifest
        .parent()
        .is_some_and(|dir| dir.join("crates").is_dir())
    {
        command.arg("--all");
    }
    Step {
        command,
        voice: Voice::Status,
        seeds: Vec::new(),
    }
}

fn unit(ws: &Workspace) -> Plan {
    let mut command = cargo(ws, "test --workspace --no-fail-fast");
    command.args(["--features", FEATURES]);
    if let Some(package) = ws.package(FUZZ) {
        command.args(["--exclude", &package.name]);
    }
    // What passing tests print is shown as well: some say that they were skipped.
    command.args(["--", "--show-output", "--skip", CHILD]);
    seeded(command)
}

/// How the names of tests begin that do nothing by themselves: another test starts them, each as a
/// process of its own. `.config/nextest.toml` leaves them out as well.
pub(super) const CHILD: &str = "subprocess_";

/// What decides which programs and bytes the tests of properties try, and those of `fuzz`.
const SEEDS: [&str; 2] = ["PROPTEST_RNG_SEED", "RIPSTOP_SMOKE_SEED"];

/// Other ones each time, so that each run looks at something new; the line of a job says which, and
/// the environment sets them again.
fn seeds() -> Vec<(&'static str, OsString)> {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos() as u64;
    let seed = |name| {
        (
            name,
            env::var_os(name).unwrap_or_else(|| now.to_string().into()),
        )
    };
    SEEDS.map(seed).into()
}

/// A job of one program, with the seeds in its environment.
fn seeded(command: Command) -> Plan {
    Plan::Run(vec![seeded_step(command)])
}

/// Adds the seeds to the environment of a program with tests.
fn seeded_step(mut command: Command) -> Step {
    let seeds = seeds();
    command.envs(seeds.iter().cloned());
    Step {
        command,
        voice: Voice::Harness,
        seeds,
    }
}

/// The tests that run every decoder on random input.
fn fuzz(ws: &Workspace) -> Plan {
    let Some(package) = ws.package(FUZZ) else {
        return Plan::Broken("fuzz/ is not there".to_owned());
    };
    let mut command = cargo(ws, "test --package");
    command.arg(&package.name);
    seeded(command)
}

/// The rings of `mem` under loom, whose atomics take the place of the real ones. Everything is
/// built anew for that, in a folder of its own.
fn model(ws: &Workspace) -> Plan {
    let Some(package) = ws.package("mem") else {
        return Plan::Broken("crates/mem is not there".to_owned());
    };
    let mut command = cargo(ws, "test --locked --release --lib --package");
    command.arg(&package.name).arg("ring::model");
    command.env("RUSTFLAGS", "--cfg loom");
    command.env("CARGO_TARGET_DIR", ws.target.join("loom"));
    one(command, Voice::Harness)
}

/// The prefix, and what the job `interop` installs of it; Debian packages where Debian's tool for them is.
fn distribution(ws: &Workspace) -> Plan {
    if ws.package("capi").is_none() {
        return Plan::Broken("crates/capi is not there".to_owned());
    }
    let mut command = cargo(ws, "xtask dist --wheel");
    if dist::has_debian_tools() {
        command.arg("--deb");
    }
    one(command, Voice::Status)
}

fn rustdoc(ws: &Workspace) -> Command {
    let mut command = cargo(ws, "doc --workspace --no-deps --lib");
    command.args(["--features", FEATURES]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// The providers that the common suite tries.
const PROVIDERS: [&str; 3] = ["tcp", "shm", "lnx"];

/// The level at which the suite tries sides in several processes, which is one of its own: each
/// process has a progress thread, and its program calls from one thread.
const APART: &str = "domain-auto";

/// The provider whose messages are in packets. It shares all but those with tcp, so not every way in is tried.
const IN_PACKETS: &str = "tcp;ofi_rxm";

/// Of the cases on that provider, those that are tried on the Rust object model: they are left out, or have less to
/// do, where each side is in a process of its own.
const CASES_IN_PACKETS: [&str; 9] = [
    "fi_atomic",
    "fi_av",
    "fi_cntr",
    "fi_cq",
    "fi_domain",
    "fi_getinfo",
    "fi_mr",
    "fi_rma",
    "fi_trigger",
];

/// The ways of long payloads that shm chooses from: each is tried alone too (`FI_SHM_COPY`).
const COPY_WAYS: [&str; 2] = ["ring", "attach"];

/// The cases of the suite in which the way of a payload matters.
const COPYING_CASES: [&str; 4] = ["fi_msg", "fi_tagged", "fi_rma", "fi_atomic"];

/// What the suite tries under the hook `debug`: reliable datagrams over shm, and connections over tcp.
const WATCHED: [[&str; 4]; 2] = [
    ["--provider", "shm", "--ep", "rdm"],
    ["--provider", "tcp", "--ep", "msg"],
];

/// The suite on each provider of our library, through the C interface and on the Rust object
/// model, at both kinds of threading level; a part of it on the Rust object model with messages in packets. Last,
/// under the hook `debug`, which must name the mistakes that cases make, and no others.
fn conformance(ws: &Workspace) -> Plan {
    let Some(library) = library(ws) else {
        return Plan::Skip(NO_LIBRARY.to_owned());
    };
    let mut programs = Vec::new();
    for provider in PROVIDERS {
        for level in ["safe", "domain"] {
            let arguments = ["--provider", provider, "--threading", level];
            let mut on_library = suite(ws, &arguments);
            on_library.arg("--lib").arg(&library);
            let mut on_rust = suite(ws, &arguments);
            on_rust.arg("--rust");
            programs.extend([on_library, on_rust]);
        }
    }
    let mut in_packets = suite(ws, &["--provider", IN_PACKETS, "--rust"]);
    for cases in CASES_IN_PACKETS {
        in_packets.args(["--filter", cases]);
    }
    programs.push(in_packets);
    for arguments in WATCHED {
        let mut watched = suite(ws, &arguments);
        watched.arg("--hook-debug").arg("--lib").arg(&library);
        programs.push(watched);
    }
    runs_of_the_suite(ws, programs)
}

/// The suite through the C interface with each side of a case in a process of its own, on each provider of our
/// library and with messages in packets, and a part of it for each way of long payloads.
fn apart(ws: &Workspace) -> Plan {
    let Some(library) = library(ws) else {
        return Plan::Skip(NO_LIBRARY.to_owned());
    };
    let on = |provider| {
        let arguments = ["--provider", provider, "--threading", APART, "--apart"];
        let mut program = suite(ws, &arguments);
        program.arg("--lib").arg(&library);
        program
    };
    let providers = PROVIDERS.into_iter().chain([IN_PACKETS]);
    let mut programs: Vec<Command> = providers.map(on).collect();
    for way in COPY_WAYS {
        let mut program = on("shm");
        program.env("FI_SHM_COPY", way);
        for cases in COPYING_CASES {
            program.args(["--filter", cases]);
        }
        programs.push(program);
    }
    runs_of_the_suite(ws, programs)
}

/// Builds the suite, and runs it in each of these ways.
fn runs_of_the_suite(ws: &Workspace, programs: Vec<Command>) -> Plan {
    let runs = programs.into_iter().map(|command| Step {
        command,
        voice: Voice::Script,
        seeds: Vec::new(),
    });
    Plan::Run([suite_built(ws)].into_iter().chain(runs).collect())
}

/// The crates that have unsafe code.
const UNSAFE_HOLDERS: [&str; 7] = [
    "mem",
    "os",
    "capi",
    "hooks",
    "foreign",
    "ibverbs",
    "verbs-shim",
];

/// Tests of buffers that are lent: to system calls (`data` of `os`), and to operations that are dropped, whose peers
/// leave, and whose regions close (`ripstop`), those of an RDMA device among them (`rdma`).
const LENDING_TESTS: [&str; 5] = ["data", "dropping", "leaving", "rma", "rdma"];

/// The sanitized library, the unit tests of the crates with unsafe code and those of lent buffers, and the suite
/// through the C interface on each provider.
///
/// The suite runs at one threading level and without `--apart`: that is what the time of CI allows.
fn asan(ws: &Workspace) -> Plan {
    if let Err(why) = sanitizer::check(ws) {
        return Plan::Skip(why.to_string());
    }
    let mut crates = Vec::new();
    for folder in UNSAFE_HOLDERS.into_iter().chain(["ripstop", "conformance"]) {
        match ws.package(folder) {
            Some(package) => crates.push(package.name.as_str()),
            None => return Plan::Broken(format!("crates/{folder} is not there")),
        }
    }
    let conformance = crates.pop().unwrap_or_default();
    let mut tests = cargo(ws, "test --no-fail-fast --lib");
    for test in LENDING_TESTS {
        tests.args(["--test", test]);
    }
    for package in crates {
        tests.args(["--package", package]);
    }
    tests.args(["--features", FEATURES]);
    tests.args(["--", "--show-output", "--skip", CHILD]);
    sanitizer::instrument(ws, &mut tests).env("ASAN_OPTIONS", sanitizer::FOR_TESTS);
    let step = |command, voice| Step {
        command,
        voice,
        seeds: Vec::new(),
    };
    let mut steps = vec![
        step(cargo(ws, "xtask dist --asan"), Voice::Status),
        seeded_step(tests),
    ];
    for provider in PROVIDERS {
        // Without the Rust object model, which is most of what there is to build.
        let mut command = cargo(ws, "run --quiet --no-default-features --package");
        command.arg(conformance);
        command.args(["--", "--slow", SLOW, "--provider", provider, "--lib"]);
        command.arg(dist::sanitized(ws));
        sanitizer::instrument(ws, &mut command).env("ASAN_OPTIONS", sanitizer::FOR_SUITE);
        steps.push(step(command, Voice::Script));
    }
    Plan::Run(steps)
}

/// The suite on the C library that `interop` has fetched: it shows whether the cases read the
/// man pages right.
fn reference(ws: &Workspace) -> Plan {
    let library = ws.target.join(C_LIBRARY);
    if !library.exists() {
        return Plan::Skip(format!("{C_LIBRARY} is not there: interop fetches it"));
    }
    let mut command = suite(ws, &["--reference", "--agreed", "--lib"]);
    command.arg(&library);
    runs_of_the_suite(ws, vec![command])
}

/// What the suite's bounds on time are multiplied by here, where other programs may want the
/// processor too: only what hangs takes that long.
const SLOW: &str = "20";

/// What the steps after it run.
fn suite_built(ws: &Workspace) -> Step {
    Step {
        command: ws.build_with_tests(["--bin", SUITE]),
        voice: Voice::Status,
        seeds: Vec::new(),
    }
}

/// The conformance suite with `arguments`; [`suite_built`] makes it.
fn suite(ws: &Workspace, arguments: &[&str]) -> Command {
    let mut command = Command::new(ws.built_with_tests(SUITE));
    command.args(["--slow", SLOW]);
    command.args(arguments);
    command
}

/// The library that `cargo xtask dist` made, if it did.
fn library(ws: &Workspace) -> Option<PathBuf> {
    let library = dist::prefix(ws).join("lib").join(dist::SONAME);
    library.exists().then_some(library)
}

/// What `interop/run` tries; the other programs there are no tests.
fn interop(ws: &Workspace) -> Plan {
    match library(ws) {
        None => Plan::Skip(NO_LIBRARY.to_owned()),
        Some(_) => script(ws, "interop/run"),
    }
}

/// One script, if the tree has it.
fn script(ws: &Workspace, path: &str) -> Plan {
    let script = ws.root.join(path);
    match is_executable(&script) {
        true => one(Command::new(script), Voice::Script),
        false => Plan::Broken(format!("{path} is not there")),
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tried_at_random_can_be_repeated() {
        let Plan::Run(steps) = seeded(Command::new("true")) else {
            panic!("nothing to run")
        };
        let [step] = &steps[..] else {
            panic!("one program")
        };
        assert_eq!(step.seeds.len(), SEEDS.len());
        for (name, seed) in &step.seeds {
            let mut set = step.command.get_envs().filter(|(key, _)| key == name);
            assert_eq!(set.next(), Some(((*name).as_ref(), Some(&**seed))));
        }
    }
}
