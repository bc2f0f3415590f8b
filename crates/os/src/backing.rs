#![allow(unsafe_code)]
//! The memory behind addresses of this process, where the program has a descriptor of it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, Weak};

use ripstop_mem::UserBuf;
use rustix::fs::{self, Mode, OFlags, SealFlags, Stat};
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::process::{DumpableBehavior, dumpable_behavior};
use thiserror::Error;

use crate::shareable::Shareable;

/// What the name of a memfd begins with, where mappings are listed.
const MEMFD: &[u8] = b"/memfd:";

/// Room for the longest name of a memfd (249 bytes), what stands before it, and ` (deleted)`.
const NAME: usize = 320;

/// Below so many bytes nothing is looked for where the kernel answers no questions
/// (`PROCMAP_QUERY`, before Linux 6.11): then all mappings have to be read.
const WORTH_READING: usize = 1 << 20;

/// Files that were not fit which are remembered.
const UNFIT: usize = 16;

/// Finds what peers may map of the memory of this process. A child of `fork` needs one of its own.
#[derive(Debug, Default)]
pub struct Backings {
    maps: Option<Maps>,
    /// What was found before and is in use still.
    files: Vec<(FileId, Weak<OwnedFd>)>,
    /// What was not fit, the last [`UNFIT`] files: to look for a descriptor takes long.
    unfit: VecDeque<(FileId, Unfit)>,
}

/// Why memory is not for peers to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unfit {
    /// It is no memory that `memfd_create(2)` made, or not in one mapping that is shared and may be
    /// written. Most memory is not.
    #[error("it is no memory from memfd_create, mapped shared and for writes")]
    NoMemfd,
    /// Whoever has a descriptor may make it shorter.
    #[error("it is not sealed against shrinking (F_SEAL_SHRINK)")]
    MayShrink,
    /// There are no more mappings for writes.
    #[error("it is sealed against writes")]
    ReadOnly,
    /// Its pages are of another size than usual, or it has not so many bytes.
    #[error("its pages are not of the usual size, or it is too short")]
    Pages,
    /// The process has told the kernel that no other may look into it (`PR_SET_DUMPABLE`).
    #[error("the process is hidden from others (PR_SET_DUMPABLE)")]
    Hidden,
    /// There is no descriptor of it, or none can be had.
    #[error("there is no descriptor of it")]
    NoDescriptor,
}

/// Which file a mapping is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileId {
    major: u32,
    minor: u32,
    inode: u64,
}

impl FileId {
    fn of(stat: &Stat) -> Self {
        Self {
            major: fs::major(stat.st_dev),
            minor: fs::minor(stat.st_dev),
            inode: stat.st_ino,
        }
    }
}

/// A mapping of a memfd, shared and for reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mapped {
    start: usize,
    end: usize,
    /// Where it begins in the file.
    offset: u64,
    file: FileId,
}

