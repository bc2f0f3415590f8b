//! A deep copy of an `fi_info`.

use core::ffi::{CStr, c_char};
use core::ptr;

use ripstop_abi as abi;

use super::{alloc_ep_attr, alloc_info, alloc_part};
use crate::cmem;
use crate::edge::{AnyFid, Array, Whole};

/// A copy with parts of its own and no successor, or null when there is no memory. Open
/// objects (`handle`, `fabric`, `domain`) are named by both.
pub(crate) fn info(info: Whole<'_, abi::fi_info>) -> *mut abi::fi_info {
    let start = abi::fi_info {
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
    };
    alloc_info(start, |out| parts(out, info))
}

fn parts(out: &mut abi::fi_info, info: Whole<'_, abi::fi_info>) -> Option<()> {
    bytes(&mut out.src_addr, info.src_addr())?;
    bytes(&mut out.dest_addr, info.dest_addr())?;
    if let Some(from) = info.tx_attr() {
        alloc_part(&mut out.tx_attr, *from, |_| Some(()))?;
    }
    if let Some(from) = info.rx_attr() {
        alloc_part(&mut out.rx_attr, *from, |_| Some(()))?;
    }
    if let Some(from) = info.ep_attr() {
        let start = abi::fi_ep_attr {
            auth_key: ptr::null_mut(),
            ..*from
        };
        alloc_ep_attr(&mut out.ep_attr, start, |to| {
            bytes(&mut to.auth_key, from.auth_key())
        })?;
    }
    if let Some(from) = info.domain_attr() {
        let start = abi::fi_domain_attr {
            name: ptr::null_mut(),
            auth_key: ptr::null_mut(),
            ..*from
        };
        alloc_part(&mut out.domain_attr, start, |to| {
            text(&mut to.name, from.name())?;
            bytes(&mut to.auth_key, from.auth_key())
        })?;
    }
    if let Some(from) = info.fabric_attr() {
        let start = abi::fi_fabric_attr {
            name: ptr::null_mut(),
            prov_name: ptr::null_mut(),
            ..*from
        };
        alloc_part(&mut out.fabric_attr, start, |to| {
            text(&mut to.name, from.name())?;
            text(&mut to.prov_name, from.prov_name())
        })?;
    }
    out.nic = nic(info.nic())?;
    Some(())
}

/// Stores a copy of a C string, unless there is none; `None` when there is no memory.
pub(super) fn text(to: &mut *mut c_char, from: Option<&CStr>) -> Option<()> {
    *to = from.map_or(ptr::null_mut(), cmem::c_text);
    (from.is_none() || !to.is_null()).then_some(())
}

/// Stores a copy of bytes, unless there are none, or more than memory can hold; `None` when there is
/// no memory.
fn bytes<T>(to: &mut *mut T, from: Array<'_, u8>) -> Option<()> {
    let from = match from.is_null() {
        true => None,
        false => from.get(),
    };
    *to = from.map_or(ptr::null_mut(), cmem::bytes).cast();
    (from.is_none() || !to.is_null()).then_some(())
}

/// Lets a NIC copy itself; null for null and for one that cannot.
fn nic(nic: AnyFid<'_>) -> Option<*mut abi::fid_nic> {
    match nic.duplicate() {
        Ok(copy) => Some(copy.cast()),
        Err(code) if code == -abi::FI_ENOSYS => Some(ptr::null_mut()),
        Err(_) => None,
    }
}
