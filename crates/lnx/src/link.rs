//! Links: one of the shm provider or one of the tcp provider.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ripstop_core::provider::Copied;
use ripstop_engine::stream::SEND_HEADER;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, JointAccess, JointMessage, ShortEntry, SoleEntry, Window};
use ripstop_os::{IoVec, IoVecMut, Shutdown};
use ripstop_shm::Shm;
use ripstop_stream::{
    Account, AttachState, Attached, DirectAccess, GetPieces, Got, InPlace, JointCopy, Link,
    LinkCopies, Offer, Payload, Transport,
};
use ripstop_tcp::Tcp;
use ripstop_types::{Errno, Result, RmaIov};

/// A link of the shm provider.
pub(crate) type ShmLink = <Shm as Transport>::Link;
/// A link of the tcp provider.
pub(crate) type TcpLink = <Tcp as Transport>::Link;

type ShmInPlace = <ShmLink as Link>::InPlace;
type ShmDirect = <ShmLink as Link>::Direct;
type ShmJoint = <ShmLink as Link>::Joint;

/// One end of a connection.
#[derive(Debug)]
pub enum LnxLink {
    /// To an endpoint of this machine, through memory that both share.
    Shm {
        /// The link itself.
        link: Arc<ShmLink>,
        /// The address at which this side has reached the peer; the address of this side where the
        /// peer has connected.
        to: SocketAddr,
    },
    /// To any other endpoint.
    Tcp(TcpLink),
}

/// Evaluates an expression for the link of whichever provider it is.
macro_rules! each {
    ($any:expr, $link:ident => $body:expr) => {
        match $any {
            LnxLink::Shm { link: $link, .. } => $body,
            LnxLink::Tcp($link) => $body,
        }
    };
}

impl LnxLink {
    /// The link of the shm provider, if it is one.
    #[inline(always)]
    pub(crate) fn shm(&self) -> Option<&Arc<ShmLink>> {
        match self {
            Self::Shm { link, .. } => Some(link),
            Self::Tcp(_) => None,
        }
    }
}

impl AsFd for LnxLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        each!(self, link => link.as_fd())
    }
}

impl Link for LnxLink {
    type Addr = SocketAddr;
    type InPlace = LnxInPlace;
    type Direct = LnxDirect;
    type Joint = LnxJoint;
    type Registering = ();

    const CHECKS_PEER: bool = TcpLink::CHECKS_PEER || ShmLink::CHECKS_PEER;

    fn is_unanswered(&self) -> bool {
        each!(self, link => link.is_unanswered())
    }

    fn account(&self) -> Account {
        each!(self, link => link.account())
    }

    fn carrier(&self) -> Option<&'static str> {
        Some(match self {
            Self::Shm { .. } => Shm::NAME,
            Self::Tcp(_) => Tcp::NAME,
        })
    }

    #[inline]
    fn send(&self, bytes: &[u8]) -> Result<usize> {
        each!(self, link => link.send(bytes))
    }

    #[inline]
    fn send_held(&self, bytes: &[u8]) -> Result<usize> {
        each!(self, link => link.send_held(bytes))
    }

    fn push(&self) {
        each!(self, link => link.push());
    }

    #[inline]
    fn sendv(&self, vecs: &[IoVec<'_>]) -> Result<usize> {
        each!(self, link => link.sendv(vecs))
    }

    #[inline]
    fn recv(&self, bytes: &mut [u8]) -> Result<usize> {
        each!(self, link => link.recv(bytes))
    }

    #[inline]
    fn recv_once(&self, bytes: &mut [u8]) -> Result<usize> {
        each!(self, link => link.recv_once(bytes))
    }

    fn has_room(&self) -> bool {
        each!(self, link => link.has_room())
    }

    fn await_room(&self) -> bool {
        each!(self, link => link.await_room())
    }

    #[inline]
    fn recvv(&self, vecs: &mut [IoVecMut<'_>]) -> Result<usize> {
        each!(self, link => link.recvv(vecs))
    }

    fn await_delivery(&self, end: Duration, scrap: &mut [u8]) {
        each!(self, link => link.await_delivery(end, scrap));
    }

    fn shutdown(&self, how: Shutdown) -> Result<()> {
        each!(self, link => link.shutdown(how))
    }

    fn take_error(&self) -> Result<()> {
        each!(self, link => link.take_error())
    }

    fn is_connected(&self) -> bool {
        each!(self, link => link.is_connected())
    }

    fn start(&self) {
        each!(self, link => link.start());
    }

    fn drain_doorbell(&self, windows: &mut <LnxDirect as DirectAccess<Self>>::Windows) {
        if let Some(link) = self.shm() {
            link.drain_doorbell(windows);
        }
    }

    fn has_ended(&self) -> bool {
        each!(self, link => link.has_ended())
    }

    fn unread_bytes(&self) -> u64 {
        each!(self, link => link.unread_bytes())
    }

    fn peer_fd(&self) -> Option<BorrowedFd<'_>> {
        each!(self, link => link.peer_fd())
    }

    fn local_addr(&self) -> Result<SocketAddr> {
        match self {
            // Only connected endpoints ask for it, which lnx has none of.
            Self::Shm { .. } => Err(Errno::EOPNOTSUPP),
            Self::Tcp(link) => link.local_addr(),
        }
    }
}

