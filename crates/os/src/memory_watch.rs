#![allow(unsafe_code)]
//! Being told when the program gives private memory back (`userfaultfd(2)`), for who remembers things about addresses.
//!
//! Ranges are registered for write-protection, and nothing in them is ever protected: so there are no faults, neither in the
//! program nor in system calls, and the events of `munmap(2)`, `mremap(2)`, `madvise(2)` and `brk(2)` come all the same.

use std::fmt::Debug;
use std::ops::Range;
use std::os::fd::{AsFd as _, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use nix::sys::signal::{SigSet, SigmaskHow};
use ripstop_types::{Errno, Result};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use rustix::mm::{
    MapFlags, ProtFlags, UserfaultfdFlags, mmap, mmap_anonymous, munmap, userfaultfd,
};
use rustix::param::page_size;

use crate::errno::{errno, nix_errno};
use crate::eventfd::EventFd;
use crate::memory::MemFd;

/// The group of operations of `userfaultfd(2)`.
const GROUP: u8 = 0xaa;

/// `UFFD_USER_MODE_ONLY`: without privileges only such a descriptor is given out.
const USER_MODE_ONLY: u32 = 1;

/// `UFFD_FEATURE_PAGEFAULT_FLAG_WP`, `_EVENT_REMAP`, `_EVENT_REMOVE`, `_EVENT_UNMAP`.
const FEATURES: u64 = 1 | 1 << 2 | 1 << 3 | 1 << 6;

/// `UFFD_FEATURE_MINOR_SHMEM` (Linux 5.14): the kernel knows `UFFDIO_CONTINUE`. Also, what a device has pinned stays with the
/// parent when a process forks (5.12).
const NEEDED: u64 = 1 << 10;

/// `UFFDIO_REGISTER_MODE_WP`.
const MODE_WP: u64 = 1 << 1;

/// `_UFFDIO_ZEROPAGE`: memory in huge pages of its own (`MAP_HUGETLB`) is without it.
const ZEROPAGE: u64 = 1 << 4;

/// `MADV_GUARD_INSTALL`.
const GUARD_INSTALL: libc::c_int = 102;

/// How often a question is asked again while the kernel waits for an event to be read.
const TRIES: usize = 8;

/// The size of a `struct uffd_msg`.
const MESSAGE: usize = 32;

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Pages {
    start: u64,
    len: u64,
}

impl From<Range<usize>> for Pages {
    fn from(range: Range<usize>) -> Self {
        Self {
            start: range.start as u64,
            len: range.len() as u64,
        }
    }
}

/// `struct uffdio_register`; `struct uffdio_continue`, whose last field is signed.
#[repr(C)]
struct InMode {
    pages: Pages,
    mode: u64,
    out: u64,
}

/// What becomes of memory that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Its pages: the addresses are mapped still, and have other pages at the next access.
    Pages,
    /// Its addresses: they are not mapped, or other memory is mapped there by now.
    Addresses,
}

/// Who is told.
pub trait Observer: Send + Debug + 'static {
    /// These addresses, some of which are watched, no longer have the pages they had.
    ///
    /// The thread of the watch calls this while whoever gives the memory back is held up, maybe within `free(3)`. It must
    /// not allocate, free, log, panic, or wait for anybody who does.
    fn gone(&mut self, range: Range<usize>, given: Given);
}

/// Whether a program can give pages back without a [`MemoryWatch`] being told: by guard pages (`MADV_GUARD_INSTALL`, Linux
/// 6.13), behind which there are other pages once they are removed. Also where that cannot be tried.
#[must_use]
pub fn has_guard_pages() -> bool {
    let len = page_size();
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page =
        unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) };
    let Ok(page) = page else {
        return true;
    };
    // SAFETY: all of a mapping that nobody else knows; its content does not matter.
    let refused = unsafe { libc::madvise(page, len, GUARD_INSTALL) } != 0;
    // SAFETY: mapped above.
    let _ = unsafe { munmap(page, len) };
    !refused
}

