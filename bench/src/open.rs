//! Endpoints of a domain that one thread uses.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use ripstop_core::hints::Request;
use ripstop_core::provider::{AvAttr, CqAttr, Domain, Endpoint as _, Provider};
use ripstop_core::{DomainAttr, EpAttr, FidToken, Hints, Info};
use ripstop_types::{EpType, Flags, MrMode, Progress, Threading, Version};

/// The first offer of tagged RDM endpoints with more capabilities, over loopback where the provider
/// is one over IP.
///
/// # Errors
/// What the provider says when there is none.
pub(crate) fn find<P: Provider>(provider: &P, more: Flags) -> Result<Info> {
    // What devices want of registrations.
    let mr_mode = match provider.name().starts_with("verbs") {
        true => MrMode::VIRT_ADDR | MrMode::ALLOCATED | MrMode::PROV_KEY,
        false => MrMode::empty(),
    };
    let hints = Hints {
        caps: Flags::MSG | Flags::TAGGED | more,
        ep: Some(EpAttr {
            ep_type: EpType::Rdm,
            ..EpAttr::default()
        }),
        domain: Some(DomainAttr {
            threading: Threading::Domain,
            control_progress: Progress::Manual,
            progress: Progress::Manual,
            mr_mode,
            ..DomainAttr::default()
        }),
        ..Hints::default()
    };
    let mut request = Request {
        version: Version::CURRENT,
        hints: Some(&hints),
        ..Request::default()
    };
    if matches!(provider.name(), "tcp" | "udp") {
        (request.node, request.flags) = (Some("127.0.0.1"), Flags::SOURCE);
    }
    let answer = provider.getinfo(&request);
    let first = answer.infos.into_iter().next();
    first.ok_or_else(|| anyhow!("fi_getinfo: {:?}", answer.refusals))
}

/// An enabled endpoint with a queue and an address vector of its own.
pub(crate) struct Opened<D: Domain> {
    pub(crate) ep: Arc<D::Endpoint>,
    pub(crate) cq: Arc<D::Cq>,
    pub(crate) av: Arc<D::Av>,
}

impl<D: Domain> Opened<D> {
    /// # Errors
    /// What the provider says.
    pub(crate) fn new(domain: &Arc<D>, info: &Info) -> Result<Self> {
        let cq = domain.cq(&CqAttr::default()).context("fi_cq_open")?;
        let av = domain.av(&AvAttr::default()).context("fi_av_open")?;
        let ep = enabled(domain, info, &cq, &av)?;
        Ok(Self { ep, cq, av })
    }
}

/// An enabled endpoint with this queue and address vector.
///
/// # Errors
/// What the provider says.
pub(crate) fn enabled<D: Domain>(
    domain: &Arc<D>,
    info: &Info,
    cq: &Arc<D::Cq>,
    av: &Arc<D::Av>,
) -> Result<Arc<D::Endpoint>> {
    let ep = domain.endpoint(info, FidToken::NONE);
    let ep = ep.context("fi_endpoint")?;
    ep.bind_cq(cq, Flags::SEND | Flags::RECV)
        .context("fi_ep_bind")?;
    ep.bind_av(av).context("fi_ep_bind")?;
    ep.enable().context("fi_enable")?;
    Ok(ep)
}
