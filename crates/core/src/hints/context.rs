//! Transmit and receive attributes (man page `fi_endpoint(3)`).

use ripstop_types::Flags;

use super::echo::{answered_class, echo};
use super::mismatch::{Checks, Group, Mismatch, each};
use crate::attr::{RxAttr, TxAttr};
use crate::caps;
use crate::info::Hints;

/// Checks the receive group, and the promises a receiver needs even without one.
pub(super) fn check_rx(offer: &RxAttr, hints: &Hints, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Rx, found);
    let Some(asked) = &hints.rx else {
        checks.promises("mode", hints.mode, offer.mode);
        return;
    };
    checks.within("caps", asked.caps - caps::IGNORED_RX, offer.caps);
    checks.mode(asked.mode, hints, offer.mode);
    each!(checks.within(asked, offer): op_flags, msg_order);
    // Withdrawn in 2.0: completions are in no particular order.
    checks.at_most("comp_order", asked.comp_order, 0);
    each!(checks.size(asked, offer): size, iov_limit);
    // Withdrawn in 2.0, like the completion order.
    checks.size("total_buffered_recv", asked.total_buffered_recv, 0);
}

/// Checks the transmit group, and the promises a sender needs even without one.
pub(super) fn check_tx(offer: &TxAttr, hints: &Hints, found: &mut Vec<Mismatch>) {
    let mut checks = Checks::new(Group::Tx, found);
    let Some(asked) = &hints.tx else {
        checks.promises("mode", hints.mode, offer.mode);
        return;
    };
    checks.within("caps", asked.caps - caps::IGNORED_TX, offer.caps);
    checks.mode(asked.mode, hints, offer.mode);
    each!(checks.within(asked, offer): op_flags, msg_order);
    checks.at_most("comp_order", asked.comp_order, 0);
    each!(checks.size(asked, offer): size, iov_limit, inject_size, rma_iov_limit);
    checks.class(asked.tclass, offer.tclass);
}

/// Makes the receive group of the answer from the final capabilities of the interface.
pub(super) fn adapt_rx(rx: &mut RxAttr, hints: Option<&RxAttr>, info_caps: Flags) {
    let asked_caps = hints.map_or(Flags::empty(), |h| h.caps - caps::IGNORED_RX);
    rx.caps = caps::enabled(info_caps, asked_caps, rx.caps);
    if let Some(hints) = hints {
        rx.op_flags = hints.op_flags;
        echo(&mut rx.size, hints.size);
        echo(&mut rx.iov_limit, hints.iov_limit);
    }
}

/// Makes the transmit group of the answer from the final capabilities of the interface.
pub(super) fn adapt_tx(tx: &mut TxAttr, hints: Option<&TxAttr>, info_caps: Flags) {
    let asked_caps = hints.map_or(Flags::empty(), |h| h.caps - caps::IGNORED_TX);
    tx.caps = caps::enabled(info_caps, asked_caps, tx.caps);
    if let Some(hints) = hints {
        tx.op_flags = hints.op_flags;
        echo(&mut tx.inject_size, hints.inject_size);
        echo(&mut tx.size, hints.size);
        echo(&mut tx.iov_limit, hints.iov_limit);
        echo(&mut tx.rma_iov_limit, hints.rma_iov_limit);
    }
    tx.tclass = answered_class(tx.tclass, hints.map(|h| h.tclass));
}
