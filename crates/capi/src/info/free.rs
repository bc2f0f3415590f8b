#![allow(unsafe_code)]
//! Freeing an `fi_info` with everything it points to.

use core::ffi::c_void;

use ripstop_abi as abi;

use crate::cmem;
use crate::edge::Whole;

/// Frees a whole list; null is an empty one.
///
/// # Safety
///
/// Each `fi_info` and everything it points to (other than open objects) is null or came from
/// C's allocator, belongs to the list alone and is not used any more; each `nic` is null or an
/// object with its own `close`.
pub(crate) unsafe fn list(mut head: *mut abi::fi_info) {
    // SAFETY: null or an `fi_info` of the list, by the contract of this function.
    while let Some(info) = unsafe { Whole::behind(head) } {
        let next = info.next;
        // SAFETY: an entry that belongs to the list alone, as all that it points to.
        unsafe { contents(info) };
        // SAFETY: it came from C's allocator, and nothing refers to it any more.
        unsafe { cmem::free(head) };
        head = next;
    }
}

/// Frees what one `fi_info` points to.
///
/// # Safety
///
/// As for [`list`].
unsafe fn contents(info: Whole<'_, abi::fi_info>) {
    let free = |part: *mut c_void| {
        // SAFETY: this is called once for each part of an entry, which is null or came from C's
        // allocator and belongs to the list alone.
        unsafe { cmem::free(part) };
    };
    if let Some(attr) = info.ep_attr() {
        free(attr.auth_key.cast());
    }
    if let Some(attr) = info.domain_attr() {
        free(attr.name.cast());
        free(attr.auth_key.cast());
    }
    if let Some(attr) = info.fabric_attr() {
        free(attr.name.cast());
        free(attr.prov_name.cast());
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
        free(pointer);
    }
    // SAFETY: null or an object that the list alone owns.
    unsafe { info.nic().close() };
}
