#![allow(unsafe_code)]
//! Endpoints, `fi_endpoint`(3) and `fi_cm`(3). Their operations are in `msg`, `tagged`, `rma`.

use std::ffi::{c_int, c_void};
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use ripstop_abi::{FI_ENABLE, FI_OPT_ENDPOINT, fi_ops_cm, fi_ops_ep, fid, fid_ep};
use ripstop_types::{EpType, Errno, FiAddr, Flags};

use crate::av::AvCore;
use crate::call::{self, ENOSYS, op};
use crate::cntr::CntrCore;
use crate::cq::CqCore;
use crate::domain::DomainCore;
use crate::eq::{EqCore, FidId};
use crate::guard::{Limits, Op};
use crate::info::Info;
use crate::library::too_small;
use crate::ops::{Held, Kind, OpId};
use crate::owned::Owned;
use crate::payload::Payload;
use crate::pep::data_ptr;
use crate::probe::Kept;
use crate::threading::{Lock, Ptr, Threading};
use crate::{Addr, Av, Cntr, Cq, Eq, Error, Rejected, Result};

pub(crate) struct EpCore<M: Threading> {
    pub(crate) owned: Owned<fid_ep, M, Arc<DomainCore<M>>>,
    pub(crate) addr_format: u32,
    guarded: bool,
    limits: Limits,
    naming: Naming,
    // Bound objects close after the endpoint.
    cqs: Vec<Arc<CqCore<M>>>,
    cntrs: Vec<Arc<CntrCore<M>>>,
    av: Option<Arc<AvCore<M>>>,
    eq: Option<Arc<EqCore>>,
    shared_rx: Option<Arc<EpCore<M>>>,
    /// What was bound after the builder was done.
    pub(crate) late: M::Lock<Vec<Kept<M>>>,
    /// The groups it has joined, and how many members they have.
    pub(crate) groups: M::Lock<Vec<(FiAddr, usize)>>,
}

/// How an endpoint names its peers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Naming {
    /// By its address vector.
    Av,
    /// Not at all: it is connected.
    Connected,
    /// Not at all: it is a shared receive context.
    Anyone,
}

impl<M: Threading> Drop for EpCore<M> {
    fn drop(&mut self) {
        if !self.owned.close() {
            // It lives on, with all that is bound to it.
            std::mem::forget(std::mem::take(&mut self.cqs));
            std::mem::forget(std::mem::take(&mut self.cntrs));
            std::mem::forget((self.av.take(), self.eq.take(), self.shared_rx.take()));
            std::mem::forget(self.late.with(std::mem::take));
        }
    }
}

/// An endpoint that is being set up: bind its queues, then enable it.
pub struct EndpointBuilder<M: Threading> {
    pub(crate) core: EpCore<M>,
}

/// An enabled endpoint, or a shared receive context. Dropping it ends its operations without
/// completions; their buffers are freed with the domain.
pub struct Endpoint<M: Threading> {
    pub(crate) core: Arc<EpCore<M>>,
}

impl<M: Threading> EndpointBuilder<M> {
    pub(crate) fn new(
        ptr: Ptr<fid_ep, M>,
        domain: Arc<DomainCore<M>>,
        info: &Info,
        shared_rx: bool,
    ) -> Self {
        let guarded = domain.guarded();
        let core = EpCore {
            owned: Owned::new(ptr, domain),
            guarded,
            addr_format: info.addr_format(),
            limits: Limits::new(info),
            naming: match info.ep_type() {
                _ if shared_rx => Naming::Anyone,
                EpType::Msg => Naming::Connected,
                _ => Naming::Av,
            },
            cqs: Vec::new(),
            cntrs: Vec::new(),
            av: None,
            eq: None,
            shared_rx: None,
            late: M::Lock::new(Vec::new()),
            groups: M::Lock::new(Vec::new()),
        };
        Self { core }
    }

    /// What events will call it.
    #[must_use]
    pub fn id(&self) -> FidId {
        self.core.id()
    }

