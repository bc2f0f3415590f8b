#![allow(unsafe_code)]
//! `fi_cntr`(3).

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{fi_ops_cntr, fid, fid_cntr};
use ripstop_types::{Errno, WaitObj};

use crate::call::{self, ENOSYS, op};
use crate::domain::DomainCore;
use crate::fabric::{FabricCore, private};
use crate::guard;
use crate::owned::Owned;
use crate::sets::WaitCore;
use crate::threading::Threading;
use crate::{Error, Result};

type Owner<M> = Owned<fid_cntr, M, Arc<DomainCore<M>>>;

pub(crate) struct CntrCore<M: Threading> {
    pub(crate) owned: Owner<M>,
    wait: WaitObj,
    /// The set it is waited for in, which closes after it.
    _set: Option<Arc<WaitCore>>,
}

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
    pub(crate) fn new(owned: Owner<M>, wait: WaitObj) -> Self {
        Self {
            core: Arc::new(CntrCore {
                owned,
                wait,
                _set: None,
            }),
        }
    }

    /// One that is part of a wait set.
    pub(crate) fn in_set(owned: Owner<M>, set: Arc<WaitCore>) -> Self {
        Self {
            core: Arc::new(CntrCore {
                owned,
                wait: WaitObj::None,
                _set: Some(set),
            }),
        }
    }

    pub(crate) fn table(&self) -> *const fi_ops_cntr {
        // SAFETY: the counter is open.
        unsafe { (*self.core.owned.get()).ops }
    }

    /// Successes so far (`fi_cntr_read`); 0 where the library has no such call.
    #[must_use]
    pub fn read(&self) -> u64 {
        match op!(self.table(), fi_ops_cntr.read) {
            // SAFETY: the counter is open.
            Some(read) => unsafe { read(self.core.owned.get()) },
            None => 0,
        }
    }

    /// Errors so far (`fi_cntr_readerr`); 0 where the library has no such call.
    #[must_use]
    pub fn readerr(&self) -> u64 {
        match op!(self.table(), fi_ops_cntr.readerr) {
            // SAFETY: the counter is open.
            Some(readerr) => unsafe { readerr(self.core.owned.get()) },
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
            Some(add) => unsafe { add(self.core.owned.get(), value) },
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
            Some(set) => unsafe { set(self.core.owned.get(), value) },
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
            Some(adderr) => unsafe { adderr(self.core.owned.get(), value) },
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
            Some(seterr) => unsafe { seterr(self.core.owned.get(), value) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_seterr", ret)
    }

    /// Blocks until the successes reach `threshold` (`fi_cntr_wait`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for a counter opened with [`WaitObj::None`], `FI_ETIMEDOUT`, `FI_EAVAIL` when an operation failed meanwhile, and what else the
    /// library says.
    pub fn wait(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let guarded = self.core.owned.parent().guarded();
        if guarded && !guard::waits(self.core.wait) {
            return Err(Error::new("fi_cntr_wait", Errno::EINVAL));
        }
        let ret = match op!(self.table(), fi_ops_cntr.wait) {
            // SAFETY: the counter is open.
            Some(wait) => unsafe { wait(self.core.owned.get(), threshold, call::millis(timeout)) },
            None => ENOSYS,
        };
        Error::check("fi_cntr_wait", ret)
    }
}

impl<M: Threading> Cntr<M> {
    /// As [`Cq::wait_fd`](crate::Cq::wait_fd).
    pub(crate) fn wait_fd(&self) -> Result<BorrowedFd<'_>> {
        if self.core.wait != WaitObj::Fd {
            return Err(Error::new("fi_control", Errno::EINVAL));
        }
        let fd = call::wait_fd(self.core.owned.fid())?;
        // SAFETY: the descriptor belongs to the counter, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl<M: Threading> private::Sealed for Cntr<M> {
    #[expect(private_interfaces, reason = "nobody outside can name or call this")]
    fn waitable(&self) -> (*mut fid, *const FabricCore, WaitObj) {
        let owned = &self.core.owned;
        (
            owned.fid(),
            Arc::as_ptr(owned.parent().fabric()),
            self.core.wait,
        )
    }
}