impl Backings {
    /// The memory in which all of `memory` lies, if peers may map it. The descriptor is another one
    /// than those of the program: nothing that is done with it changes theirs. A file that was not fit
    /// once is not looked at again, as a rule: it has to be sealed before.
    ///
    /// # Errors
    ///
    /// [`Unfit`].
    pub fn find(&mut self, memory: UserBuf) -> Result<Shareable, Unfit> {
        let (at, len) = (memory.addr(), memory.len());
        let maps = self.maps.get_or_insert_with(Maps::open);
        let mapped = maps.at(at, len).ok_or(Unfit::NoMemfd)?;
        let end = at.checked_add(len).ok_or(Unfit::NoMemfd)?;
        if end > mapped.end {
            return Err(Unfit::NoMemfd);
        }
        if let Some((_, why)) = self.unfit.iter().find(|(id, _)| *id == mapped.file) {
            return Err(*why);
        }
        if !matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable)) {
            return Err(Unfit::Hidden);
        }
        let fd = match self.sealed(&mapped) {
            Ok(fd) => fd,
            Err(why) => {
                if self.unfit.len() >= UNFIT {
                    self.unfit.pop_front();
                }
                self.unfit.push_back((mapped.file, why));
                return Err(why);
            }
        };
        let offset = mapped.offset + (at - mapped.start) as u64;
        Shareable::new(fd, offset, len).map_err(|_| Unfit::Pages)
    }

    /// A descriptor of what is mapped, if its seals are as they must be.
    fn sealed(&mut self, mapped: &Mapped) -> Result<Arc<OwnedFd>, Unfit> {
        let fd = self.descriptor(mapped).ok_or(Unfit::NoDescriptor)?;
        let seals = fs::fcntl_get_seals(&fd).map_err(|_| Unfit::NoMemfd)?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(Unfit::MayShrink);
        }
        match seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE) {
            true => Err(Unfit::ReadOnly),
            false => Ok(fd),
        }
    }

    /// A descriptor of what is mapped, that of other parts of the same file if there is one.
    fn descriptor(&mut self, mapped: &Mapped) -> Option<Arc<OwnedFd>> {
        self.files.retain(|(_, fd)| fd.strong_count() > 0);
        // As long as there is a descriptor, no other file gets its number.
        let mut known = self.files.iter().filter(|(id, _)| *id == mapped.file);
        if let Some(fd) = known.find_map(|(_, fd)| fd.upgrade()) {
            return Some(fd);
        }
        let fd = Arc::new(by_mapping(mapped).or_else(|| by_number(mapped.file))?);
        self.files.push((mapped.file, Arc::downgrade(&fd)));
        Some(fd)
    }
}

/// The mappings of this process, as the kernel tells them.
#[derive(Debug)]
enum Maps {
    /// It answers questions.
    Asked(OwnedFd),
    /// It lists them all.
    Listed,
}

/// `struct procmap_query` of `<linux/fs.h>`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// `PROCMAP_QUERY_VMA_READABLE`, `_WRITABLE`, `_SHARED` and `PROCMAP_QUERY_FILE_BACKED_VMA`.
const WANTED: u64 = 0x01 | 0x02 | 0x08 | 0x20;

impl Maps {
    fn open() -> Self {
        // The list of the process is empty once its first thread has ended.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        match fs::open("/proc/thread-self/maps", flags, Mode::empty()) {
            Ok(fd) if !matches!(ask(&fd, 0), Err(Errno::NOTTY | Errno::INVAL)) => Self::Asked(fd),
            _ => Self::Listed,
        }
    }

    /// The mapping at this address, of which `len` bytes are of interest.
    fn at(&self, at: usize, len: usize) -> Option<Mapped> {
        match self {
            Self::Asked(fd) => ask(fd, at).ok().flatten(),
            Self::Listed if len < WORTH_READING => None,
            Self::Listed => list(at),
        }
    }
}

/// Asks for the mapping at an address; `None` for one that is of something else.
fn ask(maps: &OwnedFd, at: usize) -> Result<Option<Mapped>, Errno> {
    let mut name = [0_u8; NAME];
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_flags: WANTED,
        query_addr: at as u64,
        vma_name_size: NAME as u32,
        vma_name_addr: name.as_mut_ptr().expose_provenance() as u64,
        ..Query::default()
    };
    const QUERY: rustix::ioctl::Opcode = opcode::read_write::<Query>(b'f', 17);
    // SAFETY: this operation reads and writes this struct, which says its size.
    let updater = unsafe { Updater::<QUERY, Query>::new(&mut query) };
    // SAFETY: the kernel writes the struct that the updater borrows, and the name to `name`, which is
    // as long as the struct says and outlives the call.
    match unsafe { ioctl(maps, updater) } {
        Ok(()) => {}
        // None there, none of the kind, or one of a file with a longer name than any memfd's.
        Err(Errno::NOENT | Errno::NAMETOOLONG) => return Ok(None),
        Err(error) => return Err(error),
    }
    if !name.starts_with(MEMFD) {
        return Ok(None);
    }
    let place = |value: u64| usize::try_from(value).map_err(|_| Errno::OVERFLOW);
    Ok(Some(Mapped {
        start: place(query.vma_start)?,
        end: place(query.vma_end)?,
        offset: query.vma_offset,
        file: FileId {
            major: query.dev_major,
            minor: query.dev_minor,
            inode: query.inode,
        },
    }))
}

