#![allow(unsafe_code)]
//! Deferred work (`fi_trigger(3)`): `FI_QUEUE_WORK`, `FI_CANCEL_WORK` and `FI_FLUSH_WORK` of a
//! domain.

use core::ffi::c_int;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::provider::{DataCall, Domain, Threshold, Work, WorkOp};
use ripstop_types::{AtomicKind, Errno, Flags, Result};

use crate::counter;
use crate::edge::{AnyFid, Argument, Array, Whole, trampolines};
use crate::endpoint::atomic::Message;
use crate::endpoint::body::behind;
use crate::endpoint::rma::Remote;
use crate::endpoint::send::{self, data_of};
use crate::errno::{code, missing};
use crate::mr;
use crate::object::This;
use crate::object::domain::{DomainBody, same_domain};
use crate::receive;
use crate::srx::SrxBody;

trampolines! { [D: Domain]
    /// `fi_control` of a domain.
    pub(crate) extern "C" fn control(
        this: This<DomainBody<D>, abi::fid>, command: c_int, arg: Argument,
    ) -> c_int {
        let known = matches!(
            command,
            abi::FI_QUEUE_WORK | abi::FI_CANCEL_WORK | abi::FI_FLUSH_WORK
        );
        code(match known {
            true => control_work(&this, command, arg),
            false => mr::domain_control(command, arg),
        })
    }
}

/// A command about work, with the argument that it takes.
fn control_work<D: Domain>(this: &DomainBody<D>, command: c_int, arg: Argument<'_>) -> Result<()> {
    let at = arg.as_ptr().cast::<abi::fi_deferred_work>();
    // Work is known by the address of its struct.
    let token = FidToken(at.addr());
    if command == abi::FI_CANCEL_WORK {
        return match at.is_null() {
            true => Err(missing("FI_CANCEL_WORK", "arg")),
            false => this.domain.cancel_work(token),
        };
    }
    // SAFETY: null or work with the struct of its operation and all that it leads to, which is what
    // the two other commands take.
    let work = unsafe { Whole::behind(at) };
    match command {
        abi::FI_QUEUE_WORK => {
            let work = work.ok_or_else(|| missing("FI_QUEUE_WORK", "arg"))?;
            queue(&this.domain, token, work)
        }
        _ => flush(&this.domain, work),
    }
}

/// All work, or that of one counter if the argument names one.
fn flush<D: Domain>(domain: &Arc<D>, work: Option<Whole<'_, abi::fi_deferred_work>>) -> Result<()> {
    let counter = work.and_then(|work| some(work.triggering_cntr()));
    let counter = counter.map(|counter| counter::of_domain::<D>(counter, domain));
    domain.flush_work(counter.transpose()?)
}

