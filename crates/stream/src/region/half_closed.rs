//! Closed connections whose peers may still be at work in regions of this side.
//!
//! A peer that accesses a region directly learns of the end of the connection after that access, and until then may begin
//! others, as the region is still open. So the link of a closed connection by which a region was offered is only shut
//! down for writing. It is kept until the peer has ended the connection, too, or no region is left: until then, a region that
//! is closed waits for the peer's claim as it does for those of connections that are up ([`State::is_reached`]).

use std::os::fd::AsFd as _;
use std::sync::Arc;

use ripstop_os::{Interest, Shutdown};

use crate::state::{HalfClosed, State, token};
use crate::system::Poller as _;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::ending::{end_link, unwatch};
use crate::transport::link::Link as _;
use crate::transport::{DirectOf, Transport};

/// The most links that are kept: each has descriptors and the memory of two rings. A peer that never ends its
/// side could have one kept for each connection that it makes.
const MAX_HALF_CLOSED: usize = 256;

impl<T: Transport> State<T> {
    /// Keeps the link of a connection that was up and is closed now, if the peer was `offered` regions and may be at work in
    /// one. To be called when the peer has been told that gets are of no use any more
    /// ([`end_gets`](crate::DirectAccess::end_gets)).
    #[cold]
    pub(crate) fn half_close(&mut self, link: Arc<T::Link>, offered: bool) {
        if !offered || !self.has_exposed() || DirectOf::<T>::peer_has_left(&link) {
            return end_link::<T>(&self.epoll, &link);
        }
        // `ENOTCONN`: the peer was first.
        let _ = link.shutdown(Shutdown::Write);
        if DirectOf::<T>::peer_has_left(&link) {
            return unwatch::<T>(&self.epoll, &link);
        }
        // What epoll reported of it was for the connection. Now it tells of the peer's end, which needs no interest. Where that
        // fails, the link is kept until no region is left, or until there are too many.
        let watch = |fd, interest| {
            let modified = self.epoll.modify(fd, token::HALF_CLOSED, interest);
            let _ = modified.or_else(|_| self.epoll.add(fd, token::HALF_CLOSED, interest));
        };
        watch(link.as_fd(), Interest::default());
        if let Some(witness) = link.peer_fd() {
            watch(witness, Interest::READ);
        }
        self.half_closed.push(HalfClosed {
            link,
            exposures: self.exposures,
        });
        if self.half_closed.len() > MAX_HALF_CLOSED {
            self.drop_half_closed();
        }
    }

    /// Lets go of the links that need not be kept, or else of one: the oldest whose peer is not at work in a region, or the oldest.
    #[cold]
    fn drop_half_closed(&mut self) {
        self.release_half_closed();
        if self.half_closed.len() <= MAX_HALF_CLOSED {
            return;
        }
        let regions = || self.exposed.iter().chain(&self.withdrawn);
        let is_idle = |closed: &HalfClosed<T::Link>| {
            !regions().any(|region| DirectOf::<T>::is_claimed(&closed.link, region.offer.grant))
        };
        let idle = self.half_closed.iter().position(is_idle);
        let gone = self.half_closed.remove(idle.unwrap_or(0));
        // Its peer may begin to reach any of them before it sees the end of the connection.
        regions()
            .filter(|region| gone.reaching(region).is_some())
            .for_each(|region| region.offer.abandon());
        unwatch::<T>(&self.epoll, &gone.link);
        log_warn_sparse!(
            T::EpData,
            "{MAX_HALF_CLOSED} peers have not ended connections that this side has closed: what one of them does \
             in a region is not waited for any more"
        );
    }

    /// Lets go of the links whose peers have ended the connection, and of those by which no region can be reached any more.
    #[cold]
    pub(crate) fn release_half_closed(&mut self) {
        let Self {
            epoll,
            half_closed,
            exposed,
            withdrawn,
            ..
        } = self;
        half_closed.retain(|closed| {
            let mut regions = exposed.iter().chain(&*withdrawn);
            let is_kept = regions.any(|region| closed.reaching(region).is_some())
                && !DirectOf::<T>::peer_has_left(&closed.link);
            if !is_kept {
                unwatch::<T>(epoll, &closed.link);
            }
            is_kept
        });
    }

    /// Whether a peer may have to be waited for.
    fn has_exposed(&self) -> bool {
        !self.exposed.is_empty() || !self.withdrawn.is_empty()
    }
}
