#![allow(unsafe_code)]
//! The core's `Info` as an `fi_info` that a C caller owns.

use core::ffi::c_char;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::{
    Address, BusAttr, DomainAttr, EpAttr, FabricAttr, FidToken, Info, Nic, RxAttr, TxAttr,
};

use super::{free, nic};
use crate::{cmem, handles};

/// No memory is left.
struct Exhausted;

/// A list for `fi_getinfo`, or null when there is no memory for all of it.
pub(crate) fn list(infos: &[Info]) -> *mut abi::fi_info {
    let mut head = ptr::null_mut();
    for info in infos.iter().rev() {
        let one = self::info(info);
        if one.is_null() {
            // SAFETY: made here, and nobody else knows it.
            unsafe { free::list(head) };
            return one;
        }
        // SAFETY: made just now.
        unsafe { (*one).next = head };
        head = one;
    }
    head
}

/// One `fi_info` with everything it points to, or null when there is no memory.
pub(crate) fn info(info: &Info) -> *mut abi::fi_info {
    let made = super::allocate();
    // SAFETY: null or made just now.
    let Some(out) = (unsafe { made.as_mut() }) else {
        return made;
    };
    if fill(out, info).is_err() {
        // SAFETY: made here; what was not filled is null.
        unsafe { free::list(made) };
        return ptr::null_mut();
    }
    made
}

