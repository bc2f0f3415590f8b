//! What it costs to move long payloads by the stream, for links that have another way and choose between
//! the two ([`DirectAccess::note_streamed`]).
//!
//! [`DirectAccess::note_streamed`]: crate::DirectAccess::note_streamed

use std::time::Duration;

use ripstop_engine::id::ConnId;

use crate::state::State;
use crate::system::System as _;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::{DirectOf, Transport};

/// What is timed has at least this many bytes: it passes in several parts, so that both sides are at it.
const MIN_TIMED_BYTES: u64 = 64 << 10;

/// A payload that is arriving by the stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedPayload {
    pub(crate) id: ConnId,
    /// Bytes at the first read, and before the last.
    len: u64,
    left: u64,
    began: Duration,
}

/// What a connection writes since its link was full.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedWrites {
    pub(crate) id: ConnId,
    /// Bytes that were not written at first.
    unsent: u64,
    began: Duration,
}

impl<T: Transport> State<T> {
    /// Before a read of a payload of which `left` bytes are missing.
    #[inline]
    pub(crate) fn time_payload(&mut self, id: ConnId, left: u64) {
        if DirectOf::<T>::SUPPORTED && left >= MIN_TIMED_BYTES {
            self.begin_payload(id, left);
        }
    }

    #[cold]
    fn begin_payload(&mut self, id: ConnId, left: u64) {
        match &mut self.timed_payload {
            Some(timed) if timed.id == id && timed.left >= left => timed.left = left,
            timed => {
                *timed = Some(TimedPayload {
                    id,
                    len: left,
                    left,
                    began: T::System::now(),
                });
            }
        }
    }

    /// After a read of a payload; it is `whole` if the next bytes are a header.
    #[inline]
    pub(crate) fn note_payload_read(&mut self, id: ConnId, whole: bool) {
        if DirectOf::<T>::SUPPORTED
            && whole
            && let Some(timed) = self.timed_payload.take_if(|timed| timed.id == id)
        {
            self.note_streamed(id, timed.len, timed.began);
        }
    }

    /// The link of a connection is full.
    #[cold]
    pub(crate) fn time_writes(&mut self, id: ConnId) {
        if !DirectOf::<T>::SUPPORTED || self.timed_writes.is_some_and(|timed| timed.id == id) {
            return;
        }
        let unsent = self.engine.conn(id).map_or(0, |conn| conn.unsent());
        if unsent >= MIN_TIMED_BYTES {
            self.timed_writes = Some(TimedWrites {
                id,
                unsent,
                began: T::System::now(),
            });
        }
    }

    /// A connection has written something: if it is what was there when its link was full, and has not
    /// grown much since, its time counts.
    #[cold]
    pub(crate) fn note_written(&mut self, id: ConnId) {
        if self.engine.conn(id).is_some_and(|conn| !conn.has_output())
            && let Some(timed) = self.timed_writes.take_if(|timed| timed.id == id)
        {
            self.note_streamed(id, timed.unsent, timed.began);
        }
    }

    fn note_streamed(&mut self, id: ConnId, len: u64, began: Duration) {
        if let Some(link) = self.connections.get(id).and_then(|c| c.link.as_ref()) {
            DirectOf::<T>::note_streamed(link, len, T::System::now() - began);
            self.tell_get_limit(id);
        }
    }
}
