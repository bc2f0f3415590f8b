//! Shared transmit contexts.

use std::sync::Arc;

use ripstop_core::TxAttr;
use ripstop_types::Result;

use crate::api::domain::{Domain, Mode};
use crate::transport::Transport;

/// A shared transmit context. What endpoints share here is the domain's
/// own: its connections are written by whoever makes progress. Each endpoint keeps its own bound
/// on unfinished sends.
#[derive(Debug)]
pub struct SharedTx<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
}

impl<T: Transport, K: Mode> SharedTx<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, attr: &TxAttr) -> Result<Arc<Self>> {
        let offered = &domain.info.tx;
        let fits = (offered.caps | domain.info.caps).contains(attr.caps)
            && attr.inject_size <= offered.inject_size.max(domain.fabric.tunables().max_inject)
            && attr.iov_limit <= ripstop_engine::IOV_LIMIT;
        if !fits {
            return Err(refused!(
                T::Domain,
                EINVAL,
                "a shared transmit context asks for more than the domain has; use the tx_attr that \
                 fi_getinfo gave"
            ));
        }
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
        }))
    }
}
