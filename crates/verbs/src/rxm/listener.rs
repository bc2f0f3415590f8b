//! Where connections arrive.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn_sparse};
use ripstop_ibverbs::{CmEventKind, CmId, EventChannel};
use ripstop_os::Spare;
use ripstop_stream::Listener;
use ripstop_types::{Errno, Result};

use crate::rxm::NAME;
use crate::rxm::link::RdmaLink;
use crate::rxm::pipe::Shape;

/// An id that listens, with its event channel.
#[derive(Debug)]
pub struct RdmaListener {
    id: Arc<CmId>,
    events: Arc<EventChannel>,
    shape: Shape,
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
        Ok(Self { id, events, shape })
    }
}

impl AsFd for RdmaListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
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
        loop {
            let event = match self.events.next() {
                Ok(event) => event,
                Err(Errno::EAGAIN) => return Ok(None),
                Err(error) => return Err(error),
            };
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

    fn turn_away(&self, _: &mut Spare) -> Option<SocketAddr> {
        None
    }
}
