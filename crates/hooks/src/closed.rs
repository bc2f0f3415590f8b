#![allow(unsafe_code)]
//! What stays of an object that is closed: a table that refuses, and tells of it.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::ptr;

use ripstop_abi::{self as abi, fid};

/// The operation of a provider that closes an object.
type Close = unsafe extern "C" fn(*mut fid) -> c_int;

thread_local! {
    /// The object that this thread closes, and its table.
    static CLOSING: Cell<(*mut fid, *mut abi::fi_ops)> =
        const { Cell::new((ptr::null_mut(), ptr::null_mut())) };
}

/// The table of objects that are closed: a program that uses one again comes here, as long as nothing
/// else has its memory.
static CLOSED: abi::fi_ops = abi::fi_ops {
    size: size_of::<abi::fi_ops>(),
    close: Some(close_closed),
    bind: Some(bind_closed),
    control: Some(control_closed),
    ops_open: None,
    tostr: None,
    ops_set: None,
};

/// Has the provider close an object for the last time; with `is_told`, what stays of it leads to
/// [`CLOSED`].
///
/// # Safety
///
/// `object` is open, its table is the provider's, `own` is its `close` there, and no other call uses it.
pub(crate) unsafe fn close_last(object: *mut fid, own: Close, is_told: bool) -> c_int {
    if !is_told {
        // SAFETY: the provider's operation on its own object.
        return unsafe { own(object) };
    }
    // SAFETY: an open object.
    let place = unsafe { &raw mut (*object).ops };
    // SAFETY: a field of an open object.
    let theirs = unsafe { place.read() };
    let outer = CLOSING.replace((object, theirs));
    // SAFETY: as above. Nothing is written through this pointer to a static.
    unsafe { place.write(ptr::from_ref(&CLOSED).cast_mut()) };
    // SAFETY: the provider's operation on its own object.
    let code = unsafe { own(object) };
    CLOSING.set(outer);
    if code != 0 {
        // SAFETY: the object was not closed.
        unsafe { place.write(theirs) };
    }
    code
}

/// The provider's table, if an object is one that this thread has its provider close: the call is the
/// provider's own. Otherwise the program's call is told.
fn of_closed(object: *mut fid, call: &str) -> Option<*mut abi::fi_ops> {
    let (closing, theirs) = CLOSING.get();
    if ptr::eq(closing, object) {
        return Some(theirs);
    }
    crate::debug::used_when_closed(object.addr(), call);
    None
}

unsafe extern "C" fn close_closed(object: *mut fid) -> c_int {
    let theirs = of_closed(object, "fi_close");
    // SAFETY: the table of an open object.
    let own = theirs.and_then(|theirs| unsafe { (*theirs).close });
    // SAFETY: the provider's operation, which the provider calls.
    own.map_or(-abi::FI_EINVAL, |own| unsafe { own(object) })
}

unsafe extern "C" fn bind_closed(object: *mut fid, other: *mut fid, flags: u64) -> c_int {
    let theirs = of_closed(object, "fi_bind");
    // SAFETY: the table of an open object.
    let own = theirs.and_then(|theirs| unsafe { (*theirs).bind });
    // SAFETY: the provider's operation, which the provider calls.
    own.map_or(-abi::FI_EINVAL, |own| unsafe { own(object, other, flags) })
}

unsafe extern "C" fn control_closed(object: *mut fid, command: c_int, arg: *mut c_void) -> c_int {
    let theirs = of_closed(object, "fi_control");
    // SAFETY: the table of an open object.
    let own = theirs.and_then(|theirs| unsafe { (*theirs).control });
    // SAFETY: the provider's operation, which the provider calls.
    own.map_or(-abi::FI_EINVAL, |own| unsafe { own(object, command, arg) })
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;

    use super::*;

    static CLOSED_TIMES: AtomicUsize = AtomicUsize::new(0);

    /// The provider's, which first refuses and uses a table of the object.
    unsafe extern "C" fn close_fake(object: *mut fid) -> c_int {
        // SAFETY: the test's object, which is there as long as the test.
        let ops = unsafe { (*object).ops };
        // SAFETY: its table.
        let control = unsafe { (*ops).control };
        // SAFETY: as above.
        let code = control.map(|control| unsafe { control(object, 1, ptr::null_mut()) });
        assert_eq!(code, Some(7));
        match CLOSED_TIMES.fetch_add(1, Ordering::Relaxed) {
            0 => -abi::FI_EBUSY,
            _ => 0,
        }
    }

    unsafe extern "C" fn control_fake(_: *mut fid, _: c_int, _: *mut c_void) -> c_int {
        7
    }

    #[test]
    fn an_object_that_is_closed_refuses_what_comes() {
        let mut ops = abi::fi_ops {
            size: size_of::<abi::fi_ops>(),
            close: Some(close_fake),
            control: Some(control_fake),
            ..Default::default()
        };
        let mut fabric = abi::fid_fabric::default();
        fabric.fid.fclass = abi::FI_CLASS_FABRIC;
        fabric.fid.ops = &raw mut ops;
        let object = &raw mut fabric;
        let hooks: crate::Hooks = Arc::new([crate::find("debug").unwrap()]);
        // SAFETY: an object that nobody else uses.
        unsafe { crate::install(object, &hooks, "fake") };
        let fid = object.cast::<fid>();
        let table = || {
            // SAFETY: the object, which is there as long as the test.
            let ops = unsafe { (*fid).ops };
            // SAFETY: its table.
            unsafe { *ops }
        };
        let close = || {
            let close = table().close.unwrap();
            // SAFETY: an object that is open, or whose memory is still there.
            unsafe { close(fid) }
        };
        assert_eq!(close(), -abi::FI_EBUSY);
        assert!(!crate::debug::is_closed(fid.addr()));
        assert_eq!(close(), 0);
        assert!(crate::debug::is_closed(fid.addr()));
        assert_eq!(close(), -abi::FI_EINVAL);
        let control = table().control.unwrap();
        // SAFETY: as above.
        let code = unsafe { control(fid, 1, ptr::null_mut()) };
        assert_eq!(code, -abi::FI_EINVAL);
        assert_eq!(CLOSED_TIMES.load(Ordering::Relaxed), 2);
    }
}
