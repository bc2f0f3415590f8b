#![allow(unsafe_code)]
//! `struct fid_nic` as text.

use ripstop_abi as abi;

use super::names;
use crate::edge::Whole;
use crate::text::Text;

/// `struct fid_nic`.
pub(crate) fn nic(text: &mut Text, nic: Whole<'_, abi::fid_nic>) {
    text.put("    nic:\n");
    if let Some(device) = nic.device_attr() {
        device_attr(text, device);
    }
    if let Some(bus) = nic.bus_attr() {
        bus_attr(text, &bus);
    }
    if let Some(link) = nic.link_attr() {
        link_attr(text, link);
    }
}

fn device_attr(text: &mut Text, attr: Whole<'_, abi::fi_device_attr>) {
    text.put("        fi_device_attr:\n");
    for (name, value) in [
        ("name", attr.name()),
        ("device_id", attr.device_id()),
        ("device_version", attr.device_version()),
        ("vendor_id", attr.vendor_id()),
        ("driver", attr.driver()),
        ("firmware", attr.firmware()),
    ] {
        text.fmt(format_args!("            {name}: "));
        text.c_str(value);
        text.put("\n");
    }
}

fn bus_attr(text: &mut Text, attr: &abi::fi_bus_attr) {
    text.put("        fi_bus_attr:\n            bus_type: ");
    names::value(text, names::BUS_TYPE, u64::from(attr.bus_type));
    text.put("\n");
    if attr.bus_type == abi::FI_BUS_PCI {
        // SAFETY: the only member of the union, of integers, so any bits will do.
        let pci = unsafe { attr.attr.pci };
        text.fmt(format_args!(
            "            fi_pci_attr:\n                domain_id: {}\n                \
             bus_id: {}\n                device_id: {}\n                function_id: {}\n",
            pci.domain_id, pci.bus_id, pci.device_id, pci.function_id
        ));
    }
}

fn link_attr(text: &mut Text, attr: Whole<'_, abi::fi_link_attr>) {
    text.put("        fi_link_attr:\n            address: ");
    text.c_str(attr.address());
    let (mtu, speed) = (attr.mtu, attr.speed);
    text.fmt(format_args!(
        "\n            mtu: {mtu}\n            speed: {speed}\n            state: "
    ));
    names::value(text, names::LINK_STATE, u64::from(attr.state));
    text.put("\n            network_type: ");
    text.c_str(attr.network_type());
    text.put("\n");
}
