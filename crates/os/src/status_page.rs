//! Files in memory by which domains show their state to other processes of the same user
//! (`docs/design/status-page.md`).

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use ripstop_types::{Errno, Result};

use crate::fork::at_exit;
use crate::image::is_privileged;
use crate::memory::{SharedMemory, reserve};
use crate::proc_stat::ProcStat;
use crate::{clock, host};

/// Bytes of a page.
const PAGE: usize = 64 << 10;

/// The first word of a page of this layout; its last byte is the version.
const MAGIC: u64 = u64::from_be_bytes(*b"ripstop\x03");

/// Where the words of a page are, and the snapshot behind them.
const AT_MAGIC: usize = 0;
const AT_SEQUENCE: usize = 8;
const AT_LENGTH: usize = 16;
const AT_WRITTEN: usize = 24;
const AT_POLLED: usize = 32;
const AT_SLEEPERS: usize = 40;
const AT_SNAPSHOT: usize = 64;

/// How long the page of a process that was killed stays.
const KEPT: Duration = Duration::from_secs(600);

/// Files that a new page looks at, to take away what processes left that were killed.
const MAX_LOOKED_AT: usize = 256;

/// Attempts to copy a page of which no snapshot is being written.
const ATTEMPTS: u32 = 1000;

/// The files of this process, which go when it exits.
static OWN: Mutex<Vec<(u32, PathBuf)>> = Mutex::new(Vec::new());

/// The page of a domain, to be written by it.
#[derive(Debug)]
pub struct StatusPage {
    memory: SharedMemory,
    path: PathBuf,
    pid: u32,
}

/// The name of a page in its folder: which process it is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageFile {
    /// The file.
    pub path: PathBuf,
    /// The namespace in which the process has its number: containers may share a folder.
    namespace: u64,
    /// The process.
    pub pid: u32,
    /// When that was started, as in [`ProcStat`].
    pub start: u64,
}

/// A copy of a page. Of what is in it nothing was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// When the snapshot was written, by [`clock::now`] of this machine.
    pub written: Duration,
    /// When the program made progress itself, as far as it was looked.
    pub polled: Duration,
    /// Threads of the program that sleep in a call.
    pub sleepers: u64,
    /// The snapshot, as it was given to [`StatusPage::publish`].
    pub snapshot: Vec<u8>,
}

impl StatusPage {
    /// The most bytes of a snapshot.
    pub const MAX_SNAPSHOT: usize = PAGE - AT_SNAPSHOT;

    /// Makes a page for this process, which goes when this is dropped or the process exits.
    ///
    /// # Errors
    /// Those of making a file: no folder for it, no room.
    pub fn create() -> Result<Self> {
        let mut result = Err(Errno::EACCES);
        for folder in folders(host::user()) {
            result = make_folder(&folder).and_then(|()| {
                let mut files = files_in(&folder);
                // Where there are many, others are looked at each time.
                let first = host::pid() as usize % files.len().max(1);
                files.rotate_left(first);
                files.truncate(MAX_LOOKED_AT);
                clean(&files);
                Self::create_in(&folder)
            });
            if result.is_ok() {
                break;
            }
            // One without room is left as it was found.
            let _ = std::fs::remove_dir(&folder);
        }
        result
    }

    fn create_in(folder: &Path) -> Result<Self> {
        let pid = host::pid();
        let (namespace, start) = (pid_namespace()?, ProcStat::of(pid)?.start);
        let (file, path) = new_file(folder, &format!("{namespace}-{pid}-{start}"))?;
        let memory = reserve(&file, PAGE as u64)
            .and_then(|()| SharedMemory::inherited(&file, 0, PAGE, true));
        let memory = memory.inspect_err(|_| {
            let _ = std::fs::remove_file(&path);
        })?;
        let page = Self { memory, path, pid };
        // A forked child may find it locked for ever. Then the file stays until somebody looks.
        if let Ok(mut own) = OWN.try_lock() {
            own.push((pid, page.path.clone()));
        }
        // Without it the file stays until somebody looks.
        let _ = at_exit(remove_own);
        page.store(AT_POLLED, clock::now().as_nanos() as u64);
        page.store(AT_MAGIC, MAGIC);
        Ok(page)
    }

