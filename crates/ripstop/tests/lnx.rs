//! Which way the provider lnx reaches a peer, as the system's list of Unix sockets tells.

#![cfg(feature = "lnx")]

mod common;

use std::net::SocketAddr;

use common::{LONG, hints, pattern, rdm};
use ripstop::{Address, Domain, Endpoint, Progress, Source};

/// Connections that were accepted at the Unix socket of an endpoint of lnx: each has the name of the
/// socket that listens, which counts as well.
fn accepted_through_shm(at: &Endpoint) -> usize {
    let Address::Ip(addr) = at.address().unwrap() else {
        panic!("an address of the network")
    };
    let name = format!("lnx/{addr}");
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let named = sockets.lines().filter(|line| line.ends_with(&name));
    named.count().saturating_sub(1)
}

/// A message each way.
fn exchange((one, a): &(Domain, Endpoint), (other, b): &(Domain, Endpoint)) {
    let to_b = one.insert(b.address().unwrap()).unwrap();
    let to_a = other.insert(a.address().unwrap()).unwrap();
    for (from, to, at, source) in [(a, to_b, b, to_a), (b, to_a, a, to_b)] {
        for size in [8, 5000, 100_000, 1 << 20] {
            let sent = pattern(size, size);
            let receive = at.trecv(vec![0; size], 3, 0, None);
            let send = from.tsend(sent.clone(), 3, to);
            let (outcome, buf) = receive.wait_timeout(LONG).unwrap();
            assert_eq!(outcome.unwrap().source, Source::Peer(source));
            assert!(buf == sent, "{size} bytes");
            send.wait().0.unwrap();
        }
    }
}

fn open(on: &str) -> (Domain, Endpoint) {
    let domain = rdm(on, Progress::Background);
    let endpoint = domain.endpoint().unwrap();
    (domain, endpoint)
}

#[test]
fn a_peer_of_this_machine_is_reached_through_shm() {
    let (a, b) = (open("lnx"), open("lnx"));
    exchange(&a, &b);
    assert_eq!(accepted_through_shm(&a.1) + accepted_through_shm(&b.1), 1);
}

#[test]
fn an_endpoint_at_all_addresses_is_reached_through_shm() {
    let anywhere: SocketAddr = ([0, 0, 0, 0], 0).into();
    let domain = hints("lnx").source(anywhere).open().unwrap();
    let a = domain.endpoint().unwrap();
    let Address::Ip(bound) = a.address().unwrap() else {
        panic!("an address of the network")
    };
    let (other, b) = open("lnx");
    let to_a = SocketAddr::from(([127, 0, 0, 1], bound.port()));
    let to_a = other.insert(to_a).unwrap();
    let receive = a.trecv(vec![0; 8], 3, 0, None);
    b.tsend(vec![7; 8], 3, to_a).wait().0.unwrap();
    assert_eq!(receive.wait_timeout(LONG).unwrap().1, [7; 8]);
    assert_eq!(accepted_through_shm(&a), 1);
}

#[test]
fn peers_of_tcp_are_reached_through_tcp() {
    let (a, b) = (open("lnx"), open("tcp"));
    exchange(&a, &b);
    assert_eq!(accepted_through_shm(&a.1), 0);
    // The other one connects first.
    let (a, b) = (open("tcp"), open("lnx"));
    exchange(&a, &b);
    assert_eq!(accepted_through_shm(&b.1), 0);
}
