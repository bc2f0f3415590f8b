#![allow(unsafe_code)]
//! The device of `bench/device`, and an allocator that asks it about all memory that is given back.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libloading::os::unix::{Library, RTLD_LAZY};

use crate::process::{HOLD_READS, Registrations, Requests};

/// The length of the buffers that are counted; nothing else has it.
pub(crate) const SIZE: usize = 300_007;

/// Of shorter memory the device is not asked.
const LEAST: usize = 4096;

/// `dlopen(3)`: only what is loaded.
const RTLD_NOLOAD: i32 = 4;

type MayBeWritten = unsafe extern "C" fn(*const u8, usize) -> bool;

static MAY_BE_WRITTEN: OnceLock<MayBeWritten> = OnceLock::new();
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static EARLY: AtomicUsize = AtomicUsize::new(0);

/// Buffers of [`SIZE`] bytes that were given back.
pub(crate) fn given_back() -> usize {
    BUFFERS.load(Ordering::Relaxed)
}

/// How often memory was given back that the device might have written afterwards.
pub(crate) fn given_back_early() -> usize {
    EARLY.load(Ordering::Relaxed)
}

struct Watching;

#[global_allocator]
static ALLOCATOR: Watching = Watching;

// SAFETY: the system's allocator does all of it. What the device is asked allocates nothing.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's guarantee.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let len = layout.size();
        if len >= LEAST
            && let Some(may_be_written) = MAY_BE_WRITTEN.get()
        {
            BUFFERS.fetch_add(usize::from(len == SIZE), Ordering::Relaxed);
            // SAFETY: it looks at addresses only.
            let early = unsafe { may_be_written(memory, len) };
            EARLY.fetch_add(usize::from(early), Ordering::Relaxed);
        }
        // SAFETY: the caller's guarantee.
        unsafe { System.dealloc(memory, layout) }
    }
}

/// The device, as a test sees it.
pub(crate) struct Device {
    requests: *mut Requests,
    let_go: unsafe extern "C" fn(),
    registrations: *const Registrations,
}

impl Device {
    /// Of a process that has opened it.
    pub(crate) fn loaded() -> Self {
        // SAFETY: nothing is loaded.
        let library = unsafe { Library::open(Some("libibverbs.so.1"), RTLD_LAZY | RTLD_NOLOAD) };
        let library = library.expect("the device");
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: of the type that it has in `bench/device/device.c`, and never unloaded.
                *unsafe { library.get($name) }.expect("a symbol of the device")
            };
        }
        MAY_BE_WRITTEN.get_or_init(|| symbol!(b"may_be_written"));
        Self {
            requests: symbol!(b"requests"),
            let_go: symbol!(b"requests_let_go"),
            registrations: symbol!(b"registrations"),
        }
    }

    /// Reads are under way from now on until they are let go.
    pub(crate) fn hold_reads(&self) {
        // SAFETY: one thread uses the device.
        unsafe { (*self.requests).hold = HOLD_READS };
    }

    /// How many of them are under way.
    pub(crate) fn held_reads(&self) -> u64 {
        // SAFETY: one thread uses the device.
        unsafe { (*self.requests).held }
    }

    pub(crate) fn let_go_reads(&self) {
        // SAFETY: one thread uses the device.
        unsafe { (self.let_go)() };
    }

    /// Queue pairs are not told from now on that their peers have gone.
    pub(crate) fn silence(&self) {
        // SAFETY: one thread uses the device.
        unsafe { (*self.requests).silent = 1 };
    }

    /// What it has counted, and what it was told.
    pub(crate) fn requests(&self) -> Requests {
        // SAFETY: one thread uses the device.
        unsafe { *self.requests }
    }

    /// Registrations that have ended.
    pub(crate) fn ended(&self) -> u64 {
        // SAFETY: one thread uses the device.
        unsafe { (*self.registrations).ended }
    }
}
