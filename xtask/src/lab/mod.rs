//! `cargo xtask lab`: guests with RDMA devices, which run on any machine that has QEMU. `docs/design/lab.md` says what
//! was tried.

mod answers;
mod console;
mod guest;
mod image;
mod kernel;
mod modules;
mod packages;
mod programs;
mod siw;
mod suite;
mod userland;

use std::fs::{self, File, TryLockError};
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use indicatif::ProgressBar;
use serde::Deserialize;

use crate::test::process::Interrupt;
use crate::workspace::Workspace;
use console::Line;
use guest::Task;
use kernel::Kernel;
pub(crate) use kernel::Series;
pub(crate) use packages::Unavailable;
use packages::{Fetcher, remove};
use userland::Userland;
pub(crate) use userland::has_prefix;

/// The exit status of `lab run` where the laboratory cannot be used: the one by which other test programs say so.
const SKIPPED: u8 = 77;

/// The folder with what guests run, seen from the top of the tree.
const SOURCES: &str = "lab";

/// What to do in the laboratory.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a shell script in a guest: its output is printed as it comes, with the time; its exit status is returned.
    Run(Run),
    /// Open a shell in a guest; `exit` or Ctrl-A X ends it.
    Shell(Shell),
    /// Run the cases of lab/cases.toml; the last line is `N passed, N failed, N skipped`.
    Test(suite::Options),
}

/// What guests are made of.
#[derive(Args)]
struct Setup {
    /// The kernel.
    #[arg(long, value_name = "SERIES", default_value = "6.1")]
    kernel: Series,
    /// The RDMA device, on an address of 10.7.0.0/24.
    #[arg(long, value_name = "KIND", default_value = "none")]
    rdma: Rdma,
    /// A program of this machine to put into /usr/local/bin, with its libraries; may be given several times.
    #[arg(long, value_name = "PROGRAM")]
    add: Vec<PathBuf>,
    /// Memory of each guest.
    #[arg(long, value_name = "MiB", default_value_t = guest::MEMORY, value_parser = clap::value_parser!(u32).range(256..))]
    memory: u32,
}

#[derive(Args)]
struct Run {
    /// A script for /bin/sh.
    script: PathBuf,
    #[command(flatten)]
    setup: Setup,
    /// How many guests run it, joined by a network.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    nodes: u8,
    /// Copy here what the script writes to $OUT.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seconds that the script may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    limit: u64,
    /// Print one JSON document on standard output; the console goes to standard error.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct Shell {
    #[command(flatten)]
    setup: Setup,
    /// Seconds after which the guest ends all the same.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    limit: u64,
}

/// Kinds of RDMA devices that are made of software.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Rdma {
    /// None.
    #[default]
    None,
    /// RoCE: RDMA over UDP.
    Rxe,
    /// iWARP: RDMA over TCP.
    Siw,
}

impl Rdma {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Rxe => "rxe",
            Self::Siw => "siw",
        }
    }
}

/// Does what is asked for. Where this machine cannot run guests, one line says `SKIP` and why.
pub(crate) fn run(ws: &Workspace, options: &Options) -> anyhow::Result<ExitCode> {
    let done = match &options.command {
        Command::Run(run) => run_script(ws, run),
        Command::Shell(shell) => open_shell(ws, shell),
        Command::Test(options) => return suite::run(ws, options),
    };
    match done {
        Ok(status) => Ok(ExitCode::from(status)),
        Err(error) => match error.downcast_ref::<Unavailable>() {
            Some(_) => {
                eprintln!("SKIP lab: {error:#}");
                Ok(ExitCode::from(SKIPPED))
            }
            None => Err(error),
        },
    }
}

