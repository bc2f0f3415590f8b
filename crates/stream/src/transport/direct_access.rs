//! Direct access: what only links whose ends reach each other's memory have.

use std::fmt::Debug;

use arrayvec::ArrayVec;
use ripstop_core::provider::Copied;
use ripstop_engine::IOV_LIMIT;
use ripstop_mem::UserBuf;
use ripstop_mem::ring::{Grant, Window};
use ripstop_os::IoVecMut;
use ripstop_types::RmaIov;

use crate::transport::offer::Offer;

/// Access to memory of the peer past the stream: each side maps regions of the other, or reaches
/// them by their address. A transport with such access defines all of it; the bodies given here are
/// for those without: no region is mapped, offered or asked for.
pub trait DirectAccess<L>: Debug + 'static {
    /// Whether there is such access.
    const SUPPORTED: bool;

    /// The regions of the peer that this side has mapped.
    type Windows: Debug + Default + Send;

    /// Tells the peer of a region that it may map. Where there is no room for that, the peer
    /// accesses it by the stream.
    fn offer(_link: &L, _offer: &Offer) {}

    /// Tells the peer that a region need not be mapped any more. The peer does not access it
    /// from when the grant is closed.
    fn withdraw(_link: &L, _grant: Grant) {}

    /// Whether the peer accesses a region that was offered, or is about to see whether it may.
    fn is_claimed(_link: &L, _grant: Grant) -> bool {
        false
    }

    /// Whether the peer has ended the connection or exited, so that it accesses no memory of this side any
    /// more. It ends the connection when it is through with what it was at. The system is asked.
    fn peer_has_left(_link: &L) -> bool {
        true
    }

    /// All that was read from it is applied.
    fn tell_applied(_link: &L) {}

    /// Whether the peer has offered regions that are mapped. To be asked again after
    /// [`Link::drain_doorbell`](crate::Link::drain_doorbell).
    fn has_windows(_windows: &Self::Windows) -> bool {
        false
    }

    /// Calls `act` on the window of the peer's memory that is named, with the offset in it, if
    /// the region is still offered and the peer has applied all that was sent before. May wait
    /// a moment for that. `None` where it does not, or if `act` says so.
    fn access_window<R>(
        _link: &L,
        _windows: &mut Self::Windows,
        _place: &RmaIov,
        _act: impl FnOnce(&Window, usize) -> Option<R>,
    ) -> Option<R> {
        None
    }

    /// The keys of regions that the peer asks to access by their address. To be called after
    /// [`Link::drain_doorbell`](crate::Link::drain_doorbell); each is returned once.
    fn take_requests(_link: &L) -> Vec<u64> {
        Vec::new()
    }

    /// Copies between buffers and the memory of the peer that is named, as many bytes, by its
    /// address in the peer's process: to it if `write` says so. Under the conditions of
    /// [`DirectAccess::access_window`], and only where that is faster than the stream or the peer does
    /// not poll its links. Does not wait until all is applied.
    fn attach(
        _link: &L,
        _place: &RmaIov,
        _write: bool,
        _segments: &[UserBuf],
        _state: AttachState,
    ) -> Attached {
        Attached::UseStream
    }

    /// Whether [`DirectAccess::attach`] is faster than the stream for an access, as far as is known.
    fn prefers_attach(_link: &L, _place: &RmaIov, _write: bool) -> bool {
        false
    }

    /// Copies up to [`MAX_GETS`] payloads from the peer's process to buffers, which are as long together.
    fn get(_link: &L, _from: &[Payload], _into: GetPieces<'_>) -> Got {
        Got::UseStream
    }

    /// The peer has got payloads of this side since this was called last, so that payloads go to the peer. To be called
    /// before [`DirectAccess::take_get_limit`].
    fn note_peer_got(_link: &L) {}

    /// The exponent of a new length from which this side gets messages, to be told to the peer: `1 <<
    /// exponent` bytes, or none at all if that is 0. `None` while it is the one that was told last, at
    /// first 0. The first call finds out whether this side can.
    fn take_get_limit(_link: &L) -> Option<u8> {
        None
    }

    /// Whether [`DirectAccess::take_get_limit`] was called before and may have a new limit now.
    fn has_new_get_limit(_link: &L) -> bool {
        false
    }

    /// This side ends the connection: what the peer gets from its memory from now on is of no use.
    /// Called before any buffer that the peer may be about to get is given back. Waits for parts that the
    /// peer is copying to buffers of this side. `queued` are the long payloads that were queued to be written
    /// to the link.
    fn end_gets(_link: &L, _queued: Copied) {}

    /// The long payloads of the link, but those that were queued to be written to it.
    fn copied(_link: &L) -> LinkCopies {
        LinkCopies::default()
    }
}

/// Payloads of [`Copies::MIN_BYTES`](ripstop_core::provider::Copies::MIN_BYTES) and more, by the way that they
/// took on one link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCopies {
    /// Written to the link at once.
    pub in_place: Copied,
    /// Copied from or to regions of the peer that are mapped here.
    pub mapped: Copied,
    /// Copied from or to the memory of the peer by cross-memory attach.
    pub attach: Copied,
}

/// Not supported.
impl<L> DirectAccess<L> for () {
    const SUPPORTED: bool = false;

    type Windows = ();
}

/// The most payloads of one [`DirectAccess::get`].
pub const MAX_GETS: usize = 8;

/// The most pieces of memory that the payloads of one [`DirectAccess::get`] go to.
pub const GET_PIECES: usize = MAX_GETS + IOV_LIMIT;

/// Where the payloads of one [`DirectAccess::get`] go, in order.
pub type GetPieces<'a> = ArrayVec<IoVecMut<'a>, GET_PIECES>;

/// A payload in the peer's process.
#[derive(Clone, Copy, Debug)]
pub struct Payload {
    /// Its address there.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// What decides whether [`DirectAccess::attach`] carries out an access.
#[derive(Clone, Copy, Debug)]
pub struct AttachState {
    /// Nothing else is under way on the connection, as far as the engine knows.
    pub settled: bool,
    /// Other threads wait for the processor: the peer may poll as soon as it has one.
    pub crowded: bool,
    /// The peer may copy parts, also when the call has returned [`Attached::OwnerCopies`].
    pub joint: bool,
}

/// What has become of [`DirectAccess::get`] or [`JointCopy::copy`](crate::JointCopy::copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    /// All was copied, while the peer waited for that.
    Done,
    /// The peer is to send the payload, also where some bytes were copied.
    UseStream,
    /// The peer has claimed parts of a joint copy, and is not through. It says so when it is. Then all was
    /// copied if it is `done`; else the peer is to send the payload.
    Pending {
        /// Whether this side has copied its own parts.
        done: bool,
    },
    /// The peer has ended the connection.
    Ended,
}

/// What has become of [`DirectAccess::attach`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attached {
    /// All was copied.
    Done,
    /// The access is to go by the stream, also where some bytes were copied.
    UseStream,
    /// The same, and the owner of the memory is still at a part of it. It reads nothing from the stream meanwhile, so
    /// it is through with the buffers when it has answered what is sent now.
    OwnerCopies,
    /// The same as [`Attached::UseStream`], and the stream is faster as long as the peer goes on polling its links.
    PeerPolling,
    /// It is faster than the stream, but not all that was sent before is applied yet.
    Unapplied,
    /// It may be faster than the stream: the peer was just asked where the region is. Once it has
    /// answered, [`DirectAccess::prefers_attach`] says so.
    Asked,
}
