//! Handshakes, ends and deadlines of connections, of both endpoint types.

use std::sync::Arc;
use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::cm::CmReader;
use ripstop_os::Interest;
use ripstop_types::{Errno, FiAddr, Result};
use ripstop_wire::xnet::cm::{Extensions, Kind};
use ripstop_wire::xnet::rdm::Greeting;

use crate::conn::accept::{Accepting, read_message, terms, write_message};
use crate::conn::rdm::advice;
use crate::progress::links::{Readiness as _, polls_links};
use crate::state::connection::{MAX_RESTART_TIME, Phase};
use crate::state::{State, token};
use crate::system::{Poller as _, System as _};
use crate::transport::{HandshakeError, Link as _, Transport};

/// How long what waits for such a peer goes on while the program leaves messages of it unread that
/// stand in the way of others.
const MAX_UNREAD_TIME: Duration = Duration::from_millis(500);

/// How long a connection may be unread for want of receives before the log says so.
const STALL_LOG_DELAY: Duration = Duration::from_secs(5);

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
            .and_then(|hello| write_message(&*link, Kind::Request, Extensions::ALL, &hello));
        if let Err(error) = asked {
            return self.connect_failed(id, error, &[]);
        }
        let answer = self.answer;
        let Some(connection) = self.connection(id) else {
            return;
        };
        connection.phase = Phase::Asked(Box::new(CmReader::new()));
        connection.deaf_since = None;
        connection.await_answer(T::System::now(), answer);
        self.watch(id, |interest| *interest = Interest::READ);
    }

    /// What an endpoint says to the peer it connects to.
    fn hello(&mut self, ep: EpId, link: &T::Link) -> Result<Vec<u8>> {
        let state = self.eps.get_mut(ep.index());
        let Some(state) = state.and_then(Option::as_mut) else {
            return Ok(Vec::new());
        };
        let Some(rdm) = &state.rdm else {
            return Ok(std::mem::take(&mut state.msg.hello));
        };
        let greeting = Greeting::request(0, 0, T::pid(&self.params)).with_context(rdm.context);
        T::request_data(&mut self.readiness, link, &rdm.addr, greeting)
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
                    connection.await_rest(T::System::now(), timeout);
                }
                return;
            }
            Ok(true) => {}
            Err(reason) => {
                log_info!(T, EpCtrl, "{peer}: no connection: {reason}");
                return self.connect_failed(id, Errno::ECONNREFUSED, &[]);
            }
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
                    T,
                    EpCtrl,
                    "{peer}: dropped, it answered a request with a request"
                );
                return self.connect_failed(id, Errno::EPROTO, &[]);
            }
        }
        let mut rendezvous = false;
        if is_rdm {
            let granted = T::read_reply(&mut self.readiness, &link, &data).and_then(|greeting| {
                Ok((greeting.granted().map_err(HandshakeError::Wrong)?, greeting))
            });
            match granted {
                Ok((_, greeting)) if greeting.context() != context => {
                    log_warn!(
                        T,
                        EpCtrl,
                        "{peer}: dropped, it is not context {context} of the endpoint it was \
                         taken for; check how many receive contexts the peer has"
                    );
                    return self.give_up(id, Errno::ECONNREFUSED);
                }
                Ok((protocol, Greeting { pid, .. })) => {
                    rendezvous = protocol.has_rendezvous();
                    if let Some(connection) = self.connection(id) {
                        connection.peer_pid = Some(pid);
                    }
                }
                Err(error) => {
                    log_warn!(T, EpCtrl, "{peer}: dropped, its answer is not one: {error}");
                    return self.connect_failed(id, Errno::EPROTO, &[]);
                }
            }
        }
        self.go_up(id);
        if let Some(connection) = self.connection(id) {
            connection.deadline = None;
        }
        self.engine.conn_up(id, terms(&header, rendezvous));
        log_info!(T, EpCtrl, "{peer}: connected");
        if !is_rdm {
            self.msg_connected(id, &data);
        }
        self.flush(id);
    }

    /// The handshake of a connection is over.
    pub(crate) fn go_up(&mut self, id: ConnId) {
        let Some(Some(connection)) = self.connections.get_mut(id.index()) else {
            return;
        };
        connection.phase = Phase::Up;
        if let Some(link) = &connection.link {
            link.start();
            if polls_links::<T>() {
                self.readiness.add(id, link);
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
                Errno::ECONNREFUSED => _ = connection.deaf_since.get_or_insert_with(T::System::now),
                _ => connection.deaf_since = None,
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
            log_warn!(T, EpCtrl, "{peer}: not reached: {error}; {}", advice(error));
        }
        let src = self.engine.conn(id).map_or(FiAddr::NOTAVAIL, |c| c.src());
        self.close_connection(id, error);
        if is_rdm && whole {
            self.engine.fail_directed(ep, src, error);
        }
    }

    /// A connection that was up is gone.
    pub(crate) fn lost(&mut self, id: ConnId, error: Errno) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let (peer, is_rdm, connection_ep) =
            (connection.peer.clone(), connection.is_rdm, connection.ep);
        if !connection.is_up() {
            return self.connect_failed(id, error, &[]);
        }
        let idle = self.engine.conn(id).is_none_or(|conn| conn.is_idle());
        if idle {
            log_info!(T, EpCtrl, "{peer}: the connection ended");
        } else {
            log_warn!(
                T,
                EpCtrl,
                "{peer}: the connection ended with work in progress: {error}"
            );
        }
        let (ep, src) = (
            connection_ep,
            self.engine.conn(id).map_or(FiAddr::NOTAVAIL, |c| c.src()),
        );
        if !is_rdm {
            self.msg_lost(id);
        } else if let Some(rdm) = self.ep(ep).and_then(|ep| ep.rdm.as_mut()) {
            rdm.part(src);
        }
        self.close_connection(id, error);
        if is_rdm && self.engine.waits_for(ep, src) {
            // Receives that only this peer can fill: find out whether it is still there.
            // An attempt that comes to nothing ends them.
            match self.open_route(ep, src) {
                Ok(id) if polls_links::<T>() => self.hurry(id),
                Ok(_) => {}
                Err(_) => self.engine.fail_directed(ep, src, error),
            }
        }
    }

    /// A connection cannot be written any more, as when the peer has left. What it sent before that is
    /// read first; the end behind it closes the connection. Where that cannot be read because the
    /// program leaves messages unread, what waits for the peer fails soon.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_writes(&mut self, id: ConnId, error: Errno) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_up() {
            return self.lost(id, error);
        }
        let peer = connection.peer.clone();
        connection.write_ended = true;
        connection
            .forsaken
            .get_or_insert(T::System::now() + MAX_UNREAD_TIME);
        log_info!(T, EpCtrl, "{peer}: cannot be written any more: {error}");
        self.watch(id, |interest| interest.write = false);
        self.start_timer();
        self.active.poll_next();
    }

    /// Of a link that is polled: its descriptor, once that has told of the end, is not watched
    /// any more, or nobody could sleep while the connection is stalled. What waits for the peer then
    /// fails soon, unless the program takes what stands in the way.
    #[cold]
    #[inline(never)]
    pub(crate) fn leave_ended(&mut self, id: ConnId) {
        let Self {
            epoll, connections, ..
        } = self;
        let Some(Some(connection)) = connections.get_mut(id.index()) else {
            return;
        };
        let Some(link) = connection.link.as_ref().filter(|link| link.has_ended()) else {
            return;
        };
        // One that was taken out before is not there.
        let _ = epoll.remove(&**link);
        if let Some(witness) = link.peer_fd() {
            let _ = epoll.remove(witness);
        }
        if !connection.interest.read && connection.forsaken.is_none() {
            connection.forsaken = Some(T::System::now() + MAX_UNREAD_TIME);
            self.start_timer();
        }
    }

    /// Looks at a connection that is up. Returns whether its peer has ended and it is stalled.
    fn forsake(&mut self, id: ConnId, now: Duration) -> bool {
        let Some(due) = self
            .connection(id)
            .and_then(|connection| connection.forsaken)
        else {
            return false;
        };
        if now >= due && (self.is_peer_awaited(id) || self.is_cut(id)) {
            self.lost(id, Errno::ECONNRESET);
        }
        true
    }

    /// A connection is not read, as too many messages of it wait for receives. That is flow control,
    /// unless it lasts.
    #[cold]
    pub(crate) fn note_full(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.full = Some(T::System::now() + STALL_LOG_DELAY);
            self.start_timer();
        }
    }

    /// Says so, once it has lasted. Returns whether that is to come.
    fn tell_full(&mut self, id: ConnId, now: Duration) -> bool {
        let Some(due) = self.connection(id).and_then(|connection| connection.full) else {
            return false;
        };
        if now < due {
            return true;
        }
        let full = self.engine.rx_full(id);
        if let Some(connection) = self.connection(id)
            && connection.full.take().is_some()
            && let Some((messages, bytes)) = full
        {
            let peer = connection.peer.clone();
            log_warn!(
                T,
                EpData,
                "{peer}: it is not read any more, as {messages} messages of {bytes} bytes from it \
                 wait for receives, untagged ones included, and what is behind them waits too; post \
                 receives for them or drop them (FI_PEEK with FI_DISCARD, fi_msg(3); \
                 Endpoint::discard), or let more be kept (FI_{}_MAX_SAVED*, fi_info -e)",
                T::NAME.to_uppercase()
            );
        }
        false
    }

    /// Whether operations wait for the peer of a connection.
    fn is_peer_awaited(&self, id: ConnId) -> bool {
        let conn = self.engine.conn(id);
        conn.is_some_and(|conn| conn.is_awaited() || self.engine.waits_for(conn.ep(), conn.src()))
    }

    /// Whether the message that a connection is stalled by is longer than what may still be read, of a
    /// connection that has ended: no receive would ever get all of it, and nothing is behind it.
    fn is_cut(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id.index()).and_then(Option::as_ref);
        let Some((connection, link)) = connection.and_then(|s| Some((s, s.link.as_ref()?))) else {
            return false;
        };
        let left = link
            .unread_bytes()
            .saturating_add(connection.leftover.len() as u64);
        self.engine.rx_stalled_len(id).is_some_and(|len| len > left)
    }

    /// A peer on this machine that is gone is soon back, or has ended: less time to reach it.
    fn hurry(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.hurry(T::System::now(), MAX_RESTART_TIME);
        }
    }

    /// The peer broke the protocol.
    #[cold]
    pub(crate) fn protocol_error(&mut self, id: ConnId, error: Errno) {
        self.log_refusals();
        let reason = self.engine.wire_error();
        let Some(connection) = self.connection(id) else {
            return;
        };
        let peer = connection.peer.clone();
        match reason {
            Some(reason) => log_warn!(T, EpData, "{peer}: dropped: {reason}"),
            None => log_warn!(T, EpData, "{peer}: dropped, it broke the protocol: {error}"),
        }
        self.lost(id, error);
    }

    /// Ends a connection; what waits for it completes with `error`.
    pub(crate) fn close_connection(&mut self, id: ConnId, error: Errno) {
        self.forget_peer(id);
        self.drop_connection(id, error);
    }

    /// As [`State::close_connection`], for one that is noted nowhere.
    pub(crate) fn drop_connection(&mut self, id: ConnId, error: Errno) {
        self.remove_active(id);
        self.engine.close_conn(id, error);
        if polls_links::<T>()
            && self
                .connection(id)
                .is_some_and(|connection| connection.is_up())
        {
            self.readiness.remove(id);
        }
        if let Some(slot) = self.connections.get_mut(id.index()) {
            *slot = None;
        }
    }

    /// A connection has been in the middle of a header for too long, as far as was looked: it is read
    /// once more, since this process may have been away, and dropped if nothing has come. Returns
    /// whether it goes on so.
    #[cold]
    fn end_partial(&mut self, id: ConnId) -> bool {
        if let Some(connection) = self.connection(id) {
            connection.partial_since = None;
        }
        self.read_connection(id);
        let in_header = self.engine.conn(id).is_some_and(|c| c.in_mid_header());
        let Some(connection) = self.connection(id).filter(|_| in_header) else {
            return false;
        };
        if connection.partial_since.is_some() {
            return true;
        }
        let peer = connection.peer.clone();
        log_warn!(
            T,
            EpData,
            "{peer}: dropped, it stopped in the middle of a header"
        );
        self.lost(id, Errno::ETIMEDOUT);
        false
    }

    /// The time of a handshake is over, as far as was looked: it fails if nothing has come that was
    /// not looked at.
    #[cold]
    fn end_handshake(&mut self, id: ConnId, now: Duration) {
        self.handle_handshake(id);
        if let Some(connection) = self.connection(id)
            && !connection.is_up()
            && connection.deadline.is_some_and(|deadline| now >= deadline)
        {
            connection.deadline = None;
            self.connect_failed(id, Errno::ETIMEDOUT, &[]);
        }
    }

    /// Looks at deadlines; the timer runs only while there are any.
    pub(crate) fn handle_timer(&mut self) {
        self.drain_timer();
        let now = T::System::now();
        let watch = T::Link::CHECKS_PEER && self.is_watch_due(now);
        let mut waiting = !self.accepting.is_empty();
        let late =
            |(id, accepting): (&u32, &Accepting<T>)| (now >= accepting.deadline).then_some(*id);
        let due: Vec<u32> = self.accepting.iter().filter_map(late).collect();
        for id in due {
            // This process may have been away for that long, and not looked.
            self.handle_accepting(id);
            if let Some(accepting) = self.accepting.remove(&id) {
                log_warn!(
                    T,
                    EpCtrl,
                    "{}: dropped, it did not say what it wants",
                    accepting.peer
                );
            }
        }
        for id in self.connection_ids() {
            let timeout = self.tunables().timeout;
            let in_header = self.engine.conn(id).is_some_and(|c| c.in_mid_header());
            let Some(connection) = self.connection(id) else {
                continue;
            };
            if connection.is_up() {
                if watch
                    && connection
                        .link
                        .as_ref()
                        .is_some_and(|link| link.is_unanswered())
                {
                    self.lost(id, Errno::ETIMEDOUT);
                    waiting = true;
                    continue;
                }
                waiting |= self.forsake(id, now);
                waiting |= self.tell_full(id, now);
                let Some(connection) = self.connection(id) else {
                    continue;
                };
                let Some(since) = connection.partial_since else {
                    continue;
                };
                if !in_header {
                    connection.partial_since = None;
                } else if now >= since + timeout {
                    waiting |= self.end_partial(id);
                } else {
                    waiting = true;
                }
                continue;
            }
            waiting = true;
            if connection.deadline.is_some_and(|deadline| now >= deadline) {
                self.end_handshake(id, now);
            } else if connection.retry.is_some_and(|at| now >= at) {
                self.try_connect(id);
            } else if connection.tell.is_some_and(|at| now >= at) {
                connection.tell = None;
                let peer = connection.peer.clone();
                log_warn_sparse!(
                    T,
                    EpCtrl,
                    "{peer}: connected, but it does not answer; it is waited for until it makes \
                     progress (FI_{}_ANSWER_TIMEOUT)",
                    T::NAME.to_uppercase()
                );
            }
        }
        waiting |= self.engine.coll_tick(now);
        if !waiting {
            self.slow_timer();
        }
        self.after();
    }
}
