//! Connections that others opened, while their request arrives, and the messages of a handshake.

use std::time::Duration;

use ripstop_engine::id::EpId;
use ripstop_engine::stream::Terms;
use ripstop_engine::stream::cm::CmReader;
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::cm::{Extensions, Header, Kind};

use crate::addr::Addr as _;
use crate::system::System as _;
use crate::transport::link::Link;
use crate::transport::{HandshakeError, Transport};
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
                        T::EpCtrl,
                        "{}: dropped, it sent no connection request",
                        self.peer
                    );
                    Read::Bad
                }
            },
            Err(HandshakeError::Ended) if !self.reader.has_started() => {
                // A peer that gave up, as happens when both sides connect at once.
                log_info!(T::EpCtrl, "{}: left before it asked to connect", self.peer);
                Read::Bad
            }
            Err(reason) => {
                log_warn!(
                    T::EpCtrl,
                    "{}: dropped before it connected: {reason}",
                    self.peer
                );
                Read::Bad
            }
        }
    }
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
