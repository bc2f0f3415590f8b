#![allow(unsafe_code)]
//! Deferred work (`fi_trigger(3)`): `FI_QUEUE_WORK`, `FI_CANCEL_WORK` and `FI_FLUSH_WORK` of a
//! domain.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::FidToken;
use ripstop_core::provider::{DataCall, Domain, SendKind, Threshold, Work, WorkOp};
use ripstop_types::{AtomicKind, Errno, FiAddr, Flags, Result};

use crate::buffers;
use crate::counter;
use crate::domain::DomainBody;
use crate::endpoint::atomic::{Message, More};
use crate::endpoint::rma::Remote;
use crate::endpoint::{self, data_of, message, same_domain, tagged_message};
use crate::errno::code;
use crate::mr;
use crate::object::{self, body};
use crate::srx::SrxBody;

/// `fi_control` of a domain.
pub(crate) unsafe extern "C" fn control<D: Domain>(
    fid: *mut abi::fid,
    command: c_int,
    arg: *mut c_void,
) -> c_int {
    // SAFETY: this operation belongs to domains of this type.
    let this = unsafe { body::<DomainBody<D>>(fid.cast()) };
    let work = arg.cast::<abi::fi_deferred_work>();
    code(match command {
        // SAFETY: the argument is null or as the command asks, with all it leads to.
        abi::FI_QUEUE_WORK => unsafe { queue(this, work) },
        abi::FI_CANCEL_WORK if work.is_null() => Err(object::missing("FI_CANCEL_WORK", "arg")),
        abi::FI_CANCEL_WORK => this.domain.cancel_work(name(work)),
        // SAFETY: as above.
        abi::FI_FLUSH_WORK => unsafe { flush(this, work) },
        // SAFETY: as above.
        _ => return unsafe { mr::domain_control(fid, command, arg) },
    })
}

/// Work is known by the address of its struct.
fn name(work: *const abi::fi_deferred_work) -> FidToken {
    FidToken(work.addr())
}

/// All work, or that of one counter if the argument names one.
///
/// # Safety
///
/// `work` is null or valid, with an open counter or none.
unsafe fn flush<D: Domain>(this: &DomainBody<D>, work: *const abi::fi_deferred_work) -> Result<()> {
    // SAFETY: the caller's guarantee, for this and the block below.
    let counter = unsafe { work.as_ref() }.map(|work| work.triggering_cntr);
    match counter.filter(|counter| !counter.is_null()) {
        None => this.domain.flush_work(None),
        Some(counter) => {
            // SAFETY: as above.
            let counter = unsafe { counter::of_domain::<D>(counter, &this.domain) }?;
            this.domain.flush_work(Some(counter))
        }
    }
}

/// # Safety
///
/// `work` is null or valid, with the struct of its operation, which is null or valid with its
/// vectors; objects are null or open.
unsafe fn queue<D: Domain>(this: &DomainBody<D>, work: *const abi::fi_deferred_work) -> Result<()> {
    let token = name(work);
    // SAFETY: the caller's guarantee, for this and the blocks below.
    let work = unsafe { work.as_ref() }.ok_or_else(|| object::missing("FI_QUEUE_WORK", "arg"))?;
    let domain = &this.domain;
    let when = Threshold {
        // SAFETY: as above.
        counter: unsafe { counter::of_domain::<D>(work.triggering_cntr, domain) }?,
        value: work.threshold,
    };
    let done = match work.completion_cntr.is_null() {
        true => None,
        // SAFETY: as above.
        false => Some(unsafe { counter::of_domain::<D>(work.completion_cntr, domain) }?),
    };
    if matches!(work.op_type, abi::FI_OP_CNTR_SET | abi::FI_OP_CNTR_ADD) {
        if done.is_some() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: as above; the type of the operation says which member it is.
        let op = unsafe { operation::<abi::fi_op_cntr>(work) }?;
        // SAFETY: as above.
        let counter = unsafe { counter::of_domain::<D>(op.cntr, domain) }?;
        let op = match work.op_type {
            abi::FI_OP_CNTR_SET => WorkOp::Set(counter, op.value),
            _ => WorkOp::Add(counter, op.value),
        };
        return domain.queue_work(&Work { token, when, op });
    }
    let put = |at: At<'_, D>, call: &DataCall<'_>| {
        let (call, done) = (*call, done);
        let op = match at {
            At::Ep(ep) => WorkOp::Data { ep, call, done },
            At::Srx(srx) => WorkOp::SharedRecv { srx, call, done },
        };
        domain.queue_work(&Work { token, when, op })
    };
    // SAFETY: as above.
    unsafe { data(domain, work, put) }
}

