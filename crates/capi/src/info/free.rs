#![allow(unsafe_code)]
//! Freeing an `fi_info` with everything it points to.

use core::mem::offset_of;

use ripstop_abi as abi;

use crate::cmem::free;

/// Frees a whole list; null is an empty one.
///
/// # Safety
///
/// Each `fi_info` and everything it points to (other than open objects) is null or came from
/// C's allocator, belongs to the list alone and is not used any more; each `nic` is null or an
/// object with its own `close`.
pub(crate) unsafe fn list(mut head: *mut abi::fi_info) {
    while !head.is_null() {
        // SAFETY: the caller's guarantee: a live `fi_info`.
        let info = unsafe { head.read() };
        // SAFETY: the caller's guarantee, for this and the block below.
        unsafe { contents(&info) };
        // SAFETY: as above.
        unsafe { free(head) };
        head = info.next;
    }
}

/// Frees what one `fi_info` points to.
///
/// # Safety
///
/// As for [`list`].
unsafe fn contents(info: &abi::fi_info) {
    // SAFETY: the caller's guarantee, for every block of this function.
    if let Some(attr) = unsafe { info.ep_attr.as_ref() } {
        // SAFETY: as above.
        unsafe { free(attr.auth_key) };
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { info.domain_attr.as_ref() } {
        // SAFETY: as above.
        unsafe { free(attr.name) };
        // SAFETY: as above.
        unsafe { free(attr.auth_key) };
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { info.fabric_attr.as_ref() } {
        // SAFETY: as above.
        unsafe { free(attr.name) };
        // SAFETY: as above.
        unsafe { free(attr.prov_name) };
    }
    for pointer in [
        info.src_addr,
        info.dest_addr,
        info.tx_attr.cast(),
        info.rx_attr.cast(),
        info.ep_attr.cast(),
        info.domain_attr.cast(),
        info.fabric_attr.cast(),
    ] {
        // SAFETY: as above.
        unsafe { free(pointer) };
    }
    // SAFETY: as above.
    unsafe { close(info.nic.cast()) };
}

/// Closes an object that knows how.
///
/// # Safety
///
/// `fid` is null or an object whose operations are null or a table of at least their size.
unsafe fn close(fid: *mut abi::fid) {
    // SAFETY: the caller's guarantee.
    let Some(object) = (unsafe { fid.as_ref() }) else {
        return;
    };
    if object.ops.is_null() {
        return;
    }
    // SAFETY: the caller's guarantee; every table has a size.
    let size = unsafe { (*object.ops).size };
    if size > offset_of!(abi::fi_ops, close) {
        // SAFETY: the table goes on to this member.
        if let Some(close) = unsafe { (*object.ops).close } {
            // SAFETY: a live object that this list owned.
            unsafe { close(fid) };
        }
    }
}
