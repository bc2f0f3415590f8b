#![allow(unsafe_code)]
//! `fi_cq`(3).

use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ripstop_abi::{
    fi_cq_attr, fi_cq_data_entry, fi_cq_entry, fi_cq_err_entry, fi_cq_msg_entry,
    fi_cq_tagged_entry, fi_ops_cq, fid_cq,
};
use ripstop_core::provider::CqAttr;
use ripstop_types::{Completion, CompletionError, CqFormat, Errno, FiAddr, Flags, WaitObj};

use super::polls::PollSet;
use crate::call::{self, ENOSYS, calls, op};
use crate::fabric::{WaitSet, opened};
use crate::library::copy_text;
use crate::ops::Book;
use crate::owned::Owned;
use crate::threading::Threading;
use crate::{Domain, Error, Result};

type Owner<M> = Owned<fid_cq, M, Arc<Domain<M>>>;

/// A completion queue.
pub struct Cq<M: Threading> {
    /// Tells whether there is something to read, once somebody has asked; closes first.
    pub(crate) polls: OnceLock<PollSet<M>>,
    pub(crate) owned: Owner<M>,
    pub(crate) wait: WaitObj,
    format: CqFormat,
    /// Blocking reads name how many entries to wait for (`FI_CQ_COND_THRESHOLD`).
    threshold: bool,
    /// There is nothing to add to what C says.
    plain: bool,
    /// The set it is waited for in, which closes after it.
    _set: Option<Arc<WaitSet>>,
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
    pub(crate) fn new(
        owned: Owner<M>,
        attr: &CqAttr,
        threshold: bool,
        set: Option<Arc<WaitSet>>,
    ) -> Self {
        let domain = owned.parent();
        let plain = domain.unbooked && !domain.source && attr.format == CqFormat::Tagged;
        Self {
            polls: OnceLock::new(),
            owned,
            wait: attr.wait,
            format: attr.format,
            threshold,
            plain,
            _set: set,
        }
    }

    fn domain(&self) -> &Arc<Domain<M>> {
        self.owned.parent()
    }

