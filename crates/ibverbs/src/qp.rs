#![allow(unsafe_code)]
//! Queue pairs and shared receive queues.

use std::ffi::c_int;
use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ripstop_types::Errno;

use crate::cm::CmId;
use crate::cq::Cq;
use crate::device::{Pd, QueueKey};
use crate::library::{by_value, last_errno};
use crate::request::{RecvRequest, SendRequest};
use crate::sys::{
    IBV_QP_MIN_RNR_TIMER, IBV_QP_PKEY_INDEX, IBV_QP_PORT, IBV_QP_QKEY, IBV_QP_SQ_PSN, IBV_QP_STATE,
    IBV_QPS_ERR, IBV_QPS_INIT, IBV_QPS_RESET, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_RC, IBV_QPT_UD,
    ibv_qp, ibv_qp_attr, ibv_qp_cap, ibv_qp_init_attr, ibv_recv_wr, ibv_send_wr, ibv_srq,
    ibv_srq_attr, ibv_srq_init_attr,
};

/// What a queue pair is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// A reliable connection (RC).
    Connected,
    /// Unreliable datagrams (UD).
    Datagrams,
}

impl QpKind {
    const fn raw(self) -> c_int {
        match self {
            Self::Connected => IBV_QPT_RC,
            Self::Datagrams => IBV_QPT_UD,
        }
    }
}

/// How much a queue pair holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Requests to send.
    pub send: u32,
    /// Receives; not looked at with a shared receive queue.
    pub recv: u32,
    /// Pieces of memory of a request to send.
    pub send_sge: u32,
    /// Pieces of memory of a receive.
    pub recv_sge: u32,
    /// Bytes of a request to send inline.
    pub inline: u32,
}

impl QpCap {
    /// What a queue pair of a device holds that is asked for this much, found out by making one.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a queue of another device; what `ibv_create_qp(3)` says, which is
    /// [`Errno::EINVAL`] or [`Errno::ENOMEM`] where it holds less.
    pub fn probe(self, kind: QpKind, pd: &Arc<Pd>, cq: &Arc<Cq>) -> ripstop_types::Result<Self> {
        if cq.context != pd.context {
            return Err(Errno::EINVAL);
        }
        let mut attr = self.attr(kind.raw(), cq, cq, None);
        let library = pd.context.library;
        // SAFETY: a live protection domain, and a whole struct with a live queue of its device.
        let raw = unsafe { (library.ibv.ibv_create_qp)(pd.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: just made, and not used otherwise.
        unsafe { (library.ibv.ibv_destroy_qp)(raw.as_ptr()) };
        Ok(Self::of(&attr.cap))
    }

    fn attr(
        self,
        qp_type: c_int,
        send_cq: &Cq,
        recv_cq: &Cq,
        srq: Option<&Srq>,
    ) -> ibv_qp_init_attr {
        ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: send_cq.raw.as_ptr(),
            recv_cq: recv_cq.raw.as_ptr(),
            srq: srq.map_or(ptr::null_mut(), |srq| srq.raw.as_ptr()),
            cap: self.raw(),
            qp_type,
            sq_sig_all: 0,
        }
    }

    fn raw(self) -> ibv_qp_cap {
        ibv_qp_cap {
            max_send_wr: self.send,
            max_recv_wr: self.recv,
            max_send_sge: self.send_sge,
            max_recv_sge: self.recv_sge,
            max_inline_data: self.inline,
        }
    }

    fn of(raw: &ibv_qp_cap) -> Self {
        Self {
            send: raw.max_send_wr,
            recv: raw.max_recv_wr,
            send_sge: raw.max_send_sge,
            recv_sge: raw.max_recv_sge,
            inline: raw.max_inline_data,
        }
    }
}

/// Some requests of a list were not posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostError {
    /// How many were posted: those at the front.
    pub posted: usize,
    /// Why the next one was not. [`Errno::ENOMEM`] where the queue is full.
    pub errno: Errno,
}

/// A request that can be in a list. It is transparent over the struct of the header.
trait Linked: Sized {
    /// The struct.
    type Raw;

    fn set_next(&mut self, next: *mut Self::Raw);
}

impl Linked for SendRequest<'_> {
    type Raw = ibv_send_wr;

    fn set_next(&mut self, next: *mut ibv_send_wr) {
        self.raw.next = next;
    }
}

impl Linked for RecvRequest<'_> {
    type Raw = ibv_recv_wr;

    fn set_next(&mut self, next: *mut ibv_recv_wr) {
        self.raw.next = next;
    }
}

