//! How tests of this provider ask for their interface.

#[allow(dead_code, reason = "each test file uses its part")]
#[path = "../../../conformance/src/rig/port.rs"]
mod port;

use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::provider::Provider;
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

/// The same, and its fabric.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn fabric<P: Provider + ProviderInfo>(
    provider: &P,
    hints: &Hints,
) -> (Info, Arc<P::Fabric>) {
    let info = first(provider, hints);
    let fabric = provider.fabric(&info.fabric).unwrap();
    (info, fabric)
}

/// An address where nobody listens.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn nobody() -> Address {
    Address::Ip(port::free_port())
}
