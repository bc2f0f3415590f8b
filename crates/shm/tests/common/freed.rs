#![allow(unsafe_code)]
//! Memory that comes back from the provider.

use ripstop_mem::Parked;
use ripstop_os::SharedBuf;

/// The vector of a buffer that the provider must not use any more: the completion of its operation was
/// read, or the call that took it was refused.
pub(crate) fn unpark(parked: Parked) -> Vec<u8> {
    // SAFETY: tests do not use the `UserBuf` themselves once they take the buffer back, and the
    // provider does not by the rule above, which is tested.
    unsafe { parked.unpark() }
}

/// Unmaps memory after its registration, or before, where a test is about memory that goes away.
pub(crate) fn free(memory: SharedBuf) {
    // SAFETY: tests do not use the `UserBuf` any more. The provider accesses registered memory only
    // for its peers, and where it is gone by calls of the system that fail.
    unsafe { memory.free() }
}
