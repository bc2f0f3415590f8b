#![allow(unsafe_code)]
//! `fi_cq`(3).

use std::ffi::{c_char, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ripstop_abi::{
    fi_cq_data_entry, fi_cq_entry, fi_cq_err_entry, fi_cq_msg_entry, fi_cq_tagged_entry, fi_ops_cq,
    fid, fid_cq,
};
use ripstop_types::{self as types, CqFormat, Errno, FiAddr, Flags, WaitObj};

use crate::call::{self, ENOSYS, op};
use crate::domain::DomainCore;
use crate::fabric::{FabricCore, private};
use crate::guard;
use crate::library::copy_text;
use crate::ops::{OpId, Outcome, Returned};
use crate::owned::Owned;
use crate::sets::WaitCore;
use crate::threading::Threading;
use crate::{Error, Result};

/// How to open a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CqAttr {
    /// Entries at least, 0 for the provider's choice.
    pub size: usize,
    /// Entry format.
    pub format: CqFormat,
    /// Wait object; [`WaitObj::None`] for a queue that is only read, [`WaitObj::Set`] is not
    /// supported.
    pub wait: WaitObj,
    /// Whether blocking reads name how many entries to wait for (`FI_CQ_COND_THRESHOLD`).
    pub threshold: bool,
}

impl Default for CqAttr {
    /// The fullest format, no wait object.
    fn default() -> Self {
        Self {
            size: 0,
            format: CqFormat::Tagged,
            wait: WaitObj::None,
            threshold: false,
        }
    }
}

/// A success. Fields that the queue's format does not carry are zero.
#[derive(Debug)]
pub struct Completion {
    /// The operation, or `None` for a context that is none of a posted operation.
    pub op: Option<OpId>,
    /// The token the operation was posted with, 0 without an operation.
    pub token: u64,
    /// What completed.
    pub flags: Flags,
    /// Bytes received.
    pub len: usize,
    /// Remote CQ data, valid with [`Flags::REMOTE_CQ_DATA`].
    pub data: u64,
    /// The message's tag, valid with [`Flags::TAGGED`].
    pub tag: u64,
    /// The sender, where the domain has `FI_SOURCE` and knows it.
    pub src: FiAddr,
    /// The memory of the operation.
    pub returned: Returned,
}

/// A failed operation (`struct fi_cq_err_entry`).
#[derive(Debug)]
pub struct CqError {
    /// What is known of the operation, as for a success.
    pub entry: Completion,
    /// The reason.
    pub err: Errno,
    /// Bytes of a truncated message that did not fit.
    pub olen: usize,
    /// The provider's own code.
    pub prov_errno: i32,
    /// The provider's words for it.
    pub prov_text: String,
    /// The provider's data on it, at most 256 bytes; for `FI_EADDRNOTAVAIL` the sender's
    /// address.
    pub err_data: Vec<u8>,
}

impl fmt::Display for CqError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "operation failed: {} ({:?}), {}",
            self.err, self.err, self.prov_text
        )
    }
}

impl std::error::Error for CqError {}

/// Why a blocking read has no success to give.
#[derive(Debug)]
pub enum Failure {
    /// The read itself failed, or its time was up (`FI_ETIMEDOUT`).
    Call(Error),
    /// An operation failed.
    Operation(Box<CqError>),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(e) => e.fmt(f),
            Self::Operation(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Failure {}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Call(error)
    }
}

pub(crate) struct CqCore<M: Threading> {
    pub(crate) owned: Owned<fid_cq, M, Arc<DomainCore<M>>>,
    attr: CqAttr,
    /// The set it is waited for in, which closes after it.
    _set: Option<Arc<WaitCore>>,
}

/// A completion queue. Clones share it.
pub struct Cq<M: Threading> {
    pub(crate) core: Arc<CqCore<M>>,
}

impl<M: Threading> Clone for Cq<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

/// Entries fetched by one call at most.
const BATCH: usize = 16;

/// Room for a batch of entries of any format, as words.
type Entries = [MaybeUninit<u64>; BATCH * size_of::<fi_cq_tagged_entry>() / 8];

