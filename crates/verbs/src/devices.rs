//! The RDMA devices of this machine, and their addresses.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use ripstop_core::ip::{LocalAddress, local_addresses};
use ripstop_core::log::Subsys;
use ripstop_core::{BusAttr, DeviceAttr, LinkAttr, LinkState, Nic, PciAttr, fi_info};
use ripstop_ibverbs::{
    CmId, Context, Cq, EventChannel, LinkLayer, Pd, PortAttr, QpCap, QpKind, Transport, devices,
};
use ripstop_types::{Errno, Result};

use crate::fabric::Fabric;
use crate::params::{NAME, Params};
use crate::ud::active_port;

/// What the name of a fabric begins with; the prefix of the subnet follows.
const FABRIC: &str = "IB-0x";

/// A device that can be used.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) name: String,
    /// The subnet that it is in.
    pub(crate) fabric: String,
    pub(crate) attr: ripstop_ibverbs::DeviceAttr,
    pub(crate) port: PortAttr,
    /// Bytes that a request takes inline.
    pub(crate) inline: usize,
    /// The same of a datagram; nothing where the device has none.
    pub(crate) datagram_inline: Option<usize>,
    pub(crate) nic: Arc<Nic>,
    /// With device and fabric in place of interface and network.
    pub(crate) addresses: Vec<LocalAddress>,
}

/// The devices that are wanted and can be used, the fastest first.
///
/// # Errors
/// As [`devices`]; of the system.
pub(crate) fn find(params: &Params) -> Result<Vec<Device>> {
    let contexts = devices()?;
    if contexts.is_empty() {
        return Ok(Vec::new());
    }
    let channel = EventChannel::new()?;
    let interfaces = ripstop_os::net::interfaces()?;
    let mut local = local_addresses(&interfaces, None);
    local.retain(|local| params.wants_interface(&local.interface));
    let mut found = Vec::new();
    for context in contexts
        .iter()
        .filter(|context| params.wants_device(&context.name()))
    {
        match describe(context, params) {
            Ok(mut device) => {
                device.addresses = addresses(&channel, context, &local, &device);
                found.push(device);
            }
            Err(why) => fi_info!(
                NAME,
                Subsys::Core,
                "device {} is not used: {why}",
                context.name()
            ),
        }
    }
    found.sort_by_key(|device| std::cmp::Reverse(device.port.speed));
    Ok(found)
}

/// What a device is, or why it is not used.
fn describe(context: &Arc<Context>, params: &Params) -> std::result::Result<Device, String> {
    if context.transport() != Transport::Ib {
        return Err("only InfiniBand's protocol is spoken, also over Ethernet (RoCE)".to_owned());
    }
    let told = |error: Errno| error.to_string();
    let attr = context.attr().map_err(told)?;
    let (number, port) = active_port(context, &attr).ok_or("none of its ports is active")?;
    let gid = context.gid(number, params.gid_idx.into()).map_err(told)?;
    let prefix = gid[..8]
        .iter()
        .fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(Device {
        name: context.name(),
        fabric: format!("{FABRIC}{prefix:x}"),
        inline: inline(context, params.inline_size, QpKind::Connected).map_err(told)?,
        datagram_inline: inline(context, params.inline_size, QpKind::Datagrams).ok(),
        nic: Arc::new(nic(context, &attr, &port, &gid)),
        attr,
        port,
        addresses: Vec::new(),
    })
}

/// Bytes that queue pairs of a kind take inline, up to `wanted`; as many as they can for 0.
pub(crate) fn inline(context: &Arc<Context>, wanted: usize, kind: QpKind) -> Result<usize> {
    /// More than any device takes.
    const ALL: u32 = 4096;
    let pd = Pd::new(context)?;
    let cq = Cq::new(context, 1, None)?;
    let mut asked = match wanted {
        0 => ALL,
        wanted => u32::try_from(wanted).unwrap_or(ALL),
    };
    loop {
        let cap = QpCap {
            send: 1,
            recv: 1,
            send_sge: 1,
            recv_sge: 1,
            inline: asked,
        };
        match cap.probe(kind, &pd, &cq) {
            Ok(has) => {
                let most = if wanted == 0 { has.inline } else { asked };
                return Ok(has.inline.min(most) as usize);
            }
            Err(error) if asked == 0 => return Err(error),
            Err(_) => asked /= 2,
        }
    }
}

