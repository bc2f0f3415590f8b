#![allow(unsafe_code)]
//! Memory without a name that processes share by its descriptor.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use ripstop_mem::Region;
use ripstop_mem::ring::Mapping;
use ripstop_types::{Errno, Result};
use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::process::{Resource, getrlimit};

use crate::errno::{errno, retry};

/// What makes a mapping safe from whoever else has the descriptor: the length stays.
const LENGTH: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The file system of memory in pages of the usual size.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The size of memory that a peer has sent or named, which must have these seals.
///
/// # Errors
///
/// `EINVAL` if it is something else, or is not sealed so.
pub(crate) fn sealed_size(fd: &OwnedFd, needed: SealFlags) -> Result<u64> {
    // Only memory has seals; huge pages, which may not be there when they are touched, are of
    // another file system.
    let seals = fs::fcntl_get_seals(fd).map_err(|_| Errno::EINVAL)?;
    let kind = fs::fstatfs(fd).map_err(errno)?.f_type;
    let size = fs::fstat(fd).map_err(errno)?.st_size;
    match seals.contains(needed) && u64::try_from(kind) == Ok(TMPFS_MAGIC) {
        true => u64::try_from(size).map_err(|_| Errno::EINVAL),
        false => Err(Errno::EINVAL),
    }
}

/// Gives a file room for `size` bytes: without that, no room would be a signal at the first access.
///
/// # Errors
///
/// Those of `fallocate(2)`. `EFBIG` above the limit of the process without its signal, which by
/// default ends the process.
pub(crate) fn reserve(fd: &OwnedFd, size: u64) -> Result<()> {
    if getrlimit(Resource::Fsize)
        .current
        .is_some_and(|most| size > most)
    {
        return Err(Errno::EFBIG);
    }
    retry(|| fs::fallocate(fd, FallocateFlags::empty(), 0, size))
}

/// Memory that has a descriptor (`memfd_create(2)`), closed on `exec`. It lives until its last
/// descriptor is closed and its last mapping undone, also by the end of a process.
#[derive(Debug)]
pub struct MemFd {
    fd: OwnedFd,
    len: usize,
}

/// A mapping of such memory, which a `fork` does not inherit.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<u8>,
    len: usize,
    writable: bool,
}

// SAFETY: the mapping belongs to the process; access is through `Region` and the rings, which
// are `Sync`.
unsafe impl Send for SharedMemory {}
// SAFETY: as for `Send`.
unsafe impl Sync for SharedMemory {}

impl MemFd {
    /// Makes `len` bytes of zeroes, with room for all of them; the length stays. `label` is for people, who find
    /// it in `/proc/PID/fd`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes or a label that cannot be one, `ENOMEM` and `ENOSPC` without room,
    /// `EMFILE`, `EFBIG` above the process' limit on the size of files (`RLIMIT_FSIZE`).
    pub fn create(label: &str, len: usize) -> Result<Self> {
        let size = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = fs::memfd_create(label, flags).map_err(errno)?;
        reserve(&fd, size)?;
        fs::fcntl_add_seals(&fd, LENGTH).map_err(errno)?;
        Ok(Self { fd, len })
    }

    /// Fixes what may be done with it for ever, before others get it: a peer takes no other.
    ///
    /// # Errors
    ///
    /// `EPERM` if it is done already.
    pub fn seal(&self) -> Result<()> {
        fs::fcntl_add_seals(&self.fd, SealFlags::SEAL).map_err(errno)
    }

    /// As [`seal`](Self::seal), and from now on there are only mappings for reads
    /// (`F_SEAL_FUTURE_WRITE`): map it for writes before.
    ///
    /// # Errors
    ///
    /// As for [`seal`](Self::seal); `EINVAL` before Linux 5.1.
    pub fn seal_for_readers(&self) -> Result<()> {
        let seals = SealFlags::SEAL | SealFlags::FUTURE_WRITE;
        fs::fcntl_add_seals(&self.fd, seals).map_err(errno)
    }

    /// Takes a descriptor from a peer that says it is memory of `len` bytes.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is something else, has another length, or is not sealed.
    pub fn received(fd: OwnedFd, len: usize) -> Result<Self> {
        let size = sealed_size(&fd, LENGTH | SealFlags::SEAL)?;
        let sound = usize::try_from(size) == Ok(len) && len > 0;
        sound.then_some(Self { fd, len }).ok_or(Errno::EINVAL)
    }

