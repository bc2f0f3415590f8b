#![allow(unsafe_code)]
//! Buffers that come back from a provider under test. The tests of `tcp` and `foreign` include this file.

use ripstop_mem::Parked;

/// The vector of a buffer, which the test looks at, overwrites or frees.
///
/// Only for a buffer that the provider must not use any more: the completion of its operation was
/// read, the call that took it was refused, or has returned and was to copy it, or the endpoint or
/// region that had it is closed.
pub(crate) fn unpark(parked: Parked) -> Vec<u8> {
    // SAFETY: tests give a `UserBuf` to the provider and do not use it themselves after that, and the
    // provider must not by the rules above. That it keeps them is what is tested: one that does not
    // uses freed memory in the process of a test, which the job `asan` shows.
    unsafe { parked.unpark() }
}
