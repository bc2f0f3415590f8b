#![allow(unsafe_code)]
//! Memory of this library that an operation reads: inline data, and operands of atomics.

use ripstop_mem::Parked;

/// Frees what was lent to an operation. For the queue pair only, once the provider has reported the end of the
/// operation, or the endpoint that it was posted to is dropped, or it was never posted.
pub(crate) fn free(lent: Parked) {
    // SAFETY: the caller says that the operation has ended, so by the contract of
    // `ripstop_core::provider` nobody uses a copy of the buffer any more.
    drop(unsafe { lent.unpark() });
}