    /// Writes a snapshot of at most [`StatusPage::MAX_SNAPSHOT`] bytes; `polled` says that the program
    /// has just made progress itself. Called by one thread at a time. A forked child writes nothing.
    pub fn publish(&self, snapshot: &[u8], now: Duration, polled: bool) {
        let Some(region) = self.memory.region() else {
            return;
        };
        if host::pid() != self.pid || snapshot.len() > Self::MAX_SNAPSHOT {
            return;
        }
        let now = now.as_nanos() as u64;
        let load = |at| region.load_u64(at, Ordering::Relaxed).unwrap_or_default();
        let odd = load(AT_SEQUENCE) | 1;
        self.store(AT_SEQUENCE, odd);
        fence(Ordering::Release);
        // It fits, by the check above.
        let _ = region.write(AT_SNAPSHOT, snapshot);
        self.store(AT_LENGTH, snapshot.len() as u64);
        self.store(AT_WRITTEN, now);
        if polled {
            self.store(AT_POLLED, now);
        }
        let even = odd.wrapping_add(1);
        let _ = region.store_u64(AT_SEQUENCE, even, Ordering::Release);
    }

    /// So many threads of the program sleep in a call.
    pub fn note_sleepers(&self, count: u32) {
        self.store(AT_SLEEPERS, count.into());
    }

    fn store(&self, at: usize, value: u64) {
        if let Some(region) = self.memory.region() {
            // All words are aligned and inside.
            let _ = region.store_u64(at, value, Ordering::Relaxed);
        }
    }
}

