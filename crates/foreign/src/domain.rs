#![allow(unsafe_code)]
//! `fi_domain`(3).

use std::ffi::CString;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{
    fi_av_attr, fi_cntr_attr, fi_cq_attr, fi_info, fi_ops_domain, fi_rx_attr, fid_av, fid_cntr,
    fid_cq, fid_domain, fid_ep, fid_mr,
};
use ripstop_core::provider::AvAttr;
use ripstop_types::{CqFormat, Errno, Flags, Mode, MrMode, WaitObj};

use crate::call::{self, ENOSYS, op};
use crate::fabric::{FabricCore, opened};
use crate::info::Info;
use crate::library::Functions;
use crate::ops::Book;
use crate::owned::Owned;
use crate::payload::Place;
use crate::region::Memory;
use crate::threading::{Lock, Ptr, Threading};
use crate::{Av, Cntr, ConnReq, Cq, CqAttr, EndpointBuilder, Error, Region, Result};

/// An open domain. Clones share it.
pub struct Domain<M: Threading> {
    pub(crate) core: Arc<DomainCore<M>>,
}

impl<M: Threading> Clone for Domain<M> {
    fn clone(&self) -> Self {
        Self {
            core: self.core.clone(),
        }
    }
}

/// Bounds of this crate's own.
#[derive(Clone, Copy, Debug)]
pub struct DomainOptions {
    /// Operations that may be posted at once over all endpoints; beyond it posting says
    /// `FI_EAGAIN`. Costs 64 bytes each once used.
    pub max_ops: usize,
    /// Contexts are numbers that C hands back untouched: no operation is booked. For
    /// [`provider`](crate::provider) only, whose operations park no memory.
    pub(crate) unbooked: bool,
    /// Whether completions name the source of a message; by default as the info says.
    pub(crate) sources: Option<bool>,
}

impl DomainOptions {
    /// At most so many operations at once.
    #[must_use]
    pub fn max_ops(max_ops: usize) -> Self {
        Self {
            max_ops,
            ..Self::default()
        }
    }
}

impl Default for DomainOptions {
    fn default() -> Self {
        Self {
            max_ops: 1 << 16,
            unbooked: false,
            sources: None,
        }
    }
}

/// The open domain and the memory its operations use.
pub(crate) struct DomainCore<M: Threading> {
    fid: Ptr<fid_domain, M>,
    fabric: Arc<FabricCore>,
    keep: ManuallyDrop<Keep<M>>,
    pub(crate) addr_format: u32,
    /// Whether completions can name the source of a message.
    pub(crate) source: bool,
    /// Whether local buffers must be registered.
    pub(crate) mr_local: bool,
    /// As [`DomainOptions::unbooked`].
    pub(crate) unbooked: bool,
    open: bool,
}

/// What is freed only when the library has let go of the domain.
struct Keep<M: Threading> {
    book: M::Lock<Book>,
    regions: M::Lock<Vec<Arc<Memory>>>,
    /// Registrations that operations may still refer to.
    late: M::Lock<Vec<Ptr<fid_mr, M>>>,
}

impl<M: Threading> DomainCore<M> {
    #[inline]
    pub(crate) fn book<R>(&self, f: impl FnOnce(&mut Book) -> R) -> R {
        self.keep.book.with(f)
    }

    #[inline]
    pub(crate) fn place(&self) -> Place {
        Place {
            domain: ptr::from_ref(self).addr(),
            mr_local: self.mr_local,
        }
    }

    pub(crate) fn keep_region(&self, memory: Arc<Memory>) {
        self.keep.regions.with(|r| r.push(memory));
    }

    /// Ends a registration: now, or with the domain if operations may refer to it.
    pub(crate) fn end_mr(self: &Arc<Self>, mr: Ptr<fid_mr, M>) {
        if self.mr_local {
            self.keep.late.with(|l| l.push(mr));
        } else if call::close(mr.get().cast()).is_err() {
            std::mem::forget(self.clone());
        }
    }

    /// Closes the domain now, if the library agrees.
    pub(crate) fn try_close(&mut self) -> Result<()> {
        if self.open {
            call::close(self.fid.get().cast())?;
            self.open = false;
        }
        Ok(())
    }

    /// Whether arguments are checked here that C takes on trust.
    pub(crate) fn guarded(&self) -> bool {
        self.fabric.parent().guarded
    }

    pub(crate) fn get(&self) -> *mut fid_domain {
        self.fid.get()
    }

    pub(crate) fn fabric(&self) -> &Arc<FabricCore> {
        &self.fabric
    }
}

impl<M: Threading> Drop for DomainCore<M> {
    fn drop(&mut self) {
        let late = self.keep.late.with(std::mem::take);
        let mut closed = true;
        for mr in late {
            closed &= call::close(mr.get().cast()).is_ok();
        }
        closed = closed && self.try_close().is_ok();
        if closed {
            // SAFETY: this is the only drop, and `keep` is not used after it.
            unsafe { ManuallyDrop::drop(&mut self.keep) };
        } else {
            std::mem::forget(self.fabric.clone());
        }
    }
}

impl<M: Threading> Domain<M> {
    pub(crate) fn new(
        fid: Ptr<fid_domain, M>,
        fabric: Arc<FabricCore>,
        info: &Info,
        options: DomainOptions,
    ) -> Self {
        let keep = Keep {
            book: M::Lock::new(Book::new(options.max_ops)),
            regions: M::Lock::new(Vec::new()),
            late: M::Lock::new(Vec::new()),
        };
        let core = DomainCore {
            fid,
            fabric,
            keep: ManuallyDrop::new(keep),
            addr_format: info.addr_format(),
            source: options
                .sources
                .unwrap_or_else(|| info.caps().contains(Flags::SOURCE)),
            mr_local: info.mr_mode().contains(MrMode::LOCAL),
            unbooked: options.unbooked,
            open: true,
        };
        Self {
            core: Arc::new(core),
        }
    }

