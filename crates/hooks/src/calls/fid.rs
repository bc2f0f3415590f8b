#![allow(unsafe_code)]
//! The operations of every object (`fi_close`, `fi_bind`, `fi_control`).

use core::ffi::{c_char, c_int, c_void};

use ripstop_abi::{self as abi, fid};

use crate::call::{CallInfo, Detail};
use crate::over::{Over, over};

super::interpose! {
    fi_ops at fid.ops {
        close "fi_close" (object: *mut fid) -> c_int, by close_object;
        bind "fi_bind" (object: *mut fid, other: *mut fid, flags: u64) -> c_int, by bind_object;
        control "fi_control" (object: *mut fid, command: c_int, arg: *mut c_void) -> c_int,
            by control_object;
        ops_open "fi_open_ops" (
            object: *mut fid, name: *const c_char, flags: u64, ops: *mut *mut c_void, context: *mut c_void,
        ) -> c_int;
        tostr "fid->ops->tostr" (object: *const fid, buf: *mut c_char, len: usize) -> c_int;
        ops_set "fi_set_ops" (
            object: *mut fid, name: *const c_char, flags: u64, ops: *mut c_void, context: *mut c_void,
        ) -> c_int;
    }
}

/// # Safety
///
/// `object` is open, was reached by a table of ours, and is used by no other call.
unsafe fn close_object(info: &'static CallInfo, object: *mut fid) -> c_int {
    // SAFETY: the same contract.
    unsafe { crate::over::close(object, info) }
}

/// # Safety
///
/// That of `fi_bind`, for an object that was reached by a table of ours.
unsafe fn bind_object(
    info: &'static CallInfo,
    object: *mut fid,
    other: *mut fid,
    flags: u64,
) -> c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*object).ops };
    // SAFETY: the table by which the function was reached.
    let (this, theirs) = unsafe { Over::of(ops) };
    // SAFETY: the operations of an open object.
    let Some(own) = (unsafe { (*theirs).bind }) else {
        return -abi::FI_ENOSYS;
    };
    let run = || match crate::debug::is_closed(other.addr()) {
        // What is left of it is not looked at.
        true => -abi::FI_EINVAL,
        // SAFETY: the provider's operation, with the arguments of its caller.
        false => unsafe { own(object, other, flags) },
    };
    let code = this.call(info, Detail::Bind(other.addr()), run);
    if code == 0 {
        // SAFETY: null or an open object: the provider has bound it.
        if let Some(other) = unsafe { over(other) } {
            this.bound(other, flags);
        }
        // SAFETY: the object that this lies over; binding is before its use.
        unsafe { this.renew(object) };
    }
    code
}

/// # Safety
///
/// That of `fi_control`, for an object that was reached by a table of ours.
unsafe fn control_object(
    info: &'static CallInfo,
    object: *mut fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: an open object.
    let ops = unsafe { (*object).ops };
    // SAFETY: the table by which the function was reached.
    let (this, theirs) = unsafe { Over::of(ops) };
    // SAFETY: the operations of an open object.
    let Some(own) = (unsafe { (*theirs).control }) else {
        return -abi::FI_ENOSYS;
    };
    let detail = Detail::Control(command);
    // SAFETY: the provider's operation, with the arguments of its caller.
    let code = this.call(info, detail, || unsafe { own(object, command, arg) });
    if code != 0 {
        return code;
    }
    match command {
        // SAFETY: the object that this lies over; nothing is posted before it is enabled.
        abi::FI_ENABLE => unsafe { this.renew(object) },
        // SAFETY: the command has succeeded, so its argument is what it takes.
        abi::FI_ALIAS => unsafe { alias(this, arg) },
        _ => {}
    }
    code
}

/// Lays tables over the alias of an endpoint.
///
/// # Safety
///
/// `arg` is that of a `FI_ALIAS` of the endpoint that `this` lies over, which has succeeded.
unsafe fn alias(this: &Over, arg: *mut c_void) {
    // SAFETY: the command takes such a struct.
    let Some(alias) = (unsafe { arg.cast::<abi::fi_alias>().as_ref() }) else {
        return;
    };
    // SAFETY: null or the place at which the provider has stored the alias.
    let Some(made) = (unsafe { alias.fid.as_ref() }) else {
        return;
    };
    // SAFETY: null or an open object.
    let class = unsafe { made.as_ref() }.map(|made| made.fclass);
    if class == Some(abi::FI_CLASS_EP) {
        // SAFETY: an endpoint that the caller does not have yet.
        unsafe {
            this.lay(
                made.cast::<abi::fid_ep>(),
                crate::hook::With::Alias(alias.flags),
            )
        };
    }
}
