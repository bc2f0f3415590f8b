#![allow(unsafe_code)]
//! Counters (`fi_cntr(3)`).
//!
//! These operations belong to counters of type `D` and are called through them. Every `SAFETY`
//! remark of an operation rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Counter, CounterAttr, Domain};
use ripstop_types::{Errno, Flags, Result};

use crate::domain::DomainBody;
use crate::endpoint::same_domain;
use crate::errno::code;
use crate::object::{self, Body, Room, body};
use crate::peer::CounterOwner;
use crate::tables::{self, table};
use crate::wait;
use crate::waitset::{self, WaitSet};

/// What a counter's object holds.
pub(crate) struct CounterBody<D: Domain> {
    pub(crate) counter: Arc<D::Counter>,
    pub(crate) domain: Arc<D>,
    /// The wait set it is part of.
    set: Option<Arc<WaitSet>>,
    /// The counter of another provider that counts what it sees.
    owner: Option<CounterOwner>,
}

impl<D: Domain> Body for CounterBody<D> {
    type Head = abi::fid_cntr;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.counter) > 1 || self.counter.is_busy()
    }
}

/// The counter behind a `fid_cntr`.
///
/// # Errors
/// [`Errno::EINVAL`] for null, what is no counter, and one of another domain.
///
/// # Safety
///
/// `cntr` is null or an open object.
pub(crate) unsafe fn of_domain<'a, D: Domain>(
    cntr: *mut abi::fid_cntr,
    domain: &Arc<D>,
) -> Result<&'a Arc<D::Counter>> {
    // SAFETY: the caller's guarantee.
    let found = unsafe { object::cast::<CounterBody<D>>(cntr.cast(), abi::FI_CLASS_CNTR) }?;
    same_domain(domain, &found.domain)?;
    Ok(&found.counter)
}

struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<CounterBody<D>>),
        control: Some(control::<D>),
        ..tables::NO_FID_OPS
    };
    const CNTR: &'static abi::fi_ops_cntr = &abi::fi_ops_cntr {
        size: size_of::<abi::fi_ops_cntr>(),
        read: Some(read::<D>),
        readerr: Some(readerr::<D>),
        add: Some(add::<D>),
        set: Some(set::<D>),
        wait: Some(wait_for::<D>),
        adderr: Some(adderr::<D>),
        seterr: Some(seterr::<D>),
    };
}

/// The operations of a counter that feeds another provider's.
struct Owned<D>(PhantomData<D>);

impl<D: Domain> Owned<D> {
    const CNTR: &'static abi::fi_ops_cntr = &abi::fi_ops_cntr {
        read: Some(forward::<D>),
        ..tables::NO_CNTR_OPS
    };
}

/// `fi_cntr_open`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `attr` is null or valid; `cntr` is null or valid
/// for writes; with `FI_PEER`, `context` is as `fi_peer(3)` asks.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    attr: *mut abi::fi_cntr_attr,
    cntr: *mut *mut abi::fid_cntr,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_ref() };
        let attr = attr.ok_or_else(|| object::missing("fi_cntr_open", "attr"))?;
        let owner = match attr.flags == abi::FI_PEER {
            // SAFETY: the caller's guarantee.
            true => Some(unsafe { CounterOwner::new(context) }?),
            false => None,
        };
        let (context, ops) = match owner {
            Some(_) => (ptr::null_mut(), Owned::<D>::CNTR),
            None => (context, Tables::<D>::CNTR),
        };
        let head = abi::fid_cntr {
            fid: object::fid(abi::FI_CLASS_CNTR, context, Tables::<D>::FID),
            ops: table(ops),
        };
        // SAFETY: the caller's guarantee.
        let (wanted, set) = unsafe { attributes(attr) }?;
        let counter = parent.domain.counter(&wanted)?;
        if let Some(set) = &set {
            let mut seen = [0; 2];
            let changed = move |counter: &D::Counter| {
                // What others' progress brought counts as well.
                let now = [counter.read(), counter.read_error()];
                match core::mem::replace(&mut seen, now) == now {
                    true => counter.try_wait(),
                    false => Err(Errno::EAGAIN),
                }
            };
            set.add(counter.wait_fd()?, &counter, changed)?;
        }
        let body = CounterBody {
            counter,
            set,
            owner,
            domain: Arc::clone(&parent.domain),
        };
        Ok(Room::<CounterBody<D>>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(cntr, make) }
}

