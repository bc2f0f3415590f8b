//! Passive endpoints: listening for connections.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_core::eq::{Event, EventError, EventQueue};
use ripstop_core::log::Subsys;
use ripstop_core::provider::{self, Token};
use ripstop_core::{Address, Handle, Info, ProgressSource, fi_info, fi_warn};
use ripstop_ibverbs::{CmEvent, CmEventKind, CmId};
use ripstop_types::{EpType, Errno, Result};

use crate::cm::OnEvent;
use crate::fabric::Fabric;
use crate::params::NAME;
use crate::private_data;
use crate::watch::Watch;

/// Connections that wait to be accepted, where the program does not say.
const BACKLOG: u32 = 128;

/// A connection request in the program's hands (`fi_info.handle`), to be taken once.
#[derive(Debug)]
pub(crate) struct ConnRequest(pub(crate) Mutex<Option<Arc<CmId>>>);

impl ConnRequest {
    /// Takes the request of an info.
    pub(crate) fn take(info: &Info) -> Result<Arc<CmId>> {
        let request = info.handle.as_ref().and_then(Handle::downcast::<Self>);
        let id = request.and_then(|request| request.0.lock().take());
        id.ok_or_else(|| {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "info->handle is a connection request that was accepted or rejected before, or none of \
                 this provider"
            );
            Errno::EINVAL
        })
    }
}

/// Hears of requests.
struct Listener {
    info: Info,
    token: Token,
    eq: Mutex<Option<Arc<EventQueue>>>,
    /// What listens.
    id: Mutex<Weak<CmId>>,
}

impl OnEvent for Listener {
    fn watch(&self) -> Option<Arc<Watch>> {
        Watch::of_id(&*self.id.lock().upgrade()?)
    }

    fn event(&self, event: CmEvent) {
        if event.kind == CmEventKind::DeviceRemoval {
            self.lose_device();
            return;
        }
        let (CmEventKind::ConnectRequest, Some(id)) = (event.kind, event.request) else {
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "a listening endpoint has {:?}",
                event.kind
            );
            return;
        };
        let eq = self.eq.lock().clone();
        let Some(eq) = eq else { return };
        let mut info = self.info.clone();
        info.src_addr = id.local_addr().map(Address::Ip).or(info.src_addr);
        info.dest_addr = id.peer_addr().map(Address::Ip);
        // It listens on all devices where it has no address of its own.
        if let Some(device) = id.device_name() {
            info.domain.name = Some(device);
        }
        info.handle = Some(Handle::new(ConnRequest(Mutex::new(Some(id)))));
        let pushed = eq.push(Event::ConnReq {
            pep: self.token,
            info: Box::new(info),
            data: private_data::parse(&event.data).to_vec(),
        });
        if let Err(error) = pushed {
            fi_warn!(NAME, Subsys::Eq, "an event is lost: {error}");
        }
    }
}

impl Listener {
    /// Nothing is heard any more.
    fn lose_device(&self) {
        let id = self.id.lock().upgrade();
        let device = id.and_then(|id| id.device_name()).unwrap_or_default();
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "device {device} of a listening endpoint is being removed; close it"
        );
        let eq = self.eq.lock().clone();
        let error = EventError {
            err_data: device.as_bytes().to_vec(),
            ..EventError::new(self.token, Errno::ENODEV)
        };
        let told = eq.map_or(Ok(()), |eq| eq.push_error(error));
        if let Err(error) = told {
            fi_warn!(NAME, Subsys::Eq, "an event is lost: {error}");
        }
    }
}

#[derive(Debug, Default)]
struct State {
    id: Option<Arc<CmId>>,
    is_listening: bool,
    backlog: Option<u32>,
}

/// A passive endpoint.
pub struct PassiveEp {
    fabric: Arc<Fabric>,
    listener: Arc<Listener>,
    state: Mutex<State>,
}

impl std::fmt::Debug for PassiveEp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PassiveEp({:?})", self.state.lock().id)
    }
}