/// A watch on ranges of private anonymous memory, with what observes it behind a lock.
///
/// `munmap(2)` and the others that give watched memory back return when the observer has been told. The observer stays
/// locked from before that until it has. So who looks something up in it by an address after such a call finds nothing old;
/// for calls that have not returned yet there is [`holds`](Self::holds).
///
/// Who holds the lock must neither allocate nor free: that may give watched memory back, which waits for the lock.
#[derive(Debug)]
pub struct MemoryWatch<T: Observer> {
    /// `None` once the watch ends: then the thread has the last one.
    fd: Option<Arc<OwnedFd>>,
    stop: Arc<EventFd>,
    observer: Arc<Mutex<T>>,
    thread: Option<JoinHandle<()>>,
    /// The process whose memory is watched.
    pid: u32,
}

impl<T: Observer> MemoryWatch<T> {
    /// A watch on nothing, with a thread of this name.
    ///
    /// # Errors
    ///
    /// `EPERM` and `ENOSYS` where the process may not do that or the kernel cannot, `EOPNOTSUPP` where the kernel does it in
    /// another way than this depends on (before Linux 5.14), `EMFILE`, `ENOMEM`, `EAGAIN` without a thread.
    pub fn start(name: &str, observer: T) -> Result<Self> {
        let fd = Arc::new(open()?);
        let stop = Arc::new(EventFd::new()?);
        let observer = Arc::new(Mutex::new(observer));
        let shared = (Arc::clone(&fd), Arc::clone(&stop), Arc::clone(&observer));
        // A handler of the program may allocate: none runs in that thread.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
        let before = before.map_err(nix_errno)?;
        let run = move || run(shared.0, &shared.1, &shared.2);
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(run);
        // It was in force before.
        let _ = before.thread_set_mask();
        let watch = Self {
            fd: Some(fd),
            stop,
            observer,
            thread: Some(spawned.map_err(|_| Errno::EAGAIN)?),
            pid: std::process::id(),
        };
        watch.try_kinds()?;
        Ok(watch)
    }

    /// Whether this is a child of `fork(2)`, whose memory is not watched and whose copy of the lock may be held for ever.
    fn is_inherited(&self) -> bool {
        self.pid != std::process::id()
    }

    fn fd(&self) -> Result<&OwnedFd> {
        let fd = self.fd.as_deref().ok_or(Errno::EINVAL)?;
        match self.is_inherited() {
            true => Err(Errno::EPERM),
            false => Ok(fd),
        }
    }

