//! Connections beyond the number that is wanted: those that were used longest ago and have nothing to do end, by agreement
//! with their peers (`ripstop_engine::stream`, `parting.rs`). The next operation makes another one.

use std::time::Duration;

use ripstop_engine::id::ConnId;
use ripstop_types::{Errno, FiAddr};

use crate::state::State;
use crate::state::connection::Connection;
use crate::system::System as _;
use crate::transport::link::Link as _;
use crate::transport::{ConnectionBound, Transport};

impl<T: Transport> State<T> {
    /// If there are more connections than are wanted, asks for the end of as many that have nothing to do. Returns
    /// whether there are still too many of them, so that this is to be called again.
    pub(crate) fn bound_connections(&mut self) -> bool {
        let Some(ConnectionBound { most, idle }) = T::connection_bound(&self.params) else {
            return false;
        };
        let counts = |connection: &&Connection<T>| connection.is_rdm && !connection.parted;
        let count = self.connections.iter().filter(counts).count();
        let Some(over) = count.checked_sub(most).filter(|over| *over > 0) else {
            return false;
        };
        let now = T::System::now();
        let (mut candidates, mut asked, mut others) = (Vec::new(), 0, 0);
        for id in self.connections.ids() {
            let (is_parting, agrees) = (self.engine.is_parting(id), self.engine.agrees_to_part(id));
            let Some(connection) = self.connection(id).filter(|c| c.is_rdm && c.is_up()) else {
                continue;
            };
            if is_parting {
                connection.asked_to_part = true;
                asked += usize::from(!connection.parted);
            } else if !agrees {
                others += 1;
            } else if connection.is_unused(now, idle) {
                candidates.push((connection.last_used, id));
            }
        }
        if others > most && !std::mem::replace(&mut self.told_unbounded, true) {
            log_warn!(
                T::EpCtrl,
                "there are {others} connections with peers of other libraries, which do not agree on ends: the bound of {most} \
                 does not hold for them (FI_{}_MAX_CONNECTIONS)",
                T::PARAMS.to_uppercase()
            );
        }
        candidates.sort_unstable();
        for (_, id) in candidates.into_iter().take(over.saturating_sub(asked)) {
            if let Some(connection) = self.connection(id) {
                // One that has something to do is not looked at again at once.
                connection.last_used = now;
            }
            if self.engine.ask_to_part(id) {
                if let Some(connection) = self.connection(id) {
                    connection.asked_to_part = true;
                }
                self.flush(id);
            }
        }
        self.start_timer();
        true
    }

    /// Both sides end a connection. What waits for it goes by another one.
    pub(crate) fn parted(&mut self, id: ConnId, closes: bool) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        connection.parted = true;
        let peer = connection.peer.clone();
        log_info!(
            T::EpCtrl,
            "{peer}: the connection ends, as there are many and it has nothing to do"
        );
        // The other side waits until it is closed: before, a request of it would be refused.
        if closes {
            self.replace_parting(id);
        }
    }

    /// A connection that was to end has ended, or does now. What waits for it goes by another one.
    pub(crate) fn replace_parting(&mut self, id: ConnId) {
        self.forget_peer(id);
        let conn = self.engine.conn(id);
        let Some((ep, src)) = conn.map(|conn| (conn.ep(), conn.src())) else {
            return;
        };
        let postponed = conn.is_some_and(|conn| conn.has_postponed());
        if !postponed && !self.engine.waits_for(ep, src) {
            return self.close_connection(id, Errno::ECONNABORTED);
        }
        match self.open_route(ep, src, false) {
            Ok(next) => {
                self.engine.move_postponed(id, next);
                self.close_connection(id, Errno::ECONNABORTED);
                self.flush(next);
            }
            Err(error) => self.not_replaced(id, src, error),
        }
    }

    #[cold]
    fn not_replaced(&mut self, id: ConnId, src: FiAddr, error: Errno) {
        let ep = self.connection(id).map(|connection| connection.ep);
        self.close_connection(id, error);
        if let Some(ep) = ep {
            self.engine.fail_directed(ep, src, error);
        }
    }
}

impl<T: Transport> Connection<T> {
    /// Whether it was not used for so long, as far as was looked, and may end: a peer that has something under way is
    /// asked again after that has moved on.
    fn is_unused(&mut self, now: Duration, idle: Duration) -> bool {
        let activity = self.link.as_ref().map_or(0, |link| link.activity());
        if std::mem::take(&mut self.asked_to_part) {
            (self.activity, self.stays) = (activity, true);
        } else if self.activity != activity {
            (self.activity, self.last_used, self.stays) = (activity, now, false);
        }
        !self.stays && self.last_used + idle <= now && self.leftover.is_empty()
    }
}
