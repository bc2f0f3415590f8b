#![allow(unsafe_code)]
//! Poll sets (`fi_poll(3)`): many queues and counters asked at once.
//!
//! These operations belong to poll sets of type `D` and are called through them. Every `SAFETY`
//! remark of an operation rests on this.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, Counter, Domain};
use ripstop_types::{Errno, Result};

use crate::counter::CounterBody;
use crate::cq::CqBody;
use crate::domain::DomainBody;
use crate::endpoint::same_domain;
use crate::errno::{code, fail};
use crate::object::{self, Body, Room, body};
use crate::tables::{self, table};

/// What a poll set's object holds.
struct PollBody<D: Domain> {
    domain: Arc<D>,
    members: Mutex<Vec<Member<D>>>,
}

/// A queue or counter. It cannot be closed while it is here, so its `fid` is valid.
struct Member<D: Domain> {
    fid: *mut abi::fid,
    what: What<D>,
}

enum What<D: Domain> {
    Cq(Arc<D::Cq>),
    /// With the values last seen.
    Counter(Arc<D::Counter>, [u64; 2]),
}

impl<D: Domain> Body for PollBody<D> {
    type Head = abi::fid_poll;

    fn in_use(&self) -> bool {
        // Its members go with it.
        false
    }
}

impl<D: Domain> PollBody<D> {
    fn members(&self) -> MutexGuard<'_, Vec<Member<D>>> {
        // The list is whole even after a panic.
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Domain> Member<D> {
    /// Makes progress; whether there is something to read.
    fn has_news(&mut self) -> bool {
        match &mut self.what {
            What::Cq(cq) => cq.poll(),
            What::Counter(counter, seen) => {
                let now = [counter.read(), counter.read_error()];
                core::mem::replace(seen, now) != now
            }
        }
    }
}

struct Tables<D>(PhantomData<D>);

impl<D: Domain> Tables<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<PollBody<D>>),
        ..tables::NO_FID_OPS
    };
    const POLL: &'static abi::fi_ops_poll = &abi::fi_ops_poll {
        size: size_of::<abi::fi_ops_poll>(),
        poll: Some(poll::<D>),
        poll_add: Some(add::<D>),
        poll_del: Some(del::<D>),
    };
}

/// `fi_poll_open`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `attr` is null or valid; `pollset` is null or valid
/// for writes.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    attr: *mut abi::fi_poll_attr,
    pollset: *mut *mut abi::fid_poll,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        if unsafe { attr.as_ref() }.is_some_and(|attr| attr.flags != 0) {
            let why = "no flags are defined; set flags to 0";
            return Err(object::refused("fi_poll_open", why, Errno::EBADFLAGS));
        }
        let head = abi::fid_poll {
            fid: object::fid(abi::FI_CLASS_POLL, core::ptr::null_mut(), Tables::<D>::FID),
            ops: table(Tables::<D>::POLL),
        };
        let body = PollBody {
            domain: Arc::clone(&parent.domain),
            members: Mutex::default(),
        };
        Ok(Room::<PollBody<D>>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(pollset, make) }
}

unsafe extern "C" fn add<D: Domain>(
    pollset: *mut abi::fid_poll,
    fid: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PollBody<D>>(pollset) };
    if flags != 0 {
        let why = "no flags are defined; set flags to 0";
        return fail(object::refused("fi_poll_add", why, Errno::EBADFLAGS));
    }
    // SAFETY: `fid` is null or an open object, as `fi_poll_add` asks.
    let what = unsafe { member::<D>(&this.domain, fid) };
    code(what.map(|what| {
        let mut members = this.members();
        if members.iter().all(|member| member.fid != fid) {
            members.push(Member { fid, what });
        }
    }))
}

/// # Safety
///
/// `fid` is null or an open object.
unsafe fn member<D: Domain>(domain: &Arc<D>, fid: *mut abi::fid) -> Result<What<D>> {
    // SAFETY: the caller's guarantee, for each block of this function.
    match unsafe { object::class_of(fid) } {
        Some(class @ abi::FI_CLASS_CQ) => {
            // SAFETY: as above.
            let cq = unsafe { object::cast::<CqBody<D>>(fid, class) }?;
            same_domain(domain, &cq.domain)?;
            Ok(What::Cq(Arc::clone(&cq.cq)))
        }
        Some(class @ abi::FI_CLASS_CNTR) => {
            // SAFETY: as above.
            let counter = unsafe { object::cast::<CounterBody<D>>(fid, class) }?;
            same_domain(domain, &counter.domain)?;
            let counter = Arc::clone(&counter.counter);
            let seen = [counter.read(), counter.read_error()];
            Ok(What::Counter(counter, seen))
        }
        _ => {
            let why = "a poll set has completion queues and counters only";
            Err(object::refused("fi_poll_add", why, Errno::EINVAL))
        }
    }
}

unsafe extern "C" fn del<D: Domain>(
    pollset: *mut abi::fid_poll,
    fid: *mut abi::fid,
    flags: u64,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PollBody<D>>(pollset) };
    if flags != 0 {
        let why = "no flags are defined; set flags to 0";
        return fail(object::refused("fi_poll_del", why, Errno::EBADFLAGS));
    }
    let mut members = this.members();
    let known = members.len();
    members.retain(|member| member.fid != fid);
    match members.len() < known {
        true => 0,
        false => {
            let why = "the object is not in the poll set";
            fail(object::refused("fi_poll_del", why, Errno::EINVAL))
        }
    }
}

unsafe extern "C" fn poll<D: Domain>(
    pollset: *mut abi::fid_poll,
    contexts: *mut *mut c_void,
    count: c_int,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<PollBody<D>>(pollset) };
    let Ok(room) = usize::try_from(count) else {
        return fail(Errno::EINVAL);
    };
    if contexts.is_null() && room != 0 {
        return fail(Errno::EINVAL);
    }
    let mut found = 0;
    for member in this.members().iter_mut() {
        if found as usize >= room {
            break;
        }
        if member.has_news() {
            // SAFETY: open as long as it is a member.
            let context = unsafe { (*member.fid).context };
            // SAFETY: `contexts` has `count` elements, as `fi_poll` asks, and fewer are used.
            unsafe { contexts.wrapping_add(found as usize).write(context) };
            found += 1;
        }
    }
    found
}
