//! The provider named `lnx`, and what it offers (man page `fi_lnx(7)`).

use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::ip::answers;
use ripstop_core::log::Subsys;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Info, fi_warn, fi_warn_sparse, provider};
use ripstop_shm::require_allocated;
use ripstop_stream::attr::{
    MATCHED_RX, OPS, Offer, RDM_DOMAIN, SOURCES, apply_defaults, asks_peer, offer,
    provider_version, set_manual_progress,
};
use ripstop_stream::{Fabric, Transport as _};
use ripstop_types::{AddrFormat, EpType, Errno, Flags, Protocol, Result, Version};

use crate::params::{NAME, Params};
use crate::transport::Lnx;

/// The provider named `lnx`.
#[derive(Debug)]
pub struct LnxProvider {
    params: Arc<Params>,
}

impl Default for LnxProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl LnxProvider {
    /// Reads the provider's parameters (`FI_LNX_*`) and those of the providers that it links
    /// (`FI_SHM_*`, `FI_TCP_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
        }
    }
}

/// The one offer of the provider: reliable datagram endpoints with what shm and tcp both have.
fn endpoint_offer(params: &Params) -> Info {
    let kind = Offer {
        ep_type: EpType::Rdm,
        addr_format: AddrFormat::SockaddrIp,
        protocol: Protocol::Lnx,
        protocol_version: 1,
        domain_caps: RDM_DOMAIN | Flags::LOCAL_COMM | Flags::REMOTE_COMM,
        ops: OPS | Flags::TAGGED | Flags::COLLECTIVE,
        rx_caps: MATCHED_RX | SOURCES,
        rx_ctx_cnt: 1,
    };
    offer::<Lnx>(params.as_ref(), &kind)
}

impl ProviderInfo for LnxProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    fn remarks(&self) -> Vec<String> {
        let shm = self.params.uses_shm().then_some(&self.params.shm);
        let remark = |shm: &ripstop_shm::Params| format!("on this machine {}", shm.copy_remark());
        shm.map(remark).into_iter().collect()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let links = match self.params.links() {
            Ok(links) => links,
            Err(why) => {
                fi_warn_sparse!(NAME, Subsys::Core, "nothing is offered: {why}");
                return Answer::from(Refusal::Failed(Errno::EINVAL, why.to_owned()));
            }
        };
        let addresses = match self.params.addresses(links) {
            Ok(addresses) => addresses,
            Err(error) => {
                fi_warn!(
                    NAME,
                    Subsys::Core,
                    "the interfaces of this machine cannot be listed: {error}"
                );
                let why = "the interfaces of this machine cannot be listed".to_owned();
                return Answer::from(Refusal::Failed(error, why));
            }
        };
        let mut offer = endpoint_offer(&self.params);
        if asks_peer(request.hints) {
            set_manual_progress(&mut offer);
        }
        let mut answer = Answer::collect([answers(request, &offer, &addresses)]);
        for found in &mut answer.infos {
            apply_defaults(found, (*self.params).as_ref(), request.hints);
            if Lnx::checks_regions(&self.params) {
                require_allocated(found, request.hints);
            }
        }
        answer
    }
}

impl provider::Provider for LnxProvider {
    type Fabric = Fabric<Lnx>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<Lnx>>> {
        Ok(Arc::new(Fabric::new(
            attr.clone(),
            Arc::clone(&self.params),
        )))
    }
}
