//! Address vectors.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use ripstop_core::provider::{AddressVector, AvAttr};
use ripstop_core::{Address, AddressTable, EventQueue};
use ripstop_types::{AvType, Errno, FiAddr, Flags, Result};

use crate::domain::{Domain, Mode};
use crate::state::State;

/// Most upper bits of a fabric address that may name a receive context.
const MAX_CTX_BITS: u8 = 16;

/// An address vector of the tcp provider. A fabric address is an index, for a map as well as
/// for a table.
#[derive(Debug)]
pub struct Av<K: Mode> {
    pub(crate) domain: Arc<Domain<K>>,
    pub(crate) id: u32,
    /// Upper bits of a fabric address that name a receive context of the peer.
    pub(crate) rx_ctx_bits: u8,
    av_type: AvType,
    wants_events: bool,
    eq: OnceLock<Arc<EventQueue>>,
}

impl<K: Mode> Av<K> {
    pub(crate) fn open(domain: &Arc<Domain<K>>, attr: &AvAttr) -> Result<Arc<Self>> {
        if attr
            .flags
            .intersects(Flags::READ | Flags::SHARED_AV | Flags::AV_USER_ID)
        {
            return Err(Errno::ENOSYS);
        }
        if attr.rx_ctx_bits > MAX_CTX_BITS {
            return Err(Errno::EINVAL);
        }
        let mut state = domain.lock();
        let free = state.avs.iter().position(Option::is_none);
        let id = free.unwrap_or(state.avs.len());
        if id == state.avs.len() {
            state.avs.push(None);
        }
        state.avs[id] = Some(AddressTable::new());
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id: id as u32,
            rx_ctx_bits: attr.rx_ctx_bits,
            av_type: match attr.av_type {
                AvType::Unspec => AvType::Table,
                given => given,
            },
            wants_events: attr.flags.contains(Flags::COMPLETION),
            eq: OnceLock::new(),
        }))
    }

    fn table(state: &mut State, id: u32) -> Result<&mut AddressTable> {
        state
            .avs
            .get_mut(id as usize)
            .and_then(Option::as_mut)
            .ok_or(Errno::EINVAL)
    }

    fn insert_one(&self, state: &mut State, addr: SocketAddr) -> Result<FiAddr> {
        let addr = SocketAddr::new(addr.ip().to_canonical(), addr.port());
        let handle = Self::table(state, self.id)?.insert(&addr)?;
        if state.has_streams() {
            state.name_peer(self.id, &addr, handle);
        }
        Ok(handle)
    }
}

impl<K: Mode> Drop for Av<K> {
    fn drop(&mut self) {
        self.domain.lock().avs[self.id as usize] = None;
    }
}

impl<K: Mode> AddressVector for Av<K> {
    fn av_type(&self) -> AvType {
        self.av_type
    }

    fn insert(&self, address: &Address) -> Result<FiAddr> {
        let Address::Ip(addr) = address else {
            return Err(Errno::EINVAL);
        };
        self.insert_one(&mut self.domain.lock(), *addr)
    }

    fn insert_ip(
        &self,
        addresses: &mut dyn Iterator<Item = Result<SocketAddr>>,
        each: &mut dyn FnMut(Result<FiAddr>),
    ) {
        let mut state = self.domain.lock();
        for addr in addresses {
            each(addr.and_then(|addr| self.insert_one(&mut state, addr)));
        }
    }

    fn remove(&self, addr: FiAddr) -> Result<()> {
        let mut state = self.domain.lock();
        let table = Self::table(&mut state, self.id)?;
        if let Some(peer) = table.remove(addr)? {
            state.unname_peer(self.id, &peer, addr);
        }
        state.after();
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        let mut state = self.domain.lock();
        Self::table(&mut state, self.id)?
            .lookup(addr)
            .map(Address::Ip)
            .ok_or(Errno::EINVAL)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        self.eq.set(Arc::clone(eq)).map_err(|_| Errno::EINVAL)
    }

    fn event_queue(&self) -> Option<Arc<EventQueue>> {
        self.eq.get().filter(|_| self.wants_events).cloned()
    }
}
