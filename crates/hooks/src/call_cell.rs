#![allow(unsafe_code)]
//! Which call something is of, where threads may note and look at it at the same time.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use crate::call::CallInfo;

/// The constant of a call, or none.
#[derive(Debug, Default)]
pub(crate) struct CallCell(AtomicPtr<CallInfo>);

impl CallCell {
    /// The call that was stored last.
    #[inline(always)]
    pub(crate) fn load(&self, order: Ordering) -> Option<&'static CallInfo> {
        let constant = self.0.load(order);
        // SAFETY: null, or stored from a `&'static CallInfo`: the field is private, and `store` is
        // what changes it.
        unsafe { constant.as_ref() }
    }

    /// Notes a call.
    #[inline(always)]
    pub(crate) fn store(&self, call: &'static CallInfo, order: Ordering) {
        self.0.store(ptr::from_ref(call).cast_mut(), order);
    }

    /// Whether this is the call that was stored last.
    #[inline(always)]
    pub(crate) fn is(&self, call: &'static CallInfo, order: Ordering) -> bool {
        ptr::eq(self.0.load(order), call)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_the_call_that_was_stored_last() {
        static SEND: CallInfo = CallInfo::new("fi_send", None);
        static RECV: CallInfo = CallInfo::new("fi_recv", None);
        let cell = CallCell::default();
        assert!(cell.load(Ordering::Acquire).is_none());
        assert!(!cell.is(&SEND, Ordering::Acquire));
        for call in [&SEND, &RECV] {
            cell.store(call, Ordering::Release);
            assert_eq!(cell.load(Ordering::Acquire).unwrap().name, call.name);
            assert!(cell.is(call, Ordering::Acquire));
        }
        assert!(!cell.is(&SEND, Ordering::Acquire));
    }
}
