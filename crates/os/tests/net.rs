//! Interfaces and names.

mod common;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use common::V6;
use ripstop_os::Socket;
use ripstop_os::net::{OperState, interfaces, is_local, resolve};
use ripstop_types::Errno;

#[test]
fn the_loopback_interface_is_there() {
    let all = interfaces().unwrap();
    let lo = all
        .iter()
        .find(|i| i.addr == IpAddr::V4(Ipv4Addr::LOCALHOST))
        .expect("127.0.0.1 on an interface");
    assert!(lo.loopback && lo.up && lo.running && !lo.point_to_point);
    assert!(lo.usable());
    assert_ne!(lo.oper_state, OperState::Down);
    assert_eq!((lo.prefix, lo.scope_id, lo.speed), (8, 0, None));
    assert!(lo.mtu.is_none_or(|mtu| mtu >= 1500));
    assert_eq!(lo.socket_addr(9), "127.0.0.1:9".parse().unwrap());
}

#[test]
fn every_address_is_local_and_can_be_bound() {
    for interface in interfaces().unwrap() {
        let bits = if interface.addr.is_ipv4() { 32 } else { 128 };
        assert!(interface.prefix <= bits, "{interface:?}");
        assert!(!interface.name.is_empty());
        assert_eq!(is_local(interface.addr), Ok(true));
        // A link-local address needs its zone; an address on its way to be unique is not
        // ready yet, which only an interface that is up can have behind it.
        let bound = Socket::tcp_bound(&interface.socket_addr(0), None);
        assert!(
            bound.is_ok() || !interface.usable(),
            "{interface:?}: {bound:?}"
        );
    }
}

#[test]
fn whose_address_it_is() {
    for (addr, local) in [
        ("127.0.0.1", true),
        ("127.9.8.7", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("192.0.2.77", false),
        ("2001:db8::77", false),
        ("0.0.0.0", false),
    ] {
        assert_eq!(is_local(addr.parse().unwrap()), Ok(local), "{addr}");
    }
}

fn one(addr: &str) -> Vec<SocketAddr> {
    vec![addr.parse().unwrap()]
}

#[test]
fn numbers_need_no_name_service() {
    let resolve = |node, service| resolve(Some(node), service, true, false);
    assert_eq!(resolve("192.0.2.1", None), Ok(one("192.0.2.1:0")));
    assert_eq!(
        resolve("192.0.2.1", Some("4711")),
        Ok(one("192.0.2.1:4711"))
    );
    assert_eq!(
        resolve("2001:db8::1", Some("1")),
        Ok(one("[2001:db8::1]:1"))
    );
    // A name is refused without asking anybody: one that is known here as well.
    for name in ["localhost", "no-such-host.example.com", ""] {
        assert_eq!(resolve(name, Some("1")), Err(Errno::ENODATA), "{name}");
    }
}

#[test]
fn zones_are_understood() {
    let Some(link_local) = interfaces().unwrap().into_iter().find(|i| i.scope_id != 0) else {
        eprintln!("SKIP: no link-local IPv6 address on this machine");
        return;
    };
    let node = format!("{}%{}", link_local.addr, link_local.name);
    let addrs = resolve(Some(&node), Some("5"), true, false).unwrap();
    assert_eq!(addrs, [link_local.socket_addr(5)]);
}

#[test]
fn names_of_hosts_and_services() {
    let addrs = resolve(Some("localhost"), None, false, false).unwrap();
    assert!(addrs.iter().all(|addr| addr.ip().is_loopback()));
    if !std::path::Path::new("/etc/services").exists() {
        eprintln!("SKIP: no /etc/services on this machine");
        return;
    }
    let http = resolve(Some("192.0.2.1"), Some("http"), true, false);
    assert_eq!(http, Ok(one("192.0.2.1:80")));
}

#[test]
fn without_a_node() {
    let to_reach = resolve(None, Some("7471"), false, false).unwrap();
    assert!(to_reach.contains(&"127.0.0.1:7471".parse().unwrap()));
    assert!(to_reach.iter().all(|addr| addr.ip().is_loopback()));
    let to_listen = resolve(None, Some("7471"), false, true).unwrap();
    assert!(to_listen.contains(&(Ipv4Addr::UNSPECIFIED, 7471).into()));
    if Socket::tcp_bound(&V6, None).is_ok() {
        assert!(to_listen.contains(&(Ipv6Addr::UNSPECIFIED, 7471).into()));
    }
}

#[test]
fn what_cannot_be_resolved() {
    assert_eq!(resolve(None, None, false, true), Err(Errno::EINVAL));
    let nul = resolve(Some("a\0b"), None, false, false);
    assert_eq!(nul, Err(Errno::EINVAL));
    for service in ["no-such-service", "-", "99 999"] {
        let result = resolve(Some("192.0.2.1"), Some(service), true, false);
        assert_eq!(result, Err(Errno::ENODATA), "{service}");
    }
}
