#![allow(unsafe_code)]
//! `fi_domain`(3).

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{
    fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_info, fi_ops_domain, fid_av, fid_cntr, fid_cq,
    fid_domain, fid_ep,
};
use ripstop_core::Info;
use ripstop_core::provider::{AvAttr, CqAttr, Token};
use ripstop_types::{AddrFormat, CqFormat, Errno, Flags, Mode, WaitObj};

use crate::call::{ENOSYS, calls, op};
use crate::fabric::opened;
use crate::ops::Book;
use crate::owned::Owned;
use crate::provider::origin::{OURS, Origin};
use crate::sets::WaitSet;
use crate::threading::{Lock as _, Ptr, Threading};
use crate::{Av, Counter, Cq, Endpoint, Error, Fabric, Result};

/// An open domain.
pub struct Domain<M: Threading> {
    pub(crate) owned: Owned<fid_domain, M, Arc<Fabric>>,
    /// What C may write as long as the domain is open.
    book: ManuallyDrop<M::Lock<Book>>,
    /// Deferred work, by its name and where its `fi_deferred_work` is.
    pub(crate) works: M::Lock<Vec<(Token, usize)>>,
    pub(crate) addr_format: u32,
    /// Whether completions can name the source of a message.
    pub(crate) source: bool,
    /// Contexts are numbers that C hands back untouched: no operation is booked.
    pub(crate) unbooked: bool,
}

impl<M: Threading> Domain<M> {
    pub(crate) fn new(fid: Ptr<fid_domain, M>, fabric: Arc<Fabric>, origin: &Origin) -> Self {
        let info = origin.info();
        let unbooked = !fabric.verbatim && !info.mode().intersects(OURS);
        let named = || info.caps().contains(Flags::SOURCE);
        Self {
            owned: Owned::new(fid, fabric),
            book: ManuallyDrop::new(M::Lock::new(Book::new(!unbooked))),
            works: M::Lock::new(Vec::new()),
            addr_format: info.addr_format(),
            source: origin.names_sources().unwrap_or_else(named),
            unbooked,
        }
    }

    #[inline]
    pub(crate) fn book<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        self.book.with(f)
    }

    pub(crate) fn fabric(&self) -> &Arc<Fabric> {
        self.owned.parent()
    }

    pub(crate) fn format(&self) -> AddrFormat {
        AddrFormat::from_raw(self.addr_format).unwrap_or_default()
    }

    pub(crate) fn table(&self) -> *const fi_ops_domain {
        // SAFETY: the domain is open.
        unsafe { (*self.owned.get()).ops }
    }

    /// Opens an endpoint, to accept a request if the info is one.
    pub(crate) fn open_endpoint(
        self: &Arc<Self>,
        info: &Info,
        token: Token,
    ) -> Result<Endpoint<M>> {
        const CALL: &str = "fi_endpoint";
        let origin = self.fabric().origin(CALL, info)?;
        let request = origin.request()?;
        let mut copy = match &request {
            Some(request) => request.info_with_handle(self.fabric())?,
            None => origin
                .info()
                .duplicate(CALL, self.fabric().owned.parent())?,
        };
        if !(OURS | Mode::RX_CQ_DATA).contains(copy.mode()) {
            return Err(Error::new(CALL, Errno::EINVAL));
        }
        let mut ep: *mut fid_ep = ptr::null_mut();
        let raw: *mut fi_info = copy.as_mut_ptr();
        let ret = calls!(
            self.table(),
            fi_ops_domain.endpoint,
            self.owned.get(),
            raw,
            &raw mut ep,
            ptr::null_mut()
        );
        let ep = opened(CALL, ret, ep)?;
        if let Some(request) = request {
            request.taken();
        }
        Ok(Endpoint::new(ep, self.clone(), info, token))
    }

    /// Opens a completion queue (`fi_cq_open`), whose blocking reads wait for a number of entries
    /// with `threshold`; it may be waited for in a set. All of an entry is asked for, unless a format
    /// is.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn cq_with(
        self: &Arc<Self>,
        attr: &CqAttr,
        threshold: bool,
        set: Option<&Arc<WaitSet>>,
    ) -> Result<Arc<Cq<M>>> {
        let mut attr = *attr;
        if attr.format == CqFormat::Unspec {
            attr.format = CqFormat::Tagged;
        }
        attr.wait = set.map_or(attr.wait, |_| WaitObj::Set);
        let mut c_attr = fi_cq_attr {
            size: attr.size,
            flags: attr.flags.bits(),
            format: attr.format.raw(),
            wait_obj: attr.wait.raw(),
            wait_cond: threshold.into(),
            wait_set: set.map_or(ptr::null_mut(), |set| set.owned.get()),
            ..Default::default()
        };
        let mut cq: *mut fid_cq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cq_open) {
            // SAFETY: domain, set and attributes are live, `cq` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut c_attr, &raw mut cq);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let owned = Owned::new(opened("fi_cq_open", ret, cq)?, self.clone());
        Ok(Arc::new(Cq::new(owned, &attr, threshold, set.cloned())))
    }

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

    pub(crate) fn open_av(self: &Arc<Self>, attr: &AvAttr) -> Result<Av<M>> {
        let name = attr.name.as_deref().map(CString::new).transpose();
        let name = name.map_err(|_| Error::new("fi_av_open", Errno::EINVAL))?;
        let mut c_attr = fi_av_attr {
            type_: attr.av_type.raw(),
            count: attr.count,
            rx_ctx_bits: i32::from(attr.rx_ctx_bits),
            name: name.as_ref().map_or(ptr::null(), |name| name.as_ptr()),
            flags: attr.flags.bits(),
            ..Default::default()
        };
        let mut av: *mut fid_av = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.av_open) {
            // SAFETY: domain and attributes are live, `av` takes the result.
            Some(open) => unsafe {
                let (attr, out) = (&raw mut c_attr, &raw mut av);
                open(self.owned.get(), attr, out, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let owned = Owned::new(opened("fi_av_open", ret, av)?, self.clone());
        Ok(Av::new(owned, attr.av_type))
    }
}

impl<M: Threading> Drop for Domain<M> {
    fn drop(&mut self) {
        // If it lives on, it does so with the contexts that it was given.
        if self.owned.close() {
            // SAFETY: this is the only drop, and the book is not used after it.
            unsafe { ManuallyDrop::drop(&mut self.book) };
        }
    }
}