    /// The number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Maps it for reads and writes.
    ///
    /// # Errors
    ///
    /// `EPERM` if it is for readers, `ENOMEM`.
    pub fn map(&self) -> Result<SharedMemory> {
        SharedMemory::of(&self.fd, 0, self.len, true)
    }

    /// As [`map`](Self::map), with every page in place: the first access to one does not wait for the kernel.
    ///
    /// # Errors
    ///
    /// As for [`map`](Self::map).
    pub fn map_present(&self) -> Result<SharedMemory> {
        let memory = self.map()?;
        memory.bring_in();
        Ok(memory)
    }

    /// Maps it for reads.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn map_read(&self) -> Result<SharedMemory> {
        SharedMemory::of(&self.fd, 0, self.len, false)
    }
}

impl AsFd for MemFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl From<MemFd> for OwnedFd {
    fn from(memory: MemFd) -> Self {
        memory.fd
    }
}

impl SharedMemory {
    /// Maps `len` bytes of memory from `offset` on, a multiple of a page, for this process alone and
    /// not for the children that it forks. The memory has the bytes, and is sealed so that it keeps
    /// them.
    pub(crate) fn of(fd: &OwnedFd, offset: u64, len: usize, writable: bool) -> Result<Self> {
        let memory = Self::inherited(fd, offset, len, writable)?;
        // SAFETY: the mapping made above; a child does without it.
        unsafe { madvise(memory.start.as_ptr().cast(), len, Advice::LinuxDontFork) }
            .map_err(errno)?;
        Ok(memory)
    }

    /// As [`of`](Self::of), and a `fork` inherits it. The length may be kept by a lock instead of a
    /// seal, as that of [`NamedMemory`](crate::NamedMemory).
    pub(crate) fn inherited(fd: &OwnedFd, offset: u64, len: usize, writable: bool) -> Result<Self> {
        let rights = match writable {
            true => ProtFlags::READ | ProtFlags::WRITE,
            false => ProtFlags::READ,
        };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, MapFlags::SHARED, fd, offset) };
        let start = NonNull::new(start.map_err(errno)?.cast()).ok_or(Errno::ENOMEM)?;
        Ok(Self {
            start,
            len,
            writable,
        })
    }

    /// Brings in all pages. Where that does not work (before Linux 5.14), each comes when it is first accessed.
    fn bring_in(&self) {
        // SAFETY: the mapping made when `self` was; nothing in it changes.
        let _ = unsafe {
            madvise(
                self.start.as_ptr().cast(),
                self.len,
                Advice::LinuxPopulateWrite,
            )
        };
    }

    /// The memory, which other processes may write at any time; `None` if it is mapped for
    /// reads only.
    #[must_use]
    pub fn region(&self) -> Option<Region<'_>> {
        // SAFETY: mapped for reads and writes as long as `self` lives; only atomics and the
        // rings of `mem` reach it.
        self.writable
            .then(|| unsafe { Region::from_raw(self.start, self.len) })
    }
}