    /// The observer; `None` in a child of `fork(2)`. See the type for what must not be done meanwhile.
    #[must_use]
    pub fn lock(&self) -> Option<MutexGuard<'_, T>> {
        (!self.is_inherited()).then(|| lock(&self.observer))
    }

    /// Watches these pages, some of which may be watched already.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what is no memory or of a file, `EBUSY` for what somebody else watches, `ENOMEM`; `EOPNOTSUPP` for memory
    /// in pages of another size. Then nothing is watched that was not before. `EPERM` in a child of `fork(2)`.
    pub fn watch(&self, pages: Range<usize>) -> Result<()> {
        let fd = self.fd()?;
        let mut register = InMode {
            pages: pages.clone().into(),
            mode: MODE_WP,
            out: 0,
        };
        const REGISTER: Opcode = opcode::read_write::<InMode>(GROUP, 0x00);
        // SAFETY: this operation reads and writes this struct.
        let updater = unsafe { Updater::<REGISTER, InMode>::new(&mut register) };
        // SAFETY: as the updater says. Of memory it changes only who is told of events.
        unsafe { ioctl(fd, updater) }.map_err(errno)?;
        if register.out & ZEROPAGE == 0 {
            self.unwatch(pages);
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(())
    }

    /// Watches these pages no longer.
    pub fn unwatch(&self, pages: Range<usize>) {
        let Ok(fd) = self.fd() else {
            return;
        };
        let mut pages = Pages::from(pages);
        const UNREGISTER: Opcode = opcode::read::<Pages>(GROUP, 0x01);
        // SAFETY: this operation reads this struct.
        let updater = unsafe { Updater::<UNREGISTER, Pages>::new(&mut pages) };
        // SAFETY: as the updater says. Of memory it changes only who is told of events. What is no memory any more is
        // refused, which is as good.
        let _ = unsafe { ioctl(fd, updater) };
    }

    /// Whether all of these pages are private anonymous memory in one mapping, watched, and nothing that is watched is being
    /// given back just now: then what the observer says of them is true. `false` also where that is not known.
    ///
    /// Between the end of a mapping and its event another thread may map other memory at its address; that is `false` here.
    #[must_use]
    pub fn holds(&self, pages: Range<usize>) -> bool {
        let Ok(fd) = self.fd() else {
            return false;
        };
        const CONTINUE: Opcode = opcode::read_write::<InMode>(GROUP, 0x07);
        for _ in 0..TRIES {
            let mut asked = InMode {
                pages: pages.clone().into(),
                mode: 0,
                out: 0,
            };
            // SAFETY: this operation reads and writes this struct.
            let updater = unsafe { Updater::<CONTINUE, InMode>::new(&mut asked) };
            // SAFETY: as the updater says. It maps pages of shared memory that are there already, as an access would, and is
            // refused for anonymous memory: that is the answer.
            match unsafe { ioctl(fd, updater) } {
                Err(io::Errno::INVAL) => return true,
                Err(io::Errno::AGAIN | io::Errno::INTR) => thread::yield_now(),
                _ => return false,
            }
        }
        false
    }

    /// Whether the kernel tells kinds of memory from each other in the way that [`holds`](Self::holds) takes it to.
    fn try_kinds(&self) -> Result<()> {
        let len = page_size();
        let shared = MemFd::create("ripstop-watch", len)?;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let file = unsafe {
            mmap(
                ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                shared.as_fd(),
                0,
            )
        };
        let file = file.map_err(errno)?;
        // SAFETY: as above.
        let own =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ, MapFlags::PRIVATE) };
        let own = own.map_err(errno);
        let pages = |start: *mut std::ffi::c_void| start.addr()..start.addr() + len;
        let tells_shared = match self.watch(pages(file)) {
            Ok(()) => !self.holds(pages(file)),
            Err(_) => true,
        };
        let tells_own = own.is_ok_and(|own| {
            let before = self.holds(pages(own));
            let watched = self.watch(pages(own)).is_ok();
            watched && !before && self.holds(pages(own))
        });
        for start in [Ok(file), own].into_iter().flatten() {
            // SAFETY: mapped above, and used by nobody else. The thread reads the event.
            unsafe { munmap(start, len) }.map_err(errno)?;
        }
        let gone = own.is_ok_and(|own| !self.holds(pages(own)));
        match tells_shared && tells_own && gone {
            true => Ok(()),
            false => Err(Errno::EOPNOTSUPP),
        }
    }
}

