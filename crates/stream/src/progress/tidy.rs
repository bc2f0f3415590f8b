//! What follows progress: output of the engine, connections that may be read again, threads that are woken.

use std::sync::Arc;

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::Output;
use ripstop_os::Interest;
use ripstop_types::Errno;

use crate::state::waiters::Waited;
use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::Transport;
use crate::transport::readiness::Readiness;

impl<T: Transport> State<T> {
    /// What the engine left to be done after it was called.
    #[inline]
    pub(crate) fn after(&mut self) {
        if self.engine.is_quiet() && self.waiters.is_empty() {
            return;
        }
        self.tidy_up();
    }

    #[inline(never)]
    fn tidy_up(&mut self) {
        // The end of a connection may leave something to be said to others.
        loop {
            self.tidy_once();
            if self.engine.is_quiet() {
                break;
            }
        }
        self.wake_any_waiters();
    }

    fn tidy_once(&mut self) {
        while let Some(output) = self.engine.pop_output() {
            match output {
                Output::Coll => self.run_coll(false),
                Output::Conn(id) => self.flush(id),
                Output::Get(id, index) => self.get_payloads(id, index),
                Output::Joint(id) => self.copy_jointly(id),
                Output::PeerGot(id) => self.update_get_limit(id),
                Output::Parted { conn, closes } => self.parted(conn, closes),
            }
        }
        while let Some(slot) = self.engine.pop_freed() {
            self.slots.free(slot);
        }
        while let Some(id) = self.engine.pop_resumed() {
            self.resume(id);
        }
        self.log_refusals();
        while let Some((id, error)) = self.engine.pop_broken() {
            self.lost(id, error);
        }
    }

    #[cold]
    fn resume(&mut self, id: ConnId) {
        if !self.engine.rx_retry(id) {
            return;
        }
        let Some(connection) = self.connection(id) else {
            return;
        };
        let leftover = std::mem::take(&mut connection.leftover);
        connection.full_log_at = None;
        match self.consume(id, &leftover) {
            Ok(true) => {
                self.watch(id, |interest| interest.read = true);
                self.read_connection(id);
            }
            Ok(false) => {}
            Err(error) => self.protocol_error(id, error),
        }
    }

    /// Changes what epoll watches of a connection.
    pub(crate) fn watch(&mut self, id: ConnId, change: impl FnOnce(&mut Interest)) {
        let epoll = Arc::clone(&self.epoll);
        let Some(connection) = self.connection(id) else {
            return;
        };
        let mut interest = connection.interest;
        change(&mut interest);
        if interest == connection.interest {
            return;
        }
        connection.interest = interest;
        if connection.is_up() && connection.is_polled() {
            return self.readiness.modify(id, interest);
        }
        let generation = connection.generation;
        let Some(link) = &connection.link else {
            return;
        };
        let token = token::connection(id, generation);
        let watched = match epoll.modify(link, token, interest) {
            // See `unwatch_hung_up`.
            Err(Errno::ENOENT) => epoll.add(link, token, interest),
            done => done,
        };
        if let Err(error) = watched {
            self.lost(id, error);
        }
    }

    /// epoll reports that a connection has hung up. Where nothing else is asked of it, that would be reported until the
    /// program takes what it is stalled by: nothing is, until [`watch`](Self::watch) asks for more again.
    #[cold]
    pub(crate) fn unwatch_hung_up(&mut self, id: ConnId) {
        let Self {
            epoll, connections, ..
        } = self;
        if let Some(connection) = connections.get(id)
            && connection.interest == Interest::default()
            && let Some(link) = &connection.link
        {
            let _ = epoll.remove(link);
        }
    }

    /// Wakes those whose wait is over, where anybody waits.
    #[inline(always)]
    pub(crate) fn wake_any_waiters(&mut self) {
        if !self.waiters.is_empty() {
            self.wake_waiters();
        }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn wake_waiters(&mut self) {
        if self.has_works() {
            self.run_works();
        }
        if !self.has_works() {
            self.waiters.drop_work();
        }
        let Self {
            engine, waiters, ..
        } = self;
        waiters.wake(|what| match what {
            Waited::Work => None,
            Waited::Cq(id, wanted) => Some(
                engine
                    .cq_mut(id)
                    .is_none_or(|cq| cq.len() >= wanted || (!cq.is_empty() && cq.has_error())),
            ),
            Waited::Counter(id, seen) => Some(
                engine
                    .counter_mut(id)
                    .is_none_or(|c| [c.value, c.errors] != seen),
            ),
        });
        self.disarm_doorbells();
    }
}