    /// Sends completions to `cq` (`fi_ep_bind`): `flags` are [`Flags::SEND`] and
    /// [`Flags::RECV`] for the directions, and [`Flags::SELECTIVE_COMPLETION`]. A buffer whose
    /// operation then reports no completion stays parked until the domain closes.
    ///
    /// # Errors
    ///
    /// `FI_EDOMAIN` when the queue is of another domain, and what the library says.
    pub fn bind_cq(mut self, cq: &Cq<M>, flags: Flags) -> Result<Self> {
        self.core.bind_cq(cq, flags)?;
        Ok(self)
    }

    /// Counts completions of the kinds in `flags` (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// `FI_EDOMAIN` when the counter is of another domain, and what the library says.
    pub fn bind_cntr(mut self, cntr: &Cntr<M>, flags: Flags) -> Result<Self> {
        self.core.bind_cntr(cntr, flags)?;
        Ok(self)
    }

    /// Names peers by `av` (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// `FI_EDOMAIN` when the vector is of another domain, and what the library says.
    pub fn bind_av(mut self, av: &Av<M>) -> Result<Self> {
        self.core.bind_av(av)?;
        Ok(self)
    }

    /// Sends events to `eq` (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// `FI_EDOMAIN` when the queue is of another fabric, and what the library says.
    pub fn bind_eq(mut self, eq: &Eq) -> Result<Self> {
        self.core.bind_eq(eq)?;
        Ok(self)
    }

    /// Receives through a shared context (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// `FI_EDOMAIN` when the context is of another domain, and what the library says.
    pub fn bind_shared_rx(mut self, srx: &Endpoint<M>) -> Result<Self> {
        self.core.same_domain(srx.core.owned.parent())?;
        self.core.shared_rx = Some(srx.core.clone());
        self.core.bind(srx.core.owned.fid(), Flags::empty())?;
        Ok(self)
    }

    /// Sets an option of at most 256 bytes (`fi_setopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn setopt(self, name: i32, value: &[u8]) -> Result<Self> {
        self.core.setopt(name, value)?;
        Ok(self)
    }

    /// Enables it (`fi_enable`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn enable(self) -> Result<Endpoint<M>> {
        self.core.enable()?;
        Ok(self.enabled())
    }

    /// What it is once [`EpCore::enable`] has said so.
    pub(crate) fn enabled(self) -> Endpoint<M> {
        Endpoint {
            core: Arc::new(self.core),
        }
    }
}

impl<M: Threading> EpCore<M> {
    pub(crate) fn bind_cq(&mut self, cq: &Cq<M>, flags: Flags) -> Result<()> {
        self.same_domain(cq.core.owned.parent())?;
        self.cqs.push(cq.core.clone());
        self.bind(cq.core.owned.fid(), flags)
    }

    pub(crate) fn bind_cntr(&mut self, cntr: &Cntr<M>, flags: Flags) -> Result<()> {
        self.same_domain(cntr.core.owned.parent())?;
        self.cntrs.push(cntr.core.clone());
        self.bind(cntr.core.owned.fid(), flags)
    }

    pub(crate) fn bind_av(&mut self, av: &Av<M>) -> Result<()> {
        self.same_domain(av.core.owned.parent())?;
        self.av = Some(av.core.clone());
        self.bind(av.core.owned.fid(), Flags::empty())
    }

    pub(crate) fn bind_eq(&mut self, eq: &Eq) -> Result<()> {
        if !Arc::ptr_eq(eq.core.owned.parent(), self.owned.parent().fabric()) {
            return Err(Error::new("fi_ep_bind", Errno::EDOMAIN));
        }
        self.eq = Some(eq.core.clone());
        self.bind(eq.core.owned.fid(), Flags::empty())
    }

    pub(crate) fn enable(&self) -> Result<()> {
        match call::command("fi_enable", self.owned.fid(), FI_ENABLE) {
            // Some providers have no such call for a shared context, which needs none.
            Err(e) if self.naming == Naming::Anyone && e.errno == Errno::ENOSYS => Ok(()),
            enabled => enabled,
        }
    }

    fn same_domain(&self, domain: &Arc<DomainCore<M>>) -> Result<()> {
        if Arc::ptr_eq(domain, self.owned.parent()) {
            Ok(())
        } else {
            Err(Error::new("fi_ep_bind", Errno::EDOMAIN))
        }
    }

