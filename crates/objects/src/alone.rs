//! Messages that are all there is: past the queue to who reads it.

use ripstop_engine::xnet::{Engine, Whole};
use ripstop_mem::UserBuf;
use ripstop_mem::ring::Alone;
use ripstop_types::Completion;
use ripstop_wire::xnet::base::Small;

use crate::hot::{Found, NOTHING};
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
            hot,
            staging,
            waiters,
            ..
        } = self;
        if found <= NOTHING || !waiters.is_empty() {
            return None;
        }
        let turn = usize::from(hot.turn);
        let (link, id) = (hot.sockets[turn].as_ref()?, hot.ids[turn]);
        let completion = if T::Link::GATHERS {
            let alone = link.alone()?;
            let small = engine.rx_alone(id, alone.words(), alone.len())?;
            take_alone(engine, id, cq, small, alone)?
        } else {
            let bytes = staging.get(..found.cast_unsigned())?;
            let (words, _) = bytes.as_chunks::<8>();
            let small = engine.rx_alone(id, *words.first_chunk()?, bytes.len())?;
            take_alone(engine, id, cq, small, bytes)?
        };
        hot.found();
        Some(completion)
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
