//! Interfaces of IP providers: from one offer to one answer per address of this machine.

use core::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ripstop_os::net::Interface;
use ripstop_types::{Flags, flags};

use crate::address::Address;
use crate::hints::{Group, Mismatch, Request};
use crate::info::{Hints, Info};
use crate::names::CNames as _;
use crate::nic::{DeviceAttr, LinkAttr, LinkState, Nic};
use crate::resolve::family;

const COMM: Flags = flags![LOCAL_COMM REMOTE_COMM];

/// A local address that endpoints can have: fastest first, loopback last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// The address, with port 0.
    pub addr: SocketAddr,
    /// Name of the interface, which is the name of the domain (`eth0`).
    pub interface: String,
    /// The network, which is the name of the fabric (`192.168.0.0/24`).
    pub network: String,
    /// [`Flags::LOCAL_COMM`], and [`Flags::REMOTE_COMM`] unless it is loopback.
    pub comm: Flags,
    /// The network card; `None` for loopback.
    pub nic: Option<Arc<Nic>>,
    speed: u64,
    point_to_point: bool,
}

/// Chooses from the addresses of this machine those to offer, in order of preference: by
/// speed, IPv4 before IPv6, by address; then links that lead to one other machine only
/// (tunnels); loopback last. `only` is the one interface to offer (`FI_<PROVIDER>_IFACE`).
///
/// Interfaces that are down are left out.
#[must_use]
pub fn local_addresses(interfaces: &[Interface], only: Option<&str>) -> Vec<LocalAddress> {
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let usable = |i: &&Interface| i.usable() && !i.loopback && wanted(&i.name);
    let mut addresses: Vec<_> = interfaces.iter().filter(usable).map(describe).collect();
    addresses.sort_by_key(|a| (a.point_to_point, Reverse(a.speed), a.addr.ip()));
    if wanted("lo") || wanted("loopback") {
        addresses.push(loopback(Ipv4Addr::LOCALHOST.into()));
        addresses.push(loopback(Ipv6Addr::LOCALHOST.into()));
    }
    addresses
}

fn describe(interface: &Interface) -> LocalAddress {
    LocalAddress {
        addr: interface.socket_addr(0),
        interface: interface.name.clone(),
        network: network_name(interface.addr, interface.prefix),
        comm: COMM,
        nic: Some(Arc::new(nic(interface))),
        speed: interface.speed.unwrap_or(0),
        point_to_point: interface.point_to_point,
    }
}

fn loopback(ip: IpAddr) -> LocalAddress {
    let prefix = if ip.is_ipv4() { 32 } else { 128 };
    LocalAddress {
        addr: SocketAddr::new(ip, 0),
        interface: "lo".to_owned(),
        network: network_name(ip, prefix),
        comm: Flags::LOCAL_COMM,
        nic: None,
        speed: 0,
        point_to_point: false,
    }
}

fn nic(interface: &Interface) -> Nic {
    Nic {
        device: DeviceAttr {
            name: Some(interface.name.clone()),
            ..DeviceAttr::default()
        },
        link: LinkAttr {
            address: Some(interface.addr.to_string()),
            mtu: interface.mtu.map_or(0, |mtu| mtu as usize),
            speed: interface
                .speed
                .map_or(0, |speed| usize::try_from(speed).unwrap_or(usize::MAX)),
            state: LinkState::Up,
            network_type: None,
        },
        ..Nic::default()
    }
}

/// The network of an address: `192.168.0.0/24`.
fn network_name(ip: IpAddr, prefix: u8) -> String {
    let network: IpAddr = match ip {
        IpAddr::V4(ip) => {
            let host_bits = 32_u32.saturating_sub(prefix.into());
            let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
            Ipv4Addr::from_bits(ip.to_bits() & mask).into()
        }
        IpAddr::V6(ip) => {
            let host_bits = 128_u32.saturating_sub(prefix.into());
            let mask = u128::MAX.checked_shl(host_bits).unwrap_or(0);
            Ipv6Addr::from_bits(ip.to_bits() & mask).into()
        }
    };
    format!("{network}/{prefix}")
}

/// The answers of an IP provider that makes this offer on the given local addresses.
///
/// A request that settles neither source nor peer is answered once for each address that
/// suits its hints; another one once, under the names of the interface of its source. Names
/// of fabric and domain in the offer are for answers that no interface names.
///
/// # Errors
/// The first attribute that does not fit, or that no interface has the name, the format or
/// the reach that is asked.
pub fn answers(
    request: &Request<'_>,
    offer: &Info,
    addresses: &[LocalAddress],
) -> Result<Vec<Info>, Mismatch> {
    // Names are those of interfaces, and so compared only when an interface is known.
    let mut unnamed = offer.clone();
    unnamed.domain.name = None;
    unnamed.fabric.name = None;
    let mut answer = request.answer(&unnamed)?;
    if request.lists_providers() {
        return Ok(vec![answer]);
    }
    answer.domain.name.clone_from(&offer.domain.name);
    answer.fabric.name.clone_from(&offer.fabric.name);
    let candidates: Vec<Info> = if answer.src_addr.is_none() && answer.dest_addr.is_none() {
        let suits = |local: &&LocalAddress| request.hints.is_none_or(|h| suits(local, h));
        addresses
            .iter()
            .filter(suits)
            .map(|local| place(&answer, local))
            .collect()
    } else {
        vec![name_by_source(answer, request.hints, addresses)]
    };
    if candidates.is_empty() {
        return Err(no_address(request.hints, addresses));
    }
    let Some(hints) = request.hints else {
        return Ok(candidates);
    };
    let (named, others): (Vec<_>, Vec<_>) = candidates
        .into_iter()
        .partition(|info| names_fit(info, hints));
    if named.is_empty() {
        Err(no_such_name(hints, &others))
    } else {
        Ok(named)
    }
}

