//! Whole small messages: what a fast poll has read goes from the receive buffer, or from the link, to its
//! place.

use ripstop_engine::id::ConnId;
use ripstop_engine::stream::{Engine, Whole};
use ripstop_mem::UserBuf;
use ripstop_os::IoVecMut;
use ripstop_types::Errno;
use ripstop_wire::rxm::MESSAGE_LEN;

use crate::progress::poll::FastPoll;
use crate::rx::fast::MAX_SHORT_WRITE;
use crate::state::State;
use crate::system::System as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::link::Link as _;
use crate::transport::registering::Registering as _;
use crate::transport::{InPlaceOf, RegisteringOf, Transport};

impl<T: Transport> State<T> {
    /// Handles bytes of the active connection, at the front of the receive buffer.
    #[inline(always)]
    fn handle_active(&mut self, count: usize) {
        let Some(id) = self.active.first() else {
            return;
        };
        let bytes = self.rx_buffer.get(..count).unwrap_or_default();
        let taken = take_whole(&mut self.engine, id, bytes);
        if taken != count || count == self.rx_buffer.len() {
            self.handle_more(id, taken, count);
        }
        // Whole messages leave the engine quiet.
        self.wake_any_waiters();
    }

    /// Goes on with a read of `count` bytes of which a message has taken the first `taken`.
    #[inline(never)]
    fn handle_more(&mut self, id: ConnId, mut taken: usize, count: usize) {
        if RegisteringOf::<T>::SUPPORTED && taken == 0 {
            let bytes = self.rx_buffer.get(..count).unwrap_or_default();
            taken = self.engine.rx_reads_done(id, bytes);
            if taken == 0 && self.receive_payload(id, count) {
                return;
            }
        }
        let bytes = self.rx_buffer.get(taken..count).unwrap_or_default();
        let mut rest = match taken {
            0 => count,
            _ if taken == count => 0,
            _ => consume_whole(&mut self.engine, id, bytes),
        };
        if InPlaceOf::<T>::SUPPORTED && rest > 0 {
            rest = self.receive_in_place(id, count, rest);
        }
        if rest > 0 {
            if self.consume_rest(id, count - rest, count) {
                self.read_connection(id);
            }
            self.note_header_next(id);
            self.after();
        } else if count == self.rx_buffer.len() {
            self.choose_rx_buffer(false);
            self.read_connection(id);
        } else if RegisteringOf::<T>::SUPPORTED {
            // What waited for a read has its turn.
            self.after();
        }
    }

    /// Receives a message in a packet of which the link has given the header alone, `count` bytes of the receive buffer:
    /// the payload goes from the link to its place. `false` says that nothing was done.
    fn receive_payload(&mut self, id: ConnId, count: usize) -> bool {
        let Self {
            engine,
            connections,
            rx_buffer,
            ..
        } = self;
        let link = connections.get(id).and_then(|conn| conn.link.as_ref());
        let (Some(link), Some(bytes), MESSAGE_LEN) = (link, rx_buffer.get(..count), count) else {
            return false;
        };
        let ready = RegisteringOf::<T>::payload_ready(link);
        if ready == 0 {
            return false;
        }
        let Some(whole) = engine.rx_whole_packet_with(id, bytes, ready) else {
            return false;
        };
        let mut place = [IoVecMut::from_user(whole.memory.first(whole.len))];
        if link.recvv(&mut place) != Ok(ready) {
            self.protocol_error(id, Errno::EPROTO);
        }
        true
    }

