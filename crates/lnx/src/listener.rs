//! Listeners: a tcp socket, and beside it a Unix socket of the shm provider.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn_sparse};
use ripstop_os::{Epoll, Interest, Spare};
use ripstop_shm::Shm;
use ripstop_stream::{Listener, Transport};
use ripstop_tcp::Tcp;
use ripstop_types::Result;

use crate::link::LnxLink;
use crate::name::shm_name;
use crate::params::{NAME, Params};

type ShmListener = <Shm as Transport>::Listener;
type TcpListener = <Tcp as Transport>::Listener;

/// Where an endpoint is reached.
#[derive(Debug)]
pub struct LnxListener {
    pub(crate) tcp: TcpListener,
    /// What this machine's peers connect to; none where shm is off or the name is taken.
    shm: Option<ShmListener>,
    /// Both of them: can be read while a connection waits at either.
    either: Epoll,
}

impl LnxListener {
    /// Puts a listener for peers of this machine beside one for all.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn beside(params: &Params, tcp: TcpListener) -> Result<Self> {
        let shm = match params.uses_shm() {
            true => bind_shm(params, tcp.local_addr()?),
            false => None,
        };
        let either = Epoll::new()?;
        either.add(&tcp, 0, Interest::READ)?;
        if let Some(shm) = &shm {
            either.add(shm, 0, Interest::READ)?;
        }
        Ok(Self { tcp, shm, either })
    }

    /// Lets peers of this machine connect.
    ///
    /// # Errors
    /// Of the system.
    pub(crate) fn listen_at_shm(&self, backlog: i32) -> Result<()> {
        self.shm.as_ref().map_or(Ok(()), |shm| shm.listen(backlog))
    }
}

/// A listener of the shm provider for the endpoint with this address. Without one the peers of this
/// machine use tcp, as others do.
fn bind_shm(params: &Params, own: SocketAddr) -> Option<ShmListener> {
    let bound = shm_name(&own).and_then(|name| Shm::rename(&params.shm, &name));
    bound
        .inspect_err(|error| {
            fi_warn_sparse!(
                NAME,
                Subsys::EpCtrl,
                "{own}: peers of this machine reach it through tcp, not shm: its Unix socket cannot \
                 be bound ({error})"
            );
        })
        .ok()
}

impl AsFd for LnxListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.either.as_fd()
    }
}

impl Listener for LnxListener {
    type Link = LnxLink;
    type Addr = SocketAddr;

    fn local_addr(&self) -> Result<SocketAddr> {
        self.tcp.local_addr()
    }

    fn listen(&self, backlog: i32) -> Result<()> {
        // Whoever finds nobody at the first tries the second.
        self.listen_at_shm(backlog)?;
        self.tcp.listen(backlog)
    }

    fn stop(&self) {
        if let Some(shm) = &self.shm {
            shm.stop();
        }
        self.tcp.stop();
    }

    fn accept(&self) -> Result<Option<(LnxLink, SocketAddr)>> {
        if let Some(shm) = &self.shm
            && let Some((link, process)) = shm.accept()?
        {
            let to = self.tcp.local_addr()?;
            fi_info!(
                NAME,
                Subsys::EpCtrl,
                "{process} connects to {to} through shm"
            );
            let link = LnxLink::Shm {
                link: Arc::new(link),
                to,
            };
            return Ok(Some((link, SocketAddr::new(to.ip(), 0))));
        }
        let accepted = self.tcp.accept()?;
        Ok(accepted.map(|(link, from)| {
            fi_info!(NAME, Subsys::EpCtrl, "{from} connects through tcp");
            (LnxLink::Tcp(link), from)
        }))
    }

    fn turn_away(&self, spare: &mut Spare) -> Option<SocketAddr> {
        if let Some(shm) = &self.shm
            && shm.turn_away(spare).is_some()
        {
            return self.tcp.local_addr().ok();
        }
        self.tcp.turn_away(spare)
    }
}
