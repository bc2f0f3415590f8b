//! Which links have bytes to read or room to write, of a transport whose bytes do not pass through
//! the kernel, such as one over shared memory. A domain polls such links itself. A thread that
//! sleeps does so in epoll nevertheless: before that, peers are asked to ring a doorbell, which is
//! to make the descriptor of their link readable, and they ring it only then.

use std::fmt::Debug;
use std::sync::Arc;

use ripstop_core::provider::Copies;
use ripstop_engine::id::ConnId;
use ripstop_mem::ring::Grant;
use ripstop_os::Interest;
use ripstop_types::Result;

use crate::transport::Transport;

/// The readiness of a domain's links, as the transport knows it. It is used under the domain's lock.
/// A link has an id from when it is up.
pub trait Readiness<L>: Debug + Send + Sized + 'static {
    /// Whether there are links that the domain polls itself. Where not, epoll reports all that happens,
    /// and nothing of this trait is called but [`Readiness::open`].
    const POLLS_LINKS: bool;

    /// Whether there are links of which epoll reports all that happens. A transport with links of
    /// both kinds says which is which by [`Readiness::polls`].
    const WATCHES_LINKS: bool = !Self::POLLS_LINKS;

    /// Whether the domain polls this link itself. The same answer for as long as the link is there.
    #[inline(always)]
    fn polls(_: &L) -> bool {
        Self::POLLS_LINKS
    }

    /// For a domain that opens.
    ///
    /// # Errors
    /// Of the system; the domain is not opened.
    fn open() -> Result<Self>;

    /// A link [to be polled](Readiness::polls) is up: from now on it is polled, for bytes to read. Epoll
    /// goes on watching its descriptor for reading, which reports doorbells and the end of the peer.
    fn add(&mut self, id: ConnId, link: &Arc<L>);

    /// Changes what a link is polled for: bytes to read (or the end), and room to write.
    fn modify(&mut self, id: ConnId, interest: Interest);

    /// A link that was added is not used any more. Ids are given again.
    fn remove(&mut self, id: ConnId);

    /// Whether a call of [`Readiness::poll`] is worth it. Each poll of a program that finds nothing on
    /// the active connections asks this, so it has to be fast. It may miss a link for some calls,
    /// not for ever.
    fn is_due(&mut self) -> bool;

    /// Adds the links that have what they are polled for. May leave some for the next call.
    fn poll(&mut self, ready: &mut Vec<ReadyLink>);

    /// A thread is about to sleep: from now on peers ring the doorbell when they write, or make room
    /// that this side waits for; each peer at least the first time after every call of this. Then
    /// polls all links. Returns whether any has what it is polled for, so that nobody may sleep.
    fn arm(&mut self) -> bool;

    /// Nobody sleeps: peers need not ring.
    fn disarm(&mut self);

    /// Lets peers access a region directly, once they are told; `None` where none may.
    fn open_grant(&mut self) -> Option<Grant> {
        None
    }

    /// From now on no peer begins to access the region; [`DirectAccess::is_claimed`](crate::DirectAccess::is_claimed)
    /// says whether one is still at it.
    fn close_grant(&mut self, _: Grant) {}

    /// Links were polled: peers that might access a region by its address
    /// ([`DirectAccess::attach`](crate::DirectAccess::attach)) see that this side makes progress.
    fn have_polled(&mut self) {}

    /// The ways that long payloads have taken, where there is more than one; by the stream and in mapped
    /// regions those of connections that have ended.
    fn copies(&self) -> Option<Copies> {
        None
    }
}

/// A link that has what it is polled for.
#[derive(Clone, Copy, Debug)]
pub struct ReadyLink {
    /// Its id.
    pub id: ConnId,
    /// Bytes to read, room to write, or both.
    pub what: Interest,
}

/// The readiness of a transport all of whose links epoll watches.
#[derive(Debug)]
pub struct EpollOnly;

impl<L> Readiness<L> for EpollOnly {
    const POLLS_LINKS: bool = false;

    fn open() -> Result<Self> {
        Ok(Self)
    }

    fn add(&mut self, _: ConnId, _: &Arc<L>) {}

    fn modify(&mut self, _: ConnId, _: Interest) {}

    fn remove(&mut self, _: ConnId) {}

    fn is_due(&mut self) -> bool {
        false
    }

    fn poll(&mut self, _: &mut Vec<ReadyLink>) {}

    fn arm(&mut self) -> bool {
        false
    }

    fn disarm(&mut self) {}
}

/// Whether a domain over this transport polls links itself, all or some of them.
pub(crate) const fn polls_links<T: Transport>() -> bool {
    <T::Readiness as Readiness<T::Link>>::POLLS_LINKS
}

/// Whether epoll reports all that happens, on all links of this transport or some of them.
pub(crate) const fn watches_links<T: Transport>() -> bool {
    <T::Readiness as Readiness<T::Link>>::WATCHES_LINKS
}

/// Whether a domain over this transport polls this link itself.
#[inline(always)]
pub(crate) fn is_polled<T: Transport>(link: &T::Link) -> bool {
    <T::Readiness as Readiness<T::Link>>::polls(link)
}
