//! Ends links before their descriptors are closed. Where a forked child has the descriptors, too, closing them in the parent
//! neither tells the peer nor takes them out of the parent's epoll set.

use ripstop_os::Shutdown;

use crate::system::Poller as _;
use crate::transport::link::Link as _;
use crate::transport::{PollerOf, Transport};

/// Ends a link that the caller closes next: tells the peer, and takes the link's descriptors out of epoll, which would report them
/// for ever.
pub(crate) fn end_link<T: Transport>(epoll: &PollerOf<T>, link: &T::Link) {
    // `ENOTCONN`: the peer was first, or there is no connection yet.
    let _ = link.shutdown(Shutdown::Both);
    unwatch::<T>(epoll, link);
}

/// Takes the descriptors of a link that has ended out of epoll.
pub(crate) fn unwatch<T: Transport>(epoll: &PollerOf<T>, link: &T::Link) {
    // Those that were taken out before are not there.
    let _ = epoll.remove(link);
    if let Some(witness) = link.peer_fd() {
        let _ = epoll.remove(witness);
    }
}
