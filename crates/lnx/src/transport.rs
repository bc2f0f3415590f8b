//! shm and tcp as one [`Transport`]: how endpoints are named, and which way a connection takes.

use std::net::SocketAddr;
use std::sync::Arc;

use ripstop_core::log::Subsys;
use ripstop_core::{fi_info, fi_warn};
use ripstop_os::Connect;
use ripstop_shm::Shm;
use ripstop_stream::{EpollOnly, HandshakeError, LISTEN_BACKLOG, Origin, Os, Transport};
use ripstop_tcp::Tcp;
use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::rdm::Greeting;

use crate::link::LnxLink;
use crate::listener::LnxListener;
use crate::name::{Name, addr_of, at_any, shm_name};
use crate::params::{NAME, Params};
use crate::readiness::LnxReadiness;

/// The transport of the lnx provider.
#[derive(Debug)]
pub struct Lnx;

/// Connects through shm to the endpoint with this address, if it is one of this machine and of this
/// user. `None` says that tcp is the way.
fn connect_shm(params: &Params, to: &SocketAddr) -> Result<Option<(LnxLink, Connect)>> {
    for listening_at in [*to, at_any(to)] {
        // Only this machine's processes have names here, so that another one's peers are not found.
        if listening_at != *to && !ripstop_os::net::is_local(to.ip())? {
            continue;
        }
        let name = shm_name(&listening_at)?;
        let from = Origin::Address(None);
        match Shm::connect(&params.shm, &name, from) {
            Ok((link, progress)) => {
                let link = Arc::new(link);
                return Ok(Some((LnxLink::Shm { link, to: *to }, progress)));
            }
            // Nobody of this user listens there.
            Err(Errno::ECONNREFUSED | Errno::ENOENT | Errno::EACCES | Errno::EPERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// The origin of a connection as tcp has it.
fn tcp_origin(from: Origin<Lnx>) -> Origin<Tcp> {
    match from {
        Origin::Listening(at) => Origin::Listening(at),
        Origin::Address(source) => Origin::Address(source),
        Origin::Bound(listener) => Origin::Bound(listener.tcp),
    }
}

impl Transport for Lnx {
    const NAME: &'static str = NAME;
    const CONNECTED: bool = false;
    const AFTER_READS: bool = Tcp::AFTER_READS;
    type Params = Params;
    type Addr = SocketAddr;
    type Link = LnxLink;
    type Listener = LnxListener;
    type System = Os;
    type Readiness = LnxReadiness;

    fn default_source(params: &Params) -> SocketAddr {
        Tcp::default_source(&params.tcp)
    }

    fn checks_regions(params: &Params) -> bool {
        params.uses_shm() && Shm::checks_regions(&params.shm)
    }

    fn uses_attach(params: &Params) -> bool {
        params.uses_shm() && Shm::uses_attach(&params.shm)
    }

    fn bind(params: &Params, addr: &SocketAddr) -> Result<LnxListener> {
        LnxListener::beside(params, Tcp::bind(&params.tcp, addr)?)
    }

    fn bind_contexts(params: &Params, addr: &SocketAddr, count: usize) -> Result<Vec<LnxListener>> {
        let row = Tcp::bind_contexts(&params.tcp, addr, count)?;
        let row: Vec<_> = row
            .into_iter()
            .map(|tcp| LnxListener::beside(params, tcp))
            .collect::<Result<_>>()?;
        // Those of tcp listen already; a peer that was faster has taken tcp.
        row.iter()
            .try_for_each(|each| each.listen_at_shm(LISTEN_BACKLOG))?;
        Ok(row)
    }

    fn gets_messages(params: &Params, link: &LnxLink) -> bool {
        link.shm()
            .is_some_and(|link| Shm::gets_messages(&params.shm, link))
    }

    fn connect(params: &Params, to: &SocketAddr, from: Origin<Self>) -> Result<(LnxLink, Connect)> {
        if params.uses_shm()
            && let Some(connected) = connect_shm(params, to)?
        {
            fi_info!(NAME, Subsys::EpCtrl, "{to}: on this machine, through shm");
            return Ok(connected);
        }
        let (link, progress) = Tcp::connect(&params.tcp, to, tcp_origin(from))?;
        fi_info!(NAME, Subsys::EpCtrl, "{to}: through tcp");
        Ok((LnxLink::Tcp(link), progress))
    }

    fn prepare(params: &Params, link: &LnxLink, dscp: Option<u8>) -> Result<()> {
        match link {
            LnxLink::Shm { link, .. } => Shm::prepare(&params.shm, link, dscp),
            LnxLink::Tcp(link) => Tcp::prepare(&params.tcp, link, dscp),
        }
    }

    fn request_data(
        params: &Params,
        readiness: &mut LnxReadiness,
        link: &LnxLink,
        own: &SocketAddr,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        match link {
            LnxLink::Shm { link, to } => {
                // Between two endpoints of one machine, tcp connects from the address it connects to.
                let own = match own.ip().is_unspecified() {
                    true => SocketAddr::new(to.ip(), own.port()),
                    false => *own,
                };
                Shm::request_data(
                    &params.shm,
                    &mut readiness.shm,
                    link,
                    &shm_name(&own)?,
                    greeting,
                )
            }
            LnxLink::Tcp(link) => {
                Tcp::request_data(&params.tcp, &mut EpollOnly, link, own, greeting)
            }
        }
    }

    fn read_request(
        params: &Params,
        readiness: &mut LnxReadiness,
        link: &LnxLink,
        from: &SocketAddr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, SocketAddr), HandshakeError> {
        match link {
            LnxLink::Shm { link, .. } => {
                let from = shm_name(from).map_err(HandshakeError::Failed)?;
                let (greeting, name) =
                    Shm::read_request(&params.shm, &mut readiness.shm, link, &from, data)?;
                match addr_of(&name) {
                    Some(peer) => Ok((greeting, peer)),
                    None => Err(refuse_name(&name)),
                }
            }
            LnxLink::Tcp(link) => Tcp::read_request(&params.tcp, &mut EpollOnly, link, from, data),
        }
    }

    fn reply_data(
        readiness: &mut LnxReadiness,
        link: &LnxLink,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        match link {
            LnxLink::Shm { link, .. } => Shm::reply_data(&mut readiness.shm, link, greeting),
            LnxLink::Tcp(link) => Tcp::reply_data(&mut EpollOnly, link, greeting),
        }
    }

    fn read_reply(
        readiness: &mut LnxReadiness,
        link: &LnxLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        match link {
            LnxLink::Shm { link, .. } => Shm::read_reply(&mut readiness.shm, link, data),
            LnxLink::Tcp(link) => Tcp::read_reply(&mut EpollOnly, link, data),
        }
    }
}

/// Refuses a peer that is no endpoint of lnx, with a line in the log.
fn refuse_name(name: &Name) -> HandshakeError {
    fi_warn!(
        NAME,
        Subsys::EpCtrl,
        "{name}: refused, it is no endpoint of lnx; endpoints of shm connect to those of shm"
    );
    HandshakeError::Failed(Errno::EPROTO)
}
