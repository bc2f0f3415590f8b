//! The files that the sampler reads. They are read and written, not mapped: a file that somebody makes
//! shorter is an error then, not a signal.

use core::sync::atomic::{AtomicU64, Ordering};
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn, params};

use super::counts::Counts;
use crate::layout::{FINISHED, FLAGS_AT, LENGTH, NUMBERS, REQUEST};

/// Where the folders are by default.
const BASE: &str = "/dev/shm/ofi";

/// Who may use the folder that all users share: as that of temporary files.
const BASE_MODE: u32 = 0o1777;

/// Who may use the folders of a user, and the files, by default.
const FOLDER_MODE: i32 = 0o1700;
const FILE_MODE: i32 = 0o600;

/// The file of one fabric.
#[derive(Debug)]
pub(super) struct Shared {
    path: PathBuf,
    /// The process that made it. A forked child leaves it alone.
    process: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` when it is closed.
    file: Option<File>,
    /// What is open.
    open: Vec<Arc<Counts>>,
    /// What was counted of domains that are closed.
    retired: Vec<u64>,
    /// What the sampler has got.
    given: Vec<u64>,
}

/// Those that are open.
static ALL: Mutex<Vec<Arc<Shared>>> = Mutex::new(Vec::new());

impl Shared {
    /// Makes the file of a fabric of this provider. Without one, which is a line in the log, nothing is
    /// shown.
    pub(super) fn create(provider: &str) -> Option<Arc<Self>> {
        match place(provider).and_then(|path| Ok((make(&path)?, path))) {
            Ok((file, path)) => {
                fi_info!(
                    provider,
                    Subsys::Fabric,
                    "FI_HOOK=monitor: fi_mon_sampler finds what is counted in {}",
                    path.display()
                );
                let state = State {
                    file: Some(file),
                    open: Vec::new(),
                    retired: vec![0; NUMBERS],
                    given: vec![0; NUMBERS],
                };
                let shared = Arc::new(Self {
                    path,
                    process: std::process::id(),
                    state: Mutex::new(state),
                });
                ALL.lock().push(Arc::clone(&shared));
                Some(shared)
            }
            Err(error) => {
                fi_warn!(
                    provider,
                    Subsys::Fabric,
                    "FI_HOOK=monitor counts nothing, for want of a file: {error}; name another folder with \
                     FI_OFI_HOOK_MONITOR_BASEPATH"
                );
                None
            }
        }
    }

    /// What this counts is shown from now on.
    pub(super) fn add(&self, counts: &Arc<Counts>) {
        self.state.lock().open.push(Arc::clone(counts));
    }

    /// Nothing more is counted here.
    pub(super) fn retire(&self, counts: &Arc<Counts>) {
        let mut state = self.state.lock();
        let State { open, retired, .. } = &mut *state;
        open.retain(|one| !Arc::ptr_eq(one, counts));
        counts.add_to(retired);
    }

    /// Gives the sampler what it has asked for. A thread that comes while another one looks goes on.
    #[cold]
    pub(super) fn answer(&self) {
        if self.process != std::process::id() {
            return;
        }
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if let Err(error) = state.answer() {
            state.file = None;
            fi_warn!(
                "core",
                Subsys::Fabric,
                "FI_HOOK=monitor cannot use {} any more: {error}; was it removed or made shorter?",
                self.path.display()
            );
        }
    }

    /// The fabric is closed, or the process ends. The file goes, or stays with the last numbers
    /// (`FI_OFI_HOOK_MONITOR_LINGER`).
    pub(super) fn close(&self) {
        ALL.lock().retain(|one| one.path != self.path);
        self.finish();
    }

    fn finish(&self) {
        if self.process != std::process::id() {
            return;
        }
        // A thread that was ended while it wrote may hold the lock.
        let Some(mut state) = self.state.try_lock() else {
            return;
        };
        if state.file.is_none() {
            return;
        }
        let lingers = params().get::<bool>(None, "ofi_hook_monitor_linger") == Ok(true);
        let ended = match lingers {
            true => state.linger(),
            false => fs::remove_file(&self.path),
        };
        state.file = None;
        if let Err(error) = ended {
            let path = self.path.display();
            fi_warn!(
                "core",
                Subsys::Fabric,
                "FI_HOOK=monitor cannot end {path}: {error}"
            );
        }
    }
}

impl State {
    fn flags(&self) -> io::Result<u8> {
        let mut flags = [0];
        if let Some(file) = &self.file {
            file.read_exact_at(&mut flags, FLAGS_AT as u64)?;
        }
        Ok(flags[0])
    }

    fn write(&self, at: usize, bytes: &[u8]) -> io::Result<()> {
        match &self.file {
            Some(file) => file.write_all_at(bytes, at as u64),
            None => Ok(()),
        }
    }

    /// What was counted since the sampler got something; it has got it now.
    fn take(&mut self) -> Vec<u64> {
        let mut totals = self.retired.clone();
        for counts in &self.open {
            counts.add_to(&mut totals);
        }
        let risen = totals.iter().zip(&self.given);
        let risen = risen.map(|(now, given)| now.wrapping_sub(*given)).collect();
        self.given = totals;
        risen
    }

    fn answer(&mut self) -> io::Result<()> {
        let flags = self.flags()?;
        if flags & REQUEST == 0 {
            return Ok(());
        }
        let risen = self.take();
        self.write(0, &bytes_of(&risen))?;
        self.write(FLAGS_AT, &[flags & !REQUEST])
    }

    /// Writes what the sampler lacks: what was counted, and what is in the file unread.
    fn linger(&mut self) -> io::Result<()> {
        let flags = self.flags()?;
        // So that it does not read meanwhile.
        self.write(FLAGS_AT, &[flags | REQUEST])?;
        let mut risen = self.take();
        if let Some(file) = self.file.as_ref().filter(|_| flags & REQUEST == 0) {
            let mut unread = vec![0; FLAGS_AT];
            file.read_exact_at(&mut unread, 0)?;
            for (number, bytes) in risen.iter_mut().zip(unread.as_chunks().0) {
                *number = number.wrapping_add(u64::from_ne_bytes(*bytes));
            }
        }
        self.write(0, &bytes_of(&risen))?;
        self.write(FLAGS_AT, &[(flags | FINISHED) & !REQUEST])
    }
}

fn bytes_of(numbers: &[u64]) -> Vec<u8> {
    numbers
        .iter()
        .flat_map(|number| number.to_ne_bytes())
        .collect()
}

/// The process ends: what is open is ended.
pub(crate) fn at_end() {
    if let Some(mut all) = ALL.try_lock() {
        for shared in std::mem::take(&mut *all) {
            shared.finish();
        }
    }
}

/// The path for a new file, whose folders are there.
fn place(provider: &str) -> io::Result<PathBuf> {
    static FILES: AtomicU64 = AtomicU64::new(1);
    let text = |name| params().get::<String>(None, name).unwrap_or_default();
    let given = text("ofi_hook_monitor_basepath");
    let base = Path::new(if given.is_empty() { BASE } else { &given });
    let folder = base.join(ripstop_os::user().to_string());
    let mode = mode("ofi_hook_monitor_dir_mode", FOLDER_MODE);
    if make_folder(base, BASE_MODE)? {
        // Without what the process masks.
        fs::set_permissions(base, Permissions::from_mode(BASE_MODE))?;
    }
    make_folder(&folder, mode)?;
    let found = fs::symlink_metadata(&folder)?;
    if !found.is_dir() || found.uid() != ripstop_os::user() {
        let why = format!("{} is not a folder of this user", folder.display());
        return Err(io::Error::other(why));
    }
    let folder = folder.join(ripstop_os::hostname());
    make_folder(&folder, mode)?;
    let (parent, process, job) = (parent_id(), std::process::id(), job());
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    Ok(folder.join(format!("{parent}_{process}_{number}_{job}_{provider}")))
}

/// Makes a folder; false if it is there.
fn make_folder(path: &Path, mode: u32) -> io::Result<bool> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => {
            let what = format!("the folder {} cannot be made: {error}", path.display());
            Err(io::Error::new(error.kind(), what))
        }
    }
}

/// Makes a file in place of one that a process of the same number has left.
fn make(path: &Path) -> io::Result<File> {
    let create = || {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE as u32);
        options.open(path)
    };
    let file = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            fs::remove_file(path)?;
            create()?
        }
        other => other?,
    };
    let mode = mode("ofi_hook_monitor_file_mode", FILE_MODE);
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all_at(&[0; LENGTH], 0)?;
    Ok(file)
}

/// The permissions that a variable gives.
fn mode(name: &str, by_default: i32) -> u32 {
    let given = params().get::<i32>(None, name).unwrap_or(by_default);
    u32::try_from(given).unwrap_or(by_default as u32) & 0o7777
}

/// The number of the job, 0 without one.
fn job() -> u32 {
    let given = std::env::var("SLURM_JOB_ID").unwrap_or_default();
    given.trim().parse().unwrap_or_default()
}