/// Looks for the mapping at an address in the list of all.
fn list(at: usize) -> Option<Mapped> {
    let file = File::open("/proc/thread-self/maps").ok()?;
    let mut lines = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if lines.read_until(b'\n', &mut line).ok()? == 0 {
            return None;
        }
        let Some(mapped) = parse(&line) else {
            continue;
        };
        if (mapped.start..mapped.end).contains(&at) {
            return Some(mapped);
        }
    }
}

/// A line of the list; `None` for a mapping that is of something else.
fn parse(line: &[u8]) -> Option<Mapped> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut field = || std::str::from_utf8(fields.next()?).ok();
    let (range, rights, offset, device, inode) = (field()?, field()?, field()?, field()?, field()?);
    let name = fields.next()?.trim_ascii_start();
    if !rights.starts_with("rw") || !rights.ends_with('s') || !name.starts_with(MEMFD) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (major, minor) = device.split_once(':')?;
    Some(Mapped {
        start: usize::from_str_radix(start, 16).ok()?,
        end: usize::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        file: FileId {
            major: u32::from_str_radix(major, 16).ok()?,
            minor: u32::from_str_radix(minor, 16).ok()?,
            inode: inode.parse().ok()?,
        },
    })
}

/// Opens the file of a mapping by the mapping, as processes with `CAP_CHECKPOINT_RESTORE` can.
fn by_mapping(mapped: &Mapped) -> Option<OwnedFd> {
    let path = format!("/proc/self/map_files/{:x}-{:x}", mapped.start, mapped.end);
    open_again(&path).filter(|fd| is(fd, mapped.file))
}

/// Opens a file of which the program has a descriptor.
fn by_number(file: FileId) -> Option<OwnedFd> {
    for entry in std::fs::read_dir("/proc/thread-self/fd").ok()?.flatten() {
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse::<RawFd>().ok()) else {
            continue;
        };
        // SAFETY: not kept, and only named to the kernel, which says so if it is closed by now.
        let fd = unsafe { BorrowedFd::borrow_raw(number) };
        if !is(fd, file) {
            continue;
        }
        // Another thread may give the number to something else, which is not to be opened: what
        // is looked at before it is opened stays what it is.
        let path = format!("/proc/thread-self/fd/{number}");
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let held = fs::open(path, flags, Mode::empty()).ok();
        let Some(held) = held.filter(|held| is(held, file)) else {
            continue;
        };
        let path = format!("/proc/thread-self/fd/{}", held.as_raw_fd());
        if let Some(fd) = open_again(&path) {
            return Some(fd);
        }
    }
    None
}

fn open_again(path: &str) -> Option<OwnedFd> {
    fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()
}

