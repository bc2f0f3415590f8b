#![allow(unsafe_code)]
//! The core's `Info` as an `fi_info` that a C caller owns.

use core::ffi::{c_char, c_void};
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::{
    Address, BusAttr, DomainAttr, EpAttr, FabricAttr, FidToken, Info, Nic, RxAttr, TxAttr,
};

use super::{free, made, nic, part};
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
    let made = made(abi::fi_info::default(), |out| fill(out, info));
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
    part(&mut out.tx_attr, tx_attr(&info.tx), |_| Some(()))?;
    part(&mut out.rx_attr, rx_attr(&info.rx), |_| Some(()))?;
    part(&mut out.ep_attr, ep_attr(&info.ep), |attr| {
        auth_key(&mut attr.auth_key, &info.ep.auth_key)
    })?;
    part(&mut out.domain_attr, domain_attr(&info.domain), |attr| {
        string(&mut attr.name, info.domain.name.as_ref())?;
        auth_key(&mut attr.auth_key, &info.domain.auth_key)
    })?;
    part(&mut out.fabric_attr, fabric_attr(&info.fabric), |attr| {
        string(&mut attr.name, info.fabric.name.as_ref())?;
        string(&mut attr.prov_name, info.fabric.prov_name.as_ref())
    })?;
    if let Some(card) = &info.nic {
        out.nic = nic::made(|out| fill_nic(out, card));
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

/// Without its key.
fn ep_attr(attr: &EpAttr) -> abi::fi_ep_attr {
    abi::fi_ep_attr {
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
        auth_key: ptr::null_mut(),
    }
}

/// Without its name and its key.
fn domain_attr(attr: &DomainAttr) -> abi::fi_domain_attr {
    abi::fi_domain_attr {
        domain: object(attr.domain),
        name: ptr::null_mut(),
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
        auth_key: ptr::null_mut(),
        auth_key_size: attr.auth_key_size,
        max_err_data: attr.max_err_data,
        mr_cnt: attr.mr_cnt,
        tclass: attr.tclass,
        max_ep_auth_key: attr.max_ep_auth_key,
        max_group_id: attr.max_group_id,
        max_cntr_value: attr.max_cntr_value,
        max_err_cntr_value: attr.max_err_cntr_value,
    }
}

/// Without its names.
fn fabric_attr(attr: &FabricAttr) -> abi::fi_fabric_attr {
    abi::fi_fabric_attr {
        fabric: object(attr.fabric),
        name: ptr::null_mut(),
        prov_name: ptr::null_mut(),
        prov_version: attr.prov_version,
        api_version: attr.api_version.0,
    }
}

fn fill_nic(out: &mut abi::fid_nic, card: &Nic) -> Option<()> {
    part(&mut out.device_attr, Default::default(), |device| {
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
    part(&mut out.bus_attr, bus_attr(card.bus), |_| Some(()))?;
    part(&mut out.link_attr, Default::default(), |link| {
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