/// Whether an address has the reach and the format of the hints.
fn suits(local: &LocalAddress, hints: &Hints) -> bool {
    family(hints.addr_format).is_some_and(|takes| takes(&local.addr))
        && local.comm.contains(hints.caps & COMM)
}

/// The answer at one local address.
fn place(answer: &Info, local: &LocalAddress) -> Info {
    let mut info = answer.clone();
    info.caps = (info.caps - COMM) | local.comm;
    info.src_addr = Some(Address::Ip(local.addr));
    info.addr_format = Address::Ip(local.addr).format();
    name(&mut info, local);
    info
}

fn name(info: &mut Info, local: &LocalAddress) {
    info.fabric.name = Some(local.network.clone());
    info.domain.name = Some(local.interface.clone());
    info.nic.clone_from(&local.nic);
}

/// Names an answer after the interface that has its source address, and gives it the reach of
/// that interface unless more is asked: an answer can be the hints of the next request. One whose source is any
/// address takes the name that is asked, if there is such an interface; otherwise it keeps
/// the names of the offer.
fn name_by_source(mut info: Info, hints: Option<&Hints>, addresses: &[LocalAddress]) -> Info {
    let source = info.src_addr.as_ref().and_then(Address::ip);
    let asked = hints.and_then(asked_domain);
    let has_source = |local: &&LocalAddress| match source {
        Some(any) if any.ip().is_unspecified() => {
            local.addr.is_ipv4() == any.is_ipv4()
                && asked.is_some_and(|asked| asked.eq_ignore_ascii_case(&local.interface))
        }
        Some(source) => local.addr.ip() == source.ip(),
        None => false,
    };
    if let Some(local) = addresses.iter().find(has_source) {
        name(&mut info, local);
        let asked = hints.map_or(Flags::empty(), |hints| hints.caps);
        info.caps -= COMM - (local.comm | asked);
    }
    info
}

fn fits(asked: Option<&str>, offered: Option<&str>) -> bool {
    match (asked, offered) {
        (Some(asked), Some(offered)) => asked.eq_ignore_ascii_case(offered),
        _ => true,
    }
}

fn asked_domain(hints: &Hints) -> Option<&str> {
    hints.domain.as_ref()?.name.as_deref()
}

fn asked_fabric(hints: &Hints) -> Option<&str> {
    hints.fabric.as_ref()?.name.as_deref()
}

fn names_fit(info: &Info, hints: &Hints) -> bool {
    fits(asked_domain(hints), info.domain.name.as_deref())
        && fits(asked_fabric(hints), info.fabric.name.as_deref())
}

fn no_such_name(hints: &Hints, others: &[Info]) -> Mismatch {
    let any_domain = others
        .iter()
        .any(|i| fits(asked_domain(hints), i.domain.name.as_deref()));
    type NameOf = fn(&Info) -> Option<&str>;
    let (group, asked, name): (_, _, NameOf) = match any_domain {
        true => (Group::Fabric, asked_fabric(hints), |info| {
            info.fabric.name.as_deref()
        }),
        false => (Group::Domain, asked_domain(hints), |info| {
            info.domain.name.as_deref()
        }),
    };
    let mut names: Vec<&str> = others.iter().filter_map(name).collect();
    names.dedup();
    Mismatch {
        group,
        attribute: "name",
        asked: asked.unwrap_or_default().to_owned(),
        offered: names.join(", "),
        remedy: "ask for one of those, or leave it NULL".to_owned(),
    }
}

fn no_address(hints: Option<&Hints>, addresses: &[LocalAddress]) -> Mismatch {
    let offered: Vec<String> = addresses
        .iter()
        .map(|local| format!("{} on {}", local.addr.ip(), local.interface))
        .collect();
    let offered = match offered.is_empty() {
        true => "no interface".to_owned(),
        false => offered.join(", "),
    };
    let (asked, remedy) = match hints {
        Some(hints) => (
            format!(
                "{}, {}",
                hints.addr_format.c_names(),
                (hints.caps & COMM).c_names()
            ),
            "ask for another addr_format or less of FI_LOCAL_COMM and FI_REMOTE_COMM, \
             or unset the variable that selects the interface (FI_TCP_IFACE, FI_VERBS_IFACE)",
        ),
        None => (
            "any".to_owned(),
            "unset the variable that selects the interface (FI_TCP_IFACE, FI_VERBS_IFACE)",
        ),
    };
    Mismatch {
        group: Group::Info,
        attribute: "addr_format, caps",
        asked,
        offered,
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests;
