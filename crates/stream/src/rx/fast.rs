//! Fast receive: a single small message is all that has come, and its completion goes to the reader
//! of the completion queue without being queued. Short writes have a fast path here too.

use arrayvec::ArrayVec;
use ripstop_engine::id::{ConnId, CqId};
use ripstop_engine::stream::{Engine, ShortWrites, Whole};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{MAX_INLINE_BYTES, MAX_SHORT_ENTRIES, ShortEntry, SoleEntry};
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

/// The longest write in bytes that is a few short entries of a ring with its header.
pub(crate) const MAX_SHORT_WRITE: usize = MAX_SHORT_ENTRIES * MAX_INLINE_BYTES - WRITE_LEN;

/// Short writes that are received in one call, so that a busy peer does not keep the others waiting.
const MAX_SHORT_WRITES_AT_ONCE: usize = 256;

impl<T: Transport> State<T> {
    /// Receives short plain writes, each from its entries to its place. Returns whether that was all
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
                if !receive_short_write(&writes, short) {
                    break;
                }
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

/// Receives the write that begins with this entry; `false` says that nothing was done, as it is no plain write or not
/// all of it is in short entries.
#[inline(always)]
fn receive_short_write(writes: &ShortWrites<'_, UserBuf>, first: ShortEntry<'_>) -> bool {
    let words = first.words();
    let Some((header, payload)) = words.as_flattened().split_first_chunk::<WRITE_LEN>() else {
        return false;
    };
    let front = first.len().checked_sub(WRITE_LEN);
    let (Some(place), Some(front)) = (writes.place(header), front) else {
        return false;
    };
    if front == place.len() {
        ripstop_mem::store(place, payload);
        first.consume();
        return true;
    }
    let payload = payload.get(..front).unwrap_or_default();
    receive_split_write(place, payload, first)
}

/// As [`receive_short_write`], of a write to `place` of which the first entry has the front.
#[inline(never)]
fn receive_split_write(place: UserBuf, front: &[u8], first: ShortEntry<'_>) -> bool {
    let mut entries = ArrayVec::<ShortEntry<'_>, MAX_SHORT_ENTRIES>::new();
    let mut left = place.len().checked_sub(front.len());
    entries.push(first);
    while let Some(rest @ 1..) = left {
        let next = entries.last().and_then(ShortEntry::next);
        let Some(next) = next.filter(|_| !entries.is_full()) else {
            return false;
        };
        left = rest.checked_sub(next.len());
        entries.push(next);
    }
    if left.is_none() {
        return false;
    }
    let mut to = place.skip(ripstop_mem::store(place, front));
    for (at, entry) in entries.into_iter().enumerate() {
        if at > 0 {
            let words = entry.words();
            let bytes = words.as_flattened().get(..entry.len()).unwrap_or_default();
            to = to.skip(ripstop_mem::store(to, bytes));
        }
        entry.consume();
    }
    true
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