/// Fills an `fi_info` whose attributes exist.
fn fill(out: &mut abi::fi_info, info: &Info) -> Result<(), Exhausted> {
    out.caps = info.caps.bits();
    out.mode = info.mode.bits();
    out.addr_format = info.addr_format.raw();
    (out.src_addr, out.src_addrlen) = address(info.src_addr.as_ref())?;
    (out.dest_addr, out.dest_addrlen) = address(info.dest_addr.as_ref())?;
    out.handle = info
        .handle
        .as_ref()
        .map_or(ptr::null_mut(), handles::pointer);
    // SAFETY: null or made by `allocate`, for each of the five.
    if let Some(attr) = unsafe { out.tx_attr.as_mut() } {
        *attr = tx_attr(&info.tx);
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { out.rx_attr.as_mut() } {
        *attr = rx_attr(&info.rx);
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { out.ep_attr.as_mut() } {
        ep_attr(attr, &info.ep)?;
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { out.domain_attr.as_mut() } {
        domain_attr(attr, &info.domain)?;
    }
    // SAFETY: as above.
    if let Some(attr) = unsafe { out.fabric_attr.as_mut() } {
        fabric_attr(attr, &info.fabric)?;
    }
    if let Some(card) = &info.nic {
        out.nic = self::nic(card)?;
    }
    Ok(())
}

fn made<T>(pointer: *mut T) -> Result<*mut T, Exhausted> {
    match pointer.is_null() {
        true => Err(Exhausted),
        false => Ok(pointer),
    }
}

fn address(addr: Option<&Address>) -> Result<(*mut core::ffi::c_void, usize), Exhausted> {
    let Some(addr) = addr else {
        return Ok((ptr::null_mut(), 0));
    };
    let bytes = addr.to_bytes();
    Ok((made(cmem::bytes(&bytes))?.cast(), bytes.len()))
}

fn string(text: Option<&String>) -> Result<*mut c_char, Exhausted> {
    text.map_or(Ok(ptr::null_mut()), |text| made(cmem::text(text)))
}

fn auth_key(key: &[u8]) -> Result<*mut u8, Exhausted> {
    match key {
        [] => Ok(ptr::null_mut()),
        key => made(cmem::bytes(key)),
    }
}

fn object<T>(token: Option<FidToken>) -> *mut T {
    token.map_or(ptr::null_mut(), |token| {
        ptr::with_exposed_provenance_mut(token.0)
    })
}

fn tx_attr(attr: &TxAttr) -> abi::fi_tx_attr {
    abi::fi_tx_attr {
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        op_flags: attr.op_flags.bits(),
        msg_order: attr.msg_order.bits(),
        comp_order: attr.comp_order,
        inject_size: attr.inject_size,
        size: attr.size,
        iov_limit: attr.iov_limit,
        rma_iov_limit: attr.rma_iov_limit,
        tclass: attr.tclass,
    }
}

fn rx_attr(attr: &RxAttr) -> abi::fi_rx_attr {
    abi::fi_rx_attr {
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        op_flags: attr.op_flags.bits(),
        msg_order: attr.msg_order.bits(),
        comp_order: attr.comp_order,
        total_buffered_recv: attr.total_buffered_recv,
        size: attr.size,
        iov_limit: attr.iov_limit,
    }
}

fn ep_attr(out: &mut abi::fi_ep_attr, attr: &EpAttr) -> Result<(), Exhausted> {
    *out = abi::fi_ep_attr {
        type_: attr.ep_type.raw(),
        protocol: attr.protocol.raw(),
        protocol_version: attr.protocol_version,
        max_msg_size: attr.max_msg_size,
        msg_prefix_size: attr.msg_prefix_size,
        max_order_raw_size: attr.max_order_raw_size,
        max_order_war_size: attr.max_order_war_size,
        max_order_waw_size: attr.max_order_waw_size,
        mem_tag_format: attr.mem_tag_format,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        auth_key_size: attr.auth_key_size,
        auth_key: auth_key(&attr.auth_key)?,
    };
    Ok(())
}

fn domain_attr(out: &mut abi::fi_domain_attr, attr: &DomainAttr) -> Result<(), Exhausted> {
    // What was made is stored at once, so that it is freed if the next allocation fails.
    out.name = string(attr.name.as_ref())?;
    out.auth_key = auth_key(&attr.auth_key)?;
    *out = abi::fi_domain_attr {
        domain: object(attr.domain),
        name: out.name,
        threading: attr.threading.raw(),
        control_progress: attr.control_progress.raw(),
        data_progress: attr.progress.raw(),
        resource_mgmt: attr.resource_mgmt.raw(),
        av_type: attr.av_type.raw(),
        mr_mode: attr.mr_mode.bits().cast_signed(),
        mr_key_size: attr.mr_key_size,
        cq_data_size: attr.cq_data_size,
        cq_cnt: attr.cq_cnt,
        ep_cnt: attr.ep_cnt,
        tx_ctx_cnt: attr.tx_ctx_cnt,
        rx_ctx_cnt: attr.rx_ctx_cnt,
        max_ep_tx_ctx: attr.max_ep_tx_ctx,
        max_ep_rx_ctx: attr.max_ep_rx_ctx,
        max_ep_stx_ctx: attr.max_ep_stx_ctx,
        max_ep_srx_ctx: attr.max_ep_srx_ctx,
        cntr_cnt: attr.cntr_cnt,
        mr_iov_limit: attr.mr_iov_limit,
        caps: attr.caps.bits(),
        mode: attr.mode.bits(),
        auth_key: out.auth_key,
        auth_key_size: attr.auth_key_size,
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: attr.tclass,
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
    };
    Ok(())
}

fn fabric_attr(out: &mut abi::fi_fabric_attr, attr: &FabricAttr) -> Result<(), Exhausted> {
    out.fabric = object(attr.fabric);
    out.name = string(attr.name.as_ref())?;
    out.prov_name = string(attr.prov_name.as_ref())?;
    out.prov_version = attr.prov_version;
    out.api_version = attr.api_version.0;
    Ok(())
}

fn nic(card: &Nic) -> Result<*mut abi::fid_nic, Exhausted> {
    let made = made(nic::allocate())?;
    // SAFETY: made just now.
    let out = unsafe { &mut *made };
    if fill_nic(out, card).is_err() {
        // SAFETY: made here; what was not filled is null.
        unsafe { nic::free(made) };
        return Err(Exhausted);
    }
    Ok(made)
}

fn fill_nic(out: &mut abi::fid_nic, card: &Nic) -> Result<(), Exhausted> {
    // SAFETY: null or made by `nic::allocate`, for each of the three.
    if let Some(device) = unsafe { out.device_attr.as_mut() } {
        device.name = string(card.device.name.as_ref())?;
        device.device_id = string(card.device.device_id.as_ref())?;
        device.device_version = string(card.device.device_version.as_ref())?;
        device.vendor_id = string(card.device.vendor_id.as_ref())?;
        device.driver = string(card.device.driver.as_ref())?;
        device.firmware = string(card.device.firmware.as_ref())?;
    }
    // SAFETY: as above.
    if let (Some(bus), BusAttr::Pci(pci)) = (unsafe { out.bus_attr.as_mut() }, card.bus) {
        bus.bus_type = abi::FI_BUS_PCI;
        bus.attr.pci = abi::fi_pci_attr {
            domain_id: pci.domain,
            bus_id: pci.bus,
            device_id: pci.device,
            function_id: pci.function,
        };
    }
    // SAFETY: as above.
    if let Some(link) = unsafe { out.link_attr.as_mut() } {
        link.address = string(card.link.address.as_ref())?;
        link.mtu = card.link.mtu;
        link.speed = card.link.speed;
        link.state = card.link.state as abi::fi_link_state;
        link.network_type = string(card.link.network_type.as_ref())?;
    }
    Ok(())
}
