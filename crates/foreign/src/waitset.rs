#![allow(unsafe_code)]
//! Wait sets, `fi_poll`(3), which the object model has no traits for.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{fi_ops_wait, fi_wait_attr, fid_wait};
use ripstop_types::WaitObj;

use crate::call::{calls, millis};
use crate::fabric::opened;
use crate::owned::Owned;
use crate::threading::Shared;
use crate::{Error, Fabric, Result};

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
