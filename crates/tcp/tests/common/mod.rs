//! How tests of this provider ask for their interface.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

use ripstop_core::hints::Request;
use ripstop_core::registry::ProviderInfo;
use ripstop_core::{Address, DomainAttr, EpAttr, Hints, Info};
use ripstop_types::{EpType, Flags, Progress, Threading, Version};

/// Hints for an endpoint of this kind; what else they say is the caller's.
pub(crate) fn hints(
    ep_type: EpType,
    caps: Flags,
    threading: Threading,
    progress: Progress,
) -> Hints {
    Hints {
        caps,
        ep: Some(EpAttr {
            ep_type,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading,
            progress,
            control_progress: progress,
            ..DomainAttr::default()
        }),
        ..Hints::default()
    }
}

/// The first interface of this machine that matches, at a loopback address.
pub(crate) fn first<P: ProviderInfo>(provider: &P, hints: &Hints) -> Info {
    let request = Request {
        version: Version::CURRENT,
        node: Some("127.0.0.1"),
        flags: Flags::SOURCE,
        hints: Some(hints),
        ..Request::default()
    };
    let answer = provider.getinfo(&request);
    answer.infos.into_iter().next().expect("an interface")
}

/// An address where nobody listens. Its port is below those that the system gives to whoever asks
/// for any, so that nobody else gets it meanwhile.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn nobody() -> Address {
    static TAKEN: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = TAKEN.fetch_add(1, Ordering::Relaxed);
        let spread = std::process::id().wrapping_mul(61).wrapping_add(number) % 20_000;
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 10_000 + spread as u16));
        if TcpListener::bind(addr).is_ok() {
            return Address::Ip(addr);
        }
    }
}
