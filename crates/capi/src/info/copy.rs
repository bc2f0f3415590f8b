#![allow(unsafe_code)]
//! A deep copy of an `fi_info`.

use core::ffi::c_void;
use core::mem::offset_of;
use core::{ptr, slice};

use ripstop_abi as abi;

use super::free;
use super::nic::copy_text;
use crate::cmem;

/// A copy with parts of its own and no successor, or null when there is no memory. Open
/// objects (`handle`, `fabric`, `domain`) are named by both.
///
/// # Safety
///
/// Every pointer in `info` is null or valid for what it points to.
pub(crate) unsafe fn info(info: &abi::fi_info) -> *mut abi::fi_info {
    let made = cmem::boxed(abi::fi_info {
        next: ptr::null_mut(),
        src_addr: ptr::null_mut(),
        dest_addr: ptr::null_mut(),
        tx_attr: ptr::null_mut(),
        rx_attr: ptr::null_mut(),
        ep_attr: ptr::null_mut(),
        domain_attr: ptr::null_mut(),
        fabric_attr: ptr::null_mut(),
        nic: ptr::null_mut(),
        ..*info
    });
    // SAFETY: null or made just now.
    let Some(out) = (unsafe { made.as_mut() }) else {
        return made;
    };
    // SAFETY: the caller's guarantee.
    if unsafe { parts(out, info) }.is_none() {
        // SAFETY: made here; what was not copied is null.
        unsafe { free::list(made) };
        return ptr::null_mut();
    }
    made
}

/// # Safety
///
/// Every pointer in `info` is null or valid for what it points to.
unsafe fn parts(out: &mut abi::fi_info, info: &abi::fi_info) -> Option<()> {
    // SAFETY: the caller's guarantee, for every block of this function.
    out.src_addr = unsafe { bytes(info.src_addr, info.src_addrlen) }?;
    // SAFETY: as above.
    out.dest_addr = unsafe { bytes(info.dest_addr, info.dest_addrlen) }?;
    // SAFETY: as above.
    out.tx_attr = unsafe { attr(info.tx_attr, |_| ()) }?;
    // SAFETY: as above.
    out.rx_attr = unsafe { attr(info.rx_attr, |_| ()) }?;
    // SAFETY: as above.
    out.ep_attr = unsafe { attr(info.ep_attr, |copy| copy.auth_key = ptr::null_mut()) }?;
    // SAFETY: as above.
    let ep = unsafe { out.ep_attr.as_mut() }.zip(unsafe { info.ep_attr.as_ref() });
    if let Some((to, from)) = ep {
        // SAFETY: as above.
        to.auth_key = unsafe { bytes(from.auth_key.cast(), from.auth_key_size) }?.cast();
    }
    let strip = |copy: &mut abi::fi_domain_attr| {
        copy.name = ptr::null_mut();
        copy.auth_key = ptr::null_mut();
    };
    // SAFETY: as above.
    out.domain_attr = unsafe { attr(info.domain_attr, strip) }?;
    // SAFETY: as above.
    let domain = unsafe { out.domain_attr.as_mut() }.zip(unsafe { info.domain_attr.as_ref() });
    if let Some((to, from)) = domain {
        // SAFETY: as above.
        to.name = unsafe { copy_text(from.name) }?;
        // SAFETY: as above.
        to.auth_key = unsafe { bytes(from.auth_key.cast(), from.auth_key_size) }?.cast();
    }
    let strip = |copy: &mut abi::fi_fabric_attr| {
        copy.name = ptr::null_mut();
        copy.prov_name = ptr::null_mut();
    };
    // SAFETY: as above.
    out.fabric_attr = unsafe { attr(info.fabric_attr, strip) }?;
    // SAFETY: as above.
    let fabric = unsafe { out.fabric_attr.as_mut() }.zip(unsafe { info.fabric_attr.as_ref() });
    if let Some((to, from)) = fabric {
        // SAFETY: as above.
        to.name = unsafe { copy_text(from.name) }?;
        // SAFETY: as above.
        to.prov_name = unsafe { copy_text(from.prov_name) }?;
    }
    // SAFETY: as above.
    out.nic = unsafe { nic(info.nic) }?;
    Some(())
}

/// A copy of attributes, with the pointers in it set to null by `strip`; null for null.
///
/// # Safety
///
/// `source` is null or valid.
unsafe fn attr<T: Copy>(source: *const T, strip: fn(&mut T)) -> Option<*mut T> {
    // SAFETY: the caller's guarantee.
    let Some(source) = (unsafe { source.as_ref() }) else {
        return Some(ptr::null_mut());
    };
    let mut value = *source;
    strip(&mut value);
    let copy = cmem::boxed(value);
    (!copy.is_null()).then_some(copy)
}

/// A copy of bytes; null for null, as also for a size that stands for no bytes.
///
/// # Safety
///
/// `source` is null or valid for reads of `len` bytes, unless `len` exceeds every object.
unsafe fn bytes(source: *const c_void, len: usize) -> Option<*mut c_void> {
    if source.is_null() || len > isize::MAX.unsigned_abs() {
        return Some(ptr::null_mut());
    }
    // SAFETY: the caller's guarantee.
    let copy = cmem::bytes(unsafe { slice::from_raw_parts(source.cast(), len) });
    (!copy.is_null()).then_some(copy.cast())
}

/// Lets a NIC copy itself; null for null and for one that cannot.
///
/// # Safety
///
/// `nic` is null or an object whose operations are null or a table of at least their size.
unsafe fn nic(nic: *mut abi::fid_nic) -> Option<*mut abi::fid_nic> {
    let none = Some(ptr::null_mut());
    // SAFETY: the caller's guarantee.
    let Some(object) = (unsafe { nic.as_ref() }) else {
        return none;
    };
    if object.fid.ops.is_null() {
        return none;
    }
    // SAFETY: the caller's guarantee; every table has a size.
    let size = unsafe { (*object.fid.ops).size };
    if size <= offset_of!(abi::fi_ops, control) {
        return none;
    }
    // SAFETY: the table goes on to this member.
    let Some(control) = (unsafe { (*object.fid.ops).control }) else {
        return none;
    };
    let mut copy: *mut abi::fid_nic = ptr::null_mut();
    // SAFETY: a live object; `FI_DUP` takes a pointer to a pointer.
    match unsafe { control(nic.cast(), abi::FI_DUP, (&raw mut copy).cast()) } {
        0 => Some(copy),
        code if code == -abi::FI_ENOSYS => none,
        _ => None,
    }
}
