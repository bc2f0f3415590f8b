//! Where connections arrive.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn_sparse};
use ripstop_ibverbs::{CmEventKind, CmId, EventChannel};
use ripstop_os::{Epoll, EventFd, Interest, Spare};
use ripstop_stream::Listener;
use ripstop_types::{Errno, Result};

use crate::rxm::NAME;
use crate::rxm::devices::{Opened, named};
use crate::rxm::link::RdmaLink;
use crate::rxm::pipe::Shape;

/// An id that listens, with its event channel. It also hears of its device, for all connections of the endpoint.
#[derive(Debug)]
pub struct RdmaListener {
    id: Arc<CmId>,
    events: Arc<EventChannel>,
    shape: Shape,
    device: Option<Heard>,
    /// Readable while there is an event of either.
    epoll: Epoll,
}

/// A device that is heard.
#[derive(Debug)]
struct Heard {
    device: Arc<Opened>,
    /// Rung when somebody else has taken an event of it.
    bell: Arc<EventFd>,
}

impl Heard {
    /// Hears of a device whenever the set says so.
    fn new(device: Arc<Opened>, epoll: &Epoll) -> Result<Self> {
        let bell = Arc::new(EventFd::new()?);
        device.watch.ring(&bell);
        epoll.add(&*bell, 1, Interest::READ)?;
        epoll.add(device.watch.fd(), 2, Interest::READ)?;
        Ok(Self { device, bell })
    }

    fn progress(&self, epoll: &Epoll) {
        let watch = &self.device.watch;
        watch.progress();
        if watch.is_silent() {
            // It stays readable. One that was taken out before is not there.
            let _ = epoll.remove(watch.fd());
        }
        // What cannot be read is readable again.
        let _ = self.bell.drain();
    }
}

impl RdmaListener {
    /// A listener at an address of a device, for connections of this shape.
    ///
    /// # Errors
    /// As for [`CmId::bind`].
    pub(crate) fn bind(addr: &SocketAddr, shape: Shape) -> Result<Self> {
        let events = EventChannel::new()?;
        let id = CmId::new(&events)?;
        id.bind(addr)?;
        let epoll = Epoll::new()?;
        epoll.add(&*events, 0, Interest::READ)?;
        // An address of all devices is of none.
        let device = id.device_name().map(|name| named(&name)).transpose()?;
        let device = device.map(|device| Heard::new(device, &epoll));
        Ok(Self {
            id,
            events,
            shape,
            device: device.transpose()?,
            epoll,
        })
    }
}

impl AsFd for RdmaListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Listener for RdmaListener {
    type Link = RdmaLink;
    type Addr = SocketAddr;

    fn local_addr(&self) -> Result<SocketAddr> {
        self.id.local_addr().ok_or(Errno::EADDRNOTAVAIL)
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        self.id.listen(u32::try_from(backlog).unwrap_or(0))
    }

    fn accept(&self) -> Result<Option<(RdmaLink, SocketAddr)>> {
        if let Some(heard) = &self.device {
            heard.progress(&self.epoll);
        }
        loop {
            let event = match self.events.next() {
                Ok(event) => event,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error),
            };
            if let (CmEventKind::DeviceRemoval, Some(heard)) = (event.kind, &self.device) {
                heard.device.watch.lose();
                continue;
            }
            let (CmEventKind::ConnectRequest, Some(id)) = (event.kind, event.request) else {
                fi_info!(NAME, Subsys::EpCtrl, "a listener has {:?}", event.kind);
                continue;
            };
            let Some(peer) = id.peer_addr() else { continue };
            // One that is dropped is refused.
            match RdmaLink::of_request(id, &event.data, self.shape) {
                Ok(link) => return Ok(Some((link, peer))),
                Err(error) => fi_warn_sparse!(
                    NAME,
                    Subsys::EpCtrl,
                    "{peer}: turned away: {error}; raise the limit of open files"
                ),
            }
        }
    }

    fn lost(&self) -> Option<Errno> {
        let watch = &self.device.as_ref()?.device.watch;
        watch.is_gone().then_some(Errno::ENODEV)
    }

    fn turn_away(&self, _: &mut Spare) -> Option<SocketAddr> {
        None
    }
}
