#![allow(unsafe_code)]
//! Passive endpoints, `fi_endpoint`(3) and `fi_cm`(3).

use std::ffi::c_void;
use std::ptr;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use ripstop_abi::{FI_BACKLOG, fi_ops_cm, fi_ops_ep, fid_pep, fid_t};
use ripstop_core::provider::Token;
use ripstop_types::{AddrFormat, Errno};

use super::{Name, Pump};
use crate::call::{self, ENOSYS, calls, op};
use crate::fabric::opened;
use crate::info::Info;
use crate::owned::Owned;
use crate::threading::Shared;
use crate::{Addr, Eq, Error, Fabric, Result};

/// A passive endpoint: it listens for connections.
pub struct PassiveEp {
    pub(crate) owned: Owned<fid_pep, Shared, Arc<Fabric>>,
    /// What the queue calls it that it is bound to, which closes after it.
    name: Mutex<Option<Name>>,
    /// What passes its events on, if that is not the library's own queue.
    pub(crate) pump: Mutex<Option<Arc<Pump>>>,
    pub(crate) format: AddrFormat,
    token: Token,
    this: Mutex<Weak<Self>>,
}

impl Drop for PassiveEp {
    fn drop(&mut self) {
        if !self.owned.close() {
            std::mem::forget((self.name.lock().take(), self.pump.lock().take()));
        }
    }
}

impl PassiveEp {
    pub(crate) fn new(
        owned: Owned<fid_pep, Shared, Arc<Fabric>>,
        format: AddrFormat,
        token: Token,
    ) -> Self {
        Self {
            owned,
            name: Mutex::new(None),
            pump: Mutex::new(None),
            format,
            token,
            this: Mutex::new(Weak::new()),
        }
    }

    /// Lets requests lead back to it.
    pub(crate) fn shared(self) -> Arc<Self> {
        let this = Arc::new(self);
        *this.this.lock() = Arc::downgrade(&this);
        this
    }

    pub(crate) fn cm(&self) -> *const fi_ops_cm {
        // SAFETY: the passive endpoint is open.
        unsafe { (*self.owned.get()).cm }
    }

    pub(crate) fn ops(&self) -> *const fi_ops_ep {
        // SAFETY: the passive endpoint is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// Refuses a request of its own.
    pub(crate) fn refuse(&self, handle: fid_t, data: &[u8]) -> Result<()> {
        let param = data_ptr(data);
        let ret = calls!(
            self.cm(),
            fi_ops_cm.reject(self.owned.get(), handle, param, data.len())
        );
        Error::check("fi_reject", ret)
    }

    /// Sends its events to a queue of the library's own (`fi_pep_bind`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn bind_own_eq(&self, eq: &Arc<Eq>) -> Result<()> {
        eq.add_pep(self.this.lock().clone());
        let (fid, to) = (self.owned.fid(), eq.owned.fid());
        let (name, ()) = eq.name((self.token, 0), || {
            call::bind("fi_pep_bind", fid, to, 0)?;
            Ok((fid, ()))
        })?;
        *self.name.lock() = Some(name);
        Ok(())
    }

    pub(crate) fn start(&self) -> Result<()> {
        let ret = calls!(self.cm(), fi_ops_cm.listen(self.owned.get()));
        Error::check("fi_listen", ret)
    }

    pub(crate) fn setname(&self, addr: &Addr) -> Result<()> {
        let mut padded = addr.padded("fi_setname", self.format.raw())?;
        let bytes: *mut c_void = padded.as_mut_ptr().cast();
        let ret = calls!(
            self.cm(),
            fi_ops_cm.setname(self.owned.fid(), bytes, addr.as_bytes().len())
        );
        Error::check("fi_setname", ret)
    }

    /// Sets how many requests may wait (`fi_control`, `FI_BACKLOG`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn backlog(&self, backlog: i32) -> Result<()> {
        let mut backlog = backlog;
        let arg: *mut c_void = (&raw mut backlog).cast();
        // SAFETY: the object is open, and the command reads one `int`.
        unsafe { call::control(self.owned.fid(), FI_BACKLOG, arg) }
    }
}

/// A request for a connection. Dropped without an answer, it is refused.
pub(crate) struct ConnReq {
    info: Info,
    pep: Arc<PassiveEp>,
    open: bool,
}

impl ConnReq {
    pub(super) const fn new(info: Info, pep: Arc<PassiveEp>) -> Self {
        let open = true;
        Self { info, pep, open }
    }

    /// The info with the request's handle, for an endpoint of `fabric`.
    pub(crate) fn info_with_handle(&self, fabric: &Arc<Fabric>) -> Result<Info> {
        if !Arc::ptr_eq(self.pep.owned.parent(), fabric) {
            return Err(Error::new("fi_endpoint", Errno::EDOMAIN));
        }
        let mut info = self.info.duplicate("fi_endpoint", self.info.functions())?;
        info.set_handle(self.info.handle());
        Ok(info)
    }

    /// The request's handle now belongs to an endpoint.
    pub(crate) fn taken(mut self) {
        self.open = false;
    }

    /// Refuses through `pep`, which must be the one asked.
    pub(crate) fn refuse(mut self, pep: &PassiveEp, data: &[u8]) -> Result<()> {
        if pep.owned.fid() != self.pep.owned.fid() {
            return Err(Error::new("fi_reject", Errno::EINVAL));
        }
        self.open = false;
        pep.refuse(self.info.handle(), data)
    }
}

impl Drop for ConnReq {
    fn drop(&mut self) {
        if self.open {
            // Nobody is left to hear about a failure.
            let _ = self.pep.refuse(self.info.handle(), &[]);
        }
    }
}

impl Fabric {
    pub(crate) fn open_pep(
        self: &Arc<Self>,
        info: &ripstop_core::Info,
        token: Token,
    ) -> Result<PassiveEp> {
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
}

/// A pointer to bytes that C takes as data of no length when there are none.
pub(crate) fn data_ptr(data: &[u8]) -> *const c_void {
    if data.is_empty() {
        ptr::null()
    } else {
        data.as_ptr().cast()
    }
}
