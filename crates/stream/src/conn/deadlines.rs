//! Deadlines of connections: handshakes, headers that stop in the middle, peers that do not answer.

use std::time::Duration;

use ripstop_core::status::MAX_OBJECTS;
use ripstop_engine::id::ConnId;
use ripstop_types::Errno;

use crate::state::connection::{Connection, MAX_RESTART_TIME, Phase};
use crate::state::watch::WATCH_INTERVAL;
use crate::state::{State, TIMER_INTERVAL};
use crate::system::{System, Timer as _};
use crate::transport::Transport;
use crate::transport::link::Link as _;

/// How often connections are checked whose peer's machine may be dead ([`Link::CHECKS_PEER`](crate::Link::CHECKS_PEER)).
const PEER_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// How long operations that wait for a peer whose connection has ended go on while the program leaves unread what the
/// peer sent before its end.
pub(crate) const MAX_UNREAD_TIME: Duration = Duration::from_millis(500);

/// How long a connection may be unread for want of receives before the log says so.
const STALL_LOG_DELAY: Duration = Duration::from_secs(5);

impl<T: Transport> State<T> {
    /// Ends a connection whose peer has ended, once the program has left its messages unread for long enough that what
    /// waits for the peer is to fail. Returns whether the peer has ended and the connection is stalled.
    fn check_unread(&mut self, id: ConnId, now: Duration) -> bool {
        let Some(due) = self.connection(id).and_then(|conn| conn.unread_deadline) else {
            return false;
        };
        if now >= due && (self.is_peer_awaited(id) || self.is_cut(id)) {
            self.lost(id, Errno::ECONNRESET);
        }
        true
    }