    /// Binds an object that `self` already keeps open.
    fn bind(&self, to: *mut fid, flags: Flags) -> Result<()> {
        call::bind("fi_ep_bind", self.owned.fid(), to, flags.bits())
    }

    /// What events will call it.
    pub(crate) fn id(&self) -> FidId {
        FidId(self.owned.fid().addr())
    }

    pub(crate) fn getname(&self) -> Result<Addr> {
        getname(self.cm(), self.owned.fid())
    }

    pub(crate) fn getopt(&self, name: i32, len: usize) -> Result<Vec<u8>> {
        getopt(self.ops(), self.owned.fid(), name, len)
    }

    pub(crate) fn setopt(&self, name: i32, value: &[u8]) -> Result<()> {
        setopt(self.ops(), self.owned.fid(), name, value)
    }

    pub(crate) fn ops(&self) -> *const fi_ops_ep {
        // SAFETY: the endpoint is open.
        unsafe { (*self.owned.get()).ops }
    }

    pub(crate) fn cm(&self) -> *const fi_ops_cm {
        // SAFETY: the endpoint is open.
        unsafe { (*self.owned.get()).cm }
    }
}

impl<M: Threading> Endpoint<M> {
    /// What events call it.
    #[must_use]
    pub fn id(&self) -> FidId {
        self.core.id()
    }

    /// Whether a transmit may be posted, before C is asked.
    #[inline(always)]
    pub(crate) fn may_transmit(&self, op: Op, to: FiAddr) -> std::result::Result<(), Errno> {
        if !self.core.guarded {
            return Ok(());
        }
        self.core.limits.transmit(op)?;
        let known = match (self.core.naming, &self.core.av) {
            (Naming::Av, Some(av)) => av.knows(to),
            (naming, _) => naming == Naming::Connected,
        };
        if known {
            Ok(())
        } else {
            Err(Errno::EADDRNOTAVAIL)
        }
    }

    /// Whether a receive may be posted, before C is asked.
    #[inline(always)]
    pub(crate) fn may_receive(&self, op: Op, from: FiAddr) -> std::result::Result<(), Errno> {
        if !self.core.guarded {
            return Ok(());
        }
        self.core.limits.receive(op)?;
        let known = !from.is_specified()
            || match (self.core.naming, &self.core.av) {
                (Naming::Av, Some(av)) => av.knows(from),
                (naming, _) => naming == Naming::Connected,
            };
        if known {
            Ok(())
        } else {
            Err(Errno::EADDRNOTAVAIL)
        }
    }

    /// Whether an inject may be made, before C is asked.
    #[inline]
    pub(crate) fn may_inject(&self, call: &'static str, len: usize, to: FiAddr) -> Result<()> {
        let flags = Flags::INJECT;
        self.may_transmit(
            Op {
                flags,
                ..Op::plain(len)
            },
            to,
        )
        .map_err(|errno| Error::new(call, errno))
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut fid_ep {
        self.core.owned.get()
    }

    #[inline]
    pub(crate) fn domain(&self) -> &Arc<DomainCore<M>> {
        self.core.owned.parent()
    }

    /// Its address (`fi_getname`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn getname(&self) -> Result<Addr> {
        self.core.getname()
    }

