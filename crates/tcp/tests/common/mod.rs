//! How tests of this provider, unit tests too, ask for their interface.

use ripstop_core::hints::Request;
use ripstop_core::registry::ProviderInfo;
use ripstop_core::{DomainAttr, EpAttr, Hints, Info};
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
        domain: Some(DomainAttr::driven(threading, progress)),
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