impl<T: Observer> Drop for MemoryWatch<T> {
    fn drop(&mut self) {
        if self.is_inherited() {
            // The thread is the parent's.
            std::mem::forget(self.thread.take());
            return;
        }
        // Until the thread has closed the descriptor somebody has to read events, this thread's among them.
        self.fd = None;
        let told = self.stop.signal();
        if let (Ok(()), Some(thread)) = (told, self.thread.take()) {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

fn lock<T>(observer: &Mutex<T>) -> MutexGuard<'_, T> {
    observer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A descriptor for events.
fn open() -> Result<OwnedFd> {
    let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
    let flags = flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY);
    // SAFETY: the descriptor stays in this module, which only asks for events.
    let fd = unsafe { userfaultfd(flags) }.map_err(errno)?;
    let mut api = Api {
        api: u64::from(GROUP),
        features: FEATURES,
        ioctls: 0,
    };
    const API: Opcode = opcode::read_write::<Api>(GROUP, 0x3f);
    // SAFETY: this operation reads and writes this struct.
    let updater = unsafe { Updater::<API, Api>::new(&mut api) };
    // SAFETY: as the updater says.
    unsafe { ioctl(&fd, updater) }.map_err(errno)?;
    match api.features & NEEDED {
        0 => Err(Errno::EOPNOTSUPP),
        _ => Ok(fd),
    }
}

/// The thread. It must never allocate, nor wait for anybody who does; the first lock, before anything is watched, makes what
/// belongs to the thread.
fn run<T: Observer>(fd: Arc<OwnedFd>, stop: &EventFd, observer: &Mutex<T>) {
    drop(lock(observer));
    loop {
        let mut ready = [
            PollFd::new(&*fd, PollFlags::IN),
            PollFd::new(stop, PollFlags::IN),
        ];
        // What is interrupted is looked at all the same: reads do not block.
        let _ = poll(&mut ready, None);
        let [_, stopped] = &ready;
        if !stopped.revents().is_empty() {
            break;
        }
        // Before the event is read: that lets go who gives memory back.
        let mut observer = lock(observer);
        read_events(&fd, |(range, given)| observer.gone(range, given));
    }
    // Lets everybody go who waits for an event to be read.
    drop(fd);
}

/// Reads the events that have come.
fn read_events(fd: &OwnedFd, mut gone: impl FnMut((Range<usize>, Given))) {
    let mut messages = [0; 16 * MESSAGE];
    match io::read(fd, &mut messages) {
        Ok(count) => {
            let (messages, _) = messages.as_chunks::<MESSAGE>();
            let read = messages.iter().take(count / MESSAGE);
            read.filter_map(parse).for_each(gone);
        }
        Err(io::Errno::AGAIN | io::Errno::INTR) => {}
        // Not known to happen. Then nothing is known of any memory.
        Err(_) => gone((0..usize::MAX, Given::Pages)),
    }
}

/// What a message (`struct uffd_msg`) tells.
fn parse(message: &[u8; MESSAGE]) -> Option<(Range<usize>, Given)> {
    const REMAP: u8 = 0x14;
    const REMOVE: u8 = 0x15;
    const UNMAP: u8 = 0x16;
    let (words, _) = message.as_chunks::<8>();
    let [_, first, second, third] = words else {
        return None;
    };
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) as usize;
    let (start, second) = (word(first), word(second));
    match message[0] {
        // From where, to where, how long. The old addresses may stay mapped (`MREMAP_DONTUNMAP`).
        REMAP => Some((start..start.saturating_add(word(third)), Given::Pages)),
        REMOVE => Some((start..second, Given::Pages)),
        UNMAP => Some((start..second, Given::Addresses)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_ranges() {
        let message = |event: u8, words: [u64; 3]| {
            let mut message = [0; MESSAGE];
            message[0] = event;
            for (at, word) in words.iter().enumerate() {
                message[8 + 8 * at..][..8].copy_from_slice(&word.to_ne_bytes());
            }
            parse(&message)
        };
        assert_eq!(
            message(0x14, [0x1000, 0x9000, 0x3000]),
            Some((0x1000..0x4000, Given::Pages))
        );
        let removed = message(0x15, [0x1000, 0x9000, 7]);
        assert_eq!(removed, Some((0x1000..0x9000, Given::Pages)));
        let unmapped = message(0x16, [0x1000, 0x9000, 7]);
        assert_eq!(unmapped, Some((0x1000..0x9000, Given::Addresses)));
        assert_eq!(message(0x12, [0x1000, 0x9000, 7]), None);
    }
}
