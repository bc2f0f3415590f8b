//! What a hook is.

use core::any::Any;
use core::ffi::c_void;
use core::fmt::Debug;
use std::sync::Arc;

use ripstop_abi as abi;

use crate::call::{Call, Registration};
use crate::counting::Threads;

/// A hook, of which there is one in a process.
pub trait Hook: Sync {
    /// What watches the calls on an object that was just opened; `parent` is what this hook made of
    /// the object it was opened from, `None` for a fabric.
    fn open(&self, opened: &Opened<'_>, parent: Option<&Arc<dyn Watch>>) -> Arc<dyn Watch>;

    /// The calls that it is told of before they are made, at least.
    fn begins(&self) -> Begins {
        Begins::All
    }

    /// The calls that it is told of when they have returned, at least.
    fn ends(&self) -> Ends {
        Ends::All
    }

    /// An object has this address that is not watched, since another provider owns it.
    fn passed_by(&self, _addr: usize) {}

    /// Whether objects that are closed keep a table whose functions refuse and tell of it, as long
    /// as nothing else has their memory.
    fn tells_of_closed(&self) -> bool {
        false
    }
}

/// Calls that a hook is told of before they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Begins {
    /// None of them.
    None,
    /// Those that move data.
    OfTransfers,
    /// All of them.
    All,
}

/// Calls that a hook is told of when they have returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ends {
    /// None of them.
    None,
    /// All of them.
    All,
}

/// The hooks above a fabric and what is opened from it, the lowest first.
pub type Hooks = Arc<[&'static dyn Hook]>;

/// What watches the calls on one object, for one hook.
pub trait Watch: Any + Debug + Send + Sync {
    /// A call begins.
    #[inline]
    fn before(&self, _call: &Call) {}

    /// It has returned: 0 or a count, or below zero an error with its sign changed. Of a call that
    /// returns a value of another kind, 0.
    #[inline]
    fn after(&self, _call: &Call, _result: isize) {}

    /// Another object that this hook watches was bound to this one (`fi_bind`) with these flags.
    fn bound(&self, _other: &Arc<dyn Watch>, _flags: u64) {}

    /// The object is closed, and no more calls come.
    fn closed(&self) {}
}

/// An object that was just opened.
#[derive(Clone, Copy, Debug)]
pub struct Opened<'a> {
    /// Its class, `FI_CLASS_EP`.
    pub class: usize,
    /// A number that no other object of this process has.
    pub id: u64,
    /// Where it is.
    pub addr: usize,
    /// The provider below, as programs name it.
    pub provider: &'a str,
    /// What it was opened with.
    pub with: With<'a>,
}

/// The attributes that an object was opened with, as far as hooks look at them.
#[derive(Clone, Copy, Debug)]
pub enum With<'a> {
    /// None of them.
    Nothing,
    /// The object belongs to another provider, which knows it: it is not watched.
    Owner,
    /// Another name of the endpoint it was opened from, with these flags for its operations.
    Alias(u64),
    /// A domain or an endpoint.
    Info(&'a abi::fi_info),
    /// The completion queue has room for so many entries of this format.
    Cq {
        /// How long an entry is, and what it has.
        format: abi::fi_cq_format,
        /// 0 for what the provider likes.
        size: usize,
    },
    /// A region of this memory, with this descriptor for operations on it.
    Region(Registration, *mut c_void),
}

impl Opened<'_> {
    /// How many threads call at once, by the attributes of a domain.
    pub(crate) fn threads(&self) -> Threads {
        let With::Info(info) = self.with else {
            return Threads::Several;
        };
        let attr = crate::attrs::domain(info);
        attr.map_or(Threads::Several, |attr| Threads::of(attr.threading))
    }

    /// The flags of operations by default, of the transmit side and the receive side of an endpoint.
    pub(crate) fn op_flags(&self) -> (u64, u64) {
        let With::Info(info) = self.with else {
            return (0, 0);
        };
        let tx = crate::attrs::tx(info).map_or(0, |attr| attr.op_flags);
        let rx = crate::attrs::rx(info).map_or(0, |attr| attr.op_flags);
        (tx, rx)
    }
}

/// What a hook has made for an object, by its own type.
#[inline]
pub(crate) fn like<T: Watch>(watch: &Arc<dyn Watch>) -> Option<&T> {
    let any: &dyn Any = &**watch;
    any.downcast_ref()
}

/// The same, to be kept.
pub(crate) fn own<T: Watch>(watch: &Arc<dyn Watch>) -> Option<Arc<T>> {
    let any: Arc<dyn Any + Send + Sync> = watch.clone();
    any.downcast().ok()
}