    /// Receives plain writes, messages between them, and one whose payload the link has ready, from
    /// the last `rest` of `count` bytes in the receive buffer. Returns how many are left.
    pub(crate) fn receive_in_place(&mut self, id: ConnId, count: usize, mut rest: usize) -> usize {
        let Self {
            engine,
            connections,
            rx_buffer,
            active,
            ..
        } = self;
        let Some(connection) = connections.get(id) else {
            return rest;
        };
        let Some(link) = &connection.link else {
            return rest;
        };
        if !InPlaceOf::<T>::applies(link) {
            return rest;
        }
        // What the link has ready follows the last byte in the receive buffer.
        let more = InPlaceOf::<T>::payload_ready(link);
        while let Some(bytes) = rx_buffer.get(count - rest..count) {
            let (whole, done) = match engine.rx_write(id, bytes, more) {
                Some(write) => {
                    active.short_writes |= write.len <= MAX_SHORT_WRITE;
                    let done = store_front(&write, bytes);
                    (write, done)
                }
                None => match engine.rx_whole_with(id, bytes, more) {
                    Some(message) => {
                        let front = bytes.get(message.header_len..).unwrap_or_default();
                        let done = ripstop_mem::copy_out(message.memory.first(message.len), front);
                        (message, done)
                    }
                    None => break,
                },
            };
            rest -= whole.header_len + done;
            if done < whole.len {
                let place = whole.memory.first(whole.len);
                InPlaceOf::<T>::recv_payload(link, place.skip(done));
            }
            if rest == 0 {
                break;
            }
        }
        rest
    }

    /// Goes on after a fast poll that has found something.
    #[inline(always)]
    pub(crate) fn handle_found(&mut self, mut found: FastPoll) {
        self.active.found(T::System::ticks);
        if InPlaceOf::<T>::SUPPORTED
            && found == FastPoll::Readable
            && let Some(link) = &self.active.links[usize::from(self.active.turn)]
        {
            let outcome = link.recv_once(&mut self.rx_buffer);
            found = self.note_received(outcome);
        }
        match found {
            FastPoll::Received => self.handle_active(self.rx_len),
            FastPoll::Ended => self.end_active(self.rx_error),
            _ => {}
        }
    }

    /// The active connection that was read has ended.
    #[cold]
    #[inline(never)]
    fn end_active(&mut self, error: Errno) {
        match self.active.first() {
            Some(id) if error != Errno::EINTR => {
                self.note_end(id, error);
                self.poll_all();
            }
            _ => _ = self.progress_all(),
        }
    }
}

/// Takes whole small messages with a posted receive from the front of `bytes`; returns how
/// many bytes are left.
#[inline]
pub(crate) fn consume_whole(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        let taken = take_whole(engine, id, rest);
        rest = rest.get(taken..).unwrap_or_default();
        if taken == 0 || rest.is_empty() {
            return rest.len();
        }
    }
}

/// Takes whole plain writes from the front of `bytes`, of a connection that is not for packets; returns their length
/// in bytes.
pub(crate) fn consume_writes(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    let mut taken = 0;
    while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty())
        && let Some(write) = engine.rx_write(id, rest, 0)
    {
        taken += write.header_len + store_front(&write, rest);
    }
    taken
}

/// Stores what `bytes` have of the payload of a plain write, whose header is at their front; returns how many bytes of
/// the payload that is.
#[inline(always)]
fn store_front(write: &Whole<UserBuf>, bytes: &[u8]) -> usize {
    let payload = bytes.get(write.header_len..).unwrap_or_default();
    ripstop_mem::store(write.memory.first(write.len), payload)
}

/// Takes one whole small message with a posted receive from the front of `bytes`; returns its length in bytes, 0 if
/// there is none.
#[inline(never)]
fn take_whole(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    match engine.rx_whole(id, bytes) {
        Some(whole) => place(&whole, bytes),
        None => take_whole_packet(engine, id, bytes),
    }
}

/// As [`take_whole`], on a connection for packets.
#[inline(never)]
fn take_whole_packet(engine: &mut Engine<UserBuf>, id: ConnId, bytes: &[u8]) -> usize {
    let whole = engine.rx_whole_packet(id, bytes);
    whole.map_or(0, |whole| place(&whole, bytes))
}

/// Copies the payload of a whole message at the front of `bytes` to its receive; returns the message's length in bytes.
#[inline(always)]
fn place(whole: &Whole<UserBuf>, bytes: &[u8]) -> usize {
    let end = whole.header_len + whole.len;
    if let Some(payload) = bytes.get(whole.header_len..end) {
        ripstop_mem::copy_out(whole.memory, payload);
    }
    end
}
