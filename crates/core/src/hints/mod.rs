//! Hint negotiation: does what a provider offers meet what a caller asks, and what exactly
//! does the caller then get (man page `fi_getinfo(3)`)?
//!
//! [`negotiate`] answers both. The rules are those of libfabric 2.6, with these differences,
//! each in the caller's favour:
//!
//! * A refusal says which attribute, what was asked, what is offered and what to change.
//! * The withdrawn threading levels `FI_THREAD_FID` and `FI_THREAD_ENDPOINT` are accepted by
//!   providers that are thread safe.
//! * A domain or fabric name is compared here and not after the fact.
//! * `FI_REMOTE_READ` and `FI_REMOTE_WRITE`, when asked for by name, are never dropped
//!   quietly because of `mr_mode`: the answer is then the mismatch of `mr_mode`.
//! * Capabilities of a context are of its own side, and have no direction that the interface
//!   as a whole lacks.

mod address;
mod context;
mod domain;
mod echo;
mod endpoint;
mod fabric;
mod mismatch;
mod mr;
#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;

pub use address::{Original, Request};
pub use fabric::ProviderName;
pub use mismatch::{Group, Mismatch};

use ripstop_types::{AddrFormat, Flags, Version};

use crate::caps;
use crate::info::{Hints, Info};
use mismatch::Checks;

/// Checks every attribute of an offer against the hints and returns all that do not fit;
/// nothing when the offer meets the hints.
#[must_use]
pub fn check(offer: &Info, hints: &Hints, version: Version) -> Vec<Mismatch> {
    let mut found = Vec::new();
    if let Some(ep) = &hints.ep {
        endpoint::check_type(&offer.ep, ep, &mut found);
    }
    check_info(offer, hints, version, &mut found);
    if let Some(fabric) = &hints.fabric {
        fabric::check(&offer.fabric, fabric, &mut found);
    }
    domain::check(offer, hints, version, &mut found);
    if let Some(ep) = &hints.ep {
        endpoint::check(offer, ep, hints, &mut found);
    }
    context::check_rx(&offer.rx, hints, &mut found);
    context::check_tx(&offer.tx, hints, &mut found);
    found
}

/// Checks what an endpoint is opened with: the capabilities, and the attributes of its contexts. Returns all that are more
/// than the offer has.
#[must_use]
pub fn check_opened(offer: &Info, info: &Info) -> Vec<Mismatch> {
    let hints = Hints {
        caps: info.caps,
        tx: Some(info.tx.clone()),
        rx: Some(info.rx.clone()),
        ..Hints::default()
    };
    let mut found = Vec::new();
    let mut checks = Checks::new(Group::Info, &mut found);
    checks.within("caps", hints.caps, offer.caps);
    context::check_rx(&offer.rx, &hints, &mut found);
    context::check_tx(&offer.tx, &hints, &mut found);
    found
}

/// Turns an offer into the answer to the hints: narrows capabilities, echoes what the caller
/// chose, fills in defaults. The offer must have passed [`check`]; without hints the caller
/// gets the offer with its defaults.
pub fn adapt(info: &mut Info, hints: Option<&Hints>, version: Version) {
    info.caps = enabled_caps(info, hints, version);
    mr::adapt_mode(info, hints, version);
    if let Some(hints) = hints {
        info.handle.clone_from(&hints.handle);
    }
    domain::adapt(info, hints, version);
    endpoint::adapt(&mut info.ep, hints, info.caps);
    context::adapt_rx(&mut info.rx, hints.and_then(|h| h.rx.as_ref()), info.caps);
    context::adapt_tx(&mut info.tx, hints.and_then(|h| h.tx.as_ref()), info.caps);
    info.fabric.api_version = version;
}

/// The answer to the hints, if the offer meets them.
///
/// # Errors
/// The first [`Mismatch`]; [`check`] gives all of them.
pub fn negotiate(offer: &Info, hints: Option<&Hints>, version: Version) -> Result<Info, Mismatch> {
    if let Some(hints) = hints
        && let Some(first) = check(offer, hints, version).into_iter().next()
    {
        return Err(first);
    }
    let mut info = offer.clone();
    adapt(&mut info, hints, version);
    Ok(info)
}

fn check_info(offer: &Info, hints: &Hints, version: Version, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Info, found);
    checks.within("caps", hints.caps, offer.caps);
    checks.promises("mode", hints.mode, mr::required_mode(offer, hints, version));
    if !accepts_format(offer.addr_format, hints.addr_format) {
        checks.same("addr_format", hints.addr_format, offer.addr_format);
    }
}

/// Capabilities of the answer: those asked, less those of a target when the caller will not
/// register memory as a target must.
fn enabled_caps(offer: &Info, hints: Option<&Hints>, version: Version) -> Flags {
    let Some(hints) = hints else {
        return offer.caps;
    };
    let caps = caps::enabled(offer.caps, hints.caps, offer.caps);
    if mr::serves_as_target(offer, hints, caps, version) {
        caps
    } else {
        caps - (Flags::REMOTE_READ | Flags::REMOTE_WRITE)
    }
}

/// Whether a provider that takes addresses of `offered` can take those of `asked`.
fn accepts_format(offered: AddrFormat, asked: AddrFormat) -> bool {
    use AddrFormat::{Sockaddr, SockaddrIb, SockaddrIn, SockaddrIn6, SockaddrIp, Unspec};
    if offered == Unspec || asked == Unspec || offered == asked {
        return true;
    }
    match offered {
        Sockaddr => matches!(asked, SockaddrIp | SockaddrIn | SockaddrIn6 | SockaddrIb),
        SockaddrIp => matches!(asked, Sockaddr | SockaddrIn | SockaddrIn6),
        SockaddrIn | SockaddrIn6 => matches!(asked, Sockaddr | SockaddrIp),
        SockaddrIb => asked == Sockaddr,
        _ => false,
    }
}
