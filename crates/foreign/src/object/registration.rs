#![allow(unsafe_code)]
//! Registering memory in each form there is, `fi_mr`(3), and what a registration is bound to.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{FI_ENABLE, fi_mr_attr, fi_mr_attr_iov, fi_ops_mr, fid, fid_mr, iovec};
use ripstop_core::provider::MrAttr;
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags};

use super::Object;
use crate::call::{self, ENOSYS, op};
use crate::fabric::opened;
use crate::owned::Owned;
use crate::threading::{Lock as _, Threading};
use crate::{Domain, Error, Result};

/// Which call registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `fi_mr_reg`.
    Reg,
    /// `fi_mr_regv`.
    Regv,
    /// `fi_mr_regattr`.
    Regattr,
}

/// Registers memory whose maker has promised that it stays until the registration has ended: the
/// call, what it returned, and the registration. There is at least one piece.
fn register<M: Threading>(
    domain: &Domain<M>,
    iovs: &[iovec],
    form: Form,
    how: &MrAttr,
) -> (&'static str, c_int, *mut fid_mr) {
    let domain = domain.owned.get();
    // SAFETY: the domain is open.
    let table: *const fi_ops_mr = unsafe { (*domain).mr };
    let fid: *mut fid = domain.cast();
    let mut mr: *mut fid_mr = ptr::null_mut();
    let (iov, count) = (iovs[0], iovs.len());
    let (access, offset, key) = (how.access.bits(), how.offset, how.requested_key);
    let (flags, context) = (how.flags.bits(), ptr::null_mut());
    let (call, ret) = match form {
        Form::Reg => (
            "fi_mr_reg",
            op!(table, fi_ops_mr.reg).map(|reg| {
                let (base, len, out) = (iov.iov_base, iov.iov_len, &raw mut mr);
                // SAFETY: the memory stays, as the caller says, and `mr` takes the result.
                unsafe { reg(fid, base, len, access, offset, key, flags, out, context) }
            }),
        ),
        Form::Regv => (
            "fi_mr_regv",
            op!(table, fi_ops_mr.regv).map(|regv| {
                let (iov, out) = (iovs.as_ptr(), &raw mut mr);
                // SAFETY: `iov` has `count` pieces, whose memory stays, as the caller says; the
                // domain is open and `mr` takes the result.
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
                // SAFETY: the attributes are whole and name `count` pieces, whose memory stays, as
                // the caller says; the domain is open and `mr` takes the result.
                unsafe { regattr(fid, &raw const attr, flags, &raw mut mr) }
            }),
        ),
    };
    (call, ret.unwrap_or(ENOSYS), mr)
}

/// A registration of memory that stays with the caller, who has promised with each [`UserBuf`] that
/// it stays until this has ended.
pub struct Mr<M: Threading> {
    pub(crate) owned: Owned<fid_mr, M, Arc<Domain<M>>>,
    pub(crate) number: u64,
    /// What it is bound to; closes after it.
    bound: M::Lock<Vec<Object<M>>>,
}

impl<M: Threading> Domain<M> {
    /// Registers memory of at least one piece by this call. Whether peers may map it is the
    /// library's affair: C callers cannot say.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn register(self: &Arc<Self>, form: Form, how: &MrAttr) -> Result<Arc<Mr<M>>> {
        let piece = |buf: &UserBuf| iovec {
            iov_base: buf.as_ptr().cast(),
            iov_len: buf.len(),
        };
        let iovs: Vec<iovec> = how.iov.iter().map(piece).collect();
        if iovs.is_empty() {
            return Err(Error::new("fi_mr_reg", Errno::EINVAL));
        }
        let (call, ret, mr) = register(self, &iovs, form, how);
        let ptr = opened(call, ret, mr)?;
        Ok(Arc::new(Mr {
            // SAFETY: the registration is live.
            number: unsafe { (*mr).key },
            owned: Owned::new(ptr, self.clone()),
            bound: M::Lock::new(Vec::new()),
        }))
    }
}

impl<M: Threading> Mr<M> {
    pub(crate) fn bind(&self, to: Object<M>, flags: Flags) -> Result<()> {
        call::bind("fi_mr_bind", self.owned.fid(), to.fid(), flags.bits())?;
        self.bound.with(|bound| bound.push(to));
        Ok(())
    }

    /// Enables it (`fi_mr_enable`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn enable(&self) -> Result<()> {
        call::command("fi_mr_enable", self.owned.fid(), FI_ENABLE)
    }
}

impl<M: Threading> Drop for Mr<M> {
    fn drop(&mut self) {
        if !self.owned.close() {
            // It lives on, with all that it uses.
            std::mem::forget(self.bound.with(std::mem::take));
        }
    }
}
