//! What the tests share.

#![allow(
    dead_code,
    unreachable_pub,
    unused_macros,
    reason = "each test file uses its part"
)]

#[path = "../../../conformance/src/rig/port.rs"]
mod port;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ripstop::{Address, Domain, Endpoint, Errno, Hints, Peer, Progress, SendMsg};

/// Longer than anything here takes.
pub const LONG: Duration = Duration::from_secs(60);

pub fn local() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Makes a test of each function for each provider: `tcp::name` and `shm::name`.
#[macro_export]
macro_rules! on_both {
    ($($name:ident),+ $(,)?) => {
        #[cfg(feature = "tcp")]
        mod tcp {
            $(#[test]
            fn $name() {
                super::$name("tcp");
            })+
        }

        #[cfg(feature = "shm")]
        mod shm {
            $(#[test]
            fn $name() {
                super::$name("shm");
            })+
        }
    };
}

/// An IP address where nobody listens.
pub fn nobody() -> SocketAddr {
    port::free_port()
}

/// An address of a provider where nobody is.
pub fn nobody_on(on: &str) -> Address {
    match on {
        "shm" => "fi_shm://nobody:0:0".parse().unwrap(),
        _ => nobody().into(),
    }
}

/// What asks for unconnected endpoints of a provider.
pub fn hints(on: &str) -> Hints {
    let hints = Hints::rdm().provider(on);
    match on {
        "shm" => hints,
        _ => hints.source(local()),
    }
}

pub fn rdm(on: &str, progress: Progress) -> Domain {
    hints(on).progress(progress).open().unwrap()
}

pub fn msg(progress: Progress) -> Domain {
    let hints = Hints::msg().provider("tcp").source(local());
    hints.progress(progress).open().unwrap()
}

/// An endpoint and the other one as its peer.
pub type Side = (Endpoint, Peer);

/// Two endpoints that know each other, each in a domain of its own.
pub fn pair(on: &str, progress: Progress) -> (Side, Side) {
    let (a, b) = (rdm(on, progress), rdm(on, progress));
    between(&a, &b)
}

/// Two endpoints of these domains that know each other.
pub fn between(a: &Domain, b: &Domain) -> (Side, Side) {
    let (left, right) = (a.endpoint().unwrap(), b.endpoint().unwrap());
    let to_right = a.insert(right.address().unwrap()).unwrap();
    let to_left = b.insert(left.address().unwrap()).unwrap();
    ((left, to_right), (right, to_left))
}

/// Injects as soon as there is room and a connection.
pub fn inject((ep, to): &Side, bytes: &[u8], msg: SendMsg) {
    let end = Instant::now() + LONG;
    while let Err(error) = ep.injectmsg(bytes, *to, msg) {
        assert_eq!(error.errno(), Errno::EAGAIN);
        assert!(Instant::now() < end);
    }
}

/// Bytes that differ from message to message.
pub fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i * 31 + seed * 7 + i / 251) as u8)
        .collect()
}
