#![allow(unsafe_code)]
//! What an event queue keeps between the calls of a C program.

use core::ptr;

use ripstop_abi as abi;
use ripstop_core::{Handle, Info};
use ripstop_types::{Errno, Result};

use crate::handles;
use crate::info::{self, write};

/// What a queue keeps between calls.
#[derive(Default)]
pub(super) struct Kept {
    /// Error data of the last error, for programs that gave no buffer.
    pub(super) err_data: Vec<u8>,
    /// The `fi_info` of a connection request that was only looked at: reading the event hands
    /// out the same one.
    peeked: Peeked,
    /// One whose event went without being read, until the queue's lock is free.
    pub(super) stale: Option<Peeked>,
}

/// An `fi_info` that waits for its event to be read.
pub(super) struct Peeked {
    info: *mut abi::fi_info,
    /// The request it is about: another event may have come to the front meanwhile.
    request: Option<Handle>,
}

// SAFETY: nobody else has the memory until it is handed out.
unsafe impl Send for Peeked {}

impl Default for Peeked {
    fn default() -> Self {
        Self {
            info: ptr::null_mut(),
            request: None,
        }
    }
}

impl Drop for Peeked {
    fn drop(&mut self) {
        // SAFETY: null, or made here and never handed out by a read.
        if let Some(info) = unsafe { self.info.as_ref() } {
            handles::forget_request(info.handle);
        }
        // SAFETY: null, or made here and never handed out by a read; the event that would do so is
        // gone.
        unsafe { info::free_list(self.info) };
    }
}

impl Peeked {
    /// The `fi_info` for a request.
    fn of(info: &Info) -> Self {
        Self {
            info: write::info(info),
            request: info.handle.clone(),
        }
    }
}

impl Kept {
    /// The `fi_info` for an event that is looked at, or taken.
    ///
    /// # Errors
    /// [`Errno::ENOMEM`].
    pub(super) fn hand_out(&mut self, info: &Info, consume: bool) -> Result<*mut abi::fi_info> {
        if self.peeked.info.is_null() || self.peeked.request != info.handle {
            self.stale = Some(core::mem::replace(&mut self.peeked, Peeked::of(info)));
        }
        let made = self.peeked.info;
        if made.is_null() {
            return Err(Errno::ENOMEM);
        }
        if consume {
            // From now on it is the program's.
            self.peeked.info = ptr::null_mut();
            self.peeked.request = None;
        }
        Ok(made)
    }
}
