//! The ends of connections. One that has ended is closed after all others were polled.
//!
//! A peer that sends on several connections and then leaves ends them all at about the same time.
//! What it sent before it left is delivered before any operation fails because it did.
//!
//! ```text
//! a write fails: end_writes        nothing is written any more; what the peer sent before is read
//!  |
//!  v
//! a read finds the end: note_end   noted, until all other connections were polled
//!  |
//!  v
//! end_connections                  the peer broke the protocol (protocol_error), or a deadline has passed
//!  |                                |
//!  v                                v
//! lost: log_end, then of a connected endpoint msg_lost, which tells it by an event
//!  |    of an RDM endpoint lose_rdm, with probe_awaited_peer once it is closed
//!  |
//!  v
//! close_connection: forgets where the connection was noted
//!  |
//!  v
//! drop_connection: the engine completes in error what waits for it, and the link is closed, or kept half closed
//!                  while the peer may be at work in a region (region/half_closed.rs)
//! ```

use std::time::Duration;

use ripstop_engine::id::{ConnId, EpId};
use ripstop_types::{Errno, FiAddr};

use crate::conn::deadlines::MAX_UNREAD_TIME;
use crate::state::State;
use crate::state::connection::Ending;
use crate::system::System as _;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::ending::{end_link, unwatch};
use crate::transport::link::Link as _;
use crate::transport::readiness::Readiness as _;
use crate::transport::{DirectOf, Transport};

/// How long a closing endpoint tries to hand over messages that were injected.
const MAX_LINGER: Duration = Duration::from_millis(500);

