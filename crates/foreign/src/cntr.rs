#![allow(unsafe_code)]
//! `fi_cntr`(3).

use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{fi_ops_cntr, fid, fid_cntr};

use crate::call::{self, ENOSYS, op};
use crate::domain::DomainCore;
use crate::fabric::{FabricCore, private};
use crate::owned::Owned;
use crate::threading::Threading;
use crate::{Error, Result};

pub(crate) type CntrCore<M> = Owned<fid_cntr, M, Arc<DomainCore<M>>>;

/// A counter of completions. Clones share it.
pub struct Cntr<M: Threading> {
    pub(crate) core: Arc<CntrCore<M>>,
}

impl<M: Threading> Clone for Cntr<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

impl<M: Threading> Cntr<M> {
    pub(crate) fn new(owned: CntrCore<M>) -> Self {
        Self {
            core: Arc::new(owned),
        }
    }

    fn table(&self) -> *const fi_ops_cntr {
        // SAFETY: the counter is open.
        unsafe { (*self.core.get()).ops }
    }

    /// Successes so far (`fi_cntr_read`); 0 where the library has no such call.
    #[must_use]
    pub fn read(&self) -> u64 {
        match op!(self.table(), fi_ops_cntr.read) {
            // SAFETY: the counter is open.
            Some(read) => unsafe { read(self.core.get()) },
            None => 0,
        }
    }

    /// Errors so far (`fi_cntr_readerr`); 0 where the library has no such call.
    #[must_use]
    pub fn readerr(&self) -> u64 {
        match op!(self.table(), fi_ops_cntr.readerr) {
            // SAFETY: the counter is open.
            Some(readerr) => unsafe { readerr(self.core.get()) },
            None => 0,
        }
    }

    /// Adds to the successes (`fi_cntr_add`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn add(&self, value: u64) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_cntr.add) {
            // SAFETY: the counter is open.
            Some(add) => unsafe { add(self.core.get(), value) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_add", ret)
    }

    /// Sets the successes (`fi_cntr_set`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set(&self, value: u64) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_cntr.set) {
            // SAFETY: the counter is open.
            Some(set) => unsafe { set(self.core.get(), value) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_set", ret)
    }

    /// Adds to the errors (`fi_cntr_adderr`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn adderr(&self, value: u64) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_cntr.adderr) {
            // SAFETY: the counter is open.
            Some(adderr) => unsafe { adderr(self.core.get(), value) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_adderr", ret)
    }

    /// Sets the errors (`fi_cntr_seterr`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn seterr(&self, value: u64) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_cntr.seterr) {
            // SAFETY: the counter is open.
            Some(seterr) => unsafe { seterr(self.core.get(), value) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_seterr", ret)
    }

    /// Blocks until the successes reach `threshold` (`fi_cntr_wait`).
    ///
    /// # Errors
    ///
    /// `FI_ETIMEDOUT`, `FI_EAVAIL` when an operation failed meanwhile, and what else the
    /// library says.
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let ret = match op!(self.table(), fi_ops_cntr.wait) {
            // SAFETY: the counter is open.
            Some(wait) => unsafe { wait(self.core.get(), threshold, call::millis(timeout)) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_wait", ret)
    }
}

impl<M: Threading> private::Sealed<M> for Cntr<M> {
    #[allow(private_interfaces)]
    fn waitable(&self) -> (*mut fid, *const FabricCore<M>) {
        (self.core.fid(), Arc::as_ptr(self.core.parent().fabric()))
    }
}
