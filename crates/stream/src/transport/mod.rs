//! What the objects of a domain need of the way its endpoints reach each other.

use std::fmt::{self, Debug};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, ShortEntry, SoleEntry, Window};
use ripstop_os::{Connect, IoVec, IoVecMut, Shutdown, Spare};
use ripstop_types::{Errno, Result, RmaIov};
use ripstop_wire::WireError;
use ripstop_wire::xnet::rdm::Greeting;

use crate::addr::Addr;
use crate::progress::links::Readiness;
use crate::region::exposed::Offer;
use crate::system::System;
use crate::tunables::Tunables;

/// A way for endpoints of one kind to reach each other. It stands for a provider in the types of
/// its objects; there is no value of it.
pub trait Transport: Debug + Sized + Send + Sync + 'static {
    /// The name of the provider: the prefix of its parameters, and in lines of the log.
    const NAME: &'static str;

    /// Whether it has connected endpoints (`FI_EP_MSG`).
    const CONNECTED: bool = true;

    /// The provider's parameters.
    type Params: AsRef<Tunables> + Debug + Send + Sync + 'static;

    /// How endpoints are named.
    type Addr: Addr;

    /// One end of a connection.
    type Link: Link<Addr = Self::Addr>;

    /// Where connections arrive.
    type Listener: Listener<Link = Self::Link, Addr = Self::Addr>;

    /// Where the objects get their time and their events from: [`Os`](crate::Os), but in a simulation.
    type System: System;

    /// The readiness of a domain's links; [`EpollOnly`](crate::EpollOnly) where epoll reports all.
    type Readiness: Readiness<Self::Link>;

    /// The id of the process whose endpoints these are, by which peers tell it from one that had its
    /// address before.
    fn pid(_: &Self::Params) -> u32 {
        ripstop_os::pid()
    }

    /// The address of an endpoint or listener whose `fi_info` names none.
    fn default_source(params: &Self::Params) -> Self::Addr;

    /// Whether regions that are registered with [`Sharing::IfSealed`] are checked, where links
    /// have [direct access](Link::DIRECT_ACCESS).
    ///
    /// [`Sharing::IfSealed`]: ripstop_core::provider::Sharing::IfSealed
    fn checks_regions(_: &Self::Params) -> bool {
        false
    }

    /// Whether peers may access regions by their address, and this side those of peers, where links
    /// [attach](Link::attach).
    fn uses_attach(_: &Self::Params) -> bool {
        false
    }

    /// A listener at `addr`, to which nobody can connect before [`Listener::listen`].
    ///
    /// # Errors
    /// `EADDRINUSE`, `EADDRNOTAVAIL`; `EMFILE` and other errors of the system.
    fn bind(params: &Self::Params, addr: &Self::Addr) -> Result<Self::Listener>;

    /// As [`Transport::bind`], where the program has chosen the name of an endpoint itself
    /// (`fi_setname(3)`).
    ///
    /// # Errors
    /// As for [`Transport::bind`].
    fn rename(params: &Self::Params, addr: &Self::Addr) -> Result<Self::Listener> {
        Self::bind(params, addr)
    }

    /// Listeners for the contexts of a scalable endpoint with this address, by their index; `count`
    /// is 1 to 16. Peers are told of one address and find the others from it.
    ///
    /// # Errors
    /// As for [`Transport::bind`]; the reason is in the log.
    fn bind_contexts(
        params: &Self::Params,
        addr: &Self::Addr,
        count: usize,
    ) -> Result<Vec<Self::Listener>>;

    /// Starts to connect to the listener at `to`.
    ///
    /// # Errors
    /// `ECONNREFUSED` and the like where the peer is not there, upon which it is tried again;
    /// `EMFILE`, `ENOMEM` and `ENOBUFS` where something is missing on this machine.
    fn connect(
        params: &Self::Params,
        to: &Self::Addr,
        from: Origin<Self>,
    ) -> Result<(Self::Link, Connect)>;

    /// Prepares a link for use, on both sides, before the first message of this side is sent.
    /// `dscp` is the code point of its packets, 0 to 63, or none for the system's own.
    ///
    /// # Errors
    /// Of the system; the connection is given up.
    fn prepare(params: &Self::Params, link: &Self::Link, dscp: Option<u8>) -> Result<()>;

    /// The data of the connection request of an RDM endpoint at `own`: at most
    /// [`MAX_DATA`](ripstop_wire::xnet::cm::MAX_DATA) bytes, which [`Transport::read_request`] of
    /// the peer parses. The greeting has no port.
    ///
    /// # Errors
    /// Of the system; the attempt has failed.
    fn request_data(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        own: &Self::Addr,
        greeting: Greeting,
    ) -> Result<Vec<u8>>;

    /// Parses what [`Transport::request_data`] made on the other side: the greeting and the address of
    /// the endpoint that connects. `from` is what [`Listener::accept`] said.
    ///
    /// # Errors
    /// Why it is refused; a line in the log says so.
    fn read_request(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        from: &Self::Addr,
        data: &[u8],
    ) -> core::result::Result<(Greeting, Self::Addr), HandshakeError>;

    /// The data of the answer of an endpoint that accepts.
    ///
    /// # Errors
    /// As for [`Transport::request_data`].
    fn reply_data(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        greeting: Greeting,
    ) -> Result<Vec<u8>> {
        let _ = (readiness, link);
        Ok(greeting.emit().to_vec())
    }

    /// Parses what [`Transport::reply_data`] made on the other side.
    ///
    /// # Errors
    /// Why the connection is given up; a line in the log says so.
    fn read_reply(
        readiness: &mut Self::Readiness,
        link: &Self::Link,
        data: &[u8],
    ) -> core::result::Result<Greeting, HandshakeError> {
        let _ = (readiness, link);
        Greeting::parse(data).map_err(HandshakeError::Wrong)
    }
}

