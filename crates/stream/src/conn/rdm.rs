//! Connections of RDM endpoints: made when first needed, by either side.

use std::cmp::Ordering;

use ripstop_engine::id::{AvId, ConnId, EpId, UserIdsId};
use ripstop_engine::stream::rdm::{Decision, Progress, decide};
use ripstop_engine::stream::{ConnConfig, PEER_NAME};
use ripstop_os::{Connect, Interest};
use ripstop_types::{Errno, FiAddr, Result};
use ripstop_wire::xnet::cm::{Extensions, Kind};
use ripstop_wire::xnet::rdm::{FIREWALL_ADDR, Greeting};

use crate::addr::{Addr as _, Peers as _};
use crate::conn::accept::reject;
use crate::state::accepting::{Request, terms, write_message};
use crate::state::connection::{Connection, Phase, Role};
use crate::state::ep::PeerContext;
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::ending::end_link;
use crate::transport::link::Link as _;
use crate::transport::{HandshakeError, Origin, Transport};
use crate::tunables::FIRST_RETRY;

impl<T: Transport> State<T> {
    /// The connection for a fabric address, made if there is none. For a `silent` operation
    /// ([`Send::is_silent`](ripstop_engine::stream::Send::is_silent)): if the last attempt of such a one to connect came
    /// to nothing, its caller is told here why, once.
    #[inline]
    pub(crate) fn route(&mut self, ep: EpId, dest: FiAddr, silent: bool) -> Result<ConnId> {
        match self.ep(ep).and_then(|state| state.route(dest)) {
            Some(id) => Ok(id),
            None => self.open_route(ep, dest, silent),
        }
    }

