//! Domain attributes (man page `fi_domain(3)`).

use ripstop_types::{AvType, Flags, Progress, ResourceMgmt, Threading, Version};

use super::mismatch::{Checks, Group, Mismatch};
use super::{fabric, mr};
use crate::attr::{AUTH_KEY_PER_AV, DomainAttr};
use crate::caps;
use crate::info::{Hints, Info};

const V1_5: Version = Version::new(1, 5);
const V1_20: Version = Version::new(1, 20);
const V2_5: Version = Version::new(2, 5);

/// Threading levels by how much the caller serialises. A provider that asks for little
/// serves every caller that does as much or more.
const fn threading_rank(level: Threading) -> u8 {
    match level {
        Threading::Safe => 0,
        Threading::Fid => 1,
        Threading::Endpoint => 2,
        Threading::Completion => 3,
        Threading::Domain => 4,
        Threading::Unspec => 5,
    }
}

/// Progress models by how much the caller does.
const fn progress_rank(model: Progress) -> u8 {
    match model {
        Progress::Auto => 0,
        Progress::Manual => 1,
        Progress::ControlUnified => 2,
        Progress::Unspec => 3,
    }
}

/// Resource management by how much the caller does.
const fn resource_rank(model: ResourceMgmt) -> u8 {
    match model {
        ResourceMgmt::Enabled => 0,
        ResourceMgmt::Disabled => 1,
        ResourceMgmt::Unspec => 2,
    }
}

/// Checks the domain group, and of the interface what belongs to a domain even when the
/// hints have no such group.
pub(super) fn check(offer: &Info, hints: &Hints, version: Version, found: &mut Vec<Mismatch>) {
    let absent = DomainAttr::default();
    let Some(asked) = &hints.domain else {
        if hints
            .caps
            .intersects(Flags::REMOTE_READ | Flags::REMOTE_WRITE)
            && version >= V1_5
        {
            mr::check(offer, &absent, hints, version, found);
        }
        return;
    };
    let mut checks = Checks {
        group: Group::Domain,
        found,
    };
    check_models(&mut checks, &offer.domain, asked);
    checks.size("mr_key_size", asked.mr_key_size, offer.domain.mr_key_size);
    checks.size(
        "cq_data_size",
        asked.cq_data_size,
        offer.domain.cq_data_size,
    );
    fabric::check_name(
        &mut checks,
        "name",
        offer.domain.name.as_deref(),
        asked.name.as_deref(),
    );
    mr::check(offer, asked, hints, version, checks.found);
    if version >= V1_5 {
        check_limits(&mut checks, &offer.domain, asked);
        check_promises(&mut checks, &offer.domain, asked, hints);
        check_auth_key(&mut checks, &offer.domain, asked, version);
        checks.class(asked.tclass, offer.domain.tclass);
    }
    if version >= V2_5 {
        check_counter_range(&mut checks, &offer.domain, asked);
    }
}

fn check_models(checks: &mut Checks<'_>, offer: &DomainAttr, asked: &DomainAttr) {
    if threading_rank(asked.threading) < threading_rank(offer.threading) {
        checks.same("threading", asked.threading, offer.threading);
    }
    if progress_rank(asked.progress) < progress_rank(offer.progress) {
        checks.same("progress", asked.progress, offer.progress);
    }
    if resource_rank(asked.resource_mgmt) < resource_rank(offer.resource_mgmt) {
        checks.same("resource_mgmt", asked.resource_mgmt, offer.resource_mgmt);
    }
    if offer.av_type != AvType::Unspec {
        checks.same("av_type", asked.av_type, offer.av_type);
    }
}

fn check_limits(checks: &mut Checks<'_>, offer: &DomainAttr, asked: &DomainAttr) {
    checks.size("cntr_cnt", asked.cntr_cnt, offer.cntr_cnt);
    checks.size("mr_iov_limit", asked.mr_iov_limit, offer.mr_iov_limit);
    checks.size("max_err_data", asked.max_err_data, offer.max_err_data);
    checks.size("mr_cnt", asked.mr_cnt, offer.mr_cnt);
}

fn check_promises(checks: &mut Checks<'_>, offer: &DomainAttr, asked: &DomainAttr, hints: &Hints) {
    checks.within("caps", asked.caps, offer.caps);
    let promised = if asked.mode.is_empty() {
        hints.mode
    } else {
        asked.mode
    };
    checks.promises("mode", promised, offer.mode);
}

fn check_auth_key(
    checks: &mut Checks<'_>,
    offer: &DomainAttr,
    asked: &DomainAttr,
    version: Version,
) {
    if asked.auth_key_size == AUTH_KEY_PER_AV && version >= V1_20 {
        // No address vector takes keys (`fi_av_insert_auth_key(3)`).
        let remedy = "set auth_key_size to 0: the address vectors here have no keys";
        checks.refuse(
            "auth_key_size",
            "FI_AV_AUTH_KEY",
            offer.auth_key_size.to_string(),
            remedy,
        );
    } else {
        checks.same("auth_key_size", asked.auth_key_size, offer.auth_key_size);
    }
    if version >= V1_20 {
        checks.size(
            "max_ep_auth_key",
            asked.max_ep_auth_key,
            offer.max_ep_auth_key,
        );
    }
}

/// A provider that states no highest count has the whole range of 64 bits.
fn check_counter_range(checks: &mut Checks<'_>, offer: &DomainAttr, asked: &DomainAttr) {
    if offer.max_cntr_value != 0 {
        checks.at_most("max_cntr_value", asked.max_cntr_value, offer.max_cntr_value);
    }
    if offer.max_err_cntr_value != 0 {
        let offered = offer.max_err_cntr_value;
        checks.at_most("max_err_cntr_value", asked.max_err_cntr_value, offered);
    }
}

/// Makes the domain group of the answer; `info.caps` must be final.
pub(super) fn adapt(info: &mut Info, hints: Option<&Hints>, version: Version) {
    let hints = hints.and_then(|h| h.domain.as_ref());
    let domain = &mut info.domain;
    domain.mr_mode = mr::adapted(domain.mr_mode, hints, info.caps, version);
    let asked_caps = hints.map_or(Flags::empty(), |h| h.caps);
    domain.caps = caps::enabled(info.caps, asked_caps, domain.caps);
    if domain.max_cntr_value == 0 {
        domain.max_cntr_value = u64::MAX;
    }
    if domain.max_err_cntr_value == 0 {
        domain.max_err_cntr_value = u64::MAX;
    }
    // The class of an offer says that there are classes; what was not asked is the default.
    domain.tclass = match hints {
        Some(hints) if domain.tclass != 0 => hints.tclass,
        _ => 0,
    };
    if let Some(hints) = hints {
        echo(domain, hints);
    }
}

/// Gives back what the caller chose, which [`check`] has found acceptable.
fn echo(domain: &mut DomainAttr, hints: &DomainAttr) {
    if hints.threading != Threading::Unspec {
        domain.threading = hints.threading;
    }
    if hints.progress != Progress::Unspec {
        domain.progress = hints.progress;
        domain.control_progress = hints.progress;
    }
    if hints.av_type != AvType::Unspec {
        domain.av_type = hints.av_type;
    }
    if hints.max_ep_auth_key != 0 {
        domain.max_ep_auth_key = hints.max_ep_auth_key;
    }
    if !hints.auth_key.is_empty() {
        domain.auth_key.clone_from(&hints.auth_key);
        domain.auth_key_size = hints.auth_key.len();
    }
}
