//! Shared memory as a [`Transport`]: listeners, connections, and the handshake that exchanges the memory
//! of a pair and the status pages.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use ripstop_core::Address;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, fi_warn_sparse};
use ripstop_mem::ring::{Layout, PeerPollStatus, PeerStatus, STATUS_PAGE_BYTES, Side, pair};
use ripstop_os::{Connect, MemFd, Socket};
use ripstop_stream::{HandshakeError, Origin, Os, Transport};
use ripstop_types::{Errno, Result};
use ripstop_wire::xnet::rdm::Greeting;

use crate::copy_choice::CopyMode;
use crate::greeting::Hello;
use crate::link::ShmLink;
use crate::listener::{ShmListener, check_user};
use crate::name::Name;
use crate::params::{NAME, Params};
use crate::readiness::{ShmReadiness, create_shared_memory};

/// The transport of the shm provider.
#[derive(Debug)]
pub struct Shm;

/// Refuses a peer whose greeting or descriptors are invalid, with a line in the log.
fn refuse_greeting(peer: &Name, why: &str) -> HandshakeError {
    fi_warn!(
        NAME,
        Subsys::EpCtrl,
        "{peer}: what it says of itself is refused: {why}"
    );
    HandshakeError::Failed(Errno::EPROTO)
}

/// Maps the status page that a peer has sent.
fn map_status_page(
    status_page: OwnedFd,
    needs_fence: bool,
) -> Result<(PeerStatus, PeerPollStatus)> {
    let status_page = Arc::new(MemFd::received(status_page, STATUS_PAGE_BYTES)?.map_read()?);
    let peer_status =
        PeerStatus::from_mapping(status_page.clone(), needs_fence).map_err(|_| Errno::EINVAL)?;
    Ok((
        peer_status,
        PeerPollStatus::from_mapping(status_page).map_err(|_| Errno::EINVAL)?,
    ))
}

/// Checks the descriptors of a request: the peer's status page, and the mapped memory of the pair.
fn check_request_fds(
    descriptors: Vec<OwnedFd>,
    layout: Layout,
) -> core::result::Result<(OwnedFd, Arc<ripstop_os::SharedMemory>), &'static str> {
    let Ok([memory, status_page]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err("it came without two descriptors");
    };
    let memory = MemFd::received(memory, layout.len()).and_then(|memory| memory.map_present());
    match memory {
        Ok(memory) => Ok((status_page, Arc::new(memory))),
        Err(_) => Err("its memory is none, has another size, or is not sealed"),
    }
}

impl Transport for Shm {
    const NAME: &'static str = NAME;
    const AFTER_READS: bool = true;
    const CONNECTED: bool = false;
    type Params = Params;
    type Addr = Name;
    type Link = ShmLink;
    type Listener = ShmListener;
    type System = Os;
    type Readiness = ShmReadiness;

    fn checks_regions(params: &Params) -> bool {
        params.map_memfd
    }

    fn default_source(_: &Params) -> Name {
        Name::new(&Address::process_name()).unwrap_or_else(|_| Name::of_process(ripstop_os::pid()))
    }

    fn bind(_: &Params, addr: &Name) -> Result<ShmListener> {
        ShmListener::bind_unique(addr)
    }

    fn rename(_: &Params, addr: &Name) -> Result<ShmListener> {
        ShmListener::bind_exact(addr)
    }

    fn bind_contexts(_: &Params, addr: &Name, count: usize) -> Result<Vec<ShmListener>> {
        ShmListener::bind_contexts(addr, count)
    }

    fn connect(_: &Params, to: &Name, _: Origin<Self>) -> Result<(ShmLink, Connect)> {
        let user = ripstop_os::user();
        // A socket's name contains its user. Refused here, since the connect would find no socket and the
        // error would say that the peer is not there.
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
        check_user(socket.peer()?, to, user)?;
        Ok((ShmLink::new(socket, to.clone()), Connect::Connected))
    }