const NO_ENTRIES: Entries = [MaybeUninit::uninit(); _];

/// How a batch is fetched.
pub(crate) enum Fetch {
    Now,
    Wait { cond: *const c_void, millis: i32 },
}

impl<M: Threading> Cq<M> {
    pub(crate) fn new(owned: Owned<fid_cq, M, Arc<DomainCore<M>>>, attr: CqAttr) -> Self {
        Self {
            core: Arc::new(CqCore {
                owned,
                attr,
                _set: None,
            }),
        }
    }

    /// One that is part of a wait set.
    pub(crate) fn in_set(
        owned: Owned<fid_cq, M, Arc<DomainCore<M>>>,
        attr: CqAttr,
        set: Arc<WaitCore>,
    ) -> Self {
        Self {
            core: Arc::new(CqCore {
                owned,
                attr,
                _set: Some(set),
            }),
        }
    }

    fn domain(&self) -> &Arc<DomainCore<M>> {
        self.core.owned.parent()
    }

    #[inline]
    pub(crate) fn table(&self) -> *const fi_ops_cq {
        // SAFETY: the queue is open.
        unsafe { (*self.core.owned.get()).ops }
    }

    /// Appends up to 16 completions to `out` and says how many (`fi_cq_read`, or
    /// `fi_cq_readfrom` where the domain has `FI_SOURCE`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there are none, `FI_EAVAIL` when a failed operation comes first: read
    /// it with [`Cq::readerr`].
    pub fn read(&self, out: &mut Vec<Completion>) -> Result<usize> {
        self.fetch_into(out, BATCH, Fetch::Now)
    }

    /// Like [`Cq::read`], but blocks until there is something or the time is up
    /// (`fi_cq_sread`). `threshold` is how many entries to wait for, where the queue was opened
    /// for that.
    ///
    /// # Errors
    ///
    /// As [`Cq::read`]; `FI_EINVAL` for a queue opened with [`WaitObj::None`]; `FI_EAGAIN` also when the time is up or another thread called
    /// [`Cq::signal`].
    pub fn sread(
        &self,
        out: &mut Vec<Completion>,
        threshold: usize,
        timeout: Option<Duration>,
    ) -> Result<usize> {
        let fetch = self.blocking(threshold, timeout)?;
        self.fetch_into(out, BATCH, fetch)
    }

    /// How a batch is fetched that is waited for.
    pub(crate) fn blocking(&self, threshold: usize, timeout: Option<Duration>) -> Result<Fetch> {
        self.needs_wait("fi_cq_sread")?;
        let cond = if self.core.attr.threshold {
            ptr::without_provenance(threshold)
        } else {
            ptr::null()
        };
        Ok(Fetch::Wait {
            cond,
            millis: call::millis(timeout),
        })
    }