    fn functions(&self) -> &Functions {
        self.core.fabric().parent()
    }

    pub(crate) fn table(&self) -> *const fi_ops_domain {
        // SAFETY: the domain is open.
        unsafe { (*self.core.get()).ops }
    }

    /// Opens an endpoint of `info`'s type (`fi_endpoint`), to be bound and enabled.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when `info` needs a mode this crate does not offer. Else what the library
    /// says.
    pub fn endpoint(&self, info: &Info) -> Result<EndpointBuilder<M>> {
        self.open_endpoint(info.duplicate("fi_endpoint", self.functions())?)
    }

    /// Opens the endpoint that will accept a connection request. A refused request is rejected.
    ///
    /// # Errors
    ///
    /// As [`Domain::endpoint`]; `FI_EDOMAIN` when the request came to another fabric.
    pub fn accepting(&self, request: ConnReq) -> Result<EndpointBuilder<M>> {
        let builder = self.open_endpoint(request.info_with_handle(self.core.fabric())?)?;
        request.taken();
        Ok(builder)
    }

    fn open_endpoint(&self, mut info: Info) -> Result<EndpointBuilder<M>> {
        let offered = Mode::CONTEXT | Mode::CONTEXT2 | Mode::RX_CQ_DATA;
        if !offered.contains(info.mode()) {
            return Err(Error::new("fi_endpoint", Errno::EINVAL));
        }
        let mut ep: *mut fid_ep = ptr::null_mut();
        let raw: *mut fi_info = info.as_mut_ptr();
        let ret = match op!(self.table(), fi_ops_domain.endpoint) {
            // SAFETY: domain and info are live, `ep` takes the result.
            Some(open) => unsafe { open(self.core.get(), raw, &raw mut ep, ptr::null_mut()) },
            None => ENOSYS,
        };
        let ep = opened("fi_endpoint", ret, ep)?;
        Ok(EndpointBuilder::new(ep, self.core.clone(), &info, false))
    }

    /// Opens a shared receive context (`fi_srx_context`): an endpoint that only receives, for
    /// other endpoints to bind. It is bound and enabled like any other.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn shared_rx(&self, info: &Info) -> Result<EndpointBuilder<M>> {
        let info = &info.duplicate("fi_srx_context", self.functions())?;
        let mut attr: fi_rx_attr = info.rx_attr();
        let mut ep: *mut fid_ep = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.srx_ctx) {
            // SAFETY: domain and attributes are live, `ep` takes the result.
            Some(open) => unsafe {
                open(self.core.get(), &raw mut attr, &raw mut ep, ptr::null_mut())
            },
            None => ENOSYS,
        };
        let ep = opened("fi_srx_context", ret, ep)?;
        Ok(EndpointBuilder::new(ep, self.core.clone(), info, true))
    }

    /// Opens a completion queue (`fi_cq_open`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for [`CqFormat::Unspec`], whose entries have no known size. Else what the
    /// library says.
    pub fn cq(&self, attr: CqAttr) -> Result<Cq<M>> {
        if attr.format == CqFormat::Unspec {
            return Err(Error::new("fi_cq_open", Errno::EINVAL));
        }
        let mut c_attr = fi_cq_attr {
            size: attr.size,
            format: attr.format.raw(),
            wait_obj: attr.wait.raw(),
            wait_cond: attr.threshold.into(),
            ..Default::default()
        };
        let mut cq: *mut fid_cq = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cq_open) {
            // SAFETY: domain and attributes are live, `cq` takes the result.
            Some(open) => unsafe {
                open(
                    self.core.get(),
                    &raw mut c_attr,
                    &raw mut cq,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        let cq = opened("fi_cq_open", ret, cq)?;
        Ok(Cq::new(Owned::new(cq, self.core.clone()), attr))
    }

    /// Opens a counter of completions (`fi_cntr_open`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn cntr(&self, wait: WaitObj) -> Result<Cntr<M>> {
        let mut attr = fi_cntr_attr {
            wait_obj: wait.raw(),
            ..Default::default()
        };
        let mut cntr: *mut fid_cntr = ptr::null_mut();
        let ret = match op!(self.table(), fi_ops_domain.cntr_open) {
            // SAFETY: domain and attributes are live, `cntr` takes the result.
            Some(open) => unsafe {
                open(
                    self.core.get(),
                    &raw mut attr,
                    &raw mut cntr,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        let cntr = opened("fi_cntr_open", ret, cntr)?;
        Ok(Cntr::new(Owned::new(cntr, self.core.clone()), wait))
    }

    /// Opens an address vector (`fi_av_open`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for a name with a zero byte, and what the library says.
    pub fn av(&self, attr: &AvAttr) -> Result<Av<M>> {
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
                open(
                    self.core.get(),
                    &raw mut c_attr,
                    &raw mut av,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        let av = opened("fi_av_open", ret, av)?;
        Ok(Av::new(Owned::new(av, self.core.clone())))
    }

    /// Memory of `len` zero bytes for many operations; it lives as long as the domain.
    #[must_use]
    pub fn region(&self, len: usize) -> Region<M> {
        Region::new(self.core.clone(), len)
    }

    /// As [`Domain::region`], in memory from `memfd_create(2)` that is sealed against shrinking, so
    /// that peers on this machine may map it once it is registered.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` for no bytes; `FI_ENOMEM`, `FI_ENOSPC` and `FI_EMFILE` of the system.
    pub fn region_in_memfd(&self, len: usize) -> Result<Region<M>> {
        Region::in_memfd(self.core.clone(), len)
    }
}
