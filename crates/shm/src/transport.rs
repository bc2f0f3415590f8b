//! Shared memory as a transport: who connects, and with what memory.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ripstop_core::Address;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, fi_warn_sparse};
use ripstop_mem::ring::{Layout, PeerPollStatus, PeerStatus, STATUS_PAGE_BYTES, Side, pair};
use ripstop_os::{Connect, MemFd, Socket};
use ripstop_stream::{HandshakeError, Origin, Transport};
use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::rdm::Greeting;

use crate::greeting::Hello;
use crate::link::ShmLink;
use crate::listener::{ShmListener, admit};
use crate::name::Name;
use crate::params::{NAME, Params};
use crate::readiness::{ShmReadiness, share};

/// Memory that processes of one machine share.
#[derive(Debug)]
pub struct Shm;

/// Something the peer sent makes no sense: said in the log.
fn wrong(peer: &Name, why: &str) -> HandshakeError {
    fi_warn!(
        NAME,
        Subsys::EpCtrl,
        "{peer}: what it says of itself is refused: {why}"
    );
    HandshakeError::Failed(Errno::EPROTO)
}

/// The memory in which a peer says whether it sleeps and looks.
fn peer_status(status_page: OwnedFd, fenced: bool) -> Result<(PeerStatus, PeerPollStatus)> {
    let status_page = Arc::new(MemFd::received(status_page, STATUS_PAGE_BYTES)?.map_read()?);
    let peer_status =
        PeerStatus::from_mapping(status_page.clone(), fenced).map_err(|_| Errno::EINVAL)?;
    Ok((
        peer_status,
        PeerPollStatus::from_mapping(status_page).map_err(|_| Errno::EINVAL)?,
    ))
}

/// What a request has brought: the memory of the pair, and the peer's status page.
fn accepted(
    descriptors: Vec<OwnedFd>,
    layout: Layout,
) -> core::result::Result<(OwnedFd, Arc<ripstop_os::SharedMemory>), &'static str> {
    let Ok([memory, status_page]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err("it came without two descriptors");
    };
    let memory = MemFd::received(memory, layout.len()).and_then(|memory| memory.map());
    match memory {
        Ok(memory) => Ok((status_page, Arc::new(memory))),
        Err(_) => Err("its memory is none, has another size, or is not sealed"),
    }
}

impl Transport for Shm {
    const NAME: &'static str = NAME;
    const CONNECTED: bool = false;
    type Params = Params;
    type Addr = Name;
    type Link = ShmLink;
    type Listener = ShmListener;
    type Readiness = ShmReadiness;

    fn checks_regions(params: &Params) -> bool {
        params.map_memfd
    }

    fn default_source(_: &Params) -> Name {
        Name::new(&Address::process_name()).unwrap_or_else(|_| Name::of_process(ripstop_os::pid()))
    }

    fn bind(_: &Params, addr: &Name) -> Result<ShmListener> {
        ShmListener::unique(addr)
    }

    fn rename(_: &Params, addr: &Name) -> Result<ShmListener> {
        ShmListener::exactly(addr)
    }

    fn bind_contexts(_: &Params, addr: &Name, count: usize) -> Result<Vec<ShmListener>> {
        ShmListener::row(addr, count)
    }

    fn connect(_: &Params, to: &Name, _: Origin<Self>) -> Result<(ShmLink, Connect)> {
        let user = ripstop_os::user();
        // Its socket has another name, so nobody would be found, who may well be there.
        if let Some(other) = to.user().filter(|&other| other != user) {
            fi_warn_sparse!(
                NAME,
                Subsys::EpCtrl,
                "{to}: refused, it is of user {other}, and this process of user {user}: shm connects \
                 processes of one user only; run both as the same user, or take tcp"
            );
            return Err(Errno::EACCES);
        }
        let socket = Socket::unix_connect(&to.socket(user))?;
        admit(socket.peer()?, to, user)?;
        Ok((ShmLink::new(socket, to.clone()), Connect::Connected))
    }

    fn uses_attach(params: &Params) -> bool {
        !params.disable_cma
    }

    fn prepare(params: &Params, link: &ShmLink, _: Option<u8>) -> Result<()> {
        link.shake(|shake| shake.attaches = !params.disable_cma);
        Ok(())
    }

    fn request_data(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        own: &Name,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let layout = readiness.layout().ok_or(Errno::EINVAL)?;
        let memory = share("ripstop-shm", layout.len())?;
        memory.seal()?;
        let halves = pair(Arc::new(memory.map()?), layout, Side::Connector);
        let halves = halves.map_err(|_| Errno::EINVAL)?;
        let status_page = readiness.status_page()?;
        link.shake(|shake| {
            shake.halves = Some(halves);
            shake.told = readiness.told();
            shake.outgoing = vec![memory.into(), status_page];
        });
        let hello = Hello {
            greeting,
            fenced: readiness.fenced(),
            layout,
            name: own.clone(),
        };
        Ok(hello.emit())
    }

    fn read_request(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        from: &Name,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Name), HandshakeError> {
        let hello = Hello::parse(data).map_err(|why| wrong(from, why))?;
        link.shake(|shake| {
            let descriptors = std::mem::take(&mut shake.incoming);
            let (status_page, memory) =
                accepted(descriptors, hello.layout).map_err(|why| wrong(from, why))?;
            let (peer_status, poll_status) =
                peer_status(status_page, hello.fenced || readiness.fenced())
                    .map_err(|_| wrong(from, "its status page is none"))?;
            let halves = pair(memory, hello.layout, Side::Acceptor);
            let halves = halves.map_err(|error| wrong(from, &error.to_string()))?;
            (shake.halves, shake.peer_status) = (Some(halves), Some(peer_status));
            (shake.poll_status, shake.told) = (Some(poll_status), readiness.told());
            shake.peer = Some(hello.name.clone());
            shake.layout = Some(hello.layout);
            Ok((hello.greeting, hello.name))
        })
    }

    fn reply_data(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let status_page = readiness.status_page()?;
        let hello = link.shake(|shake| {
            shake.outgoing = vec![status_page];
            Some(Hello {
                greeting,
                fenced: readiness.fenced(),
                layout: shake.layout?,
                name: shake.target.clone()?,
            })
        });
        Ok(hello.ok_or(Errno::EINVAL)?.emit())
    }

    fn read_reply(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        link.shake(|shake| {
            let target = shake
                .target
                .clone()
                .ok_or(HandshakeError::Failed(Errno::EINVAL))?;
            let hello = Hello::parse(data).map_err(|why| wrong(&target, why))?;
            if hello.name != target {
                return Err(wrong(&target, &format!("it is {}", hello.name)));
            }
            let descriptors = std::mem::take(&mut shake.incoming);
            let Ok([status_page]) = <[OwnedFd; 1]>::try_from(descriptors) else {
                return Err(wrong(&target, "it came without a descriptor"));
            };
            let (peer_status, poll_status) =
                peer_status(status_page, hello.fenced || readiness.fenced())
                    .map_err(|_| wrong(&target, "its status page is none"))?;
            (shake.peer_status, shake.peer) = (Some(peer_status), Some(target));
            shake.poll_status = Some(poll_status);
            Ok(hello.greeting)
        })
    }
}
