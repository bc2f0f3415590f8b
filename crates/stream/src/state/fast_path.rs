//! What the fast paths of an endpoint need to know, and the flags that keep a post off them.

use ripstop_engine::id::CqId;
use ripstop_engine::pool::Place;
use ripstop_engine::stream::SEND_HEADER;
use ripstop_types::{Flags, flags};
use ripstop_wire::rxm::MESSAGE_LEN;

use crate::state::tx_buffer::FAST_SEND_BUFFER;
use crate::transport::in_place::InPlace as _;
use crate::transport::registering::Registering as _;
use crate::transport::{InPlaceOf, RegisteringOf, Transport};

/// Flags that ask for the peer's acknowledgement.
pub(crate) const ACKED: Flags = flags![TRANSMIT_COMPLETE DELIVERY_COMPLETE COMMIT_COMPLETE];

/// Flags of a receive that keep it off the fast path: they make more of it than one message into one buffer.
pub(crate) const SLOW_RECV_FLAGS: Flags = flags![PEEK CLAIM DISCARD MULTI_RECV];

/// Flags of a send or write that keep it off the fast path. An injected one has a limit of its own.
pub(crate) const SLOW_SEND_FLAGS: Flags = ACKED.union(flags![MORE INJECT FENCE TRIGGER]);

/// Flags of a read that keep it off the fast path. Its payload is there when it is done, whatever the level that is asked
/// for.
pub(crate) const SLOW_READ_FLAGS: Flags = flags![FENCE TRIGGER];

/// Calls what a fast path leaves to others, in a function of its own: nothing of it is inlined into
/// the fast path.
#[inline(never)]
pub(crate) fn off_fast_path<R>(act: impl FnOnce() -> R) -> R {
    act()
}

/// What the fast paths of an endpoint need to know. A length in bytes ends in `_below`: what is shorter may take the
/// fast path, and nothing where it is 0. *Plain* operations are those without flags of their own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastPath {
    /// Of injected messages.
    pub(crate) inject_below: usize,
    /// Of messages that are sent.
    pub(crate) send_below: usize,
    /// Of plain ones.
    pub(crate) plain_send_below: usize,
    /// Plain sends complete with an entry, and so do plain writes and reads.
    pub(crate) send_completes: bool,
    /// A counter counts sends.
    pub(crate) counted: bool,
    /// Of writes; 0 where a counter counts them.
    pub(crate) write_below: usize,
    /// Of plain ones.
    pub(crate) plain_write_below: usize,
    /// Of reads.
    pub(crate) read_below: usize,
    /// The length in bytes from which a write may be copied by attach, where that is faster, so that it is not written
    /// to the stream before that was tried.
    pub(crate) min_attach: usize,
    /// Where writes complete.
    pub(crate) write_cq: Place<CqId>,
    /// Plain receives may take the fast path: they are for one message, and name no context.
    pub(crate) plain_recv: bool,
    /// Plain receives complete with an entry.
    pub(crate) recv_completes: bool,
}

/// The longest message in bytes that is copied to be sent at once.
pub(crate) const MAX_COPIED: usize = FAST_SEND_BUFFER - SEND_HEADER;

/// The same of a message in a packet, whose header is longer.
pub(crate) const MAX_COPIED_IN_PACKET: usize = FAST_SEND_BUFFER - MESSAGE_LEN;

/// The longest message in bytes that may be sent at once, as far as the transport knows; what is sent
/// in place, or by a device, has no such bound.
pub(crate) const fn max_sent_at_once<T: Transport>() -> usize {
    match InPlaceOf::<T>::SUPPORTED || RegisteringOf::<T>::SUPPORTED {
        true => usize::MAX - 1,
        false => MAX_COPIED,
    }
}