impl<T: Transport> State<T> {
    /// Nothing more comes from a connection: it is closed by the poll that is under way, or else by
    /// the next progress.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_end(&mut self, id: ConnId, error: Errno) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_up() {
            return self.lost(id, error);
        }
        let ending = Ending {
            id,
            generation: connection.generation,
            error,
        };
        // It stays readable, so it may be found again; that also keeps a waiter from sleeping.
        let known = |e: &Ending| (e.id, e.generation) == (id, ending.generation);
        if !self.ending.iter().any(known) {
            self.ending.push(ending);
        }
        self.remove_active(id);
        self.active.poll_next();
    }

    /// Closes the first `count` of the connections that have ended.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_connections(&mut self, count: usize) {
        let count = count.min(self.ending.len());
        let ended: Vec<_> = self.ending.drain(..count).collect();
        for ending in ended {
            let same = self
                .connection(ending.id)
                .is_some_and(|connection| connection.generation == ending.generation);
            if same {
                self.lost(ending.id, ending.error);
            }
        }
        self.after();
    }

    /// A connection has failed: closes it, and completes in error what waits for it. One that is not up yet may be tried
    /// again; what waits for one that was to end by agreement goes by another one.
    pub(crate) fn lost(&mut self, id: ConnId, error: Errno) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        if !connection.is_up() {
            return self.connect_failed(id, error, &[]);
        }
        let is_rdm = connection.is_rdm;
        if self.engine.is_parting(id) {
            return self.lose_parting(id);
        }
        self.log_end(id, error);
        if is_rdm {
            self.lose_rdm(id, error);
        } else {
            self.msg_lost(id);
            self.close_connection(id, error);
        }
    }

    /// Goes on by another connection: the peer has closed this one by agreement, or is gone, which who connects again
    /// finds out.
    fn lose_parting(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            let peer = &connection.peer;
            log_info!(
                T::EpCtrl,
                "{peer}: the connection that was to end has ended"
            );
        }
        self.replace_parting(id);
    }

    /// Says that a connection has ended: to who reads warnings, if something was under way on it.
    fn log_end(&mut self, id: ConnId, error: Errno) {
        let idle = self.engine.conn(id).is_none_or(|conn| conn.is_idle());
        let Some(connection) = self.connection(id) else {
            return;
        };
        let peer = &connection.peer;
        if idle {
            log_info!(T::EpCtrl, "{peer}: the connection ended");
        } else {
            log_warn!(
                T::EpCtrl,
                "{peer}: the connection ended with work in progress: {error}"
            );
        }
    }

    /// Closes a failed connection of an RDM endpoint, which remembers that the peer's has ended.
    fn lose_rdm(&mut self, id: ConnId, error: Errno) {
        let Some(ep) = self.connection(id).map(|connection| connection.ep) else {
            return;
        };
        let src = self.engine.conn(id).map_or(FiAddr::NOTAVAIL, |c| c.src());
        if let Some(rdm) = self.ep(ep).and_then(|ep| ep.rdm.as_mut()) {
            rdm.note_ended(src);
        }
        self.close_connection(id, error);
        self.probe_awaited_peer(ep, src, error);
    }

    /// Connects anew to a peer whose connection has failed, if there are receives that only this peer can fill, to find
    /// out whether it is still there. An attempt that comes to nothing ends them.
    fn probe_awaited_peer(&mut self, ep: EpId, src: FiAddr, error: Errno) {
        if !self.engine.waits_for(ep, src) {
            return;
        }
        match self.open_route(ep, src, false) {
            Ok(id) if self.is_polled(id) => self.limit_connect_time(id),
            Ok(_) => {}
            Err(_) => self.engine.fail_directed(ep, src, error),
        }
    }

    /// The device of an RDM endpoint is gone: what is under way fails, and so does all that follows.
    #[cold]
    #[inline(never)]
    pub(crate) fn lose_endpoint(&mut self, ep: EpId, error: Errno) {
        let Some(state) = self.ep(ep).filter(|state| state.lost.is_none()) else {
            return;
        };
        state.lose(error);
        let (srx, shared) = (state.srx, state.shared_srx);
        if let Some(rdm) = &state.rdm {
            let addr = &rdm.addr;
            log_warn!(
                T::EpCtrl,
                "{addr}: the endpoint has no device any more, and fails: {error}; close it"
            );
        }
        let ids: Vec<ConnId> = self.engine.conns_of(ep).collect();
        for id in ids {
            self.close_connection(id, error);
        }
        if let Some(config) = self.engine.ep(ep).copied().filter(|_| !shared) {
            let to = (config.rx_cq, config.rx_counter);
            self.engine.fail_receives(srx, to, error);
        }
        self.after();
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
            .unread_deadline
            .get_or_insert(T::System::now() + MAX_UNREAD_TIME);
        log_info!(T::EpCtrl, "{peer}: cannot be written any more: {error}");
        self.watch(id, |interest| interest.write = false);
        self.start_timer();
        self.active.poll_next();
    }

    /// Takes the descriptor of a polled link out of epoll once the link has ended: it stays readable, so a thread could
    /// not sleep while the connection is stalled. As [`State::fail_soon_if_stalled`].
    #[cold]
    #[inline(never)]
    pub(crate) fn unwatch_ended(&mut self, id: ConnId) {
        let Self {
            epoll, connections, ..
        } = self;
        let Some(connection) = connections.get_mut(id) else {
            return;
        };
        let Some(link) = connection.link.as_ref().filter(|link| link.has_ended()) else {
            return;
        };
        unwatch::<T>(epoll, link);
        self.fail_soon_if_stalled(id);
    }

    /// A connection has ended. If it is stalled (not read, as its messages find no receive and no room), its end is behind
    /// what the program leaves unread: what waits for the peer fails after [`MAX_UNREAD_TIME`], unless the program takes
    /// what stands in the way.
    #[cold]
    #[inline(never)]
    pub(crate) fn fail_soon_if_stalled(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id)
            && !connection.interest.read
            && connection.unread_deadline.is_none()
        {
            connection.unread_deadline = Some(T::System::now() + MAX_UNREAD_TIME);
            self.start_timer();
        }
    }

    /// Whether operations wait for the peer of a connection.
    pub(crate) fn is_peer_awaited(&self, id: ConnId) -> bool {
        let conn = self.engine.conn(id);
        conn.is_some_and(|conn| conn.is_awaited() || self.engine.waits_for(conn.ep(), conn.src()))
    }

    /// Of a connection that has ended: whether less can still be read of it than the message that it is stalled by is
    /// long. No receive would ever get all of that, and nothing is behind it.
    pub(crate) fn is_cut(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id);
        let Some((connection, link)) = connection.and_then(|s| Some((s, s.link.as_ref()?))) else {
            return false;
        };
        let left = link
            .unread_bytes()
            .saturating_add(connection.leftover.len() as u64);
        self.engine.rx_stalled_len(id).is_some_and(|len| len > left)
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
            Some(reason) => log_warn!(T::EpData, "{peer}: dropped: {reason}"),
            None => log_warn!(T::EpData, "{peer}: dropped, it broke the protocol: {error}"),
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
        let connection = self.connections.get(id);
        let offered = connection.is_some_and(|connection| connection.offered);
        let link = connection.and_then(|connection| connection.link.clone());
        if let Some(link) = &link {
            DirectOf::<T>::end_gets(link, self.long_queued(id));
        }
        self.joint_gets.retain(|joint| joint.id != id);
        self.engine.close_conn(id, error);
        let was_up = self.is_up(id);
        if was_up {
            match self.is_polled(id) {
                true => self.readiness.remove(id),
                false => self.watched_links = self.watched_links.saturating_sub(1),
            }
        }
        self.connections.remove(id);
        match link {
            Some(link) if DirectOf::<T>::SUPPORTED && was_up => self.half_close(link, offered),
            Some(link) => end_link::<T>(&self.epoll, &link),
            None => {}
        }
    }

    /// Writes what waits, so that injected messages are not lost with the endpoint, nor what tells a
    /// peer that its message was received.
    pub(crate) fn drain(&mut self, ep: EpId) {
        let end = T::System::now() + MAX_LINGER;
        self.flush_dirty();
        let ids: Vec<ConnId> = self.engine.conns_of(ep).collect();
        for id in ids {
            loop {
                self.flush(id);
                let waits = self
                    .engine
                    .conn(id)
                    .is_some_and(|conn| conn.is_up() && conn.has_injected_output());
                if !waits || T::System::now() >= end {
                    break;
                }
                T::System::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Sees that what was written to connections that are closed next comes to the peers. What
    /// arrives by them meanwhile is dropped.
    pub(crate) fn await_delivery_of(&mut self, ids: &[ConnId]) {
        let end = T::System::now() + MAX_LINGER;
        self.choose_rx_buffer(false);
        for id in ids {
            let link = self
                .connection(*id)
                .and_then(|connection| connection.link.clone());
            if let Some(link) = link {
                link.await_delivery(end, &mut self.rx_buffer);
            }
        }
    }
}