/// The IP address of an `fi_info` or a call.
pub(crate) fn ip(address: &Address) -> Result<SocketAddr> {
    address.ip().ok_or_else(|| {
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "{address}: endpoints are named by IP addresses; give a struct sockaddr_in or sockaddr_in6"
        );
        Errno::EINVAL
    })
}

/// An id that has a local address.
pub(crate) fn bind(fabric: &Fabric, address: &SocketAddr) -> Result<Arc<CmId>> {
    let id = CmId::new(&fabric.cm.channel)?;
    id.bind(address).inspect_err(|error| {
        fi_warn!(
            NAME,
            Subsys::EpCtrl,
            "{address} cannot be bound: {error}; take an address of an RDMA device (fi_info -p verbs), and a \
             port that is free"
        );
    })?;
    Ok(id)
}

impl PassiveEp {
    pub(crate) fn open(fabric: &Arc<Fabric>, info: &Info, token: Token) -> Result<Arc<Self>> {
        if info.ep.ep_type != EpType::Msg {
            fi_warn!(
                NAME,
                Subsys::EpCtrl,
                "a passive endpoint is of type FI_EP_MSG; take an info of fi_getinfo for that type"
            );
            return Err(Errno::EINVAL);
        }
        let source = info.src_addr.as_ref().map(ip).transpose()?;
        let id = source.map(|source| bind(fabric, &source)).transpose()?;
        Ok(Arc::new(Self {
            listener: Arc::new(Listener {
                info: info.clone(),
                token,
                eq: Mutex::new(None),
                id: Mutex::default(),
            }),
            fabric: Arc::clone(fabric),
            state: Mutex::new(State {
                id,
                ..State::default()
            }),
        }))
    }
}

impl Drop for PassiveEp {
    fn drop(&mut self) {
        if let Some(id) = &self.state.get_mut().id {
            self.fabric.cm.remove(id);
        }
    }
}

impl provider::PassiveEp for PassiveEp {
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        let mut bound = self.listener.eq.lock();
        if bound.is_some() {
            return Err(Errno::EINVAL);
        }
        let source: Arc<dyn ProgressSource> = self.fabric.cm.clone();
        eq.add_source(&source)?;
        *bound = Some(Arc::clone(eq));
        Ok(())
    }

    fn listen(&self) -> Result<()> {
        if self.listener.eq.lock().is_none() {
            return Err(Errno::ENOEQ);
        }
        let mut state = self.state.lock();
        if state.is_listening {
            return Err(Errno::EINVAL);
        }
        let id = match &state.id {
            Some(id) => Arc::clone(id),
            None => {
                let any = SocketAddr::from(([0; 4], 0));
                let id = bind(&self.fabric, &any)?;
                state.id = Some(Arc::clone(&id));
                id
            }
        };
        *self.listener.id.lock() = Arc::downgrade(&id);
        let owner: Weak<Listener> = Arc::downgrade(&self.listener);
        self.fabric.cm.add(&id, owner);
        id.listen(state.backlog.unwrap_or(BACKLOG))?;
        state.is_listening = true;
        Ok(())
    }

    fn name(&self) -> Result<Address> {
        let state = self.state.lock();
        let local = state.id.as_ref().and_then(|id| id.local_addr());
        local.map(Address::Ip).ok_or(Errno::EOPBADSTATE)
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        let address = ip(address)?;
        let mut state = self.state.lock();
        if state.is_listening {
            return Err(Errno::EOPBADSTATE);
        }
        state.id = None;
        state.id = Some(bind(&self.fabric, &address)?);
        Ok(())
    }

    fn set_backlog(&self, backlog: u32) -> Result<()> {
        let mut state = self.state.lock();
        if state.is_listening {
            return Err(Errno::EINVAL);
        }
        state.backlog = Some(backlog);
        Ok(())
    }

    fn cm_data_size(&self) -> usize {
        private_data::MOST
    }

    fn reject(&self, info: &Info, data: &[u8]) -> Result<()> {
        let data = private_data::emit(data)?;
        ConnRequest::take(info)?.reject(&data)
    }
}
