#![allow(unsafe_code)]
//! `fi_cntr`(3).

use std::os::fd::BorrowedFd;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{fi_cntr_attr, fi_ops_cntr, fid_cntr};
use ripstop_types::WaitObj;

use crate::call::{self, ENOSYS, calls, op};
use crate::fabric::{WaitSet, opened};
use crate::owned::Owned;
use crate::threading::Threading;
use crate::{Domain, Error, Result};

type Owner<M> = Owned<fid_cntr, M, Arc<Domain<M>>>;

/// A counter of completions. Where the library lacks a call, it stays 0.
pub struct Counter<M: Threading> {
    pub(crate) owned: Owner<M>,
    pub(crate) wait: WaitObj,
    /// The set it is waited for in, which closes after it.
    _set: Option<Arc<WaitSet>>,
}

/// Calls of the operation table that change a counter.
macro_rules! changes {
    ($($name:ident: $call:literal, $member:ident;)*) => {
        $(pub(crate) fn $name(&self, value: u64) -> Result<()> {
            let ret = match op!(self.table(), fi_ops_cntr.$member) {
                // SAFETY: the counter is open.
                Some(change) => unsafe { change(self.owned.get(), value) },
                None => ENOSYS,
            };
            Error::check($call, ret)
        })*
    };
}

/// Calls that read one.
macro_rules! reads {
    ($($name:ident: $member:ident;)*) => {
        $(pub(crate) fn $name(&self) -> u64 {
            match op!(self.table(), fi_ops_cntr.$member) {
                // SAFETY: the counter is open.
                Some(read) => unsafe { read(self.owned.get()) },
                None => 0,
            }
        })*
    };
}

impl<M: Threading> Counter<M> {
    pub(crate) fn new(owned: Owner<M>, wait: WaitObj, set: Option<Arc<WaitSet>>) -> Self {
        Self {
            owned,
            wait,
            _set: set,
        }
    }

    pub(crate) fn table(&self) -> *const fi_ops_cntr {
        // SAFETY: the counter is open.
        unsafe { (*self.owned.get()).ops }
    }

    reads! {
        successes: read;
        errors: readerr;
    }

    changes! {
        add_successes: "fi_cntr_add", add;
        set_successes: "fi_cntr_set", set;
        add_errors: "fi_cntr_adderr", adderr;
        set_errors: "fi_cntr_seterr", seterr;
    }

    pub(crate) fn wait_for(&self, threshold: u64, timeout: Option<Duration>) -> Result<()> {
        let ret = calls!(
            self.table(),
            fi_ops_cntr.wait(self.owned.get(), threshold, call::millis(timeout))
        );
        Error::check("fi_cntr_wait", ret)
    }

    pub(crate) fn descriptor(&self) -> Result<BorrowedFd<'_>> {
        let fd = call::wait_fd(self.owned.fid(), self.wait)?;
        // SAFETY: the descriptor belongs to the counter, which `self` keeps open.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }
}

impl<M: Threading> Domain<M> {
    /// Opens a counter of completions (`fi_cntr_open`), which may be waited for in a set.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn counter_with(
        self: &Arc<Self>,
        wait: WaitObj,
        set: Option<&Arc<WaitSet>>,
    ) -> Result<Arc<Counter<M>>> {
        let wait = set.map_or(wait, |_| WaitObj::Set);
        let mut attr = fi_cntr_attr {
            wait_obj: wait.raw(),
            wait_set: set.map_or(ptr::null_mut(), |set| set.owned.get()),
            ..Default::default()
        };
        let mut cntr: *mut fid_cntr = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cntr_open) {
            // SAFETY: domain, set and attributes are live, `cntr` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut attr, &raw mut cntr);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let owned = Owned::new(opened("fi_cntr_open", ret, cntr)?, self.clone());
        Ok(Arc::new(Counter::new(owned, wait, set.cloned())))
    }
}
