#![allow(unsafe_code)]
//! `fi_fabric`(3).

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::history::fi_info_1_1;
use ripstop_abi::{
    fi_eq_attr, fi_fabric_attr, fi_ops_fabric, fid, fid_domain, fid_eq, fid_fabric, fid_pep,
};
use ripstop_types::{Errno, Flags, Threading as Level, WaitObj};

use crate::call::{ENOSYS, op};
use crate::domain::DomainOptions;
use crate::guard;
use crate::info::Info;
use crate::library::{Functions, GLOBAL};
use crate::owned::Owned;
use crate::threading::{Ptr, Shared, Threading};
use crate::{Cntr, Cq, Domain, Eq, Error, Pep, Result};

/// An open fabric. Any thread may use it, and the queues and passive endpoints that are opened from it.
/// Clones share it.
pub struct Fabric {
    pub(crate) core: Arc<FabricCore>,
}

pub(crate) type FabricCore = Owned<fid_fabric, Shared, Arc<Functions>>;

impl Clone for Fabric {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

impl Fabric {
    pub(crate) fn open(info: &Info) -> Result<Self> {
        let functions = info.functions();
        let mut info = info.duplicate("fi_fabric", functions)?;
        let top: *mut fi_info_1_1 = info.as_mut_ptr().cast();
        // SAFETY: the copied info is live, and ours alone.
        let attr = unsafe { (*top).fabric_attr };
        if attr.is_null() {
            return Err(Error::new("fi_fabric", Errno::EINVAL));
        }
        // SAFETY: the attributes are a live part of the info.
        unsafe { Self::open_raw(functions, attr) }
    }

    /// # Safety
    ///
    /// The attributes are whole, and live until the call returns.
    pub(crate) unsafe fn open_raw(
        functions: &Arc<Functions>,
        attr: *mut fi_fabric_attr,
    ) -> Result<Self> {
        let mut fabric: *mut fid_fabric = ptr::null_mut();
        let guard = GLOBAL.lock();
        // SAFETY: the attributes are as the caller promises, `fabric` takes the result.
        let ret = unsafe { (functions.fabric)(attr, &raw mut fabric, ptr::null_mut()) };
        drop(guard);
        let fabric = opened("fi_fabric", ret, fabric)?;
        Ok(Self {
            core: Arc::new(Owned::new(fabric, functions.clone())),
        })
    }

    pub(crate) fn table(&self) -> *const fi_ops_fabric {
        // SAFETY: the fabric is open.
        unsafe { (*self.core.get()).ops }
    }

    /// Opens the domain of `info` (`fi_domain`). The mode of everything below it is chosen here, as in
    /// `fabric.domain::<Shared>(&info)`.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the objects are [`Shared`] and `info` is not for
    /// `FI_THREAD_SAFE`: ask for that level in the hints, or serialise the calls yourself on a
    /// library opened unguarded. Else what the library says.
    pub fn domain<M: Threading>(&self, info: &Info) -> Result<Domain<M>> {
        self.domain_with(info, DomainOptions::default())
    }

    /// Like [`Fabric::domain`], with bounds of this crate's own.
    ///
    /// # Errors
    ///
    /// As [`Fabric::domain`].
    pub fn domain_with<M: Threading>(
        &self,
        info: &Info,
        options: DomainOptions,
    ) -> Result<Domain<M>> {
        let serialised = info.threading() != Level::Safe;
        if M::SHARED && serialised && self.core.parent().guarded {
            return Err(Error::new("fi_domain", Errno::EINVAL));
        }
        let mut copy = info.duplicate("fi_domain", self.core.parent())?;
        let mut domain: *mut fid_domain = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.domain) {
            // SAFETY: fabric and info are live, `domain` takes the result.
            Some(open) => unsafe {
                open(
                    self.core.get(),
                    copy.as_mut_ptr(),
                    &raw mut domain,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        let domain = opened("fi_domain", ret, domain)?;
        Ok(Domain::new(domain, self.core.clone(), info, options))
    }

    /// Opens an event queue (`fi_eq_open`) of at least `size` events, 0 for the provider's
    /// choice. [`WaitObj::Set`] is not supported.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn eq(&self, size: usize, wait: WaitObj) -> Result<Eq> {
        self.open_eq(size, wait, Flags::empty())
    }

    pub(crate) fn open_eq(&self, size: usize, wait: WaitObj, flags: Flags) -> Result<Eq> {
        let mut attr = fi_eq_attr {
            size,
            flags: flags.bits(),
            wait_obj: wait.raw(),
            ..Default::default()
        };
        let mut eq: *mut fid_eq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.eq_open) {
            // SAFETY: fabric and attributes are live, `eq` takes the result.
            Some(open) => unsafe {
                open(self.core.get(), &raw mut attr, &raw mut eq, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let eq = opened("fi_eq_open", ret, eq)?;
        Ok(Eq::new(eq, self.core.clone(), wait))
    }

    /// Opens a passive endpoint (`fi_passive_ep`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn passive_ep(&self, info: &Info) -> Result<Pep> {
        let mut copy = info.duplicate("fi_passive_ep", self.core.parent())?;
        let mut pep: *mut fid_pep = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.passive_ep) {
            // SAFETY: fabric and info are live, `pep` takes the result.
            Some(open) => unsafe {
                open(
                    self.core.get(),
                    copy.as_mut_ptr(),
                    &raw mut pep,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        Ok(Pep::new(
            opened("fi_passive_ep", ret, pep)?,
            self.core.clone(),
            info,
        ))
    }

    /// Whether the wait objects of these queues may be waited on (`fi_trywait`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when one of them has something to read, `FI_EINVAL` when one belongs to
    /// another fabric or has no wait object to poll, and what the library says.
    pub fn trywait(&self, objects: &[&dyn Waitable]) -> Result<()> {
        let mut fids = Vec::with_capacity(objects.len());
        for object in objects {
            let (fid, fabric, wait) = object.waitable();
            let pollable = guard::pollable(wait) || !self.core.parent().guarded;
            if fabric != Arc::as_ptr(&self.core) || !pollable {
                return Err(Error::new("fi_trywait", Errno::EINVAL));
            }
            fids.push(fid);
        }
        let count =
            c_int::try_from(fids.len()).map_err(|_| Error::new("fi_trywait", Errno::EINVAL))?;
        let ret = match op!(self.table(), fi_ops_fabric.trywait) {
            // SAFETY: the objects are open, borrowed, and of this fabric.
            Some(trywait) => unsafe { trywait(self.core.get(), fids.as_mut_ptr(), count) },
            None => ENOSYS,
        };
        Error::check("fi_trywait", ret)
    }
}

/// An object with a wait object: [`Cq`], [`Cntr`] or [an event queue](struct@Eq).
pub trait Waitable: private::Sealed {}

impl Waitable for Eq {}
impl<M: Threading> Waitable for Cq<M> {}
impl<M: Threading> Waitable for Cntr<M> {}

pub(crate) mod private {
    use super::{FabricCore, WaitObj, fid};

    pub trait Sealed {
        #[expect(private_interfaces, reason = "nobody outside can name or call this")]
        fn waitable(&self) -> (*mut fid, *const FabricCore, WaitObj);
    }
}

/// The object an opening call gave, if it did.
pub(crate) fn opened<T, M>(call: &'static str, ret: c_int, object: *mut T) -> Result<Ptr<T, M>> {
    Error::check(call, ret)?;
    Ptr::new(object).ok_or(Error::new(call, Errno::EOTHER))
}
