//! What the tests share.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

#[path = "../../../conformance/src/rig/port.rs"]
mod port;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ripstop::{Domain, Endpoint, Hints, Peer, Progress};

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(60);

pub fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// An address where nobody listens.
pub fn nobody() -> SocketAddr {
    port::free_port()
}

pub fn rdm(progress: Progress) -> Domain {
    let hints = Hints::rdm().provider("tcp").source(local());
    hints.progress(progress).open().unwrap()
}

pub fn msg(progress: Progress) -> Domain {
    let hints = Hints::msg().provider("tcp").source(local());
    hints.progress(progress).open().unwrap()
}

/// An endpoint and the other one as its peer.
pub type Side = (Endpoint, Peer);

/// Two endpoints that know each other, each in a domain of its own.
pub fn pair(progress: Progress) -> (Side, Side) {
    let (a, b) = (rdm(progress), rdm(progress));
    let (left, right) = (a.endpoint().unwrap(), b.endpoint().unwrap());
    let to_right = a.insert(right.address().unwrap()).unwrap();
    let to_left = b.insert(left.address().unwrap()).unwrap();
    ((left, to_right), (right, to_left))
}

/// Bytes that differ from message to message.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 251) as u8)
        .collect()
}
