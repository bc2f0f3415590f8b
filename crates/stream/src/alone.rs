//! Messages that are all there is: past the queue to who reads it.

use ripstop_engine::stream::{Engine, Whole};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Alone, INLINE};
use ripstop_types::Completion;
use ripstop_wire::xnet::base::{Small, WRITE_LEN};

use crate::progress::{Found, NOTHING};
use crate::state::State;
use crate::transport::{Link as _, Transport};

impl<T: Transport> State<T> {
    /// As [`State::handle_found`], if that is one small message whose completion would go to the
    /// empty queue `cq`: puts the payload in its place and returns the completion. `None` says
    /// that nothing was done.
    #[inline(always)]
    pub(crate) fn take_alone(&mut self, cq: u32, found: Found) -> Option<Completion> {
        let Self {
            engine,
            active,
            rx_buffer,
            waiters,
            ..
        } = self;
        if found <= NOTHING || !waiters.is_empty() {
            return None;
        }
        let turn = usize::from(active.turn);
        let (link, id) = (active.links[turn].as_ref()?, active.ids[turn]);
        let completion = if T::Link::GATHERS {
            let alone = link.alone()?;
            let small = engine.rx_alone(id, alone.words(), alone.len())?;
            take_alone(engine, id, cq, small, alone)?
        } else {
            let bytes = rx_buffer.get(..found.cast_unsigned())?;
            let (words, _) = bytes.as_chunks::<8>();
            let small = engine.rx_alone(id, *words.first_chunk()?, bytes.len())?;
            take_alone(engine, id, cq, small, bytes)?
        };
        active.found();
        Some(completion)
    }
}

/// The longest write in bytes that is one short piece with its header.
pub(crate) const SHORT: usize = INLINE - WRITE_LEN;

/// So many writes are taken at once: one busy peer does not keep the others waiting.
const MOST: usize = 256;

impl<T: Transport> State<T> {
    /// Takes short plain writes, each from where it is to where it goes. Returns whether that was
    /// all there is.
    #[inline(never)]
    pub(crate) fn take_writes(&mut self) -> bool {
        let Self { engine, active, .. } = self;
        let turn = usize::from(active.turn);
        let (Some(link), id) = (active.links[turn].as_ref(), active.ids[turn]) else {
            return false;
        };
        let mut taken = 0;
        if let Some(writes) = engine.rx_short_writes(id) {
            while let Some(short) = link.short() {
                let words = short.words();
                let (header, payload) = words.as_flattened().split_at(WRITE_LEN);
                let place = header
                    .first_chunk()
                    .and_then(|header| writes.place(header, short.len()));
                let Some(place) = place else { break };
                ripstop_mem::store(place, payload);
                short.done();
                taken += 1;
                if taken == MOST {
                    break;
                }
            }
        }
        active.short_writes = taken > 0;
        if taken == 0 {
            return false;
        }
        link.have_taken();
        if link.is_ready() {
            return false;
        }
        active.found();
        true
    }
}

/// Where a message lies that is all there is.
trait Lies {
    /// Copies its payload to its place. That is the end of it.
    fn place(self, whole: Whole<UserBuf>);
}

impl Lies for Alone<'_> {
    #[inline(always)]
    fn place(self, whole: Whole<UserBuf>) {
        self.take(whole.header_len, whole.memory.first(whole.len));
        self.done();
    }
}

impl Lies for &[u8] {
    #[inline(always)]
    fn place(self, whole: Whole<UserBuf>) {
        let payload = self.get(whole.header_len..).unwrap_or_default();
        ripstop_mem::copy_out(whole.memory, payload);
    }
}

/// Takes a message that is all there is, past the queue `cq`. Returns the completion.
#[inline(always)]
fn take_alone(
    engine: &mut Engine<UserBuf>,
    id: u32,
    cq: u32,
    small: Small,
    from: impl Lies,
) -> Option<Completion> {
    match small.tag {
        Some(_) => take_past::<true>(engine, id, cq, small, from),
        None => take_past::<false>(engine, id, cq, small, from),
    }
}

#[inline(always)]
fn take_past<const TAGGED: bool>(
    engine: &mut Engine<UserBuf>,
    id: u32,
    cq: u32,
    small: Small,
    from: impl Lies,
) -> Option<Completion> {
    let (whole, completion) = engine.rx_past::<TAGGED>(id, cq, small)?;
    from.place(whole);
    Some(completion)
}
