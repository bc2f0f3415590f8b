//! Free ports. Tests of other crates include this file.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// An address of this host where nobody listens. Its port is below those that the system gives to
/// whoever asks for any, so that nobody else gets it meanwhile.
pub(crate) fn free_port() -> SocketAddr {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let spread = std::process::id().wrapping_mul(61).wrapping_add(number) % 20_000;
        let port = 10_000 + u16::try_from(spread).unwrap_or(0);
        if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
            return SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        }
    }
}
