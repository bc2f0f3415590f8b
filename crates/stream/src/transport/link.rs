//! One end of a connection, as a transport gives it to its domains.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, ShortEntry, SoleEntry, Window};
use ripstop_os::{IoVec, IoVecMut, Shutdown};
use ripstop_types::{Result, RmaIov};

use crate::addr::Addr;
use crate::transport::offer::Offer;

/// One end of a connection: a stream of bytes each way, like a stream socket. It never blocks: what
/// cannot be done now is `EAGAIN`, and epoll tells by its descriptor when it can be. It is closed
/// when it is dropped.
///
/// Links are used under the lock of their domain, thus by one thread at a time.
pub trait Link: AsFd + Debug + Send + Sync + 'static {
    /// How its ends are named.
    type Addr: Addr;

    /// Whether a dead machine of the peer has to be found by [`Link::is_unanswered`], every 2 s, since
    /// the system reports it too late.
    const CHECKS_PEER: bool = false;

    /// Whether bytes are under way that the peer's machine should long have acknowledged.
    fn is_unanswered(&self) -> bool {
        false
    }

    /// Writes the front of `bytes`; returns how many, at least 1.
    ///
    /// # Errors
    /// `EAGAIN` while there is no room; any other error ends the connection.
    fn send(&self, bytes: &[u8]) -> Result<usize>;

    /// As [`Link::send`], for bytes that others will follow: what is taken stays on its way if this
    /// process ends, but may be kept back until [`Link::push`] or the next write.
    ///
    /// # Errors
    /// As for [`Link::send`].
    #[inline(always)]
    fn send_held(&self, bytes: &[u8]) -> Result<usize> {
        self.send(bytes)
    }

    /// Sends on what [`Link::send_held`] has taken.
    fn push(&self) {}

    /// As [`Link::send`], from several places, at most 32.
    ///
    /// # Errors
    /// As for [`Link::send`].
    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize>;

    /// Whether payloads are sent and received in place: [`Link::send_message`] takes one from the
    /// user's buffer, and [`Link::recv_payload`] brings it to its place without a receive buffer.
    const IN_PLACE: bool = false;

    /// As [`Link::send`], for the first `header_len` bytes of a header and the payload behind
    /// them.
    ///
    /// # Errors
    /// As for [`Link::send`].
    #[inline]
    fn send_message(
        &self,
        header: &[u8; SEND_HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        let header = header.get(..header_len).unwrap_or(header);
        self.sendv(&[IoVec::from_slice(header), IoVec::from_user(payload)])
    }

    /// Reads up to `bytes.len()` bytes; returns how many, 0 at the end of the stream.
    ///
    /// # Errors
    /// `EAGAIN` while nothing has arrived; any other error ends the connection.
    fn recv(&self, bytes: &mut [u8]) -> Result<usize>;

    /// As [`Link::recv`], without trying again when a signal came first. It is what most polls of
    /// a program come to, so an empty link has to be fast to see.
    ///
    /// # Errors
    /// As for [`Link::recv`], and `EINTR`.
    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize>;

    /// Of a link with [in-place I/O](Link::IN_PLACE): whether a read would find something. It takes the
    /// place of [`Link::recv_once`] in most polls of a program, so it has to be faster. What it
    /// does not tell, as the end of the peer, reads find that are made now and then.
    fn is_ready(&self) -> bool {
        true
    }

    /// Of a link with [in-place I/O](Link::IN_PLACE): all that is there, if that is one short entry, to
    /// be received in place. `None` is any other case.
    #[inline(always)]
    fn sole_entry(&self) -> Option<SoleEntry<'_>> {
        None
    }

    /// Of a link with [in-place I/O](Link::IN_PLACE): the next short entry, whatever is behind it, to be
    /// received in place. `None` is any other case. After the last one [`Link::return_credits`] is
    /// called.
    #[inline(always)]
    fn short_entry(&self) -> Option<ShortEntry<'_>> {
        None
    }

    /// Entries of [`Link::short_entry`] were received: the peer may use their room again.
    fn return_credits(&self) {}

    /// Of a link with [in-place I/O](Link::IN_PLACE): as [`Link::send_message`], of a header that is as
    /// long as it may be, if both are short and nothing stands against it; `false` says that
    /// nothing was sent.
    #[inline(always)]
    fn send_short(&self, _header: &[u8; SEND_HEADER], _payload: UserBuf) -> bool {
        false
    }

    /// Of a link with [in-place I/O](Link::IN_PLACE): whether [`Link::send_message`] takes all of a
    /// message with so many bytes of payload or nothing.
    fn sends_whole(&self, _payload: usize) -> bool {
        false
    }

    /// Of a link with [in-place I/O](Link::IN_PLACE): how many bytes of a payload
    /// [`Link::recv_payload`] gives. A read may stop before them, behind the header.
    fn payload_ready(&self) -> usize {
        0
    }

    /// Reads as [`Link::recv`], but only bytes of [`Link::payload_ready`]; returns how many.
    fn recv_payload(&self, _room: UserBuf) -> usize {
        0
    }

    /// Whether a write of up to [`inject_size`] bytes with their header would take all of them, as
    /// far as that can be known.
    ///
    /// [`inject_size`]: ripstop_core::TxAttr::inject_size
    fn has_room(&self) -> bool;

    /// After a write without room: waits for at most a moment, unless there is something to read;
    /// whether there is room now. For a link whose peer may make room at any time.
    fn await_room(&self) -> bool {
        false
    }

    /// Whether each side may map regions of the other, and access them directly, past the stream.
    const DIRECT_ACCESS: bool = false;

    /// The regions of the peer that this side has mapped.
    type Windows: Debug + Default + Send;

    /// Of a link with [direct access](Link::DIRECT_ACCESS): tells the peer of a region that it may map. Where there
    /// is no room for that, the peer accesses it by the stream.
    fn offer(&self, _: &Offer) {}

    /// Of a link with [direct access](Link::DIRECT_ACCESS): tells the peer that a region need not be mapped any
    /// more. The peer does not access it from when the grant is closed.
    fn withdraw(&self, _: Grant) {}

    /// Of a link with [direct access](Link::DIRECT_ACCESS): whether the peer accesses a region that was offered,
    /// or is about to see whether it may.
    fn is_claimed(&self, _: Grant) -> bool {
        false
    }

    /// Of a link with [direct access](Link::DIRECT_ACCESS): all that was read from it is applied.
    fn tell_applied(&self) {}

    /// Of a link with [direct access](Link::DIRECT_ACCESS): whether the peer has offered regions that are mapped. To
    /// be asked again after [`Link::drain_doorbell`].
    fn has_windows(_windows: &Self::Windows) -> bool {
        false
    }

    /// Of a link with [direct access](Link::DIRECT_ACCESS): calls `act` on the window of the peer's memory that is
    /// named, with the offset in it, if the region is still offered and the peer has applied all that
    /// was sent before. May wait a moment for that. `None` where it does not, or if `act` says so.
    fn access_window<R>(
        &self,
        _windows: &mut Self::Windows,
        _place: &RmaIov,
        _act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        None
    }

    /// Of a link with [direct access](Link::DIRECT_ACCESS): the keys of regions that the peer asks to access by
    /// their address. To be called after [`Link::drain_doorbell`]; each is returned once.
    fn take_requests(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Of a link with [direct access](Link::DIRECT_ACCESS): copies between buffers and the memory of the peer that is
    /// named, as many bytes, by its address in the peer's process: to it if `write` says so. Under
    /// the conditions of [`Link::access_window`], and only while the peer does not poll its links. Does
    /// not wait until all is applied. `crowd` says that other threads wait for the processor: the
    /// peer may poll as soon as it has one.
    fn attach(&self, _: &RmaIov, _write: bool, _: &[UserBuf], _crowd: bool) -> Attached {
        Attached::UseStream
    }

    /// As [`Link::recv`], to several places in order.
    ///
    /// # Errors
    /// As for [`Link::recv`].
    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize>;

    /// Before the link is closed: waits, until the clock says `end` at most, for what was written to
    /// be with the peer, where closing could take it back. What arrives meanwhile is dropped, by way
    /// of `scrap`.
    fn await_delivery(&self, _end: Duration, _scrap: &mut [u8]) {}

    /// Ends one direction or both; the peer reads what was sent before, then the end.
    ///
    /// # Errors
    /// `ENOTCONN` where the peer was first.
    fn shutdown(&self, how: Shutdown) -> Result<()>;

    /// How an attempt to connect has ended, asked for when the descriptor can be written.
    ///
    /// # Errors
    /// The reason why it failed, once.
    fn take_error(&self) -> Result<()>;

    /// Whether the attempt to connect has ended well. It may still be under way though
    /// [`Link::take_error`] knows of no error.
    fn is_connected(&self) -> bool;

    /// Starts the use of the link: the handshake is over, and messages follow.
    fn start(&self) {}

    /// The descriptor is readable or has ended, says epoll, of a link that a domain polls itself
    /// ([`Readiness`](crate::Readiness)): drains the doorbell, and remembers an end for [`Link::recv`], which reports it
    /// behind all that came before. Maps regions that the peer has offered, and forgets those that it
    /// has taken back.
    fn drain_doorbell(&self, _windows: &mut Self::Windows) {}

    /// Whether [`Link::drain_doorbell`] has found the end: the descriptor tells nothing more.
    fn has_ended(&self) -> bool {
        false
    }

    /// Of a link that [has ended](Link::has_ended): the most bytes that may still be read.
    fn unread_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Of a link that is up and polled: a second descriptor, which can be read once the peer is
    /// gone where the first one does not tell, as when a child of the peer holds the other end.
    fn peer_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The address of this end.
    ///
    /// # Errors
    /// Of the system.
    fn local_addr(&self) -> Result<Self::Addr>;
}

/// What has become of [`Link::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// All was copied.
    Done,
    /// The access is to go by the stream, also where some bytes were copied.
    UseStream,
    /// The same, and the stream is faster as long as the peer goes on polling its links.
    PeerPolling,
}
