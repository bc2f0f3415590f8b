//! C programs whose memory is mapped by their peers: they have it from `memfd_create(2)`, sealed
//! against shrinking, and register it as any other.
//!
//! That it was mapped shows where an operation is done while its target does nothing.
// Everything a C program does is unsafe; the tests keep to what the man pages ask.
#![allow(unsafe_code, clippy::undocumented_unsafe_blocks)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    clippy::macro_metavars_in_unsafe
)]

mod c;

use core::ffi::{c_int, c_void};
use core::ptr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use c::side::*;
use c::*;
use ripstop_abi::*;
use rustix::fs::SealFlags;
use rustix::mm::MapFlags;

struct Two {
    near: Side,
    far: Side,
    to: fi_addr_t,
}

impl Two {
    fn open(mr_mode: c_int) -> Self {
        let (near, far) = (Side::open(mr_mode), Side::open(mr_mode));
        let to = insert(near.av, &name(unsafe { (*far.ep).cm }, far.ep.cast()));
        let two = Self { near, far, to };
        two.send();
        two.rest();
        two
    }

    /// A message from the near side to the far one.
    fn send(&self) {
        let (mut room, text) = ([0_u8; 8], [1_u8; 8]);
        let (near, far, none) = (self.near.ep, self.far.ep, ptr::null_mut());
        let into = room.as_mut_ptr().cast();
        let from = text.as_ptr().cast();
        post(self.far.cq, || {
            op!(far, msg.recv(into, 8, none, FI_ADDR_UNSPEC, none))
        });
        post(self.near.cq, || {
            op!(near, msg.send(from, 8, none, self.to, none))
        });
        let mut left = 2;
        until("the message", || {
            for side in [&self.near, &self.far] {
                left -= side.poll().into_iter().filter(Result::is_ok).count();
            }
            (left == 0).then_some(())
        });
    }

    /// Both make progress until nothing is left to be told.
    fn rest(&self) {
        // Epoll is asked by number and by time.
        let end = Instant::now() + Duration::from_micros(200);
        let mut polls = 0;
        while polls < 1000 || Instant::now() < end {
            polls += 1;
            for side in [&self.near, &self.far] {
                op!(side.cq, ops.read(ptr::null_mut(), 0));
            }
        }
    }

    fn write(&self, region: Region, at: u64, text: &[u8]) {
        self.near.write(self.to, region, at, text);
    }

    /// Writes, and says whether the memory was reached while its owner did nothing.
    fn reaches(&self, region: Region, memory: &Memory, text: &[u8]) -> bool {
        self.write(region, 8, text);
        for _ in 0..1000 {
            if let Some(done) = self.near.poll() {
                assert_eq!(done, Ok(7));
                assert_eq!(memory.bytes(8, text.len()), text);
                return true;
            }
        }
        assert_eq!(self.done(), Ok(7));
        assert_eq!(memory.bytes(8, text.len()), text);
        self.rest();
        false
    }

    /// How the operation ends, with progress on both sides.
    fn done(&self) -> Result<usize, c_int> {
        until("a completion", || {
            self.far.poll();
            self.near.poll()
        })
    }

    /// Completions without the far side.
    fn alone(&self, what: &str) {
        assert_eq!(self.near.poll(), Some(Ok(7)), "{what}");
    }
}

#[test]
fn sealed_memory_is_reached_while_its_owner_does_nothing() {
    let all = FI_MR_LOCAL | FI_MR_RAW | FI_MR_ENDPOINT | FI_MR_MMU_NOTIFY | FI_MR_RMA_EVENT;
    let usual = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    for mr_mode in [FI_MR_ALLOCATED, usual, usual | all, FI_MR_BASIC] {
        let two = Two::open(mr_mode);
        let memory = Memory::sealed();
        for call in 0..3 {
            let region = two.far.register_by(call, &memory, LEN, REMOTE, 9, 0);
            two.rest();
            every_operation(&two, &memory, region);
            assert_eq!(close(region.mr), 0);
            // Closed where it was mapped: refused by its owner.
            two.write(region, 0, &[1; 8]);
            assert!(two.done().is_err());
            two.rest();
        }
    }
}

