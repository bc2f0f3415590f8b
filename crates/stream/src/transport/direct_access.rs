//! Direct access: what only links whose ends reach each other's memory have.

use std::fmt::Debug;

use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, Window};
use ripstop_types::RmaIov;

use crate::transport::offer::Offer;

/// Access to memory of the peer past the stream: each side maps regions of the other, or reaches
/// them by their address.
pub trait DirectAccess<L>: Debug + 'static {
    /// Whether there is such access.
    const SUPPORTED: bool = true;

    /// The regions of the peer that this side has mapped.
    type Windows: Debug + Default + Send;

    /// Tells the peer of a region that it may map. Where there is no room for that, the peer
    /// accesses it by the stream.
    fn offer(link: &L, offer: &Offer);

    /// Tells the peer that a region need not be mapped any more. The peer does not access it
    /// from when the grant is closed.
    fn withdraw(link: &L, grant: Grant);

    /// Whether the peer accesses a region that was offered, or is about to see whether it may.
    fn is_claimed(link: &L, grant: Grant) -> bool;

    /// All that was read from it is applied.
    fn tell_applied(link: &L);

    /// Whether the peer has offered regions that are mapped. To be asked again after
    /// [`Link::drain_doorbell`](crate::Link::drain_doorbell).
    fn has_windows(windows: &Self::Windows) -> bool;

    /// Calls `act` on the window of the peer's memory that is named, with the offset in it, if
    /// the region is still offered and the peer has applied all that was sent before. May wait
    /// a moment for that. `None` where it does not, or if `act` says so.
    fn access_window<R>(
        link: &L,
        windows: &mut Self::Windows,
        place: &RmaIov,
        act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R>;

    /// The keys of regions that the peer asks to access by their address. To be called after
    /// [`Link::drain_doorbell`](crate::Link::drain_doorbell); each is returned once.
    fn take_requests(link: &L) -> Vec<u64>;

    /// Copies between buffers and the memory of the peer that is named, as many bytes, by its
    /// address in the peer's process: to it if `write` says so. Under the conditions of
    /// [`DirectAccess::access_window`], and only while the peer does not poll its links. Does
    /// not wait until all is applied. `crowd` says that other threads wait for the processor:
    /// the peer may poll as soon as it has one.
    fn attach(link: &L, place: &RmaIov, write: bool, segments: &[UserBuf], crowd: bool)
    -> Attached;
}

/// Not supported: no region is mapped, offered or asked for.
impl<L> DirectAccess<L> for () {
    const SUPPORTED: bool = false;

    type Windows = ();

    fn offer(_: &L, _: &Offer) {}

    fn withdraw(_: &L, _: Grant) {}

    fn is_claimed(_: &L, _: Grant) -> bool {
        false
    }

    fn tell_applied(_: &L) {}

    fn has_windows(_: &Self::Windows) -> bool {
        false
    }

    fn access_window<R>(
        _: &L,
        _: &mut Self::Windows,
        _: &RmaIov,
        _: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        None
    }

    fn take_requests(_: &L) -> Vec<u64> {
        Vec::new()
    }

    fn attach(_: &L, _: &RmaIov, _: bool, _: &[UserBuf], _: bool) -> Attached {
        Attached::UseStream
    }
}

/// What has become of [`DirectAccess::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// All was copied.
    Done,
    /// The access is to go by the stream, also where some bytes were copied.
    UseStream,
    /// The same, and the stream is faster as long as the peer goes on polling its links.
    PeerPolling,
}
