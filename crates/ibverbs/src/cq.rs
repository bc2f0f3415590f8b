#![allow(unsafe_code)]
//! Completion queues, their channels, and completions.

use std::ffi::c_int;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ripstop_types::{Errno, Result};

use crate::device::{Context, QueueKey};
use crate::library::{self, by_value, last_errno, library};
use crate::sys::{
    IBV_WC_COMP_SWAP, IBV_WC_FETCH_ADD, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_WITH_IMM, ibv_comp_channel, ibv_cq, ibv_wc,
};

/// A descriptor that becomes readable when a completion queue that was armed gets an entry
/// (`ibv_create_comp_channel(3)`). It does not block.
pub struct CompletionChannel {
    context: Arc<Context>,
    raw: NonNull<ibv_comp_channel>,
    fd: c_int,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}

impl CompletionChannel {
    /// A channel of a device.
    ///
    /// # Errors
    /// What `ibv_create_comp_channel(3)` says.
    pub fn new(context: &Arc<Context>) -> Result<Arc<Self>> {
        // SAFETY: a live context.
        let raw = unsafe { (context.library.ibv.ibv_create_comp_channel)(context.raw()) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: just made; the field is set by the library and stays.
        let fd = unsafe { (*raw.as_ptr()).fd };
        let context = Arc::clone(context);
        let channel = Self { context, raw, fd };
        ripstop_os::set_nonblocking(channel.as_fd())?;
        Ok(Arc::new(channel))
    }

    /// Takes the notifications that there are; returns whether there were any.
    ///
    /// # Errors
    /// What `ibv_get_cq_event(3)` says.
    pub fn drain(&self) -> Result<bool> {
        let library = self.context.library;
        let mut any = false;
        loop {
            let (mut cq, mut cookie) = (ptr::null_mut(), ptr::null_mut());
            let channel = self.raw.as_ptr();
            // SAFETY: a live channel, and room for both results.
            let ret =
                unsafe { (library.ibv.ibv_get_cq_event)(channel, &raw mut cq, &raw mut cookie) };
            if ret != 0 {
                return match last_errno() {
                    Errno::EAGAIN => Ok(any),
                    Errno::EINTR => continue,
                    other => Err(other),
                };
            }
            any = true;
            // SAFETY: the queue of an event lives until it is acknowledged: `ibv_destroy_cq` waits
            // for that. This is the one acknowledgement of this event.
            unsafe { (library.ibv.ibv_ack_cq_events)(cq, 1) };
        }
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor of a channel is closed when it is destroyed, which `self` outlives.
        unsafe { BorrowedFd::borrow_raw(self.fd) }
    }
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CompletionChannel({})", self.fd)
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once; queues that report to it hold it.
        unsafe { (self.context.library.ibv.ibv_destroy_comp_channel)(self.raw.as_ptr()) };
    }
}