/// What work is to do, as the struct for its type says it.
///
/// # Errors
/// [`Errno::EINVAL`] for null.
///
/// # Safety
///
/// The operation of `work` is null, or valid and a `T`.
unsafe fn operation<T>(work: &abi::fi_deferred_work) -> Result<&T> {
    // SAFETY: all members are pointers, so this is one whatever the type.
    let op = unsafe { work.op.msg }.cast::<T>();
    // SAFETY: the caller's guarantee.
    unsafe { op.as_ref() }.ok_or_else(|| object::missing("FI_QUEUE_WORK", "the operation"))
}

/// Reads the data transfer of work, and gives it to `put`.
///
/// # Safety
///
/// As for [`queue`].
unsafe fn data<D: Domain>(
    domain: &Arc<D>,
    work: &abi::fi_deferred_work,
    put: impl FnOnce(At<'_, D>, &DataCall<'_>) -> Result<()>,
) -> Result<()> {
    // SAFETY (all blocks): the caller's guarantee; the type of the operation says which member
    // of the union it is.
    match work.op_type {
        abi::FI_OP_SEND | abi::FI_OP_RECV => {
            // SAFETY: as above.
            let op = unsafe { operation::<abi::fi_op_msg>(work) }?;
            if work.op_type == abi::FI_OP_RECV {
                // SAFETY: as above.
                let at = unsafe { receiver_of(op.ep, domain) }?;
                // SAFETY: as above.
                return put(at, &unsafe { message(&raw const op.msg, op.flags) }?.call());
            }
            // SAFETY: as above.
            let ep = unsafe { endpoint_of(op.ep, domain) }?;
            let msg = &op.msg;
            // SAFETY: as above.
            let segs = unsafe { buffers::sources(msg.msg_iov, msg.iov_count) }?;
            let flags = Flags::from_bits_retain(op.flags);
            put(
                ep,
                &DataCall::Send {
                    kind: SendKind::Msg,
                    iov: segs.as_slice(),
                    data: data_of(flags, msg.data),
                    dest: FiAddr(msg.addr),
                    context: msg.context.expose_provenance(),
                    flags,
                },
            )
        }
        abi::FI_OP_TSEND | abi::FI_OP_TRECV => {
            // SAFETY: as above.
            let op = unsafe { operation::<abi::fi_op_tagged>(work) }?;
            if work.op_type == abi::FI_OP_TRECV {
                // SAFETY: as above.
                let at = unsafe { receiver_of(op.ep, domain) }?;
                // SAFETY: as above.
                let posted = unsafe { tagged_message(&raw const op.msg, op.flags) }?;
                return put(at, &posted.call());
            }
            // SAFETY: as above.
            let ep = unsafe { endpoint_of(op.ep, domain) }?;
            let msg = &op.msg;
            // SAFETY: as above.
            let segs = unsafe { buffers::sources(msg.msg_iov, msg.iov_count) }?;
            let flags = Flags::from_bits_retain(op.flags);
            put(
                ep,
                &DataCall::Send {
                    kind: SendKind::Tagged(msg.tag),
                    iov: segs.as_slice(),
                    data: data_of(flags, msg.data),
                    dest: FiAddr(msg.addr),
                    context: msg.context.expose_provenance(),
                    flags,
                },
            )
        }
        abi::FI_OP_READ | abi::FI_OP_WRITE => {
            // SAFETY: as above.
            let op = unsafe { operation::<abi::fi_op_rma>(work) }?;
            // SAFETY: as above.
            let ep = unsafe { endpoint_of(op.ep, domain) }?;
            let flags = Flags::from_bits_retain(op.flags);
            // SAFETY: as above.
            let remote = unsafe { Remote::of(&op.msg) }?;
            let (iov, count) = (op.msg.msg_iov, op.msg.iov_count);
            if work.op_type == abi::FI_OP_READ {
                // SAFETY: as above.
                let segs = unsafe { buffers::results(iov, count) }?;
                let call = remote.call(&op.msg, flags, None);
                return put(ep, &DataCall::Read(segs.as_slice(), call));
            }
            // SAFETY: as above.
            let segs = unsafe { buffers::sources(iov, count) }?;
            let call = remote.call(&op.msg, flags, data_of(flags, op.msg.data));
            put(ep, &DataCall::Write(segs.as_slice(), call))
        }
        // SAFETY: as above.
        _ => unsafe { atomic(domain, work, put) },
    }
}