/// Posts requests as a list. `post` gets the first of them, and where to leave the first that it does not
/// take; both may be used until it returns. It returns what `ibv_post_send(3)` does.
#[inline]
fn post_list<T: Linked>(
    requests: &mut [T],
    post: impl FnOnce(*mut T::Raw, *mut *mut T::Raw) -> c_int,
) -> Result<(), PostError> {
    let count = requests.len();
    if count == 0 {
        return Ok(());
    }
    let start = requests.as_mut_ptr();
    for index in 0..count {
        let next = match index + 1 < count {
            true => start.wrapping_add(index + 1).cast(),
            false => ptr::null_mut(),
        };
        // SAFETY: one of the slice's requests, which is borrowed mutably until the end; the pointers stay
        // valid, since all come from the one of its start.
        let request = unsafe { &mut *start.wrapping_add(index) };
        request.set_next(next);
    }
    let first = start.cast();
    let mut bad = first;
    let ret = post(first, &raw mut bad);
    let Err(errno) = by_value(ret) else {
        return Ok(());
    };
    let bytes = bad.addr().checked_sub(first.addr());
    let posted = bytes.map_or(0, |bytes| bytes / size_of::<T>());
    let posted = if posted < count { posted } else { 0 };
    Err(PostError { posted, errno })
}

/// What a datagram queue pair sends and receives by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// The port.
    pub port: u8,
    /// The key that datagrams must have to be received.
    pub qkey: u32,
}

/// What a queue pair is.
enum Kind {
    /// A reliable connected one, made for an id of `librdmacm`, which connects it.
    Connected(Arc<CmId>),
    /// One of datagrams (UD).
    Datagrams(Datagrams),
}

/// A queue pair: a reliable connected one, or one of datagrams.
pub struct Qp {
    kind: Kind,
    raw: NonNull<ibv_qp>,
    pd: Arc<Pd>,
    _send_cq: Arc<Cq>,
    _recv_cq: Arc<Cq>,
    _srq: Option<Arc<Srq>>,
    cap: QpCap,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}

impl Qp {
    /// Makes the queue pair of a connection, before it is connected or accepted.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] when the id has one, has no device yet, or for objects of another device; what
    /// `rdma_create_qp(3)` says.
    pub fn new(
        id: &Arc<CmId>,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        srq: Option<&Arc<Srq>>,
        cap: QpCap,
    ) -> ripstop_types::Result<Self> {
        let device = &pd.context;
        let is_strange = send_cq.context != *device
            || recv_cq.context != *device
            || srq.is_some_and(|srq| srq.pd.context != *device);
        if is_strange || id.device(std::slice::from_ref(device)).is_none() {
            return Err(Errno::EINVAL);
        }
        let mut attr = cap.attr(
            QpKind::Connected.raw(),
            send_cq,
            recv_cq,
            srq.map(|srq| &**srq),
        );
        let written = &raw mut attr;
        let pd_raw = pd.raw.as_ptr();
        // SAFETY: a live id without a queue pair, a live protection domain of its device, and a whole
        // struct with live queues of that device. What is named lives as long as the queue pair, which
        // holds it.
        let raw =
            id.make_qp(|library, id| unsafe { (library.cm.rdma_create_qp)(id, pd_raw, written) })?;
        Ok(Self {
            kind: Kind::Connected(Arc::clone(id)),
            raw,
            pd: Arc::clone(pd),
            _send_cq: Arc::clone(send_cq),
            _recv_cq: Arc::clone(recv_cq),
            _srq: srq.cloned(),
            cap: QpCap::of(&attr.cap),
        })
    }

