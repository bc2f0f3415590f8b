#![allow(unsafe_code)]
//! Registering memory in each form there is, `fi_mr`(3), and what a registration is bound to.

use std::ptr;

use ripstop_abi::{FI_ENABLE, fi_mr_attr, fi_mr_attr_iov, fi_ops_mr, fid, fid_mr, iovec};
use ripstop_types::{Errno, Flags};

use crate::call::{self, ENOSYS, op};
use crate::probe::{Bound, Close};
use crate::threading::{Lock as _, Threading};
use crate::{Error, Mr, Region, Result};

/// Which call registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// `fi_mr_reg`.
    #[default]
    Reg,
    /// `fi_mr_regv`.
    Regv,
    /// `fi_mr_regattr`.
    Regattr,
}

/// How to register (`struct fi_mr_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Registration {
    /// Which call.
    pub form: Form,
    /// What the memory may be used for.
    pub access: Flags,
    /// Reserved: 0 for callers who mean it well.
    pub offset: u64,
    /// The key to ask for.
    pub key: u64,
    /// Flags of the call.
    pub flags: Flags,
    /// Parts of the memory, in the order in which they form the registration: offset and
    /// length of each. Empty for all of it in one piece; else not for `fi_mr_reg`.
    pub pieces: &'static [(usize, usize)],
}

impl<M: Threading> Region<M> {
    /// Registers the whole region.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn register_as(&self, how: &Registration) -> Result<Mr<M>> {
        let domain = self.domain().get();
        // SAFETY: the domain is open.
        let table: *const fi_ops_mr = unsafe { (*domain).mr };
        let fid: *mut fid = domain.cast();
        let mut mr: *mut fid_mr = ptr::null_mut();
        let whole = [(0, self.len())];
        let pieces: &[(usize, usize)] = match how.pieces {
            [] => &whole,
            pieces => pieces,
        };
        let inside = |(start, len): &(usize, usize)| {
            start.checked_add(*len).is_some_and(|end| end <= self.len())
        };
        if !pieces.iter().all(inside) {
            return Err(Error::new("fi_mr_regv", Errno::EINVAL));
        }
        let piece = |(start, len): &(usize, usize)| iovec {
            iov_base: self.base().wrapping_add(*start).cast(),
            iov_len: *len,
        };
        let iovs: Vec<iovec> = pieces.iter().map(piece).collect();
        let (iov, count) = (iovs[0], iovs.len());
        let (access, offset, key) = (how.access.bits(), how.offset, how.key);
        let (flags, context) = (how.flags.bits(), ptr::null_mut());
        let (call, ret) = match how.form {
            Form::Reg => (
                "fi_mr_reg",
                op!(table, fi_ops_mr.reg).map(|reg| {
                    let (base, len, out) = (iov.iov_base, iov.iov_len, &raw mut mr);
                    // SAFETY: the memory outlives the domain, `mr` takes the result.
                    unsafe { reg(fid, base, len, access, offset, key, flags, out, context) }
                }),
            ),
            Form::Regv => (
                "fi_mr_regv",
                op!(table, fi_ops_mr.regv).map(|regv| {
                    let (iov, out) = (iovs.as_ptr(), &raw mut mr);
                    // SAFETY: as above, and `iov` has `count` pieces.
                    unsafe { regv(fid, iov, count, access, offset, key, flags, out, context) }
                }),
            ),
            Form::Regattr => (
                "fi_mr_regattr",
                op!(table, fi_ops_mr.regattr).map(|regattr| {
                    let attr = fi_mr_attr {
                        mr: fi_mr_attr_iov {
                            mr_iov: iovs.as_ptr(),
                        },
                        iov_count: count,
                        access,
                        offset,
                        requested_key: key,
                        ..Default::default()
                    };
                    // SAFETY: as above, and the attributes are whole.
                    unsafe { regattr(fid, &raw const attr, flags, &raw mut mr) }
                }),
            ),
        };
        self.registered(call, ret.unwrap_or(ENOSYS), mr)
    }
}

impl<M: Threading> Mr<M> {
    fn fid(&self) -> *mut fid {
        let ptr = self.ptr.as_ref();
        ptr.map_or(ptr::null_mut(), |ptr| ptr.get().cast())
    }

    /// Binds a counter or an endpoint to it (`fi_mr_bind`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn bind(&self, to: &Bound<'_, M>, flags: Flags) -> Result<()> {
        let (kept, fid) = to.keep();
        call::bind("fi_mr_bind", self.fid(), fid, flags.bits())?;
        self.bound.with(|bound| bound.push(kept));
        Ok(())
    }

    /// Enables it (`fi_mr_enable`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn enable(&self) -> Result<()> {
        call::command("fi_mr_enable", self.fid(), FI_ENABLE)
    }
}

impl<M: Threading> Close for Mr<M> {
    fn close(mut self) -> std::result::Result<(), (Self, Error)> {
        match call::close(self.fid()) {
            Ok(()) => {
                self.ptr = None;
                Ok(())
            }
            Err(error) => Err((self, error)),
        }
    }
}
