use ripstop_os::net::OperState;
use ripstop_types::{AddrFormat, Version};

use super::*;
use crate::attr::{DomainAttr, FabricAttr};

fn interface(name: &str, addr: &str, prefix: u8, speed: Option<u64>) -> Interface {
    Interface {
        name: name.to_owned(),
        addr: addr.parse().unwrap(),
        prefix,
        scope_id: 0,
        up: true,
        running: true,
        loopback: false,
        point_to_point: false,
        oper_state: OperState::Up,
        mtu: Some(1500),
        speed,
    }
}

fn machine() -> Vec<Interface> {
    let mut tunnel = interface("tun0", "10.8.0.2", 32, Some(100_000_000_000));
    tunnel.point_to_point = true;
    let mut down = interface("eth2", "10.2.0.1", 8, Some(1));
    down.running = false;
    let mut lo = interface("lo", "127.0.0.1", 8, None);
    lo.loopback = true;
    vec![
        lo,
        tunnel,
        interface("eth0", "192.168.7.9", 24, Some(1_000_000_000)),
        interface("eth1", "fd00::7", 64, Some(10_000_000_000)),
        interface("eth1", "10.1.2.3", 20, Some(10_000_000_000)),
        down,
    ]
}

fn offer() -> Info {
    Info {
        caps: Flags::MSG | COMM,
        addr_format: AddrFormat::SockaddrIp,
        domain: DomainAttr {
            caps: COMM,
            ..DomainAttr::default()
        },
        fabric: FabricAttr {
            prov_name: Some("tcp".into()),
            ..FabricAttr::default()
        },
        ..Info::default()
    }
}

fn request(hints: &Hints) -> Request<'_> {
    Request {
        version: Version::CURRENT,
        hints: Some(hints),
        ..Request::default()
    }
}

fn domains(infos: &[Info]) -> Vec<&str> {
    infos
        .iter()
        .filter_map(|info| info.domain.name.as_deref())
        .collect()
}

#[test]
fn fast_links_come_first_and_loopback_last() {
    let local = local_addresses(&machine(), None);
    let names: Vec<_> = local
        .iter()
        .map(|l| (l.interface.as_str(), l.network.as_str()))
        .collect();
    let expected = [
        ("eth1", "10.1.0.0/20"),
        ("eth1", "fd00::/64"),
        ("eth0", "192.168.7.0/24"),
        ("tun0", "10.8.0.2/32"),
        ("lo", "127.0.0.1/32"),
        ("lo", "::1/128"),
    ];
    assert_eq!(names, expected);
    assert_eq!(local[0].nic.as_ref().unwrap().link.mtu, 1500);
    let only = local_addresses(&machine(), Some("eth0"));
    assert_eq!(only.len(), 1);
    assert_eq!(local_addresses(&machine(), Some("lo")).len(), 2);
}

#[test]
fn every_address_that_suits_is_an_answer() {
    let local = local_addresses(&machine(), None);
    let all = answers(
        &Request {
            version: Version::CURRENT,
            ..Request::default()
        },
        &offer(),
        &local,
    );
    assert_eq!(all.unwrap().len(), local.len());

    let mut hints = Hints {
        caps: Flags::MSG,
        addr_format: AddrFormat::SockaddrIn,
        ..Hints::default()
    };
    let v4 = answers(&request(&hints), &offer(), &local).unwrap();
    assert_eq!(domains(&v4), ["eth1", "eth0", "tun0", "lo"]);
    assert_eq!(
        v4[0].src_addr.as_ref().unwrap().to_string(),
        "fi_sockaddr_in://10.1.2.3:0"
    );
    assert_eq!(v4[0].addr_format, AddrFormat::SockaddrIn);
    assert_eq!(v4[0].fabric.name.as_deref(), Some("10.1.0.0/20"));
    assert!(!v4[3].caps.contains(Flags::REMOTE_COMM));

    hints.caps |= COMM;
    let remote = answers(&request(&hints), &offer(), &local).unwrap();
    assert_eq!(domains(&remote), ["eth1", "eth0", "tun0"]);
}

#[test]
fn names_select_and_refusals_list_them() {
    let local = local_addresses(&machine(), None);
    let named = |name: &str| Hints {
        domain: Some(DomainAttr {
            name: Some(name.to_owned()),
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let hints = named("ETH0");
    assert_eq!(
        domains(&answers(&request(&hints), &offer(), &local).unwrap()),
        ["eth0"]
    );
    let hints = named("eth9");
    let why = answers(&request(&hints), &offer(), &local).unwrap_err();
    assert_eq!(
        (why.group, why.offered.as_str()),
        (Group::Domain, "eth1, eth0, tun0, lo")
    );
    let hints = Hints {
        fabric: Some(FabricAttr {
            name: Some("1.0.0.0/8".into()),
            ..FabricAttr::default()
        }),
        ..Hints::default()
    };
    assert_eq!(
        answers(&request(&hints), &offer(), &local)
            .unwrap_err()
            .group,
        Group::Fabric
    );
}

#[test]
fn a_source_names_its_interface() {
    let local = local_addresses(&machine(), None);
    let base = Request {
        version: Version::CURRENT,
        flags: Flags::SOURCE | Flags::NUMERICHOST,
        service: Some("7471"),
        ..Request::default()
    };
    let own = Request {
        node: Some("192.168.7.9"),
        ..base
    };
    let infos = answers(&own, &offer(), &local).unwrap();
    assert_eq!(domains(&infos), ["eth0"]);
    assert_eq!(
        infos[0].src_addr.as_ref().unwrap().to_string(),
        "fi_sockaddr_in://192.168.7.9:7471"
    );
    let mut fallback = offer();
    fallback.domain.name = Some("tcp".into());
    assert_eq!(
        domains(&answers(&base, &fallback, &local).unwrap()),
        ["tcp"]
    );
    let hints = Hints {
        domain: Some(DomainAttr {
            name: Some("eth0".into()),
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let asked = Request {
        hints: Some(&hints),
        ..base
    };
    assert_eq!(
        domains(&answers(&asked, &fallback, &local).unwrap()),
        ["eth0"]
    );
    let elsewhere = Request {
        node: Some("10.1.2.3"),
        ..asked
    };
    assert_eq!(
        answers(&elsewhere, &fallback, &local).unwrap_err().offered,
        "eth1"
    );
    let peer = Request {
        node: Some("127.0.0.1"),
        flags: Flags::NUMERICHOST,
        ..base
    };
    assert_eq!(domains(&answers(&peer, &offer(), &local).unwrap()), ["lo"]);
}

#[test]
fn no_interface_is_said_so() {
    let local = local_addresses(&machine(), Some("eth1"));
    let hints = Hints {
        addr_format: AddrFormat::SockaddrIn,
        caps: Flags::MSG,
        ..Hints::default()
    };
    assert_eq!(
        answers(&request(&hints), &offer(), &local).unwrap().len(),
        1
    );
    let none = local_addresses(&machine(), Some("eth7"));
    let why = answers(&request(&hints), &offer(), &none).unwrap_err();
    assert!(why.to_string().contains("no interface"), "{why}");
}
