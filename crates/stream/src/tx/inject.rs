//! Injected operations without a completion: nothing but the return of the call says that they
//! are sent.
//!
//! What such an operation carries is with the kernel, or in the ring of the peer, when its call
//! returns success. So it arrives though the program closes everything or ends right after, and no
//! other call of it is needed. Where that is not possible, because there is no connection yet or no
//! room, the call makes progress and returns `EAGAIN`, and nothing was sent (`fi_inject(3)`).

use std::time::Duration;

use ripstop_core::provider::SendKind;
use ripstop_engine::Iov;
use ripstop_engine::id::{ConnId, EpId};
use ripstop_engine::stream::Send;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Result};

use crate::state::State;
use crate::state::fast_path::ACKED;
use crate::system::System as _;
use crate::transport::link::Link as _;
use crate::transport::registering::Registering as _;
use crate::transport::{RegisteringOf, Transport};
use crate::tx::fast::NotSent;
use crate::tx::send::tag_of;

/// How long a call waits for the peer to make room for the rest of an operation of which the kernel
/// took the front. If that is not enough, the rest goes out with later progress, or when the
/// endpoint is closed.
const MAX_INJECT_WAIT: Duration = Duration::from_secs(1);

impl<T: Transport> State<T> {
    /// Posts a small message whose buffer is free at once.
    #[inline(always)]
    pub(crate) fn inject_one(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
    ) -> Result<()> {
        match data {
            None => self.inject_small(ep, kind, buf, None, dest),
            data => self.inject_with_data(ep, kind, buf, data, dest),
        }
    }

    /// As [`State::inject_one`], with data. No closure of `off_fast_path`: its room on the stack
    /// would be made for every injected message.
    #[inline(never)]
    fn inject_with_data(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
    ) -> Result<()> {
        self.inject_small(ep, kind, buf, data, dest)
    }

    #[inline(always)]
    fn inject_small(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
    ) -> Result<()> {
        let mut written = 0;
        if let Some(state) = self.eps.get(ep)
            && buf.len() < state.fast.inject_below
        {
            let (counted, id) = (state.fast.counted, state.route(dest));
            // The next progress sends what the kernel holds back; whoever sleeps makes none. A device holds nothing.
            let hold = !RegisteringOf::<T>::SUPPORTED
                && self.burst_open
                && !self.sends_in_place(id)
                && !self.unattended
                && self.waiters.is_empty()
                && self.continue_burst(id);
            match self.send_now::<true>(id, kind, buf, data, hold) {
                Ok(()) => {
                    if hold {
                        self.note_held(id);
                    }
                    if counted {
                        self.note_injected(ep, kind, buf.len());
                    }
                    return Ok(());
                }
                Err(not_sent) => written = not_sent.written,
            }
        }
        self.inject_late(ep, kind, buf, data, dest, written)
    }

    /// The kernel holds back bytes of a connection until the next progress.
    #[inline]
    fn note_held(&mut self, id: Option<ConnId>) {
        if let Some(connection) = self.connections.find_mut(id) {
            connection.held_by_kernel = true;
            if !connection.dirty
                && let Some(id) = id
            {
                self.put_off(id);
            }
        }
    }

    /// Counts a message that was injected and written at once.
    #[inline(never)]
    fn note_injected(&mut self, ep: EpId, kind: SendKind, len: usize) {
        self.note_sent(ep, kind, len, 0, false);
    }

