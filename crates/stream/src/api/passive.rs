//! Passive endpoints: listening for connections to MSG endpoints.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_core::provider::{self, Token};
use ripstop_core::{Address, EventQueue, Handle, Info, ProgressSource};
use ripstop_os::{Events, Interest, Spare};
use ripstop_types::{EpType, Errno, Result};

use crate::addr::Addr as _;
use crate::api::domain::bind_once;
use crate::api::fabric::Fabric;
use crate::api::source::{bind, source_of};
use crate::conn::accept::reject;
use crate::conn::eq_events;
use crate::logging::{EPOLL, SPARE};
use crate::state::accepting::{AcceptQueue, Request};
use crate::system::{Poller as _, System as _};
use crate::transport::link::Link as _;
use crate::transport::listener::Listener as _;
use crate::transport::{PollerOf, Transport};
use crate::tunables::{LISTEN_BACKLOG, MAX_HELLO};

/// The epoll token of the listener; others are numbers of accepted ones.
const LISTENER: u64 = u64::MAX;

/// A connection request in the application's hands (`fi_info.handle`).
#[derive(Debug)]
pub(crate) struct ConnRequest<T: Transport>(Mutex<Option<Request<T>>>);

impl<T: Transport> ConnRequest<T> {
    /// Takes the request; it can be accepted or rejected once.
    pub(crate) fn take(&self) -> Option<Request<T>> {
        self.0.lock().take()
    }
}

#[derive(Debug)]
struct Listening<T: Transport> {
    listener: Option<T::Listener>,
    listening: bool,
    backlog: i32,
    pub(crate) eq: Option<Arc<EventQueue>>,
    accepting: AcceptQueue<T>,
}

/// A passive endpoint.
#[derive(Debug)]
pub struct PassiveEp<T: Transport> {
    fabric: Arc<Fabric<T>>,
    pub(crate) info: Info,
    pub(crate) token: Token,
    epoll: PollerOf<T>,
    listener: Mutex<Listening<T>>,
    this: Weak<Self>,
}

impl<T: Transport> PassiveEp<T> {
    pub(crate) fn open(fabric: &Arc<Fabric<T>>, info: &Info, token: Token) -> Result<Arc<Self>> {
        if info.ep.ep_type != EpType::Msg || !T::CONNECTED {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "a passive endpoint is of type FI_EP_MSG; take an info of fi_getinfo for that type"
            ));
        }
        let listener = match source_of::<T>(info)? {
            Some(addr) => Some(bind::<T>(&fabric.params, &addr)?),
            None => None,
        };
        let epoll = PollerOf::<T>::new().inspect_err(lacks!(T::EpCtrl, EPOLL))?;
        let spare = Spare::new().inspect_err(lacks!(T::EpCtrl, SPARE))?;
        Ok(Arc::new_cyclic(|this| Self {
            fabric: Arc::clone(fabric),
            info: info.clone(),
            token,
            epoll,
            listener: Mutex::new(Listening {
                listener,
                listening: false,
                backlog: LISTEN_BACKLOG,
                eq: None,
                accepting: AcceptQueue::new(spare),
            }),
            this: Weak::clone(this),
        }))
    }

    /// Takes the bound listener, and so the address, for an active endpoint that names this one
    /// in `fi_info.handle`; this one has no address then.
    pub(crate) fn take_listener(&self) -> Result<T::Listener> {
        let mut listener = self.listener.lock();
        if listener.listening {
            return Err(refused!(
                T::EpCtrl,
                EINVAL,
                "a passive endpoint that listens keeps its address; open another for the handle"
            ));
        }
        listener.listener.take().ok_or_else(|| {
            refused!(
                T::EpCtrl,
                EINVAL,
                "a passive endpoint without address was given as handle; call fi_setname first"
            )
        })
    }

    fn accept_all(&self, listener: &mut Listening<T>) {
        while let Some(listening) = &listener.listener {
            let (epoll, tunables) = ((&self.epoll, 0), self.fabric.tunables());
            let accepting = &mut listener.accepting;
            let Some(id) = accepting.accept(listening, epoll, None, tunables) else {
                return;
            };
            self.read_request(listener, id);
        }
    }

    fn read_request(&self, listener: &mut Listening<T>, id: u32) {
        let Some((_, request, data)) = listener.accepting.read(id, &self.epoll) else {
            return;
        };
        let Some(eq) = &listener.eq else { return };
        let local = request.link.local_addr().ok();
        let mut info = self.info.clone();
        info.src_addr = local.map(|addr| addr.to_address()).or(info.src_addr);
        info.dest_addr = Some(request.peer.to_address());
        info.handle = Some(Handle::new(ConnRequest(Mutex::new(Some(request)))));
        eq_events::requested::<T>(eq, self.token, info, &data);
    }
}

