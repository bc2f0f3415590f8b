//! Memory that is given back, in each way there is, and who asks for it meanwhile.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ffi::c_void;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use ripstop_os::{Given, MemoryWatch, Observer, has_guard_pages};
use ripstop_types::Errno;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{
    Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap, munmap,
};
use rustix::thread::gettid;

const PAGE: usize = 4096;

/// The thread of the watch, once it has told something.
static TELLER: AtomicI32 = AtomicI32::new(0);

/// What that thread has allocated or freed since.
static BY_TELLER: AtomicU64 = AtomicU64::new(0);

struct Counting;

impl Counting {
    fn count() {
        let teller = TELLER.load(Ordering::Relaxed);
        if teller != 0 && teller == gettid().as_raw_nonzero().get() {
            BY_TELLER.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: as the system's.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::count();
        // SAFETY: as the caller says.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        Self::count();
        // SAFETY: as the caller says.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// A mapping of the test.
#[derive(Clone, Copy)]
struct Area {
    start: usize,
    len: usize,
}

impl Area {
    fn new(pages: usize) -> Self {
        Self::at(ptr::null_mut(), pages, MapFlags::PRIVATE)
    }

    fn at(start: *mut c_void, pages: usize, flags: MapFlags) -> Self {
        let len = pages * PAGE;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, or one in place of memory of the test.
        let start = unsafe { mmap_anonymous(start, len, rights, flags) }.expect("memory");
        Self::touched(start, len)
    }

    fn of(fd: impl AsFd, flags: MapFlags) -> Self {
        let (len, rights) = (4 * PAGE, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: a new mapping.
        let start = unsafe { mmap(ptr::null_mut(), len, rights, flags, fd, 0) }.expect("memory");
        Self::touched(start, len)
    }

    fn touched(start: *mut c_void, len: usize) -> Self {
        // SAFETY: the mapping.
        unsafe { start.cast::<u8>().write_bytes(7, len) };
        let start = start.expose_provenance();
        Self { start, len }
    }

    fn pages(&self, from: usize, count: usize) -> Range<usize> {
        let start = self.start + from * PAGE;
        start..start + count * PAGE
    }

    fn all(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    fn unmap(&self) {
        // SAFETY: memory of the test.
        unsafe { munmap(place(self.start), self.len) }.expect("it was mapped");
    }
}

fn place(at: usize) -> *mut c_void {
    ptr::with_exposed_provenance_mut(at)
}

fn advise(pages: Range<usize>, advice: Advice) {
    // SAFETY: memory of the test.
    unsafe { madvise(place(pages.start), pages.len(), advice) }.expect("advice");
}

/// What was told, the newest 32.
#[derive(Debug, Default)]
struct Told {
    ranges: [Range<usize>; 32],
    count: usize,
}

impl Observer for Told {
    fn gone(&mut self, range: Range<usize>, _: Given) {
        let at = self.count % self.ranges.len();
        self.ranges[at] = range;
        self.count += 1;
    }
}

/// A watch, or a line where the system has none; and the lock that keeps other tests from watching what is mapped where
/// this one has unmapped something.
fn start<T: Observer>(observer: T) -> Option<(MemoryWatch<T>, MutexGuard<'static, ()>)> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    match MemoryWatch::start("test-watch", observer) {
        Ok(watch) => Some((watch, alone)),
        Err(error) => {
            println!("SKIP: no userfaultfd that tells of private memory: {error}");
            None
        }
    }
}

fn told(watch: &MemoryWatch<Told>) -> Vec<Range<usize>> {
    let mut ranges = Vec::with_capacity(32);
    let mut told = watch.lock().expect("no child");
    ranges.extend(told.ranges[..told.count.min(32)].iter().cloned());
    told.count = 0;
    ranges
}

#[test]
fn each_way_to_give_memory_back_is_told_before_it_returns() {
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    let area = Area::new(16);
    assert!(!watch.holds(area.all()));
    watch.watch(area.all()).expect("private memory");
    assert!(watch.holds(area.all()));
    assert!(watch.holds(area.pages(3, 2)));
    told(&watch);

    advise(area.pages(0, 1), Advice::LinuxDontNeed);
    assert_eq!(told(&watch), [area.pages(0, 1)]);
    advise(area.pages(1, 2), Advice::LinuxFree);
    assert_eq!(told(&watch), [area.pages(1, 2)]);
    assert!(watch.holds(area.all()), "it is the same mapping still");

    // SAFETY: memory of the test.
    let moved = unsafe {
        mremap(
            place(area.start + 4 * PAGE),
            2 * PAGE,
            4 * PAGE,
            MremapFlags::MAYMOVE,
        )
    };
    let moved = moved.expect("memory").addr();
    assert_ne!(moved, area.start + 4 * PAGE);
    assert!(told(&watch).contains(&area.pages(4, 2)));
    assert!(!watch.holds(area.pages(4, 2)));

    let fixed = MapFlags::PRIVATE | MapFlags::FIXED;
    Area::at(place(area.start + 8 * PAGE), 1, fixed);
    assert_eq!(told(&watch), [area.pages(8, 1)]);
    assert!(!watch.holds(area.pages(8, 1)));
    assert!(!watch.holds(area.pages(7, 3)));

    let last = Area {
        start: area.start + 12 * PAGE,
        len: 4 * PAGE,
    };
    last.unmap();
    assert_eq!(told(&watch), [area.pages(12, 4)]);
    assert!(!watch.holds(last.all()));

    // What is not watched is not told.
    watch.unwatch(area.pages(9, 2));
    advise(area.pages(9, 1), Advice::LinuxDontNeed);
    assert_eq!(told(&watch), []);
    area.unmap();
}

#[test]
fn the_heap_is_told_when_it_shrinks() {
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    // As `free(3)` does with a block of its own.
    let memory = vec![7_u8; 4 << 20];
    let start = memory.as_ptr().addr().next_multiple_of(PAGE);
    watch
        .watch(start..start + (1 << 20))
        .expect("private memory");
    let grown = {
        let mut memory = memory;
        memory.resize(16 << 20, 7);
        memory
    };
    assert!(grown.iter().all(|&byte| byte == 7));
    let told = told(&watch);
    assert!(told.iter().any(|range| range.contains(&start)), "{told:?}");
}

#[test]
fn memory_of_files_is_not_held() {
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    let memfd = || -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC).expect("memory");
        ftruncate(&fd, 4 * PAGE as u64).expect("its length");
        fd
    };
    let path = std::env::temp_dir().join(format!("ripstop-watch-{}", std::process::id()));
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path);
    let file = file.expect("a file");
    std::fs::remove_file(&path).expect("the file");
    file.set_len(4 * PAGE as u64).expect("its length");
    let shared_without_name = Area::at(ptr::null_mut(), 4, MapFlags::SHARED);
    let areas = [
        shared_without_name,
        Area::of(memfd(), MapFlags::SHARED),
        Area::of(memfd(), MapFlags::PRIVATE),
        Area::of(&file, MapFlags::SHARED),
        Area::of(&file, MapFlags::PRIVATE),
    ];
    for (at, area) in areas.iter().enumerate() {
        let watched = watch.watch(area.all()).is_ok();
        assert!(!watch.holds(area.all()), "{at}: watched {watched}");
        if watched {
            watch.unwatch(area.all());
        }
        area.unmap();
    }
    // A mapping ends where there is other memory.
    let area = Area::new(4);
    let fixed = MapFlags::SHARED | MapFlags::FIXED;
    Area::at(place(area.start + 2 * PAGE), 1, fixed);
    watch.watch(area.all()).expect("memory");
    assert!(watch.holds(area.pages(0, 2)));
    assert!(!watch.holds(area.all()));
    area.unmap();
}

/// Why who relies on a watch has to ask for guard pages.
#[test]
fn guard_pages_are_known_and_not_told() {
    /// `MADV_GUARD_INSTALL` and `MADV_GUARD_REMOVE`.
    const GUARDS: [libc::c_int; 2] = [102, 103];
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    let area = Area::new(4);
    watch.watch(area.all()).expect("private memory");
    // What it has tried when it started.
    told(&watch);
    let advised = GUARDS.map(|advice| {
        // SAFETY: memory of the test.
        unsafe { libc::madvise(place(area.start), area.len, advice) }
    });
    assert_eq!(advised, if has_guard_pages() { [0; 2] } else { [-1; 2] });
    // SAFETY: memory of the test, which nobody else uses.
    let first = unsafe { place(area.start).cast::<u8>().read() };
    assert_eq!(first == 0, has_guard_pages(), "other pages are there");
    assert!(
        told(&watch).is_empty(),
        "then guards need no question any more"
    );
    area.unmap();
}

#[test]
fn system_calls_reach_dropped_pages() {
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    let area = Area::new(4);
    watch.watch(area.all()).expect("private memory");
    advise(area.all(), Advice::LinuxDontNeed);
    // SAFETY: memory of the test, which nobody else uses.
    let room = unsafe { std::slice::from_raw_parts_mut(place(area.start).cast::<u8>(), area.len) };
    let zeros = File::open("/dev/zero").expect("zeros");
    assert_eq!(rustix::io::read(&zeros, &mut *room), Ok(area.len));
    assert!(room.iter().all(|&byte| byte == 0));
    area.unmap();
}

#[test]
fn a_child_has_no_watch_and_does_not_disturb_the_parents() {
    let Some((watch, _alone)) = start(Told::default()) else {
        return;
    };
    let area = Area::new(8);
    watch.watch(area.all()).expect("private memory");
    told(&watch);
    let locked = watch.lock().expect("no child");
    // SAFETY: the child uses what is its own, and leaves at once.
    match unsafe { libc::fork() } {
        0 => {
            let refused = watch.watch(area.all()) == Err(Errno::EPERM);
            let right = refused && watch.lock().is_none() && !watch.holds(area.all());
            area.unmap();
            std::mem::forget(locked);
            drop(watch);
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        child => {
            drop(locked);
            let mut status = -1;
            // SAFETY: a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0);
        }
    }
    assert_eq!(told(&watch), []);
    advise(area.pages(2, 1), Advice::LinuxDontNeed);
    assert_eq!(told(&watch), [area.pages(2, 1)]);
    area.unmap();
}

/// Mappings with the number of who made them.
#[derive(Debug)]
struct Known {
    all: [Option<(usize, u64)>; 64],
}

impl Known {
    fn find(&self, start: usize) -> Option<u64> {
        let mut all = self.all.iter().flatten();
        all.find(|(at, _)| *at == start).map(|(_, by)| *by)
    }

    fn put(&mut self, start: usize, by: u64) {
        let at =
            (0..self.all.len()).find(|&at| matches!(self.all[at], Some((at, _)) if at == start));
        let at = at.or_else(|| self.all.iter().position(Option::is_none));
        self.all[at.expect("room")] = Some((start, by));
    }
}

impl Observer for Known {
    fn gone(&mut self, range: Range<usize>, _: Given) {
        TELLER.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        for known in &mut self.all {
            if matches!(known, Some((start, _)) if range.contains(start)) {
                *known = None;
            }
        }
    }
}

/// Threads that map and unmap, and get each other's addresses.
fn churn(watch: &MemoryWatch<Known>, by: u64, rounds: u64) -> u64 {
    let mut held = 0;
    for round in 0..rounds {
        let mark = by << 32 | round;
        let area = Area::new(4);
        let found = watch.lock().expect("no child").find(area.start);
        assert!(
            found.is_none() || !watch.holds(area.all()),
            "a mapping that has ended is found: {found:?}"
        );
        watch.watch(area.all()).expect("private memory");
        watch.lock().expect("no child").put(area.start, mark);
        let found = watch.lock().expect("no child").find(area.start);
        if watch.holds(area.all()) && found.is_some() {
            assert_eq!(found, Some(mark));
            held += 1;
        }
        match round % 3 {
            0 => advise(area.pages(0, 4), Advice::LinuxDontNeed),
            1 => drop(vec![1_u8; 300 << 10]),
            _ => {}
        }
        area.unmap();
        let found = watch.lock().expect("no child").find(area.start);
        assert_ne!(found, Some(mark), "the end of a mapping was not told");
    }
    held
}

/// Whether the thread that holds the lock again and again ends: when the first other one does, also by a failure.
struct Stop(AtomicBool);

struct OnDrop<'a>(&'a Stop);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_old_is_found_while_many_threads_unmap() {
    let Some((watch, _alone)) = start(Known { all: [None; 64] }) else {
        return;
    };
    let stop = Stop(AtomicBool::new(false));
    let stop = &stop;
    let held: u64 = thread::scope(|scope| {
        // Holds the lock again and again.
        scope.spawn(|| {
            while !stop.0.load(Ordering::Relaxed) {
                let known = watch.lock().expect("no child");
                thread::yield_now();
                drop(known);
            }
        });
        let watch = &watch;
        let churning: Vec<_> = (0..6)
            .map(|by| {
                scope.spawn(move || {
                    let _end = OnDrop(stop);
                    churn(watch, by, 2000)
                })
            })
            .collect();
        let held = churning.into_iter().map(|it| it.join().expect("no panic"));
        held.sum()
    });
    assert!(held > 0);
    TELLER.store(0, Ordering::Relaxed);
    assert_eq!(
        BY_TELLER.load(Ordering::Relaxed),
        0,
        "allocations of the thread"
    );
}

#[test]
fn a_watch_ends_while_memory_is_given_back() {
    for _ in 0..50 {
        let Some((watch, _alone)) = start(Told::default()) else {
            return;
        };
        let areas: Vec<_> = (0..8).map(|_| Area::new(4)).collect();
        for area in &areas {
            watch.watch(area.all()).expect("private memory");
        }
        thread::scope(|scope| {
            scope.spawn(|| areas.iter().for_each(Area::unmap));
            drop(watch);
        });
    }
}