/// The poller of a transport's domains.
pub(crate) type PollerOf<T> = <<T as Transport>::System as System>::Poller;

/// Where a connection comes from.
#[derive(Debug)]
pub enum Origin<T: Transport> {
    /// From an endpoint that listens at this address itself, and goes on doing so.
    Listening(T::Addr),
    /// From this address, else from any.
    Address(Option<T::Addr>),
    /// From the address of this listener, which is used up.
    Bound(T::Listener),
}

/// Why a handshake failed.
#[derive(Debug)]
pub enum HandshakeError {
    /// The byte stream ended.
    Ended,
    /// The message is not one.
    Wrong(WireError),
    /// The byte stream failed.
    Failed(Errno),
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the connection ended in the handshake"),
            Self::Wrong(error) => fmt::Display::fmt(error, f),
            Self::Failed(error) => fmt::Display::fmt(error, f),
        }
    }
}

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
    /// ([`Readiness`]): drains the doorbell, and remembers an end for [`Link::recv`], which reports it
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

/// Where connections arrive. Its descriptor can be read while one waits. It is closed when it is
/// dropped.
pub trait Listener: AsFd + Debug + Send + Sync + 'static {
    /// What it accepts.
    type Link: Link<Addr = Self::Addr>;

    /// How it is named.
    type Addr: Addr;

    /// Where it listens.
    ///
    /// # Errors
    /// Of the system.
    fn local_addr(&self) -> Result<Self::Addr>;

    /// Lets peers connect, of which up to `backlog` may wait.
    ///
    /// # Errors
    /// `EADDRINUSE` where somebody else listens there.
    fn listen(&self, backlog: i32) -> Result<()>;

    /// The next connection that waits, and where it comes from as far as that is known; none
    /// where none waits.
    ///
    /// # Errors
    /// `EMFILE` and the like: one waits for which there is no room, see [`Listener::turn_away`].
    fn accept(&self) -> Result<Option<(Self::Link, Self::Addr)>>;

    /// Closes the next connection that waits, with the descriptor that `spare` keeps for this;
    /// returns where it came from, or none where that cannot be done.
    fn turn_away(&self, spare: &mut Spare) -> Option<Self::Addr>;
}
