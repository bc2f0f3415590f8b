//! The interfaces of this machine.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;
use ripstop_types::Result;

use crate::errno::nix_errno;

/// An address of a network interface. An interface with several addresses appears several
/// times, one without any not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, such as `eth0`.
    pub name: String,
    /// The address.
    pub addr: IpAddr,
    /// How many leading bits of the address name the network: 0 to 32, or to 128.
    pub prefix: u8,
    /// The zone of a link-local IPv6 address, 0 for all others.
    pub scope_id: u32,
    /// It is switched on.
    pub up: bool,
    /// It has what it needs to work (a carrier).
    pub running: bool,
    /// It leads back to this machine.
    pub loopback: bool,
    /// It leads to one other machine only.
    pub point_to_point: bool,
    /// Its state as the driver sees it.
    pub oper_state: OperState,
    /// The largest packet, in bytes; `None` if the system does not say.
    pub mtu: Option<u32>,
    /// The speed of the link in bits per second; `None` if the system does not say.
    pub speed: Option<u64>,
}

/// The state of an interface (RFC 2863, `/sys/class/net/*/operstate`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperState {
    /// Ready.
    Up,
    /// Not ready: no link, a lower layer missing, or dormant.
    Down,
    /// The driver does not say (loopback and many virtual interfaces).
    Unknown,
}

impl Interface {
    /// Whether packets can be expected to pass: switched on, with a carrier, and not reported
    /// down.
    #[must_use]
    pub fn usable(&self) -> bool {
        self.up && self.running && self.oper_state != OperState::Down
    }

    /// The address with `port`, and with the zone where it needs one.
    #[must_use]
    pub fn socket_addr(&self, port: u16) -> SocketAddr {
        let mut addr = SocketAddr::new(self.addr, port);
        if let SocketAddr::V6(v6) = &mut addr {
            v6.set_scope_id(self.scope_id);
        }
        addr
    }
}

/// The addresses of all interfaces of this machine, in the system's order.
///
/// # Errors
///
/// Those of `getifaddrs(3)`: `EMFILE`, `ENOMEM`, ...
pub fn interfaces() -> Result<Vec<Interface>> {
    let all = getifaddrs().map_err(nix_errno)?;
    Ok(all.filter_map(describe).collect())
}

/// Whether `addr` is an address of this machine.
///
/// # Errors
///
/// Those of [`interfaces`].
pub fn is_local(addr: IpAddr) -> Result<bool> {
    let addr = addr.to_canonical();
    if addr.is_loopback() {
        return Ok(true);
    }
    let mut all = getifaddrs().map_err(nix_errno)?;
    Ok(all.any(|entry| inet(entry.address).is_some_and(|own| own.ip() == addr)))
}

/// The Internet address, where it is one.
fn inet(addr: Option<SockaddrStorage>) -> Option<SocketAddr> {
    let addr = addr?;
    let v4 = addr.as_sockaddr_in().map(|v4| SocketAddr::V4((*v4).into()));
    v4.or_else(|| {
        addr.as_sockaddr_in6()
            .map(|v6| SocketAddr::V6((*v6).into()))
    })
}

fn describe(entry: InterfaceAddress) -> Option<Interface> {
    let addr = inet(entry.address)?;
    let name = entry.interface_name;
    Some(Interface {
        addr: addr.ip(),
        prefix: inet(entry.netmask).map_or(0, |mask| prefix(mask.ip())),
        scope_id: match addr {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(v6) => v6.scope_id(),
        },
        up: entry.flags.contains(InterfaceFlags::IFF_UP),
        running: entry.flags.contains(InterfaceFlags::IFF_RUNNING),
        loopback: entry.flags.contains(InterfaceFlags::IFF_LOOPBACK),
        point_to_point: entry.flags.contains(InterfaceFlags::IFF_POINTOPOINT),
        oper_state: oper_state(attribute(&name, "operstate").as_deref()),
        mtu: attribute(&name, "mtu").and_then(|text| text.parse().ok()),
        speed: attribute(&name, "speed").and_then(|text| bits_per_second(&text)),
        name,
    })
}

/// The number of leading ones of a network mask.
fn prefix(mask: IpAddr) -> u8 {
    let ones = match mask {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    ones as u8
}

/// What the kernel says about an interface, without the line end. `None` if it says nothing.
fn attribute(interface: &str, name: &str) -> Option<String> {
    // An alias (`eth0:1`) has the attributes of its interface.
    let device = interface
        .split_once(':')
        .map_or(interface, |(device, _)| device);
    let path = Path::new("/sys/class/net").join(device).join(name);
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim_end().to_owned())
}

fn oper_state(text: Option<&str>) -> OperState {
    match text {
        Some("up") => OperState::Up,
        Some("unknown") | None => OperState::Unknown,
        Some(_) => OperState::Down,
    }
}

/// The kernel's megabits as bits; -1 and 0 stand for "not known".
fn bits_per_second(text: &str) -> Option<u64> {
    let megabits: i64 = text.parse().ok()?;
    let megabits = u64::try_from(megabits).ok().filter(|&speed| speed > 0)?;
    // Drivers that do not know may say `UINT_MAX`.
    (megabits < u64::from(u32::MAX)).then(|| megabits * 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_speeds_of_the_kernel() {
        assert_eq!(oper_state(Some("up")), OperState::Up);
        assert_eq!(oper_state(Some("unknown")), OperState::Unknown);
        assert_eq!(oper_state(None), OperState::Unknown);
        for text in ["down", "lowerlayerdown", "dormant", "notpresent", "testing"] {
            assert_eq!(oper_state(Some(text)), OperState::Down, "{text}");
        }
        assert_eq!(bits_per_second("10000"), Some(10_000_000_000));
        for text in ["-1", "0", "4294967295", "", "fast"] {
            assert_eq!(bits_per_second(text), None, "{text}");
        }
    }

    #[test]
    fn masks_have_a_prefix() {
        for (mask, len) in [
            ("255.255.255.0", 24),
            ("0.0.0.0", 0),
            ("255.255.255.255", 32),
        ] {
            assert_eq!(prefix(mask.parse().unwrap()), len);
        }
        assert_eq!(prefix("ffff:ffff:ffff:ffff::".parse().unwrap()), 64);
    }
}
