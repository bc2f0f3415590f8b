#![allow(unsafe_code)]
//! Queues and counters that belong to another provider (`fi_peer(3)`): ours fill them.
//!
//! The owner opens one of ours with `FI_PEER` and says where its own is; it drives ours by
//! reading nothing from it (`fi_cq_read` with null and 0, `fi_cntr_read`), and what has happened
//! is then told by its callbacks. That read also drives the receive contexts that belong to
//! another provider ([`SrxOwner`]) of the endpoints with the queue.

use core::ffi::c_void;
use core::ptr;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Instant;

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::provider::{CompletionQueue, Counter};
use ripstop_core::weak::WeakList;
use ripstop_types::{Completion, CompletionError, Errno, FiAddr, Result};

use crate::{error_entry, object};

mod context;
mod owner;
mod receive;

pub(crate) use context::Context;
use context::table_of;
use owner::RxEntry;
pub(crate) use receive::SrxOwner;

/// Entries that are taken from a queue of ours at once, before the owner is told of them.
const MAX_ENTRIES_AT_ONCE: usize = 16;

/// How often entries are taken in one call, so that a program that reads its queue gets back.
const MAX_READS: usize = 16;

/// What the owner of a queue is told.
pub(crate) enum Entry {
    /// A completion.
    Done(Completion),
    /// An error, with the bytes that describe it.
    Failed(CompletionError, Vec<u8>),
    /// The end of something that is not reported.
    Quiet,
}

/// An entry of which the owner was not told yet, or that it did not take.
pub(crate) struct Untold {
    entry: Entry,
    /// The receive that it is the end of.
    of: Option<(Weak<dyn Driven>, usize)>,
}

impl Untold {
    /// An entry that is the end of no such receive.
    const fn plain(entry: Entry) -> Self {
        Self { entry, of: None }
    }
}

/// What a read of a queue that belongs to another provider drives besides.
pub(crate) trait Driven: Send + Sync {
    /// Asks the owner about messages that have come. Called without any lock of the provider.
    fn ask(&self);

    /// Adds what has ended to what the owner of the queue is to be told.
    fn collect(&self, untold: &mut VecDeque<Untold>);

    /// The owner was told of the end of the receive with this number.
    fn release(&self, number: usize);

    /// Addresses have become known.
    fn refresh(&self);

    /// Begins the receive of a message that waits.
    fn start(&self, number: usize, entry: RxEntry) -> Result<()>;

    /// Nobody will receive a message that waits.
    fn discard(&self, number: usize) -> Result<()>;

    /// The sender of a message that waits.
    fn source(&self, number: usize) -> FiAddr;
}

/// What an address vector's insertions are told to.
pub(crate) type Peers = Arc<WeakList<dyn Driven>>;

/// Tells all contexts with an address vector that addresses have become known.
pub(crate) fn refresh(peers: &Peers) {
    peers.each(Driven::refresh);
}

type Write = unsafe extern "C" fn(
    cq: *mut abi::fid_peer_cq,
    context: *mut c_void,
    flags: u64,
    len: usize,
    buf: *mut c_void,
    data: u64,
    tag: u64,
    src: abi::fi_addr_t,
) -> isize;
type WriteErr =
    unsafe extern "C" fn(cq: *mut abi::fid_peer_cq, entry: *const abi::fi_cq_err_entry) -> isize;

/// The queue that gets the completions of one of ours.
pub(crate) struct CqOwner {
    cq: *mut abi::fid_peer_cq,
    write: Write,
    write_error: WriteErr,
    /// Taken from our queue and not yet told.
    untold: Mutex<VecDeque<Untold>>,
    /// The receive contexts that a read drives.
    driven: WeakList<dyn Driven>,
}

// SAFETY: the owner's queue and functions may be used from every thread that calls ours, which
// `Context` says.
unsafe impl Send for CqOwner {}
// SAFETY: the owner's queue and functions may be used from several threads at once, which `Context`
// says; everything else is behind locks.
unsafe impl Sync for CqOwner {}

impl CqOwner {
    /// The owner that the context of `fi_cq_open` names; `None` without `FI_PEER` in its flags.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for null, a context that is too short, or an owner without callbacks.
    pub(crate) fn of(flags: u64, context: Context) -> Result<Option<Self>> {
        if flags & abi::FI_PEER == 0 {
            return Ok(None);
        }
        // SAFETY: the flags have `FI_PEER`, and the call takes this struct with it.
        let cq = unsafe { context.peer::<abi::fi_peer_cq_context>() }?.cq;
        // SAFETY: the struct names no queue, or one of the owner's.
        let ops = unsafe { cq.as_ref() }.ok_or(Errno::EINVAL)?.owner_ops;
        // SAFETY: the queue has no operations, or a table of them.
        let ops = unsafe { table_of(ops) }?;
        Ok(Some(Self {
            cq,
            write: ops.write.ok_or(Errno::EINVAL)?,
            write_error: ops.writeerr.ok_or(Errno::EINVAL)?,
            untold: Mutex::default(),
            driven: WeakList::default(),
        }))
    }

    /// Has a read drive a receive context.
    pub(crate) fn drive(&self, driven: &Weak<dyn Driven>) {
        self.driven.add(driven);
    }

