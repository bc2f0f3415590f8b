//! Memory registration modes, whose meaning changed with version 1.5 of the interface.

use ripstop_types::{Flags, Mode, MrMode, Version, flags};

use super::mismatch::Checks;
use crate::attr::DomainAttr;
use crate::caps;
use crate::info::{Hints, Info};
use crate::names::CNames;

/// The version that replaced `FI_MR_BASIC` and `FI_MR_SCALABLE` by single bits.
const V1_5: Version = Version::new(1, 5);

/// The two modes of before 1.5.
const WHOLE: MrMode = MrMode::BASIC.union(MrMode::SCALABLE);

/// Duties that exist only for regions others access.
const TARGET: MrMode = MrMode::RAW
    .union(MrMode::VIRT_ADDR)
    .union(MrMode::PROV_KEY)
    .union(MrMode::RMA_EVENT);

const REMOTE: Flags = flags![REMOTE_READ REMOTE_WRITE];

/// The mode bits an application must promise, which before 1.5 include local registration.
pub(super) fn required_mode(offer: &Info, hints: &Hints, version: Version) -> Mode {
    let old_style = version < V1_5
        || hints
            .domain
            .as_ref()
            .is_some_and(|d| !d.mr_mode.contains(MrMode::LOCAL));
    if old_style && offer.domain.mr_mode.contains(MrMode::LOCAL) {
        offer.mode | Mode::LOCAL_MR
    } else {
        offer.mode
    }
}

/// Checks the modes the caller can live with against those the provider needs.
pub(super) fn check(
    offer: &Info,
    asked: &DomainAttr,
    hints: &Hints,
    version: Version,
    checks: &mut Checks<'_>,
) {
    let offered = offer.domain.mr_mode;
    let local = hints.mode.contains(Mode::LOCAL_MR) || asked.mr_mode.contains(MrMode::LOCAL);
    if offered.contains(MrMode::LOCAL) && !local {
        checks.promises("mr_mode", asked.mr_mode, MrMode::LOCAL);
        return;
    }
    if version < V1_5 || asked.mr_mode.intersects(WHOLE) {
        check_whole(checks, asked.mr_mode, offered, version);
        return;
    }
    let required = needed_for(hints.caps, offered);
    let target = required & TARGET;
    let remote_by_name = hints.caps.intersects(REMOTE) && !asked.mr_mode.contains(target);
    if remote_by_name || !asked.mr_mode.is_empty() {
        checks.promises("mr_mode", asked.mr_mode, required);
    }
}

/// The modes of before 1.5 come alone: one of the two, or none before 1.5.
fn check_whole(checks: &mut Checks<'_>, asked: MrMode, offered: MrMode, version: Version) {
    let fits = if asked.is_empty() {
        offered.intersects(WHOLE)
    } else {
        (asked == MrMode::BASIC || asked == MrMode::SCALABLE) && offered.contains(asked)
    };
    if fits {
        return;
    }
    let remedy = if version < V1_5 {
        "ask for FI_MR_BASIC or FI_MR_SCALABLE alone, or call fi_getinfo with version 1.5 or later"
    } else {
        "ask for the single bits instead: FI_MR_VIRT_ADDR|FI_MR_ALLOCATED|FI_MR_PROV_KEY"
    };
    checks.refuse("mr_mode", asked.c_names(), offered.c_names(), remedy);
}

/// The duties that remain for these capabilities.
fn needed_for(caps: Flags, offered: MrMode) -> MrMode {
    let mut mode = offered;
    if !caps.contains(Flags::HMEM) {
        mode -= MrMode::HMEM;
    }
    if !caps::is_rma_target(caps) {
        if !mode.intersects(MrMode::LOCAL | MrMode::HMEM) {
            return MrMode::empty();
        }
        mode -= TARGET;
    }
    mode - WHOLE
}

/// Whether the caller registers memory as targets must, or `caps` are not those of a target.
pub(super) fn serves_as_target(offer: &Info, hints: &Hints, caps: Flags, version: Version) -> bool {
    if !caps::is_rma_target(caps) {
        return true;
    }
    let offered = offer.domain.mr_mode;
    let asked = hints.domain.as_ref().map_or(MrMode::empty(), |d| d.mr_mode);
    if asked.intersects(WHOLE) || version < V1_5 {
        true
    } else if asked.is_empty() {
        // No preference, which only those duties contradict that no default can meet.
        !offered.intersects(TARGET)
    } else {
        asked.contains(needed_for(caps, offered))
    }
}

/// Tells callers of before 1.5 of local registration in the way they know.
pub(super) fn adapt_mode(info: &mut Info, hints: Option<&Hints>, version: Version) {
    let whole = hints
        .and_then(|h| h.domain.as_ref())
        .is_some_and(|d| d.mr_mode.intersects(WHOLE));
    if info.domain.mr_mode.contains(MrMode::LOCAL) && (version < V1_5 || whole) {
        info.mode |= Mode::LOCAL_MR;
    }
}

/// The registration mode of the answer.
pub(super) fn adapted(
    offered: MrMode,
    hints: Option<&DomainAttr>,
    caps: Flags,
    version: Version,
) -> MrMode {
    let asked = hints.map_or(MrMode::empty(), |h| h.mr_mode);
    if asked.intersects(WHOLE) {
        return asked;
    }
    if version < V1_5 {
        let scalable = offered.is_empty() || offered == MrMode::SCALABLE;
        return if scalable {
            MrMode::SCALABLE
        } else {
            MrMode::BASIC
        };
    }
    let duties = offered - WHOLE;
    if hints.is_none() || asked.contains(duties) {
        duties
    } else {
        needed_for(caps, duties & asked)
    }
}