/// The addresses of a device.
fn addresses(
    channel: &Arc<EventChannel>,
    context: &Arc<Context>,
    local: &[LocalAddress],
    device: &Device,
) -> Vec<LocalAddress> {
    let is_own = |addr: &SocketAddr| is_address_of(channel, context, addr);
    let own = local.iter().filter(|local| is_own(&local.addr));
    own.map(|local| {
        let mut local = local.clone();
        local.interface.clone_from(&device.name);
        local.network.clone_from(&device.fabric);
        local.nic = Some(Arc::clone(&device.nic));
        local
    })
    .collect()
}

/// Whether connections at an address go by a device.
fn is_address_of(channel: &Arc<EventChannel>, context: &Arc<Context>, addr: &SocketAddr) -> bool {
    let Ok(id) = CmId::new(channel) else {
        return false;
    };
    let mut any_port = *addr;
    any_port.set_port(0);
    id.bind(&any_port).is_ok() && id.device(std::slice::from_ref(context)).is_some()
}

/// An address of a device of an open fabric.
///
/// # Errors
/// [`Errno::EADDRNOTAVAIL`] where it has none; of the system.
pub(crate) fn address_of(fabric: &Fabric, context: &Arc<Context>) -> Result<SocketAddr> {
    let interfaces = ripstop_os::net::interfaces()?;
    let local = local_addresses(&interfaces, None);
    let mut all = local.iter().map(|local| local.addr);
    all.find(|addr| is_address_of(&fabric.cm.channel, context, addr))
        .ok_or(Errno::EADDRNOTAVAIL)
}

fn nic(
    context: &Context,
    attr: &ripstop_ibverbs::DeviceAttr,
    port: &PortAttr,
    gid: &[u8; 16],
) -> Nic {
    let name = context.name();
    Nic {
        bus: bus(&name),
        device: DeviceAttr {
            device_id: Some(format!("{:#06x}", attr.part_id)),
            device_version: Some(attr.hardware.to_string()),
            vendor_id: Some(format!("{:#06x}", attr.vendor_id)),
            driver: None,
            firmware: Some(attr.firmware.clone()),
            name: Some(name),
        },
        link: LinkAttr {
            address: Some(std::net::Ipv6Addr::from(*gid).to_string()),
            mtu: port.mtu,
            speed: usize::try_from(port.speed).unwrap_or(usize::MAX),
            state: match port.active {
                true => LinkState::Up,
                false => LinkState::Down,
            },
            network_type: Some(
                match port.link {
                    LinkLayer::InfiniBand => "InfiniBand",
                    LinkLayer::Ethernet => "Ethernet",
                    LinkLayer::Unspecified => "Unknown",
                }
                .to_owned(),
            ),
        },
    }
}

/// Where a device is attached, by the link to it that the kernel has.
fn bus(name: &str) -> BusAttr {
    let link = Path::new("/sys/class/infiniband").join(name).join("device");
    let Ok(device) = fs::canonicalize(link) else {
        return BusAttr::Unknown;
    };
    let last = device.file_name().unwrap_or_default().to_string_lossy();
    pci(&last).map_or(BusAttr::Unknown, BusAttr::Pci)
}

/// Reads a PCI address: `0000:3b:00.1`.
fn pci(text: &str) -> Option<PciAttr> {
    let (front, function) = text.split_once('.')?;
    let mut parts = front.split(':');
    let mut part = || u16::from_str_radix(parts.next()?, 16).ok();
    let (domain, bus, device) = (part()?, part()?, part()?);
    Some(PciAttr {
        domain,
        bus: bus.try_into().ok()?,
        device: device.try_into().ok()?,
        function: u8::from_str_radix(function, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_those_of_the_kernel() {
        let attr = PciAttr {
            domain: 0,
            bus: 0x3b,
            device: 0,
            function: 1,
        };
        assert_eq!(pci("0000:3b:00.1"), Some(attr));
        assert_eq!(pci("rxe0"), None);
        assert_eq!(pci("0000:3b.1"), None);
    }
}
