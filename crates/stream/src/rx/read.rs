//! Reads of a connection: headers to the receive buffer, payloads straight to where they go.

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::RxWant;
use ripstop_engine::{IOV_LIMIT, REACH};
use ripstop_types::{Errno, Result};

use crate::rx::small_messages::{consume_whole, consume_writes};
use crate::state::place::{PayloadRead, copy_slot, copy_user, read_memory, read_slot, store};
use crate::state::{RX_BUFFER, State};
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::link::Link as _;
use crate::transport::registering::Registering as _;
use crate::transport::{DirectOf, InPlaceOf, RegisteringOf, Transport};

/// Reads of one connection in one call, so that one busy peer does not keep the others waiting.
const MAX_READS: u32 = 64;

impl<T: Transport> State<T> {
    /// Reads a connection until it has no more, for a bounded time. Returns whether there was
    /// anything.
    pub(crate) fn read_connection(&mut self, id: ConnId) -> bool {
        let mut any = false;
        for _ in 0..MAX_READS {
            let outcome = self.read_once(id);
            if outcome == Err(Errno::EAGAIN) {
                break;
            }
            any = true;
            if !self.handle_read(id, outcome) {
                break;
            }
        }
        if any && DirectOf::<T>::SUPPORTED {
            self.tell_new_get_limit(id);
        }
        self.after();
        self.note_header_next(id);
        any
    }

    /// One read: straight to where a payload goes, with what follows to the receive buffer.
    /// Returns how many bytes are in the receive buffer.
    fn read_once(&mut self, id: ConnId) -> Result<usize> {
        let Self {
            engine,
            connections,
            rx_buffer,
            other_rx_buffer,
            slots,
            ..
        } = self;
        let Some(connection) = connections.get(id) else {
            return Err(Errno::EAGAIN);
        };
        let Some(link) = &connection.link else {
            return Err(Errno::EAGAIN);
        };
        let PayloadRead { placed, behind } = match engine.rx_want(id) {
            RxWant::Blocked | RxWant::Job => return Err(Errno::EAGAIN),
            RxWant::Header => return read_to(link.recv(rx_buffer)),
            RxWant::Place { iov, at, len } => {
                read_memory::<{ IOV_LIMIT + 1 }>(&**link, iov.segments(), at, len, rx_buffer)?
            }
            RxWant::Store { iov, at, len } => {
                read_memory::<{ REACH + 1 }>(&**link, iov.segments(), at, len, rx_buffer)?
            }
            RxWant::Keep {
                slot,
                total,
                at,
                len,
            } => match slots.make(slot, total) {
                Ok(memory) => read_slot(&**link, memory, at, len, rx_buffer)?,
                Err(_) => {
                    engine.rx_no_memory(id);
                    return Err(Errno::EAGAIN);
                }
            },
            RxWant::Discard(left) => {
                let longer = match rx_buffer.len() < other_rx_buffer.len() {
                    true => other_rx_buffer,
                    false => rx_buffer,
                };
                let want = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(longer.len());
                let placed = read_to(link.recv(&mut longer[..want]))?;
                PayloadRead { placed, behind: 0 }
            }
        };
        engine.rx_placed(id, placed as u64);
        self.yield_policy.note_payload(!engine.rx_in_header(id));
        Ok(behind)
    }

    /// Handles the outcome of a read; returns whether to read on.
    fn handle_read(&mut self, id: ConnId, outcome: Result<usize>) -> bool {
        match outcome {
            Ok(count) => {
                let rest = match InPlaceOf::<T>::SUPPORTED {
                    true => self.receive_in_place(id, count, count),
                    false => count,
                };
                self.consume_rest(id, count - rest, count)
            }
            Err(error) => {
                self.note_end(id, error);
                false
            }
        }
    }

    /// Hands what is left of a read to the engine: the receive buffer from `from` to `to`. Returns
    /// whether to read on.
    #[inline(never)]
    pub(crate) fn consume_rest(&mut self, id: ConnId, from: usize, to: usize) -> bool {
        let rx_buffer = std::mem::take(&mut self.rx_buffer);
        let full = to == rx_buffer.len();
        if full {
            // There may be many short messages: `consume` sets it again where it finds a long payload.
            self.expects_long = false;
        }
        let done = self.consume(id, &rx_buffer[from..to]);
        self.rx_buffer = rx_buffer;
        self.choose_rx_buffer(self.expects_long);
        match done {
            Ok(all) => all && (full || !self.engine.rx_in_header(id)),
            Err(error) => {
                self.protocol_error(id, error);
                false
            }
        }
    }