    /// Goes on with [`State::inject_small`] where the frequent case is not all; of the message,
    /// `written` bytes are with the kernel.
    #[inline(never)]
    fn inject_late(
        &mut self,
        ep: EpId,
        kind: SendKind,
        buf: UserBuf,
        data: Option<u64>,
        dest: FiAddr,
        mut written: usize,
    ) -> Result<()> {
        let Some(state) = self.eps.get(ep) else {
            return Err(Errno::EOPBADSTATE);
        };
        if !state.has_tx {
            return Err(state.no_send());
        }
        if buf.len() > state.inject_size {
            return Err(Errno::EMSGSIZE);
        }
        let counted = state.fast.counted;
        let ack = state.counted && state.tx_flags.intersects(ACKED);
        if written == 0 && buf.len() < state.fast.inject_below {
            let id = self.route(ep, dest, true)?;
            self.admit_silent(id)?;
            match self.send_now::<true>(Some(id), kind, buf, data, false) {
                Ok(()) => {
                    if counted {
                        self.note_injected(ep, kind, buf.len());
                    }
                    return Ok(());
                }
                // The usual way notes that it is to be read.
                Err(NotSent { written: 0 }) if self.is_to_itself(id) => {}
                Err(NotSent { written: 0 }) => {
                    self.make_room();
                    return Err(Errno::EAGAIN);
                }
                Err(not_sent) => written = not_sent.written,
            }
        }
        let send = Send {
            tag: tag_of(kind),
            data,
            iov: Iov::one(buf),
            context: 0,
            completion: false,
            inject: true,
            ack,
            work: false,
        };
        self.post(ep, dest, &send, false, written)
    }

    /// Whether an operation without a completion may be posted: its connection is up, nothing
    /// stands before it that could not be written, and there is room.
    ///
    /// # Errors
    /// `EAGAIN` where not, after progress was made; why the peer cannot be reached, once for each
    /// attempt to; `ENOTCONN` for a connected endpoint without its connection.
    pub(crate) fn admit_silent(&mut self, id: ConnId) -> Result<()> {
        let Some(connection) = self.connection(id) else {
            return Err(Errno::EAGAIN);
        };
        if !connection.is_up() {
            if !connection.is_rdm {
                return Err(Errno::ENOTCONN);
            }
            connection.injects_wait = true;
            self.make_room();
            return Err(Errno::EAGAIN);
        }
        if T::is_in_packets(&self.params) && self.engine.is_parting(id) {
            // Either it goes on, or there will be another one.
            self.make_room();
            return Err(Errno::EAGAIN);
        }
        if !self.is_written(id) {
            self.flush(id);
        }
        let Some(link) = self
            .connection(id)
            .and_then(|connection| connection.link.clone())
        else {
            return Err(Errno::EAGAIN);
        };
        let mut room = link.has_room();
        // Where the peer makes room at any time, a moment may be enough.
        if !room && link.await_room() {
            self.flush(id);
            room = link.has_room();
        }
        if room && self.is_written(id) {
            return Ok(());
        }
        self.make_room();
        Err(Errno::EAGAIN)
    }

    /// Whether a connection is up, all that was posted to it is written, and what follows does not wait
    /// for reads.
    fn is_written(&self, id: ConnId) -> bool {
        let conn = self.engine.conn(id);
        conn.is_some_and(|conn| conn.is_up() && conn.is_flushed() && !conn.holds_after_reads())
    }

    /// Sees that all of an operation that was posted last is written, of which as a rule all is.
    pub(crate) fn hand_over(&mut self, id: ConnId) {
        self.flush(id);
        if self.engine.conn(id).is_some_and(|conn| conn.has_output()) {
            self.await_rest(id);
        }
    }

    /// Waits until the rest of what a connection has to write is written. Other connections go on
    /// meanwhile, so two processes that wait for each other here make room for each other.
    #[cold]
    #[inline(never)]
    fn await_rest(&mut self, id: ConnId) {
        let end = T::System::now() + MAX_INJECT_WAIT;
        let generation =
            |state: &mut Self| state.connection(id).map(|connection| connection.generation);
        let own = generation(self);
        while generation(self) == own
            && self.engine.conn(id).is_some_and(|conn| conn.has_output())
            && T::System::now() < end
        {
            if self.works.busy {
                self.flush(id);
            } else {
                self.poll_all();
            }
            T::System::yield_now();
        }
    }
}