    /// The address of the peer of a connection (`fi_getpeer`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn getpeer(&self) -> Result<Addr> {
        let mut bytes = [0_u8; 512];
        let mut len = bytes.len();
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        let ret = match op!(self.core.cm(), fi_ops_cm.getpeer) {
            // SAFETY: the endpoint is open and `bytes` has the length said.
            Some(getpeer) => unsafe { getpeer(self.raw(), out, &raw mut len) },
            None => ENOSYS,
        };
        Error::check("fi_getpeer", ret)?;
        Ok(Addr::from_bytes(&bytes[..len.min(bytes.len())]))
    }

    /// Asks a passive endpoint for a connection, with data for it (`fi_connect`). The answer
    /// comes to the event queue.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the info's format, and what the library says.
    pub fn connect(&self, addr: &Addr, data: &[u8]) -> Result<()> {
        let padded = addr.padded("fi_connect", self.core.addr_format)?;
        let to: *const c_void = padded.as_ptr().cast();
        let ret = match op!(self.core.cm(), fi_ops_cm.connect) {
            // SAFETY: the endpoint is open, the address is whole, `data` has the length said.
            Some(connect) => unsafe { connect(self.raw(), to, data_ptr(data), data.len()) },
            None => ENOSYS,
        };
        Error::check("fi_connect", ret)
    }

    /// Accepts the request it was opened for, with data for the peer (`fi_accept`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn accept(&self, data: &[u8]) -> Result<()> {
        let ret = match op!(self.core.cm(), fi_ops_cm.accept) {
            // SAFETY: the endpoint is open, `data` has the length said.
            Some(accept) => unsafe { accept(self.raw(), data_ptr(data), data.len()) },
            None => ENOSYS,
        };
        Error::check("fi_accept", ret)
    }

    /// Ends the connection (`fi_shutdown`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn shutdown(&self) -> Result<()> {
        let ret = match op!(self.core.cm(), fi_ops_cm.shutdown) {
            // SAFETY: the endpoint is open.
            Some(shutdown) => unsafe { shutdown(self.raw(), 0) },
            None => ENOSYS,
        };
        Error::check("fi_shutdown", ret)
    }

    /// Cancels an operation (`fi_cancel`). If it can be cancelled, its completion says
    /// `FI_ECANCELED`.
    ///
    /// # Errors
    ///
    /// `FI_ENOENT` when it has completed, and what the library says.
    pub fn cancel(&self, operation: OpId) -> Result<()> {
        let context = self
            .domain()
            .book(|book| book.posted(operation))
            .ok_or(Error::new("fi_cancel", Errno::ENOENT))?;
        self.cancel_context(context)
    }

    /// As [`Endpoint::cancel`], of an operation with this token.
    pub(crate) fn cancel_token(&self, token: u64) -> Result<()> {
        let context = match self.domain().unbooked {
            true => Some(ptr::without_provenance_mut(token as usize)),
            false => self.domain().book(|book| book.with_token(token)),
        };
        self.cancel_context(context.ok_or(Error::new("fi_cancel", Errno::ENOENT))?)
    }

    fn cancel_context(&self, context: *mut c_void) -> Result<()> {
        let ret = match op!(self.core.ops(), fi_ops_ep.cancel) {
            // SAFETY: the endpoint is open; the context only serves to find the operation.
            Some(cancel) => unsafe { cancel(self.core.owned.fid(), context) },
            None => ENOSYS as isize,
        };
        Error::check_count("fi_cancel", ret).map(|_| ())
    }

    /// Overwrites some of the buffers of an operation that is still posted, counted from the first
    /// of its payload, with [`OVERWRITTEN`](crate::OVERWRITTEN): as a C program does that knows
    /// them free, after a call with `FI_INJECT` or when a counter has counted the operation. One
    /// that has completed is left alone.
    pub fn overwrite(&self, operation: OpId, pieces: Range<usize>) {
        self.domain().book(|book| book.overwrite(operation, pieces));
    }

    /// Reads an option of at most 256 bytes (`fi_getopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn getopt(&self, name: i32, len: usize) -> Result<Vec<u8>> {
        self.core.getopt(name, len)
    }

    /// Sets an option of at most 256 bytes (`fi_setopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn setopt(&mut self, name: i32, value: &[u8]) -> Result<()> {
        self.core.setopt(name, value)
    }

    /// Books an operation that passed its gate, parks its memory and makes the call, which gets
    /// the context; a refused call gives the memory back.
    #[inline]
    pub(crate) fn post<P: Payload>(
        &self,
        call: &'static str,
        kind: Kind,
        token: u64,
        payload: P,
        gate: std::result::Result<(), Errno>,
        f: impl FnOnce(*mut c_void) -> isize,
    ) -> std::result::Result<OpId, Rejected<P>> {
        let domain = self.domain();
        if let Err(errno) = gate.and_then(|()| payload.admit(domain.place())) {
            return Err(Rejected {
                error: Error::new(call, errno),
                payload,
            });
        }
        if domain.unbooked {
            // The context is a number, which C only hands back.
            let context = ptr::without_provenance_mut(token as usize);
            return match Error::check_count(call, f(context)) {
                Ok(_) => Ok(OpId::UNBOOKED),
                Err(error) => Err(Rejected { error, payload }),
            };
        }
        let (held, rest) = payload.park();
        match domain.book(|book| book.enter(kind, token, held)) {
            Ok((op, context)) => match Error::check_count(call, f(context)) {
                Ok(_) => Ok(op),
                Err(error) => {
                    let held = domain.book(|book| book.withdraw(op));
                    Err(Rejected {
                        error,
                        payload: P::unpark(held, rest),
                    })
                }
            },
            Err(held) => Err(Rejected {
                error: Error::new(call, Errno::EAGAIN),
                payload: P::unpark(held, rest),
            }),
        }
    }

    /// Books an operation without memory.
    pub(crate) fn post_bare(
        &self,
        call: &'static str,
        kind: Kind,
        token: u64,
        f: impl FnOnce(*mut c_void) -> isize,
    ) -> Result<OpId> {
        let domain = self.domain();
        if domain.unbooked {
            let ret = f(ptr::without_provenance_mut(token as usize));
            return Error::check_count(call, ret).map(|_| OpId::UNBOOKED);
        }
        let (op, context) = domain
            .book(|book| book.enter(kind, token, Held::Nothing))
            .map_err(|_| Error::new(call, Errno::EAGAIN))?;
        if let Err(error) = Error::check_count(call, f(context)) {
            domain.book(|book| book.withdraw(op));
            return Err(error);
        }
        Ok(op)
    }
}

