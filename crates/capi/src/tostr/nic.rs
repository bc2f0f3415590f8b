#![allow(unsafe_code)]
//! `struct fid_nic` as text.

use ripstop_abi as abi;

use super::lines::{Lines, numbers};
use super::names;
use crate::edge::Whole;
use crate::text::Text;

/// Indentation of the parts of a NIC.
const PART: &str = "        ";

/// `struct fid_nic`.
pub(crate) fn nic(text: &mut Text, nic: Whole<'_, abi::fid_nic>) {
    text.put("    nic:\n");
    if let Some(attr) = nic.device_attr() {
        let mut lines = Lines::new(text, PART, "fi_device_attr");
        lines.string("name", attr.name());
        lines.string("device_id", attr.device_id());
        lines.string("device_version", attr.device_version());
        lines.string("vendor_id", attr.vendor_id());
        lines.string("driver", attr.driver());
        lines.string("firmware", attr.firmware());
    }
    if let Some(bus) = nic.bus_attr() {
        bus_attr(text, &bus);
    }
    if let Some(attr) = nic.link_attr() {
        let mut lines = Lines::new(text, PART, "fi_link_attr");
        lines.string("address", attr.address());
        numbers!(lines, attr: mtu speed);
        lines.value("state", names::LINK_STATE, attr.state);
        lines.string("network_type", attr.network_type());
    }
}

fn bus_attr(text: &mut Text, attr: &abi::fi_bus_attr) {
    let mut lines = Lines::new(text, PART, "fi_bus_attr");
    lines.value("bus_type", names::BUS_TYPE, attr.bus_type);
    if attr.bus_type == abi::FI_BUS_PCI {
        // SAFETY: the only member of the union, of integers, so any bits will do.
        let pci = unsafe { attr.attr.pci };
        let mut lines = Lines::new(text, "            ", "fi_pci_attr");
        numbers!(lines, pci: domain_id bus_id device_id function_id);
    }
}