    #[inline]
    pub(crate) fn table(&self) -> *const fi_ops_cq {
        // SAFETY: the queue is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// How a batch is fetched that is waited for.
    pub(crate) fn blocking(&self, threshold: usize, timeout: Option<Duration>) -> Fetch {
        let cond = if self.threshold {
            ptr::without_provenance(threshold)
        } else {
            ptr::null()
        };
        let millis = call::millis(timeout);
        Fetch::Wait { cond, millis }
    }

    /// Hands out up to `max`, at most 16, successes; their contexts are those of the operations. What
    /// the format does not have is zero.
    #[inline(never)]
    pub(crate) fn each(
        &self,
        max: usize,
        how: Fetch,
        mut each: impl FnMut(&Completion),
    ) -> Result<usize> {
        let mut entries = NO_ENTRIES;
        let mut sources = [u64::MAX; BATCH];
        let with_sources = self.domain().source.then_some(&mut sources);
        let count = self.fetch(&mut entries, with_sources, max.min(BATCH), how)?;
        let words = entry_size(self.format) / 8;
        for (i, src) in sources[..count].iter().enumerate() {
            let entry = decode(self.format, entries[i * words..].as_ptr().cast());
            each(&self.booked(&entry, *src, None));
        }
        Ok(count)
    }

    /// As [`Cq::each`] of what is there now, in a few instructions where there is nothing to add to
    /// what C says.
    #[inline]
    pub(crate) fn each_now(&self, max: usize, mut each: impl FnMut(&Completion)) -> Result<usize> {
        if !self.plain {
            return self.each(max, Fetch::Now, each);
        }
        let mut entries = NO_ENTRIES;
        let max = max.min(BATCH);
        let buf: *mut c_void = entries.as_mut_ptr().cast();
        let ret = calls!(self.table(), fi_ops_cq.read(self.owned.get(), buf, max));
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
        let cq = self.owned.get();
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

    /// Reads the failed operation that made a read say `FI_EAVAIL` (`fi_cq_readerr`), and the
    /// provider's data on it, at most 256 bytes.
    pub(crate) fn readerr(&self) -> Result<(CompletionError, Vec<u8>)> {
        let mut err_data = vec![0_u8; 256];
        let mut entry = fi_cq_err_entry {
            err_data: err_data.as_mut_ptr().cast(),
            err_data_size: err_data.len(),
            src_addr: u64::MAX,
            ..Default::default()
        };
        let ret = calls!(
            self.table(),
            fi_ops_cq.readerr(self.owned.get(), &raw mut entry, 0)
        );
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
        let error = CompletionError {
            entry: self.booked(&raw, entry.src_addr, Some(err)),
            olen: entry.olen,
            err,
            prov_errno: entry.prov_errno,
        };
        Ok((error, err_data))
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
                    self.owned.get(),
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

    pub(crate) fn wake(&self) -> Result<()> {
        let ret = calls!(self.table(), fi_ops_cq.signal(self.owned.get()));
        Error::check("fi_cq_signal", ret)
    }

    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        let fd = call::wait_fd(self.owned.fid(), self.wait)?;
        // SAFETY: the descriptor belongs to the queue, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// What an entry says, of an operation that has ended so.
    fn booked(&self, entry: &fi_cq_tagged_entry, src: u64, error: Option<Errno>) -> Completion {
        let mut found = completion(entry);
        found.src = FiAddr(src);
        if !self.domain().unbooked {
            let (context, flags) = (entry.op_context, found.flags);
            let ended = |book: &mut Book| book.complete(context, flags, error);
            found.context = self.domain().book(ended);
        }
        found
    }
}

impl<M: Threading> Domain<M> {
    /// Opens a completion queue (`fi_cq_open`), whose blocking reads wait for a number of entries
    /// with `threshold`; it may be waited for in a set. All of an entry is asked for, unless a format
    /// is.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn cq_with(
        self: &Arc<Self>,
        attr: &CqAttr,
        threshold: bool,
        set: Option<&Arc<WaitSet>>,
    ) -> Result<Arc<Cq<M>>> {
        let mut attr = *attr;
        if attr.format == CqFormat::Unspec {
            attr.format = CqFormat::Tagged;
        }
        attr.wait = set.map_or(attr.wait, |_| WaitObj::Set);
        let mut c_attr = fi_cq_attr {
            size: attr.size,
            flags: attr.flags.bits(),
            format: attr.format.raw(),
            wait_obj: attr.wait.raw(),
            wait_cond: threshold.into(),
            wait_set: set.map_or(ptr::null_mut(), |set| set.owned.get()),
            ..Default::default()
        };
        let mut cq: *mut fid_cq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cq_open) {
            // SAFETY: domain, set and attributes are live, `cq` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut c_attr, &raw mut cq);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let owned = Owned::new(opened("fi_cq_open", ret, cq)?, self.clone());
        Ok(Arc::new(Cq::new(owned, &attr, threshold, set.cloned())))
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
fn completion(entry: &fi_cq_tagged_entry) -> Completion {
    Completion {
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
            // SAFETY: the library has filled an entry of this format, a `fi_cq_msg_entry`.
            let e = unsafe { entry.cast::<fi_cq_msg_entry>().read() };
            (out.op_context, out.flags, out.len) = (e.op_context, e.flags, e.len);
        }
        CqFormat::Data => {
            // SAFETY: the library has filled an entry of this format, a `fi_cq_data_entry`.
            let e = unsafe { entry.cast::<fi_cq_data_entry>().read() };
            (out.op_context, out.flags, out.len) = (e.op_context, e.flags, e.len);
            (out.buf, out.data) = (e.buf, e.data);
        }
        CqFormat::Tagged => {
            // SAFETY: the library has filled an entry of this format, a `fi_cq_tagged_entry`.
            out = unsafe { entry.cast::<fi_cq_tagged_entry>().read() };
        }
    }
    out
}
