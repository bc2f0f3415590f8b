//! Handshakes of connections that this side opens, of both endpoint types.

use std::sync::Arc;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::Terms;
use ripstop_engine::stream::cm::CmReader;
use ripstop_os::Interest;
use ripstop_types::{Errno, FiAddr, Result};
use ripstop_wire::xnet::cm::{Extensions, Kind};
use ripstop_wire::xnet::rdm::{FIREWALL_ADDR, Greeting};

use crate::conn::rdm::advice;
use crate::state::accepting::{read_message, terms, write_message};
use crate::state::connection::Phase;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::link::Link as _;
use crate::transport::readiness::{Readiness as _, is_polled};
use crate::transport::registering::Registering as _;
use crate::transport::{DirectOf, HandshakeError, RegisteringOf, Transport};

impl<T: Transport> State<T> {
    /// Goes on with a handshake after an event on its connection.
    pub(crate) fn handle_handshake(&mut self, id: ConnId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        match connection.phase {
            Phase::Connecting => self.ask(id),
            Phase::Asked(_) => self.handle_answer(id),
            Phase::Waiting | Phase::Up => {}
        }
    }

    /// The connection is open: say who asks.
    fn ask(&mut self, id: ConnId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let Some(link) = connection.link.clone() else {
            return;
        };
        let ep = connection.ep;
        if let Err(error) = link.take_error() {
            return self.not_reached(id, error);
        }
        if !link.is_connected() {
            return;
        }
        let asked = self
            .hello(ep, &link)
            .and_then(|hello| write_message(&*link, Kind::Request, self.extensions(&link), &hello));
        if let Err(error) = asked {
            return self.connect_failed(id, error, &[]);
        }
        let answer = self.answer_timeout;
        let Some(connection) = self.connection(id) else {
            return;
        };
        connection.phase = Phase::Asked(Box::new(CmReader::new()));
        connection.refused_since = None;
        connection.await_answer(T::System::now(), answer);
        self.watch(id, |interest| *interest = Interest::READ);
    }

    /// The extensions of the protocol that this side offers on a connection.
    pub(crate) fn extensions(&self, link: &T::Link) -> Extensions {
        if T::is_in_packets(&self.params) {
            return Extensions::REFUSE | Extensions::COLL;
        }
        match T::gets_messages(&self.params, link) {
            true => Extensions::all(),
            false => Extensions::all().difference(Extensions::GET | Extensions::JOINT),
        }
    }

    /// The handshake of a connection is done: messages follow.
    pub(crate) fn start_messages(&mut self, id: ConnId, terms: Terms) {
        self.engine.conn_up(id, terms);
        if DirectOf::<T>::SUPPORTED && terms.extensions.contains(Extensions::GET) {
            self.update_get_limit(id);
        }
    }

    /// What an endpoint says to the peer it connects to.
    fn hello(&mut self, ep: EpId, link: &T::Link) -> Result<Vec<u8>> {
        let Some(state) = self.eps.get_mut(ep) else {
            return Ok(Vec::new());
        };
        let Some(rdm) = &state.rdm else {
            return Ok(std::mem::take(&mut state.msg.hello));
        };
        let features = match T::is_firewalled(&self.params) {
            true => FIREWALL_ADDR,
            false => 0,
        };
        let greeting = Greeting::request(features, 0, T::pid(&self.params));
        let greeting = greeting.with_context(rdm.context);
        T::request_data(&self.params, &mut self.readiness, link, &rdm.addr, greeting)
    }

    fn handle_answer(&mut self, id: ConnId) {
        let timeout = self.tunables().timeout;
        let Some(connection) = self.connection(id) else {
            return;
        };
        let (peer, is_rdm, context) = (
            connection.peer.clone(),
            connection.is_rdm,
            connection.context,
        );
        let (Some(link), Phase::Asked(reader)) = (&connection.link, &mut connection.phase) else {
            return;
        };
        match read_message(&**link, reader) {
            Ok(false) => {
                if reader.has_started() {
                    connection.note_answer_begun(T::System::now(), timeout);
                }
                return;
            }
            Ok(true) => {}
            Err(reason) => return self.not_answered(id, &reason),
        }
        let Some((header, data)) = reader.message() else {
            return;
        };
        let (header, data, link) = (*header, data.to_vec(), Arc::clone(link));
        match header.kind {
            Kind::Response => {}
            Kind::Reject => return self.connect_failed(id, Errno::ECONNREFUSED, &data),
            Kind::Request => {
                log_warn!(
                    T::EpCtrl,
                    "{peer}: dropped, it answered a request with a request"
                );
                return self.connect_failed(id, Errno::EPROTO, &[]);
            }
        }
        let mut has_rendezvous = false;
        if is_rdm {
            match self.accept_greeting(id, &link, &data, context) {
                Some(granted) => has_rendezvous = granted,
                None => return,
            }
        }
        self.go_up(id);
        if let Some(connection) = self.connection(id) {
            connection.deadline = None;
        }
        let packets = T::packets(&self.params, &data);
        let terms = terms(&header, self.extensions(&link), has_rendezvous, packets);
        self.start_messages(id, terms);
        log_info!(T::EpCtrl, "{peer}: connected");
        if !is_rdm {
            self.msg_connected(id, &data);
        }
        self.flush(id);
        // What had waited for the connection.
        self.note_posted(id);
    }

