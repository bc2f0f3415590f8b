//! Scalable endpoints: several contexts under one address, each with a port of its own
//! (`docs/design/named-receive-contexts.md`).

use std::sync::Arc;

use parking_lot::Mutex;
use ripstop_core::provider::Token;
use ripstop_core::{Info, SHARED_CONTEXT};
use ripstop_types::{EpType, Errno, Result};

use crate::api::av::Av;
use crate::api::core_ep::EndpointCore;
use crate::api::domain::{Domain, Mode};
use crate::api::source::rdm_source;
use crate::attr::MAX_CONTEXTS;
use crate::transport::Transport;

/// A scalable endpoint.
#[derive(Debug)]
pub struct ScalableEp<T: Transport, K: Mode> {
    pub(crate) info: Info,
    pub(crate) tx_count: usize,
    pub(crate) rx_count: usize,
    /// By index of the context; before the address vector they use.
    pub(crate) cores: Vec<Arc<EndpointCore<T, K>>>,
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) av: Mutex<Option<Arc<Av<T, K>>>>,
}

impl<T: Transport, K: Mode> ScalableEp<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, info: &Info, token: Token) -> Result<Arc<Self>> {
        if info.ep.ep_type != EpType::Rdm {
            return Err(Errno::ENOSYS);
        }
        let tx_count = count::<T>(info.ep.tx_ctx_cnt)?;
        let rx_count = count::<T>(info.ep.rx_ctx_cnt)?;
        let source = rdm_source::<T>(&domain.fabric.params, info)?;
        let row = T::bind_contexts(&domain.fabric.params, &source, tx_count.max(rx_count))?;
        let mut cores = Vec::with_capacity(row.len());
        for (index, listener) in row.into_iter().enumerate() {
            cores.push(EndpointCore::open_rdm(
                domain,
                info,
                token,
                listener,
                index as u8,
            )?);
        }
        Ok(Arc::new(Self {
            info: info.clone(),
            tx_count,
            rx_count,
            cores,
            domain: Arc::clone(domain),
            av: Mutex::new(None),
        }))
    }

    /// Takes a context into use, so that peers can connect to it.
    pub(crate) fn listen(&self, core: &EndpointCore<T, K>) -> Result<()> {
        let av = self.av.lock().clone().ok_or(Errno::ENOAV)?;
        core.listen(&mut self.domain.lock(), &av)
    }

    pub(crate) fn core(&self, index: usize, count: usize) -> Result<&Arc<EndpointCore<T, K>>> {
        if index >= count {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "context {index} is asked for, the scalable endpoint has {count}; set tx_ctx_cnt and \
                 rx_ctx_cnt of ep_attr before it is opened"
            ));
        }
        self.cores.get(index).ok_or(Errno::EINVAL)
    }
}

/// How many contexts a count of `fi_ep_attr` means.
fn count<T: Transport>(asked: usize) -> Result<usize> {
    match asked {
        0 => Ok(1),
        SHARED_CONTEXT => Err(refused!(
            T::EpCtrl,
            EINVAL,
            "a scalable endpoint cannot share contexts; ask for a number of them"
        )),
        asked if asked <= MAX_CONTEXTS => Ok(asked),
        _ => Err(Errno::EINVAL),
    }
}
