//! Endpoint attributes (man page `fi_endpoint(3)`).

use ripstop_types::{EpType, Flags};

use super::echo::{echo, echo_key};
use super::mismatch::{Checks, Group, Mismatch, context_count, each};
use crate::attr::{EpAttr, SHARED_CONTEXT};
use crate::info::{Hints, Info};

/// Checks the endpoint type, the attribute that rules out most offers.
pub(super) fn check_type(offer: &EpAttr, asked: &EpAttr, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Ep, found);
    if offer.ep_type != EpType::Unspec {
        checks.same("type", asked.ep_type, offer.ep_type);
    }
}

/// Checks the endpoint group, apart from its type.
pub(super) fn check(offer: &Info, asked: &EpAttr, hints: &Hints, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Ep, found);
    let (ep, domain) = (&offer.ep, &offer.domain);
    each!(checks.same(asked, ep): protocol);
    let asked_version = asked.protocol_version.into();
    checks.at_most(
        "protocol_version",
        asked_version,
        ep.protocol_version.into(),
    );
    each!(checks.size(asked, ep): max_msg_size);
    let tx = Contexts {
        own: ep.tx_ctx_cnt,
        most: domain.max_ep_tx_ctx,
        shared: domain.max_ep_stx_ctx,
    };
    tx.check(&mut checks, "tx_ctx_cnt", asked.tx_ctx_cnt);
    let rx = Contexts {
        own: ep.rx_ctx_cnt,
        most: domain.max_ep_rx_ctx,
        shared: domain.max_ep_srx_ctx,
    };
    rx.check(&mut checks, "rx_ctx_cnt", asked.rx_ctx_cnt);
    if hints.caps.intersects(Flags::RMA | Flags::ATOMIC) {
        each!(checks.size(asked, ep): max_order_raw_size, max_order_war_size, max_order_waw_size);
    }
    each!(checks.same(asked, ep): auth_key_size);
    if hints.caps.contains(Flags::TAGGED) {
        check_tags(&mut checks, asked.mem_tag_format, ep.mem_tag_format);
    }
}

/// What an offer says of one direction's contexts.
struct Contexts {
    own: usize,
    most: usize,
    shared: usize,
}

impl Contexts {
    fn check(&self, checks: &mut Checks<'_>, attribute: &'static str, asked: usize) {
        let text = || context_count(asked);
        if asked == SHARED_CONTEXT {
            if self.shared == 0 {
                let remedy = "ask for a number of contexts, as they cannot be shared";
                checks.refuse(attribute, text(), "no shared contexts", remedy);
            }
        } else if asked == 0 && self.own == SHARED_CONTEXT {
            let remedy = "ask for FI_SHARED_CONTEXT, as this offer is for shared contexts";
            checks.refuse(attribute, text(), "FI_SHARED_CONTEXT", remedy);
        } else if asked > self.most {
            let remedy = format!("ask for at most {}, or 0 for no preference", self.most);
            checks.refuse(attribute, text(), format!("at most {}", self.most), remedy);
        }
    }
}

/// A format may use every bit up to the highest that is set in the offered one.
fn check_tags(checks: &mut Checks<'_>, asked: u64, offered: u64) {
    let bits = |format: u64| u64::BITS - format.leading_zeros();
    if bits(asked) > bits(offered) {
        let remedy = format!("ask for a format of at most {} bits, or 0", bits(offered));
        checks.refuse(
            "mem_tag_format",
            format!("{asked:#x}"),
            format!("{offered:#x}"),
            remedy,
        );
    }
}

/// Makes the endpoint group of the answer from the final capabilities.
pub(super) fn adapt(ep: &mut EpAttr, hints: Option<&Hints>, caps: Flags) {
    let Some(hints) = hints.and_then(|h| h.ep.as_ref()) else {
        return;
    };
    if caps.intersects(Flags::RMA | Flags::ATOMIC) {
        echo(&mut ep.max_order_raw_size, hints.max_order_raw_size);
        echo(&mut ep.max_order_war_size, hints.max_order_war_size);
        echo(&mut ep.max_order_waw_size, hints.max_order_waw_size);
    }
    echo(&mut ep.tx_ctx_cnt, hints.tx_ctx_cnt);
    echo(&mut ep.rx_ctx_cnt, hints.rx_ctx_cnt);
    echo_key(&mut ep.auth_key, &mut ep.auth_key_size, &hints.auth_key);
}
