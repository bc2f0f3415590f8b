//! Receive contexts whose receives another provider has, which no library offers to programs.

use std::convert::Infallible;
use std::marker::PhantomData;

use ripstop_core::provider::{Arrival, Done, PeerRx};
use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Result};

use crate::Domain;
use crate::threading::Threading;

/// An object that there never is: a receive context of another provider.
#[derive(Debug)]
pub struct Missing<M> {
    never: Infallible,
    mode: PhantomData<M>,
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

impl<M> Missing<M> {
    /// What follows from there being one.
    pub(super) fn never<T>(&self) -> T {
        match self.never {}
    }
}