/// In-place I/O: that of the shm provider, on its links.
#[derive(Debug)]
pub struct LnxInPlace;

impl InPlace<LnxLink> for LnxInPlace {
    const SUPPORTED: bool = true;

    #[inline(always)]
    fn applies(link: &LnxLink) -> bool {
        link.shm().is_some()
    }

    #[inline(always)]
    fn send_message(
        link: &LnxLink,
        header: &[u8; SEND_HEADER],
        header_len: usize,
        payload: UserBuf,
    ) -> Result<usize> {
        match link.shm() {
            Some(link) => ShmInPlace::send_message(link, header, header_len, payload),
            None => Err(Errno::ENOSYS),
        }
    }

    #[inline(always)]
    fn is_ready(link: &LnxLink) -> bool {
        link.shm().is_none_or(|link| ShmInPlace::is_ready(link))
    }

    #[inline(always)]
    fn sole_entry(link: &LnxLink) -> Option<SoleEntry<'_>> {
        ShmInPlace::sole_entry(link.shm()?)
    }

    #[inline(always)]
    fn short_entry(link: &LnxLink) -> Option<ShortEntry<'_>> {
        ShmInPlace::short_entry(link.shm()?)
    }

    #[inline]
    fn return_credits(link: &LnxLink) {
        if let Some(link) = link.shm() {
            ShmInPlace::return_credits(link);
        }
    }

    #[inline(always)]
    fn send_short(link: &LnxLink, header: &[u8; SEND_HEADER], payload: UserBuf) -> bool {
        link.shm()
            .is_some_and(|link| ShmInPlace::send_short(link, header, payload))
    }

    #[inline]
    fn sends_whole(link: &LnxLink, payload: usize) -> bool {
        link.shm()
            .is_some_and(|link| ShmInPlace::sends_whole(link, payload))
    }

    #[inline]
    fn payload_ready(link: &LnxLink) -> usize {
        link.shm().map_or(0, |link| ShmInPlace::payload_ready(link))
    }

    #[inline]
    fn recv_payload(link: &LnxLink, room: UserBuf) -> usize {
        link.shm()
            .map_or(0, |link| ShmInPlace::recv_payload(link, room))
    }
}

/// Direct access: that of the shm provider, on its links.
#[derive(Debug)]
pub struct LnxDirect;

impl DirectAccess<LnxLink> for LnxDirect {
    const SUPPORTED: bool = true;

    type Windows = <ShmDirect as DirectAccess<ShmLink>>::Windows;

    fn offer(link: &LnxLink, offer: &Offer) {
        if let Some(link) = link.shm() {
            ShmDirect::offer(link, offer);
        }
    }

    fn withdraw(link: &LnxLink, grant: Grant) {
        if let Some(link) = link.shm() {
            ShmDirect::withdraw(link, grant);
        }
    }

