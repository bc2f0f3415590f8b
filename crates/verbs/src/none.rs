//! Objects that this provider does not have: types without values, so that their methods are never
//! called.

use std::sync::Arc;

use ripstop_core::provider::{self, Arrival, Done, RxContext, TxContext};
use ripstop_core::{Address, RxAttr, TxAttr};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Result};

use crate::dgram::Av;
use crate::domain::Domain;

/// Scalable endpoints.
#[derive(Debug)]
pub enum NoScalableEp {}

impl provider::ScalableEp for NoScalableEp {
    type Domain = Domain;

    fn bind_av(&self, _: &Arc<Av>) -> Result<()> {
        match *self {}
    }

    fn enable(&self) -> Result<()> {
        match *self {}
    }

    fn name(&self) -> Result<Address> {
        match *self {}
    }

    fn set_name(&self, _: &Address) -> Result<()> {
        match *self {}
    }

    fn tx_context(
        self: &Arc<Self>,
        _: usize,
        _: Option<&TxAttr>,
    ) -> Result<TxContext<Self::Domain>> {
        match **self {}
    }

    fn rx_context(
        self: &Arc<Self>,
        _: usize,
        _: Option<&RxAttr>,
    ) -> Result<RxContext<Self::Domain>> {
        match **self {}
    }
}

/// Receive contexts whose receives another provider has.
#[derive(Debug)]
pub enum NoPeerRx {}

impl provider::PeerRx for NoPeerRx {
    type Domain = Domain;

    fn next_arrival(&self) -> Option<Arrival> {
        match *self {}
    }

    fn start(&self, _: u32, _: &[UserBuf], _: Context) -> Result<()> {
        match *self {}
    }

    fn let_wait(&self, _: u32) -> Result<()> {
        match *self {}
    }

    fn discard(&self, _: u32) -> Result<()> {
        match *self {}
    }

    fn source(&self, _: u32) -> FiAddr {
        match *self {}
    }

    fn take_done(&self, _: usize, _: impl FnMut(Done)) -> usize {
        match *self {}
    }
}

/// Shared transmit contexts.
#[derive(Debug)]
pub enum NoSharedTx {}

/// Collective groups.
#[derive(Debug)]
pub enum NoGroup {}

impl provider::Group for NoGroup {
    fn addr(&self) -> FiAddr {
        match *self {}
    }
}