    fn uses_attach(params: &Params) -> bool {
        !params.disable_cma
    }

    fn gets_messages(params: &Params, _: &ShmLink) -> bool {
        !params.disable_cma && params.copy != CopyMode::Ring
    }

    fn prepare(params: &Params, link: &ShmLink, _: Option<u8>) -> Result<()> {
        link.with_handshake(|handshake| {
            handshake.attach = (!params.disable_cma).then_some(params.copy);
        });
        Ok(())
    }

    fn request_data(
        _: &Params,
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        own: &Name,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let layout = readiness.layout().ok_or(Errno::EINVAL)?;
        let memory = create_shared_memory("ripstop-shm", layout.len())?;
        memory.seal()?;
        let rings = pair(Arc::new(memory.map_present()?), layout, Side::Connector);
        let rings = rings.map_err(|_| Errno::EINVAL)?;
        let status_page = readiness.status_page()?;
        link.with_handshake(|handshake| {
            handshake.rings = Some(rings);
            handshake.copies = readiness.copies();
            handshake.outgoing = vec![memory.into(), status_page];
        });
        let hello = Hello {
            greeting,
            needs_fence: readiness.needs_fence(),
            layout,
            name: own.clone(),
        };
        Ok(hello.emit())
    }

    fn read_request(
        _: &Params,
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        from: &Name,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Name), HandshakeError> {
        let hello = Hello::parse(data).map_err(|why| refuse_greeting(from, why))?;
        link.with_handshake(|handshake| {
            let descriptors = std::mem::take(&mut handshake.incoming);
            let (status_page, memory) = check_request_fds(descriptors, hello.layout)
                .map_err(|why| refuse_greeting(from, why))?;
            let (peer_status, poll_status) =
                map_status_page(status_page, hello.needs_fence || readiness.needs_fence())
                    .map_err(|_| refuse_greeting(from, "its status page is none"))?;
            let rings = pair(memory, hello.layout, Side::Acceptor);
            let rings = rings.map_err(|error| refuse_greeting(from, &error.to_string()))?;
            (handshake.rings, handshake.peer_status) = (Some(rings), Some(peer_status));
            (handshake.poll_status, handshake.copies) = (Some(poll_status), readiness.copies());
            handshake.peer = Some(hello.name.clone());
            handshake.layout = Some(hello.layout);
            Ok((hello.greeting, hello.name))
        })
    }

    fn reply_data(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let status_page = readiness.status_page()?;
        let hello = link.with_handshake(|handshake| {
            handshake.outgoing = vec![status_page];
            Some(Hello {
                greeting,
                needs_fence: readiness.needs_fence(),
                layout: handshake.layout?,
                name: handshake.target.clone()?,
            })
        });
        Ok(hello.ok_or(Errno::EINVAL)?.emit())
    }

    fn read_reply(
        readiness: &mut ShmReadiness,
        link: &ShmLink,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        link.with_handshake(|handshake| {
            let target = handshake
                .target
                .clone()
                .ok_or(HandshakeError::Failed(Errno::EINVAL))?;
            let hello = Hello::parse(data).map_err(|why| refuse_greeting(&target, why))?;
            if hello.name != target {
                return Err(refuse_greeting(&target, &format!("it is {}", hello.name)));
            }
            let descriptors = std::mem::take(&mut handshake.incoming);
            let Ok([status_page]) = <[OwnedFd; 1]>::try_from(descriptors) else {
                return Err(refuse_greeting(&target, "it came without a descriptor"));
            };
            let (peer_status, poll_status) =
                map_status_page(status_page, hello.needs_fence || readiness.needs_fence())
                    .map_err(|_| refuse_greeting(&target, "its status page is none"))?;
            (handshake.peer_status, handshake.peer) = (Some(peer_status), Some(target));
            handshake.poll_status = Some(poll_status);
            Ok(hello.greeting)
        })
    }
}