    fn is_claimed(link: &LnxLink, grant: Grant) -> bool {
        link.shm()
            .is_some_and(|link| ShmDirect::is_claimed(link, grant))
    }

    fn peer_has_left(link: &LnxLink) -> bool {
        link.shm().is_none_or(|link| ShmDirect::peer_has_left(link))
    }

    fn tell_applied(link: &LnxLink) {
        if let Some(link) = link.shm() {
            ShmDirect::tell_applied(link);
        }
    }

    fn has_windows(windows: &Self::Windows) -> bool {
        ShmDirect::has_windows(windows)
    }

    fn access_window<R>(
        link: &LnxLink,
        windows: &mut Self::Windows,
        place: &RmaIov,
        act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        ShmDirect::access_window(link.shm()?, windows, place, act)
    }

    fn take_requests(link: &LnxLink) -> Vec<u64> {
        link.shm()
            .map_or_else(Vec::new, |link| ShmDirect::take_requests(link))
    }

    fn attach(
        link: &LnxLink,
        place: &RmaIov,
        write: bool,
        segments: &[UserBuf],
        state: AttachState,
    ) -> Attached {
        match link.shm() {
            Some(link) => ShmDirect::attach(link, place, write, segments, state),
            None => Attached::UseStream,
        }
    }

    fn prefers_attach(link: &LnxLink, place: &RmaIov, write: bool) -> bool {
        link.shm()
            .is_some_and(|link| ShmDirect::prefers_attach(link, place, write))
    }

    fn get(link: &LnxLink, from: &[Payload], into: GetPieces<'_>) -> Got {
        match link.shm() {
            Some(link) => ShmDirect::get(link, from, into),
            None => Got::UseStream,
        }
    }

    fn note_peer_got(link: &LnxLink) {
        if let Some(link) = link.shm() {
            ShmDirect::note_peer_got(link);
        }
    }

    fn has_new_get_limit(link: &LnxLink) -> bool {
        link.shm()
            .is_some_and(|link| ShmDirect::has_new_get_limit(link))
    }

    fn take_get_limit(link: &LnxLink) -> Option<u8> {
        ShmDirect::take_get_limit(link.shm()?)
    }

    fn end_gets(link: &LnxLink, queued: Copied) {
        if let Some(link) = link.shm() {
            ShmDirect::end_gets(link, queued);
        }
    }

    fn copied(link: &LnxLink) -> LinkCopies {
        link.shm()
            .map_or_else(LinkCopies::default, |link| ShmDirect::copied(link))
    }
}

/// Joint copies: those of the shm provider, on its links.
#[derive(Debug)]
pub struct LnxJoint;

impl JointCopy<LnxLink> for LnxJoint {
    const SUPPORTED: bool = true;

    fn open(link: &LnxLink, payload: &Payload, index: u16, into: UserBuf) -> bool {
        link.shm()
            .is_some_and(|link| ShmJoint::open(link, payload, index, into))
    }

    fn copy(link: &LnxLink, payload: &Payload, into: UserBuf) -> Got {
        match link.shm() {
            Some(link) => ShmJoint::copy(link, payload, into),
            None => Got::UseStream,
        }
    }

    fn outcome(link: &LnxLink, payload: &Payload, done: bool) -> Option<bool> {
        ShmJoint::outcome(link.shm()?, payload, done)
    }

    fn asked(link: &LnxLink) -> Option<JointMessage> {
        ShmJoint::asked(link.shm()?)
    }

    fn help(link: &LnxLink, message: JointMessage, from: UserBuf) -> bool {
        link.shm()
            .is_some_and(|link| ShmJoint::help(link, message, from))
    }

    fn asked_access(link: &LnxLink) -> Option<JointAccess> {
        ShmJoint::asked_access(link.shm()?)
    }

    fn help_access(link: &LnxLink, access: JointAccess, memory: UserBuf) {
        if let Some(link) = link.shm() {
            ShmJoint::help_access(link, access, memory);
        }
    }
}