/// Attributes as a provider takes them, and the wait set.
///
/// # Safety
///
/// The wait set is null or open.
unsafe fn attributes(attr: &abi::fi_cntr_attr) -> Result<(CounterAttr, Option<Arc<WaitSet>>)> {
    let peer = match Flags::from_bits_retain(attr.flags) {
        flags if flags.is_empty() => false,
        Flags::PEER => true,
        _ => {
            let why = "flags other than FI_PEER are unknown; set flags to 0";
            return Err(object::refused("fi_cntr_open", why, Errno::EINVAL));
        }
    };
    // SAFETY: the caller's guarantee.
    let (wait, set) = unsafe { waitset::wanted(attr.wait_obj, attr.wait_set) }?;
    let wanted = CounterAttr {
        bytes: match attr.events {
            abi::FI_CNTR_EVENTS_COMP => false,
            // An owner is told one by one.
            abi::FI_CNTR_EVENTS_BYTES if !peer => true,
            _ => {
                let why = "events are counted as FI_CNTR_EVENTS_COMP, or without FI_PEER as \
                           FI_CNTR_EVENTS_BYTES; set events to one of them";
                return Err(object::refused("fi_cntr_open", why, Errno::EINVAL));
            }
        },
        wait,
    };
    Ok((wanted, set))
}

/// A read of a counter that feeds another provider's: only progress.
unsafe extern "C" fn forward<D: Domain>(cntr: *mut abi::fid_cntr) -> u64 {
    // SAFETY: see the module.
    let this = unsafe { body::<CounterBody<D>>(cntr) };
    if let Some(owner) = &this.owner {
        owner.forward(&*this.counter);
    }
    0
}

unsafe extern "C" fn read<D: Domain>(cntr: *mut abi::fid_cntr) -> u64 {
    // SAFETY: see the module.
    unsafe { body::<CounterBody<D>>(cntr) }.counter.read()
}

unsafe extern "C" fn readerr<D: Domain>(cntr: *mut abi::fid_cntr) -> u64 {
    // SAFETY: see the module.
    unsafe { body::<CounterBody<D>>(cntr) }.counter.read_error()
}

unsafe extern "C" fn add<D: Domain>(cntr: *mut abi::fid_cntr, value: u64) -> c_int {
    // SAFETY: see the module.
    unsafe { body::<CounterBody<D>>(cntr) }.counter.add(value);
    0
}

unsafe extern "C" fn set<D: Domain>(cntr: *mut abi::fid_cntr, value: u64) -> c_int {
    // SAFETY: see the module.
    unsafe { body::<CounterBody<D>>(cntr) }.counter.set(value);
    0
}

unsafe extern "C" fn adderr<D: Domain>(cntr: *mut abi::fid_cntr, value: u64) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CounterBody<D>>(cntr) };
    this.counter.add_error(value);
    0
}

unsafe extern "C" fn seterr<D: Domain>(cntr: *mut abi::fid_cntr, value: u64) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CounterBody<D>>(cntr) };
    this.counter.set_error(value);
    0
}

unsafe extern "C" fn wait_for<D: Domain>(
    cntr: *mut abi::fid_cntr,
    threshold: u64,
    timeout: c_int,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CounterBody<D>>(cntr) };
    code(this.counter.wait(threshold, wait::timeout(timeout)))
}

unsafe extern "C" fn control<D: Domain>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CounterBody<D>>(fid.cast()) };
    let fd = || this.counter.wait_fd().map(|fd| fd.as_raw_fd());
    let object = wait::shown(this.set.as_ref(), this.counter.wait_obj());
    // SAFETY: the argument is as the command asks.
    code(unsafe { wait::control(command, arg, object, fd) })
}
