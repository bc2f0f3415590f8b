//! The pieces of memory that an operation moves, as C takes them.

use std::ffi::c_void;
use std::hint::black_box;
use std::ptr;

use ripstop_abi::iovec;
use ripstop_mem::UserBuf;
use ripstop_types::Errno;

use crate::{Error, Result};

/// Pieces one operation may have here.
pub(crate) const MAX_PARTS: usize = 16;

/// An address that nobody has.
pub(crate) const NOWHERE: *mut c_void = ptr::without_provenance_mut(usize::MAX / 3);

const fn iovec_of(base: *mut c_void, len: usize) -> iovec {
    iovec {
        iov_base: base,
        iov_len: len,
    }
}

/// The pieces of an operation, split as C takes them.
pub(crate) struct Parts {
    pub(crate) iov: [iovec; MAX_PARTS],
    pub(crate) desc: [*mut c_void; MAX_PARTS],
    pub(crate) count: usize,
}

impl Parts {
    /// No pieces.
    pub(crate) const NONE: Self = Self {
        iov: [iovec_of(ptr::null_mut(), 0); MAX_PARTS],
        desc: [ptr::null_mut(); MAX_PARTS],
        count: 0,
    };

    /// The pieces for this call, in the order of the groups.
    pub(crate) fn new(call: &'static str, groups: &[&[UserBuf]]) -> Result<Self> {
        let mut parts = Self::NONE;
        for buf in groups.iter().copied().flatten() {
            let iov = parts.iov.get_mut(parts.count);
            *iov.ok_or(Error::new(call, Errno::EINVAL))? = iovec_of(buf.as_ptr().cast(), buf.len());
            parts.count += 1;
        }
        Ok(parts)
    }

    /// Overwrites the arrays once the call has returned, after which nobody may look at them:
    /// a library that does reads where nothing is.
    pub(crate) fn spend(&mut self) {
        *self = Self {
            iov: [iovec_of(NOWHERE, usize::MAX); MAX_PARTS],
            desc: [NOWHERE; MAX_PARTS],
            count: usize::MAX,
        };
        black_box(self);
    }
}
