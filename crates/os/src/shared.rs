//! Memory that processes of one user on one machine find by name.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use ripstop_mem::Region;
use ripstop_types::{Errno, Result};
use rustix::fs::{self, FlockOperation, Mode, OFlags};

use crate::errno::{errno, retry};
use crate::memory::{SharedMemory, reserve};

/// Where the kernel keeps such memory.
const FOLDER: &str = "/dev/shm";

/// Longest name, so that it is a file name with what is put before it.
const MAX_NAME: usize = 200;

/// Who may open it: this user.
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// A mapping of memory that has a name (`shm_overview(7)`). It lives until the last process
/// that has it open closes it or dies; what a process that died left behind is not found
/// again.
#[derive(Debug)]
pub struct NamedMemory {
    path: PathBuf,
    /// Holds a shared lock as long as the memory is open.
    file: OwnedFd,
    memory: SharedMemory,
}

impl NamedMemory {
    /// Opens the memory of this name, or makes it: `len` bytes of zeroes. The second value
    /// tells whether it was made; otherwise it has the length it was made with.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a name that is empty, longer than 200 bytes or has a `/` or a null,
    /// `ENOSPC` and `ENOMEM` without room, `EFBIG` above the process' limit on the size of files,
    /// `EACCES` for memory of another user; those of `open(2)`.
    pub fn create(name: &str, len: usize) -> Result<(Self, bool)> {
        let path = path_of(name)?;
        loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = retry(|| fs::open(&path, flags, MODE))?;
            check_owner(&file)?;
            // Alone with it: it is new, or left behind.
            let made = match fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => true,
                Err(rustix::io::Errno::WOULDBLOCK) => false,
                Err(error) => return Err(errno(error)),
            };
            if made && is_at(&file, &path)? {
                fs::ftruncate(&file, 0).map_err(errno)?;
                let size = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
                if let Err(error) = reserve(&file, size) {
                    // Nobody has it, and it is of no use to anybody.
                    let _ = fs::unlink(&path);
                    return Err(error);
                }
            }
            if let Some(memory) = Self::open_locked(file, &path)? {
                return Ok((memory, made));
            }
        }
    }

    /// Opens memory that somebody has open.
    ///
    /// # Errors
    ///
    /// `ENOENT` if there is none, and as for [`create`](Self::create).
    pub fn open(name: &str) -> Result<Self> {
        let path = path_of(name)?;
        loop {
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = retry(|| fs::open(&path, flags, Mode::empty()))?;
            check_owner(&file)?;
            if fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // Left behind by a process that died.
                if is_at(&file, &path)? {
                    fs::unlink(&path).map_err(errno)?;
                }
                continue;
            }
            if let Some(memory) = Self::open_locked(file, &path)? {
                return Ok(memory);
            }
        }
    }

    /// Maps a file with a shared lock on it; `None` if its name was given up meanwhile.
    fn open_locked(file: OwnedFd, path: &PathBuf) -> Result<Option<Self>> {
        retry(|| fs::flock(&file, FlockOperation::LockShared))?;
        if !is_at(&file, path)? {
            return Ok(None);
        }
        let size = fs::fstat(&file).map_err(errno)?.st_size;
        let len = usize::try_from(size).map_err(|_| Errno::EINVAL)?;
        if len == 0 {
            // Whoever made it has not, or could not, give it its length.
            return Ok(None);
        }
        Ok(Some(Self {
            path: path.clone(),
            memory: SharedMemory::inherited(&file, 0, len, true)?,
            file,
        }))
    }

    /// The memory, which the other processes may write at any time.
    #[must_use]
    pub fn region(&self) -> Region<'_> {
        self.memory.region().expect("mapped for reads and writes")
    }
}

impl Drop for NamedMemory {
    fn drop(&mut self) {
        // The last one takes the name away. An error leaves a file that the next one to
        // make memory of this name takes over.
        let alone = fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive).is_ok();
        if alone && is_at(&self.file, &self.path) == Ok(true) {
            let _ = fs::unlink(&self.path);
        }
    }
}

