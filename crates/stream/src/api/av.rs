//! Address vectors.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use ripstop_core::provider::{AddressVector, AvAttr};
use ripstop_core::{Address, EventQueue};
use ripstop_engine::id::{AvId, UserIdsId};
use ripstop_engine::ids::UserIds;
use ripstop_types::{AvType, Errno, FiAddr, Flags, Result};

use crate::addr::{Addr, Peers};
use crate::api::domain::{Domain, Mode};
use crate::state::{AvTableOf, State};
use crate::transport::Transport;

/// Opens an address vector that processes share. Names are those of one interface.
fn open_shared<T: Transport, K: Mode>(
    domain: &Domain<T, K>,
    name: &str,
    count: usize,
    read_only: bool,
) -> Result<AvTableOf<T>> {
    let interface = domain.info.domain.name.as_deref().unwrap_or(T::NAME);
    let name_here = format!("{interface}-{name}");
    Peers::open_shared(&name_here, count, read_only).inspect_err(|error| {
        log_warn!(
            T::Av,
            "the shared address vector {name} cannot be opened: {error}"
        );
    })
}

/// So many peers are made room for at most before they come.
const MAX_PREPARED_ENTRIES: usize = 1 << 16;

/// Most upper bits of a fabric address that may name a receive context.
const MAX_CTX_BITS: u8 = 16;

/// An address vector. A fabric address is an index, for a map as well as
/// for a table.
#[derive(Debug)]
pub struct Av<T: Transport, K: Mode> {
    pub(crate) domain: Arc<Domain<T, K>>,
    pub(crate) id: AvId,
    /// Upper bits of a fabric address that name a receive context of the peer.
    pub(crate) rx_ctx_bits: u8,
    av_type: AvType,
    wants_events: bool,
    eq: OnceLock<Arc<EventQueue>>,
    /// See [`AddressVector::map`].
    map: Box<[u64]>,
    /// It was opened for ids of the program's own.
    strict: bool,
    /// These ids in the engine, once there are some. Only changed under the domain's lock.
    ids: AtomicU32,
}

impl<T: Transport, K: Mode> Av<T, K> {
    pub(crate) fn open(domain: &Arc<Domain<T, K>>, attr: &AvAttr) -> Result<Arc<Self>> {
        let strict = attr.flags.contains(Flags::AV_USER_ID);
        if strict && !domain.info.domain.caps.contains(Flags::AV_USER_ID) {
            return Err(refused!(
                T::Av,
                EINVAL,
                "FI_AV_USER_ID is a capability of the domain that was not asked for; open a \
                 domain with it"
            ));
        }
        let read_only = attr.flags.contains(Flags::READ);
        let count = match attr.count {
            0 => domain.fabric.tunables().universe,
            count => count,
        };
        let table: AvTableOf<T> = match &attr.name {
            None if read_only => {
                return Err(refused!(
                    T::Av,
                    EINVAL,
                    "FI_READ opens a shared address vector, and name is NULL; say its name"
                ));
            }
            None => Peers::with_room(count.min(MAX_PREPARED_ENTRIES))?,
            Some(name) => open_shared(domain, name, count, read_only)?,
        };
        let map = table.map().into();
        if attr.rx_ctx_bits > MAX_CTX_BITS {
            return Err(refused!(
                T::Av,
                EINVAL,
                "rx_ctx_bits is above {MAX_CTX_BITS}, which names all contexts there can be"
            ));
        }
        let mut state = domain.lock();
        let ids = match strict {
            true => Some(state.engine.open_ids(UserIds::new(true))?),
            false => None,
        };
        let is_free = |id: &AvId| state.avs.get(*id).is_none();
        let id = (1..).filter_map(AvId::new).find(is_free);
        let id = id.ok_or(Errno::ENOMEM)?;
        state.avs.insert(id, table);
        drop(state);
        Ok(Arc::new(Self {
            domain: Arc::clone(domain),
            id,
            rx_ctx_bits: attr.rx_ctx_bits,
            av_type: match attr.av_type {
                AvType::Unspec => AvType::Table,
                given => given,
            },
            wants_events: attr.flags.contains(Flags::COMPLETION),
            eq: OnceLock::new(),
            map,
            strict,
            ids: AtomicU32::new(UserIdsId::place(ids) as u32),
        }))
    }

    fn table(state: &mut State<T>, id: AvId) -> Result<&mut AvTableOf<T>> {
        state.avs.get_mut(id).ok_or(Errno::EINVAL)
    }

