#![allow(unsafe_code)]
//! Triggered operations (`fi_trigger(3)`): data transfers whose flags have `FI_TRIGGER`, and
//! whose context says when they start.

use core::ptr;

use ripstop_abi as abi;
use ripstop_core::provider::{
    AtomicCall, DataCall, Domain, Endpoint, RecvKind, RmaCall, SendKind, Threshold,
};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, FiAddr, Flags, Result};

use super::{Defaults, EpBody};
use crate::counter;

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

    /// Posts a call when its context says. With `FI_TRIGGER` that is null or a
    /// `struct fi_triggered_context`, or its larger form, which begins alike.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a context that names no counter of the domain, or an event that is
    /// none; [`Errno::ENOSYS`] for `FI_TRIGGER_XPU`, which no provider here has.
    #[cold]
    #[inline(never)]
    fn trigger(&self, call: &DataCall<'_>, context: usize) -> Result<()> {
        let context = ptr::with_exposed_provenance::<abi::fi_triggered_context>(context);
        // SAFETY: null or valid, as `fi_trigger(3)` asks of the caller.
        let context = unsafe { context.as_ref() }.ok_or(Errno::EINVAL)?;
        match context.event_type {
            abi::FI_TRIGGER_THRESHOLD => {}
            abi::FI_TRIGGER_XPU => return Err(Errno::ENOSYS),
            _ => return Err(Errno::EINVAL),
        }
        // SAFETY: that event has this member; any bytes are a value of it.
        let when = unsafe { context.trigger.threshold };
        // SAFETY: null or an open object, as `fi_trigger(3)` asks of the caller.
        let counter = unsafe { counter::of_domain::<D>(when.cntr, &self.domain) }?;
        let value = when.threshold as u64;
        self.ep.trigger(call, Threshold { counter, value })
    }
}
