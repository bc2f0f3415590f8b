//! Connections that others opened: from `accept` to the decision on their request.

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::EpId;
use ripstop_engine::stream::Terms;
use ripstop_engine::stream::cm::CmReader;
use ripstop_os::{Interest, Shutdown, Spare};
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::cm::{Extensions, Header, Kind};

use crate::addr::Addr as _;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::{HandshakeError, Link, Listener, Transport};
use crate::tunables::Tunables;

/// A connection whose request has not arrived whole.
#[derive(Debug)]
pub(crate) struct Accepting<T: Transport> {
    pub(crate) link: T::Link,
    pub(crate) peer: T::Addr,
    /// The endpoint it is for, unless that is a passive one.
    pub(crate) ep: Option<EpId>,
    pub(crate) reader: Box<CmReader>,
    pub(crate) deadline: Duration,
    /// How long the rest of the request may take once it has begun.
    rest: Option<Duration>,
}

/// A connection whose request has arrived: to be accepted by an endpoint, or rejected.
#[derive(Debug)]
pub(crate) struct Request<T: Transport> {
    pub(crate) link: T::Link,
    pub(crate) peer: T::Addr,
    pub(crate) header: Header,
}

/// What reading a request came to.
pub(crate) enum Read {
    /// More is to come.
    Partial,
    /// It is whole.
    Whole(Header, Vec<u8>),
    /// The connection is of no use; the log has the reason.
    Bad,
}

/// What two peers agree on, after the header that one of them sent.
pub(crate) fn terms(header: &Header, rendezvous: bool) -> Terms {
    let both = header.extensions.both(Extensions::ALL);
    Terms {
        order: header.data_order(),
        rendezvous,
        extensions: match header.host == ByteOrder::NATIVE {
            true => both,
            false => both.without(Extensions::ATOMIC).without(Extensions::COLL),
        },
    }
}

impl<T: Transport> Accepting<T> {
    pub(crate) fn new(link: T::Link, peer: T::Addr, ep: Option<EpId>, tunables: &Tunables) -> Self {
        Self {
            link,
            peer: peer.canonical(),
            ep,
            reader: Box::new(CmReader::new()),
            // A peer that connected asks when it makes progress.
            deadline: T::System::now() + tunables.answer,
            rest: Some(tunables.timeout),
        }
    }

    /// Reads what has arrived of the request.
    pub(crate) fn read(&mut self) -> Read {
        match read_message(&self.link, &mut self.reader) {
            Ok(false) => {
                if self.reader.has_started()
                    && let Some(rest) = self.rest.take()
                {
                    self.deadline = self.deadline.min(T::System::now() + rest);
                }
                Read::Partial
            }
            Ok(true) => match self.reader.message() {
                Some((header, data)) if header.kind == Kind::Request => {
                    Read::Whole(*header, data.to_vec())
                }
                _ => {
                    log_warn!(
                        T,
                        EpCtrl,
                        "{}: dropped, it sent no connection request",
                        self.peer
                    );
                    Read::Bad
                }
            },
            Err(HandshakeError::Ended) if !self.reader.has_started() => {
                // A peer that gave up, as happens when both sides connect at once.
                log_info!(T, EpCtrl, "{}: left before it asked to connect", self.peer);
                Read::Bad
            }
            Err(reason) => {
                log_warn!(
                    T,
                    EpCtrl,
                    "{}: dropped before it connected: {reason}",
                    self.peer
                );
                Read::Bad
            }
        }
    }
}

/// The next connection that waits at a listener. Those for which there is no descriptor
/// are turned away, so that their peers know.
pub(crate) fn next_accepted<T: Transport>(
    listener: &T::Listener,
    spare: &mut Spare,
) -> Option<(T::Link, T::Addr)> {
    loop {
        match listener.accept() {
            Ok(accepted) => return accepted,
            Err(error) => {
                let peer = listener.turn_away(spare)?;
                log_warn_sparse!(
                    T,
                    EpCtrl,
                    "{peer}: turned away: {error}; raise the limit of open files"
                );
            }
        }
    }
}

/// Reads a connection message as far as it has arrived; returns whether it is whole.
pub(crate) fn read_message(
    link: &impl Link,
    reader: &mut CmReader,
) -> core::result::Result<bool, HandshakeError> {
    loop {
        let room = reader.room();
        if room.is_empty() {
            return Ok(true);
        }
        match link.recv(room) {
            Ok(0) => return Err(HandshakeError::Ended),
            Ok(count) => {
                if reader.filled(count).map_err(HandshakeError::Wrong)? {
                    return Ok(true);
                }
            }
            Err(Errno::EAGAIN) => return Ok(false),
            Err(error) => return Err(HandshakeError::Failed(error)),
        }
    }
}

/// Writes a connection management message; it is the first that is sent, so it fits.
pub(crate) fn write_message(
    link: &impl Link,
    kind: Kind,
    extensions: Extensions,
    data: &[u8],
) -> Result<()> {
    let emit = |header: Header| {
        Header {
            extensions,
            ..header
        }
        .emit()
    };
    let header = Header::new(kind, data)
        .and_then(emit)
        .map_err(|error| error.errno())?;
    let mut message = header.to_vec();
    message.extend_from_slice(data);
    if link.send(&message)? == message.len() {
        Ok(())
    } else {
        Err(Errno::EIO)
    }
}

/// Refuses a request, with data for the peer.
pub(crate) fn reject<T: Transport>(link: &T::Link, peer: &T::Addr, data: &[u8]) {
    let told = write_message(link, Kind::Reject, Extensions::NONE, data)
        .and_then(|()| link.shutdown(Shutdown::Both));
    if let Err(error) = told {
        log_info!(
            T,
            EpCtrl,
            "{peer}: could not be told that its request is refused: {error}"
        );
    }
}

impl<T: Transport> State<T> {
    /// Somebody connects to an RDM endpoint.
    pub(crate) fn handle_listener(&mut self, ep: EpId) {
        let params = Arc::clone(&self.params);
        loop {
            let state = self.eps.get(ep.index()).and_then(Option::as_ref);
            let Some(rdm) = state.and_then(|state| state.rdm.as_ref()) else {
                return;
            };
            let Some((link, peer)) = next_accepted::<T>(&rdm.listener, &mut self.spare) else {
                return;
            };
            self.next_accepting = self.next_accepting.wrapping_add(1);
            let id = self.next_accepting;
            if let Err(error) =
                self.epoll
                    .add(&link, token::ACCEPTING | u64::from(id), Interest::READ)
            {
                log_warn!(T, EpCtrl, "{peer}: dropped, it cannot be watched: {error}");
                continue;
            }
            let accepting = Accepting::new(link, peer, Some(ep), (*params).as_ref());
            self.accepting.insert(id, accepting);
            self.start_timer();
            self.handle_accepting(id);
        }
    }

    pub(crate) fn handle_accepting(&mut self, id: u32) {
        let Some(accepting) = self.accepting.get_mut(&id) else {
            return;
        };
        let read = accepting.read();
        if matches!(read, Read::Partial) {
            return;
        }
        let Some(accepting) = self.accepting.remove(&id) else {
            return;
        };
        if let Err(error) = self.epoll.remove(&accepting.link) {
            log_warn!(T, EpCtrl, "{}: dropped: {error}", accepting.peer);
            return;
        }
        if let Read::Whole(header, data) = read {
            let Accepting { link, peer, ep, .. } = accepting;
            let request = Request { link, peer, header };
            if let Some(ep) = ep {
                self.handle_request(ep, request, &data);
            }
        }
    }
}