    /// Reads go to the short receive buffer while long payloads are expected, else to the long one. A payload that does not fit
    /// takes two reads in any case, of which the second goes straight to its place: what the first takes is to be copied.
    #[inline]
    pub(crate) fn choose_rx_buffer(&mut self, short: bool) {
        self.expects_long = short;
        let is_short = self.rx_buffer.len() < RX_BUFFER;
        if short != is_short {
            std::mem::swap(&mut self.rx_buffer, &mut self.other_rx_buffer);
        }
    }

    /// Hands bytes of the stream to the engine and its payload to memory. Returns whether all
    /// were taken; else the rest is kept and the connection is not read until the engine says so.
    pub(crate) fn consume(&mut self, id: ConnId, bytes: &[u8]) -> Result<bool> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.engine.rx_in_header(id) {
                let whole = rest.len() - consume_whole(&mut self.engine, id, rest);
                rest = &rest[whole..];
                let done = match T::is_in_packets(&self.params) {
                    true if RegisteringOf::<T>::SUPPORTED => self.engine.rx_reads_done(id, rest),
                    true => 0,
                    false => consume_writes(&mut self.engine, id, rest),
                };
                rest = &rest[done..];
                if rest.is_empty() {
                    break;
                }
                if done > 0 {
                    continue;
                }
                let used = self.engine.rx_header(id, rest)?;
                rest = &rest[used..];
                continue;
            }
            let taken = match self.place(id, rest) {
                Placed::Bytes(taken) => taken,
                Placed::JobFirst => {
                    self.run_job(id);
                    continue;
                }
                Placed::Blocked => {
                    self.stall(id, rest);
                    return Ok(false);
                }
            };
            self.engine.rx_placed(id, taken as u64);
            rest = &rest[taken..];
        }
        while matches!(self.engine.rx_want(id), RxWant::Job) {
            self.run_job(id);
        }
        if matches!(self.engine.rx_want(id), RxWant::Blocked) {
            self.stall(id, rest);
            return Ok(false);
        }
        Ok(true)
    }

    /// Copies the front of `bytes`, which follow a header, to where the engine wants it.
    #[inline]
    fn place(&mut self, id: ConnId, bytes: &[u8]) -> Placed {
        let Self {
            engine,
            slots,
            expects_long,
            ..
        } = self;
        let is_long = |len| len >= RX_BUFFER as u64;
        Placed::Bytes(match engine.rx_want(id) {
            RxWant::Header => 0,
            RxWant::Place { iov, at, len } => {
                *expects_long = is_long(len);
                copy_user(iov, at, len, bytes)
            }
            RxWant::Store { iov, at, len } => {
                *expects_long = is_long(len);
                store(iov, at, len, bytes)
            }
            RxWant::Keep {
                slot,
                total,
                at,
                len,
            } => match slots.make(slot, total) {
                Ok(memory) => {
                    *expects_long = is_long(len);
                    copy_slot(memory, at, len, bytes)
                }
                Err(_) => {
                    engine.rx_no_memory(id);
                    0
                }
            },
            RxWant::Discard(left) => usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len()),
            RxWant::Job => return Placed::JobFirst,
            RxWant::Blocked => return Placed::Blocked,
        })
    }

    /// Stops reading a connection until [`Engine::pop_resumed`](ripstop_engine::stream::Engine::pop_resumed) names it.
    #[cold]
    fn stall(&mut self, id: ConnId, rest: &[u8]) {
        let Some(connection) = self.connection(id) else {
            return;
        };
        let mut leftover = rest.to_vec();
        leftover.append(&mut connection.leftover);
        connection.leftover = leftover;
        if self.engine.rx_full(id).is_some() {
            self.start_full_log(id);
        }
        self.remove_active(id);
        self.watch(id, |interest| interest.read = false);
        self.unwatch_ended(id);
    }
}

/// What became of bytes that follow a header.
enum Placed {
    /// So many were taken.
    Bytes(usize),
    /// None yet: the engine has a job that comes first.
    JobFirst,
    /// None: the connection is not to be read for now.
    Blocked,
}

/// A read of nothing is the end of the stream.
pub(crate) fn read_to(outcome: Result<usize>) -> Result<usize> {
    match outcome {
        Ok(0) => Err(Errno::ECONNRESET),
        outcome => outcome,
    }
}
