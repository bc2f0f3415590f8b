//! Closed connections whose peers may still be at work in regions of this side.
//!
//! A peer that accesses a region directly learns of the end of the connection after that access. So the link
//! of a connection that is closed while regions are exposed is only shut down for writing. It is kept until
//! the peer has ended the connection, too: until then, a region that is closed waits for the peer's claim
//! as it does for those of connections that are up ([`State::is_reached`]).

use std::os::fd::AsFd as _;
use std::sync::Arc;

use ripstop_os::{Interest, Shutdown};

use crate::state::{State, token};
use crate::system::Poller as _;
use crate::transport::direct_access::DirectAccess as _;
use crate::transport::link::Link as _;
use crate::transport::{DirectOf, Transport};

/// The most links that are kept: each has descriptors and the memory of two rings. A peer that never ends its
/// side could have one kept for each connection that it makes.
const MAX_HALF_CLOSED: usize = 256;

impl<T: Transport> State<T> {
    /// Keeps the link of a connection that was up and is closed now, if its peer may be at work in a region.
    /// To be called when the peer has been told that gets are of no use any more
    /// ([`end_gets`](crate::DirectAccess::end_gets)).
    #[cold]
    pub(crate) fn half_close(&mut self, link: Arc<T::Link>) {
        let exposes = !self.exposed.is_empty() || !self.withdrawn.is_empty();
        if !exposes || DirectOf::<T>::peer_has_left(&link) {
            return;
        }
        // `ENOTCONN`: the peer was first.
        let _ = link.shutdown(Shutdown::Write);
        // What epoll reported of it was for the connection. Now it tells of the peer's end, which needs no interest.
        // Where that fails, the next look finds it.
        let watch = |fd, interest| {
            let modified = self.epoll.modify(fd, token::HALF_CLOSED, interest);
            let _ = modified.or_else(|_| self.epoll.add(fd, token::HALF_CLOSED, interest));
        };
        watch(link.as_fd(), Interest::default());
        if let Some(witness) = link.peer_fd() {
            watch(witness, Interest::READ);
        }
        self.release_half_closed();
        if self.half_closed.len() == MAX_HALF_CLOSED {
            self.half_closed.remove(0);
            log_warn!(
                T::EpData,
                "{MAX_HALF_CLOSED} peers have not ended connections that this side has closed: not waiting \
                 any more for what the first of them may do in a region"
            );
        }
        self.half_closed.push(link);
    }

    /// Lets go of the links whose peers have ended the connection.
    #[cold]
    pub(crate) fn release_half_closed(&mut self) {
        self.half_closed
            .retain(|link| !DirectOf::<T>::peer_has_left(link));
    }
}