    /// Makes a queue pair of datagrams, which sends and receives at once. The device puts the 40 bytes of a
    /// global routing header in front of what it receives.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for objects of another device; what `ibv_create_qp(3)` and `ibv_modify_qp(3)` say.
    pub fn datagrams(
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        recv_cq: &Arc<Cq>,
        cap: QpCap,
        datagrams: Datagrams,
    ) -> ripstop_types::Result<Self> {
        if send_cq.context != pd.context || recv_cq.context != pd.context {
            return Err(Errno::EINVAL);
        }
        let mut attr = cap.attr(QpKind::Datagrams.raw(), send_cq, recv_cq, None);
        let library = pd.context.library;
        // SAFETY: a live protection domain, and a whole struct with live queues of its device, which the queue
        // pair holds.
        let raw = unsafe { (library.ibv.ibv_create_qp)(pd.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let made = Self {
            kind: Kind::Datagrams(datagrams),
            raw,
            pd: Arc::clone(pd),
            _send_cq: Arc::clone(send_cq),
            _recv_cq: Arc::clone(recv_cq),
            _srq: None,
            cap: QpCap::of(&attr.cap),
        };
        made.start(datagrams)?;
        Ok(made)
    }

    /// Takes a queue pair of datagrams from its beginning to where it sends and receives.
    fn start(&self, datagrams: Datagrams) -> ripstop_types::Result<()> {
        let init = ibv_qp_attr {
            port_num: datagrams.port,
            qkey: datagrams.qkey,
            ..state(IBV_QPS_INIT)
        };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY;
        self.modify(init, mask)?;
        self.modify(state(IBV_QPS_RTR), IBV_QP_STATE)?;
        self.modify(state(IBV_QPS_RTS), IBV_QP_STATE | IBV_QP_SQ_PSN)
    }

    /// Ends all requests of the queue pair, which fail with [`Status::FLUSHED`](crate::Status::FLUSHED).
    ///
    /// # Errors
    /// What `ibv_modify_qp(3)` says.
    pub fn fail(&self) -> ripstop_types::Result<()> {
        self.modify(state(IBV_QPS_ERR), IBV_QP_STATE)
    }

    /// Begins a queue pair of datagrams anew after it has failed. The device forgets all its requests, also those
    /// whose completions were not taken.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a connected one; what `ibv_modify_qp(3)` says.
    pub fn restart(&self) -> ripstop_types::Result<()> {
        let Kind::Datagrams(datagrams) = self.kind else {
            return Err(Errno::EINVAL);
        };
        self.modify(state(IBV_QPS_RESET), IBV_QP_STATE)?;
        self.start(datagrams)
    }

    fn modify(&self, mut attr: ibv_qp_attr, mask: c_int) -> ripstop_types::Result<()> {
        let modify = self.pd.context.library.ibv.ibv_modify_qp;
        // SAFETY: a live queue pair, and a whole struct.
        by_value(unsafe { modify(self.raw.as_ptr(), &raw mut attr, mask) })
    }

    /// Whether the device may look at all requests: those of datagrams need a destination of its own.
    #[inline]
    fn can_post(&self, requests: &[SendRequest<'_>]) -> bool {
        let reaches = |request: &SendRequest<'_>| {
            if !request.is_message() {
                return false;
            }
            // SAFETY: `SendRequest` has the union filled with zeroes or a destination for messages.
            let ah = unsafe { request.raw.wr.ud.ah };
            // SAFETY: null, or a handle that the request borrows; its domain is set when it is made and stays.
            !ah.is_null() && unsafe { (*ah).pd } == self.pd.raw.as_ptr()
        };
        match self.kind {
            Kind::Connected(_) => true,
            Kind::Datagrams(_) => requests.iter().all(reaches),
        }
    }

    /// Its number, which completions have.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: a live queue pair, whose number is set when it is made and stays.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// How much it holds, which may be more than was asked for.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.cap
    }

    /// Posts requests, and tells the device once. Buffers are used until a completion says that they no
    /// longer are: that of the request, or of a later one. Dropping the queue pair ends all of them.
    ///
    /// # Errors
    /// [`PostError`]; [`Errno::EINVAL`] for requests of datagrams that are no messages, or have no
    /// [destination](SendRequest::to) of the same protection domain.
    #[inline]
    pub fn post_send(&self, requests: &mut [SendRequest<'_>]) -> Result<(), PostError> {
        if !self.can_post(requests) {
            return Err(PostError {
                posted: 0,
                errno: Errno::EINVAL,
            });
        }
        let qp = self.raw.as_ptr();
        // SAFETY: a live queue pair, whose context is set when it is made and stays.
        let context = unsafe { (*qp).context };
        // SAFETY: the context is held for as long as the queue pair lives, and its table never changes.
        let post = unsafe { (*context).ops.post_send };
        // SAFETY: a live queue pair, and a list of requests that stays until the call returns, as does
        // the memory of their pieces' array (`SendRequest`'s lifetime). The pieces are callers' buffers.
        post_list(requests, |first, bad| unsafe { post(qp, first, bad) })
    }

    /// Posts receives. Buffers are used until the completion.
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_recv(&self, requests: &mut [RecvRequest<'_>]) -> Result<(), PostError> {
        let qp = self.raw.as_ptr();
        // SAFETY: a live queue pair, whose context is set when it is made and stays.
        let context = unsafe { (*qp).context };
        // SAFETY: the context is held for as long as the queue pair lives, and its table never changes.
        let post = unsafe { (*context).ops.post_recv };
        // SAFETY: a live queue pair, and a list of receives that stays until the call returns, as does the
        // memory of their pieces' array (`RecvRequest`'s lifetime).
        post_list(requests, |first, bad| unsafe { post(qp, first, bad) })
    }

    /// Sets how long a peer waits that finds no receive, by the code of the InfiniBand specification
    /// (12 is 640 microseconds). For a connected queue pair.
    ///
    /// # Errors
    /// What `ibv_modify_qp(3)` says.
    pub fn set_min_rnr_timer(&self, code: u8) -> ripstop_types::Result<()> {
        let attr = ibv_qp_attr {
            min_rnr_timer: code,
            ..state(IBV_QPS_RESET)
        };
        self.modify(attr, IBV_QP_MIN_RNR_TIMER)
    }
}

/// Attributes with a state, of which the mask says whether it is read.
fn state(qp_state: c_int) -> ibv_qp_attr {
    ibv_qp_attr {
        qp_state,
        ..ibv_qp_attr::default()
    }
}

impl fmt::Debug for Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Qp({})", self.number())
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        match &self.kind {
            Kind::Connected(id) => id.destroy_qp(),
            Kind::Datagrams(_) => {
                // SAFETY: made by `ibv_create_qp`, and freed once.
                unsafe { (self.pd.context.library.ibv.ibv_destroy_qp)(self.raw.as_ptr()) };
            }
        }
    }
}

/// A queue of receives that queue pairs share.
pub struct Srq {
    pub(crate) pd: Arc<Pd>,
    pub(crate) raw: NonNull<ibv_srq>,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Srq {}
// SAFETY: as above.
unsafe impl Sync for Srq {}

impl Srq {
    /// A queue of at least `receives` receives of up to `sge` pieces of memory.
    ///
    /// # Errors
    /// What `ibv_create_srq(3)` says.
    pub fn new(pd: &Arc<Pd>, receives: u32, sge: u32) -> ripstop_types::Result<Arc<Self>> {
        let mut attr = ibv_srq_init_attr {
            srq_context: ptr::null_mut(),
            attr: ibv_srq_attr {
                max_wr: receives,
                max_sge: sge,
                srq_limit: 0,
            },
        };
        let create = pd.context.library.ibv.ibv_create_srq;
        // SAFETY: a live protection domain, and a whole struct, which is written too.
        let raw = unsafe { create(pd.raw.as_ptr(), &raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        let pd = Arc::clone(pd);
        Ok(Arc::new(Self { pd, raw }))
    }

    /// What events of the device are told by.
    #[must_use]
    pub fn key(&self) -> QueueKey {
        QueueKey(self.raw.as_ptr().addr())
    }

    /// Posts receives, as [`Qp::post_recv`]; a dropped queue ends all of them.
    ///
    /// # Errors
    /// [`PostError`].
    #[inline]
    pub fn post_recv(&self, requests: &mut [RecvRequest<'_>]) -> Result<(), PostError> {
        let srq = self.raw.as_ptr();
        // SAFETY: a live queue, whose context is set when it is made and stays.
        let context = unsafe { (*srq).context };
        // SAFETY: the context is held for as long as the queue lives, and its table never changes.
        let post = unsafe { (*context).ops.post_srq_recv };
        // SAFETY: a live queue, and a list of receives that stays until the call returns, as does the
        // memory of their pieces' array (`RecvRequest`'s lifetime).
        post_list(requests, |first, bad| unsafe { post(srq, first, bad) })
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Srq({})", self.pd.context.name())
    }
}

impl Drop for Srq {
    fn drop(&mut self) {
        // SAFETY: made by the library, and freed once; queue pairs that use it hold it.
        unsafe { (self.pd.context.library.ibv.ibv_destroy_srq)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Operation, SendFlags};

    #[test]
    fn a_list_is_linked_and_what_was_posted_is_counted() {
        let make = |id| {
            SendRequest::new(id, Operation::Send(None), &[], SendFlags::empty()).expect("made")
        };
        let mut requests = [make(1), make(2), make(3)];
        let start = requests.as_mut_ptr().cast::<ibv_send_wr>();
        let at = |index| start.wrapping_add(index);
        assert_eq!(post_list(&mut requests, |_, _| 0), Ok(()));
        assert_eq!(requests[0].raw.next, at(1));
        assert!(requests[2].raw.next.is_null());
        let errno = Errno::ENOMEM;
        for posted in [0, 2] {
            let refuse = |_, bad: *mut *mut ibv_send_wr| {
                // SAFETY: room for a pointer, which the function under test has there.
                unsafe { bad.write(at(posted)) };
                12
            };
            let refused = post_list(&mut requests, refuse);
            assert_eq!(refused, Err(PostError { posted, errno }));
        }
        assert_eq!(post_list::<SendRequest<'_>>(&mut [], |_, _| 12), Ok(()));
    }
}
