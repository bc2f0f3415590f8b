#![allow(unsafe_code)]
//! Completion queues (`fi_cq(3)`). Entries go from the provider straight into the caller's
//! array, in the format that the queue was opened with.
//!
//! These operations belong to queues of type `D` and format `F` and are called through them;
//! arrays have as many elements as the caller says. Every `SAFETY` remark of an operation rests
//! on this.

use core::ffi::{c_char, c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, CqAttr, Domain, Look};
use ripstop_types::{Completion, CqFormat, Errno, Flags, Result, Version, WaitObj};

pub(crate) mod error;
mod format;

#[cfg(test)]
mod tests;

use crate::domain::DomainBody;
use crate::errno::{code, count as counted, describe, fail};
use crate::object::{self, Body, Room, body};
use crate::peer::CqOwner;
use crate::tables::{self, table};
use crate::wait::{self, timeout};
use crate::waitset::{self, WaitSet};
use format::{Context, Data, Format, Msg, Tagged};

/// What a completion queue's object holds.
pub(crate) struct CqBody<D: Domain> {
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) domain: Arc<D>,
    /// The wait set it is part of.
    set: Option<Arc<WaitSet>>,
    /// The version the program was written for: how long its error entries are.
    api: Version,
    /// Blocking reads take a threshold.
    threshold: bool,
    /// The queue of another provider that gets its completions.
    pub(crate) owner: Option<Arc<CqOwner>>,
    /// Error data of the last entry, for programs that gave no buffer.
    err_data: Mutex<Vec<u8>>,
}

impl<D: Domain> Body for CqBody<D> {
    type Head = abi::fid_cq;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.cq) > 1
    }
}

struct Tables<D, F>(PhantomData<(D, F)>);

impl<D: Domain, F: Format> Tables<D, F> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        close: Some(object::close::<CqBody<D>>),
        control: Some(control::<D>),
        ..tables::NO_FID_OPS
    };
    const CQ: &'static abi::fi_ops_cq = &abi::fi_ops_cq {
        size: size_of::<abi::fi_ops_cq>(),
        read: Some(read::<D, F>),
        readfrom: Some(readfrom::<D, F>),
        readerr: Some(readerr::<D>),
        sread: Some(sread::<D, F>),
        sreadfrom: Some(sreadfrom::<D, F>),
        signal: Some(signal::<D>),
        strerror: Some(strerror),
    };
}

/// The operations of a queue that fills another provider's.
struct Owned<D>(PhantomData<D>);

impl<D: Domain> Owned<D> {
    const CQ: &'static abi::fi_ops_cq = &abi::fi_ops_cq {
        read: Some(forward::<D>),
        strerror: Some(strerror),
        ..tables::NO_CQ_OPS
    };
}

/// `fi_cq_open`.
///
/// # Safety
///
/// `domain` is an open domain of this type; `attr` is null or valid; `cq` is null or valid for
/// writes; with `FI_PEER`, `context` is as `fi_peer(3)` asks.
pub(crate) unsafe extern "C" fn open<D: Domain>(
    domain: *mut abi::fid_domain,
    attr: *mut abi::fi_cq_attr,
    cq: *mut *mut abi::fid_cq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<DomainBody<D>>(domain) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_ref() };
        let attr = attr.ok_or_else(|| object::missing("fi_cq_open", "attr"))?;
        // SAFETY: the caller's guarantee.
        let (wanted, threshold, set) = unsafe { attributes(attr) }?;
        let owner = match attr.flags & abi::FI_PEER != 0 {
            // SAFETY: the caller's guarantee.
            true => Some(Arc::new(unsafe { CqOwner::new(context) }?)),
            false => None,
        };
        let (fid_ops, ops) = match wanted.format {
            CqFormat::Unspec | CqFormat::Context => both::<D, Context>(),
            CqFormat::Msg => both::<D, Msg>(),
            CqFormat::Data => both::<D, Data>(),
            CqFormat::Tagged => both::<D, Tagged>(),
        };
        let (context, ops) = match owner {
            Some(_) => (ptr::null_mut(), Owned::<D>::CQ),
            None => (context, ops),
        };
        let head = abi::fid_cq {
            fid: object::fid(abi::FI_CLASS_CQ, context, fid_ops),
            ops: table(ops),
        };
        let cq = parent.domain.cq(&wanted)?;
        if let Some(set) = &set {
            set.add(cq.wait_fd()?, &cq, D::Cq::try_wait)?;
        }
        let body = CqBody {
            cq,
            set,
            domain: Arc::clone(&parent.domain),
            api: parent.api,
            threshold,
            owner,
            err_data: Mutex::default(),
        };
        Ok(Room::<CqBody<D>>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(cq, make) }
}

