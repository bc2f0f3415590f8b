#![allow(unsafe_code)]
//! The `fid_nic` of an `fi_info`, an object that copies and frees itself.

use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;

use ripstop_abi as abi;

use super::alloc_part;
use super::copy::text;
use crate::cmem;
use crate::edge::{Arg, Argument, Out, Pointer, Whole, trampolines};
use crate::tables::{Table, table};
use crate::text::{Text, TextOut};
use crate::tostr::nic as print;

/// Operations of a NIC.
static OPS: abi::fi_ops = abi::fi_ops {
    close: Some(close),
    control: Some(control),
    tostr: Some(tostr),
    ..*Table::NONE
};

/// A NIC with empty attributes, which are then filled; null when there is no memory.
pub(super) fn alloc_nic(fill: impl FnOnce(&mut abi::fid_nic) -> Option<()>) -> *mut abi::fid_nic {
    let mut made = ptr::null_mut();
    let all = alloc_part(&mut made, abi::fid_nic::default(), |nic| {
        nic.fid.fclass = abi::FI_CLASS_NIC;
        nic.fid.ops = table(&OPS);
        fill(nic)
    });
    if all.is_none() {
        // SAFETY: null or made here, and nobody else knows it; what was not filled is null.
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
unsafe fn free(nic: *mut abi::fid_nic) {
    // SAFETY: null or a whole NIC, by the contract of this function.
    let Some(parts) = (unsafe { Whole::behind(nic) }) else {
        return;
    };
    let free = |part: *mut c_void| {
        // SAFETY: this is called once for each part, which is null or came from C's allocator, and
        // nobody uses it any more.
        unsafe { cmem::free(part) };
    };
    if let Some(device) = parts.device_attr() {
        for text in [
            device.name,
            device.device_id,
            device.device_version,
            device.vendor_id,
            device.driver,
            device.firmware,
        ] {
            free(text.cast());
        }
    }
    if let Some(link) = parts.link_attr() {
        free(link.address.cast());
        free(link.network_type.cast());
    }
    let (device, bus, link) = (parts.device_attr, parts.bus_attr, parts.link_attr);
    for part in [device.cast(), bus.cast(), link.cast(), nic.cast()] {
        free(part);
    }
}

/// A copy with parts of its own, or null when there is no memory.
fn copy(nic: Whole<'_, abi::fid_nic>) -> *mut abi::fid_nic {
    alloc_nic(|out| {
        out.fid.context = nic.fid.context;
        out.prov_attr = nic.prov_attr;
        let start = abi::fi_device_attr::default();
        alloc_part(&mut out.device_attr, start, |to| match nic.device_attr() {
            None => Some(()),
            Some(from) => {
                text(&mut to.name, from.name())?;
                text(&mut to.device_id, from.device_id())?;
                text(&mut to.device_version, from.device_version())?;
                text(&mut to.vendor_id, from.vendor_id())?;
                text(&mut to.driver, from.driver())?;
                text(&mut to.firmware, from.firmware())
            }
        })?;
        let bus = nic.bus_attr().map(|bus| *bus).unwrap_or_default();
        alloc_part(&mut out.bus_attr, bus, |_| Some(()))?;
        let start = abi::fi_link_attr::default();
        alloc_part(&mut out.link_attr, start, |to| match nic.link_attr() {
            None => Some(()),
            Some(from) => {
                (to.mtu, to.speed, to.state) = (from.mtu, from.speed, from.state);
                text(&mut to.address, from.address())?;
                text(&mut to.network_type, from.network_type())
            }
        })
    })
}

/// `fi_close` of a NIC, as `fi_freeinfo` calls it.
///
/// # Safety
///
/// `fid` is a NIC made here, and this is its last call.
unsafe extern "C" fn close(fid: *mut abi::fid) -> c_int {
    // SAFETY: made here, and used no more, by the contract of this function.
    unsafe { free(fid.cast()) };
    0
}

/// A NIC made here, to which an operation of [`OPS`] belongs.
struct ThisNic<'a, P>(Whole<'a, abi::fid_nic>, PhantomData<P>);

impl<P: Pointer<Target = abi::fid>> Arg for ThisNic<'_, P> {
    type C = P;

    unsafe fn from_c(fid: P) -> Self {
        // SAFETY: the operations of [`OPS`] belong to NICs made here, which begin with their `fid`.
        let nic = unsafe { &*fid.address().cast::<abi::fid_nic>() };
        // SAFETY: NICs made here have all their parts, which are freed with them.
        Self(unsafe { Whole::new(nic) }, PhantomData)
    }
}

trampolines! { []
    /// `fi_control` of a NIC: `FI_DUP`, as `fi_dupinfo` calls it.
    extern "C" fn control(nic: ThisNic<*mut abi::fid>, command: c_int, arg: Argument) -> c_int {
        if command != abi::FI_DUP {
            return -abi::FI_ENOSYS;
        }
        if arg.as_ptr().is_null() {
            return -abi::FI_EINVAL;
        }
        let copy = copy(nic.0);
        arg.place().put(copy);
        match copy.is_null() {
            true => -abi::FI_ENOMEM,
            false => 0,
        }
    }

    /// Appends the NIC to the string in `buf`, within its `len` bytes.
    extern "C" fn tostr(nic: ThisNic<*const abi::fid>, out: TextOut(buf, len)) -> c_int {
        if out.is_empty() {
            return -abi::FI_EINVAL;
        }
        let mut text = Text::default();
        print::nic(&mut text, nic.0);
        out.rest().put(text.as_bytes());
        0
    }
}

impl Argument<'_> {
    /// The place for the copy, in a call with `FI_DUP`.
    fn place(&self) -> Out<'_, *mut abi::fid_nic> {
        // SAFETY: this command takes a pointer to a NIC pointer, which is what `from_c` was
        // promised.
        unsafe { Out::from_c(self.as_ptr().cast()) }
    }
}
