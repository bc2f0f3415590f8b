//! Scalable endpoints and shared receive contexts.

use std::sync::Arc;

use ripstop_core::provider::{
    DataCall, Endpoint as _, EpOption, RecvKind, RxContext, ScalableEp as Model,
    SharedRx as SharedModel, Threshold, TxContext,
};
use ripstop_core::{Address, RxAttr, TxAttr};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Flags, Result};

use super::told;
use crate::object::contexts::ContextAttr;
use crate::threading::Threading;
use crate::{Av, Counter, Cq, Domain, ScalableEp, SharedRx};

impl<M: Threading> SharedModel for SharedRx<M> {
    type Domain = Domain<M>;

    fn bind_cq(&self, cq: &Arc<Cq<M>>, flags: Flags) -> Result<()> {
        self.context().bind_cq(cq, flags)
    }

    fn bind_counter(&self, counter: &Arc<Counter<M>>, flags: Flags) -> Result<()> {
        self.context().bind_counter(counter, flags)
    }

    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()> {
        self.context().recv(kind, iov, src, context, flags)
    }

    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Domain<M>>) -> Result<()> {
        self.context().trigger(call, when)
    }

    fn cancel(&self, context: Context) -> Result<()> {
        self.context().cancel(context)
    }

    fn option(&self, option: EpOption) -> Result<usize> {
        self.context().option(option)
    }

    fn set_option(&self, option: EpOption, value: usize) -> Result<()> {
        self.context().set_option(option, value)
    }
}

impl<M: Threading> Model for ScalableEp<M> {
    type Domain = Domain<M>;

    fn bind_av(&self, av: &Arc<Av<M>>) -> Result<()> {
        self.endpoint().bind_av(av)
    }

    fn enable(&self) -> Result<()> {
        self.endpoint().enable()
    }

    fn name(&self) -> Result<Address> {
        self.endpoint().name()
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        self.endpoint().set_name(address)
    }

    fn tx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&TxAttr>,
    ) -> Result<TxContext<Domain<M>>> {
        let context = self.open_context(index, &ContextAttr::Tx(attr));
        let attr = attr.unwrap_or(self.tx_attr()).clone();
        Ok((Arc::new(context.map_err(told)?), attr))
    }

    fn rx_context(
        self: &Arc<Self>,
        index: usize,
        attr: Option<&RxAttr>,
    ) -> Result<RxContext<Domain<M>>> {
        let context = self.open_context(index, &ContextAttr::Rx(attr));
        let attr = attr.unwrap_or(self.rx_attr()).clone();
        Ok((Arc::new(context.map_err(told)?), attr))
    }
}