    /// As [`State::route`], where the endpoint has noted no connection for this address.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_route(&mut self, ep: EpId, dest: FiAddr, silent: bool) -> Result<ConnId> {
        let state = self.ep(ep).ok_or(Errno::EINVAL)?;
        let Some(rdm) = &state.rdm else {
            return Err(Errno::ENOTCONN);
        };
        if let Some(error) = state.lost {
            return Err(error);
        }
        let (av, named) = (rdm.av, PeerContext::split(dest, rdm.ctx_bits)?);
        let base = self
            .avs
            .find(av)
            .and_then(|av| av.lookup(named.addr))
            .ok_or(Errno::EINVAL)?;
        let peer = base.context(named.context).ok_or(Errno::EINVAL)?;
        let known = self
            .ep(ep)
            .and_then(|e| e.rdm.as_ref()?.peers.get(&peer).copied());
        let id = match known {
            Some(id) => id,
            None => {
                let rdm = self.ep(ep).and_then(|ep| ep.rdm.as_mut());
                match rdm.and_then(|rdm| rdm.unreached.remove(&peer)) {
                    Some(error) if silent => return Err(error),
                    _ if self.is_firewalled(av, named.addr) => {
                        log_warn_sparse!(
                            T::EpCtrl,
                            "{peer}: it is behind a firewall and not connected; let it send \
                             something first"
                        );
                        return Err(Errno::EFIREWALLADDR);
                    }
                    _ => self.connect_rdm(ep, peer, named)?,
                }
            }
        };
        if named.context == 0 {
            self.set_route(ep, named.addr, id);
        }
        Ok(id)
    }

    fn is_firewalled(&self, av: Option<AvId>, peer: FiAddr) -> bool {
        !self.firewalled.is_empty() && av.is_some_and(|av| self.firewalled.contains(&(av, peer)))
    }

    /// Notes which connection serves a fabric address.
    fn set_route(&mut self, ep: EpId, addr: FiAddr, id: ConnId) {
        let Ok(index) = usize::try_from(addr.0) else {
            return;
        };
        if !addr.is_specified() {
            return;
        }
        let Some(state) = self.ep(ep) else { return };
        if state.routes.len() <= index {
            state.routes.resize(index + 1, None);
        }
        state.routes[index] = Some(id);
    }

    fn conn_config(ep: EpId, src: FiAddr, peer: &T::Addr) -> ConnConfig {
        const { assert!(T::Addr::LEN <= PEER_NAME, "an address that would be cut") };
        let bytes = peer.to_address().to_bytes();
        let mut name = [0; PEER_NAME];
        let len = bytes.len().min(PEER_NAME);
        name[..len].copy_from_slice(&bytes[..len]);
        ConnConfig {
            ep,
            src,
            name,
            name_len: len as u8,
        }
    }

    /// A connection, the engine's part and the driver's, not up. `peer` is where the other side
    /// listens, with the context that `from` says.
    pub(crate) fn open_connection(
        &mut self,
        ep: EpId,
        from: PeerContext,
        peer: T::Addr,
    ) -> Result<ConnId> {
        let name = peer.endpoint_of(from.context);
        let id = self
            .engine
            .open_conn(Self::conn_config(ep, from.addr, &name))?;
        let generation = self.next_generation();
        let is_rdm = self.ep(ep).is_some_and(|e| e.rdm.is_some());
        let connection = Connection::new(ep, is_rdm, peer, from.context, generation);
        self.connections.insert(id, connection);
        self.max_context = self.max_context.max(from.context);
        Ok(id)
    }

    fn connect_rdm(&mut self, ep: EpId, peer: T::Addr, to: PeerContext) -> Result<ConnId> {
        let id = self.open_connection(ep, to, peer.clone())?;
        let deadline = T::System::now() + self.tunables().timeout;
        let mut was_connected = false;
        if let Some(rdm) = self.ep(ep).and_then(|e| e.rdm.as_mut()) {
            was_connected = rdm.was_connected(to.addr);
            rdm.peers.insert(peer, id);
        }
        if let Some(connection) = self.connection(id) {
            connection.deadline = Some(deadline);
            connection.was_connected = was_connected;
        }
        self.start_timer();
        match self.attempt(id) {
            // Nothing of it is known to the peer: the caller is told at once, even one that
            // injects and reads no queue.
            Err(error) if is_scarcity(error) => {
                self.close_connection(id, error);
                Err(error)
            }
            Err(error) => {
                self.not_reached(id, error);
                self.still_there(id, error)
            }
            // The link was there at once, so the request was sent.
            Ok(()) => self.still_there(id, Errno::ECONNREFUSED),
        }
    }

    /// A connection, unless it was given up by the attempt that was just made: where no retry helps, or this thread was away until
    /// the deadline.
    fn still_there(&mut self, id: ConnId, error: Errno) -> Result<ConnId> {
        self.connection(id).map(|_| id).ok_or(error)
    }

    /// Starts to connect one that waits.
    pub(crate) fn try_connect(&mut self, id: ConnId) {
        if let Err(error) = self.attempt(id) {
            self.not_reached(id, error);
        }
    }

    fn attempt(&mut self, id: ConnId) -> Result<()> {
        let connection = self.connection(id).ok_or(Errno::ENOTCONN)?;
        let (ep, peer) = (connection.ep, connection.peer.clone());
        connection.retry = None;
        let state = self.ep(ep).ok_or(Errno::ENOTCONN)?;
        let bound = state.msg.bound.take();
        let from = match (bound, &state.rdm) {
            (Some(listener), _) => Origin::Bound(listener),
            (None, Some(rdm)) => Origin::Listening(rdm.addr.clone()),
            (None, None) => Origin::Address(state.msg.source.clone()),
        };
        let (link, progress) = T::connect(&self.params, &peer, from)?;
        self.attach(id, link, Interest::WRITE)?;
        if let Some(connection) = self.connection(id) {
            connection.phase = Phase::Connecting;
        }
        if matches!(progress, Connect::Connected) {
            self.handle_handshake(id);
        }
        Ok(())
    }

    /// Gives a connection its link, and epoll the link.
    pub(crate) fn attach(&mut self, id: ConnId, link: T::Link, interest: Interest) -> Result<()> {
        let epoll = std::sync::Arc::clone(&self.epoll);
        let generation = self.next_generation();
        let ep = self.connection(id).ok_or(Errno::ENOTCONN)?.ep;
        let dscp = self.ep(ep).and_then(|ep| ep.dscp);
        T::prepare(&self.params, &link, dscp)?;
        let connection = self.connection(id).ok_or(Errno::ENOTCONN)?;
        connection.generation = generation;
        epoll.add(&link, token::connection(id, generation), interest)?;
        connection.interest = interest;
        connection.link = Some(std::sync::Arc::new(link));
        (connection.mapped, connection.windows) = (false, Default::default());
        Ok(())
    }

    /// Answers the request that came by a link, which is that of a connection from now on.
    pub(crate) fn answer(
        &mut self,
        id: ConnId,
        link: T::Link,
        extensions: Extensions,
        data: &[u8],
    ) -> Result<()> {
        write_message(&link, Kind::Response, extensions, data)?;
        self.attach(id, link, Interest::READ)
    }

    fn read_request(
        &mut self,
        link: &T::Link,
        from: &T::Addr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, T::Addr), HandshakeError> {
        T::read_request(&self.params, &mut self.readiness, link, from, data)
    }

    /// A peer asks to connect to an RDM endpoint.
    pub(crate) fn handle_request(&mut self, ep: EpId, request: Request<T>, data: &[u8]) {
        let Request {
            link,
            peer: from,
            header,
        } = request;
        let (greeting, peer) = match self.read_request(&link, &from, data) {
            Ok(asked) => asked,
            Err(error) => {
                log_warn!(
                    T::EpCtrl,
                    "{from}: refused, it is not an RDM endpoint: {error}"
                );
                return reject::<T>(&link, &from, &[]);
            }
        };
        let Some(rdm) = self.ep(ep).and_then(|e| e.rdm.as_ref()) else {
            return;
        };
        let own = rdm.addr.reached_by(|| link.local_addr().ok());
        let order_of_addresses = peer.order(&own);
        let (av, own, old) = (rdm.av, rdm.context, rdm.peers.get(&peer).copied());
        let decision = self.decide_request(old, order_of_addresses, greeting.pid);
        log_info!(T::EpCtrl, "{peer} asks to connect: {decision:?}");
        if decision == Decision::Refuse {
            return reject::<T>(&link, &from, &T::refusal_data(data, true));
        }
        let mut from_peer = PeerContext {
            addr: FiAddr::NOTAVAIL,
            context: greeting.context(),
        };
        if let Some(av) = self.avs.find_mut(av) {
            from_peer.addr = av.find(&peer.endpoint_of(from_peer.context));
        }
        if let (Decision::Replace, Some(old)) = (decision, old) {
            // The process that is gone may have sent more than was read. Its end is behind that,
            // and closes the old one.
            self.forget_peer(old);
        }
        let id = match self.open_connection(ep, from_peer, peer.clone()) {
            Ok(id) => id,
            Err(error) => {
                log_warn!(T::EpCtrl, "{peer}: refused: {error}");
                return reject::<T>(&link, &from, &T::refusal_data(data, false));
            }
        };
        let answer = greeting.answer(T::pid(&self.params)).with_context(own);
        let has_rendezvous = answer.granted().is_ok_and(|p| p.has_rendezvous());
        let packets = T::packets(&self.params, data);
        let terms = terms(&header, self.extensions(&link), has_rendezvous, packets);
        let accepted = T::reply_data(&mut self.readiness, &link, answer)
            .and_then(|data| self.answer(id, link, terms.extensions, &data));
        if let Err(error) = accepted {
            log_warn!(T::EpCtrl, "{peer}: could not be accepted: {error}");
            return self.drop_connection(id, Errno::ECONNABORTED);
        }
        self.go_up(id);
        self.note_firewall(id, av, from_peer.addr, greeting);
        if let Some(connection) = self.connection(id) {
            connection.peer_pid = Some(greeting.pid);
            if decision == Decision::Loopback {
                connection.role = Role::Loopback;
            }
        }
        self.start_messages(id, terms);
        if decision == Decision::Loopback {
            return self.note_loopback(old, id);
        }
        self.take_over(old, decision, id);
        if let Some(rdm) = self.ep(ep).and_then(|e| e.rdm.as_mut()) {
            rdm.unreached.remove(&peer);
            rdm.peers.insert(peer, id);
        }
        if from_peer.context == 0 {
            self.set_route(ep, from_peer.addr, id);
        }
        self.flush(id);
    }

    /// Notes both ends of a connection of an endpoint to itself.
    fn note_loopback(&mut self, sending: Option<ConnId>, receiving: ConnId) {
        self.loopbacks.push(receiving);
        if let Some(sending) = sending
            && let Some(connection) = self.connection(sending)
        {
            connection.role = Role::ToItself;
            self.engine.note_to_itself(sending);
        }
    }

    /// Remembers that the peer of a new connection says that nobody can connect to it.
    fn note_firewall(&mut self, id: ConnId, av: Option<AvId>, peer: FiAddr, greeting: Greeting) {
        if !T::KNOWS_FIREWALLS || greeting.features & FIREWALL_ADDR == 0 {
            return;
        }
        if let (Some(av), true) = (av, peer.is_specified()) {
            self.firewalled.insert((av, peer));
        }
        if let Some(connection) = self.connection(id) {
            connection.firewalled = true;
        }
    }

    /// What waits for the connection with a peer that this one takes the place of goes by this one, if nothing is to
    /// be read from that any more.
    fn take_over(&mut self, old: Option<ConnId>, decision: Decision, id: ConnId) {
        let Some(old) = old else { return };
        if decision == Decision::AcceptInstead || self.engine.may_be_closed(old) {
            self.engine.move_postponed(old, id);
            self.drop_connection(old, Errno::ECONNABORTED);
        }
    }

    /// What to do with a request of a process: `old` is the connection with its endpoint, if any.
    fn decide_request(&mut self, old: Option<ConnId>, order: Ordering, pid: u32) -> Decision {
        if old.is_some_and(|id| self.engine.may_be_closed(id)) {
            // The peer has closed it, as agreed, which may be heard later.
            return Decision::Replace;
        }
        let old = old.and_then(|id| self.connection(id));
        let waiting = old
            .as_ref()
            .is_some_and(|old| matches!(old.phase, Phase::Waiting));
        let progress = match old {
            None => Progress::None,
            Some(old) if old.is_up() => Progress::Up { pid: old.peer_pid },
            Some(_) => Progress::Asking,
        };
        match decide(progress, order, pid) {
            Decision::Refuse if waiting => Decision::AcceptInstead,
            decision => decision,
        }
    }

    /// A connection of an RDM endpoint is gone: forget where it was noted.
    pub(crate) fn forget_peer(&mut self, id: ConnId) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let (ep, peer) = (connection.ep, connection.peer.clone());
        let Some(state) = self.ep(ep) else { return };
        for route in &mut state.routes {
            if *route == Some(id) {
                *route = None;
            }
        }
        if let Some(rdm) = &mut state.rdm
            && rdm.peers.get(&peer) == Some(&id)
        {
            rdm.peers.remove(&peer);
        }
    }

    /// A peer got a place in an address vector: connections it made before now have a name, and so
    /// do messages it left behind.
    pub(crate) fn name_peer(&mut self, av: AvId, peer: &T::Addr, addr: FiAddr) {
        for ep in self.eps.ids() {
            let Some(rdm) = self.ep(ep).and_then(|e| e.rdm.as_ref()) else {
                continue;
            };
            if rdm.av != Some(av) {
                continue;
            }
            for (id, context) in self.connections_with(ep, peer) {
                self.engine.set_source(id, addr);
                if self
                    .connections
                    .get(id)
                    .is_some_and(|known| known.firewalled)
                {
                    self.firewalled.insert((av, addr));
                }
                if context == 0 {
                    self.set_route(ep, addr, id);
                }
            }
            self.engine
                .set_departed_source(ep, &peer.to_address().to_bytes(), addr);
        }
    }

    /// Endpoints with this address vector report peers by ids of the program's own.
    pub(crate) fn name_by(&mut self, av: AvId, ids: UserIdsId) {
        for ep in self.eps.ids() {
            let rdm = self.ep(ep).and_then(|e| e.rdm.as_ref());
            if rdm.is_some_and(|rdm| rdm.av == Some(av)) {
                self.engine.change_ep(ep, |config| config.ids = Some(ids));
            }
        }
    }

    /// A peer lost its place in an address vector.
    pub(crate) fn unname_peer(&mut self, av: AvId, peer: &T::Addr, addr: FiAddr, cleanup: bool) {
        self.firewalled.remove(&(av, addr));
        for ep in self.eps.ids() {
            let Some(state) = self.ep(ep) else { continue };
            if state.rdm.as_ref().is_none_or(|rdm| rdm.av != Some(av)) {
                continue;
            }
            if let Some(route) = state.routes.get_mut(addr.0 as usize) {
                *route = None;
            }
            let ended = state.rdm.as_mut().map(|rdm| &mut rdm.ended);
            if let Some(ended) = ended.and_then(|ended| ended.get_mut(addr.0 as usize)) {
                *ended = false;
            }
            let connections = self.connections_with(ep, peer);
            if cleanup && !connections.is_empty() {
                // What was sent is not lost for it.
                self.drain(ep);
                let ids: Vec<ConnId> = connections.iter().map(|(id, _)| *id).collect();
                self.await_delivery_of(&ids);
            }
            for (id, _) in connections {
                match cleanup {
                    true => self.close_connection(id, Errno::ECANCELED),
                    false => self.engine.set_source(id, FiAddr::NOTAVAIL),
                }
            }
            self.engine
                .set_departed_source(ep, &peer.to_address().to_bytes(), FiAddr::NOTAVAIL);
        }
    }

    /// The connections of an endpoint with the contexts of a peer, with their indices.
    fn connections_with(&self, ep: EpId, peer: &T::Addr) -> Vec<(ConnId, u8)> {
        let rdm = self.eps.get(ep);
        let Some(rdm) = rdm.and_then(|ep| ep.rdm.as_ref()) else {
            return Vec::new();
        };
        let of_context = |context: u8| {
            let id = *rdm.peers.get(&peer.context(context)?)?;
            let connection = self.connections.get(id)?;
            (connection.context == context).then_some((id, context))
        };
        (0..=self.max_context).filter_map(of_context).collect()
    }

    /// What to do with a failed attempt: once more a little later, until the time is over.
    /// Returns whether it will be repeated.
    pub(crate) fn retry_later(&mut self, id: ConnId) -> bool {
        let now = T::System::now();
        let Some(connection) = self.connection(id) else {
            return false;
        };
        connection.note_attempt_failed(now);
        let Some(deadline) = connection.deadline else {
            return false;
        };
        let pause = connection.retry_pause.unwrap_or(FIRST_RETRY);
        if now + pause >= connection.retry_until(deadline) {
            return false;
        }
        let link = connection.link.take();
        connection.phase = Phase::Waiting;
        connection.interest = Interest::default();
        connection.retry = Some(now + pause);
        connection.retry_pause = Some(pause * 2);
        if let Some(link) = link {
            end_link::<T>(&self.epoll, &link);
        }
        self.start_timer();
        true
    }
}

/// Whether an attempt failed for want of something on this machine.
const fn is_scarcity(error: Errno) -> bool {
    matches!(error, Errno::EMFILE | Errno::ENOMEM | Errno::ENOBUFS)
}

const RAISE_LIMITS: &str = "raise the limits on open files and memory";

/// What to do about a peer that was not reached.
pub(crate) const fn advice(error: Errno) -> &'static str {
    if is_scarcity(error) {
        RAISE_LIMITS
    } else {
        "check that the peer runs and that the address is right"
    }
}

/// What to do about an address that could not be bound.
pub(crate) const fn bind_advice(error: Errno) -> &'static str {
    if is_scarcity(error) {
        RAISE_LIMITS
    } else {
        "choose another source address"
    }
}
