#![allow(unsafe_code)]
//! The core's `Info` as an `fi_info` that a C caller owns.

use core::ffi::{c_char, c_void};
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::{Address, BusAttr, Handle, Info, Nic};

use super::{Attributes, OwnedInfo, alloc_ep_attr, alloc_info, alloc_part, free, nic};
use crate::{cmem, handles};

/// A list for `fi_getinfo`, or null when there is no memory for all of it.
pub(crate) fn list(infos: &[Info]) -> *mut abi::fi_info {
    let mut head = ptr::null_mut();
    for info in infos.iter().rev() {
        let one = info_before(info, head);
        if one.is_null() {
            // SAFETY: made here, and nobody else knows it.
            unsafe { free::list(head) };
            return one;
        }
        head = one;
    }
    head
}

/// One `fi_info` with everything it points to, or null when there is no memory.
pub(crate) fn info(info: &Info) -> *mut abi::fi_info {
    info_before(info, ptr::null_mut())
}

/// The same, in front of a list.
fn info_before(info: &Info, next: *mut abi::fi_info) -> *mut abi::fi_info {
    let owned = info.handle.as_ref().and_then(Handle::downcast::<OwnedInfo>);
    let made = match owned {
        Some(owned) => owned.copy(),
        None => alloc_info(abi::fi_info::default(), |out| fill(out, info)),
    };
    // SAFETY: null or made just now.
    if let Some(made) = unsafe { made.as_mut() } {
        made.next = next;
    }
    made
}

/// Fills an `fi_info`; `None` when there is no memory.
fn fill(out: &mut abi::fi_info, info: &Info) -> Option<()> {
    out.caps = info.caps.bits();
    out.mode = info.mode.bits();
    out.addr_format = info.addr_format.raw();
    out.src_addrlen = address(&mut out.src_addr, info.src_addr.as_ref())?;
    out.dest_addrlen = address(&mut out.dest_addr, info.dest_addr.as_ref())?;
    out.handle = info
        .handle
        .as_ref()
        .map_or(ptr::null_mut(), handles::pointer);
    alloc_part(&mut out.tx_attr, info.tx.write(), |_| Some(()))?;
    alloc_part(&mut out.rx_attr, info.rx.write(), |_| Some(()))?;
    alloc_ep_attr(&mut out.ep_attr, info.ep.write(), |attr| {
        auth_key(&mut attr.auth_key, &info.ep.auth_key)
    })?;
    alloc_part(&mut out.domain_attr, info.domain.write(), |attr| {
        string(&mut attr.name, info.domain.name.as_ref())?;
        auth_key(&mut attr.auth_key, &info.domain.auth_key)
    })?;
    alloc_part(&mut out.fabric_attr, info.fabric.write(), |attr| {
        string(&mut attr.name, info.fabric.name.as_ref())?;
        string(&mut attr.prov_name, info.fabric.prov_name.as_ref())
    })?;
    if let Some(card) = &info.nic {
        out.nic = nic::alloc_nic(|out| fill_nic(out, card));
        return (!out.nic.is_null()).then_some(());
    }
    Some(())
}

/// Stores what was allocated; `None` for null, when there is no memory.
fn store<T>(to: &mut *mut T, made: *mut T) -> Option<()> {
    *to = made;
    (!made.is_null()).then_some(())
}

/// Stores an address, unless there is none, and returns its length.
fn address(to: &mut *mut c_void, addr: Option<&Address>) -> Option<usize> {
    let Some(addr) = addr else {
        return Some(0);
    };
    let bytes = addr.to_bytes();
    store(to, cmem::bytes(&bytes).cast())?;
    Some(bytes.len())
}

fn string(to: &mut *mut c_char, text: Option<&String>) -> Option<()> {
    text.map_or(Some(()), |text| store(to, cmem::text(text)))
}

fn auth_key(to: &mut *mut u8, key: &[u8]) -> Option<()> {
    match key {
        [] => Some(()),
        key => store(to, cmem::bytes(key)),
    }
}

fn fill_nic(out: &mut abi::fid_nic, card: &Nic) -> Option<()> {
    alloc_part(&mut out.device_attr, Default::default(), |device| {
        string(&mut device.name, card.device.name.as_ref())?;
        string(&mut device.device_id, card.device.device_id.as_ref())?;
        string(
            &mut device.device_version,
            card.device.device_version.as_ref(),
        )?;
        string(&mut device.vendor_id, card.device.vendor_id.as_ref())?;
        string(&mut device.driver, card.device.driver.as_ref())?;
        string(&mut device.firmware, card.device.firmware.as_ref())
    })?;
    alloc_part(&mut out.bus_attr, bus_attr(card.bus), |_| Some(()))?;
    alloc_part(&mut out.link_attr, Default::default(), |link| {
        link.mtu = card.link.mtu;
        link.speed = card.link.speed;
        link.state = card.link.state as abi::fi_link_state;
        string(&mut link.address, card.link.address.as_ref())?;
        string(&mut link.network_type, card.link.network_type.as_ref())
    })
}

fn bus_attr(bus: BusAttr) -> abi::fi_bus_attr {
    let mut out = abi::fi_bus_attr::default();
    if let BusAttr::Pci(pci) = bus {
        out.bus_type = abi::FI_BUS_PCI;
        out.attr.pci = abi::fi_pci_attr {
            domain_id: pci.domain,
            bus_id: pci.bus,
            device_id: pci.device,
            function_id: pci.function,
        };
    }
    out
}
