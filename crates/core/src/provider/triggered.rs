//! Operations that start when a counter reaches a threshold (man page `fi_trigger(3)`).

use std::fmt;
use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_types::{Context, FiAddr, Flags};

use super::{AtomicCall, CollCall, Domain, RecvKind, RmaCall, SendKind, Token};

/// A data transfer as `fi_sendmsg`, `fi_recvmsg`, `fi_readmsg` and their like describe it.
#[derive(Clone, Copy, Debug)]
pub enum DataCall<'a> {
    /// As [`Endpoint::send`](super::Endpoint::send).
    Send {
        /// Plain or tagged.
        kind: SendKind,
        /// The payload.
        iov: &'a [UserBuf],
        /// Remote CQ data.
        data: Option<u64>,
        /// The peer.
        dest: FiAddr,
        /// The caller's context.
        context: Context,
        /// Operation flags.
        flags: Flags,
    },
    /// As [`Endpoint::recv`](super::Endpoint::recv).
    Recv {
        /// Plain or tagged.
        kind: RecvKind,
        /// Where the message goes.
        iov: &'a [UserBuf],
        /// The peer, or any.
        src: FiAddr,
        /// The caller's context.
        context: Context,
        /// Operation flags.
        flags: Flags,
    },
    /// As [`Endpoint::read`](super::Endpoint::read).
    Read(&'a [UserBuf], RmaCall<'a>),
    /// As [`Endpoint::write`](super::Endpoint::write).
    Write(&'a [UserBuf], RmaCall<'a>),
    /// As [`Endpoint::atomic`](super::Endpoint::atomic), with the operands.
    Atomic(&'a [UserBuf], AtomicCall<'a>),
    /// As [`Endpoint::collective`](super::Endpoint::collective), with operand and result. Not for
    /// deferred work ([`ENOSYS`](ripstop_types::Errno::ENOSYS)), which has no such type.
    Collective([UserBuf; 2], CollCall),
}

/// A counter and the value it is to reach (`struct fi_trigger_threshold`).
pub struct Threshold<'a, D: Domain> {
    /// The counter, of the same domain.
    pub counter: &'a Arc<D::Counter>,
    /// The value.
    pub value: u64,
}

impl<D: Domain> Clone for Threshold<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Domain> Copy for Threshold<'_, D> {}

impl<D: Domain> fmt::Debug for Threshold<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Threshold({})", self.value)
    }
}

/// What deferred work does (`enum fi_op_type`).
pub enum WorkOp<'a, D: Domain> {
    /// Transfers data. It is not reported by the endpoint, unless its flags have
    /// [`Flags::COMPLETION`].
    Data {
        /// The endpoint, of the same domain.
        ep: &'a Arc<D::Endpoint>,
        /// What it does.
        call: DataCall<'a>,
        /// The counter that is told of the end: one success more, or one error more.
        done: Option<&'a Arc<D::Counter>>,
    },
    /// Receives on a shared context, as [`WorkOp::Data`]; reported by the endpoint that the
    /// message comes to.
    SharedRecv {
        /// The context, of the same domain.
        srx: &'a Arc<D::SharedRx>,
        /// A [`DataCall::Recv`].
        call: DataCall<'a>,
        /// The counter that is told of the end.
        done: Option<&'a Arc<D::Counter>>,
    },
    /// Sets the successes of a counter (`FI_OP_CNTR_SET`).
    Set(&'a Arc<D::Counter>, u64),
    /// Adds to the successes of a counter (`FI_OP_CNTR_ADD`).
    Add(&'a Arc<D::Counter>, u64),
}

impl<D: Domain> fmt::Debug for WorkOp<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Data { call, .. } => f.debug_tuple("Data").field(call).finish(),
            Self::SharedRecv { call, .. } => f.debug_tuple("SharedRecv").field(call).finish(),
            Self::Set(_, value) => write!(f, "Set({value})"),
            Self::Add(_, value) => write!(f, "Add({value})"),
        }
    }
}

/// Deferred work (`struct fi_deferred_work`).
#[derive(Debug)]
pub struct Work<'a, D: Domain> {
    /// Names it for [`Domain::cancel_work`]. Several may have one name.
    pub token: Token,
    /// When it starts: successes and errors of the counter count.
    pub when: Threshold<'a, D>,
    /// What it does.
    pub op: WorkOp<'a, D>,
}
