//! Processes that have status pages.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use ripstop_core::status::Snapshot;
use ripstop_os::{PageFile, ProcStat, clean_status_pages, clock, status_pages};
use ripstop_types::Errno;

/// A process that has made no progress for so long does not poll: of one that does, less is seen when it
/// polls rarely.
const IDLE: Duration = Duration::from_secs(5);

/// A domain of a process, as it was a moment ago.
#[derive(Clone, Debug)]
pub(super) struct Domain {
    /// Its page, which is always the same.
    pub(super) path: PathBuf,
    /// When the snapshot was written.
    pub(super) written: Duration,
    /// How old the snapshot is.
    pub(super) age: Duration,
    /// How long ago the program made progress there itself.
    pub(super) polled: Duration,
    /// Threads of the program that sleep in a call.
    pub(super) sleepers: u64,
    pub(super) shown: Snapshot,
}

impl Domain {
    /// Whether the snapshot is one of the last seconds: somebody makes progress.
    pub(super) fn is_fresh(&self) -> bool {
        self.age < IDLE
    }

    /// Whether a thread of the program sleeps until something comes here.
    fn is_slept_on(&self) -> bool {
        self.sleepers > 0 || self.is_fresh() && self.shown.sleeps_outside
    }

    /// Whether the library's thread makes progress here.
    fn is_served(&self) -> bool {
        self.is_fresh() && self.shown.has_thread
    }

    /// Whether anybody makes progress here, or sleeps until something comes. A process may poll one of its
    /// domains and leave another alone.
    pub(super) fn is_attended(&self) -> bool {
        self.polled < IDLE || self.is_slept_on() || self.is_served()
    }
}

/// A process of this machine.
#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) activity: Activity,
    pub(super) domains: Vec<Domain>,
}

/// What a process does, as far as its progress is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    /// It makes progress, or has just done so.
    Polls,
    /// A thread of it sleeps until something comes, in a call of the library or on a descriptor of it.
    Sleeps,
    /// The library's own thread makes progress for it.
    Served,
    /// It has made no progress for so long, and computes.
    Computes(Duration),
    /// It has made no progress for so long, and sleeps in no call of the library.
    Away(Duration),
    /// A signal has stopped it, and it made progress last so long ago.
    Stopped(Duration),
    /// A debugger has.
    Traced(Duration),
    /// It has ended, and the last that is known is so old.
    Ended(Duration),
}

impl Activity {
    /// What a process does whose domains are these, all of them together ([`Domain::is_attended`] is about
    /// one).
    pub(super) fn of(stat: Option<ProcStat>, domains: &[Domain]) -> Self {
        let polled = domains.iter().map(|domain| domain.polled).min();
        let polled = polled.unwrap_or_default();
        let Some(stat) = stat.filter(|stat| !stat.has_ended()) else {
            let age = domains.iter().map(|domain| domain.age).min();
            return Self::Ended(age.unwrap_or_default());
        };
        let sleeps = domains.iter().any(Domain::is_slept_on);
        let is_served = domains.iter().all(Domain::is_served);
        match stat.state {
            'T' => Self::Stopped(polled),
            't' => Self::Traced(polled),
            _ if sleeps => Self::Sleeps,
            _ if polled < IDLE => Self::Polls,
            _ if is_served => Self::Served,
            'R' => Self::Computes(polled),
            _ => Self::Away(polled),
        }
    }

    /// In words that follow the process's name.
    pub(super) fn text(self) -> String {
        match self {
            Self::Polls => "makes progress".to_owned(),
            Self::Sleeps => "sleeps until something comes".to_owned(),
            Self::Served => "leaves progress to the library's thread".to_owned(),
            Self::Computes(long) => {
                format!("has not polled for {} s (it computes)", long.as_secs())
            }
            Self::Away(long) => format!(
                "has not polled for {} s (it sleeps in a call that is not of this library)",
                long.as_secs()
            ),
            Self::Stopped(long) => {
                format!(
                    "has not polled for {} s (stopped by a signal)",
                    long.as_secs()
                )
            }
            Self::Traced(long) => {
                format!(
                    "has not polled for {} s (stopped by a debugger)",
                    long.as_secs()
                )
            }
            Self::Ended(long) => format!("has ended (seen last {} s ago)", long.as_secs()),
        }
    }