fn both<D: Domain, F: Format>() -> (&'static abi::fi_ops, &'static abi::fi_ops_cq) {
    (Tables::<D, F>::FID, Tables::<D, F>::CQ)
}

/// Attributes as a provider takes them, whether blocking reads take a threshold, and the wait
/// set.
///
/// # Safety
///
/// The wait set is null or open.
unsafe fn attributes(attr: &abi::fi_cq_attr) -> Result<(CqAttr, bool, Option<Arc<WaitSet>>)> {
    let flags = Flags::from_bits_retain(attr.flags);
    let refuse = |why| object::refused("fi_cq_open", why, Errno::EINVAL);
    if !Flags::AFFINITY.union(Flags::PEER).contains(flags) {
        return Err(refuse(
            "flags other than FI_AFFINITY and FI_PEER are unknown; leave them out",
        ));
    }
    let format = CqFormat::from_raw(attr.format)
        .ok_or_else(|| refuse("format is none; set it to FI_CQ_FORMAT_UNSPEC or another"))?;
    // SAFETY: the caller's guarantee.
    let (wait, set) = unsafe { waitset::wanted(attr.wait_obj, attr.wait_set) }?;
    let threshold = match attr.wait_cond {
        abi::FI_CQ_COND_NONE => false,
        abi::FI_CQ_COND_THRESHOLD => true,
        // Nobody looks at the condition of a queue that does not wait.
        _ if wait == WaitObj::None => false,
        _ => return Err(refuse("wait_cond is none; set it to FI_CQ_COND_NONE")),
    };
    let wanted = CqAttr {
        size: attr.size,
        flags: flags - Flags::PEER,
        format: match format {
            CqFormat::Unspec => CqFormat::Context,
            format => format,
        },
        wait,
    };
    Ok((wanted, threshold, set))
}

/// Writes completions to a caller's array.
///
/// # Safety
///
/// The closure writes one element after the other, no more than the caller has.
#[inline(always)]
unsafe fn entries<F: Format>(buf: *mut c_void) -> impl FnMut(&Completion) {
    let mut at = buf.cast::<F::Entry>();
    move |completion| {
        // SAFETY: the caller's guarantee.
        unsafe { at.write_unaligned(F::entry(completion)) };
        at = at.wrapping_add(1);
    }
}

/// As [`entries`], with the sources beside, unless `src` is null.
///
/// # Safety
///
/// As for [`entries`].
#[inline(always)]
unsafe fn entries_from<F: Format>(
    buf: *mut c_void,
    src: *mut abi::fi_addr_t,
) -> impl FnMut(&Completion) {
    // SAFETY: the caller's guarantee.
    let mut write = unsafe { entries::<F>(buf) };
    let mut at = src;
    move |completion| {
        write(completion);
        if !src.is_null() {
            // SAFETY: the caller's guarantee.
            unsafe { at.write_unaligned(completion.src.0) };
            at = at.wrapping_add(1);
        }
    }
}

unsafe extern "C" fn read<D: Domain, F: Format>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    match this.cq.look() {
        Look::Nothing => fail(Errno::EAGAIN) as isize,
        Look::Pause => pause(this),
        // SAFETY: see the module.
        Look::More(found) => unsafe { read_more::<D, F>(cq, buf, count, found) },
    }
}

/// The rest of a read, where there is more to it than to say that there is nothing.
///
/// # Safety
///
/// As for [`read`].
#[inline(never)]
unsafe fn read_more<D: Domain, F: Format>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
    found: isize,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    if buf.is_null() {
        return read_nowhere(this, found, count);
    }
    // SAFETY: see the module; the provider hands out `count` at most.
    let write = unsafe { entries::<F>(buf) };
    counted(this.cq.read_more(found, count, write))
}

