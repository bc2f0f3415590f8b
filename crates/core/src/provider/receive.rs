//! Receive contexts that endpoints share.

use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_types::{Completion, CompletionError, Context, FiAddr, Flags, Result};

use super::{DataCall, Domain, EpOption, RecvKind, Threshold};

/// A shared receive context (man page `fi_endpoint(3)`, `fi_srx_context`).
pub trait SharedRx: Sized + 'static {
    /// The domain it belongs to.
    type Domain: Domain<SharedRx = Self>;

    /// Binds the queue that reports peeks and cancelled receives; `flags` is `RECV`.
    ///
    /// # Errors
    /// [`Errno::EBADFLAGS`](ripstop_types::Errno::EBADFLAGS) for other flags, [`Errno::EDOMAIN`](ripstop_types::Errno::EDOMAIN) for a queue of another domain,
    /// [`Errno::EINVAL`](ripstop_types::Errno::EINVAL) when one is bound already.
    fn bind_cq(&self, cq: &Arc<<Self::Domain as Domain>::Cq>, flags: Flags) -> Result<()>;

    /// Binds the counter for endpoints that have none of their own; `flags` is `RECV`.
    ///
    /// # Errors
    /// As for [`SharedRx::bind_cq`].
    fn bind_counter(
        &self,
        counter: &Arc<<Self::Domain as Domain>::Counter>,
        flags: Flags,
    ) -> Result<()>;

    /// Posts a receive, as [`Endpoint::recv`](super::Endpoint::recv).
    ///
    /// # Errors
    /// As [`Endpoint::recv`](super::Endpoint::recv).
    fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: Context,
        flags: Option<Flags>,
    ) -> Result<()>;

    /// As [`Endpoint::trigger`](super::Endpoint::trigger), of a receive. Its errors go where those
    /// of peeks go.
    ///
    /// # Errors
    /// As there; [`EINVAL`](ripstop_types::Errno::EINVAL) for what is no receive.
    fn trigger(&self, call: &DataCall<'_>, when: Threshold<'_, Self::Domain>) -> Result<()>;

    /// As [`Endpoint::cancel`](super::Endpoint::cancel).
    ///
    /// # Errors
    /// As [`Endpoint::cancel`](super::Endpoint::cancel).
    fn cancel(&self, context: Context) -> Result<()>;

    /// As [`Endpoint::option`](super::Endpoint::option).
    ///
    /// # Errors
    /// As [`Endpoint::option`](super::Endpoint::option).
    fn option(&self, option: EpOption) -> Result<usize>;

    /// As [`Endpoint::set_option`](super::Endpoint::set_option).
    ///
    /// # Errors
    /// As [`Endpoint::set_option`](super::Endpoint::set_option).
    fn set_option(&self, option: EpOption, value: usize) -> Result<()>;
}

/// A message that the owner of a [`PeerRx`] is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What it is called until the owner has answered.
    pub message: u32,
    /// Its tag; `None` for a plain message.
    pub tag: Option<u64>,
    /// Its sender, or [`FiAddr::NOTAVAIL`] as long as nobody knows.
    pub src: FiAddr,
    /// Its length in bytes.
    pub len: u64,
    /// Remote CQ data.
    pub data: Option<u64>,
}

/// The end of a receive that an owner has started, or of what peers did to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It succeeded.
    Ok(Completion),
    /// It failed; with the bytes that tell more.
    Failed(CompletionError, Vec<u8>),
}

/// A receive context whose receives another provider has (man page `fi_peer(3)`): its owner is
/// asked about every message. No call makes progress, and none calls back.
pub trait PeerRx: Sized + 'static {
    /// The domain it belongs to.
    type Domain: Domain<PeerRx = Self>;

    /// The first message that the owner has not answered about. Ask it, and then call
    /// [`PeerRx::start`], [`PeerRx::let_wait`] or [`PeerRx::discard`]; without any of these the
    /// same message is the next one again. One caller at a time.
    fn next_arrival(&self) -> Option<Arrival>;

    /// The owner has a receive for a message. Its end will be among [`PeerRx::take_done`].
    ///
    /// # Errors
    /// [`Errno::EINVAL`](ripstop_types::Errno::EINVAL) for a message that the owner of this context
    /// cannot know, or too many segments;
    /// [`Errno::ENOMEM`](ripstop_types::Errno::ENOMEM).
    fn start(&self, message: u32, iov: &[UserBuf], context: Context) -> Result<()>;

    /// The owner has no receive for a message yet: it waits until it is started or discarded.
    ///
    /// # Errors
    /// [`Errno::EINVAL`](ripstop_types::Errno::EINVAL) for a message that the owner of this context
    /// cannot know.
    fn let_wait(&self, message: u32) -> Result<()>;

    /// Nobody will receive a message.
    ///
    /// # Errors
    /// As for [`PeerRx::let_wait`].
    fn discard(&self, message: u32) -> Result<()>;

    /// The sender of a message that waits, or [`FiAddr::NOTAVAIL`], also for a message that the
    /// owner of this context cannot know.
    fn source(&self, message: u32) -> FiAddr;

    /// Hands out up to `max` of what has ended, oldest first, and returns how many. `entry` must
    /// not call the provider.
    fn take_done(&self, max: usize, entry: impl FnMut(Done)) -> usize;
}