    /// A word for it.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Polls => "polls",
            Self::Sleeps => "sleeps",
            Self::Served => "served",
            Self::Computes(_) => "computes",
            Self::Away(_) => "away",
            Self::Stopped(_) => "stopped",
            Self::Traced(_) => "traced",
            Self::Ended(_) => "ended",
        }
    }
}

impl Process {
    /// How people know it.
    pub(super) fn name(&self) -> String {
        let mut shown = self.domains.iter().map(|domain| &domain.shown);
        let Some(first) = shown.next() else {
            return format!("process {}", self.pid);
        };
        match first.rank {
            Some(rank) => format!("rank {rank} (pid {})", self.pid),
            None => format!("{} (pid {})", first.program, self.pid),
        }
    }
}

/// The user whose process this is; this user, where there is none.
fn user_of(pid: u32) -> u32 {
    let owner = std::fs::metadata(format!("/proc/{pid}"));
    owner.map_or_else(|_| ripstop_os::user(), |owner| owner.uid())
}

/// All processes of the user of this one that show something, those that have ended lately included. What
/// is no page, or cannot be read, is left out.
pub(super) fn all(pid: u32) -> Vec<Process> {
    let user = user_of(pid);
    let files = status_pages(user);
    // Another user's folder is not this one's to clean.
    if user == ripstop_os::user() {
        clean_status_pages(&files);
    }
    let mut processes: BTreeMap<(u32, u64), Process> = BTreeMap::new();
    for file in files {
        let Ok(domain) = read(&file) else { continue };
        let process = processes
            .entry((file.pid, file.start))
            .or_insert_with(|| Process {
                pid: file.pid,
                activity: Activity::Polls,
                domains: Vec::new(),
            });
        process.domains.push(domain);
    }
    for ((pid, start), process) in &mut processes {
        let stat = ProcStat::of(*pid).ok().filter(|stat| stat.start == *start);
        process.activity = Activity::of(stat, &process.domains);
    }
    processes.into_values().collect()
}

fn read(file: &PageFile) -> Result<Domain> {
    let copy = file.read()?;
    let shown = Snapshot::decode(&copy.snapshot)?;
    let now = clock::now();
    Ok(Domain {
        path: file.path.clone(),
        written: copy.written,
        age: now.saturating_sub(copy.written),
        polled: now.saturating_sub(copy.polled),
        sleepers: copy.sleepers,
        shown,
    })
}

/// The one with this number.
///
/// # Errors
/// Why it shows nothing, and what to do.
pub(super) fn find(processes: &[Process], pid: u32) -> Result<&Process> {
    let with_number = || processes.iter().filter(|process| process.pid == pid);
    let is_alive = |process: &&Process| !matches!(process.activity, Activity::Ended(_));
    if let Some(process) = with_number()
        .find(is_alive)
        .or_else(|| with_number().next_back())
    {
        return Ok(process);
    }
    match ProcStat::of(pid) {
        Err(Errno::ENOENT) => bail!("there is no process {pid}{}", others(processes)),
        Err(error) => bail!("process {pid} cannot be looked at: {error}"),
        Ok(stat) if stat.has_ended() => bail!("process {pid} has ended{}", others(processes)),
        Ok(_) => {}
    }
    let (user, own) = (user_of(pid), ripstop_os::user());
    if user != own && own != 0 {
        bail!("process {pid} is of another user ({user}): only that user sees what it shows");
    }
    bail!(
        "process {pid} shows nothing: it has enabled no endpoint of tcp, shm or lnx of this library, has another libfabric loaded (see /proc/{pid}/maps), or was started with \
         FI_STATUS_PAGE=no{}",
        others(processes)
    )
}

/// The number of a process, as the user has written it.
///
/// # Errors
/// What to write instead.
pub(super) fn number(text: &str) -> Result<u32> {
    let number = text.parse();
    number.map_err(|_| {
        let others = others(&all(ripstop_os::pid()));
        anyhow!("name a process by its number, which `pgrep PROGRAM` prints{others}")
    })
}

/// Which processes could be named instead.
fn others(processes: &[Process]) -> String {
    let alive = processes
        .iter()
        .filter(|process| !matches!(process.activity, Activity::Ended(_)));
    let names: Vec<String> = alive.take(8).map(Process::name).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!("; these show something: {}", names.join(", ")),
    }
}