// SAFETY: mapped until the drop, at an address that the value does not change. The length is
// sealed from the begin on, and what a peer punches out reads as zeroes. The address leaves this
// crate in a `UserBuf` only, which `mem` copies from and to.
unsafe impl Mapping for SharedMemory {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.len
    }

    fn writable(&self) -> bool {
        self.writable
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping made above; regions of it borrow `self`, rings hold it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::Relaxed;

    use ripstop_mem::ring::{Layout, PeerStatus, STATUS_PAGE_BYTES, Side, SleepWord, Source, pair};

    use super::*;

    /// As it arrives at a peer.
    fn passed(memory: &MemFd) -> OwnedFd {
        memory.fd.try_clone().unwrap()
    }

    #[test]
    fn both_ends_see_the_same_bytes() {
        let ours = MemFd::create("test", 5000).unwrap();
        ours.seal().unwrap();
        let theirs = MemFd::received(passed(&ours), 5000).unwrap();
        let (a, b) = (ours.map().unwrap(), theirs.map().unwrap());
        let reader = theirs.map_read().unwrap();
        drop((ours, theirs));
        a.region().unwrap().store_u64(4096, 77, Relaxed).unwrap();
        assert_eq!(b.region().unwrap().load_u64(4096, Relaxed), Ok(77));
        assert!(reader.region().is_none());
        assert_eq!((reader.len(), reader.writable()), (5000, false));
    }

    #[test]
    fn what_a_peer_sends_is_checked() {
        let open = MemFd::create("test", 4096).unwrap();
        let refused = |fd: OwnedFd, len| MemFd::received(fd, len).err();
        assert_eq!(
            refused(passed(&open), 4096),
            Some(Errno::EINVAL),
            "no seals"
        );
        fs::fcntl_add_seals(&open.fd, SealFlags::SHRINK).unwrap();
        assert_eq!(
            refused(passed(&open), 4096),
            Some(Errno::EINVAL),
            "one seal"
        );
        open.seal().unwrap();
        assert!(MemFd::received(passed(&open), 4096).is_ok());
        for len in [0, 4095, 4097, usize::MAX] {
            assert_eq!(refused(passed(&open), len), Some(Errno::EINVAL));
        }
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let len = file.metadata().unwrap().len() as usize;
        assert_eq!(refused(file.into(), len), Some(Errno::EINVAL), "a file");
        assert_eq!(MemFd::create("test", 0).err(), Some(Errno::EINVAL));
    }

    /// Page faults of this thread that needed no input: the tenth field of its `stat`, the eighth behind the name.
    fn page_faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, fields) = stat.rsplit_once(") ").unwrap();
        fields.split(' ').nth(7).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_that_is_present_causes_no_page_faults() {
        const PAGES: usize = 256;
        let faults = |map: fn(&MemFd) -> Result<SharedMemory>| {
            let memory = map(&MemFd::create("test", 4096 * PAGES).unwrap()).unwrap();
            let before = page_faults();
            for page in 0..PAGES {
                let region = memory.region().unwrap();
                region.store_u64(4096 * page, 1, Relaxed).unwrap();
            }
            page_faults() - before
        };
        // Some are of this test.
        let (mapped, present) = (faults(MemFd::map), faults(MemFd::map_present));
        assert!(present < 32, "{present} page faults; {mapped} else");
    }

    #[test]
    fn a_sealed_length_stays() {
        let memory = MemFd::create("test", 4096).unwrap();
        memory.seal().unwrap();
        for size in [0, 8192] {
            let cut = fs::ftruncate(&memory.fd, size);
            assert_eq!(cut, Err(rustix::io::Errno::PERM));
        }
        assert_eq!(memory.seal(), Err(Errno::EPERM));
    }

    #[test]
    fn readers_cannot_map_for_writes() {
        let face = MemFd::create("test", STATUS_PAGE_BYTES).unwrap();
        let own = face.map().unwrap();
        face.seal_for_readers().unwrap();
        let theirs = MemFd::received(passed(&face), STATUS_PAGE_BYTES).unwrap();
        assert_eq!(theirs.map().err(), Some(Errno::EPERM));
        let watch = PeerStatus::from_mapping(Arc::new(theirs.map_read().unwrap()), false).unwrap();
        let sleep = SleepWord::from_mapping(Arc::new(own)).unwrap();
        assert!(!watch.must_wake());
        sleep.begin_sleep(|| ());
        assert!(watch.must_wake());
    }

    #[test]
    fn pages_that_a_peer_punches_out_are_zeroes() {
        let layout = Layout::new(8, 4096).unwrap();
        let memory = MemFd::create("test", layout.len()).unwrap();
        memory.seal().unwrap();
        let ends = [Side::Connector, Side::Acceptor]
            .map(|side| pair(Arc::new(memory.map().unwrap()), layout, side).unwrap());
        let [(writer, _), (_, reader)] = &ends;
        assert_eq!(writer.write(Source::from(&[5; 3000][..])), Ok(3000));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fs::fallocate(&memory.fd, flags, 0, layout.len() as u64).unwrap();
        let mut room = [1; 4000];
        assert_eq!(reader.read(&mut room), Ok(0), "a lap that is not there");
        assert_eq!(writer.write(Source::from(&[6; 8][..])), Ok(8));
    }
}
