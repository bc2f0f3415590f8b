#![allow(unsafe_code)]
//! Passive endpoints, `fi_endpoint`(3) and `fi_cm`(3).

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, OnceLock};

use ripstop_abi::{fi_ops_cm, fid_pep, fid_t};
use ripstop_types::Errno;

use crate::call::{self, ENOSYS, op};
use crate::endpoint::{getname, getopt, setopt};
use crate::eq::{EqCore, FidId};
use crate::fabric::FabricCore;
use crate::info::Info;
use crate::owned::Owned;
use crate::threading::{Ptr, Shared};
use crate::{Addr, ConnReq, Eq, Error, Result};

pub(crate) struct PepCore {
    pub(crate) owned: Owned<fid_pep, Shared, Arc<FabricCore>>,
    eq: OnceLock<Arc<EqCore>>,
    addr_format: u32,
}

impl Drop for PepCore {
    fn drop(&mut self) {
        if !self.owned.close() {
            std::mem::forget(self.eq.take());
        }
    }
}

impl PepCore {
    pub(crate) fn fabric(&self) -> &Arc<FabricCore> {
        self.owned.parent()
    }

    pub(crate) fn id(&self) -> FidId {
        FidId(self.owned.fid().addr())
    }

    pub(crate) fn cm(&self) -> *const fi_ops_cm {
        // SAFETY: the passive endpoint is open.
        unsafe { (*self.owned.get()).cm }
    }

    pub(crate) fn reject(&self, handle: fid_t, data: &[u8]) -> Result<()> {
        let param = data_ptr(data);
        let ret = match op!(self.cm(), fi_ops_cm.reject) {
            // SAFETY: the passive endpoint is open, the handle is of a request of its own that
            // nobody has taken, `data` has the length said.
            Some(reject) => unsafe { reject(self.owned.get(), handle, param, data.len()) },
            None => ENOSYS,
        };
        Error::check("fi_reject", ret)
    }
}

/// A passive endpoint: it listens for connections.
pub struct Pep {
    pub(crate) core: Arc<PepCore>,
}

impl Pep {
    pub(crate) fn new(ptr: Ptr<fid_pep, Shared>, fabric: Arc<FabricCore>, info: &Info) -> Self {
        let core = PepCore {
            owned: Owned::new(ptr, fabric),
            eq: OnceLock::new(),
            addr_format: info.addr_format(),
        };
        Self {
            core: Arc::new(core),
        }
    }

    /// What events call it.
    #[must_use]
    pub fn id(&self) -> FidId {
        self.core.id()
    }

    /// Sends its events to `eq` (`fi_pep_bind`), once.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when it has a queue already or the queue is of another fabric, and what the
    /// library says.
    pub fn bind(&self, eq: &Eq) -> Result<()> {
        let same = Arc::ptr_eq(eq.core.owned.parent(), self.core.owned.parent());
        if !same || self.core.eq.set(eq.core.clone()).is_err() {
            return Err(Error::new("fi_pep_bind", Errno::EINVAL));
        }
        eq.core.add_pep(&self.core);
        call::bind("fi_pep_bind", self.core.owned.fid(), eq.core.owned.fid(), 0)
    }

    /// Listens (`fi_listen`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn listen(&self) -> Result<()> {
        let ret = match op!(self.core.cm(), fi_ops_cm.listen) {
            // SAFETY: the passive endpoint is open.
            Some(listen) => unsafe { listen(self.core.owned.get()) },
            None => ENOSYS,
        };
        Error::check("fi_listen", ret)
    }

    /// Refuses a request, with data for the peer (`fi_reject`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the request was to another passive endpoint, and what the library says.
    pub fn reject(&self, request: ConnReq, data: &[u8]) -> Result<()> {
        request.refuse(&self.core, data)
    }

    /// The address it listens on (`fi_getname`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn getname(&self) -> Result<Addr> {
        getname(self.core.cm(), self.core.owned.fid())
    }

    /// Sets the address to listen on (`fi_setname`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the info's format, and what the library says.
    pub fn setname(&self, addr: &Addr) -> Result<()> {
        let mut padded = addr.padded("fi_setname", self.core.addr_format)?;
        let bytes: *mut c_void = padded.as_mut_ptr().cast();
        let ret = match op!(self.core.cm(), fi_ops_cm.setname) {
            // SAFETY: the passive endpoint is open and `bytes` has at least the length said.
            Some(setname) => unsafe {
                setname(self.core.owned.fid(), bytes, addr.as_bytes().len())
            },
            None => ENOSYS,
        };
        Error::check("fi_setname", ret)
    }

    /// Reads an option of at most 256 bytes (`fi_getopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn getopt(&self, name: i32, len: usize) -> Result<Vec<u8>> {
        // SAFETY: the passive endpoint is open.
        let table = unsafe { (*self.core.owned.get()).ops };
        getopt(table, self.core.owned.fid(), name, len)
    }

    /// Sets an option of at most 256 bytes (`fi_setopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn setopt(&mut self, name: i32, value: &[u8]) -> Result<()> {
        // SAFETY: the passive endpoint is open.
        let table = unsafe { (*self.core.owned.get()).ops };
        setopt(table, self.core.owned.fid(), name, value)
    }
}

/// A pointer to bytes that C takes as data of no length when there are none.
pub(crate) fn data_ptr(data: &[u8]) -> *const c_void {
    if data.is_empty() {
        ptr::null()
    } else {
        data.as_ptr().cast()
    }
}