    /// The next completion, read until `timeout` is over. Blocks in the library where the
    /// queue has a wait object; else reads again and again.
    ///
    /// # Errors
    ///
    /// The operation's failure, `FI_ETIMEDOUT`, and what else the library says.
    pub fn wait(&self, timeout: Duration) -> std::result::Result<Completion, Failure> {
        let deadline = Instant::now() + timeout;
        let mut out = Vec::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let fetch = match self.core.attr.wait {
                WaitObj::None => Fetch::Now,
                _ => Fetch::Wait {
                    cond: ptr::null(),
                    millis: call::millis(Some(left)),
                },
            };
            match self.fetch_into(&mut out, 1, fetch) {
                Ok(_) => {
                    if let Some(completion) = out.pop() {
                        return Ok(completion);
                    }
                }
                Err(e) if e.errno == Errno::EAVAIL => match self.readerr() {
                    Ok(error) => return Err(Failure::Operation(Box::new(error))),
                    Err(e) if e.is_again() => {}
                    Err(e) => return Err(e.into()),
                },
                Err(e) if e.is_again() || e.errno == Errno::EINTR => {}
                Err(e) => return Err(e.into()),
            }
            if left.is_zero() {
                return Err(Error::new("fi_cq_read", Errno::ETIMEDOUT).into());
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn fetch_into(
        &self,
        out: &mut Vec<Completion>,
        max: usize,
        fetch: Fetch,
    ) -> Result<usize> {
        let mut entries = NO_ENTRIES;
        let mut sources = [u64::MAX; BATCH];
        let with_sources = self.domain().source.then_some(&mut sources);
        let count = self.fetch(&mut entries, with_sources, max.min(BATCH), fetch)?;
        let format = self.core.attr.format;
        let words = entry_size(format) / 8;
        for i in 0..count {
            let entry = decode(format, entries[i * words].as_ptr());
            out.push(self.booked(&entry, sources[i], None));
        }
        Ok(count)
    }

    /// Hands out up to `max`, at most 16, successes; their contexts are the tokens of the
    /// operations. For a queue of format TAGGED.
    #[inline(never)]
    pub(crate) fn each(
        &self,
        max: usize,
        how: Fetch,
        mut each: impl FnMut(&types::Completion),
    ) -> Result<usize> {
        let mut entries = NO_ENTRIES;
        let mut sources = [u64::MAX; BATCH];
        let with_sources = self.domain().source.then_some(&mut sources);
        let count = self.fetch(&mut entries, with_sources, max.min(BATCH), how)?;
        for (i, src) in sources[..count].iter().enumerate() {
            let entry = tagged(&entries, i);
            let mut found = completion(&entry);
            found.src = FiAddr(*src);
            found.context = self.booked(&entry, *src, None).token as usize;
            each(&found);
        }
        Ok(count)
    }

    /// As [`Cq::each`] of what is there now, in a few instructions where there is nothing to add to
    /// what C says.
    #[inline]
    pub(crate) fn each_now(
        &self,
        max: usize,
        mut each: impl FnMut(&types::Completion),
    ) -> Result<usize> {
        let domain = self.domain();
        if domain.source || !domain.unbooked {
            return self.each(max, Fetch::Now, each);
        }
        let mut entries = NO_ENTRIES;
        let max = max.min(BATCH);
        let buf: *mut c_void = entries.as_mut_ptr().cast();
        let ret = match op!(self.table(), fi_ops_cq.read) {
            // SAFETY: the queue is open, and `entries` has room for `max` entries of its format.
            Some(read) => unsafe { read(self.core.owned.get(), buf, max) },
            None => ENOSYS as isize,
        };
        let count = Error::check_count("fi_cq_read", ret)?;
        fits(count, max, "fi_cq_read");
        for i in 0..count {
            each(&completion(&tagged(&entries, i)));
        }
        Ok(count)
    }

    /// One call of the library for at most `max` entries.
    #[inline]
    fn fetch(
        &self,
        entries: &mut Entries,
        sources: Option<&mut [u64; BATCH]>,
        max: usize,
        how: Fetch,
    ) -> Result<usize> {
        let cq = self.core.owned.get();
        let table = self.table();
        let buf: *mut c_void = entries.as_mut_ptr().cast();
        let none = ENOSYS as isize;
        // In each call the queue is open, `entries` has room for `max` entries of its format
        // and `sources` for as many addresses.
        let (name, ret) = match (how, sources) {
            (Fetch::Now, None) => (
                "fi_cq_read",
                match op!(table, fi_ops_cq.read) {
                    // SAFETY: as said above.
                    Some(read) => unsafe { read(cq, buf, max) },
                    None => none,
                },
            ),
            (Fetch::Now, Some(src)) => (
                "fi_cq_readfrom",
                match op!(table, fi_ops_cq.readfrom) {
                    // SAFETY: as said above.
                    Some(readfrom) => unsafe { readfrom(cq, buf, max, src.as_mut_ptr()) },
                    None => none,
                },
            ),
            (Fetch::Wait { cond, millis }, None) => {
                (
                    "fi_cq_sread",
                    match op!(table, fi_ops_cq.sread) {
                        // SAFETY: as said above; `cond` is a number or null, never dereferenced.
                        Some(sread) => unsafe { sread(cq, buf, max, cond, millis) },
                        None => none,
                    },
                )
            }
            (Fetch::Wait { cond, millis }, Some(src)) => {
                (
                    "fi_cq_sreadfrom",
                    match op!(table, fi_ops_cq.sreadfrom) {
                        // SAFETY: as said above; `cond` is a number or null, never dereferenced.
                        Some(sreadfrom) => unsafe {
                            sreadfrom(cq, buf, max, src.as_mut_ptr(), cond, millis)
                        },
                        None => none,
                    },
                )
            }
        };
        let count = Error::check_count(name, ret)?;
        fits(count, max, name);
        Ok(count)
    }

    /// Reads the failed operation that made a read say `FI_EAVAIL` (`fi_cq_readerr`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when there is none, and what else the library says.
    pub fn readerr(&self) -> Result<CqError> {
        let mut err_data = vec![0_u8; 256];
        let mut entry = fi_cq_err_entry {
            err_data: err_data.as_mut_ptr().cast(),
            err_data_size: err_data.len(),
            src_addr: u64::MAX,
            ..Default::default()
        };
        let ret = match op!(self.table(), fi_ops_cq.readerr) {
            // SAFETY: the queue is open; the entry is the longest there is, and names memory of
            // the length it says.
            Some(readerr) => unsafe { readerr(self.core.owned.get(), &raw mut entry, 0) },
            None => ENOSYS as isize,
        };
        if Error::check_count("fi_cq_readerr", ret)? == 0 {
            return Err(Error::new("fi_cq_readerr", Errno::EAGAIN));
        }
        err_data.truncate(entry.err_data_size);
        let raw = fi_cq_tagged_entry {
            op_context: entry.op_context,
            flags: entry.flags,
            len: entry.len,
            buf: entry.buf,
            data: entry.data,
            tag: entry.tag,
        };
        let err = Errno(entry.err);
        Ok(CqError {
            entry: self.booked(&raw, entry.src_addr, Some(err)),
            err,
            olen: entry.olen,
            prov_errno: entry.prov_errno,
            prov_text: self.strerror(entry.prov_errno),
            err_data,
        })
    }

    /// The provider's words for its own error code (`fi_cq_strerror`).
    #[must_use]
    pub fn strerror(&self, prov_errno: i32) -> String {
        // The last byte stays zero.
        let mut text = [0_u8; 256];
        let out: *mut c_char = text.as_mut_ptr().cast();
        let said = match op!(self.table(), fi_ops_cq.strerror) {
            // SAFETY: the queue is open, there is no error data, `text` has the length said.
            Some(strerror) => unsafe {
                strerror(
                    self.core.owned.get(),
                    prov_errno,
                    ptr::null(),
                    out,
                    text.len() - 1,
                )
            },
            None => ptr::null(),
        };
        copy_text(said)
    }

    /// Wakes a thread that blocks in [`Cq::sread`] (`fi_cq_signal`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for a queue opened with [`WaitObj::None`], and what the library says.
    pub fn signal(&self) -> Result<()> {
        self.needs_wait("fi_cq_signal")?;
        let ret = match op!(self.table(), fi_ops_cq.signal) {
            // SAFETY: the queue is open.
            Some(signal) => unsafe { signal(self.core.owned.get()) },
            None => ENOSYS,
        };
        Error::check("fi_cq_signal", ret)
    }

    /// The descriptor to poll after [`Fabric::trywait`](crate::Fabric::trywait), for a queue
    /// opened with [`WaitObj::Fd`].
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for another wait object, and what the library says.
    pub fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        if self.core.attr.wait != WaitObj::Fd {
            return Err(Error::new("fi_control", Errno::EINVAL));
        }
        let fd = call::wait_fd(self.core.owned.fid())?;
        // SAFETY: the descriptor belongs to the queue, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn needs_wait(&self, call: &'static str) -> Result<()> {
        if guard::waits(self.core.attr.wait) || !self.domain().guarded() {
            Ok(())
        } else {
            Err(Error::new(call, Errno::EINVAL))
        }
    }

    fn booked(&self, entry: &fi_cq_tagged_entry, src: u64, error: Option<Errno>) -> Completion {
        let flags = Flags::from_bits_retain(entry.flags);
        let plain = Completion {
            op: None,
            token: entry.op_context.addr() as u64,
            flags,
            len: entry.len,
            data: entry.data,
            tag: entry.tag,
            src: FiAddr(src),
            returned: Returned::Nothing,
        };
        if self.domain().unbooked {
            return plain;
        }
        let outcome = Outcome {
            flags,
            len: entry.len,
            buf: entry.buf.addr(),
            error,
        };
        let finished = self
            .domain()
            .book(|book| book.complete(entry.op_context, outcome));
        let (op, token, returned) = match finished {
            Some(f) => (Some(f.op), f.token, f.returned),
            None => (None, 0, Returned::Nothing),
        };
        Completion {
            op,
            token,
            returned,
            ..plain
        }
    }
}

impl<M: Threading> private::Sealed for Cq<M> {
    #[expect(private_interfaces, reason = "nobody outside can name or call this")]
    fn waitable(&self) -> (*mut fid, *const FabricCore, WaitObj) {
        let owned = &self.core.owned;
        let fabric = Arc::as_ptr(owned.parent().fabric());
        (owned.fid(), fabric, self.core.attr.wait)
    }
}

#[inline]
fn fits(count: usize, max: usize, call: &str) {
    assert!(
        count <= max,
        "{call} returned {count} entries where {max} had room"
    );
}

/// An entry that the library has filled, of a queue of format TAGGED.
#[inline]
fn tagged(entries: &Entries, i: usize) -> fi_cq_tagged_entry {
    let entry = entries[i * size_of::<fi_cq_tagged_entry>() / 8..].as_ptr();
    // SAFETY: the callers have had entry `i` of this format filled.
    unsafe { entry.cast::<fi_cq_tagged_entry>().read() }
}

/// What an entry says, in the words of the object model.
#[inline]
fn completion(entry: &fi_cq_tagged_entry) -> types::Completion {
    types::Completion {
        context: entry.op_context.addr(),
        flags: Flags::from_bits_retain(entry.flags),
        len: entry.len,
        buf: entry.buf.addr(),
        data: entry.data,
        tag: entry.tag,
        src: FiAddr::NOTAVAIL,
    }
}

const fn entry_size(format: CqFormat) -> usize {
    match format {
        CqFormat::Unspec | CqFormat::Context => size_of::<fi_cq_entry>(),
        CqFormat::Msg => size_of::<fi_cq_msg_entry>(),
        CqFormat::Data => size_of::<fi_cq_data_entry>(),
        CqFormat::Tagged => size_of::<fi_cq_tagged_entry>(),
    }
}

/// Reads one entry, which the library has filled in `format`.
fn decode(format: CqFormat, entry: *const u64) -> fi_cq_tagged_entry {
    let mut out = fi_cq_tagged_entry::default();
    match format {
        CqFormat::Unspec | CqFormat::Context => {
            // SAFETY: the entry is filled and of this format.
            let e = unsafe { entry.cast::<fi_cq_entry>().read() };
            out.op_context = e.op_context;
        }
        CqFormat::Msg => {
            // SAFETY: as above.
            let e = unsafe { entry.cast::<fi_cq_msg_entry>().read() };
            (out.op_context, out.flags, out.len) = (e.op_context, e.flags, e.len);
        }
        CqFormat::Data => {
            // SAFETY: as above.
            let e = unsafe { entry.cast::<fi_cq_data_entry>().read() };
            (out.op_context, out.flags, out.len) = (e.op_context, e.flags, e.len);
            (out.buf, out.data) = (e.buf, e.data);
        }
        CqFormat::Tagged => {
            // SAFETY: as above.
            out = unsafe { entry.cast::<fi_cq_tagged_entry>().read() };
        }
    }
    out
}
