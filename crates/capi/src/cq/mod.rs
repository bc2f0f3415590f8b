#![allow(unsafe_code)]
//! Completion queues (`fi_cq(3)`). Entries go from the provider straight into the caller's
//! array, in the format that the queue was opened with.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, CqAttr, Domain};
use ripstop_types::{
    Completion, CompletionError, CqFormat, Errno, Flags, Result, Version, WaitObj,
};

mod format;

#[cfg(test)]
mod tests;

use crate::edge::{In, Out, Whole, arguments, trampolines};
use crate::errno::{self, code, count as counted, fail};
use crate::error_entry::ErrorEntry;
use crate::object::domain::DomainBody;
use crate::object::{self, Body, Room, This, shared};
use crate::peer::{Context, CqOwner};
use crate::strerror::strerror;
use crate::tables::{Table, table};
use crate::wait::{self, Waits, timeout};
use crate::waitset::{self, WaitSet};
use format::{Data, Format, Msg, Tagged};

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

shared! { [D: Domain] CqBody<D>: fid_cq, cq }

/// The operations of a queue with entries of one format.
struct Tables<D, F>(PhantomData<(D, F)>);

impl<D: Domain, F: Format> Tables<D, F> {
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

impl<D: Domain> CqBody<D> {
    const FID: &'static abi::fi_ops = &abi::fi_ops {
        control: Some(wait::control::<Self>),
        ..*Self::CLOSING
    };
    /// Of a queue that fills another provider's.
    const FILLING: &'static abi::fi_ops_cq = &abi::fi_ops_cq {
        read: Some(forward::<D>),
        strerror: Some(strerror),
        ..*Table::NONE
    };
}

trampolines! { [D: Domain]
    /// `fi_cq_open`.
    pub(crate) extern "C" fn open(
        parent: This<DomainBody<D>>, attr: In<*mut abi::fi_cq_attr>, cq: Out<*mut abi::fid_cq>,
        context: Context,
    ) -> c_int {
        cq.open(|| make(&parent, attr.needed("fi_cq_open", "attr")?, context))
    }
}

