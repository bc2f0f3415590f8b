#![allow(unsafe_code)]
//! What happens when a process forks, and when it exits.

use std::sync::OnceLock;

use ripstop_types::{Errno, Result};

/// Has the functions called by every `fork(2)` of this process from now on, until the object that
/// this code is in is unloaded: `before` in the parent ahead of it, `parent` and `child` behind it
/// in either process (`pthread_atfork(3)`). Only the first call registers anything; all others
/// return what that did.
///
/// The child has one thread, whatever locks others held; `child` must take none that `before` has
/// not taken, and allocate nothing.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub fn at_fork(
    before: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: the functions live as long as this object: glibc forgets them when it is unloaded.
        let code = unsafe { libc::pthread_atfork(Some(before), Some(parent), Some(child)) };
        match code {
            0 => Ok(()),
            _ => Err(Errno::ENOMEM),
        }
    })
}

/// Has a function called when this process exits, or the object that this code is in is unloaded
/// (`atexit(3)`). Only the first call registers anything.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(crate) fn at_exit(function: extern "C" fn()) -> Result<()> {
    static REGISTERED: OnceLock<Result<()>> = OnceLock::new();
    *REGISTERED.get_or_init(|| {
        // SAFETY: the function lives as long as this object, whose functions run when it is unloaded.
        match unsafe { libc::atexit(function) } {
            0 => Ok(()),
            _ => Err(Errno::ENOMEM),
        }
    })
}
