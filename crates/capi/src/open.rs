#![allow(unsafe_code)]
//! `fi_open(3)`: objects that belong to the library and not to a fabric; and fabrics, in `fabric`.

pub(crate) mod fabric;

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use ripstop_abi as abi;
use ripstop_types::{Errno, Result, Version};

use crate::edge::{AnyFid, Out, trampolines};
use crate::errno::{code, fail};
use crate::log;
use crate::object;
use crate::tables::{Table, table};

trampolines! { []
    /// Exported as `fi_open@@FABRIC_1.5`: opens `logging` (to import a logger, `fi_import_log`) or
    /// `mr_cache` (to import a monitor of memory, `fi_mr(3)`). Returns 0; `-FI_ENOSYS` for any other
    /// name; `-FI_EINVAL` for null, attributes or a version before 1.13; `-FI_EBADFLAGS` for flags;
    /// `-FI_EALREADY` for `logging` while a logger is imported.
    ///
    /// # Safety
    ///
    /// `name` is null or a C string; `fid` is null or valid for writes.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_open_1_5(
        version as u32,
        name: Option<&CStr> as *const c_char,
        _attr as *mut c_void,
        attr_len as usize,
        flags as u64,
        fid: Out<*mut abi::fid> as *mut *mut abi::fid,
        context as *mut c_void,
    ) -> c_int {
        let Some(name) = name else {
            return fail(Errno::EINVAL);
        };
        fid.open(|| {
            let open: fn(*mut c_void) -> Result<*mut abi::fid> =
                match name.to_bytes().to_ascii_lowercase().as_slice() {
                    b"logging" => log::open,
                    b"mr_cache" => open_mr_cache,
                    _ => return Err(Errno::ENOSYS),
                };
            if Version(version) < Version::new(1, 13) || attr_len != 0 {
                return Err(Errno::EINVAL);
            }
            if flags != 0 {
                return Err(Errno::EBADFLAGS);
            }
            open(context)
        })
    }
}

/// The object that `fi_open("mr_cache")` gives out.
static MR_CACHE_OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close_mr_cache),
    bind: Some(import_monitor),
    ..*Table::NONE
};

/// Operations of a program's monitor while it is imported.
static IMPORTED_OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close_monitor),
    ..*Table::NONE
};

/// What a monitor calls when memory goes away.
static NOTIFY_OPS: abi::fi_ops_mem_notify = abi::fi_ops_mem_notify {
    size: size_of::<abi::fi_ops_mem_notify>(),
    notify: Some(notify),
};

/// Whether a program's monitor is in place.
static MONITORED: AtomicBool = AtomicBool::new(false);

/// `fi_open` of `mr_cache`, which never fails: each call gives out an object of its own.
fn open_mr_cache(context: *mut c_void) -> Result<*mut abi::fid> {
    let fid = object::fid(abi::FI_CLASS_MR_CACHE, context, &MR_CACHE_OPS);
    Ok(Box::into_raw(Box::new(fid)))
}

/// `fi_close` of the object.
///
/// # Safety
///
/// `fid` is open, and nobody uses it any more.
unsafe extern "C" fn close_mr_cache(fid: *mut abi::fid) -> c_int {
    // SAFETY: `open_mr_cache` has made it from a box, and this is the last use.
    drop(unsafe { Box::from_raw(fid) });
    0
}

trampolines! { []
    /// `fi_import_fid`: `other` is the program's `fid_mem_monitor`, as Open MPI has one. It is
    /// accepted and never started: the monitor serves a cache that keeps registrations whose memory
    /// the program may free, and no provider here has one, as neither C's tcp nor its shm has.
    /// Returns 0; `-FI_EINVAL` for flags, another class or a table that is too short; `-FI_EBUSY`
    /// while there is a monitor.
    extern "C" fn import_monitor(_fid: *mut abi::fid, other: AnyFid, flags: u64) -> c_int {
        if flags != 0 || other.class() != Some(abi::FI_CLASS_MEM_MONITOR) {
            return fail(Errno::EINVAL);
        }
        code(put_in_place(other))
    }

    extern "C" fn close_monitor(_fid: *mut abi::fid) -> c_int {
        MONITORED.store(false, Ordering::Release);
        0
    }

    /// Memory goes away: nothing here has remembered it.
    extern "C" fn notify(
        _monitor: *mut abi::fid_mem_monitor, _addr: *const c_void, _len: usize,
    ) -> () {
    }
}

/// Takes a monitor, which is an object of class `FI_CLASS_MEM_MONITOR`.
fn put_in_place(monitor: AnyFid<'_>) -> Result<()> {
    // SAFETY: an open object of this class, which is a `fid_mem_monitor`.
    let monitor = unsafe { &mut *monitor.as_ptr().cast::<abi::fid_mem_monitor>() };
    if monitor.export_ops.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: not null, and then a table, which begins with its size.
    if unsafe { (*monitor.export_ops).size } < size_of::<abi::fi_ops_mem_monitor>() {
        return Err(Errno::EINVAL);
    }
    if MONITORED.swap(true, Ordering::Acquire) {
        return Err(Errno::EBUSY);
    }
    // From here on closing the program's object takes its monitor out.
    monitor.fid.ops = table(&IMPORTED_OPS);
    monitor.import_ops = ptr::from_ref(&NOTIFY_OPS).cast_mut();
    Ok(())
}

/// Exported as `fi_version@@FABRIC_1.0`: the version of the interface, `FI_VERSION(2, 6)`.
///
/// # Safety
///
/// None. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_version_1_0() -> u32 {
    Version::CURRENT.0
}
