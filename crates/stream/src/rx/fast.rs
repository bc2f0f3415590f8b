//! Fast receive: a single small message is all that has come, and its completion goes to the reader
//! of the completion queue without being queued. Short writes have a fast path here too.

use ripstop_engine::id::{ConnId, CqId};
use ripstop_engine::stream::{Engine, Whole};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{MAX_INLINE_BYTES, SoleEntry};
use ripstop_types::Completion;
use ripstop_wire::rxm::MESSAGE_LEN;
use ripstop_wire::xnet::base::{Small, WRITE_LEN};

use crate::progress::poll::FastPoll;
use crate::state::State;
use crate::system::System as _;
use crate::transport::in_place::InPlace as _;
use crate::transport::{InPlaceOf, Transport};

impl<T: Transport> State<T> {
    /// As [`State::handle_found`], if `found` is one small message whose completion would go to the
    /// empty queue `cq`: copies the payload to its place and returns the completion. `None` says
    /// that nothing was done.
    #[inline(always)]
    pub(crate) fn fast_receive(&mut self, cq: CqId, found: FastPoll) -> Option<Completion> {
        let Self {
            engine,
            active,
            rx_buffer,
            rx_len,
            waiters,
            params,
            ..
        } = self;
        if !waiters.is_empty() {
            return None;
        }
        let turn = usize::from(active.turn);
        let (link, id) = (active.links[turn].as_ref()?, active.ids[turn]);
        let in_place = InPlaceOf::<T>::applies(link);
        let received = match in_place {
            true => FastPoll::Readable,
            false => FastPoll::Received,
        };
        if found != received {
            return None;
        }
        let completion = if in_place {
            let entry = InPlaceOf::<T>::sole_entry(link)?;
            let small = engine.rx_sole(id, entry.words(), entry.len())?;
            receive_sole(engine, id, cq, small, entry)?
        } else if T::is_in_packets(params) {
            let bytes = rx_buffer.get(..*rx_len)?;
            let small = engine.rx_sole_packet(id, bytes)?;
            receive_sole(engine, id, cq, small, InPacket(bytes))?
        } else {
            let bytes = rx_buffer.get(..*rx_len)?;
            let (words, _) = bytes.as_chunks::<8>();
            let small = engine.rx_sole(id, *words.first_chunk()?, bytes.len())?;
            receive_sole(engine, id, cq, small, bytes)?
        };
        active.found(T::System::ticks);
        Some(completion)
    }
}

/// The longest write in bytes that is one short entry of a ring with its header.
pub(crate) const MAX_SHORT_WRITE: usize = MAX_INLINE_BYTES - WRITE_LEN;

/// Short writes that are received in one call, so that a busy peer does not keep the others waiting.
const MAX_SHORT_WRITES_AT_ONCE: usize = 256;

impl<T: Transport> State<T> {
    /// Receives short plain writes, each from its entry to its place. Returns whether that was all
    /// that has come.
    #[inline(never)]
    pub(crate) fn receive_short_writes(&mut self) -> bool {
        let Self { engine, active, .. } = self;
        let turn = usize::from(active.turn);
        let (Some(link), id) = (active.links[turn].as_ref(), active.ids[turn]) else {
            return false;
        };
        let mut taken = 0;
        if let Some(writes) = engine.rx_short_writes(id) {
            while let Some(short) = InPlaceOf::<T>::short_entry(link) {
                let words = short.words();
                let (header, payload) = words.as_flattened().split_at(WRITE_LEN);
                let place = header
                    .first_chunk()
                    .and_then(|header| writes.place(header, short.len()));
                let Some(place) = place else { break };
                ripstop_mem::store(place, payload);
                short.consume();
                taken += 1;
                if taken == MAX_SHORT_WRITES_AT_ONCE {
                    break;
                }
            }
        }
        active.short_writes = taken > 0;
        if taken == 0 {
            return false;
        }
        InPlaceOf::<T>::return_credits(link);
        if InPlaceOf::<T>::is_ready(link) {
            return false;
        }
        active.found(T::System::ticks);
        true
    }
}

/// Where the payload of a single small message is: in an entry of a ring, or in the receive buffer.
trait PayloadSource {
    /// Copies the payload to its place, and releases the entry.
    fn place(self, whole: Whole<UserBuf>);
}

impl PayloadSource for SoleEntry<'_> {
    #[inline(always)]
    fn place(self, whole: Whole<UserBuf>) {
        self.copy_to(whole.header_len, whole.memory.first(whole.len));
        self.consume();
    }
}

impl PayloadSource for &[u8] {
    #[inline(always)]
    fn place(self, whole: Whole<UserBuf>) {
        let payload = self.get(whole.header_len..).unwrap_or_default();
        ripstop_mem::copy_out(whole.memory, payload);
    }
}

/// A message in a packet, with its header.
struct InPacket<'a>(&'a [u8]);

impl PayloadSource for InPacket<'_> {
    #[inline(always)]
    fn place(self, whole: Whole<UserBuf>) {
        let payload = self.0.get(MESSAGE_LEN..).unwrap_or_default();
        ripstop_mem::copy_out(whole.memory, payload);
    }
}

/// Matches the message and copies its payload, unless its completion does not belong to `cq`.
#[inline(always)]
fn receive_sole(
    engine: &mut Engine<UserBuf>,
    id: ConnId,
    cq: CqId,
    small: Small,
    from: impl PayloadSource,
) -> Option<Completion> {
    match small.tag {
        Some(_) => receive::<true>(engine, id, cq, small, from),
        None => receive::<false>(engine, id, cq, small, from),
    }
}

#[inline(always)]
fn receive<const TAGGED: bool>(
    engine: &mut Engine<UserBuf>,
    id: ConnId,
    cq: CqId,
    small: Small,
    from: impl PayloadSource,
) -> Option<Completion> {
    let (whole, completion) = engine.rx_fast::<TAGGED>(id, cq, small)?;
    from.place(whole);
    Some(completion)
}
