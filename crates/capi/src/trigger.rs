#![allow(unsafe_code)]
//! Triggered operations (`fi_trigger(3)`): data transfers whose flags have `FI_TRIGGER`, and
//! whose context says when they start.

use core::ptr;
use std::sync::Arc;

use ripstop_abi as abi;
use ripstop_core::provider::{Domain, Threshold};
use ripstop_types::{Errno, Flags, Result};

use crate::counter;
use crate::edge::AnyFid;
use crate::errno::missing;

/// The flags of a call, if it has any and they ask for a trigger.
#[inline(always)]
pub(crate) fn asked(flags: Option<Flags>) -> Option<Flags> {
    flags.filter(|flags| flags.contains(Flags::TRIGGER))
}

/// What the context of a call with `FI_TRIGGER` says that it waits for: it is null or a
/// `struct fi_triggered_context`, or its larger form, which begins alike.
///
/// # Errors
/// [`Errno::EINVAL`] for a context that names no counter, or an event that is none;
/// [`Errno::EDOMAIN`] for a counter of another domain; [`Errno::ENOSYS`] for `FI_TRIGGER_XPU`, which no provider here has.
pub(crate) fn condition<'a, D: Domain>(
    context: usize,
    domain: &Arc<D>,
) -> Result<Threshold<'a, D>> {
    let context = ptr::with_exposed_provenance::<abi::fi_triggered_context>(context);
    // SAFETY: null or such a struct: that is what `fi_trigger(3)` asks of the context of a call
    // whose flags have `FI_TRIGGER`, and only those lead here.
    let context = unsafe { context.as_ref() };
    let context = context.ok_or_else(|| missing("an operation with FI_TRIGGER", "context"))?;
    match context.event_type {
        abi::FI_TRIGGER_THRESHOLD => {}
        abi::FI_TRIGGER_XPU => return Err(Errno::ENOSYS),
        _ => return Err(Errno::EINVAL),
    }
    // SAFETY: that event has this member; any bytes are a value of it.
    let when = unsafe { context.trigger.threshold };
    // SAFETY: the struct names no counter, or one that is open.
    let counter = unsafe { AnyFid::new(when.cntr.cast()) };
    let counter = counter::of_domain::<D>(counter, domain)?;
    let value = when.threshold as u64;
    Ok(Threshold { counter, value })
}
