//! In-place I/O: what only links that share memory with their peer have.

use std::fmt::Debug;

use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{ShortEntry, SoleEntry};
use ripstop_types::{Errno, Result};

/// Payloads that are sent from the user's buffer and received to their place without a receive
/// buffer, over a link that shares memory with its peer. Nothing of it is called where it is not
/// [`SUPPORTED`](InPlace::SUPPORTED).
pub trait InPlace<L>: Debug + 'static {
    /// Whether payloads are sent and received in place.
    const SUPPORTED: bool = true;

    /// As [`Link::send`](crate::Link::send), for the first `header_len` bytes of a header and
    /// the payload behind them.
    ///
    /// # Errors
    /// As for [`Link::send`](crate::Link::send).
    fn send_message(
        link: &L,
        header: &[u8; SEND_HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize>;

    /// Whether a read would find something. It takes the place of
    /// [`Link::recv_once`](crate::Link::recv_once) in most polls of a program, so it has to be
    /// faster. What it does not tell, as the end of the peer, reads find that are made now and
    /// then.
    fn is_ready(link: &L) -> bool;

    /// All that is there, if that is one short entry, to be received in place. `None` is any
    /// other case.
    fn sole_entry(link: &L) -> Option<SoleEntry<'_>>;

    /// The next short entry, whatever is behind it, to be received in place. `None` is any
    /// other case. After the last one [`InPlace::return_credits`] is called.
    fn short_entry(link: &L) -> Option<ShortEntry<'_>>;

    /// Entries of [`InPlace::short_entry`] were received: the peer may use their room again.
    fn return_credits(link: &L);

    /// As [`InPlace::send_message`], of a header that is as long as it may be, if both are
    /// short and nothing stands against it; `false` says that nothing was sent.
    fn send_short(link: &L, header: &[u8; SEND_HEADER], payload: UserBuf) -> bool;

    /// Whether [`InPlace::send_message`] takes all of a message with so many bytes of payload
    /// or nothing.
    fn sends_whole(link: &L, payload: usize) -> bool;

    /// How many bytes of a payload [`InPlace::recv_payload`] gives. A read may stop before
    /// them, behind the header.
    fn payload_ready(link: &L) -> usize;

    /// Reads as [`Link::recv`](crate::Link::recv), but only bytes of
    /// [`InPlace::payload_ready`]; returns how many.
    fn recv_payload(link: &L, room: UserBuf) -> usize;
}

/// Not supported: nothing of it is called.
impl<L> InPlace<L> for () {
    const SUPPORTED: bool = false;

    #[inline]
    fn send_message(_: &L, _: &[u8; SEND_HEADER], _: usize, _: UserBuf) -> Result<usize> {
        Err(Errno::ENOSYS)
    }

    fn is_ready(_: &L) -> bool {
        true
    }

    #[inline(always)]
    fn sole_entry(_: &L) -> Option<SoleEntry<'_>> {
        None
    }

    #[inline(always)]
    fn short_entry(_: &L) -> Option<ShortEntry<'_>> {
        None
    }

    fn return_credits(_: &L) {}

    #[inline(always)]
    fn send_short(_: &L, _: &[u8; SEND_HEADER], _: UserBuf) -> bool {
        false
    }

    fn sends_whole(_: &L, _: usize) -> bool {
        false
    }

    fn payload_ready(_: &L) -> usize {
        0
    }

    fn recv_payload(_: &L, _: UserBuf) -> usize {
        0
    }
}
