//! Connections that have ended are closed after all others were polled.
//!
//! A peer that sends on several connections and then leaves ends them all at about the same time.
//! What it sent before it left is delivered before any operation fails because it did.

use ripstop_engine::id::ConnId;
use ripstop_types::Errno;

use crate::state::State;
use crate::transport::Transport;

/// A connection to be closed.
#[derive(Debug)]
pub(crate) struct Ending {
    id: ConnId,
    /// Of the connection, in case its id is given to another before this is handled.
    generation: u32,
    error: Errno,
}

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
}
