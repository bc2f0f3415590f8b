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

/// The node of an object in the doubly linked list of all objects. It is a part of the object.
#[derive(Debug)]
pub(crate) struct Node {
    object: Cell<*mut ()>,
    prev: Cell<*mut Node>,
    next: Cell<*mut Node>,
    /// Takes the address of the object.
    disown: unsafe fn(*mut ()),
}

impl Node {
    /// One that is in no list yet.
    pub(crate) const fn new(disown: unsafe fn(*mut ())) -> Self {
        Self {
            object: Cell::new(ptr::null_mut()),
            prev: Cell::new(ptr::null_mut()),
            next: Cell::new(ptr::null_mut()),
            disown,
        }
    }
}

/// The list of all objects, with a spin lock. The thread that forks holds it across the fork: so the list is whole in
/// the child, where that thread is the only one, and releases the lock.
struct Objects {
    locked: AtomicBool,
    first: UnsafeCell<*mut Node>,
}

// SAFETY: `first` and all nodes are used under the lock only.
unsafe impl Sync for Objects {}

static OBJECTS: Objects = Objects {
    locked: AtomicBool::new(false),
    first: UnsafeCell::new(ptr::null_mut()),
};

impl Objects {
    fn lock(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }
}

extern "C" fn before_fork() {
    OBJECTS.lock();
}

extern "C" fn in_parent() {
    OBJECTS.unlock();
}

extern "C" fn in_child() {
    // SAFETY: `before_fork` has taken the lock.
    let first = unsafe { OBJECTS.first.get().replace(ptr::null_mut()) };
    let mut next = first;
    while !next.is_null() {
        // SAFETY: what is in the list is live.
        let node = unsafe { &*next };
        next = node.next.get();
        // SAFETY: the address came with this function, and the child has no other thread.
        unsafe { (node.disown)(node.object.get()) };
    }
    OBJECTS.unlock();
}

/// Puts an object into the list.
///
/// # Safety
///
/// `node` is that of `object`, in no list, and stays where it is until [`unlink`]; its `disown`
/// takes `object`.
pub(crate) unsafe fn link(node: *mut Node, object: *mut ()) {
    if ripstop_os::at_fork(before_fork, in_parent, in_child).is_err() {
        fi_warn_sparse!(
            "core",
            Subsys::Core,
            "there is no memory to look after child processes: one that calls the library disturbs \
             this one"
        );
    }
    OBJECTS.lock();
    // SAFETY: the lock is taken.
    let first = unsafe { OBJECTS.first.get().replace(node) };
    // SAFETY: the node of a live object, by the contract of this function; nodes are only shared.
    let new = unsafe { &*node };
    new.object.set(object);
    new.next.set(first);
    // SAFETY: what is in the list is live.
    if let Some(first) = unsafe { first.as_ref() } {
        first.prev.set(node);
    }
    OBJECTS.unlock();
}

/// Takes an object out of the list.
///
/// # Safety
///
/// `node` has been linked, in this process.
pub(crate) unsafe fn unlink(node: *mut Node) {
    OBJECTS.lock();
    // SAFETY: it was linked and not unlinked, so its object is live.
    let old = unsafe { &*node };
    let (prev, next) = (old.prev.get(), old.next.get());
    // SAFETY: what is in the list is live.
    match unsafe { prev.as_ref() } {
        Some(prev) => prev.next.set(next),
        // SAFETY: the lock is taken.
        None => unsafe { OBJECTS.first.get().write(next) },
    }
    // SAFETY: what is in the list is live.
    if let Some(next) = unsafe { next.as_ref() } {
        next.prev.set(prev);
    }
    OBJECTS.unlock();
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