/// As [`data`], for atomics.
///
/// # Errors
/// [`Errno::ENOSYS`] for what is no operation. Collectives are none: `rdma/fi_trigger.h` of
/// 2.6.0 has neither a type nor a struct for deferred ones.
///
/// # Safety
///
/// As for [`queue`].
unsafe fn atomic<D: Domain>(
    domain: &Arc<D>,
    work: &abi::fi_deferred_work,
    put: impl FnOnce(At<'_, D>, &DataCall<'_>) -> Result<()>,
) -> Result<()> {
    let (kind, ep, msg, more, flags) = match work.op_type {
        abi::FI_OP_ATOMIC => {
            // SAFETY: the caller's guarantee, and the type says which member it is.
            let op = unsafe { operation::<abi::fi_op_atomic>(work) }?;
            (AtomicKind::Plain, op.ep, &op.msg, More::default(), op.flags)
        }
        abi::FI_OP_FETCH_ATOMIC => {
            // SAFETY: as above.
            let op = unsafe { operation::<abi::fi_op_fetch_atomic>(work) }?;
            let more = More {
                result: (op.fetch.msg_iov, op.fetch.iov_count),
                ..More::default()
            };
            (AtomicKind::Fetch, op.ep, &op.msg, more, op.flags)
        }
        abi::FI_OP_COMPARE_ATOMIC => {
            // SAFETY: as above.
            let op = unsafe { operation::<abi::fi_op_compare_atomic>(work) }?;
            let more = More {
                compare: (op.compare.msg_iov, op.compare.iov_count),
                result: (op.fetch.msg_iov, op.fetch.iov_count),
            };
            (AtomicKind::Compare, op.ep, &op.msg, more, op.flags)
        }
        _ => return Err(Errno::ENOSYS),
    };
    // SAFETY: as above.
    let ep = unsafe { endpoint_of(ep, domain) }?;
    // SAFETY: as above.
    let message = unsafe { Message::read(kind, msg, &more, flags) }?;
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
///
/// # Safety
///
/// As for [`receiver_of`].
unsafe fn endpoint_of<'a, D: Domain>(ep: *mut abi::fid_ep, domain: &Arc<D>) -> Result<At<'a, D>> {
    // SAFETY: the caller's guarantee.
    match unsafe { receiver_of(ep, domain) }? {
        ep @ At::Ep(_) => Ok(ep),
        At::Srx(_) => Err(Errno::EINVAL),
    }
}

/// The endpoint behind a `fid_ep`, or behind an alias of it, or the shared receive context.
///
/// # Errors
/// [`Errno::EINVAL`] for null, what is no endpoint, and one of another domain.
///
/// # Safety
///
/// `ep` is null or an open object.
unsafe fn receiver_of<'a, D: Domain>(ep: *mut abi::fid_ep, domain: &Arc<D>) -> Result<At<'a, D>> {
    let fid = ep.cast::<abi::fid>();
    // SAFETY: the caller's guarantee, for this and the block below.
    match unsafe { object::class_of(fid) } {
        Some(class @ (abi::FI_CLASS_EP | abi::FI_CLASS_TX_CTX | abi::FI_CLASS_RX_CTX)) => {
            // SAFETY: as above.
            let (ep, of) = unsafe { endpoint::behind::<D>(fid, class) }?;
            same_domain(domain, of)?;
            Ok(At::Ep(ep))
        }
        Some(class @ abi::FI_CLASS_SRX_CTX) => {
            // SAFETY: as above.
            let srx = unsafe { object::cast::<SrxBody<D>>(fid, class) }?;
            same_domain(domain, &srx.domain)?;
            Ok(At::Srx(&srx.srx))
        }
        _ => Err(Errno::EINVAL),
    }
}
