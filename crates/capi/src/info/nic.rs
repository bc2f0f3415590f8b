#![allow(unsafe_code)]
//! The `fid_nic` of an `fi_info`, an object that copies and frees itself.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

use ripstop_abi as abi;

use crate::tostr::{nic as print, text};
use crate::{cmem, tables};

/// Operations of a NIC.
static OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close),
    control: Some(control),
    tostr: Some(tostr),
    ..tables::NO_FID_OPS
};

/// A NIC with empty attributes, or null when there is no memory.
pub(super) fn allocate() -> *mut abi::fid_nic {
    let made = cmem::zeroed::<abi::fid_nic>(1);
    // SAFETY: null or made just now.
    let Some(nic) = (unsafe { made.as_mut() }) else {
        return made;
    };
    nic.fid.fclass = abi::FI_CLASS_NIC;
    nic.fid.ops = tables::table(&OPS);
    nic.device_attr = cmem::zeroed(1);
    nic.bus_attr = cmem::zeroed(1);
    nic.link_attr = cmem::zeroed(1);
    if nic.device_attr.is_null() || nic.bus_attr.is_null() || nic.link_attr.is_null() {
        // SAFETY: made here, and nobody else knows it.
        unsafe { free(made) };
        return ptr::null_mut();
    }
    made
}

/// Frees a NIC; null is nothing.
///
/// # Safety
///
/// `nic` is null or a NIC all of whose parts came from C's allocator; nobody uses it any more.
pub(super) unsafe fn free(nic: *mut abi::fid_nic) {
    // SAFETY: the caller's guarantee, for every block of this function.
    let Some(parts) = (unsafe { nic.as_ref() }) else {
        return;
    };
    // SAFETY: as above.
    if let Some(device) = unsafe { parts.device_attr.as_ref() } {
        for text in device_texts(device) {
            // SAFETY: as above.
            unsafe { cmem::free(text) };
        }
    }
    // SAFETY: as above.
    if let Some(link) = unsafe { parts.link_attr.as_ref() } {
        // SAFETY: as above.
        unsafe { cmem::free(link.address) };
        // SAFETY: as above.
        unsafe { cmem::free(link.network_type) };
    }
    let (device, bus, link) = (parts.device_attr, parts.bus_attr, parts.link_attr);
    for part in [device.cast(), bus.cast(), link.cast(), nic.cast::<c_void>()] {
        // SAFETY: as above.
        unsafe { cmem::free(part) };
    }
}

fn device_texts(device: &abi::fi_device_attr) -> [*mut c_char; 6] {
    [
        device.name,
        device.device_id,
        device.device_version,
        device.vendor_id,
        device.driver,
        device.firmware,
    ]
}

/// A copy with parts of its own, or null when there is no memory.
///
/// # Safety
///
/// `nic` is a NIC whose pointers are null or valid.
unsafe fn copy(nic: &abi::fid_nic) -> *mut abi::fid_nic {
    let made = allocate();
    // SAFETY: null or made just now.
    let Some(out) = (unsafe { made.as_mut() }) else {
        return made;
    };
    out.fid.context = nic.fid.context;
    out.prov_attr = nic.prov_attr;
    // SAFETY: the caller's guarantee.
    if unsafe { copy_parts(out, nic) }.is_none() {
        // SAFETY: made here; what was not copied is null.
        unsafe { free(made) };
        return ptr::null_mut();
    }
    made
}

/// # Safety
///
/// The pointers of both are null or valid.
unsafe fn copy_parts(out: &mut abi::fid_nic, nic: &abi::fid_nic) -> Option<()> {
    // SAFETY: the caller's guarantee, for every block of this function.
    let device = unsafe { out.device_attr.as_mut() }.zip(unsafe { nic.device_attr.as_ref() });
    if let Some((to, from)) = device {
        let fields = [
            (&mut to.name, from.name),
            (&mut to.device_id, from.device_id),
            (&mut to.device_version, from.device_version),
            (&mut to.vendor_id, from.vendor_id),
            (&mut to.driver, from.driver),
            (&mut to.firmware, from.firmware),
        ];
        for (to, from) in fields {
            // SAFETY: as above.
            *to = unsafe { copy_text(from) }?;
        }
    }
    // SAFETY: as above.
    let bus = unsafe { out.bus_attr.as_mut() }.zip(unsafe { nic.bus_attr.as_ref() });
    if let Some((to, from)) = bus {
        *to = *from;
    }
    // SAFETY: as above.
    let link = unsafe { out.link_attr.as_mut() }.zip(unsafe { nic.link_attr.as_ref() });
    if let Some((to, from)) = link {
        // SAFETY: as above.
        to.address = unsafe { copy_text(from.address) }?;
        // SAFETY: as above.
        to.network_type = unsafe { copy_text(from.network_type) }?;
        (to.mtu, to.speed, to.state) = (from.mtu, from.speed, from.state);
    }
    Some(())
}

/// A copy of a C string, null for null; `None` when there is no memory.
///
/// # Safety
///
/// `text` is null or a C string.
pub(super) unsafe fn copy_text(text: *const c_char) -> Option<*mut c_char> {
    if text.is_null() {
        return Some(ptr::null_mut());
    }
    // SAFETY: the caller's guarantee.
    let copy = cmem::c_text(unsafe { CStr::from_ptr(text) });
    (!copy.is_null()).then_some(copy)
}

/// `fi_close` of a NIC, as `fi_freeinfo` calls it.
unsafe extern "C" fn close(fid: *mut abi::fid) -> c_int {
    // SAFETY: these operations belong to NICs made here, and C closes an object once.
    unsafe { free(fid.cast()) };
    0
}

/// `fi_control` of a NIC: `FI_DUP`, as `fi_dupinfo` calls it.
unsafe extern "C" fn control(fid: *mut abi::fid, command: c_int, arg: *mut c_void) -> c_int {
    if command != abi::FI_DUP {
        return -abi::FI_ENOSYS;
    }
    if arg.is_null() {
        return -abi::FI_EINVAL;
    }
    // SAFETY: these operations belong to NICs made here.
    let nic = unsafe { &*fid.cast::<abi::fid_nic>() };
    // SAFETY: a whole NIC.
    let copy = unsafe { copy(nic) };
    // SAFETY: `FI_DUP` takes a pointer to a NIC pointer.
    unsafe { arg.cast::<*mut abi::fid_nic>().write(copy) };
    match copy.is_null() {
        true => -abi::FI_ENOMEM,
        false => 0,
    }
}

/// Appends the NIC to the string in `buf`, within its `len` bytes.
unsafe extern "C" fn tostr(fid: *const abi::fid, buf: *mut c_char, len: usize) -> c_int {
    if buf.is_null() || len == 0 {
        return -abi::FI_EINVAL;
    }
    let mut out = text::Text::default();
    // SAFETY: these operations belong to NICs made here.
    let nic = unsafe { &*fid.cast::<abi::fid_nic>() };
    // SAFETY: a whole NIC.
    unsafe { print::nic(&mut out, nic) };
    // SAFETY: the caller's buffer holds a C string.
    let used = unsafe { CStr::from_ptr(buf) }.count_bytes().min(len);
    // SAFETY: within the buffer.
    let end = unsafe { buf.add(used) };
    // SAFETY: what is left of the buffer.
    unsafe { out.copy_to(end, len.saturating_sub(used)) };
    0
}
