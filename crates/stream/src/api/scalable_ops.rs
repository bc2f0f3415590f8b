//! The calls of scalable endpoints.

use std::sync::Arc;

use ripstop_core::provider::{self, RxContext, TxContext};
use ripstop_core::{Address, RxAttr, TxAttr};
use ripstop_types::{Errno, Result, tclass};

use crate::addr::Addr as _;
use crate::api::av::Av;
use crate::api::core_ep::{EndpointCore, Part, RX_FLAGS, TX_FLAGS};
use crate::api::domain::{Domain, Mode, bind_once};
use crate::api::endpoint::Endpoint;
use crate::api::scalable::ScalableEp;
use crate::state::State;
use crate::transport::Transport;
use crate::transport::listener::Listener as _;

impl<T: Transport, K: Mode> provider::ScalableEp for ScalableEp<T, K> {
    type Domain = Domain<T, K>;

    fn bind_av(&self, av: &Arc<Av<T, K>>) -> Result<()> {
        self.domain.check_same(&av.domain, "the address vector")?;
        bind_once(&mut self.av.lock(), av)
    }

    fn enable(&self) -> Result<()> {
        self.cores.iter().try_for_each(|core| self.listen(core))
    }

    fn name(&self) -> Result<Address> {
        let core = self.cores.first().ok_or(Errno::EOPBADSTATE)?;
        let mut state = self.domain.lock();
        let rdm = state.ep(core.id).and_then(|ep| ep.rdm.as_ref());
        rdm.map(|rdm| rdm.addr.to_address())
            .ok_or(Errno::EOPBADSTATE)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        let wanted = T::Addr::from_address(address)?;
        let row = T::bind_contexts(&self.domain.fabric.params, &wanted, self.cores.len())?;
        let mut state = self.domain.lock();
        let used = |state: &mut State<T>, core: &EndpointCore<T, K>| {
            let rdm = state.ep(core.id).and_then(|ep| ep.rdm.as_ref());
            rdm.is_none_or(|rdm| rdm.av.is_some())
        };
        if self.cores.iter().any(|core| used(&mut state, core)) {
            return Err(Errno::EOPBADSTATE);
        }
        for (core, listener) in self.cores.iter().zip(row) {
            let rdm = state.ep(core.id).and_then(|ep| ep.rdm.as_mut());
            let rdm = rdm.ok_or(Errno::EOPBADSTATE)?;
            rdm.addr = listener.local_addr()?;
            rdm.listener = listener;
        }
        Ok(())
    }

    fn tx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&TxAttr>,
    ) -> Result<TxContext<Domain<T, K>>> {
        let core = self.core(index, self.tx_count)?;
        let mut made = self.info.tx.clone();
        if let Some(attr) = attr {
            let fits = self.info.caps.contains(attr.caps)
                && attr.inject_size <= made.inject_size
                && attr.iov_limit <= ripstop_engine::IOV_LIMIT
                && tclass::dscp(attr.tclass).is_some()
                && TX_FLAGS.contains(attr.op_flags);
            if !fits {
                return Err(Errno::EINVAL);
            }
            made.op_flags = attr.op_flags;
            if attr.tclass != 0 {
                made.tclass = attr.tclass;
            }
            if attr.size != 0 {
                made.size = attr.size;
            }
            if attr.inject_size != 0 {
                made.inject_size = attr.inject_size;
            }
        }
        let context = self.context(core, Part::Tx)?;
        let mut state = self.domain.lock();
        if let Some(ep) = state.ep(core.id) {
            ep.tx_flags = made.op_flags & TX_FLAGS;
            ep.inject_size = made.inject_size;
            ep.inject_atomic = made.inject_size;
            if made.tclass != 0 {
                // For the connections that are made from now on.
                ep.dscp = tclass::dscp(made.tclass);
            }
            ep.tx_selective = false;
        }
        let size = self.domain.tx_room(made.size);
        state
            .engine
            .change_ep(core.id, |config| config.tx_size = size);
        drop(state);
        Ok((context, made))
    }

    fn rx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&RxAttr>,
    ) -> Result<RxContext<Domain<T, K>>> {
        let core = self.core(index, self.rx_count)?;
        let mut made = self.info.rx.clone();
        if let Some(attr) = attr {
            let fits = self.info.caps.contains(attr.caps)
                && attr.iov_limit <= ripstop_engine::IOV_LIMIT
                && RX_FLAGS.contains(attr.op_flags);
            if !fits {
                return Err(Errno::EINVAL);
            }
            made.op_flags = attr.op_flags;
            // A hint: receives are posted until memory ends.
            made.size = made.size.max(attr.size);
        }
        let context = self.context(core, Part::Rx)?;
        if let Some(ep) = self.domain.lock().ep(core.id) {
            ep.rx_flags = made.op_flags & RX_FLAGS;
            ep.rx_selective = false;
        }
        Ok((context, made))
    }
}

impl<T: Transport, K: Mode> ScalableEp<T, K> {
    fn context(
        self: &Arc<Self>,
        core: &Arc<EndpointCore<T, K>>,
        part: Part,
    ) -> Result<Arc<Endpoint<T, K>>> {
        core.enter(part)?;
        let sep = Some(Arc::clone(self));
        Ok(Endpoint::part_of(Arc::clone(core), &self.info, part, sep))
    }
}