fn every_operation(two: &Two, memory: &Memory, region: Region) {
    let (ep, to, key) = (two.near.ep, two.to, region.key);
    let none = ptr::null_mut();
    let seven = ptr::without_provenance_mut(7);
    for (at, len) in [(0, 8), (3, 1), (100, 1000), (4095, 70_000), (0, LEN)] {
        let text: Vec<u8> = (0..len).map(|i| (i * 7 + at) as u8).collect();
        let from = text.as_ptr().cast();
        let addr = region.base + at as u64;
        assert_eq!(op!(ep, rma.write(from, len, none, to, addr, key, seven)), 0);
        two.alone("a write");
        assert!(memory.bytes(at, len) == text);
        let mut room = vec![0_u8; len];
        let into = room.as_mut_ptr().cast();
        assert_eq!(op!(ep, rma.read(into, len, none, to, addr, key, seven)), 0);
        two.alone("a read");
        assert!(room == text);
    }
    let at = region.base + 17;
    let text = [3_u8; 16];
    let from = text.as_ptr().cast();
    assert_eq!(op!(ep, rma.inject(from, 16, to, at, key)), 0);
    assert_eq!(memory.bytes(17, 16), text);
    two.write(region, 64, &text);
    two.alone("delivered");
    assert_eq!(memory.bytes(64, 16), text);
    atomics(two, memory, region);
}

fn atomics(two: &Two, memory: &Memory, region: Region) {
    let (ep, to, at, key) = (two.near.ep, two.to, region.base + 128, region.key);
    let (none, seven) = (ptr::null_mut(), ptr::without_provenance_mut(7));
    let word = || u64::from_ne_bytes(memory.bytes(128, 8).try_into().unwrap());
    let (mut operand, mut compare, mut result) = (40_u64, 0_u64, 0_u64);
    let give = ptr::from_mut(&mut operand).cast::<c_void>();
    let with = ptr::from_mut(&mut compare).cast::<c_void>();
    let into = ptr::from_mut(&mut result).cast::<c_void>();
    let (kind, op) = (FI_UINT64, FI_ATOMIC_WRITE);
    let code = op!(
        ep,
        atomic.write(give, 1, none, to, at, key, kind, op, seven)
    );
    assert_eq!(code, 0);
    two.alone("an atomic");
    assert_eq!(word(), 40);
    unsafe { give.cast::<u64>().write(2) };
    let code = op!(
        ep,
        atomic.readwrite(give, 1, none, into, none, to, at, key, kind, FI_SUM, seven)
    );
    assert_eq!(code, 0);
    two.alone("an atomic that fetches");
    assert_eq!((unsafe { into.cast::<u64>().read() }, word()), (40, 42));
    for (expected, then) in [(41, 42), (42, 2)] {
        unsafe { with.cast::<u64>().write(expected) };
        let code = op!(
            ep,
            atomic.compwrite(
                give, 1, none, with, none, into, none, to, at, key, kind, FI_CSWAP, seven
            )
        );
        assert_eq!(code, 0);
        two.alone("an atomic that compares");
        assert_eq!((unsafe { into.cast::<u64>().read() }, word()), (42, then));
    }
}