/// The file for a name; users do not get in each other's way.
fn path_of(name: &str) -> Result<PathBuf> {
    if name.is_empty() || name.len() > MAX_NAME || name.contains(['/', '\0']) {
        return Err(Errno::EINVAL);
    }
    let user = rustix::process::getuid().as_raw();
    Ok(PathBuf::from(format!("{FOLDER}/ripstop-{user}-{name}")))
}

/// Nobody else's memory is trusted to keep its length.
fn check_owner(file: &OwnedFd) -> Result<()> {
    let owner = fs::fstat(file).map_err(errno)?.st_uid;
    match owner == rustix::process::getuid().as_raw() {
        true => Ok(()),
        false => Err(Errno::EACCES),
    }
}

/// Whether the file is the one that has the name.
fn is_at(file: &OwnedFd, path: &PathBuf) -> Result<bool> {
    let ours = fs::fstat(file).map_err(errno)?;
    match fs::lstat(path) {
        Ok(named) => Ok((named.st_dev, named.st_ino) == (ours.st_dev, ours.st_ino)),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(errno(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn name(test: &str) -> String {
        format!("test-{}-{test}", crate::pid())
    }

    #[test]
    fn whoever_knows_the_name_sees_the_same_bytes() {
        let name = name("same");
        assert_eq!(NamedMemory::open(&name).err(), Some(Errno::ENOENT));
        let (first, made) = NamedMemory::create(&name, 8192).unwrap();
        assert!(made);
        let (second, made) = NamedMemory::create(&name, 64).unwrap();
        assert!(!made);
        assert_eq!(second.region().len(), 8192, "the length it was made with");
        let third = NamedMemory::open(&name).unwrap();
        let word = |memory: &NamedMemory| memory.region().load_u64(8, Ordering::Acquire);
        assert_eq!(word(&third), Ok(0));
        first.region().store_u64(8, 77, Ordering::Release).unwrap();
        assert_eq!((word(&second), word(&third)), (Ok(77), Ok(77)));
        drop((first, second));
        assert_eq!(word(&third), Ok(77), "one has it open");
        drop(third);
        assert_eq!(NamedMemory::open(&name).err(), Some(Errno::ENOENT));
    }

    #[test]
    fn what_a_dead_process_left_is_made_anew() {
        let name = name("left");
        let path = path_of(&name).unwrap();
        std::fs::write(&path, [1; 100]).unwrap();
        assert_eq!(NamedMemory::open(&name).err(), Some(Errno::ENOENT));
        std::fs::write(&path, [1; 100]).unwrap();
        let (memory, made) = NamedMemory::create(&name, 64).unwrap();
        assert!(made);
        assert_eq!(memory.region().len(), 64);
        assert_eq!(memory.region().load_u64(0, Ordering::Relaxed), Ok(0));
        drop(memory);
        assert!(!path.exists());
    }

    #[test]
    fn without_room_no_file_is_left() {
        let name = name("room");
        let path = path_of(&name).unwrap();
        for len in [1 << 46, 1 << 62] {
            let error = NamedMemory::create(&name, len).expect_err("no room");
            assert!(matches!(error, Errno::ENOSPC | Errno::EFBIG), "{error}");
            assert!(!path.exists(), "{len} bytes");
        }
        let (memory, made) = NamedMemory::create(&name, 64).unwrap();
        assert!(made && memory.region().len() == 64);
    }

    #[test]
    fn a_name_is_one_file() {
        for name in ["", "a/b", "../x", "nul\0", &"x".repeat(201)] {
            assert_eq!(NamedMemory::create(name, 64).err(), Some(Errno::EINVAL));
        }
        let name = name("link");
        let path = path_of(&name).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &path).unwrap();
        assert!(NamedMemory::open(&name).is_err(), "not followed");
        std::fs::remove_file(path).unwrap();
    }
}
