use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ripstop_core::hints::Request;
use ripstop_core::provider::{
    AddressVector, AvAttr, CompletionQueue, CqAttr, Domain as _, Endpoint as _, Fabric as _,
    Provider as _, RecvKind, SendKind, Token,
};
use ripstop_core::registry::ProviderInfo as _;
use ripstop_core::{DomainAttr, EpAttr, Hints, Info, TxAttr};
use ripstop_mem::Parked;
use ripstop_os::Socket;
use ripstop_types::{EpType, FiAddr, Flags, Progress, Threading, Version};

use crate::TcpProvider;

fn info(provider: &TcpProvider, domain: u32, tx: u32, node: &str) -> Option<Info> {
    let hints = Hints {
        caps: Flags::MSG,
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        tx: Some(TxAttr {
            tclass: tx,
            ..TxAttr::default()
        }),
        domain: Some(DomainAttr {
            tclass: domain,
            ..DomainAttr::driven(Threading::Domain, Progress::Manual)
        }),
        ..Hints::default()
    };
    let request = Request {
        version: Version::CURRENT,
        node: Some(node),
        flags: Flags::SOURCE,
        hints: Some(&hints),
        ..Request::default()
    };
    provider.getinfo(&request).infos.into_iter().next()
}

/// The type of service of the sockets of an endpoint that has sent itself a message.
fn tos_of(domain: u32, tx: u32, node: &str) -> Vec<u8> {
    look(domain, tx, node, |socket| socket.tos().unwrap())
}

/// What `each` says of the sockets of an endpoint that has sent itself a message.
fn look<R>(domain: u32, tx: u32, node: &str, each: fn(&Socket) -> R) -> Vec<R> {
    let provider = TcpProvider::new();
    let info = info(&provider, domain, tx, node).expect("an RDM interface");
    assert_eq!((info.domain.tclass, info.tx.tclass), (domain, tx));
    let fabric = provider.fabric(&info.fabric).unwrap();
    let domain = fabric.serial_domain(&info).unwrap();
    let cq = domain.cq(&CqAttr::default()).unwrap();
    let av = domain.av(&AvAttr::default()).unwrap();
    let ep = domain.endpoint(&info, Token(0)).unwrap();
    ep.bind_cq(&cq, Flags::SEND | Flags::RECV).unwrap();
    ep.bind_av(&av).unwrap();
    ep.enable().unwrap();
    let to = av.insert(&ep.name().unwrap()).unwrap();
    let [text, room] = [Parked::park(vec![1; 4]), Parked::park(vec![0; 4])];
    let (recv, any) = (RecvKind::Msg, FiAddr::UNSPEC);
    ep.recv(recv, &[room.buf()], any, 1, None).unwrap();
    ep.send(SendKind::Msg, &[text.buf()], None, to, 2, None)
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut done = 0;
    while done < 2 {
        done += cq.read(2, |_| ()).unwrap_or_default();
        assert!(Instant::now() < end, "the message does not arrive");
    }
    let links = domain.links();
    let found = links.iter().map(|link| each(&link.0)).collect();
    drop(links);
    drop(ep);
    found
}

#[test]
fn packets_carry_the_class_of_the_endpoint_else_of_the_domain() {
    const DSCP_34: u32 = 0x100 | 34;
    const LOW_LATENCY: u32 = 0x201;
    for (domain, tx, expected) in [
        (0, 0, 0),
        (0, DSCP_34, 34 << 2),
        (DSCP_34, 0, 34 << 2),
        (DSCP_34, LOW_LATENCY, 18 << 2),
    ] {
        let found = tos_of(domain, tx, "127.0.0.1");
        assert_eq!(found, [expected, expected], "{domain:#x}, {tx:#x}");
    }
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(tos_of(0, DSCP_34, "::1"), [34 << 2; 2]);
    }
}

#[test]
fn connections_within_this_machine_use_reno() {
    let congestion = |socket: &Socket| socket.congestion().unwrap();
    assert_eq!(look(0, 0, "127.0.0.1", congestion), ["reno"; 2]);
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        assert_eq!(look(0, 0, "::1", congestion), ["reno"; 2]);
    }
    // An address that others reach too, where there is one.
    let all = crate::params::Params::read().addresses().unwrap();
    if let Some(local) = all.iter().find(|local| !local.addr.ip().is_loopback()) {
        let node = local.addr.ip().to_string();
        assert_eq!(look(0, 0, &node, congestion), ["reno"; 2], "{node}");
    }
    let elsewhere = SocketAddr::from(([192, 0, 2, 7], 9));
    let socket = Socket::tcp_for(&elsewhere, None).unwrap();
    let before = congestion(&socket);
    super::tune_if_local(&socket, &elsewhere);
    assert_eq!(congestion(&socket), before);
}

#[test]
fn a_number_that_is_no_class_is_not_offered() {
    let provider = TcpProvider::new();
    for class in [0x100 | 64, 0x206, 7] {
        assert!(info(&provider, class, 0, "127.0.0.1").is_none());
        assert!(info(&provider, 0, class, "127.0.0.1").is_none());
    }
}
