#![allow(unsafe_code)]
//! Event queues (`fi_eq(3)`).

use core::any::Any;
use core::ffi::{c_int, c_void};
use core::ptr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::eq::{EqAttr, Event, EventError, EventQueue};
use ripstop_core::provider::Fabric;
use ripstop_types::{CmEvent, Errno, Flags, Result, Version, WaitObj};

mod event_out;
mod kept;

use crate::buffers::Src;
use crate::edge::{In, Out, Whole, arguments, trampolines};
use crate::errno::{self, count as counted, fail};
use crate::error_entry;
use crate::object::fabric::FabricBody;
use crate::object::{self, Body, Room, This, pointer, shared};
use crate::strerror::strerror;
use crate::tables::{operations, table};
use crate::wait::{self, Waits, timeout};
use crate::waitset::{self, WaitSet};
use event_out::{Buffer, EventOut, consumes};
use kept::Kept;

/// What an event queue's object holds.
pub(crate) struct EqBody {
    pub(crate) eq: Arc<EventQueue>,
    /// The wait set it is part of.
    set: Option<Arc<WaitSet>>,
    /// The version the program was written for.
    api: Version,
    /// The program inserts events of its own (`FI_WRITE`).
    writable: bool,
    /// What outlives a call.
    kept: Mutex<Kept>,
    /// The fabric stays while the queue does.
    _fabric: Arc<dyn Any + Send + Sync>,
}

shared! { [] EqBody: fid_eq, eq }

static FID: abi::fi_ops = abi::fi_ops {
    control: Some(wait::control::<EqBody>),
    ..*EqBody::CLOSING
};

static EQ: &abi::fi_ops_eq = operations!(fi_ops_eq [] { read readerr write sread strerror });

trampolines! { [F: Fabric]
    /// `fi_eq_open`.
    pub(crate) extern "C" fn open(
        parent: This<FabricBody<F>>, attr: In<*mut abi::fi_eq_attr>, eq: Out<*mut abi::fid_eq>,
        context: *mut c_void,
    ) -> c_int {
        let fabric = Arc::clone(&parent.fabric) as Arc<dyn Any + Send + Sync>;
        let make = || make(attr.needed("fi_eq_open", "attr")?, parent.api, fabric, context);
        eq.open(make)
    }
}

/// Opens a queue.
fn make(
    attr: Whole<'_, abi::fi_eq_attr>,
    api: Version,
    fabric: Arc<dyn Any + Send + Sync>,
    context: *mut c_void,
) -> Result<*mut abi::fid_eq> {
    let flags = Flags::from_bits_retain(attr.flags);
    if flags.contains(Flags::PEER) {
        // As `fi_peer(3)` asks of who has no peer event queues.
        let why = "there are no event queues of other providers; leave FI_PEER out";
        return Err(errno::refused("fi_eq_open", why, Errno::EINVAL));
    }
    let (wait_obj, set) = waitset::wanted(attr.wait_obj, attr.wait_set())?;
    let queue = EventQueue::open(&EqAttr {
        size: attr.size,
        flags,
        wait_obj,
        signaling_vector: attr.signaling_vector,
    })?;
    let eq = Arc::new(queue);
    if let Some(set) = &set {
        set.add(eq.wait_fd()?, &eq, EventQueue::try_wait)?;
    }
    let head = abi::fid_eq {
        fid: object::fid(abi::FI_CLASS_EQ, context, &FID),
        ops: table(EQ),
    };
    let body = EqBody {
        eq,
        set,
        api,
        writable: flags.contains(Flags::WRITE),
        kept: Mutex::default(),
        _fabric: fabric,
    };
    Ok(Room::<EqBody>::new().fill(head, body))
}

impl EqBody {
    /// Drops what a read replaced, with no lock held: the request in it may look for its queue.
    fn drop_stale(&self) {
        let stale = self.kept.lock().stale.take();
        drop(stale);
    }
}

impl Waits for EqBody {
    fn wait_obj(&self) -> WaitObj {
        wait::shown(self.set.as_ref(), self.eq.attr().wait_obj)
    }

    fn wait_fd(&self) -> Result<RawFd> {
        self.eq.wait_fd().map(|fd| fd.as_raw_fd())
    }
}