/// A read of a queue that fills another provider's: only progress.
unsafe extern "C" fn forward<D: Domain>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    match &this.owner {
        Some(owner) if buf.is_null() && count == 0 => counted(owner.forward(&*this.cq).map(|_| 0)),
        _ => fail(Errno::ENOSYS) as isize,
    }
}

/// A read that found nothing, as many before it.
#[cold]
#[inline(never)]
fn pause<D: Domain>(this: &CqBody<D>) -> isize {
    this.cq.pause();
    fail(Errno::EAGAIN) as isize
}

/// A read without an array: progress, and no entries.
#[cold]
#[inline(never)]
fn read_nowhere<D: Domain>(this: &CqBody<D>, found: isize, count: usize) -> isize {
    match count {
        0 => counted(this.cq.read_more(found, 0, |_| {})),
        _ => fail(object::missing("fi_cq_read", "buf")) as isize,
    }
}

unsafe extern "C" fn readfrom<D: Domain, F: Format>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
    src: *mut abi::fi_addr_t,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    match this.cq.look() {
        Look::Nothing => fail(Errno::EAGAIN) as isize,
        Look::Pause => pause(this),
        Look::More(found) if buf.is_null() => read_nowhere(this, found, count),
        Look::More(found) => {
            // SAFETY: see the module; the provider hands out `count` at most.
            let write = unsafe { entries_from::<F>(buf, src) };
            counted(this.cq.read_more(found, count, write))
        }
    }
}

unsafe extern "C" fn sread<D: Domain, F: Format>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
    cond: *const c_void,
    wait: c_int,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    if buf.is_null() & (count != 0) {
        return fail(object::missing("fi_cq_sread", "buf")) as isize;
    }
    let least = this.least(count, cond);
    // SAFETY: see the module; the provider hands out `count` at most.
    let write = unsafe { entries::<F>(buf) };
    counted(this.cq.sread(count, least, timeout(wait), write))
}

unsafe extern "C" fn sreadfrom<D: Domain, F: Format>(
    cq: *mut abi::fid_cq,
    buf: *mut c_void,
    count: usize,
    src: *mut abi::fi_addr_t,
    cond: *const c_void,
    wait: c_int,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    if buf.is_null() & (count != 0) {
        return fail(object::missing("fi_cq_sread", "buf")) as isize;
    }
    let least = this.least(count, cond);
    // SAFETY: see the module; the provider hands out `count` at most.
    let write = unsafe { entries_from::<F>(buf, src) };
    counted(this.cq.sread(count, least, timeout(wait), write))
}

impl<D: Domain> CqBody<D> {
    /// How many completions a blocking read waits for: with `FI_CQ_COND_THRESHOLD` the
    /// condition is a number in the place of a pointer.
    fn least(&self, count: usize, cond: *const c_void) -> usize {
        match self.threshold {
            true => cond.addr().min(count),
            false => 1,
        }
    }
}

unsafe extern "C" fn readerr<D: Domain>(
    cq: *mut abi::fid_cq,
    entry: *mut abi::fi_cq_err_entry,
    _flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    if entry.is_null() {
        return fail(object::missing("fi_cq_readerr", "buf")) as isize;
    }
    let read = this.cq.read_error(|error, data| {
        // SAFETY: not null, and an entry of the program's version with the buffer it names.
        unsafe { error::write(entry, error, data, this.api, &this.err_data) };
    });
    counted(read.map(|()| 1))
}

unsafe extern "C" fn signal<D: Domain>(cq: *mut abi::fid_cq) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(cq) };
    code(this.cq.signal())
}

unsafe extern "C" fn strerror(
    _cq: *mut abi::fid_cq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: `buf` is null or has `len` bytes, as `fi_cq_strerror` asks.
    unsafe { describe(prov_errno, buf, len) }
}

unsafe extern "C" fn control<D: Domain>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<CqBody<D>>(fid.cast()) };
    let fd = || this.cq.wait_fd().map(|fd| fd.as_raw_fd());
    let object = wait::shown(this.set.as_ref(), this.cq.wait_obj());
    // SAFETY: the argument is as the command asks.
    code(unsafe { wait::control(command, arg, object, fd) })
}