/// Opens a queue.
fn make<D: Domain>(
    parent: &DomainBody<D>,
    attr: Whole<'_, abi::fi_cq_attr>,
    context: Context,
) -> Result<*mut abi::fid_cq> {
    let (wanted, threshold, set) = attributes(attr)?;
    let owner = CqOwner::of(attr.flags, context)?.map(Arc::new);
    let ops = match wanted.format {
        CqFormat::Unspec | CqFormat::Context => Tables::<D, format::Context>::CQ,
        CqFormat::Msg => Tables::<D, Msg>::CQ,
        CqFormat::Data => Tables::<D, Data>::CQ,
        CqFormat::Tagged => Tables::<D, Tagged>::CQ,
    };
    let (context, ops) = match owner {
        Some(_) => (ptr::null_mut(), CqBody::<D>::FILLING),
        None => (context.as_ptr(), ops),
    };
    let head = abi::fid_cq {
        fid: object::fid(abi::FI_CLASS_CQ, context, CqBody::<D>::FID),
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
}

/// Attributes as a provider takes them, whether blocking reads take a threshold, and the wait
/// set.
fn attributes(attr: Whole<'_, abi::fi_cq_attr>) -> Result<(CqAttr, bool, Option<Arc<WaitSet>>)> {
    let flags = Flags::from_bits_retain(attr.flags);
    let refuse = |why| errno::refused("fi_cq_open", why, Errno::EINVAL);
    if !Flags::AFFINITY.union(Flags::PEER).contains(flags) {
        return Err(refuse(
            "flags other than FI_AFFINITY and FI_PEER are unknown; leave them out",
        ));
    }
    let format = CqFormat::from_raw(attr.format)
        .ok_or_else(|| refuse("format is none; set it to FI_CQ_FORMAT_UNSPEC or another"))?;
    let (wait, set) = waitset::wanted(attr.wait_obj, attr.wait_set())?;
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

arguments! {
    /// The array that a read fills: null, or as many entries of the queue's format as the count beside
    /// it says.
    #[derive(Clone, Copy)]
    struct Entries { at: *mut c_void, count: usize }
}

arguments! {
    /// Where a read writes who has sent: null, or as many addresses as there are [`Entries`].
    struct Sources { at: *mut abi::fi_addr_t }
}

impl Entries<'_> {
    /// Writes a completion after the other.
    ///
    /// # Safety
    ///
    /// There is an array of entries of this format, and the closure is called `count` times at most.
    #[inline(always)]
    unsafe fn writer<F: Format>(self) -> impl FnMut(&Completion) {
        let mut at = self.at.cast::<F::Entry>();
        move |completion| {
            // SAFETY: one of the elements that the caller has, by the contract of this function.
            unsafe { at.write_unaligned(F::entry(completion)) };
            at = at.wrapping_add(1);
        }
    }

    /// As [`Entries::writer`], with the sources beside, if there is an array for them.
    ///
    /// # Safety
    ///
    /// As for [`Entries::writer`].
    #[inline(always)]
    unsafe fn writer_from<F: Format>(self, src: Sources<'_>) -> impl FnMut(&Completion) {
        // SAFETY: by the contract of this function.
        let mut write = unsafe { self.writer::<F>() };
        let mut at = src.at;
        move |completion| {
            write(completion);
            if !at.is_null() {
                // SAFETY: not null, and then one of as many elements as there are entries, which
                // is how often this is called at most.
                unsafe { at.write_unaligned(completion.src.0) };
                at = at.wrapping_add(1);
            }
        }
    }
}

trampolines! { [D: Domain, F: Format]
    extern "C" fn read(this: This<CqBody<D>>, into: Entries(buf, count)) -> isize {
        read_into::<D, F>(&this, into)
    }

    extern "C" fn readfrom(this: This<CqBody<D>>, into: Entries(buf, count), src: Sources) -> isize {
        read_from::<D, F>(&this, into, src)
    }

    extern "C" fn sread(
        this: This<CqBody<D>>, into: Entries(buf, count), cond: *const c_void, wait: c_int,
    ) -> isize {
        wait_and_read::<D, F>(&this, into, None, cond, wait)
    }

    extern "C" fn sreadfrom(
        this: This<CqBody<D>>, into: Entries(buf, count), src: Sources, cond: *const c_void,
        wait: c_int,
    ) -> isize {
        wait_and_read::<D, F>(&this, into, Some(src), cond, wait)
    }
}

/// What a read returns to C.
struct Count(isize);

impl From<Result<usize>> for Count {
    #[inline(always)]
    fn from(result: Result<usize>) -> Self {
        Self(counted(result))
    }
}

#[inline(always)]
fn read_into<D: Domain, F: Format>(this: &CqBody<D>, into: Entries<'_>) -> isize {
    if into.at.is_null() {
        return read_nowhere(this, into.count);
    }
    // SAFETY: not null, and the provider hands out `count` completions at most; the operation
    // belongs to queues of this format.
    let write = unsafe { into.writer::<F>() };
    this.cq.read_as::<Count>(into.count, write).0
}

#[inline(always)]
fn read_from<D: Domain, F: Format>(this: &CqBody<D>, into: Entries<'_>, src: Sources<'_>) -> isize {
    if into.at.is_null() {
        return read_nowhere(this, into.count);
    }
    // SAFETY: not null, and the provider hands out `count` completions at most; the operation
    // belongs to queues of this format.
    let write = unsafe { into.writer_from::<F>(src) };
    this.cq.read_as::<Count>(into.count, write).0
}

/// A read that waits.
#[inline(always)]
fn wait_and_read<D: Domain, F: Format>(
    this: &CqBody<D>,
    into: Entries<'_>,
    src: Option<Sources<'_>>,
    cond: *const c_void,
    wait: c_int,
) -> isize {
    let count = into.count;
    if into.at.is_null() & (count != 0) {
        return fail(errno::missing("fi_cq_sread", "buf")) as isize;
    }
    // With `FI_CQ_COND_THRESHOLD` the condition is a number in the place of a pointer.
    let least = match this.threshold {
        true => cond.addr().min(count),
        false => 1,
    };
    counted(match src {
        None => {
            // SAFETY: not null unless there are no entries, and the provider hands out `count`
            // completions at most; the operation belongs to queues of this format.
            let write = unsafe { into.writer::<F>() };
            this.cq.sread(count, least, timeout(wait), write)
        }
        Some(src) => {
            // SAFETY: not null unless there are no entries, and the provider hands out `count`
            // completions at most; the operation belongs to queues of this format.
            let write = unsafe { into.writer_from::<F>(src) };
            this.cq.sread(count, least, timeout(wait), write)
        }
    })
}

/// A read without an array: progress, and no entries.
#[cold]
#[inline(never)]
fn read_nowhere<D: Domain>(this: &CqBody<D>, count: usize) -> isize {
    match count {
        0 => counted(this.cq.read(0, |_| {})),
        _ => fail(errno::missing("fi_cq_read", "buf")) as isize,
    }
}

impl<D: Domain> Waits for CqBody<D> {
    fn wait_obj(&self) -> WaitObj {
        wait::shown(self.set.as_ref(), self.cq.wait_obj())
    }

    fn wait_fd(&self) -> Result<RawFd> {
        self.cq.wait_fd().map(|fd| fd.as_raw_fd())
    }
}

trampolines! { [D: Domain]
    /// A read of a queue that fills another provider's: only progress.
    extern "C" fn forward(this: This<CqBody<D>>, into: Entries(buf, count)) -> isize {
        match &this.owner {
            Some(owner) if into.at.is_null() && into.count == 0 => {
                counted(owner.forward(&*this.cq).map(|_| 0))
            }
            _ => fail(Errno::ENOSYS) as isize,
        }
    }

    extern "C" fn readerr(this: This<CqBody<D>>, entry: ErrorEntry, _flags: u64) -> isize {
        if entry.is_null() {
            return fail(errno::missing("fi_cq_readerr", "buf")) as isize;
        }
        let write = |error: &CompletionError, data: &[u8]| {
            entry.write(error, data, this.api, &this.err_data);
        };
        counted(this.cq.read_error(write).map(|()| 1))
    }

    extern "C" fn signal(this: This<CqBody<D>>) -> c_int {
        code(this.cq.signal())
    }
}
