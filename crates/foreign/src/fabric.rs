#![allow(unsafe_code)]
//! `fi_fabric`(3).

use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_abi::{
    fi_eq_attr, fi_fabric_attr, fi_ops_fabric, fid, fid_domain, fid_eq, fid_fabric, fid_pep,
};
use ripstop_core::provider::Token;
use ripstop_core::{FabricAttr, Info};
use ripstop_types::{Errno, Flags, WaitObj};

use crate::call::{ENOSYS, calls, op};
use crate::library::{Functions, GLOBAL, Library};
use crate::owned::Owned;
use crate::provider::Pump;
use crate::provider::origin::Origin;
use crate::sets::WaitSet;
use crate::threading::{Ptr, Shared, Threading};
use crate::{Domain, Eq, Error, PassiveEp, Result};

/// An open fabric. Any thread may use it, and the queues and passive endpoints that are opened from
/// it.
pub struct Fabric {
    pub(crate) owned: Owned<fid_fabric, Shared, Arc<Functions>>,
    pub(crate) attr: FabricAttr,
    /// What passes events on to each queue of the object model that something is bound to.
    pub(crate) pumps: Mutex<Vec<Weak<Pump>>>,
    /// As [`ForeignProvider::verbatim`](crate::ForeignProvider::verbatim).
    pub(crate) verbatim: bool,
}

impl Fabric {
    pub(crate) fn open(library: &Library, attr: &FabricAttr, verbatim: bool) -> Result<Self> {
        let functions = library.functions();
        let (mut c_attr, _texts) = crate::attrs::fabric_attr(attr)?;
        let raw: *mut fi_fabric_attr = &raw mut c_attr;
        let mut fabric: *mut fid_fabric = ptr::null_mut();
        let guard = GLOBAL.lock();
        // SAFETY: the attributes and their texts are whole and here until it returns, `fabric` takes
        // the result.
        let ret = unsafe { (functions.fabric)(raw, &raw mut fabric, ptr::null_mut()) };
        drop(guard);
        let fabric = opened("fi_fabric", ret, fabric)?;
        Ok(Self {
            owned: Owned::new(fabric, functions.clone()),
            attr: attr.clone(),
            pumps: Mutex::new(Vec::new()),
            verbatim,
        })
    }

    pub(crate) fn table(&self) -> *const fi_ops_fabric {
        // SAFETY: the fabric is open.
        unsafe { (*self.owned.get()).ops }
    }

    pub(crate) fn open_domain<M: Threading>(
        self: &Arc<Self>,
        origin: &Origin,
    ) -> Result<Domain<M>> {
        let info = origin.info();
        let mut copy = info.duplicate("fi_domain", self.owned.parent())?;
        let mut domain: *mut fid_domain = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.domain) {
            // SAFETY: fabric and info are live, `domain` takes the result.
            Some(open) => unsafe {
                let (info, out) = (copy.as_mut_ptr(), &raw mut domain);
                open(self.owned.get(), info, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let domain = opened("fi_domain", ret, domain)?;
        Ok(Domain::new(domain, self.clone(), origin))
    }

    /// Opens an event queue of the library's own (`fi_eq_open`), which may be waited for in a set.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn eq(
        self: &Arc<Self>,
        wait: WaitObj,
        flags: Flags,
        set: Option<&Arc<WaitSet>>,
    ) -> Result<Arc<Eq>> {
        let wait = set.map_or(wait, |_| WaitObj::Set);
        let mut attr = fi_eq_attr {
            flags: flags.bits(),
            wait_obj: wait.raw(),
            wait_set: set.map_or(ptr::null_mut(), |set| set.owned.get()),
            ..Default::default()
        };
        let mut eq: *mut fid_eq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.eq_open) {
            // SAFETY: fabric, set and attributes are live, `eq` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut attr, &raw mut eq);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let eq = opened("fi_eq_open", ret, eq)?;
        let owned = Owned::new(eq, self.clone());
        Ok(Arc::new(Eq::new(owned, wait, set.cloned())))
    }

    pub(crate) fn open_pep(self: &Arc<Self>, info: &Info, token: Token) -> Result<PassiveEp> {
        let origin = self.origin("fi_passive_ep", info)?;
        let mut copy = origin
            .info()
            .duplicate("fi_passive_ep", self.owned.parent())?;
        let mut pep: *mut fid_pep = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_fabric.passive_ep) {
            // SAFETY: fabric and info are live, `pep` takes the result.
            Some(open) => unsafe {
                let (info, out) = (copy.as_mut_ptr(), &raw mut pep);
                open(self.owned.get(), info, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let pep = opened("fi_passive_ep", ret, pep)?;
        let owned = Owned::new(pep, self.clone());
        Ok(PassiveEp::new(owned, info.addr_format, token))
    }

    /// Whether the wait objects of these queues and counters may be waited on (`fi_trywait`).
    pub(crate) fn trywait(&self, fids: &mut [*mut fid]) -> Result<()> {
        let count = c_int::try_from(fids.len());
        let count = count.map_err(|_| Error::new("fi_trywait", Errno::EINVAL))?;
        let ret = calls!(
            self.table(),
            fi_ops_fabric.trywait,
            self.owned.get(),
            fids.as_mut_ptr(),
            count
        );
        Error::check("fi_trywait", ret)
    }
}

/// The object an opening call gave, if it did.
pub(crate) fn opened<T, M>(call: &'static str, ret: c_int, object: *mut T) -> Result<Ptr<T, M>> {
    Error::check(call, ret)?;
    Ptr::new(object).ok_or(Error::new(call, Errno::EOTHER))
}