impl Drop for StatusPage {
    fn drop(&mut self) {
        // A forked child has the value too.
        if host::pid() == self.pid {
            if let Ok(mut own) = OWN.try_lock() {
                own.retain(|(_, path)| *path != self.path);
            }
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl PageFile {
    /// By the path of a file; `None` if it has another name.
    fn of(path: PathBuf) -> Option<Self> {
        let mut parts = path.file_name()?.to_str()?.split('-');
        let namespace = parts.next()?.parse().ok()?;
        let pid = parts.next()?.parse().ok()?;
        let start = parts.next()?.parse().ok()?;
        parts.next()?.parse::<u32>().ok()?;
        parts.next().is_none().then_some(Self {
            path,
            namespace,
            pid,
            start,
        })
    }

    /// Whether the process has its number in the namespace of this one, so that the system can be asked for it.
    fn is_known(&self) -> bool {
        pid_namespace() == Ok(self.namespace)
    }

    /// Whether the process is known to have ended.
    fn has_ended(&self) -> bool {
        self.is_known()
            && match ProcStat::of(self.pid) {
                Ok(stat) => stat.start != self.start || stat.has_ended(),
                Err(error) => error == Errno::ENOENT,
            }
    }

    /// Copies the page.
    ///
    /// # Errors
    /// `EAGAIN` if a snapshot is being written all the time, which is so of a process that died or was
    /// stopped meanwhile; `EINVAL` if it is no page, or none of this version; those of reading a file.
    pub fn read(&self) -> Result<PageCopy> {
        let mut options = OpenOptions::new();
        let options = options
            .read(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        let file = options.open(&self.path).map_err(|error| io(&error))?;
        for _ in 0..ATTEMPTS {
            if let Some(copy) = copy(&file)? {
                return Ok(copy);
            }
            std::thread::yield_now();
        }
        Err(Errno::EAGAIN)
    }
}

/// Copies a page; `None` if a snapshot was being written meanwhile.
fn copy(file: &File) -> Result<Option<PageCopy>> {
    let mut head = [0; AT_SNAPSHOT];
    let exact = |bytes: &mut [u8], at: usize| {
        // The end of a file that was cut.
        file.read_exact_at(bytes, at as u64)
            .map_err(|_| Errno::EINVAL)
    };
    exact(&mut head, 0)?;
    let word = |head: &[u8; AT_SNAPSHOT], at: usize| {
        let bytes = head.get(at..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    let (magic, before) = (word(&head, AT_MAGIC), word(&head, AT_SEQUENCE));
    if magic != MAGIC {
        return Err(Errno::EINVAL);
    }
    if before % 2 != 0 {
        return Ok(None);
    }
    fence(Ordering::Acquire);
    exact(&mut head, 0)?;
    let len = usize::try_from(word(&head, AT_LENGTH)).unwrap_or(usize::MAX);
    if len > StatusPage::MAX_SNAPSHOT {
        return Err(Errno::EINVAL);
    }
    let mut snapshot = vec![0; len];
    exact(&mut snapshot, AT_SNAPSHOT)?;
    fence(Ordering::Acquire);
    let mut after = [0; AT_SNAPSHOT];
    exact(&mut after, 0)?;
    if word(&after, AT_SEQUENCE) != before || word(&head, AT_SEQUENCE) != before {
        return Ok(None);
    }
    Ok(Some(PageCopy {
        written: Duration::from_nanos(word(&head, AT_WRITTEN)),
        polled: Duration::from_nanos(word(&head, AT_POLLED)),
        sleepers: word(&head, AT_SLEEPERS),
        snapshot,
    }))
}

/// The namespace of process numbers that this process is in.
fn pid_namespace() -> Result<u64> {
    let found = std::fs::metadata("/proc/self/ns/pid");
    found.map(|found| found.ino()).map_err(|error| io(&error))
}

/// A new file, whose name begins so. The process that this one was before it called `exec`, and another copy of
/// this library in it, may have files of the same beginning.
fn new_file(folder: &Path, name: &str) -> Result<(OwnedFd, PathBuf)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{name}-{number}"));
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => return Ok((file.into(), path)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(io(&error)),
        }
    }
}

/// All pages of a user, those of processes that have ended included, but for processes of other namespaces of
/// numbers.
#[must_use]
pub fn status_pages(user: u32) -> Vec<PageFile> {
    let folders = folders(user).into_iter();
    let own = folders.filter(|folder| is_private(folder, user));
    let files = own.flat_map(|folder| files_in(&folder));
    files.filter(PageFile::is_known).collect()
}

/// Takes away pages of this user's processes that have ended some time ago. Those that have just ended stay, to
/// be looked at.
pub fn clean_status_pages(files: &[PageFile]) {
    clean(files);
}

fn clean(files: &[PageFile]) {
    let now = clock::now();
    for file in files.iter().filter(|file| file.has_ended()) {
        let written = match file.read() {
            Ok(copy) => copy.written,
            // It is not touched any more, so that this is for good.
            Err(Errno::EINVAL | Errno::EAGAIN) => Duration::ZERO,
            Err(_) => continue,
        };
        // A time to come is from before the system was started.
        if now < written || now - written > KEPT {
            let _ = std::fs::remove_file(&file.path);
        }
    }
}

/// Where pages of a user may be, by preference.
fn folders(user: u32) -> Vec<PathBuf> {
    let run = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let is_own = user == host::user() && !is_privileged();
    let run = run.filter(|_| is_own).map(PathBuf::from);
    let usual = PathBuf::from(format!("/run/user/{user}"));
    let mut folders: Vec<PathBuf> = run.into_iter().chain([usual]).collect();
    folders.dedup();
    let mut folders: Vec<_> = folders
        .into_iter()
        .map(|folder| folder.join("ripstop"))
        .collect();
    let shared = ["/dev/shm", "/tmp"];
    folders.extend(shared.map(|folder| PathBuf::from(format!("{folder}/ripstop-{user}"))));
    folders
}

/// Makes a folder for this user alone, unless there is one.
fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(folder);
    match made {
        Ok(()) => Ok(()),
        Err(_) if is_private(folder, host::user()) => Ok(()),
        Err(error) => Err(io(&error)),
    }
}

/// Whether it is a folder that only this user may reach.
fn is_private(folder: &Path, user: u32) -> bool {
    std::fs::symlink_metadata(folder)
        .is_ok_and(|found| found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0)
}

fn files_in(folder: &Path) -> Vec<PageFile> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.filter_map(PageFile::of).collect()
}

fn io(error: &std::io::Error) -> Errno {
    Errno(error.raw_os_error().unwrap_or(Errno::EIO.0))
}

/// The process exits, with domains that are open.
extern "C" fn remove_own() {
    // A thread that holds it now takes its own file away, or makes one that stays for a while.
    let Ok(files) = OWN.try_lock() else { return };
    let pid = host::pid();
    for (_, path) in files.iter().filter(|(of, _)| *of == pid) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ripstop-test-{}-{test}", host::pid()));
        make_folder(&path).unwrap();
        path
    }

    #[test]
    fn a_reader_gets_what_was_published() {
        let folder = folder("published");
        let page = StatusPage::create_in(&folder).unwrap();
        let files = files_in(&folder);
        let [file] = &files[..] else {
            panic!("{files:?}")
        };
        assert!(!file.has_ended() && file.pid == host::pid());
        assert_eq!(file.read().unwrap().snapshot, []);
        let now = clock::now();
        page.publish(b"snapshot", now, false);
        page.note_sleepers(2);
        let copy = file.read().unwrap();
        assert_eq!(copy.snapshot, b"snapshot");
        assert_eq!((copy.written, copy.sleepers), (now, 2));
        assert!(copy.polled <= now);
        page.publish(b"next", now, true);
        let copy = file.read().unwrap();
        assert_eq!((&copy.snapshot[..], copy.polled), (&b"next"[..], now));
        let mode = std::fs::metadata(&file.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        drop(page);
        assert_eq!(files_in(&folder), []);
        std::fs::remove_dir(folder).unwrap();
    }

    /// Whatever is in the file, a reader answers.
    #[test]
    fn files_that_are_no_pages_are_refused() {
        let folder = folder("garbage");
        let path = folder.join("1-2-3-4");
        let file = PageFile::of(path.clone()).unwrap();
        let mut sound = vec![0; AT_SNAPSHOT + 8];
        sound[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        let with = |at: usize, value: u64| {
            let mut bytes = sound.clone();
            bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            bytes
        };
        for (bytes, error) in [
            (Vec::new(), Errno::EINVAL),
            (vec![0xff; 20], Errno::EINVAL),
            (vec![0xff; PAGE], Errno::EINVAL),
            (with(AT_MAGIC, MAGIC + 1), Errno::EINVAL),
            (with(AT_LENGTH, 9), Errno::EINVAL),
            (with(AT_LENGTH, u64::MAX), Errno::EINVAL),
            (with(AT_SEQUENCE, 7), Errno::EAGAIN),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(file.read(), Err(error));
        }
        std::fs::write(&path, with(AT_LENGTH, 8)).unwrap();
        assert_eq!(file.read().unwrap().snapshot, [0; 8]);
        assert!(
            !file.is_known() && !file.has_ended(),
            "of another namespace"
        );
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(file.read().is_err(), "not followed");
        for other in ["1-2-3", "1-2-3-4-5", "a-2-3-4", "1-2-3-", "1-2-3-4.swp"] {
            assert_eq!(PageFile::of(folder.join(other)), None, "{other}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn pages_of_the_dead_go_after_a_while() {
        let folder = folder("dead");
        let page = StatusPage::create_in(&folder).unwrap();
        page.publish(b"old", Duration::from_nanos(1), false);
        let old = std::fs::read(&page.path).unwrap();
        page.publish(b"new", clock::now(), false);
        let new = std::fs::read(&page.path).unwrap();
        // No process has these numbers with that start.
        let namespace = pid_namespace().unwrap();
        let [gone, kept] = [0, 1].map(|at| folder.join(format!("{namespace}-1-0-{at}")));
        let elsewhere = folder.join(format!("{}-1-0-0", namespace + 1));
        std::fs::write(&elsewhere, &old).unwrap();
        std::fs::write(&gone, old).unwrap();
        std::fs::write(&kept, new).unwrap();
        clean(&files_in(&folder));
        let long_after_start = clock::now() > KEPT + KEPT;
        assert!(!gone.exists() || !long_after_start);
        assert!(kept.exists() && page.path.exists() && elsewhere.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// As after `exec`, or beside another copy of this library.
    #[test]
    fn a_name_that_is_taken_is_no_obstacle() {
        let folder = folder("taken");
        let (_, first) = new_file(&folder, "1-2-3").unwrap();
        let next = PageFile::of(first).unwrap().path;
        let number: u32 = next
            .to_str()
            .unwrap()
            .rsplit('-')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        for at in 1..100 {
            std::fs::write(folder.join(format!("1-2-3-{}", number + at)), "").unwrap();
        }
        assert!(new_file(&folder, "1-2-3").is_ok());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_snapshot_is_read_whole() {
        let folder = folder("whole");
        let page = StatusPage::create_in(&folder).unwrap();
        page.publish(&[0; 8192], clock::now(), true);
        let file = files_in(&folder).remove(0);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for round in 0..20_000_u32 {
                    page.publish(&[round as u8; 8192], clock::now(), true);
                }
            });
            while !writer.is_finished() {
                if let Ok(copy) = file.read() {
                    let first = copy.snapshot[0];
                    assert!(copy.snapshot.iter().all(|byte| *byte == first), "torn");
                }
            }
        });
        drop(page);
        std::fs::remove_dir(folder).unwrap();
    }

    #[test]
    fn a_folder_that_others_reach_is_not_used() {
        let folder = folder("private");
        assert!(is_private(&folder, host::user()));
        assert!(!is_private(&folder, host::user() + 1));
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&folder, open).unwrap();
        assert!(make_folder(&folder).is_err());
        std::fs::remove_dir(folder).unwrap();
    }
}