/// An object, unless it is null.
fn some(object: AnyFid<'_>) -> Option<AnyFid<'_>> {
    (!object.as_ptr().is_null()).then_some(object)
}

/// Reads work of any type, and queues it (`FI_QUEUE_WORK`). `token` names it when it is cancelled.
///
/// # Errors
/// [`Errno::EINVAL`] for null and for arguments that no call takes, [`Errno::EDOMAIN`] for objects of another domain,
/// [`Errno::ENOSYS`] for an unknown type; those of the provider.
fn queue<D: Domain>(
    domain: &Arc<D>,
    token: FidToken,
    work: Whole<'_, abi::fi_deferred_work>,
) -> Result<()> {
    let when = Threshold {
        counter: counter::of_domain::<D>(work.triggering_cntr(), domain)?,
        value: work.threshold,
    };
    let done = some(work.completion_cntr()).map(|done| counter::of_domain::<D>(done, domain));
    let done = done.transpose()?;
    let put = |at: At<'_, D>, call: &DataCall<'_>| {
        let (call, done) = (*call, done);
        let op = match at {
            At::Ep(ep) => WorkOp::Data { ep, call, done },
            At::Srx(srx) => WorkOp::SharedRecv { srx, call, done },
        };
        domain.queue_work(&Work { token, when, op })
    };
    // The struct of an operation. Collectives have none: `rdma/fi_trigger.h` of 2.6.0 has neither a
    // type nor a struct for deferred ones.
    macro_rules! operation {
        ($type:ident) => {
            // SAFETY: `fi_trigger(3)` names this struct for work of the types of its arm.
            unsafe { operation::<abi::$type>(work) }?
        };
    }
    let incoming = matches!(
        work.op_type,
        abi::FI_OP_RECV | abi::FI_OP_TRECV | abi::FI_OP_READ
    );
    match work.op_type {
        abi::FI_OP_CNTR_SET | abi::FI_OP_CNTR_ADD => {
            let op = operation!(fi_op_cntr);
            if done.is_some() {
                return Err(Errno::EINVAL);
            }
            let op = counter_op(domain, work.op_type, op)?;
            domain.queue_work(&Work { token, when, op })
        }
        abi::FI_OP_SEND | abi::FI_OP_RECV => {
            let op = operation!(fi_op_msg);
            message(domain, op.ep(), incoming, op.msg(), op.flags, put)
        }
        abi::FI_OP_TSEND | abi::FI_OP_TRECV => {
            let op = operation!(fi_op_tagged);
            message(domain, op.ep(), incoming, op.msg(), op.flags, put)
        }
        abi::FI_OP_READ | abi::FI_OP_WRITE => rma(domain, operation!(fi_op_rma), incoming, put),
        abi::FI_OP_ATOMIC => {
            let op = operation!(fi_op_atomic);
            let args = (op.msg(), [Array::NONE; 2], op.flags);
            atomic(domain, AtomicKind::Plain, op.ep(), args, put)
        }
        abi::FI_OP_FETCH_ATOMIC => {
            let op = operation!(fi_op_fetch_atomic);
            let args = (op.msg(), [Array::NONE, op.fetch().msg_iov()], op.flags);
            atomic(domain, AtomicKind::Fetch, op.ep(), args, put)
        }
        abi::FI_OP_COMPARE_ATOMIC => {
            let op = operation!(fi_op_compare_atomic);
            let more = [op.compare().msg_iov(), op.fetch().msg_iov()];
            let args = (op.msg(), more, op.flags);
            atomic(domain, AtomicKind::Compare, op.ep(), args, put)
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// Work that sets a counter, or adds to it.
///
/// # Errors
/// As for [`counter::of_domain`].
fn counter_op<'a, D: Domain>(
    domain: &Arc<D>,
    op_type: abi::fi_op_type,
    op: Whole<'a, abi::fi_op_cntr>,
) -> Result<WorkOp<'a, D>> {
    let counter = counter::of_domain::<D>(op.cntr(), domain)?;
    Ok(match op_type {
        abi::FI_OP_CNTR_SET => WorkOp::Set(counter, op.value),
        _ => WorkOp::Add(counter, op.value),
    })
}

/// What work is to do.
///
/// # Errors
/// [`Errno::EINVAL`] for null.
///
/// # Safety
///
/// The operation of the work is a `T`.
unsafe fn operation<'a, T>(work: Whole<'a, abi::fi_deferred_work>) -> Result<Whole<'a, T>> {
    // SAFETY: all members are pointers, so this is one whatever the type.
    let op = unsafe { work.op.msg }.cast::<T>();
    // SAFETY: a pointer of whole work is null or to the struct of its type, which is this one by the
    // contract of this function.
    unsafe { Whole::behind(op) }.ok_or_else(|| missing("FI_QUEUE_WORK", "the operation"))
}

