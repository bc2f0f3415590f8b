//! The provider named `shm`, and what it offers (man page `fi_shm(7)`).

use std::sync::Arc;

use ripstop_core::caps::is_rma_target;
use ripstop_core::hints::{Group, Mismatch, Request};
use ripstop_core::registry::{Answer, ProviderInfo};
use ripstop_core::{Address, FabricAttr, Hints, Info, provider};
use ripstop_stream::Fabric;
use ripstop_stream::attr::{
    MATCHED_RX, OPS, Offer, RDM_DOMAIN, SOURCES, apply_defaults, asks_peer, offer,
    provider_version, set_manual_progress,
};
use ripstop_types::{AddrFormat, EpType, Flags, MrMode, Protocol, Result, Version};

use crate::params::{NAME, Params};
use crate::transport::Shm;

/// The provider named `shm`.
#[derive(Debug)]
pub struct ShmProvider {
    params: Arc<Params>,
}

impl Default for ShmProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl ShmProvider {
    /// Reads the provider's parameters (`FI_SHM_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
        }
    }
}

/// The one offer of the provider: reliable datagram endpoints.
fn endpoint_offer(params: &Params) -> Info {
    let kind = Offer {
        ep_type: EpType::Rdm,
        addr_format: AddrFormat::Str,
        protocol: Protocol::Shm,
        protocol_version: 1,
        domain_caps: RDM_DOMAIN | Flags::LOCAL_COMM,
        ops: OPS | Flags::TAGGED | Flags::COLLECTIVE,
        rx_caps: MATCHED_RX | SOURCES,
        rx_ctx_cnt: 1,
    };
    offer::<Shm>(params.as_ref(), &kind)
}

/// Refuses hints whose addresses are no strings: hints may have addresses without their format.
fn check_addresses(info: Info) -> core::result::Result<Vec<Info>, Mismatch> {
    let is_string = |addr: &&Address| matches!(addr, Address::Str(_));
    let mut given = info.src_addr.iter().chain(&info.dest_addr);
    match given.find(|addr| !is_string(addr)) {
        None => Ok(vec![info]),
        Some(other) => Err(Mismatch {
            group: Group::Info,
            attribute: "src_addr, dest_addr",
            asked: other.to_string(),
            offered: "FI_ADDR_STR".to_owned(),
            remedy: "leave them NULL, or give strings".to_owned(),
        }),
    }
}

/// Adds `FI_MR_ALLOCATED` to an offer of remote memory if the hints have it: the program then keeps the
/// pages of its regions in place, so peers may map them.
pub fn require_allocated(info: &mut Info, hints: Option<&Hints>) {
    const WHOLE: MrMode = MrMode::BASIC.union(MrMode::SCALABLE);
    let asked = hints.and_then(|hints| hints.domain.as_ref());
    let promised = asked.is_some_and(|asked| asked.mr_mode.contains(MrMode::ALLOCATED));
    if promised && is_rma_target(info.caps) && !info.domain.mr_mode.intersects(WHOLE) {
        info.domain.mr_mode |= MrMode::ALLOCATED;
    }
}

impl ProviderInfo for ShmProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let mut offer = endpoint_offer(&self.params);
        if asks_peer(request.hints) {
            set_manual_progress(&mut offer);
        }
        let answered = request.answer(&offer);
        let mut answer = Answer::collect([answered.and_then(check_addresses)]);
        for found in &mut answer.infos {
            apply_defaults(found, (*self.params).as_ref(), request.hints);
            if self.params.map_memfd {
                require_allocated(found, request.hints);
            }
        }
        answer
    }

    fn remarks(&self) -> Vec<String> {
        vec![self.params.copy_remark()]
    }
}

impl provider::Provider for ShmProvider {
    type Fabric = Fabric<Shm>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<Shm>>> {
        Ok(Arc::new(Fabric::new(
            attr.clone(),
            Arc::clone(&self.params),
        )))
    }
}

#[cfg(test)]
mod tests {
    use ripstop_core::{EpAttr, RxAttr, TxAttr};
    use ripstop_types::MsgOrder;

    use super::*;

    fn found(hints: &Hints) -> Info {
        let request = Request {
            version: Version::CURRENT,
            hints: Some(hints),
            ..Request::default()
        };
        ShmProvider::new().getinfo(&request).infos.remove(0)
    }

    #[test]
    fn what_follows_a_read_is_ordered_for_who_asks_in_both_directions_and_with_a_size() {
        let war = MsgOrder::WAR;
        let by_tx = Hints {
            tx: Some(TxAttr {
                msg_order: war,
                ..TxAttr::default()
            }),
            ..Hints::default()
        };
        let by_rx = Hints {
            rx: Some(RxAttr {
                msg_order: war,
                ..RxAttr::default()
            }),
            ..Hints::default()
        };
        let by_size = Hints {
            ep: Some(EpAttr {
                max_order_war_size: 8,
                ..EpAttr::default()
            }),
            ..Hints::default()
        };
        for (hints, asked) in [
            (Hints::default(), false),
            (by_tx, true),
            (by_rx, true),
            (by_size, true),
        ] {
            let info = found(&hints);
            let kept = [info.tx.msg_order, info.rx.msg_order].map(|order| order.contains(war));
            assert_eq!(kept, [asked; 2], "{hints:?}");
            assert_eq!(info.ep.max_order_war_size > 0, asked, "{hints:?}");
        }
    }
}
