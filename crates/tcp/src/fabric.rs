//! The provider and its fabrics.

use std::marker::PhantomData;
use std::sync::Arc;

use ripstop_core::hints::Request;
use ripstop_core::ip::{LocalAddress, answers, local_addresses};
use ripstop_core::lock::{Serial, Shared};
use ripstop_core::provider::{self, Token};
use ripstop_core::registry::{Answer, ProviderInfo, Refusal};
use ripstop_core::{FabricAttr, Info};
use ripstop_types::{Errno, Result, Version};

use crate::attr::{apply_defaults, asks_peer, driven, offers, provider_version};
use crate::domain::Domain;
use crate::params::{NAME, Params};
use crate::passive::PassiveEp;
use crate::socket::Tcp;
use crate::transport::Transport;

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

/// The addresses of this machine, the best first.
pub(crate) fn addresses(params: &Params) -> Result<Vec<LocalAddress>> {
    let interfaces = ripstop_os::net::interfaces()?;
    Ok(local_addresses(&interfaces, params.iface.as_deref()))
}

impl ProviderInfo for TcpProvider {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> Version {
        provider_version()
    }

    fn getinfo(&self, request: &Request<'_>) -> Answer {
        let addresses = match addresses(&self.params) {
            Ok(addresses) => addresses,
            Err(error) => {
                log_warn!(
                    Core,
                    "the interfaces of this machine cannot be listed: {error}"
                );
                let why = "the interfaces of this machine cannot be listed".to_owned();
                return Answer::from(Refusal::Failed(error, why));
            }
        };
        let mut offers = offers(&self.params);
        if asks_peer(request.hints) {
            offers.iter_mut().for_each(driven);
        }
        let asked = if request.lists_providers() {
            1
        } else {
            offers.len()
        };
        let mut answer = Answer::collect(
            offers
                .iter()
                .take(asked)
                .map(|offer| answers(request, offer, &addresses)),
        );
        for found in &mut answer.infos {
            apply_defaults(found, &self.params, request.hints);
        }
        if let Some(first) = answer.infos.first()
            && let Some(name) = &first.domain.name
        {
            log_info!(Core, "first choice of interface: {name}");
        }
        answer
    }
}

impl provider::Provider for TcpProvider {
    type Fabric = Fabric<Tcp>;

    fn fabric(&self, attr: &FabricAttr) -> Result<Arc<Fabric<Tcp>>> {
        Ok(Arc::new(Fabric {
            attr: attr.clone(),
            params: Arc::clone(&self.params),
            transport: PhantomData,
        }))
    }
}

/// A fabric of the tcp provider: an IP network.
#[derive(Debug)]
pub struct Fabric<T: Transport> {
    attr: FabricAttr,
    pub(crate) params: Arc<Params>,
    transport: PhantomData<T>,
}

impl<T: Transport> provider::Fabric for Fabric<T> {
    type SafeDomain = Domain<T, Shared>;
    type SerialDomain = Domain<T, Serial>;
    type PassiveEp = PassiveEp<T>;

    fn attr(&self) -> &FabricAttr {
        &self.attr
    }

    fn safe_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Shared>>> {
        Domain::open(self, info)
    }

    fn serial_domain(self: &Arc<Self>, info: &Info) -> Result<Arc<Domain<T, Serial>>> {
        if <Self as provider::Fabric>::needs_lock(info) {
            return Err(Errno::EINVAL);
        }
        Domain::open(self, info)
    }

    fn passive_ep(self: &Arc<Self>, info: &Info, token: Token) -> Result<Arc<PassiveEp<T>>> {
        PassiveEp::open(self, info, token)
    }
}
