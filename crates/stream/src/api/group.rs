//! Collective groups (man page `fi_collective(3)`).

use std::sync::Arc;

use ripstop_core::provider::{self, JoinCall, Token};
use ripstop_engine::id::{EpId, GroupId};
use ripstop_types::{FiAddr, Result};

use crate::api::domain::{Domain, Mode};
use crate::api::endpoint::Endpoint;
use crate::transport::Transport;

/// A group that an endpoint has joined, or is joining.
#[derive(Debug)]
pub struct Group<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: GroupId,
    pub(crate) addr: FiAddr,
    /// It stays as long as the group.
    _ep: Arc<Endpoint<T, K>>,
}

impl<T: Transport, K: Mode> provider::Group for Group<T, K> {
    fn addr(&self) -> FiAddr {
        self.addr
    }
}

impl<T: Transport, K: Mode> Drop for Group<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        state.engine.close_group(self.id);
        state.groups.remove(self.id);
        state.after();
    }
}

impl<T: Transport, K: Mode> Group<T, K> {
    /// Joins a group.
    pub(crate) fn join(
        domain: &Arc<Domain<T, K>>,
        ep: &Arc<Endpoint<T, K>>,
        ep_id: EpId,
        call: &JoinCall<'_>,
        token: Token,
    ) -> Result<Arc<Self>> {
        let mut state = domain.lock();
        let (id, addr) = state.join_group(ep_id, call, token)?;
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            addr,
            _ep: Arc::clone(ep),
        }))
    }
}