fn run_script(ws: &Workspace, run: &Run) -> anyhow::Result<u8> {
    ensure!(
        run.script.is_file(),
        "there is no script {}",
        run.script.display()
    );
    let lab = Lab::open(ws)?;
    let kernel = lab.kernel(run.setup.kernel, run.setup.rdma)?;
    let folder = lab.run_folder("run")?;
    let initrd = lab.initrd(&kernel, &run.setup.add, &folder.path)?;
    let task = Task {
        kernel: &kernel,
        initrd: &initrd,
        script: Some(&run.script),
        nodes: run.nodes,
        rdma: run.setup.rdma.name(),
        memory: run.setup.memory,
        limit: Duration::from_secs(run.limit),
        folder: &folder.path,
    };
    let several = run.nodes > 1;
    let mut ended = task.run(&lab.interrupt, &|node, line| {
        let text = told(node, line, several);
        match run.json {
            true => eprintln!("{text}"),
            false => println!("{text}"),
        }
    })?;
    if let Some(out) = &run.out {
        copy_files(&ended.out, out)?;
        ended.out.clone_from(out);
    }
    for node in &ended.nodes {
        if let Some(remark) = &node.remark {
            eprintln!("node {}: {remark}", node.node);
        }
    }
    if run.json {
        println!("{}", serde_json::to_string(&ended)?);
    }
    Ok(ended.status)
}

fn open_shell(ws: &Workspace, shell: &Shell) -> anyhow::Result<u8> {
    let lab = Lab::open(ws)?;
    let kernel = lab.kernel(shell.setup.kernel, shell.setup.rdma)?;
    let folder = lab.run_folder("shell")?;
    let initrd = lab.initrd(&kernel, &shell.setup.add, &folder.path)?;
    eprintln!(
        "files for the guest's /lab/share: {}",
        folder.path.join("share").display()
    );
    let task = Task {
        kernel: &kernel,
        initrd: &initrd,
        script: None,
        nodes: 1,
        rdma: shell.setup.rdma.name(),
        memory: shell.setup.memory,
        limit: Duration::from_secs(shell.limit),
        folder: &folder.path,
    };
    task.shell()
}

/// A script that another command runs in one guest with Soft-RoCE.
pub(crate) struct GuestScript<'a> {
    /// Of the folder with the files of the run.
    pub(crate) name: &'a str,
    pub(crate) script: &'a Path,
    pub(crate) series: Series,
    /// Programs for `/usr/local/bin`, folders for `/usr/local/share`.
    pub(crate) added: &'a [PathBuf],
    /// Memory of the guest, in MiB.
    pub(crate) memory: u32,
    /// The longest that it may take.
    pub(crate) limit: Duration,
}

impl GuestScript<'_> {
    /// Runs it, gives each line of the console to `say`, and copies the files of `$OUT` to `out`. Says how the script
    /// ended if not with the status 0.
    ///
    /// # Errors
    /// [`Unavailable`] where this machine cannot run guests.
    pub(crate) fn run(
        &self,
        ws: &Workspace,
        out: &Path,
        say: &(dyn Fn(&str) + Sync),
    ) -> anyhow::Result<Option<String>> {
        let lab = Lab::open(ws)?;
        let kernel = lab.kernel(self.series, Rdma::Rxe)?;
        let folder = lab.run_folder(self.name)?;
        let initrd = lab.initrd(&kernel, self.added, &folder.path)?;
        let task = Task {
            kernel: &kernel,
            initrd: &initrd,
            script: Some(self.script),
            nodes: 1,
            rdma: Rdma::Rxe.name(),
            memory: self.memory,
            limit: self.limit,
            folder: &folder.path,
        };
        let ended = task.run(&lab.interrupt, &|_, line| say(&line.text))?;
        fs::remove_file(initrd)?;
        copy_files(&ended.out, out)?;
        let remark = ended.nodes.into_iter().find_map(|node| node.remark);
        Ok((ended.status != 0).then(|| {
            remark.unwrap_or_else(|| format!("the script in the guest has status {}", ended.status))
        }))
    }
}

/// A line of a console for people.
fn told(node: u8, line: &Line, several: bool) -> String {
    let Line { seconds, text } = line;
    match several {
        true => format!("[{seconds:7.2}] {node}| {text}"),
        false => format!("[{seconds:7.2}] {text}"),
    }
}

/// Copies the files in `from`, and those in its folders, to `to`.
fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        let kind = entry.file_type()?;
        if kind.is_dir() {
            copy_files(&entry.path(), &place)?;
        } else if kind.is_file() {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

/// The laboratory of this tree, with all that does not depend on the guest.
struct Lab<'a> {
    ws: &'a Workspace,
    folder: PathBuf,
    interrupt: Interrupt,
    fetcher: Fetcher,
    userland: Userland,
}

