#![allow(unsafe_code)]
//! Registering memory in each form there is, `fi_mr`(3), and what a registration is bound to.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{FI_ENABLE, fi_mr_attr, fi_mr_attr_iov, fi_ops_mr, fid, fid_mr, iovec};
use ripstop_mem::UserBuf;
use ripstop_types::{Errno, Flags};

use crate::call::{self, ENOSYS, op};
use crate::domain::DomainCore;
use crate::fabric::opened;
use crate::probe::{Bound, Close, Kept};
use crate::threading::{Lock as _, Ptr, Threading};
use crate::{Domain, Error, Mr, Region, Result};

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
        let (call, ret, mr) = register(self.domain(), &iovs, how);
        self.registered(call, ret, mr)
    }
}

/// Registers memory that outlives the domain, or whose maker has promised that it stays until the
/// registration has ended: the call, what it returned, and the registration. There is at least one
/// piece.
fn register<M: Threading>(
    domain: &DomainCore<M>,
    iovs: &[iovec],
    how: &Registration,
) -> (&'static str, c_int, *mut fid_mr) {
    let domain = domain.get();
    // SAFETY: the domain is open.
    let table: *const fi_ops_mr = unsafe { (*domain).mr };
    let fid: *mut fid = domain.cast();
    let mut mr: *mut fid_mr = ptr::null_mut();
    let (iov, count) = (iovs[0], iovs.len());
    let (access, offset, key) = (how.access.bits(), how.offset, how.key);
    let (flags, context) = (how.flags.bits(), ptr::null_mut());
    let (call, ret) = match how.form {
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
    (call, ret.unwrap_or(ENOSYS), mr)
}

/// A registration of memory that stays with the caller, who has promised with each [`UserBuf`] that
/// it stays until this has ended.
pub(crate) struct UserMr<M: Threading> {
    ptr: M::Lock<Option<Ptr<fid_mr, M>>>,
    key: u64,
    domain: Arc<DomainCore<M>>,
    /// What it is bound to; closes after it.
    bound: M::Lock<Vec<Kept<M>>>,
}

impl<M: Threading> UserMr<M> {
    /// Registers memory of at least one piece.
    pub(crate) fn new(domain: &Domain<M>, iov: &[UserBuf], how: &Registration) -> Result<Self> {
        let piece = |buf: &UserBuf| iovec {
            iov_base: buf.as_ptr().cast(),
            iov_len: buf.len(),
        };
        let iovs: Vec<iovec> = iov.iter().map(piece).collect();
        if iovs.is_empty() {
            return Err(Error::new("fi_mr_reg", Errno::EINVAL));
        }
        let (call, ret, mr) = register(&domain.core, &iovs, how);
        let ptr = opened(call, ret, mr)?;
        Ok(Self {
            // SAFETY: the registration is live.
            key: unsafe { (*mr).key },
            ptr: M::Lock::new(Some(ptr)),
            domain: domain.core.clone(),
            bound: M::Lock::new(Vec::new()),
        })
    }

    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    /// As [`Mr::bind`].
    pub(crate) fn bind(&self, to: &Bound<'_, M>, flags: Flags) -> Result<()> {
        let (kept, fid) = to.keep();
        self.ptr.with(|ptr| match ptr {
            Some(ptr) => call::bind("fi_mr_bind", ptr.get().cast(), fid, flags.bits()),
            None => Err(Error::new("fi_mr_bind", Errno::EINVAL)),
        })?;
        self.bound.with(|bound| bound.push(kept));
        Ok(())
    }

    /// Ends it, if the library agrees or it has ended.
    pub(crate) fn try_close(&self) -> Result<()> {
        self.ptr.with(|ptr| {
            if let Some(open) = ptr {
                call::close(open.get().cast())?;
                *ptr = None;
            }
            Ok(())
        })
    }
}

impl<M: Threading> Drop for UserMr<M> {
    fn drop(&mut self) {
        if self.try_close().is_err() {
            // It lives on, with all that it uses.
            std::mem::forget(self.domain.clone());
            std::mem::forget(self.bound.with(std::mem::take));
        }
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
