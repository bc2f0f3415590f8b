//! What `fi_pingpong` and `ripstop perf` have in common: an endpoint and its completion queue.

use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use ripstop_core::provider::{CompletionQueue, CqAttr, Domain, Endpoint as _};
use ripstop_core::{FidToken, Info};
use ripstop_types::Flags;

/// Context of every send, write and read; receives have another.
pub(crate) const SEND: usize = 1;
/// Context of every receive.
pub(crate) const RECV: usize = 2;

/// An endpoint that is not enabled yet.
pub(crate) struct Opening<D: Domain> {
    /// The endpoint, to be bound to what else its type needs.
    pub(crate) ep: Arc<D::Endpoint>,
    /// The queue of all its completions.
    pub(crate) cq: Arc<D::Cq>,
}

impl<D: Domain> Opening<D> {
    /// Opens an endpoint with a completion queue that has room for `size`, or as much as the provider
    /// likes for 0.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn new(domain: &Arc<D>, info: &Info, token: FidToken, size: usize) -> Result<Self> {
        let attr = CqAttr {
            size,
            ..CqAttr::default()
        };
        let cq = domain.cq(&attr).context("fi_cq_open")?;
        let ep = domain.endpoint(info, token).context("fi_endpoint")?;
        ep.bind_cq(&cq, Flags::SEND | Flags::RECV)
            .context("fi_ep_bind")?;
        Ok(Self { ep, cq })
    }
}

/// The failure at hand, of an operation that its context names.
#[cold]
pub(crate) fn failure<C: CompletionQueue>(
    cq: &C,
    name: impl FnOnce(usize) -> &'static str,
) -> anyhow::Error {
    let mut text = String::new();
    let read = cq.read_error(|error, _| {
        text = format!("a {} failed: {}", name(error.entry.context), error.err);
    });
    match read {
        Ok(()) => anyhow!(text),
        Err(error) => anyhow!("fi_cq_readerr: {error}"),
    }
}

/// The name of an operation with one of the contexts here.
pub(crate) fn name(context: usize) -> &'static str {
    match context {
        SEND => "send",
        _ => "receive",
    }
}
