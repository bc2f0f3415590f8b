#![allow(unsafe_code)]
//! Objects that a process has inherited by `fork(2)`.
//!
//! They belong to the parent, with which the child shares what is behind their descriptors: bytes
//! that the child read from a socket would lack in the parent's stream. The memory of the rings of
//! shm and the domain's thread are not even there. So the child is kept from them, which costs
//! calls in the parent nothing: at the fork, all objects of the child get operation tables
//! that refuse (`-FI_EOPBADSTATE`, and a line in the log), and their bodies are no longer found.
//! Closing them succeeds and does nothing; their descriptors end with the child, or when it calls
//! `exec`. What the child opens itself is its own. `fabric(7)` promises no more than that.

use core::cell::{Cell, UnsafeCell};
use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ripstop_abi as abi;
use ripstop_core::fi_warn_sparse;
use ripstop_core::log::Subsys;

use crate::tables::{Table, table};

/// What an object is known as in a child: none of its type.
#[derive(Debug)]
pub(crate) struct Inherited;

/// An object in the list of all objects.
#[derive(Debug)]
pub(crate) struct Place {
    object: Cell<*mut ()>,
    before: Cell<*mut Place>,
    after: Cell<*mut Place>,
    /// Takes the address of the object.
    disown: unsafe fn(*mut ()),
}

impl Place {
    /// One that is in no list yet.
    pub(crate) const fn new(disown: unsafe fn(*mut ())) -> Self {
        Self {
            object: Cell::new(ptr::null_mut()),
            before: Cell::new(ptr::null_mut()),
            after: Cell::new(ptr::null_mut()),
            disown,
        }
    }
}

/// The list. Its lock is one that a child can open that another thread has not taken: it is held
/// across the fork, by the thread that forks.
struct Objects {
    taken: AtomicBool,
    first: UnsafeCell<*mut Place>,
}

// SAFETY: `first` and all places are used under the lock only.
unsafe impl Sync for Objects {}

static OBJECTS: Objects = Objects {
    taken: AtomicBool::new(false),
    first: UnsafeCell::new(ptr::null_mut()),
};

impl Objects {
    fn take(&self) {
        while self.taken.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn give_back(&self) {
        self.taken.store(false, Ordering::Release);
    }
}

extern "C" fn before_fork() {
    OBJECTS.take();
}

extern "C" fn in_parent() {
    OBJECTS.give_back();
}

extern "C" fn in_child() {
    // SAFETY: `before_fork` has taken the lock.
    let first = unsafe { OBJECTS.first.get().replace(ptr::null_mut()) };
    let mut next = first;
    while !next.is_null() {
        // SAFETY: what is in the list is live.
        let place = unsafe { &*next };
        next = place.after.get();
        // SAFETY: the address came with this function, and the child has no other thread.
        unsafe { (place.disown)(place.object.get()) };
    }
    OBJECTS.give_back();
}

/// Puts an object into the list.
///
/// # Safety
///
/// `place` is that of `object`, in no list, and stays where it is until [`leave`]; its `disown`
/// takes `object`.
pub(crate) unsafe fn enter(place: *mut Place, object: *mut ()) {
    if ripstop_os::at_fork(before_fork, in_parent, in_child).is_err() {
        fi_warn_sparse!(
            "core",
            Subsys::Core,
            "there is no memory to look after child processes: one that calls the library disturbs \
             this one"
        );
    }
    OBJECTS.take();
    // SAFETY: the lock is taken.
    let first = unsafe { OBJECTS.first.get().replace(place) };
    // SAFETY: the place of a live object, by the contract of this function; places are only shared.
    let new = unsafe { &*place };
    new.object.set(object);
    new.after.set(first);
    // SAFETY: what is in the list is live.
    if let Some(first) = unsafe { first.as_ref() } {
        first.before.set(place);
    }
    OBJECTS.give_back();
}

/// Takes an object out of the list.
///
/// # Safety
///
/// `place` has been entered, in this process.
pub(crate) unsafe fn leave(place: *mut Place) {
    OBJECTS.take();
    // SAFETY: it was entered and has not left, so its object is live.
    let old = unsafe { &*place };
    let (before, after) = (old.before.get(), old.after.get());
    // SAFETY: what is in the list is live.
    match unsafe { before.as_ref() } {
        Some(before) => before.after.set(after),
        // SAFETY: the lock is taken.
        None => unsafe { OBJECTS.first.get().write(after) },
    }
    // SAFETY: what is in the list is live.
    if let Some(after) = unsafe { after.as_ref() } {
        after.before.set(before);
    }
    OBJECTS.give_back();
}

/// `fi_close` in the child: there is nothing of its own to end.
unsafe extern "C" fn close(_: *mut abi::fid) -> c_int {
    0
}

/// A public struct, which the child keeps.
pub(crate) trait Head {
    /// Has every operation of the object refused.
    ///
    /// # Safety
    ///
    /// `head` is a live object that no other thread uses.
    unsafe fn disown(head: *mut Self);
}

static FID: abi::fi_ops = abi::fi_ops {
    close: Some(close),
    ..*Table::NOT_OURS
};

/// The tables of each public struct beside that of its `fid`.
macro_rules! heads {
    ($($head:ident { $($field:ident)* })*) => { $(
        impl Head for abi::$head {
            unsafe fn disown(head: *mut Self) {
                // SAFETY: a live object that no other thread uses, by the contract of this function.
                let head = unsafe { &mut *head };
                head.fid.ops = table(&FID);
                $(head.$field = table(Table::NOT_OURS);)*
            }
        }
    )* };
}

heads! {
    fid_fabric { ops }
    fid_domain { ops mr }
    fid_ep { ops cm msg rma tagged atomic collective }
    fid_pep { ops cm }
    fid_stx { ops }
    fid_mr {}
    fid_mc {}
    fid_av { ops }
    fid_av_set { ops }
    fid_cq { ops }
    fid_cntr { ops }
    fid_eq { ops }
    fid_wait { ops }
    fid_poll { ops }
}
