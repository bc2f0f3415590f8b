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
use ripstop_core::eq::{EqAttr, Event, EventError, EventQueue};
use ripstop_core::provider::Fabric;
use ripstop_core::{FidToken, Handle, Info};
use ripstop_types::{CmEvent, Errno, Flags, Result, Version};

use crate::errno::{code, count as counted, describe, fail};
use crate::fabric::FabricBody;
use crate::info::{self, write};
use crate::object::{self, Body, Room, body, pointer};
use crate::tables::{self, table};
use crate::wait::{self, timeout};
use crate::{buffers, handles};

/// The version from which the caller may bring a buffer for error data.
const WITH_BUFFER: Version = Version::new(1, 5);

/// What an event queue's object holds.
pub(crate) struct EqBody {
    pub(crate) eq: Arc<EventQueue>,
    /// The version the program was written for.
    api: Version,
    /// The program inserts events of its own (`FI_WRITE`).
    writable: bool,
    /// What outlives a call.
    kept: Mutex<Kept>,
    /// The fabric stays while the queue does.
    _fabric: Arc<dyn Any + Send + Sync>,
}

/// What a queue keeps between calls.
#[derive(Default)]
struct Kept {
    /// Error data of the last error, for programs that gave no buffer.
    err_data: Vec<u8>,
    /// The `fi_info` of a connection request that was only looked at: reading the event hands
    /// out the same one.
    peeked: Peeked,
    /// One whose event went without being read, until the queue's lock is free.
    stale: Option<Peeked>,
}

/// An `fi_info` that waits for its event to be read.
struct Peeked {
    info: *mut abi::fi_info,
    /// The request it is about: another event may have come to the front meanwhile.
    request: Option<Handle>,
}

// SAFETY: nobody else has the memory until it is handed out.
unsafe impl Send for Peeked {}

impl Default for Peeked {
    fn default() -> Self {
        Self {
            info: ptr::null_mut(),
            request: None,
        }
    }
}

impl Drop for Peeked {
    fn drop(&mut self) {
        // SAFETY: null, or made here and never handed out by a read.
        if let Some(info) = unsafe { self.info.as_ref() } {
            handles::forget_request(info.handle);
        }
        // SAFETY: as above; the event that would hand it out is gone.
        unsafe { info::free_list(self.info) };
    }
}

impl Peeked {
    /// The `fi_info` for a request.
    fn of(info: &Info) -> Self {
        Self {
            info: write::info(info),
            request: info.handle.clone(),
        }
    }
}

impl Kept {
    /// The `fi_info` for an event that is looked at, or taken.
    fn hand_out(&mut self, info: &Info, consume: bool) -> Result<*mut abi::fi_info> {
        if self.peeked.info.is_null() || self.peeked.request != info.handle {
            self.stale = Some(core::mem::replace(&mut self.peeked, Peeked::of(info)));
        }
        let made = self.peeked.info;
        if made.is_null() {
            return Err(Errno::ENOMEM);
        }
        if consume {
            // From now on it is the program's.
            self.peeked.info = ptr::null_mut();
            self.peeked.request = None;
        }
        Ok(made)
    }
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
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        let flags = Flags::from_bits_retain(attr.flags);
        if flags.contains(Flags::PEER) {
            return Err(Errno::ENOSYS);
        }
        let queue = EventQueue::open(&EqAttr {
            size: attr.size,
            flags,
            wait_obj: wait::object(attr.wait_obj, attr.wait_set)?,
            signaling_vector: attr.signaling_vector,
        })?;
        let head = abi::fid_eq {
            fid: object::fid(abi::FI_CLASS_EQ, context, &FID),
            ops: table(&EQ),
        };
        let body = EqBody {
            eq: Arc::new(queue),
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

/// Where an event goes.
#[derive(Clone, Copy)]
struct Target {
    event: *mut u32,
    buf: *mut c_void,
    len: usize,
    consume: bool,
}

impl Target {
    /// # Errors
    /// [`Errno::EINVAL`] for null, [`Errno::EBADFLAGS`] for other flags than `FI_PEEK`.
    fn new(event: *mut u32, buf: *mut c_void, len: usize, flags: u64) -> Result<Self> {
        if event.is_null() || buf.is_null() {
            return Err(Errno::EINVAL);
        }
        if flags & !abi::FI_PEEK != 0 {
            return Err(Errno::EBADFLAGS);
        }
        let consume = flags == 0;
        Ok(Self {
            event,
            buf,
            len,
            consume,
        })
    }

    /// Writes an event, and returns the number of bytes.
    ///
    /// # Errors
    /// [`Errno::ETOOSMALL`] for a buffer without room for the fixed part; connection data is
    /// cut to what fits.
    ///
    /// # Safety
    ///
    /// `event` and the `len` bytes of `buf` are valid for writes.
    unsafe fn take(self, event: &Event, kept: &mut Kept) -> Result<usize> {
        let size = match event {
            Event::ConnReq { pep, info, data } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                let info = kept.hand_out(info, self.consume)?;
                // SAFETY: the caller's guarantee, for each arm; there is room.
                unsafe { self.connection(*pep, info, data) }
            }
            Event::Connected { ep, data } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                // SAFETY: as above.
                unsafe { self.connection(*ep, ptr::null_mut(), data) }
            }
            Event::Shutdown { ep } => {
                self.room_for::<abi::fi_eq_cm_entry>()?;
                // SAFETY: as above.
                unsafe { self.connection(*ep, ptr::null_mut(), &[]) }
            }
            &Event::Done {
                fid, context, data, ..
            } => {
                self.room_for::<abi::fi_eq_entry>()?;
                let entry = abi::fi_eq_entry {
                    fid: pointer(fid),
                    context: ptr::with_exposed_provenance_mut(context),
                    data,
                };
                // SAFETY: as above.
                unsafe { self.buf.cast::<abi::fi_eq_entry>().write_unaligned(entry) };
                size_of::<abi::fi_eq_entry>()
            }
            Event::Written { bytes, .. } => {
                if self.len < bytes.len() {
                    return Err(Errno::ETOOSMALL);
                }
                // SAFETY: as above.
                unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.buf.cast(), bytes.len()) };
                bytes.len()
            }
        };
        // SAFETY: as above.
        unsafe { self.event.write(event.code()) };
        Ok(size)
    }

    fn room_for<T>(&self) -> Result<()> {
        match self.len >= size_of::<T>() {
            true => Ok(()),
            false => Err(Errno::ETOOSMALL),
        }
    }

    /// # Safety
    ///
    /// The `len` bytes of `buf` are valid for writes and have room for the entry.
    unsafe fn connection(self, fid: FidToken, info: *mut abi::fi_info, data: &[u8]) -> usize {
        let fixed = size_of::<abi::fi_eq_cm_entry>();
        let entry = abi::fi_eq_cm_entry {
            fid: pointer(fid),
            info,
            data: [],
        };
        let to = self.buf.cast::<abi::fi_eq_cm_entry>();
        // SAFETY: the caller's guarantee.
        unsafe { to.write_unaligned(entry) };
        let fits = data.len().min(self.len.saturating_sub(fixed));
        let rest = self.buf.cast::<u8>().wrapping_add(fixed);
        // SAFETY: `fits` bytes are left in the buffer.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), rest, fits) };
        fixed.saturating_add(fits)
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
        return fail(Errno::EINVAL) as isize;
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
    // SAFETY: the argument is as the command asks.
    code(unsafe { wait::control(command, arg, this.eq.attr().wait_obj, fd) })
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
