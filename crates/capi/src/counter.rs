//! Counters (`fi_cntr(3)`).

use core::ffi::c_int;
use core::ptr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Counter, CounterAttr, Domain};
use ripstop_types::{Errno, Flags, Result, WaitObj};

use crate::edge::{AnyFid, In, Out, Whole, trampolines};
use crate::errno::{self, code};
use crate::object::domain::{DomainBody, same_domain};
use crate::object::{self, Body, Room, This};
use crate::peer::{Context, CounterOwner};
use crate::tables::{Table, operations, table};
use crate::wait::{self, Waits};
use crate::waitset::{self, WaitSet};

/// What a counter's object holds.
pub(crate) struct CounterBody<D: Domain> {
    pub(crate) counter: Arc<D::Counter>,
    domain: Arc<D>,
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
/// [`Errno::EINVAL`] for null and what is no counter, [`Errno::EDOMAIN`] for one of another domain.
pub(crate) fn of_domain<'a, D: Domain>(
    cntr: AnyFid<'a>,
    domain: &Arc<D>,
) -> Result<&'a Arc<D::Counter>> {
    let found = cntr.cast::<CounterBody<D>>(abi::FI_CLASS_CNTR)?;
    same_domain("the counter", domain, &found.domain)?;
    Ok(&found.counter)
}

impl<D: Domain> CounterBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        control: Some(wait::control::<Self>),
        ..*Self::CLOSING
    };
    const CNTR: &'static abi::fi_ops_cntr = operations!(fi_ops_cntr [D] {
        read readerr add set wait adderr seterr
    });
    /// Of a counter that feeds another provider's.
    const FEEDING: &'static abi::fi_ops_cntr = &abi::fi_ops_cntr {
        read: Some(forward::<D>),
        ..*Table::NONE
    };
}

trampolines! { [D: Domain]
    /// `fi_cntr_open`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: In<*mut abi::fi_cntr_attr>,
        cntr: Out<*mut abi::fid_cntr>, context: Context,
    ) -> c_int {
        cntr.open(|| make(&parent, attr.needed("fi_cntr_open", "attr")?, context))
    }
}

/// Opens a counter.
fn make<D: Domain>(
    parent: &DomainBody<D>,
    attr: Whole<'_, abi::fi_cntr_attr>,
    context: Context,
) -> Result<*mut abi::fid_cntr> {
    let (wanted, set) = attributes(attr)?;
    let owner = CounterOwner::of(attr.flags, context)?;
    let (context, ops) = match owner {
        Some(_) => (ptr::null_mut(), CounterBody::<D>::FEEDING),
        None => (context.as_ptr(), CounterBody::<D>::CNTR),
    };
    let head = abi::fid_cntr {
        fid: object::fid(abi::FI_CLASS_CNTR, context, CounterBody::<D>::FID),
        ops: table(ops),
    };
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
}

/// Attributes as a provider takes them, and the wait set.
fn attributes(attr: Whole<'_, abi::fi_cntr_attr>) -> Result<(CounterAttr, Option<Arc<WaitSet>>)> {
    let peer = match Flags::from_bits_retain(attr.flags) {
        flags if flags.is_empty() => false,
        Flags::PEER => true,
        _ => {
            let why = "flags other than FI_PEER are unknown; set flags to 0";
            return Err(errno::refused("fi_cntr_open", why, Errno::EINVAL));
        }
    };
    let (wait, set) = waitset::wanted(attr.wait_obj, attr.wait_set())?;
    let wanted = CounterAttr {
        bytes: match attr.events {
            abi::FI_CNTR_EVENTS_COMP => false,
            // An owner is told one by one.
            abi::FI_CNTR_EVENTS_BYTES if !peer => true,
            _ => {
                let why = "events are counted as FI_CNTR_EVENTS_COMP, or without FI_PEER as \
                           FI_CNTR_EVENTS_BYTES; set events to one of them";
                return Err(errno::refused("fi_cntr_open", why, Errno::EINVAL));
            }
        },
        wait,
    };
    Ok((wanted, set))
}

impl<D: Domain> Waits for CounterBody<D> {
    fn wait_obj(&self) -> WaitObj {
        wait::shown(self.set.as_ref(), self.counter.wait_obj())
    }

    fn wait_fd(&self) -> Result<RawFd> {
        self.counter.wait_fd().map(|fd| fd.as_raw_fd())
    }
}

trampolines! { [D: Domain]
    /// A read of a counter that feeds another provider's: only progress.
    extern "C" fn forward(this: This<CounterBody<D>>) -> u64 {
        if let Some(owner) = &this.owner {
            owner.forward(&*this.counter);
        }
        0
    }

    extern "C" fn read(this: This<CounterBody<D>>) -> u64 {
        this.counter.read()
    }

    extern "C" fn readerr(this: This<CounterBody<D>>) -> u64 {
        this.counter.read_error()
    }

    extern "C" fn add(this: This<CounterBody<D>>, value: u64) -> c_int {
        this.counter.add(value);
        0
    }

    extern "C" fn set(this: This<CounterBody<D>>, value: u64) -> c_int {
        this.counter.set(value);
        0
    }

    extern "C" fn adderr(this: This<CounterBody<D>>, value: u64) -> c_int {
        this.counter.add_error(value);
        0
    }

    extern "C" fn seterr(this: This<CounterBody<D>>, value: u64) -> c_int {
        this.counter.set_error(value);
        0
    }

    extern "C" fn wait(this: This<CounterBody<D>>, threshold: u64, timeout: c_int) -> c_int {
        code(this.counter.wait(threshold, wait::timeout(timeout)))
    }
}
