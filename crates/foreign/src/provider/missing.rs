//! Objects that a library may have and this crate does not offer as those of the object model.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::sync::Arc;

use ripstop_core::provider::{
    Arrival, DataCall, Done, EpOption, PeerRx, RecvKind, RxContext, ScalableEp, SharedRx,
    Threshold, TxContext,
};
use ripstop_core::{Address, RxAttr, TxAttr};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Flags, Result};

use super::{Av, Counter, Cq, Domain};
use crate::Threading;

/// An object that there never is: a shared or scalable context, or one of another provider.
#[derive(Debug)]
pub struct Missing<M> {
    never: Infallible,
    mode: PhantomData<M>,
}

impl<M: Threading> SharedRx for Missing<M> {
    type Domain = Domain<M>;

    fn bind_cq(&self, _: &Arc<Cq<M>>, _: Flags) -> Result<()> {
        match self.never {}
    }

    fn bind_counter(&self, _: &Arc<Counter<M>>, _: Flags) -> Result<()> {
        match self.never {}
    }

    fn recv(
        &self,
        _: RecvKind,
        _: &[UserBuf],
        _: FiAddr,
        _: Context,
        _: Option<Flags>,
    ) -> Result<()> {
        match self.never {}
    }

    fn trigger(&self, _: &DataCall<'_>, _: Threshold<'_, Domain<M>>) -> Result<()> {
        match self.never {}
    }

    fn cancel(&self, _: Context) -> Result<()> {
        match self.never {}
    }

    fn option(&self, _: EpOption) -> Result<usize> {
        match self.never {}
    }

    fn set_option(&self, _: EpOption, _: usize) -> Result<()> {
        match self.never {}
    }
}

impl<M: Threading> PeerRx for Missing<M> {
    type Domain = Domain<M>;

    fn next_arrival(&self) -> Option<Arrival> {
        match self.never {}
    }

    fn start(&self, _: u32, _: &[UserBuf], _: Context) -> Result<()> {
        match self.never {}
    }

    fn let_wait(&self, _: u32) -> Result<()> {
        match self.never {}
    }

    fn discard(&self, _: u32) -> Result<()> {
        match self.never {}
    }

    fn source(&self, _: u32) -> FiAddr {
        match self.never {}
    }

    fn take_done(&self, _: usize, _: impl FnMut(Done)) -> usize {
        match self.never {}
    }
}

impl<M: Threading> ScalableEp for Missing<M> {
    type Domain = Domain<M>;

    fn bind_av(&self, _: &Arc<Av<M>>) -> Result<()> {
        match self.never {}
    }

    fn enable(&self) -> Result<()> {
        match self.never {}
    }

    fn name(&self) -> Result<Address> {
        match self.never {}
    }

    fn set_name(&self, _: &Address) -> Result<()> {
        match self.never {}
    }

    fn tx_context(self: &Arc<Self>, _: usize, _: Option<&TxAttr>) -> Result<TxContext<Domain<M>>> {
        match self.never {}
    }

    fn rx_context(self: &Arc<Self>, _: usize, _: Option<&RxAttr>) -> Result<RxContext<Domain<M>>> {
        match self.never {}
    }
}

impl<M> Missing<M> {
    /// What follows from there being one.
    pub(super) fn never<T>(&self) -> T {
        match self.never {}
    }
}