trampolines! { []
    extern "C" fn read(
        this: This<EqBody>, event: Out<u32>, buf: Buffer(buf, len), flags: u64,
    ) -> isize {
        let out = EventOut::new(event, buf, consumes("fi_eq_read", flags));
        let write = |event: &Event| out.write(event, &mut this.kept.lock());
        let read = this.eq.read_with(out.consume, write);
        this.drop_stale();
        counted(read)
    }

    extern "C" fn sread(
        this: This<EqBody>, event: Out<u32>, buf: Buffer(buf, len), wait: c_int, flags: u64,
    ) -> isize {
        let out = EventOut::new(event, buf, consumes("fi_eq_sread", flags));
        let write = |event: &Event| out.write(event, &mut this.kept.lock());
        let read = this.eq.sread_with(timeout(wait), out.consume, write);
        this.drop_stale();
        counted(read)
    }

    extern "C" fn readerr(this: This<EqBody>, entry: ErrorEntry, flags: u64) -> isize {
        if entry.at.is_null() {
            return fail(errno::missing("fi_eq_readerr", "buf")) as isize;
        }
        let consume = consumes("fi_eq_readerr", flags);
        counted(this.eq.read_error(consume).map(|error| {
            entry.write(&error, &this);
            size_of::<abi::fi_eq_err_entry>()
        }))
    }

    extern "C" fn write(
        this: This<EqBody>, event: u32, buf: Src(buf, len), _flags: u64,
    ) -> isize {
        if !this.writable {
            return fail(Errno::EINVAL) as isize;
        }
        counted(buf.bytes().and_then(|bytes| this.eq.write(event, bytes)))
    }
}

arguments! {
    /// The entry that `fi_eq_readerr` fills: null, or a whole one, whose `err_data` is null or has
    /// `err_data_size` bytes from API 1.5 on.
    struct ErrorEntry { at: *mut abi::fi_eq_err_entry }
}

impl ErrorEntry<'_> {
    /// Writes an error, unless there is no entry; its data as [`error_entry::give_data`] says.
    fn write(self, error: &EventError, this: &EqBody) {
        // SAFETY: null or an entry that nobody else uses, as `from_c` was promised.
        let Some(entry) = (unsafe { self.at.as_mut() }) else {
            return;
        };
        let brought = this.api >= error_entry::WITH_BUFFER
            && entry.err_data_size != 0
            && !entry.err_data.is_null();
        let buffer = brought.then_some((entry.err_data.cast(), entry.err_data_size));
        let kept = &mut this.kept.lock().err_data;
        // SAFETY: `from_c` was promised that many bytes of entries of this version.
        let (err_data, err_data_size) =
            unsafe { error_entry::give_data(error.err_data.as_slice(), buffer, kept) };
        *entry = abi::fi_eq_err_entry {
            fid: pointer(error.fid),
            context: ptr::with_exposed_provenance_mut(error.context),
            data: error.data,
            err: error.err.0,
            prov_errno: error.prov_errno,
            err_data: err_data.cast(),
            err_data_size,
        };
    }
}

/// The event queue that an object reports to (an endpoint, a passive one, a collective group), if there is one. When
/// the object has gone, so have its events: the program could not tell its address from that of the next object.
pub(crate) struct BoundEq {
    fid: FidToken,
    queue: Mutex<Weak<EventQueue>>,
}

impl BoundEq {
    /// No queue yet; `fid` is what the object is called in events.
    pub(crate) const fn new(fid: FidToken) -> Self {
        Self {
            fid,
            queue: Mutex::new(Weak::new()),
        }
    }

    /// The queue, if the object was bound to one that is still open.
    pub(crate) fn queue(&self) -> Option<Arc<EventQueue>> {
        self.queue.lock().upgrade()
    }

    /// Called when the object is bound to a queue.
    pub(crate) fn set(&self, queue: &Arc<EventQueue>) {
        *self.queue.lock() = Arc::downgrade(queue);
    }
}

impl Drop for BoundEq {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.get_mut().upgrade() {
            queue.forget(self.fid);
        }
    }
}

/// Reports what a program has asked to be told of: the end of an insertion into an address vector
/// with `FI_EVENT`, or a registration in a domain that was bound with `FI_REG_MR`.
///
/// # Errors
/// [`Errno::EOVERRUN`].
pub(crate) fn report_done(
    queue: &EventQueue,
    event: CmEvent,
    fid: FidToken,
    context: *mut c_void,
    data: u64,
) -> Result<()> {
    let context = context.expose_provenance();
    queue.push(Event::Done {
        event,
        fid,
        context,
        data,
    })
}
