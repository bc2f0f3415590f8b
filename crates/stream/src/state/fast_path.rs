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

/// Calls what a fast path leaves to others, in a function of its own: nothing of it is inlined into
/// the fast path.
#[inline(never)]
pub(crate) fn off_fast_path<R>(act: impl FnOnce() -> R) -> R {
    act()
}

/// What the fast paths of an endpoint need to know.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FastPath {
    /// Injected messages shorter than this many bytes may take it; 0 when none may.
    pub(crate) inject: usize,
    /// The same for messages that are sent.
    pub(crate) send: usize,
    /// The same for those sent without flags of their own.
    pub(crate) plain_send: usize,
    /// Those complete with an entry, and so do writes.
    pub(crate) send_completes: bool,
    /// Somebody counts sends.
    pub(crate) counted: bool,
    /// Writes shorter than this many bytes may be written at once; 0 when none may, or somebody
    /// counts them.
    pub(crate) write: usize,
    /// From this length on they are copied by attach where that is faster, so they go into memory that is
    /// mapped or are no longer frequent cases.
    pub(crate) min_attach: usize,
    /// The same as `write` for those without flags of their own.
    pub(crate) plain_write: usize,
    /// Where writes complete.
    pub(crate) write_cq: Place<CqId>,
    /// Receives without flags of their own are for one message, and name no context.
    pub(crate) plain_recv: bool,
    /// Those complete with an entry.
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