/// `fi_getname`(3) of a live object with these connection operations.
pub(crate) fn getname(table: *const fi_ops_cm, fid: *mut fid) -> Result<Addr> {
    let Some(getname) = op!(table, fi_ops_cm.getname) else {
        return Error::check("fi_getname", ENOSYS).map(|()| Addr::from_bytes(&[]));
    };
    let mut bytes = vec![0_u8; 128];
    loop {
        let mut len = bytes.len();
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        // SAFETY: the object is live and `bytes` has the length said.
        let ret = unsafe { getname(fid, out, &raw mut len) };
        if too_small(ret) && len > bytes.len() && len <= 1 << 16 {
            bytes.resize(len, 0);
            continue;
        }
        Error::check("fi_getname", ret)?;
        bytes.truncate(len);
        return Ok(Addr::from_bytes(&bytes));
    }
}

/// Option values in transit: as aligned and as long as any option's type.
#[repr(C, align(16))]
struct OptValue([u8; 256]);

/// `fi_getopt`(3) of a live object with these operations.
pub(crate) fn getopt(
    table: *const fi_ops_ep,
    fid: *mut fid,
    name: c_int,
    len: usize,
) -> Result<Vec<u8>> {
    let mut value = OptValue([0; 256]);
    let mut got = len.min(value.0.len());
    let out: *mut c_void = (&raw mut value).cast();
    let ret = match op!(table, fi_ops_ep.getopt) {
        // SAFETY: the object is live; `value` is longer than any option and at least as long
        // as said.
        Some(getopt) => unsafe { getopt(fid, FI_OPT_ENDPOINT, name, out, &raw mut got) },
        None => ENOSYS,
    };
    Error::check("fi_getopt", ret)?;
    Ok(value.0[..got.min(value.0.len())].to_vec())
}

/// `fi_setopt`(3) of a live object with these operations.
pub(crate) fn setopt(
    table: *const fi_ops_ep,
    fid: *mut fid,
    name: c_int,
    from: &[u8],
) -> Result<()> {
    let mut value = OptValue([0; 256]);
    let Some(to) = value.0.get_mut(..from.len()) else {
        return Err(Error::new("fi_setopt", Errno::EINVAL));
    };
    to.copy_from_slice(from);
    let ptr: *const c_void = (&raw const value).cast();
    let ret = match op!(table, fi_ops_ep.setopt) {
        // SAFETY: the object is live; `value` is longer than any option and at least as long
        // as said.
        Some(setopt) => unsafe { setopt(fid, FI_OPT_ENDPOINT, name, ptr, from.len()) },
        None => ENOSYS,
    };
    Error::check("fi_setopt", ret)
}
