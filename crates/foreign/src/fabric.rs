#![allow(unsafe_code)]
//! `fi_fabric`(3), and wait sets, `fi_poll`(3), which the object model has no traits for.

use std::any::Any;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use ripstop_abi::{
    fi_fabric_attr, fi_ops_fabric, fi_ops_wait, fi_wait_attr, fid, fid_fabric, fid_wait,
};
use ripstop_core::FabricAttr;
use ripstop_types::{Errno, WaitObj};

use crate::call::{calls, millis};
use crate::library::{Functions, GLOBAL, Library};
use crate::owned::Owned;
use crate::threading::{Ptr, Shared};
use crate::{Error, Result};

/// An open fabric. Any thread may use it, and the queues and passive endpoints that are opened from
/// it.
pub struct Fabric {
    pub(crate) owned: Owned<fid_fabric, Shared, Arc<Functions>>,
    pub(crate) attr: FabricAttr,
    /// What passes events on to each queue of the object model that something is bound to: each is a
    /// [`Pump`](crate::eq::Pump), which has this fabric.
    pub(crate) pumps: Mutex<Vec<Weak<dyn Any + Send + Sync>>>,
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

    /// Whether the wait objects of these queues and counters may be waited on (`fi_trywait`).
    pub(crate) fn trywait(&self, fids: &mut [*mut fid]) -> Result<()> {
        let count = c_int::try_from(fids.len());
        let count = count.map_err(|_| Error::new("fi_trywait", Errno::EINVAL))?;
        let ret = calls!(
            self.table(),
            fi_ops_fabric.trywait(self.owned.get(), fids.as_mut_ptr(), count)
        );
        Error::check("fi_trywait", ret)
    }
}

/// The object an opening call gave, if it did.
pub(crate) fn opened<T, M>(call: &'static str, ret: c_int, object: *mut T) -> Result<Ptr<T, M>> {
    Error::check(call, ret)?;
    Ptr::new(object).ok_or(Error::new(call, Errno::EOTHER))
}

/// A wait set: one wait object for many queues and counters.
pub struct WaitSet {
    pub(crate) owned: Owned<fid_wait, Shared, Arc<Fabric>>,
}

impl WaitSet {
    /// Waits until a member has something (`fi_wait`).
    ///
    /// # Errors
    ///
    /// `FI_ETIMEDOUT`, and what else the library says.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<()> {
        let set = self.owned.get();
        // SAFETY: the set is open.
        let table: *const fi_ops_wait = unsafe { (*set).ops };
        let ret = calls!(table, fi_ops_wait.wait(set, millis(timeout)));
        Error::check("fi_wait", ret)
    }
}

impl Fabric {
    /// Opens a wait set (`fi_wait_open`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn wait_set(self: &Arc<Self>, wait: WaitObj) -> Result<Arc<WaitSet>> {
        let mut attr = fi_wait_attr {
            wait_obj: wait.raw(),
            flags: 0,
        };
        let mut set: *mut fid_wait = ptr::null_mut();
        let (fabric, attr, out) = (self.owned.get(), &raw mut attr, &raw mut set);
        let ret = calls!(self.table(), fi_ops_fabric.wait_open(fabric, attr, out));
        let owned = Owned::new(opened("fi_wait_open", ret, set)?, self.clone());
        Ok(Arc::new(WaitSet { owned }))
    }
}