    /// Drives a receive context no more, and waits for the read that may still do so. What has ended
    /// there is told as before, but not to the context. Returns whether that read came to its end.
    fn release(&self, driven: &Weak<dyn Driven>) -> bool {
        self.driven.remove(driven);
        let start = Instant::now();
        let mut untold = loop {
            match self.untold.try_lock() {
                Some(untold) => break untold,
                None if start.elapsed() > object::LONGEST_CALL => return false,
                None => std::thread::yield_now(),
            }
        };
        for entry in untold.iter_mut() {
            entry.of.take_if(|(home, _)| home.ptr_eq(driven));
        }
        true
    }

    /// Makes progress, and tells the owner what has come. Entries that it does not take are
    /// told again the next time. Calls the owner without any lock of the provider.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when nothing was told, and those of the queue.
    pub(crate) fn forward(&self, cq: &impl CompletionQueue) -> Result<usize> {
        // Another thread does the work already.
        let mut untold = self.untold.try_lock().ok_or(Errno::EAGAIN)?;
        let mut told: usize = 0;
        for _ in 0..MAX_READS {
            while let Some(Untold { entry, of }) = untold.front() {
                if !self.tell(entry) {
                    return some(told);
                }
                if let Some((home, number)) = of
                    && let Some(home) = home.upgrade()
                {
                    home.release(*number);
                }
                untold.pop_front();
                told = told.saturating_add(1);
            }
            match cq.read(MAX_ENTRIES_AT_ONCE, |entry| {
                untold.push_back(Untold::plain(Entry::Done(*entry)))
            }) {
                Ok(_) | Err(Errno::EAGAIN) => {}
                Err(Errno::EAVAIL) => cq.read_error(|error, data| {
                    untold.push_back(Untold::plain(Entry::Failed(*error, data.to_vec())));
                })?,
                Err(error) => return Err(error),
            }
            self.driven.each(|driven| {
                driven.ask();
                driven.collect(&mut untold);
            });
            if untold.is_empty() {
                break;
            }
        }
        some(told)
    }

    /// Whether the owner took the entry.
    fn tell(&self, entry: &Entry) -> bool {
        let code = match entry {
            Entry::Done(done) => {
                let context = ptr::with_exposed_provenance_mut(done.context);
                let buf = ptr::with_exposed_provenance_mut(done.buf);
                let (flags, src) = (done.flags.bits(), done.src.0);
                // SAFETY: the owner's function with its queue, which may be called until ours is closed.
                unsafe {
                    (self.write)(
                        self.cq, context, flags, done.len, buf, done.data, done.tag, src,
                    )
                }
            }
            Entry::Failed(failed, data) => {
                // The owner reads the bytes, if it does, during the call.
                let data = (data.as_ptr().cast_mut(), data.len());
                let entry = error_entry::entry(failed, data);
                // SAFETY: the owner's function with its queue, which may be called until ours is
                // closed, and an entry that is whole during the call.
                unsafe { (self.write_error)(self.cq, &raw const entry) }
            }
            Entry::Quiet => 0,
        };
        code >= 0
    }
}

fn some(told: usize) -> Result<usize> {
    match told {
        0 => Err(Errno::EAGAIN),
        told => Ok(told),
    }
}

/// The counter that counts what one of ours has seen.
pub(crate) struct CounterOwner {
    cntr: *mut abi::fid_peer_cntr,
    /// Count a success, and an error.
    inc: [unsafe extern "C" fn(cntr: *mut abi::fid_peer_cntr); 2],
    /// What the owner has been told of.
    told: Mutex<[u64; 2]>,
}

impl CounterOwner {
    /// The owner that the context of `fi_cntr_open` names; `None` without `FI_PEER` in its flags.
    ///
    /// # Errors
    /// As for [`CqOwner::of`].
    pub(crate) fn of(flags: u64, context: Context) -> Result<Option<Self>> {
        if flags & abi::FI_PEER == 0 {
            return Ok(None);
        }
        // SAFETY: the flags have `FI_PEER`, and the call takes this struct with it.
        let cntr = unsafe { context.peer::<abi::fi_peer_cntr_context>() }?.cntr;
        // SAFETY: the struct names no counter, or one of the owner's.
        let ops = unsafe { cntr.as_ref() }.ok_or(Errno::EINVAL)?.owner_ops;
        // SAFETY: the counter has no operations, or a table of them.
        let ops = unsafe { table_of(ops) }?;
        Ok(Some(Self {
            cntr,
            inc: [
                ops.inc.ok_or(Errno::EINVAL)?,
                ops.incerr.ok_or(Errno::EINVAL)?,
            ],
            told: Mutex::default(),
        }))
    }

    /// Makes progress, and tells the owner what has been counted.
    pub(crate) fn forward(&self, counter: &impl Counter) {
        let Some(mut told) = self.told.try_lock() else {
            // Another thread does the work already.
            return;
        };
        let now = [counter.read(), counter.read_error()];
        for ((told, now), inc) in told.iter_mut().zip(now).zip(self.inc) {
            while *told != now {
                *told = told.wrapping_add(1);
                // SAFETY: the owner's function with its counter, which may be called until ours is
                // closed.
                unsafe { inc(self.cntr) };
            }
        }
    }
}
