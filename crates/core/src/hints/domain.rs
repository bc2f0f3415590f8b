//! Domain attributes (man page `fi_domain(3)`).

use ripstop_types::{AvType, Flags, Progress, ResourceMgmt, Threading, Version};

use super::echo::{answered_class, echo, echo_key};
use super::mismatch::{Checks, Group, Mismatch, each};
use super::mr;
use crate::attr::{AUTH_KEY_PER_AV, DomainAttr};
use crate::caps;
use crate::info::{Hints, Info};

const V1_5: Version = Version::new(1, 5);
const V1_20: Version = Version::new(1, 20);
const V2_5: Version = Version::new(2, 5);

/// Threading levels by how much the caller serialises. A provider that asks for little
/// serves every caller that does as much or more.
const THREADING: [Threading; 6] = [
    Threading::Safe,
    Threading::Fid,
    Threading::Endpoint,
    Threading::Completion,
    Threading::Domain,
    Threading::Unspec,
];

/// Progress models by how much the caller does.
const PROGRESS: [Progress; 4] = [
    Progress::Auto,
    Progress::Manual,
    Progress::ControlUnified,
    Progress::Unspec,
];

/// Resource management by how much the caller does.
const RESOURCE_MGMT: [ResourceMgmt; 3] = [
    ResourceMgmt::Enabled,
    ResourceMgmt::Disabled,
    ResourceMgmt::Unspec,
];

/// Checks the domain group, and of the interface what belongs to a domain even when the
/// hints have no such group.
pub(super) fn check(offer: &Info, hints: &Hints, version: Version, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Domain, found);
    let Some(asked) = &hints.domain else {
        let target = Flags::REMOTE_READ | Flags::REMOTE_WRITE;
        if hints.caps.intersects(target) && version >= V1_5 {
            mr::check(offer, &DomainAttr::default(), hints, version, &mut checks);
        }
        return;
    };
    let domain = &offer.domain;
    checks.at_least("threading", &THREADING, asked.threading, domain.threading);
    checks.at_least("progress", &PROGRESS, asked.progress, domain.progress);
    checks.at_least(
        "resource_mgmt",
        &RESOURCE_MGMT,
        asked.resource_mgmt,
        domain.resource_mgmt,
    );
    if domain.av_type != AvType::Unspec {
        checks.same("av_type", asked.av_type, domain.av_type);
    }
    each!(checks.size(asked, domain): mr_key_size, cq_data_size);
    checks.name(asked.name.as_deref(), domain.name.as_deref());
    mr::check(offer, asked, hints, version, &mut checks);
    if version >= V1_5 {
        each!(checks.size(asked, domain): cntr_cnt, mr_iov_limit, max_err_data, mr_cnt);
        checks.within("caps", asked.caps, domain.caps);
        checks.mode(asked.mode, hints, domain.mode);
        check_auth_key(&mut checks, domain, asked, version);
        checks.class(asked.tclass, domain.tclass);
    }
    if version >= V2_5 {
        check_counter_range(&mut checks, domain, asked);
    }
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
        each!(checks.same(asked, offer): auth_key_size);
    }
    if version >= V1_20 {
        each!(checks.size(asked, offer): max_ep_auth_key);
    }
}

/// A provider that states no highest count has the whole range of 64 bits.
fn check_counter_range(checks: &mut Checks<'_>, offer: &DomainAttr, asked: &DomainAttr) {
    if offer.max_cntr_value != 0 {
        each!(checks.at_most(asked, offer): max_cntr_value);
    }
    if offer.max_err_cntr_value != 0 {
        each!(checks.at_most(asked, offer): max_err_cntr_value);
    }
}

/// Makes the domain group of the answer; `info.caps` must be final.
pub(super) fn adapt(info: &mut Info, hints: Option<&Hints>, version: Version) {
    let hints = hints.and_then(|h| h.domain.as_ref());
    let domain = &mut info.domain;
    domain.mr_mode = mr::adapted(domain.mr_mode, hints, info.caps, version);
    let asked_caps = hints.map_or(Flags::empty(), |h| h.caps);
    domain.caps = caps::enabled(info.caps, asked_caps, domain.caps);
    for most in [&mut domain.max_cntr_value, &mut domain.max_err_cntr_value] {
        if *most == 0 {
            *most = u64::MAX;
        }
    }
    domain.tclass = answered_class(domain.tclass, hints.map(|h| h.tclass));
    // What the caller chose, which `check` has found acceptable.
    if let Some(hints) = hints {
        echo(&mut domain.threading, hints.threading);
        echo(&mut domain.progress, hints.progress);
        echo(&mut domain.control_progress, hints.progress);
        echo(&mut domain.av_type, hints.av_type);
        echo(&mut domain.max_ep_auth_key, hints.max_ep_auth_key);
        echo_key(
            &mut domain.auth_key,
            &mut domain.auth_key_size,
            &hints.auth_key,
        );
    }
}