    /// Reads the greeting in the answer of an RDM endpoint, which was taken for the receive context `context` of its
    /// peer. Returns whether both sides have rendezvous, or `None` once the connection was given up.
    fn accept_greeting(
        &mut self,
        id: ConnId,
        link: &T::Link,
        data: &[u8],
        context: u8,
    ) -> Option<bool> {
        let granted = T::read_reply(&mut self.readiness, link, data).and_then(|greeting| {
            Ok((greeting.granted().map_err(HandshakeError::Wrong)?, greeting))
        });
        let connection = self.connection(id)?;
        match granted {
            Ok((_, greeting)) if greeting.context() != context => {
                log_warn!(
                    T::EpCtrl,
                    "{}: dropped, it is not context {context} of the endpoint it was taken for; check \
                     how many receive contexts the peer has",
                    connection.peer
                );
                self.give_up(id, Errno::ECONNREFUSED);
                None
            }
            Ok((protocol, Greeting { pid, .. })) => {
                connection.peer_pid = Some(pid);
                Some(protocol.has_rendezvous())
            }
            Err(error) => {
                log_warn!(
                    T::EpCtrl,
                    "{}: dropped, its answer is not one: {error}",
                    connection.peer
                );
                self.connect_failed(id, Errno::EPROTO, &[]);
                None
            }
        }
    }

    /// There is no answer to the request, and will be none.
    fn not_answered(&mut self, id: ConnId, reason: &HandshakeError) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let peer = &connection.peer;
        log_info!(T::EpCtrl, "{peer}: no connection: {reason}");
        match *reason {
            // Of a link that finds out only then that nobody is there.
            HandshakeError::Failed(error) if RegisteringOf::<T>::SUPPORTED => {
                connection.note_never_asked(T::System::now());
                self.not_reached(id, error);
            }
            _ => self.connect_failed(id, Errno::ECONNREFUSED, &[]),
        }
    }

    /// The handshake of a connection is over.
    pub(crate) fn go_up(&mut self, id: ConnId) {
        let Some(connection) = self.connections.get_mut(id) else {
            return;
        };
        connection.phase = Phase::Up;
        if let Some(link) = &connection.link {
            link.start();
            if !is_polled::<T>(link) {
                self.watched_links += 1;
            } else {
                self.readiness.add(id, link);
                // It does not ring yet for those who sleep already.
                self.doorbell_rang |= self.doorbells_armed;
                // Without it the first descriptor tells of most ends.
                if let Some(witness) = link.peer_fd() {
                    let token = token::connection(id, connection.generation);
                    let _ = self.epoll.add(witness, token, Interest::READ);
                }
            }
        }
        if !self.exposed.is_empty() {
            self.offer_all(id);
        }
    }

    /// An attempt to connect came to nothing before the peer was there.
    pub(crate) fn not_reached(&mut self, id: ConnId, error: Errno) {
        if let Some(connection) = self.connection(id) {
            match error {
                Errno::ECONNREFUSED => {
                    _ = connection.refused_since.get_or_insert_with(T::System::now)
                }
                _ => connection.refused_since = None,
            }
        }
        self.connect_failed(id, error, &[]);
    }

    /// An attempt to connect came to nothing.
    pub(crate) fn connect_failed(&mut self, id: ConnId, error: Errno, data: &[u8]) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let is_rdm = connection.is_rdm;
        if is_rdm && error != Errno::EPROTO && self.retry_later(id) {
            return;
        }
        if !is_rdm {
            self.msg_failed(id, error, data);
        }
        self.give_up(id, error);
    }

    /// Ends an attempt to connect for good.
    fn give_up(&mut self, id: ConnId, error: Errno) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let (peer, is_rdm, ep) = (connection.peer.clone(), connection.is_rdm, connection.ep);
        let (whole, injects) = (connection.context == 0, connection.injects_wait);
        if injects && let Some(rdm) = self.ep(ep).and_then(|ep| ep.rdm.as_mut()) {
            rdm.unreached.insert(peer.clone(), error);
        }
        if is_rdm {
            log_warn!(T::EpCtrl, "{peer}: not reached: {error}; {}", advice(error));
        }
        let src = self.engine.conn(id).map_or(FiAddr::NOTAVAIL, |c| c.src());
        self.close_connection(id, error);
        if is_rdm && whole {
            self.engine.fail_directed(ep, src, error);
        }
    }
}
