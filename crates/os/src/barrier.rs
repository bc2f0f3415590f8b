//! Memory barriers on all processors at once (`membarrier(2)`).

use ripstop_types::Result;
use rustix::thread::{MembarrierCommand, membarrier};

use crate::errno::errno;

/// Lets [`everywhere`] of other processes reach this one. To be called by each process that
/// takes part, once, before it relies on them.
///
/// # Errors
///
/// `ENOSYS`, `EINVAL` or `EPERM` where the kernel or a filter does not let it.
pub fn register() -> Result<()> {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).map_err(errno)
}

/// A full memory barrier on every processor that runs a registered process, and here. 0.4 to
/// 0.7 us.
///
/// # Errors
///
/// As for [`register`].
pub fn everywhere() -> Result<()> {
    membarrier(MembarrierCommand::GlobalExpedited).map_err(errno)
}

#[cfg(test)]
mod tests {
    use ripstop_types::Errno;

    /// A sandbox may refuse both: never just one.
    #[test]
    fn whoever_registers_may_ask() {
        let registered = super::register();
        assert_eq!(super::register(), registered, "twice is as good as once");
        match registered {
            Ok(()) => assert_eq!(super::everywhere(), Ok(())),
            Err(error) => assert!([Errno::ENOSYS, Errno::EINVAL, Errno::EPERM].contains(&error)),
        }
    }
}