fn is(fd: impl std::os::fd::AsFd, file: FileId) -> bool {
    fs::fstat(fd).is_ok_and(|stat| FileId::of(&stat) == file)
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use ripstop_mem::Parked;
    use rustix::fs::{MemfdFlags, fcntl_add_seals, ftruncate, memfd_create};
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

    use super::*;

    const PAGE: usize = 4096;

    /// A mapping of a program, which knows nothing of this library.
    struct Mine {
        start: *mut u8,
        len: usize,
    }

    impl Mine {
        fn of(fd: &OwnedFd, offset: u64, len: usize, flags: MapFlags) -> Self {
            let rights = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: a new mapping.
            let start = unsafe { mmap(ptr::null_mut(), len, rights, flags, fd, offset) };
            let start = start.unwrap().cast();
            Self { start, len }
        }

        fn part(&self, at: usize, len: usize) -> UserBuf {
            assert!(at + len <= self.len);
            // SAFETY: within the mapping, which is not read or written here.
            unsafe { UserBuf::from_raw(self.start.wrapping_add(at), len) }
        }

        fn whole(&self) -> UserBuf {
            self.part(0, self.len)
        }
    }

    impl Drop for Mine {
        fn drop(&mut self) {
            // SAFETY: the mapping made above.
            unsafe { munmap(self.start.cast(), self.len) }.unwrap();
        }
    }

    fn memfd(name: &str, len: usize, seals: SealFlags) -> OwnedFd {
        let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, len as u64).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    }

    fn ways() -> [Backings; 2] {
        let listed = Backings {
            maps: Some(Maps::Listed),
            ..Backings::default()
        };
        [Backings::default(), listed]
    }

    /// What is read there is what is written here.
    fn assert_same(found: &Shareable, memory: UserBuf) {
        let window = found.map().unwrap();
        let text: Vec<u8> = (0..memory.len()).map(|i| (i * 7) as u8).collect();
        window.write(0, &text).unwrap();
        let mut seen = vec![0; text.len()];
        ripstop_mem::copy_in(&mut seen, memory);
        assert!(seen == text);
    }

    #[test]
    fn sealed_memory_is_found_wherever_it_is_mapped() {
        let len = 3 << 20;
        let name = "n".repeat(249);
        let fd = memfd(&name, len, SealFlags::SHRINK);
        let whole = Mine::of(&fd, 0, len, MapFlags::SHARED);
        let end = Mine::of(&fd, 2 << 20, 1 << 20, MapFlags::SHARED);
        for mut backings in ways() {
            for (mine, at, len, offset) in [
                (&whole, 0, len, 0),
                (&whole, 4099, 2 << 20, 4099),
                (&end, 0, 1 << 20, 2 << 20),
            ] {
                let memory = mine.part(at, len);
                let found = backings.find(memory).unwrap();
                assert_eq!((found.offset(), found.len()), (offset, len));
                assert_same(&found, memory);
            }
        }
    }

    #[test]
    fn regions_of_a_file_have_one_descriptor() {
        let fd = memfd("test", 4 * PAGE, SealFlags::SHRINK);
        let mine = Mine::of(&fd, 0, 4 * PAGE, MapFlags::SHARED);
        let mut backings = Backings::default();
        let number = |found: &Shareable| std::os::fd::AsFd::as_fd(found).as_raw_fd();
        let first = backings.find(mine.part(0, PAGE)).unwrap();
        let second = backings.find(mine.part(PAGE, PAGE)).unwrap();
        assert_eq!(number(&first), number(&second));
        assert_ne!(number(&first), fd.as_raw_fd());
        drop((first, second));
        assert_eq!(backings.files[0].1.strong_count(), 0);
        let other = memfd("test", PAGE, SealFlags::SHRINK);
        let other = Mine::of(&other, 0, PAGE, MapFlags::SHARED);
        // Closed by the program, so only its mapping keeps it.
        let alone = backings.find(other.whole());
        assert!(matches!(alone, Ok(_) | Err(Unfit::NoDescriptor)));
        assert!(backings.files.len() <= 1, "nothing is kept");
    }

    #[test]
    fn descriptors_are_found_by_number_too() {
        let fd = memfd("test", PAGE, SealFlags::SHRINK);
        let id = FileId::of(&fs::fstat(&fd).unwrap());
        let found = by_number(id).unwrap();
        assert!(is(&found, id));
        let flags = rustix::fs::fcntl_getfl(&found).unwrap();
        assert!(flags.contains(OFlags::RDWR));
        // Its place is its own.
        rustix::fs::seek(&found, rustix::fs::SeekFrom::Start(100)).unwrap();
        assert_eq!(rustix::fs::tell(&fd), Ok(0));
        drop((found, fd));
        assert!(by_number(id).is_none());
    }

    #[test]
    fn what_is_not_fit_is_not_looked_for_twice() {
        let mut backings = Backings::default();
        let mut opened = Vec::new();
        for _ in 0..3 * UNFIT {
            let fd = memfd("test", PAGE, SealFlags::empty());
            let mine = Mine::of(&fd, 0, PAGE, MapFlags::SHARED);
            assert_eq!(backings.find(mine.whole()).err(), Some(Unfit::MayShrink));
            fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
            assert_eq!(backings.find(mine.whole()).err(), Some(Unfit::MayShrink));
            assert!(backings.unfit.len() <= UNFIT);
            opened.push((fd, mine));
        }
        let (_, first) = &opened[0];
        assert!(backings.find(first.whole()).is_ok(), "long forgotten");
    }

    #[test]
    fn other_memory_is_refused_with_its_reason() {
        let len = 2 << 20;
        let heap = Parked::park(vec![0; len]);
        let open = memfd("test", len, SealFlags::empty());
        let open = Mine::of(&open, 0, len, MapFlags::SHARED);
        let sealed = memfd("test", len, SealFlags::SHRINK);
        let private = Mine::of(&sealed, 0, len, MapFlags::PRIVATE);
        let split = Mine::of(&sealed, 0, len, MapFlags::SHARED);
        let half = split.part(len / 2, len / 2);
        // SAFETY: pages of the mapping; nobody reads them.
        unsafe {
            mprotect(
                split.start.wrapping_add(len / 2).cast(),
                len / 2,
                MprotectFlags::READ,
            )
        }
        .unwrap();
        let long = Mine::of(&sealed, 0, 2 * len, MapFlags::SHARED);
        let closed = memfd("test", len, SealFlags::SHRINK);
        let writing = Mine::of(&closed, 0, len, MapFlags::SHARED);
        fcntl_add_seals(&closed, SealFlags::FUTURE_WRITE).unwrap();
        let file: OwnedFd = File::open("/proc/self/exe").unwrap().into();
        // SAFETY: a new mapping.
        let exe = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                &file,
                0,
            )
        };
        let exe = Mine {
            start: exe.unwrap().cast(),
            len,
        };
        for (way, mut backings) in ways().into_iter().enumerate() {
            for (memory, why) in [
                (heap.buf(), Unfit::NoMemfd),
                (open.whole(), Unfit::MayShrink),
                (private.whole(), Unfit::NoMemfd),
                (split.whole(), Unfit::NoMemfd),
                (half, Unfit::NoMemfd),
                (long.whole(), Unfit::Pages),
                (writing.whole(), Unfit::ReadOnly),
                (exe.whole(), Unfit::NoMemfd),
            ] {
                assert_eq!(backings.find(memory).err(), Some(why), "{way}");
            }
            assert!(backings.find(split.part(0, len / 2)).is_ok());
        }
        // SAFETY: its place was looked up, and nothing uses the bytes.
        drop(unsafe { heap.unpark() });
    }

    /// What the kernel answers is what it lists.
    #[test]
    fn both_ways_tell_the_same() {
        let fd = memfd("a name (deleted)\n 8", 3 * PAGE, SealFlags::SHRINK);
        let _mine = Mine::of(&fd, PAGE as u64, 2 * PAGE, MapFlags::SHARED);
        let maps = Maps::open();
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut found = 0;
        for line in text.lines() {
            let (start, _) = line.split_once('-').unwrap();
            let Ok(start) = usize::from_str_radix(start, 16) else {
                continue;
            };
            let listed = parse(line.as_bytes());
            found += usize::from(listed.is_some());
            if let (Maps::Asked(_), Some(_)) = (&maps, listed) {
                assert_eq!(maps.at(start, 1), listed, "{line}");
            }
        }
        assert!(found > 0);
    }

    #[test]
    fn short_regions_are_not_worth_reading_all_mappings() {
        let fd = memfd("test", WORTH_READING, SealFlags::SHRINK);
        let mine = Mine::of(&fd, 0, WORTH_READING, MapFlags::SHARED);
        let [_, mut listed] = ways();
        let short = mine.part(0, WORTH_READING - 1);
        assert_eq!(listed.find(short).err(), Some(Unfit::NoMemfd));
        assert!(listed.find(mine.whole()).is_ok());
    }
}