/// Reads a message that is sent or received, and gives it to `put`.
fn message<D: Domain, M: send::Message + receive::Message>(
    domain: &Arc<D>,
    ep: AnyFid<'_>,
    receives: bool,
    msg: Whole<'_, M>,
    flags: u64,
    put: impl FnOnce(At<'_, D>, &DataCall<'_>) -> Result<()>,
) -> Result<()> {
    let flags = Flags::from_bits_retain(flags);
    if receives {
        let at = receiver_of(ep, domain)?;
        return put(at, &receive::Message::posted(msg, flags)?.call());
    }
    let at = endpoint_of(ep, domain)?;
    put(at, &send::Message::sent(msg, flags)?.call())
}

/// Reads what reaches a peer's memory, and gives it to `put`.
fn rma<D: Domain>(
    domain: &Arc<D>,
    op: Whole<'_, abi::fi_op_rma>,
    reads: bool,
    put: impl FnOnce(At<'_, D>, &DataCall<'_>) -> Result<()>,
) -> Result<()> {
    let (msg, flags) = (op.msg(), Flags::from_bits_retain(op.flags));
    let ep = endpoint_of(op.ep(), domain)?;
    let remote = Remote::of(msg)?;
    if reads {
        let segs = msg.msg_iov().results()?;
        let call = remote.call(&msg, flags, None);
        return put(ep, &DataCall::Read(segs.as_slice(), call));
    }
    let segs = msg.msg_iov().sources()?;
    let call = remote.call(&msg, flags, data_of(flags, msg.data));
    put(ep, &DataCall::Write(segs.as_slice(), call))
}

/// What deferred work says of an atomic: its message, what is compared and the place for the result, and flags.
type AtomicArgs<'a> = (
    Whole<'a, abi::fi_msg_atomic>,
    [Array<'a, abi::fi_ioc>; 2],
    u64,
);

/// Reads an atomic, and gives it to `put`.
fn atomic<D: Domain>(
    domain: &Arc<D>,
    kind: AtomicKind,
    ep: AnyFid<'_>,
    (msg, more, flags): AtomicArgs<'_>,
    put: impl FnOnce(At<'_, D>, &DataCall<'_>) -> Result<()>,
) -> Result<()> {
    let ep = endpoint_of(ep, domain)?;
    let message = Message::read(kind, msg, more, Flags::from_bits_retain(flags))?;
    let (operand, call) = message.call();
    put(ep, &DataCall::Atomic(operand, call))
}

/// Where a data transfer is posted.
enum At<'a, D: Domain> {
    Ep(&'a Arc<D::Endpoint>),
    Srx(&'a Arc<D::SharedRx>),
}

/// What sends, or reaches a peer's memory.
///
/// # Errors
/// As for [`receiver_of`]; [`Errno::EINVAL`] for a shared receive context.
fn endpoint_of<'a, D: Domain>(ep: AnyFid<'a>, domain: &Arc<D>) -> Result<At<'a, D>> {
    match receiver_of(ep, domain)? {
        ep @ At::Ep(_) => Ok(ep),
        At::Srx(_) => Err(Errno::EINVAL),
    }
}

/// The endpoint behind a `fid_ep`, or behind an alias of it, or the shared receive context.
///
/// # Errors
/// [`Errno::EINVAL`] for null and what is no endpoint, [`Errno::EDOMAIN`] for one of another domain.
fn receiver_of<'a, D: Domain>(ep: AnyFid<'a>, domain: &Arc<D>) -> Result<At<'a, D>> {
    match ep.class() {
        Some(class @ (abi::FI_CLASS_EP | abi::FI_CLASS_TX_CTX | abi::FI_CLASS_RX_CTX)) => {
            let (ep, of) = behind::<D>(ep, class)?;
            same_domain("the endpoint", domain, of)?;
            Ok(At::Ep(ep))
        }
        Some(class @ abi::FI_CLASS_SRX_CTX) => {
            let srx = ep.cast::<SrxBody<D>>(class)?;
            same_domain("the receive context", domain, &srx.domain)?;
            Ok(At::Srx(&srx.srx))
        }
        _ => Err(Errno::EINVAL),
    }
}