#[test]
fn other_memory_goes_by_the_ring() {
    let two = Two::open(FI_MR_ALLOCATED);
    let reaches = |region: Region, memory: &Memory| {
        two.rest();
        let way = two.reaches(region, memory, &[5; 64]);
        assert_eq!(close(region.mr), 0);
        way
    };
    let sealed = memfd(SealFlags::SHRINK);
    for (what, memory, mapped) in [
        ("sealed", Memory::of(&sealed, MapFlags::SHARED), true),
        ("private", Memory::of(&sealed, MapFlags::PRIVATE), false),
        ("anonymous", Memory::anonymous(), false),
        (
            "open",
            Memory::of(&memfd(SealFlags::empty()), MapFlags::SHARED),
            false,
        ),
    ] {
        let region = two.far.register(&memory, REMOTE, 3);
        assert_eq!(reaches(region, &memory), mapped, "{what}");
    }
    let memory = Memory::of(&sealed, MapFlags::SHARED);
    let less = two.far.register_by(0, &memory, 4095, REMOTE, 3, 0);
    assert!(!reaches(less, &memory), "not worth it");
    let least = two.far.register_by(0, &memory, 4096, REMOTE, 3, 0);
    assert!(reaches(least, &memory));
    let one_way = two.far.register(&memory, FI_REMOTE_WRITE, 3);
    assert!(!reaches(one_way, &memory), "a descriptor gives more");
}

/// A program that may change what is at the addresses of a region (`FI_MR_ALLOCATED` unset).
#[test]
fn who_has_promised_nothing_may_put_other_memory_there() {
    for mr_mode in [0, FI_MR_VIRT_ADDR | FI_MR_PROV_KEY, FI_MR_SCALABLE] {
        let two = Two::open(mr_mode);
        assert_eq!(two.far.info.domain().mr_mode & FI_MR_ALLOCATED, 0);
        let memory = Memory::sealed();
        let region = two.far.register(&memory, REMOTE, 3);
        two.rest();
        assert!(!two.reaches(region, &memory, &[4; 8]));
        memory.replace(None);
        assert!(!two.reaches(region, &memory, &[5; 8]));
        assert_eq!(close(region.mr), 0);
    }
}

#[test]
fn a_refreshed_region_is_what_is_there_now() {
    let two = Two::open(FI_MR_ALLOCATED);
    let memory = Memory::sealed();
    let region = two.far.register(&memory, REMOTE, 3);
    let refresh = || {
        assert_eq!(control(region.mr, FI_REFRESH, ptr::null_mut::<u8>()), 0);
        two.rest();
    };
    two.rest();
    assert!(two.reaches(region, &memory, &[1; 8]));
    refresh();
    assert!(two.reaches(region, &memory, &[2; 8]), "nothing has changed");
    memory.replace(None);
    refresh();
    assert!(!two.reaches(region, &memory, &[3; 8]), "no memfd any more");
    let other = memfd(SealFlags::SHRINK);
    memory.replace(Some(&other));
    refresh();
    assert!(two.reaches(region, &memory, &[4; 8]), "another one");
    assert_eq!(close(region.mr), 0);
    // A region that is counted stays so.
    let counted = two
        .far
        .register_by(0, &memory, LEN, REMOTE, 3, FI_RMA_EVENT);
    let counter = cntr(two.far.domain);
    assert_eq!(bind(counted.mr, counter, FI_REMOTE_WRITE), 0);
    assert_eq!(control(counted.mr, FI_ENABLE, ptr::null_mut::<u8>()), 0);
    assert_eq!(control(counted.mr, FI_REFRESH, ptr::null_mut::<u8>()), 0);
    two.rest();
    assert!(!two.reaches(counted, &memory, &[5; 8]));
    assert_eq!(op!(counter, ops.read()), 1);
    close_all!(counted.mr, counter);
}

/// What no program may do: the peers go on in the memory, which nobody sees, and nothing fails.
#[test]
fn memory_that_is_unmapped_too_early_harms_nobody() {
    let two = Two::open(FI_MR_ALLOCATED);
    let mut memory = Memory::sealed();
    let region = two.far.register(&memory, REMOTE, 3);
    two.rest();
    memory.unmap();
    two.write(region, 0, &[1; 64]);
    two.alone("into the file");
    assert_eq!(control(region.mr, FI_REFRESH, ptr::null_mut::<u8>()), 0);
    assert_eq!(close(region.mr), 0);
    two.write(region, 0, &[1; 64]);
    assert!(two.done().is_err());
}

