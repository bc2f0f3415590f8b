#![allow(unsafe_code)]
//! Triggered operations (`fi_trigger(3)`): data transfers whose flags have `FI_TRIGGER`, and
//! whose context says when they start.

use core::ptr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{
    AtomicCall, CollCall, DataCall, Domain, Endpoint, RecvKind, RmaCall, SendKind, SharedRx,
    Threshold,
};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags, Result};

use super::msg::Posted;
use super::{Defaults, EpBody};
use crate::counter;
use crate::object;

/// Whether the flags of a call, if it has any, ask for a trigger.
#[inline(always)]
fn triggers(flags: Option<Flags>) -> Option<Flags> {
    flags.filter(|flags| flags.contains(Flags::TRIGGER))
}

impl<D: Domain, M: Defaults> EpBody<D, M> {
    #[inline(always)]
    pub(super) fn send(
        &self,
        kind: SendKind,
        iov: &[UserBuf],
        data: Option<u64>,
        dest: FiAddr,
        context: usize,
        flags: Option<Flags>,
    ) -> Result<()> {
        if let Some(flags) = triggers(flags) {
            let call = DataCall::Send {
                kind,
                iov,
                data,
                dest,
                context,
                flags,
            };
            return self.trigger(&call, context);
        }
        self.ep.send(kind, iov, data, dest, context, flags)
    }

    #[inline(always)]
    pub(super) fn recv(
        &self,
        kind: RecvKind,
        iov: &[UserBuf],
        src: FiAddr,
        context: usize,
        flags: Option<Flags>,
    ) -> Result<()> {
        if let Some(flags) = triggers(flags) {
            let call = DataCall::Recv {
                kind,
                iov,
                src,
                context,
                flags,
            };
            return self.trigger(&call, context);
        }
        self.ep.recv(kind, iov, src, context, flags)
    }

    #[inline(always)]
    pub(super) fn read(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if triggers(call.flags).is_some() {
            return self.trigger(&DataCall::Read(iov, *call), call.context);
        }
        self.ep.read(iov, call)
    }

    #[inline(always)]
    pub(super) fn write(&self, iov: &[UserBuf], call: &RmaCall<'_>) -> Result<()> {
        if triggers(call.flags).is_some() {
            return self.trigger(&DataCall::Write(iov, *call), call.context);
        }
        self.ep.write(iov, call)
    }

    #[inline(always)]
    pub(super) fn atomic(&self, operand: &[UserBuf], call: &AtomicCall<'_>) -> Result<()> {
        if triggers(call.flags).is_some() {
            return self.trigger(&DataCall::Atomic(operand, *call), call.context);
        }
        self.ep.atomic(operand, call)
    }

    pub(super) fn collective(
        &self,
        input: UserBuf,
        result: UserBuf,
        call: &CollCall,
    ) -> Result<()> {
        if triggers(call.flags).is_some() {
            let put_off = DataCall::Collective([input, result], *call);
            return self.trigger(&put_off, call.context);
        }
        self.ep.collective(input, result, call)
    }

    /// Posts a call when its context says.
    ///
    /// # Errors
    /// As for [`condition`].
    #[cold]
    #[inline(never)]
    fn trigger(&self, call: &DataCall<'_>, context: usize) -> Result<()> {
        // SAFETY: the context of a call with `FI_TRIGGER` is as `fi_trigger(3)` asks.
        let when = unsafe { condition(context, &self.domain) }?;
        self.ep.trigger(call, when)
    }
}

/// A receive on a shared context, which its own context may put off.
///
/// # Errors
/// As for [`condition`].
#[inline]
pub(crate) fn shared_recv<D: Domain>(
    srx: &D::SharedRx,
    domain: &Arc<D>,
    posted: &Posted,
) -> Result<()> {
    if !posted.flags.contains(Flags::TRIGGER) {
        return posted
            .to(|kind, segs, src, context, flags| srx.recv(kind, segs, src, context, flags));
    }
    // SAFETY: the context of a call with `FI_TRIGGER` is as `fi_trigger(3)` asks.
    let when = unsafe { condition(posted.context, domain) }?;
    srx.trigger(&posted.call(), when)
}

/// What the context of a call with `FI_TRIGGER` says that it waits for: it is null or a
/// `struct fi_triggered_context`, or its larger form, which begins alike.
///
/// # Errors
/// [`Errno::EINVAL`] for a context that names no counter of the domain, or an event that is
/// none; [`Errno::ENOSYS`] for `FI_TRIGGER_XPU`, which no provider here has.
///
/// # Safety
///
/// `context` is null or valid, and names no counter or an open one.
unsafe fn condition<'a, D: Domain>(context: usize, domain: &Arc<D>) -> Result<Threshold<'a, D>> {
    let context = ptr::with_exposed_provenance::<abi::fi_triggered_context>(context);
    // SAFETY: the caller's guarantee.
    let context = unsafe { context.as_ref() };
    let context =
        context.ok_or_else(|| object::missing("an operation with FI_TRIGGER", "context"))?;
    match context.event_type {
        abi::FI_TRIGGER_THRESHOLD => {}
        abi::FI_TRIGGER_XPU => return Err(Errno::ENOSYS),
        _ => return Err(Errno::EINVAL),
    }
    // SAFETY: that event has this member; any bytes are a value of it.
    let when = unsafe { context.trigger.threshold };
    // SAFETY: the caller's guarantee.
    let counter = unsafe { counter::of_domain::<D>(when.cntr, domain) }?;
    let value = when.threshold as u64;
    Ok(Threshold { counter, value })
}