    fn insert_one(&self, state: &mut State<T>, address: &Address) -> Result<FiAddr> {
        let addr = T::Addr::from_address(address)?.canonical();
        let handle = Self::table(state, self.id)?.insert(&addr)?;
        if state.connections.places() > 0 {
            state.name_peer(self.id, &addr, handle);
        }
        Ok(handle)
    }
}

impl<T: Transport, K: Mode> Av<T, K> {
    /// The ids of its peers in the engine, if any.
    pub(crate) fn ids(&self) -> Option<UserIdsId> {
        UserIdsId::new(self.ids.load(Ordering::Relaxed))
    }

    fn set_id(&self, state: &mut State<T>, peer: FiAddr, id: FiAddr) -> Result<()> {
        let ids = match self.ids() {
            Some(ids) => ids,
            None => {
                let ids = state.engine.open_ids(UserIds::new(false))?;
                self.ids.store(ids.number(), Ordering::Relaxed);
                state.name_by(self.id, ids);
                ids
            }
        };
        let ids = state.engine.ids_mut(ids).ok_or(Errno::EINVAL)?;
        ids.set(peer, id)
    }
}

impl<T: Transport, K: Mode> Drop for Av<T, K> {
    fn drop(&mut self) {
        let mut state = self.domain.lock();
        state.avs.remove(self.id);
        state.firewalled.retain(|(av, _)| *av != self.id);
        if let Some(ids) = self.ids() {
            state.engine.close_ids(ids);
        }
    }
}

impl<T: Transport, K: Mode> AddressVector for Av<T, K> {
    fn av_type(&self) -> AvType {
        self.av_type
    }

    fn insert(&self, address: &Address) -> Result<FiAddr> {
        self.insert_one(&mut self.domain.lock(), address)
    }

    fn insert_as(&self, address: &Address, id: FiAddr) -> Result<FiAddr> {
        if self.strict {
            return Err(Errno::EINVAL);
        }
        let mut state = self.domain.lock();
        let peer = self.insert_one(&mut state, address)?;
        self.set_id(&mut state, peer, id)?;
        Ok(peer)
    }

    fn set_user_id(&self, addr: FiAddr, id: FiAddr) -> Result<()> {
        let mut state = self.domain.lock();
        let known = Self::table(&mut state, self.id)?.lookup(addr).is_some();
        if !known || !self.strict {
            return Err(Errno::EINVAL);
        }
        self.set_id(&mut state, addr, id)
    }

    fn set_firewalled(&self, addr: FiAddr) -> Result<()> {
        let mut state = self.domain.lock();
        if Self::table(&mut state, self.id)?.lookup(addr).is_none() {
            return Err(Errno::EINVAL);
        }
        if T::KNOWS_FIREWALLS {
            state.firewalled.insert((self.id, addr));
        }
        Ok(())
    }

    fn insert_ip(
        &self,
        addresses: &mut dyn Iterator<Item = Result<SocketAddr>>,
        each: &mut dyn FnMut(Result<FiAddr>),
    ) {
        let mut state = self.domain.lock();
        for addr in addresses {
            each(addr.and_then(|addr| self.insert_one(&mut state, &Address::Ip(addr))));
        }
    }

    fn remove(&self, addr: FiAddr) -> Result<()> {
        let mut state = self.domain.lock();
        let table = Self::table(&mut state, self.id)?;
        if let Some(peer) = table.remove(addr)? {
            let cleanup = self.domain.fabric.tunables().remove_cleanup;
            state.unname_peer(self.id, &peer, addr, cleanup);
            if let Some(ids) = self.ids().and_then(|ids| state.engine.ids_mut(ids)) {
                ids.forget(addr);
            }
        }
        state.after();
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        let mut state = self.domain.lock();
        Self::table(&mut state, self.id)?
            .lookup(addr)
            .map(|addr| addr.to_address())
            .ok_or(Errno::EINVAL)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        self.eq.set(Arc::clone(eq)).map_err(|_| Errno::EINVAL)
    }

    fn addresses(&self) -> Vec<FiAddr> {
        let mut state = self.domain.lock();
        let table = Self::table(&mut state, self.id);
        table.map_or_else(|_| Vec::new(), |table| table.addresses())
    }

    fn map(&self) -> &[u64] {
        &self.map
    }

    fn event_queue(&self) -> Option<Arc<EventQueue>> {
        self.eq.get().filter(|_| self.wants_events).cloned()
    }
}