/// What one thread lends another, which keeps to `FI_THREAD_DOMAIN`.
struct Lent<T>(T);

unsafe impl<T> Send for Lent<T> {}

impl<T> Lent<T> {
    fn take(self) -> T {
        self.0
    }
}

#[test]
fn a_region_closes_while_its_peer_writes() {
    let usual = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    for round in 0..20 {
        let Two { near, far, to } = Two::open(usual);
        let memory = Memory::sealed();
        let region = far.register(&memory, REMOTE, 3);
        let (written, closed) = (AtomicU64::new(0), AtomicBool::new(false));
        let lent = Lent((near, region));
        std::thread::scope(|scope| {
            let (written, closed) = (&written, &closed);
            let writer = scope.spawn(move || {
                let (near, region) = lent.take();
                write_on(&near, to, region, written, closed);
            });
            // The owner makes progress until the peer is at it.
            until("writes", || {
                far.poll();
                (written.load(Ordering::Relaxed) > 20 * round).then_some(())
            });
            assert_eq!(close(region.mr), 0);
            // Nobody writes here any more.
            memory.clear();
            closed.store(true, Ordering::Release);
            until("the end of the writes", || {
                far.poll();
                writer.is_finished().then_some(())
            });
        });
        assert!(memory.bytes(0, LEN).iter().all(|byte| *byte == 0));
    }
}

/// Writes until that is refused, as it is once the region is closed.
fn write_on(near: &Side, to: fi_addr_t, region: Region, written: &AtomicU64, closed: &AtomicBool) {
    let text = vec![6_u8; LEN];
    for len in [8, 4096, LEN].into_iter().cycle() {
        let was_closed = closed.load(Ordering::Acquire);
        near.write(to, region, 0, &text[..len]);
        if until("a completion", || near.poll()).is_err() {
            return;
        }
        assert!(!was_closed, "a write to a closed region");
        written.fetch_add(1, Ordering::Relaxed);
    }
}

const ROLE: &str = "RIPSTOP_MAPPED_ROLE";

/// Whether this process is one that another test has started to run a test alone.
fn has_role(test: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|role| role == test)
}

/// What [`switched_off`] runs in a process of its own; in the process of the tests it does nothing.
#[test]
fn subprocess_without_mapping() {
    if !has_role("subprocess_without_mapping") {
        return;
    }
    let two = Two::open(FI_MR_ALLOCATED);
    assert_eq!(two.far.info.domain().mr_mode & FI_MR_ALLOCATED, 0);
    let memory = Memory::sealed();
    let region = two.far.register(&memory, REMOTE, 3);
    two.rest();
    assert!(!two.reaches(region, &memory, &[4; 8]));
    assert_eq!(close(region.mr), 0);
}

/// What [`the_log_says_once_why`] runs, likewise.
#[test]
fn subprocess_regions_that_may_shrink() {
    if !has_role("subprocess_regions_that_may_shrink") {
        return;
    }
    let side = Side::open(FI_MR_ALLOCATED);
    let memory = Memory::of(&memfd(SealFlags::empty()), MapFlags::SHARED);
    let regions = [1, 2].map(|key| side.register(&memory, REMOTE, key));
    for region in regions {
        assert_eq!(close(region.mr), 0);
    }
}

fn run(test: &str, name: &str, value: &str) -> String {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--nocapture"]);
    let done = command.env(ROLE, test).env(name, value).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stderr).unwrap()
}

#[test]
fn switched_off() {
    run("subprocess_without_mapping", "FI_SHM_MAP_MEMFD", "0");
}

#[test]
fn the_log_says_once_why() {
    let log = run("subprocess_regions_that_may_shrink", "FI_LOG_LEVEL", "info");
    assert_eq!(log.matches("F_SEAL_SHRINK").count(), 1, "{log}");
}
