#![allow(unsafe_code)]
//! Registered memory.

use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use ripstop_mem::UserBuf;
use ripstop_types::Result;

use crate::device::Pd;
use crate::library::last_errno;
use crate::sys::ibv_mr;

bitflags::bitflags! {
    /// What a device may do with registered memory (`enum ibv_access_flags`). It may always read it for
    /// requests of this process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Write it for receives, reads and results of atomics of this process.
        const LOCAL_WRITE = 1;
        /// Write it for peers that know the key; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// Read it for peers that know the key.
        const REMOTE_READ = 4;
        /// Carry out atomics for peers that know the key; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 8;
    }
}

/// A registered memory region. The device reaches the memory as long as this lives, and the pages stay in
/// memory (`ibv_reg_mr(3)`).
pub struct Mr {
    pd: Arc<Pd>,
    raw: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    len: usize,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers memory. What [`UserBuf`] says of its use after completion holds: as long as the region
    /// lives, peers may do with the memory what `access` lets them.
    ///
    /// # Errors
    /// What `ibv_reg_mr(3)` says: [`EFAULT`](ripstop_types::Errno::EFAULT) for addresses without memory,
    /// [`ENOMEM`](ripstop_types::Errno::ENOMEM) also beyond the limit of locked memory (`ulimit -l`).
    pub fn register(pd: &Arc<Pd>, buf: UserBuf, access: Access) -> Result<Self> {
        let library = pd.context.library;
        let start = buf.as_ptr().cast();
        // The flags fit: there are four.
        let access = access.bits() as c_int;
        // SAFETY: a live protection domain. The memory is the caller's, who keeps it as long as the
        // region is open (`UserBuf`); addresses without memory are refused by the kernel.
        let raw = unsafe { (library.ibv.ibv_reg_mr)(pd.raw.as_ptr(), start, buf.len(), access) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // SAFETY: just made; these fields are set by the library and stay.
        let lkey = unsafe { (*raw.as_ptr()).lkey };
        // SAFETY: as for the other key.
        let rkey = unsafe { (*raw.as_ptr()).rkey };
        let pd = Arc::clone(pd);
        let len = buf.len();
        Ok(Self {
            pd,
            raw,
            lkey,
            rkey,
            len,
        })
    }

    /// The key by which requests of this process name the region.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which peers name the region.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The protection domain it was registered with.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({} B, key {:#x})", self.len, self.rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let library = self.pd.context.library;
        // SAFETY: made by `ibv_reg_mr`, and freed once. Requests that name its key afterwards fail.
        unsafe { (library.ibv.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}
