//! What all examples have in common: finding a device's offer, reading a completion.

use std::time::Duration;

use ripstop_core::hints::Request;
use ripstop_core::provider::CompletionQueue;
use ripstop_core::registry::ProviderInfo;
use ripstop_core::{Address, DomainAttr, EpAttr, Hints, Info};
use ripstop_types::{Completion, CompletionError, EpType, Errno, Flags, Mode, MrMode, Version};

/// What is offered now for endpoints of this type with these capabilities, but for addresses of IPv6.
pub(crate) fn infos(provider: &impl ProviderInfo, ep_type: EpType, caps: Flags) -> Vec<Info> {
    let hints = Hints {
        caps,
        mode: Mode::MSG_PREFIX | Mode::RX_CQ_DATA,
        ep: Some(EpAttr {
            ep_type,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            mr_mode: MrMode::LOCAL | MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let answer = provider.getinfo(&Request {
        version: Version::CURRENT,
        hints: Some(&hints),
        flags: Flags::RESCAN,
        ..Request::default()
    });
    assert!(!answer.infos.is_empty(), "no offer: {:?}", answer.refusals);
    let v6 = |info: &Info| matches!(info.src_addr, Some(Address::Ip(addr)) if addr.is_ipv6());
    answer.infos.into_iter().filter(|info| !v6(info)).collect()
}

/// How an operation has failed, and what the provider says of that.
pub(crate) type Failure = (CompletionError, Vec<u8>);

/// The next completion of a queue, waited for that long if so said.
pub(crate) fn next(
    cq: &impl CompletionQueue,
    patience: Option<Duration>,
) -> Option<Result<Completion, Failure>> {
    let mut found = None;
    let note = |entry: &Completion| found = Some(*entry);
    let read = match patience {
        None => cq.read(1, note),
        Some(_) => cq.sread(1, 1, patience, note),
    };
    match read {
        Ok(_) => found.map(Ok),
        Err(Errno::EAGAIN) => None,
        Err(Errno::EAVAIL) => {
            let mut failure = None;
            let read = cq.read_error(|error, about| failure = Some((*error, about.to_vec())));
            read.expect("an error");
            failure.map(Err)
        }
        Err(error) => panic!("no completion: {error}"),
    }
}