impl<T: Transport> ProgressSource for PassiveEp<T> {
    fn progress(&self) {
        let mut listener = self.listener.lock();
        if !listener.listening {
            return;
        }
        let mut events = Events::with_capacity(16);
        if self.epoll.poll(&mut events).is_err() {
            return;
        }
        for event in events.iter() {
            if event.token == LISTENER {
                self.accept_all(&mut listener);
            } else {
                self.read_request(&mut listener, event.token as u32);
            }
        }
        if !listener.accepting.is_empty() {
            for id in listener.accepting.late(T::System::now()) {
                listener.accepting.drop_late(id, &self.epoll);
            }
        }
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.as_fd())
    }

    fn wait_limit(&self) -> Option<Duration> {
        let slow = !self.listener.lock().accepting.is_empty();
        slow.then_some(crate::state::TIMER_INTERVAL)
    }
}

impl<T: Transport> provider::PassiveEp for PassiveEp<T> {
    fn bind_eq(&self, eq: &Arc<EventQueue>) -> Result<()> {
        bind_once(&mut self.listener.lock().eq, eq)?;
        if let Some(this) = self.this.upgrade() {
            let source: Arc<dyn ProgressSource> = this;
            eq.add_source(&source)?;
        }
        Ok(())
    }

    fn listen(&self) -> Result<()> {
        let mut listener = self.listener.lock();
        if listener.listening {
            return Err(Errno::EINVAL);
        }
        if listener.eq.is_none() {
            return Err(Errno::ENOEQ);
        }
        if listener.listener.is_none() {
            let addr = T::default_source(&self.fabric.params);
            listener.listener = Some(bind::<T>(&self.fabric.params, &addr)?);
        }
        let backlog = listener.backlog;
        let bound = listener.listener.as_ref().ok_or(Errno::EOPBADSTATE)?;
        bound.listen(backlog)?;
        self.epoll.add(bound, LISTENER, Interest::READ)?;
        listener.listening = true;
        Ok(())
    }

    fn name(&self) -> Result<Address> {
        let listener = self.listener.lock();
        let bound = listener.listener.as_ref().ok_or(Errno::EOPBADSTATE)?;
        bound.local_addr().map(|addr| addr.to_address())
    }

    fn set_name(&self, address: &Address) -> Result<()> {
        let addr = T::Addr::from_address(address)?;
        let mut listener = self.listener.lock();
        if listener.listening {
            return Err(Errno::EOPBADSTATE);
        }
        listener.listener = None;
        listener.listener = Some(bind::<T>(&self.fabric.params, &addr)?);
        Ok(())
    }

    fn set_backlog(&self, backlog: u32) -> Result<()> {
        let mut listener = self.listener.lock();
        if listener.listening {
            return Err(Errno::EINVAL);
        }
        listener.backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        Ok(())
    }

    fn reject(&self, info: &Info, data: &[u8]) -> Result<()> {
        if data.len() > MAX_HELLO {
            return Err(Errno::EINVAL);
        }
        let handle = info.handle.as_ref().ok_or(Errno::EINVAL)?;
        let request = handle.downcast::<ConnRequest<T>>().ok_or(Errno::EINVAL)?;
        let Request { link, peer, .. } = request.take().ok_or(Errno::EINVAL)?;
        reject::<T>(&link, &peer, data);
        Ok(())
    }
}

/// Ends the listener and the links whose requests have not arrived whole. Closing their descriptors would not, where a forked child
/// has these, too.
impl<T: Transport> Drop for PassiveEp<T> {
    fn drop(&mut self) {
        let Listening {
            listener,
            accepting,
            ..
        } = self.listener.get_mut();
        accepting.drop_of(None, &self.epoll);
        if let Some(listener) = listener {
            listener.stop();
            let _ = self.epoll.remove(&*listener);
        }
    }
}
