//! Connections that others opened, while their request arrives, and the messages of a handshake.

use std::collections::BTreeMap;
use std::time::Duration;

use ripstop_engine::id::EpId;
use ripstop_engine::stream::cm::CmReader;
use ripstop_engine::stream::{PacketTerms, Terms};
use ripstop_os::{Interest, Spare};
use ripstop_types::{Errno, Result};
use ripstop_wire::ByteOrder;
use ripstop_wire::xnet::cm::{Extensions, Header, Kind};

use crate::addr::Addr as _;
use crate::system::{Poller as _, System as _};
use crate::transport::ending::end_link;
use crate::transport::link::Link;
use crate::transport::listener::Listener as _;
use crate::transport::{HandshakeError, PollerOf, Transport};
use crate::tunables::Tunables;

/// Connections that others opened to a domain or a passive endpoint, whose requests have not arrived
/// whole.
#[derive(Debug)]
pub(crate) struct AcceptQueue<T: Transport> {
    by_number: BTreeMap<u32, Accepting<T>>,
    last: u32,
    spare: Spare,
}

impl<T: Transport> AcceptQueue<T> {
    pub(crate) const fn new(spare: Spare) -> Self {
        Self {
            by_number: BTreeMap::new(),
            last: 0,
            spare,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_number.is_empty()
    }

    /// Accepts the next connection that waits at a listener, for `ep` or else a passive endpoint.
    /// Returns its number; its events have that, marked with `token`.
    pub(crate) fn accept(
        &mut self,
        listener: &T::Listener,
        (epoll, token): (&PollerOf<T>, u64),
        ep: Option<EpId>,
        tunables: &Tunables,
    ) -> Option<u32> {
        loop {
            let (link, peer) = self.next_accepted(listener)?;
            self.last = self.last.wrapping_add(1);
            if let Err(error) = epoll.add(&link, token | u64::from(self.last), Interest::READ) {
                log_warn!(T::EpCtrl, "{peer}: dropped, it cannot be watched: {error}");
                continue;
            }
            let accepting = Accepting::new(link, peer, ep, tunables);
            self.by_number.insert(self.last, accepting);
            return Some(self.last);
        }
    }

    /// The next connection that waits at a listener. Those for which there is no descriptor
    /// are turned away, so that their peers know.
    fn next_accepted(&mut self, listener: &T::Listener) -> Option<(T::Link, T::Addr)> {
        loop {
            match listener.accept() {
                Ok(accepted) => return accepted,
                Err(error) => {
                    let peer = listener.turn_away(&mut self.spare)?;
                    log_warn_sparse!(
                        T::EpCtrl,
                        "{peer}: turned away: {error}; raise the limit of open files"
                    );
                }
            }
        }
    }

    /// Reads what has arrived of a request. Returns it, its data and whom it is for once it is whole.
    pub(crate) fn read(
        &mut self,
        number: u32,
        epoll: &PollerOf<T>,
    ) -> Option<(Option<EpId>, Request<T>, Vec<u8>)> {
        let read = self.by_number.get_mut(&number)?.read();
        if matches!(read, Read::Partial) {
            return None;
        }
        let Accepting { link, peer, ep, .. } = self.by_number.remove(&number)?;
        if let Err(error) = epoll.remove(&link) {
            log_warn!(T::EpCtrl, "{peer}: dropped: {error}");
            return None;
        }
        let Read::Whole(header, data) = read else {
            end_link::<T>(epoll, &link);
            return None;
        };
        Some((ep, Request { link, peer, header }, data))
    }

    /// The connections whose time to ask is over.
    pub(crate) fn late(&self, now: Duration) -> Vec<u32> {
        let late = |(number, accepting): (&u32, &Accepting<T>)| {
            (now >= accepting.deadline).then_some(*number)
        };
        self.by_number.iter().filter_map(late).collect()
    }

    /// The connections whose request is for an endpoint, and not read whole yet.
    pub(crate) fn for_ep(&self, ep: EpId) -> Vec<u32> {
        let own = self
            .by_number
            .iter()
            .filter(|(_, accepting)| accepting.ep == Some(ep));
        own.map(|(number, _)| *number).collect()
    }

    /// Drops a connection that is late, if it is still there.
    pub(crate) fn drop_late(&mut self, number: u32, epoll: &PollerOf<T>) {
        if let Some(Accepting { link, peer, .. }) = self.by_number.remove(&number) {
            end_link::<T>(epoll, &link);
            log_warn!(T::EpCtrl, "{peer}: dropped, it did not say what it wants");
        }
    }

    /// Drops the connections for an endpoint, or those for the passive one.
    pub(crate) fn drop_of(&mut self, ep: Option<EpId>, epoll: &PollerOf<T>) {
        self.by_number.retain(|_, accepting| {
            let is_kept = accepting.ep != ep;
            if !is_kept {
                end_link::<T>(epoll, &accepting.link);
            }
            is_kept
        });
    }
}

/// A connection whose request has not arrived whole.
#[derive(Debug)]
struct Accepting<T: Transport> {
    link: T::Link,
    peer: T::Addr,
    /// The endpoint it is for, unless that is a passive one.
    ep: Option<EpId>,
    reader: Box<CmReader>,
    deadline: Duration,
    /// How long the rest of the request may take once it has begun.
    rest: Option<Duration>,
}

impl<T: Transport> Accepting<T> {
    fn new(link: T::Link, peer: T::Addr, ep: Option<EpId>, tunables: &Tunables) -> Self {
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
    fn read(&mut self) -> Read {
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
enum Read {
    /// More is to come.
    Partial,
    /// It is whole.
    Whole(Header, Vec<u8>),
    /// The connection is of no use; the log has the reason.
    Bad,
}

/// What two peers agree on: this side offers `own`, the other what is in the header it sent.
pub(crate) fn terms(
    header: &Header,
    own: Extensions,
    has_rendezvous: bool,
    packets: Option<PacketTerms>,
) -> Terms {
    let both = header.extensions.intersection(own);
    Terms {
        order: header.data_order(),
        has_rendezvous,
        packets,
        extensions: match header.host == ByteOrder::NATIVE {
            true => both,
            false => both
                .difference(Extensions::ATOMIC)
                .difference(Extensions::COLL),
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
