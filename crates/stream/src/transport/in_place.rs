//! In-place I/O: what only links that share memory with their peer have.

use std::fmt::Debug;

use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{ShortEntry, SoleEntry};
use ripstop_types::{Errno, Result};

/// Payloads that are sent from the user's buffer and received to their place without a receive
/// buffer, over a link that shares memory with its peer. A transport that does so defines all of it;
/// the bodies given here are for those that do not ([`SUPPORTED`](InPlace::SUPPORTED) is false), where
/// nothing of it is called.
pub trait InPlace<L>: Debug + 'static {
    /// Whether there are links over which payloads are sent and received in place.
    const SUPPORTED: bool;

    /// Whether this is such a link. The same answer for as long as the link is there; where it is not,
    /// nothing else of this trait is called but what says so.
    #[inline(always)]
    fn applies(_link: &L) -> bool {
        Self::SUPPORTED
    }

    /// As [`Link::send`](crate::Link::send), for the first `header_len` bytes of a header and
    /// the payload behind them.
    ///
    /// # Errors
    /// As for [`Link::send`](crate::Link::send).
    #[inline]
    fn send_message(
        _link: &L,
        _header: &[u8; SEND_HEADER],
        _header_len: usize,
        _payload: UserBuf,
    ) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    /// Whether a read would find something. It takes the place of
    /// [`Link::recv_once`](crate::Link::recv_once) in most polls of a program, so it has to be
    /// faster. What it does not tell, as the end of the peer, reads find that are made now and
    /// then.
    fn is_ready(_link: &L) -> bool {
        true
    }

    /// All that is there, if that is one short entry, to be received in place. `None` is any
    /// other case.
    fn sole_entry(_link: &L) -> Option<SoleEntry<'_>> {
        None
    }

    /// The next short entry, whatever is behind it, to be received in place. `None` is any
    /// other case. After the last one [`InPlace::return_credits`] is called.
    fn short_entry(_link: &L) -> Option<ShortEntry<'_>> {
        None
    }

    /// Entries of [`InPlace::short_entry`] were received: the peer may use their room again.
    fn return_credits(_link: &L) {}

    /// As [`InPlace::send_message`], of a header that is as long as it may be, if both are
    /// short and nothing stands against it; `false` says that nothing was sent.
    fn send_short(_link: &L, _header: &[u8; SEND_HEADER], _payload: UserBuf) -> bool {
        false
    }

    /// Whether [`InPlace::send_message`] takes all of a message with so many bytes of payload
    /// or nothing.
    fn sends_whole(_link: &L, _payload: usize) -> bool {
        false
    }

    /// How many bytes of a payload [`InPlace::recv_payload`] gives. A read may stop before
    /// them, behind the header.
    fn payload_ready(_link: &L) -> usize {
        0
    }

    /// Reads as [`Link::recv`](crate::Link::recv), but only bytes of
    /// [`InPlace::payload_ready`]; returns how many.
    fn recv_payload(_link: &L, _room: UserBuf) -> usize {
        0
    }
}

/// Not supported.
impl<L> InPlace<L> for () {
    const SUPPORTED: bool = false;
}
