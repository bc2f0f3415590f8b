//! One end of a connection, as a transport gives it to its domains.

use std::fmt::Debug;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ripstop_os::{IoVec, IoVecMut, Shutdown};
use ripstop_types::Result;

use crate::addr::Addr;
use crate::transport::direct_access::DirectAccess;
use crate::transport::in_place::InPlace;
use crate::transport::joint_copy::JointCopy;
use crate::transport::registering::Registering;

/// What a link knows of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// What has gone each way, where the system or the link itself counts it anyway.
    pub traffic: Option<Traffic>,
    /// For how long the peer's machine has left unanswered what was sent again and again, where the
    /// system knows that; `None` as long as the network seems to carry what is sent.
    pub silence: Option<Duration>,
}

/// What has gone over a link since it was made, in units of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// What is counted.
    pub unit: &'static str,
    /// Sent, as far as the peer's system has it.
    pub sent: u64,
    /// Received.
    pub received: u64,
}

/// One end of a connection: a stream of bytes each way, like a stream socket. It never blocks: what
/// cannot be done now is `EAGAIN`, and epoll tells by its descriptor when it can be. It is closed
/// when it is dropped.
///
/// Links are used under the lock of their domain, thus by one thread at a time.
pub trait Link: AsFd + Debug + Send + Sync + Sized + 'static {
    /// How its ends are named.
    type Addr: Addr;

    /// How payloads are sent and received in place; `()` where they are not.
    type InPlace: InPlace<Self>;

    /// How this side accesses memory of the peer past the stream, and the peer memory of this side;
    /// `()` where neither can.
    type Direct: DirectAccess<Self>;

    /// How both sides copy a long payload; `()` where one of them does.
    type Joint: JointCopy<Self>;

    /// How a device reaches memory of the program; `()` where payloads go by the stream.
    type Registering: Registering<Self>;

    /// Whether a dead machine of the peer has to be found by [`Link::is_unanswered`], every 2 s, since
    /// the system reports it too late.
    const CHECKS_PEER: bool = false;

    /// Whether bytes are under way that the peer's machine should long have acknowledged.
    fn is_unanswered(&self) -> bool {
        false
    }

    /// What it knows of itself; the system may have to be asked.
    fn account(&self) -> Account {
        Account::default()
    }

    /// A number that changes whenever something is sent or received.
    fn activity(&self) -> u64 {
        0
    }

    /// The provider whose link it is, for domains that have links of several.
    fn carrier(&self) -> Option<&'static str> {
        None
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
    fn drain_doorbell(&self, _windows: &mut <Self::Direct as DirectAccess<Self>>::Windows) {}

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
