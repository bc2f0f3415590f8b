#![allow(unsafe_code)]
//! Calls through operation tables.

use std::ffi::{c_int, c_void};
use std::ptr;

use ripstop_abi::{fi_ops, fid};
use ripstop_types::{Errno, WaitObj};

use crate::{Error, Result};

/// What a call returns when the table lacks it.
pub(crate) const ENOSYS: c_int = -Errno::ENOSYS.0;

/// Reads a function from an operation table, or `None` where the table is null, too short or
/// has no such function. The table pointer must be one that a live object holds.
macro_rules! op {
    ($table:expr, $type:ident.$member:ident) => {{
        let table: *const ripstop_abi::$type = $table;
        if table.is_null() {
            None
        } else {
            // SAFETY: a live object's table begins with its size in bytes.
            let size = unsafe { (*table).size };
            if size > std::mem::offset_of!(ripstop_abi::$type, $member) {
                // SAFETY: the table's own size says that it holds this member.
                unsafe { (*table).$member }
            } else {
                None
            }
        }
    }};
}
pub(crate) use op;

/// Calls a function of an operation table, `calls!(table, fi_ops_msg.inject(ep, buf, len, dest))`, and
/// gives `FI_ENOSYS` where there is none. The object that
/// has the table is open and among the arguments, what they point to is as the function wants it and
/// stays until it returns, and the memory of an operation and its context until its completion: the
/// first by the promise of [`UserBuf`](ripstop_mem::UserBuf), the second by the book.
macro_rules! calls {
    ($table:expr, $type:ident.$member:ident($($arg:expr),* $(,)?)) => {
        match $crate::call::op!($table, $type.$member) {
            // SAFETY: as each user of this macro keeps what it asks for.
            Some(function) => unsafe { function($($arg),*) },
            None => $crate::call::ENOSYS as _,
        }
    };
}
pub(crate) use calls;

/// The general operations of a live object.
fn ops(fid: *mut fid) -> *const fi_ops {
    // SAFETY: the caller passes a live object, and all of them begin with a `fid`.
    unsafe { (*fid).ops }
}

/// `fi_close`(3). The object must not be used afterwards if this succeeds.
pub(crate) fn close(fid: *mut fid) -> Result<()> {
    let ret = match op!(ops(fid), fi_ops.close) {
        // SAFETY: the object is live and its owner gives it up here.
        Some(close) => unsafe { close(fid) },
        None => ENOSYS,
    };
    Error::check("fi_close", ret)
}

/// `fi_bind`(3) of two live objects, both kept open by the caller while they are bound.
pub(crate) fn bind(call: &'static str, fid: *mut fid, to: *mut fid, flags: u64) -> Result<()> {
    let ret = match op!(ops(fid), fi_ops.bind) {
        // SAFETY: both objects are live.
        Some(bind) => unsafe { bind(fid, to, flags) },
        None => ENOSYS,
    };
    Error::check(call, ret)
}

/// `fi_control`(3) with a command whose argument is a null pointer.
pub(crate) fn command(call: &'static str, fid: *mut fid, command: c_int) -> Result<()> {
    // SAFETY: the callers pass a live object, and the command takes no argument.
    let done = unsafe { control(fid, command, ptr::null_mut()) };
    done.map_err(|error| Error::new(call, error.errno))
}

/// `fi_control`(3).
///
/// # Safety
///
/// The object is live and `arg` is what the command takes.
pub(crate) unsafe fn control(fid: *mut fid, command: c_int, arg: *mut c_void) -> Result<()> {
    let ret = match op!(ops(fid), fi_ops.control) {
        // SAFETY: as the caller promised.
        Some(control) => unsafe { control(fid, command, arg) },
        None => ENOSYS,
    };
    Error::check("fi_control", ret)
}

/// `fi_control`(3) with `FI_GETWAIT` on an object opened with this wait object, which must be a file
/// descriptor.
pub(crate) fn wait_fd(fid: *mut fid, wait: WaitObj) -> Result<c_int> {
    if wait != WaitObj::Fd {
        return Err(Error::new("fi_control", Errno::EINVAL));
    }
    let mut fd: c_int = -1;
    let arg: *mut c_void = (&raw mut fd).cast();
    // SAFETY: the object is live; for wait object `FI_WAIT_FD` this command writes one `int`.
    unsafe { control(fid, ripstop_abi::FI_GETWAIT, arg) }?;
    if fd < 0 {
        return Err(Error::new("fi_control", Errno::EBADF));
    }
    Ok(fd)
}

/// Milliseconds for a C timeout: `None` waits without end, a fraction rounds up.
pub(crate) fn millis(timeout: Option<std::time::Duration>) -> c_int {
    match timeout {
        None => -1,
        Some(t) => c_int::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX),
    }
}
