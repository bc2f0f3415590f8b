#![allow(unsafe_code)]
//! Event queues (`fi_eq(3)`).
//!
//! These operations belong to event queues and are called through them; buffers are null or
//! have as many bytes as the caller says. Every `SAFETY` remark of an operation rests on this.

use core::any::Any;
use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::eq::{EqAttr, Event, EventError, EventQueue};
use ripstop_core::provider::Fabric;
use ripstop_types::{CmEvent, Errno, Flags, Result, Version};

mod kept;
mod target;

use crate::buffers;
use crate::errno::{code, count as counted, describe, fail};
use crate::fabric::FabricBody;
use crate::object::{self, Body, Room, body, pointer};
use crate::tables::{self, table};
use crate::wait::{self, timeout};
use crate::waitset::{self, WaitSet};
use kept::Kept;
use target::Target;

/// The version from which the caller may bring a buffer for error data.
const WITH_BUFFER: Version = Version::new(1, 5);

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

impl Body for EqBody {
    type Head = abi::fid_eq;

    fn in_use(&self) -> bool {
        Arc::strong_count(&self.eq) > 1
    }
}

static FID: abi::fi_ops = abi::fi_ops {
    close: Some(object::close::<EqBody>),
    control: Some(control),
    ..tables::NO_FID_OPS
};

static EQ: abi::fi_ops_eq = abi::fi_ops_eq {
    size: size_of::<abi::fi_ops_eq>(),
    read: Some(read),
    readerr: Some(readerr),
    write: Some(write_event),
    sread: Some(sread),
    strerror: Some(strerror),
};

/// `fi_eq_open`.
///
/// # Safety
///
/// `fabric` is an open fabric of this type; `attr` is null or valid; `eq` is null or valid for
/// writes.
pub(crate) unsafe extern "C" fn open<F: Fabric>(
    fabric: *mut abi::fid_fabric,
    attr: *mut abi::fi_eq_attr,
    eq: *mut *mut abi::fid_eq,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the caller's guarantee.
    let parent = unsafe { body::<FabricBody<F>>(fabric) };
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_ref() };
        let attr = attr.ok_or_else(|| object::missing("fi_eq_open", "attr"))?;
        let flags = Flags::from_bits_retain(attr.flags);
        if flags.contains(Flags::PEER) {
            // As `fi_peer(3)` asks of who has no peer event queues.
            let why = "there are no event queues of other providers; leave FI_PEER out";
            return Err(object::refused("fi_eq_open", why, Errno::EINVAL));
        }
        // SAFETY: the caller's guarantee.
        let (wait_obj, set) = unsafe { waitset::wanted(attr.wait_obj, attr.wait_set) }?;
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
            ops: table(&EQ),
        };
        let body = EqBody {
            eq,
            set,
            api: parent.api,
            writable: flags.contains(Flags::WRITE),
            kept: Mutex::default(),
            _fabric: Arc::clone(&parent.fabric) as Arc<dyn Any + Send + Sync>,
        };
        Ok(Room::<EqBody>::new().fill(head, body))
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(eq, make) }
}

impl EqBody {
    /// `fi_trywait` of this queue.
    ///
    /// # Errors
    /// [`Errno::EAGAIN`] when it should be read first.
    pub(crate) fn try_wait(&self) -> Result<()> {
        self.eq.try_wait()
    }

    /// Drops what a read replaced, with no lock held: the request in it may look for its queue.
    fn drop_stale(&self) {
        let stale = self.kept().stale.take();
        drop(stale);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // What is kept is whole even after a panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

unsafe extern "C" fn read(
    eq: *mut abi::fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EqBody>(eq) };
    let read = Target::new(event, buf, len, flags).and_then(|target| {
        this.eq.read_with(target.consume, |event| {
            // SAFETY: see the module.
            unsafe { target.take(event, &mut this.kept()) }
        })
    });
    this.drop_stale();
    counted(read)
}

unsafe extern "C" fn sread(
    eq: *mut abi::fid_eq,
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    wait: c_int,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EqBody>(eq) };
    let read = Target::new(event, buf, len, flags).and_then(|target| {
        this.eq.sread_with(timeout(wait), target.consume, |event| {
            // SAFETY: see the module.
            unsafe { target.take(event, &mut this.kept()) }
        })
    });
    this.drop_stale();
    counted(read)
}

unsafe extern "C" fn readerr(
    eq: *mut abi::fid_eq,
    entry: *mut abi::fi_eq_err_entry,
    flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EqBody>(eq) };
    // SAFETY: null, or an error entry with the buffer it names.
    let Some(entry) = (unsafe { entry.as_mut() }) else {
        return fail(object::missing("fi_eq_readerr", "buf")) as isize;
    };
    if flags & !abi::FI_PEEK != 0 {
        return fail(Errno::EBADFLAGS) as isize;
    }
    counted(this.eq.read_error(flags == 0).map(|error| {
        // SAFETY: as above.
        unsafe { write_error(entry, &error, this) };
        size_of::<abi::fi_eq_err_entry>()
    }))
}

