#![allow(unsafe_code)]
//! Payload that was copied when an injected operation began to wait.

use ripstop_mem::{Parked, UserBuf};

/// A copy of payload, for an operation that is posted with `FI_INJECT`, and freed with it.
#[derive(Debug)]
pub(super) struct Payload(Option<Parked>);

impl Payload {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self(Some(Parked::park(bytes)))
    }

    /// What the operation is posted with.
    pub(super) fn buf(&self) -> UserBuf {
        self.0.as_ref().map_or(UserBuf::EMPTY, Parked::buf)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        if let Some(copy) = self.0.take() {
            // SAFETY: only the `Data` that holds this has the `UserBuf`. It posts it with `FI_INJECT`
            // (`Data::copy_payload` sees to that), so that the call which posts it has copied the
            // bytes when it returns, and what it refuses it does not keep.
            drop(unsafe { copy.unpark() });
        }
    }
}
