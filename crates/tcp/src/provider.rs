//! The provider named `tcp`.

use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::ip::answers;
use ripstop_core::log::Subsys;
use ripstop_core::provider;
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Info, fi_info, fi_warn};
use ripstop_stream::attr::{apply_defaults, asks_peer, provider_version, set_manual_progress};
use ripstop_stream::{Fabric, Tunables};
use ripstop_types::{Result, Version};

use crate::offers::offers;
use crate::params::{NAME, Params};
use crate::socket::Tcp;

/// The provider named `tcp`.
#[derive(Debug)]
pub struct TcpProvider {
    params: Arc<Params>,
}

impl Default for TcpProvider {
    fn default() -> Self {
        Self::new()
    }
}

impl TcpProvider {
    /// Reads the provider's parameters (`FI_TCP_*`).
    #[must_use]
    pub fn new() -> Self {
        Self {
            params: Arc::new(Params::read()),
        }
    }
}

impl ProviderInfo for TcpProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let mut offers = offers(&self.params);
        if asks_peer(request.hints) {
            offers.iter_mut().for_each(set_manual_progress);
        }
        let asked = if request.lists_providers() {
            1
        } else {
            offers.len()
        };
        let offers = offers.iter().take(asked);
        let answer = answer(NAME, &self.params, (*self.params).as_ref(), request, offers);
        if let Some(first) = answer.infos.first()
            && let Some(name) = &first.domain.name
        {
            fi_info!(NAME, Subsys::Core, "first choice of interface: {name}");
        }
        answer
    }
}

/// The answers of provider `name` to a request, of those offers that fit it. `params` say which interfaces there are,
/// `tunables` what is opened where the request does not say.
pub(crate) fn answer<'a>(
    name: &str,
    params: &Params,
    tunables: &Tunables,
    request: &Request<'_>,
    offers: impl IntoIterator<Item = &'a Info>,
) -> Answer {
    let addresses = match params.addresses() {
        Ok(addresses) => addresses,
        Err(error) => {
            let why = "the interfaces of this machine cannot be listed".to_owned();
            fi_warn!(name, Subsys::Core, "{why}: {error}");
            return Answer::from(Refusal::Failed(error, why));
        }
    };
    let offers = offers.into_iter();
    let mut answer = Answer::collect(offers.map(|offer| answers(request, offer, &addresses)));
    for found in &mut answer.infos {
        apply_defaults(found, tunables, request.hints);
    }
    answer
}

impl provider::Provider for TcpProvider {
    type Fabric = Fabric<Tcp>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<Tcp>>> {
        Ok(Arc::new(Fabric::new(
            attr.clone(),
            Arc::clone(&self.params),
        )))
    }
}