/// A folder for the files of a run, which no other process uses meanwhile. They stay until the next run.
struct RunFolder {
    path: PathBuf,
    _lock: File,
}

impl<'a> Lab<'a> {
    /// Looks for what is needed and fetches what is the same for every guest.
    fn open(ws: &'a Workspace) -> anyhow::Result<Self> {
        ensure!(
            cfg!(target_arch = "x86_64"),
            Unavailable("guests are x86_64, and this machine is not".to_owned())
        );
        guest::version().with_context(|| {
            Unavailable(format!(
                "no {}: install the package qemu-system-x86",
                guest::QEMU
            ))
        })?;
        let folder = ws.target.join("lab");
        fs::create_dir_all(&folder)?;
        let interrupt = Interrupt::listen()?;
        let fetcher = Fetcher::new(&folder, &interrupt);
        let userland = alone(&folder, "programs", || {
            fetcher.with_new_lists(|| Userland::fetch(&fetcher))
        })?;
        Ok(Self {
            ws,
            folder,
            interrupt,
            fetcher,
            userland,
        })
    }

    /// A kernel with the modules for this device.
    fn kernel(&self, series: Series, rdma: Rdma) -> anyhow::Result<Kernel> {
        let busybox = self.userland.busybox()?;
        let fetcher = &self.fetcher;
        let about = format!("kernel {}", series.name());
        let mut kernel = alone(&self.folder, &about, || {
            fetcher.with_new_lists(|| kernel::fetch(fetcher, series, &busybox))
        })?;
        if rdma == Rdma::Siw {
            kernel.modules = alone(&self.folder, "siw", || {
                fetcher.with_new_lists(|| siw::build(fetcher, series, &kernel, &busybox))
            })?;
        }
        Ok(kernel)
    }

    /// An empty folder for a run: the first of those of this name that no other process has.
    fn run_folder(&self, name: &str) -> anyhow::Result<RunFolder> {
        let runs = self.folder.join("runs");
        fs::create_dir_all(&runs)?;
        for number in 1.. {
            let lock = File::create(runs.join(format!("{name}.{number}.lock")))?;
            match lock.try_lock() {
                Ok(()) => {
                    let path = runs.join(format!("{name}.{number}"));
                    remove(&path)?;
                    fs::create_dir(&path)?;
                    return Ok(RunFolder { path, _lock: lock });
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error.into()),
            }
        }
        bail!("every folder for runs is in use")
    }

    /// Writes the initial file system for `kernel` into `folder`.
    fn initrd(&self, kernel: &Kernel, added: &[PathBuf], folder: &Path) -> anyhow::Result<PathBuf> {
        let mut image = self.userland.image(self.ws, added)?;
        image.copy_tree("/usr/lib/modules", &kernel.modules)?;
        image.link("/lib/modules", "/usr/lib/modules");
        let sources = self.ws.root.join(SOURCES).join("guest");
        image.copy_tree("/lab", &sources)?;
        image.link("/init", "/lab/init");
        image.folder("/lab/share");
        let initrd = folder.join("initrd");
        image.pack(BufWriter::new(File::create(&initrd)?))?;
        Ok(initrd)
    }
}

/// Prepares something in `folder` while no other process does, and shows that it goes on.
fn alone<T>(
    folder: &Path,
    about: &str,
    prepare: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let spinner = ProgressBar::new_spinner().with_message(format!("lab: {about} ..."));
    spinner.enable_steady_tick(Duration::from_millis(200));
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let prepared = prepare();
    spinner.finish_and_clear();
    prepared
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_when_and_where() {
        let line = Line {
            seconds: 12.345678,
            text: "up".to_owned(),
        };
        assert_eq!(told(1, &line, false), "[  12.35] up");
        assert_eq!(told(2, &line, true), "[  12.35] 2| up");
    }

    #[test]
    fn files_come_back_with_their_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let (from, to) = (folder.path().join("from"), folder.path().join("to/there"));
        fs::create_dir_all(from.join("2")).expect("made");
        fs::write(from.join("2/log"), "text").expect("written");
        copy_files(&from, &to).expect("copied");
        assert_eq!(fs::read_to_string(to.join("2/log")).expect("there"), "text");
    }
}
