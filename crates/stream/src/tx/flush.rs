//! Writes of what a connection has to send, at once or together with what follows it.

use ripstop_engine::id::ConnId;
use ripstop_types::Errno;

use crate::state::State;
use crate::state::connection::Role;
use crate::system::System;
use crate::transport::link::Link as _;
use crate::transport::registering::Registering as _;
use crate::transport::{RegisteringOf, Transport};

/// A message is coalesced for this many [`ticks`](ripstop_os::clock::ticks) at most after the first one of its burst,
/// 0.6 to 3 ms: then the next is the first of another burst, so that a program that makes no progress
/// sends them nevertheless.
const BURST_TICKS: u32 = 3_000_000;

impl<T: Transport> State<T> {
    /// Puts off writing a connection's transmit buffer to the next progress.
    #[inline]
    pub(crate) fn put_off(&mut self, id: ConnId) {
        if let Some(connection) = self.connections.get_mut(id)
            && !connection.dirty
        {
            connection.dirty = true;
            self.dirty.push(id);
            self.active.suspend_fast_polls();
        }
    }

    /// Begins a burst with the message that is sent now, unless it belongs to one. Returns the number of its burst.
    #[inline(always)]
    pub(crate) fn begin_burst(&mut self) -> u32 {
        if !self.burst_open {
            self.burst_number = self.burst_number.wrapping_add(1);
            self.burst_began = T::System::ticks();
        }
        self.burst_open = true;
        self.burst_number
    }

    /// Goes on with the burst, if the same connection has sent in it: says whether a small message is put off
    /// behind that. The first of each connection is not: what a program sends to its neighbours before it
    /// goes on computing is under way. A burst that is older than [`BURST_TICKS`] ends instead.
    #[inline(always)]
    pub(crate) fn continue_burst(&mut self, id: Option<ConnId>) -> bool {
        if !self.has_sent_in_burst(id) {
            return false;
        }
        let is_old = T::System::ticks().wrapping_sub(self.burst_began) > BURST_TICKS;
        if is_old {
            self.end_burst();
        }
        !is_old
    }

    #[inline(always)]
    fn has_sent_in_burst(&self, id: Option<ConnId>) -> bool {
        let connection = self.connections.find(id);
        let has_sent =
            connection.is_some_and(|connection| connection.last_burst == self.burst_number);
        self.burst_open && has_sent
    }

    /// Writes what was put off; the next message is written at once again.
    #[inline]
    pub(crate) fn end_burst(&mut self) {
        self.burst_open = false;
        if !self.dirty.is_empty() {
            self.flush_dirty();
        }
    }

    /// Something was posted to a connection. If an endpoint has sent it to itself, it is read where progress begins,
    /// like what was put off is written there. It comes before what any peer has sent because of what the endpoint did
    /// afterwards: programs that write to their own memory by messages, and then tell others, depend on that.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_posted(&mut self, id: ConnId) {
        if self.is_to_itself(id) {
            self.read_loopbacks_soon();
        }
    }

    /// Whether a connection is the sending end of one of an endpoint to itself.
    #[cold]
    #[inline(never)]
    pub(crate) fn is_to_itself(&self, id: ConnId) -> bool {
        let connection = self.connections.get(id);
        connection.is_some_and(|connection| connection.role == Role::ToItself)
    }

    /// Has the receiving ends of connections of endpoints to themselves read where progress begins.
    #[cold]
    #[inline(never)]
    fn read_loopbacks_soon(&mut self) {
        let mut loopbacks = std::mem::take(&mut self.loopbacks);
        loopbacks.retain(|id| {
            let connection = self.connections.get(*id);
            let is_one = connection.is_some_and(|connection| connection.role == Role::Loopback);
            if is_one {
                self.put_off(*id);
            }
            is_one
        });
        self.loopbacks = loopbacks;
    }

    /// Writes what was put off on all connections, and what the kernel held back of them, and reads what endpoints
    /// have sent to themselves.
    #[inline(never)]
    pub(crate) fn flush_dirty(&mut self) {
        while let Some(id) = self.dirty.pop() {
            if let Some(connection) = self.connection(id) {
                connection.dirty = false;
                if std::mem::take(&mut connection.held_by_kernel)
                    && let Some(link) = &connection.link
                {
                    link.push();
                }
                let role = connection.role;
                self.flush(id);
                match role {
                    Role::Both => {}
                    Role::ToItself => self.read_loopbacks_soon(),
                    Role::Loopback => _ = self.read_connection(id),
                }
            }
        }
        self.resume_fast_polls();
    }

    /// Writes what a connection has, as far as the kernel takes it.
    #[inline]
    pub(crate) fn flush(&mut self, id: ConnId) {
        loop {
            if RegisteringOf::<T>::SUPPORTED && !self.tell_reads(id) {
                return;
            }
            let Self {
                engine,
                connections,
                slots,
                ..
            } = self;
            let (Some(conn), Some(connection)) = (engine.conn(id), connections.get_mut(id)) else {
                return;
            };
            let Some(link) = &connection.link else { return };
            if !connection.is_up() || connection.write_ended {
                return;
            }
            if !conn.has_output() {
                let waits = connection.interest.write;
                if conn.has_postponed() && self.start_postponed(id) {
                    continue;
                }
                if waits {
                    self.await_no_room(id);
                }
                return;
            }
            let written = if conn.only_buffered() {
                link.send(connection.tx_buffer.bytes())
            } else if let Some((bytes, len)) = conn.only_control() {
                link.send(&bytes[..len])
            } else {
                crate::state::place::write(&**link, engine, id, connection.tx_buffer.bytes(), slots)
            };
            match written {
                Ok(count) => {
                    let buffered = engine.sent(id, count);
                    connection.tx_buffer.advance(buffered);
                    let (Some(conn), Some(connection)) =
                        (self.engine.conn(id), self.connections.get(id))
                    else {
                        return;
                    };
                    if conn.is_flushed() && !connection.interest.write {
                        return;
                    }
                }
                Err(Errno::EAGAIN) => {
                    let link = self.connections.get(id).and_then(|c| c.link.as_ref());
                    if link.is_some_and(|link| link.await_room()) {
                        continue;
                    }
                    self.watch(id, |interest| interest.write = true);
                    self.active.wait_for_room();
                    return;
                }
                Err(error) => {
                    self.end_writes(id, error);
                    return;
                }
            }
        }
    }

    /// Tells the link where the reads go that were posted; returns whether that went well.
    fn tell_reads(&mut self, id: ConnId) -> bool {
        let Self {
            engine,
            connections,
            ..
        } = self;
        let link = connections.get(id).and_then(|c| c.link.as_ref());
        let Some(link) = link else {
            return true;
        };
        let mut news = std::iter::from_fn(|| engine.tell_read(id));
        let failed =
            news.find_map(|memory| RegisteringOf::<T>::tell_read(link, memory.segments()).err());
        if let Some(error) = failed {
            log_warn!(
                T::EpData,
                "where a read goes cannot be registered: {error}; raise the limit of locked memory (ulimit -l)"
            );
            self.lost(id, error);
        }
        failed.is_none()
    }

    /// Nothing is to be written: room is not watched for. What is postponed waits for something else,
    /// such as the peer's acknowledgement, and would keep everybody awake who sleeps until then.
    #[cold]
    fn await_no_room(&mut self, id: ConnId) {
        let flushed = self.engine.conn(id).is_some_and(|conn| !conn.has_output());
        if flushed && self.is_up(id) {
            self.watch(id, |interest| interest.write = false);
        }
    }
}