/// A completion queue.
pub struct Cq {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: NonNull<ibv_cq>,
    channel: Option<Arc<CompletionChannel>>,
    capacity: usize,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

impl Cq {
    /// A queue of at least `entries` completions, which reports to `channel` once it is armed.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a channel of another device; what `ibv_create_cq(3)` says.
    pub fn new(
        context: &Arc<Context>,
        entries: usize,
        channel: Option<&Arc<CompletionChannel>>,
    ) -> Result<Arc<Self>> {
        if channel.is_some_and(|channel| channel.context != *context) {
            return Err(Errno::EINVAL);
        }
        let entries = c_int::try_from(entries).map_err(|_| Errno::EINVAL)?;
        let reports = channel.map_or(ptr::null_mut(), |channel| channel.raw.as_ptr());
        let create = context.library.ibv.ibv_create_cq;
        // SAFETY: a live context, and a live channel of it or none; the cookie is not used.
        let raw = unsafe { create(context.raw(), entries, ptr::null_mut(), reports, 0) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: just made, and never resized.
        let capacity = unsafe { (*raw.as_ptr()).cqe };
        Ok(Arc::new(Self {
            context: Arc::clone(context),
            raw,
            channel: channel.cloned(),
            capacity: usize::try_from(capacity).unwrap_or(0),
        }))
    }

    /// How many completions it holds. More than that break it, so whoever posts requests counts.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// What events of the device are told by.
    #[must_use]
    pub fn key(&self) -> QueueKey {
        QueueKey(self.raw.as_ptr().addr())
    }

    /// The channel that it reports to.
    #[must_use]
    pub fn channel(&self) -> Option<&Arc<CompletionChannel>> {
        self.channel.as_ref()
    }

    /// Takes completions, oldest first; returns how many.
    ///
    /// # Errors
    /// [`Errno::EIO`] when the device cannot tell them.
    #[inline]
    pub fn poll(&self, completions: &mut [Wc]) -> Result<usize> {
        let room = c_int::try_from(completions.len()).unwrap_or(c_int::MAX);
        let cq = self.raw.as_ptr();
        // SAFETY: a live queue, whose context is set when it is made and stays.
        let context = unsafe { (*cq).context };
        // SAFETY: the context is held for as long as the queue lives, and its table never changes.
        let poll = unsafe { (*context).ops.poll_cq };
        // SAFETY: a live queue, and room for so many completions, which `Wc` lays out as the header.
        let taken = unsafe { poll(cq, room, completions.as_mut_ptr().cast()) };
        usize::try_from(taken).map_err(|_| Errno::EIO)
    }

    /// Has the next completion reported to the channel. What came before is not reported, so poll once
    /// more after this.
    ///
    /// # Errors
    /// What `ibv_req_notify_cq(3)` says.
    pub fn arm(&self) -> Result<()> {
        let cq = self.raw.as_ptr();
        // SAFETY: a live queue, whose context is set when it is made and stays.
        let context = unsafe { (*cq).context };
        // SAFETY: the context is held for as long as the queue lives, and its table never changes.
        let arm = unsafe { (*context).ops.req_notify_cq };
        // SAFETY: a live queue.
        by_value(unsafe { arm(cq, 0) })
    }
}

impl fmt::Debug for Cq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cq({} entries)", self.capacity)
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once; queue pairs that report to it hold it, and
        // events are acknowledged where they are taken.
        unsafe { (self.context.library.ibv.ibv_destroy_cq)(self.raw.as_ptr()) };
    }
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcKind {
    /// A send.
    Send,
    /// A write.
    Write,
    /// A read.
    Read,
    /// An atomic.
    Atomic,
    /// A receive that a message was received into.
    Recv,
    /// A receive that was used up by the immediate data of a peer's write.
    RecvWrite,
    /// Something else.
    Other,
}

/// A completion (`struct ibv_wc`).
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Wc(ibv_wc);

impl Wc {
    /// The number that the request was given.
    #[must_use]
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// How the request ended. If not in success, then of the rest only [`id`](Self::id),
    /// [`qp_num`](Self::qp_num) and [`vendor_error`](Self::vendor_error) mean something.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// What it is of.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> WcKind {
        match self.0.opcode {
            0 => WcKind::Send,
            IBV_WC_RDMA_WRITE => WcKind::Write,
            IBV_WC_RDMA_READ => WcKind::Read,
            IBV_WC_COMP_SWAP | IBV_WC_FETCH_ADD => WcKind::Atomic,
            IBV_WC_RECV => WcKind::Recv,
            IBV_WC_RECV_RDMA_WITH_IMM => WcKind::RecvWrite,
            _ => WcKind::Other,
        }
    }

    /// How many bytes were received.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        self.0.byte_len as usize
    }

    /// Whether no bytes were received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The peer's immediate data.
    #[must_use]
    #[inline]
    pub fn immediate(&self) -> Option<u32> {
        (self.0.wc_flags & IBV_WC_WITH_IMM != 0).then(|| u32::from_be(self.0.imm_data))
    }

    /// The queue pair.
    #[must_use]
    #[inline]
    pub fn qp_num(&self) -> u32 {
        self.0.qp_num
    }

    /// What the device's driver says of a failure.
    #[must_use]
    pub fn vendor_error(&self) -> u32 {
        self.0.vendor_err
    }
}

impl fmt::Debug for Wc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, status, kind) = (self.id(), self.status(), self.kind());
        write!(f, "Wc({id}, {kind:?}, {status})")
    }
}

/// How a request ended (`enum ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(0);
    /// A message is longer than the receive.
    pub const LENGTH: Self = Self(1);
    /// The queue pair cannot do that.
    pub const QP_OPERATION: Self = Self(2);
    /// Local memory is not registered, or not for that.
    pub const PROTECTION: Self = Self(4);
    /// Given up, since the queue pair has failed or is no longer connected.
    pub const FLUSHED: Self = Self(5);
    /// The peer has no receive that is long enough, or did not understand the request.
    pub const REMOTE_INVALID: Self = Self(9);
    /// The peer's memory is not registered, or not for that.
    pub const REMOTE_ACCESS: Self = Self(10);
    /// The peer could not carry it out.
    pub const REMOTE_OPERATION: Self = Self(11);
    /// The peer did not answer.
    pub const RETRIES: Self = Self(12);
    /// The peer has no receive posted.
    pub const RNR_RETRIES: Self = Self(13);

    /// rdma-core's words for it.
    #[must_use]
    pub fn text(self) -> String {
        match library() {
            // SAFETY: any number may be asked for.
            Ok(library) => library::text(unsafe { (library.ibv.ibv_wc_status_str)(self.0) }),
            Err(_) => format!("status {}", self.0),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediate_data_is_in_network_order() {
        let raw = ibv_wc {
            imm_data: 0x0102_0304_u32.to_be(),
            wc_flags: IBV_WC_WITH_IMM,
            opcode: IBV_WC_RECV,
            byte_len: 7,
            ..ibv_wc::default()
        };
        let wc = Wc(raw);
        assert_eq!(wc.immediate(), Some(0x0102_0304));
        assert_eq!((wc.kind(), wc.len()), (WcKind::Recv, 7));
        assert_eq!(Wc::default().immediate(), None);
    }
}