    /// A connection is not read, as too many messages of it wait for receives. That is flow control,
    /// unless it lasts: then the log says so.
    #[cold]
    pub(crate) fn start_full_log(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.full_log_at = Some(T::System::now() + STALL_LOG_DELAY);
            self.start_timer();
        }
    }

    /// Logs that a connection is not read, once that has lasted. Returns whether that is to come.
    fn log_full(&mut self, id: ConnId, now: Duration) -> bool {
        let Some(due) = self
            .connection(id)
            .and_then(|connection| connection.full_log_at)
        else {
            return false;
        };
        if now < due {
            return true;
        }
        let full = self.engine.rx_full(id);
        if let Some(connection) = self.connection(id)
            && connection.full_log_at.take().is_some()
            && let Some((messages, bytes)) = full
        {
            let peer = connection.peer.clone();
            log_warn!(
                T::EpData,
                "{peer}: it is not read any more, as {messages} messages of {bytes} bytes from it \
                 wait for receives, untagged ones included, and what is behind them waits too; post \
                 receives for them or drop them (FI_PEEK with FI_DISCARD, fi_msg(3); \
                 Endpoint::discard), or let more be kept (FI_{}_MAX_SAVED*, fi_info -e)",
                T::PARAMS.to_uppercase()
            );
        }
        false
    }

    /// Leaves [`MAX_RESTART_TIME`] to reach a peer on this machine that is gone: it is back by then, or has ended.
    pub(crate) fn limit_connect_time(&mut self, id: ConnId) {
        if let Some(connection) = self.connection(id) {
            connection.limit_connect_time(T::System::now(), MAX_RESTART_TIME);
        }
    }

    /// The time of a handshake is over, as far as was looked: it fails if nothing has come that was
    /// not looked at, on this connection or, where it waits for that, as a request of the peer.
    #[cold]
    fn end_handshake(&mut self, id: ConnId, now: Duration) {
        self.handle_handshake(id);
        if self.is_late(id, now)
            && let Some(connection) = self.connection(id)
            && matches!(connection.phase, Phase::Waiting)
        {
            let ep = connection.ep;
            self.handle_listener(ep);
            for number in self.accepting.for_ep(ep) {
                self.handle_accepting(number);
            }
        }
        if self.is_late(id, now)
            && let Some(connection) = self.connection(id)
        {
            connection.deadline = None;
            self.connect_failed(id, Errno::ETIMEDOUT, &[]);
        }
    }

    /// Whether the handshake of a connection is not done, and its time is over.
    fn is_late(&self, id: ConnId, now: Duration) -> bool {
        self.connections.get(id).is_some_and(|connection| {
            !connection.is_up() && connection.deadline.is_some_and(|deadline| now >= deadline)
        })
    }

    /// The timer has gone off: it runs while there are deadlines, and once a second to look at what
    /// waits.
    pub(crate) fn handle_timer(&mut self) {
        self.timer.drain();
        let now = T::System::now();
        let checks_peers = T::Link::CHECKS_PEER && self.is_peer_check_due(now);
        if checks_peers || self.timer_period == TIMER_INTERVAL {
            self.look_at_deadlines(now, checks_peers);
        }
        if self.watch.is_due(now) {
            self.look_at_waits(now);
        }
        self.after();
    }

    /// Checks every deadline; the timer goes slowly again when there is none.
    fn look_at_deadlines(&mut self, now: Duration, checks_peers: bool) {
        let mut waiting = !self.accepting.is_empty();
        for id in self.accepting.late(now) {
            // This process may have been away for that long, and not looked.
            self.handle_accepting(id);
            self.accepting.drop_late(id, &self.epoll);
        }
        for id in self.connections.ids() {
            let Some(connection) = self.connection(id) else {
                continue;
            };
            match connection.is_up() {
                true => waiting |= self.check_connection(id, now, checks_peers),
                false => {
                    waiting = true;
                    self.check_handshake(id, now);
                }
            }
        }
        waiting |= self.engine.coll_tick(now);
        waiting |= self.bound_connections();
        if !waiting {
            self.slow_timer();
        }
    }

    /// Checks the deadlines of a connection that is up. Returns whether there are any.
    fn check_connection(&mut self, id: ConnId, now: Duration, checks_peers: bool) -> bool {
        let link = self.connection(id).and_then(|c| c.link.as_ref());
        if checks_peers && link.is_some_and(|link| link.is_unanswered()) {
            self.lost(id, Errno::ETIMEDOUT);
            return true;
        }
        let unread = self.check_unread(id, now);
        self.log_full(id, now) || unread
    }

    /// Checks the deadlines of a connection that is not up yet.
    fn check_handshake(&mut self, id: ConnId, now: Duration) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let is_over = |due: Option<Duration>| due.is_some_and(|due| now >= due);
        if is_over(connection.deadline) {
            self.end_handshake(id, now);
        } else if is_over(connection.retry) {
            self.try_connect(id);
        } else if is_over(connection.answer_log_at) {
            connection.answer_log_at = None;
            let peer = connection.peer.clone();
            log_warn_sparse!(
                T::EpCtrl,
                "{peer}: connected, but it does not answer; it is waited for until it makes \
                 progress (FI_{}_ANSWER_TIMEOUT)",
                T::PARAMS.to_uppercase()
            );
        }
    }

    /// Makes sure that deadlines are checked.
    pub(crate) fn start_timer(&mut self) {
        self.set_timer(TIMER_INTERVAL);
    }

    /// There is one more endpoint, and so something to look at. Its address is shown at once: the program
    /// may be away before the first pass.
    pub(crate) fn start_watching(&mut self) {
        if self.watch.is_on() && self.eps.places() <= MAX_OBJECTS {
            self.look_at_waits(T::System::now());
        }
        if self.timer_period.is_zero() {
            self.slow_timer();
        }
    }

    /// There are no deadlines; what waits, and connections that have to be watched, are looked at now and
    /// then.
    pub(crate) fn slow_timer(&mut self) {
        if self.watch.is_on() {
            return self.set_timer(WATCH_INTERVAL);
        }
        let up = |connection: &Connection<T>| connection.is_up();
        let watched = T::Link::CHECKS_PEER && self.connections.iter().any(up);
        self.set_timer(if watched {
            PEER_CHECK_INTERVAL
        } else {
            Duration::ZERO
        });
    }

    /// Whether connections were not checked for [`PEER_CHECK_INTERVAL`]: the timer may go off more often.
    pub(crate) fn is_peer_check_due(&mut self, now: Duration) -> bool {
        let due = now >= self.peers_checked_at + PEER_CHECK_INTERVAL;
        if due {
            self.peers_checked_at = now;
        }
        due
    }

    fn set_timer(&mut self, period: Duration) {
        if self.timer_period != period && self.timer.set(period).is_ok() {
            self.timer_period = period;
        }
    }
}
