//! Address vectors, which datagram endpoints have.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use ripstop_core::eq::EventQueue;
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self, AvAttr};
use ripstop_core::{Address, fi_warn};
use ripstop_ibverbs::AddressHandle;
use ripstop_types::{AvType, Errno, FiAddr, Flags, Result};

use crate::domain::Domain;
use crate::params::NAME;
use crate::sides::Sides;
use crate::ud::Name;
use crate::ud::Peers;

/// An address vector.
#[derive(Debug)]
pub struct Av {
    pub(crate) domain: Arc<Domain>,
    av_type: AvType,
    peers: RwLock<Peers>,
    /// Held while a peer is inserted or removed: the device may take its time to find it.
    changing: Mutex<()>,
    /// The endpoints that send to its peers.
    endpoints: Mutex<Vec<Weak<Sides>>>,
    wants_events: bool,
    eq: OnceLock<Arc<EventQueue>>,
}

impl Av {
    pub(crate) fn open(domain: &Arc<Domain>, attr: &AvAttr) -> Result<Arc<Self>> {
        if domain.port.is_none() {
            fi_warn!(
                NAME,
                Subsys::Av,
                "connected endpoints have no address vector; open the domain of an info for FI_EP_DGRAM"
            );
            return Err(Errno::ENOSYS);
        }
        let lacks = if attr.name.is_some() || attr.flags.contains(Flags::READ) {
            "shared address vectors (name, FI_READ)"
        } else if attr.flags.contains(Flags::AV_USER_ID) {
            "peers with ids of the program (FI_AV_USER_ID)"
        } else if attr.rx_ctx_bits > 0 {
            "peers with several receive contexts (rx_ctx_bits)"
        } else {
            return Ok(Self::new(domain, attr));
        };
        fi_warn!(
            NAME,
            Subsys::Av,
            "there are no {lacks} here; leave that out of fi_av_attr"
        );
        Err(Errno::ENOSYS)
    }

    fn new(domain: &Arc<Domain>, attr: &AvAttr) -> Arc<Self> {
        Arc::new(Self {
            domain: Arc::clone(domain),
            av_type: match attr.av_type {
                AvType::Unspec => AvType::Table,
                given => given,
            },
            peers: RwLock::default(),
            changing: Mutex::new(()),
            endpoints: Mutex::default(),
            wants_events: attr.flags.contains(Flags::COMPLETION),
            eq: OnceLock::new(),
        })
    }

    /// The peers, which stay as they are meanwhile.
    #[inline]
    pub(crate) fn peers(&self) -> RwLockReadGuard<'_, Peers> {
        self.peers.read()
    }

    /// An endpoint sends to the peers.
    pub(crate) fn attach(&self, sides: &Arc<Sides>) {
        let mut endpoints = self.endpoints.lock();
        endpoints.retain(|other| other.strong_count() > 0);
        endpoints.push(Arc::downgrade(sides));
    }

    fn insert_name(&self, name: &Name) -> Result<FiAddr> {
        let port = self.domain.port.as_ref().ok_or(Errno::ENOSYS)?;
        if !name.is_reachable() {
            let address = name.address();
            fi_warn!(
                NAME,
                Subsys::Av,
                "{address} is no address of an endpoint; take what fi_getname gives there"
            );
            return Err(Errno::EADDRNOTAVAIL);
        }
        let path = port.path(name);
        let _changing = self.changing.lock();
        let known = self.peers.read().handle(&path);
        let handle = match known {
            Some(handle) => handle,
            None => {
                let made = AddressHandle::new(&self.domain.pd, &path).inspect_err(|error| {
                    let (address, device) = (name.address(), self.domain.context.name());
                    fi_warn!(
                        NAME,
                        Subsys::Av,
                        "{address} is not reached by device {device}: {error}; look at the network, and at \
                         FI_VERBS_GID_IDX on both sides"
                    );
                });
                Arc::new(made?)
            }
        };
        self.peers.write().insert(name, path, handle)
    }

    /// Requests that are under way may still need the handle.
    fn retire(&self, handle: &Arc<AddressHandle>) {
        let endpoints = self.endpoints.lock();
        for sides in endpoints.iter().filter_map(Weak::upgrade) {
            sides.tx.lock().keep(handle);
        }
    }
}

impl provider::AddressVector for Av {
    fn av_type(&self) -> AvType {
        self.av_type
    }

    fn insert(&self, address: &Address) -> Result<FiAddr> {
        let name = Name::of(address).inspect_err(|_| {
            fi_warn!(
                NAME,
                Subsys::Av,
                "{address} is no address of the format FI_ADDR_IB_UD, which datagram endpoints have"
            );
        })?;
        self.insert_name(&name)
    }

    fn insert_ip(
        &self,
        addresses: &mut dyn Iterator<Item = Result<SocketAddr>>,
        each: &mut dyn FnMut(Result<FiAddr>),
    ) {
        for addr in addresses {
            each(addr.and_then(|addr| self.insert(&Address::Ip(addr))));
        }
    }

    fn remove(&self, addr: FiAddr) -> Result<()> {
        let _changing = self.changing.lock();
        let gone = self.peers.write().remove(addr)?;
        if let Some(handle) = gone {
            self.retire(&handle);
        }
        Ok(())
    }

    fn lookup(&self, addr: FiAddr) -> Result<Address> {
        let peers = self.peers.read();
        peers.name(addr).map(Name::address).ok_or(Errno::EINVAL)
    }

    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        self.eq.set(Arc::clone(eq)).map_err(|_| Errno::EINVAL)
    }

    fn addresses(&self) -> Vec<FiAddr> {
        self.peers.read().addresses()
    }

    fn event_queue(&self) -> Option<Arc<EventQueue>> {
        self.eq.get().filter(|_| self.wants_events).cloned()
    }
}