/// Writes an error entry. A caller that gave a buffer gets the error data there, cut to its
/// size; one that gave none gets a pointer to what the queue keeps until its next error.
///
/// # Safety
///
/// From API 1.5 on, `err_data` of the entry is null or has `err_data_size` bytes.
unsafe fn write_error(entry: &mut abi::fi_eq_err_entry, error: &EventError, this: &EqBody) {
    let data = error.err_data.as_slice();
    let brought = this.api >= WITH_BUFFER && entry.err_data_size != 0;
    let (err_data, err_data_size) = if brought && !entry.err_data.is_null() {
        let fits = data.len().min(entry.err_data_size);
        // SAFETY: `fits` bytes are within both, and the caller's is not ours.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), entry.err_data.cast(), fits) };
        (entry.err_data, fits)
    } else {
        let mut kept = this.kept();
        data.clone_into(&mut kept.err_data);
        match data.is_empty() {
            true => (ptr::null_mut(), 0),
            false => (kept.err_data.as_mut_ptr().cast(), data.len()),
        }
    };
    *entry = abi::fi_eq_err_entry {
        fid: pointer(error.fid),
        context: ptr::with_exposed_provenance_mut(error.context),
        data: error.data,
        err: error.err.0,
        prov_errno: error.prov_errno,
        err_data,
        err_data_size,
    };
}

unsafe extern "C" fn write_event(
    eq: *mut abi::fid_eq,
    event: u32,
    buf: *const c_void,
    len: usize,
    _flags: u64,
) -> isize {
    // SAFETY: see the module.
    let this = unsafe { body::<EqBody>(eq) };
    if !this.writable {
        return fail(Errno::EINVAL) as isize;
    }
    // SAFETY: see the module.
    let bytes = unsafe { buffers::bytes(buf, len) };
    counted(bytes.and_then(|bytes| this.eq.write(event, bytes)))
}

unsafe extern "C" fn strerror(
    _eq: *mut abi::fid_eq,
    prov_errno: c_int,
    _err_data: *const c_void,
    buf: *mut c_char,
    len: usize,
) -> *const c_char {
    // SAFETY: see the module.
    unsafe { describe(prov_errno, buf, len) }
}

unsafe extern "C" fn control(fid: *mut abi::fid, command: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: see the module.
    let this = unsafe { body::<EqBody>(fid.cast()) };
    let fd = || this.eq.wait_fd().map(|fd| fd.as_raw_fd());
    let object = wait::shown(this.set.as_ref(), this.eq.attr().wait_obj);
    // SAFETY: the argument is as the command asks.
    code(unsafe { wait::control(command, arg, object, fd) })
}

/// The event queue of an endpoint. When the endpoint has gone, so do its events: the program
/// could not tell its address from that of the next object.
pub(crate) struct Bound {
    fid: FidToken,
    queue: Mutex<Weak<EventQueue>>,
}

impl Bound {
    /// No queue yet.
    pub(crate) const fn new(fid: FidToken) -> Self {
        Self {
            fid,
            queue: Mutex::new(Weak::new()),
        }
    }

    /// The queue, if the endpoint was bound to one.
    pub(crate) fn queue(&self) -> Option<Arc<EventQueue>> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.upgrade()
    }

    /// The endpoint was bound to a queue.
    pub(crate) fn to(&self, queue: &Arc<EventQueue>) {
        // One assignment is whole even after a panic.
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(queue);
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        let queue = self.queue.get_mut();
        if let Some(queue) = queue.unwrap_or_else(PoisonError::into_inner).upgrade() {
            queue.forget(self.fid);
        }
    }
}

/// Reports an address that an address vector with `FI_EVENT` did not take.
pub(crate) fn insertion_failed(
    queue: &EventQueue,
    av: FidToken,
    context: *mut c_void,
    index: usize,
    error: Errno,
) {
    // A queue that has been overrun says so itself.
    let _overrun = queue.push_error(EventError {
        context: context.expose_provenance(),
        data: index as u64,
        ..EventError::new(av, error)
    });
}

/// Reports a registration in a domain that was bound with `FI_REG_MR`.
pub(crate) fn registration_done(queue: &EventQueue, mr: FidToken, context: *mut c_void) {
    // A queue that has been overrun says so itself.
    let _overrun = queue.push(Event::Done {
        event: CmEvent::MrComplete,
        fid: mr,
        context: context.expose_provenance(),
        data: 0,
    });
}

/// Reports the end of an insertion into an address vector with `FI_EVENT`.
///
/// # Errors
/// [`Errno::EOVERRUN`].
pub(crate) fn insertion_done(
    queue: &EventQueue,
    av: FidToken,
    context: *mut c_void,
    inserted: u64,
) -> Result<()> {
    queue.push(Event::Done {
        event: CmEvent::AvComplete,
        fid: av,
        context: context.expose_provenance(),
        data: inserted,
    })
}
