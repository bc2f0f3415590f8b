#![allow(unsafe_code)]
//! Calls that programs rarely make on purpose and that a library must still answer as the man
//! pages say: closing what is in use, binding late or twice, buffers that are too short.

use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{
    FI_BACKLOG, FI_ENABLE, FI_GETOPSFLAG, FI_SETOPSFLAG, fi_eq_entry, fi_ops_cm, fid,
};
use ripstop_types::{Errno, FiAddr, Flags, WaitObj};

use crate::av::AvCore;
use crate::call::{self, ENOSYS, op};
use crate::cntr::CntrCore;
use crate::contexts::StxCore;
use crate::cq::{CqCore, Fetch};
use crate::domain::DomainCore;
use crate::endpoint::EpCore;
use crate::eq::EqCore;
use crate::fabric::FabricCore;
use crate::library::copy_text;
use crate::threading::{Lock, Threading};
use crate::{
    Addr, Av, Cntr, Completion, Cq, Domain, Endpoint, EndpointBuilder, Eq, Error, Fabric, Pep,
    Result, SharedTx, WaitSet,
};

/// `fi_close`(3) with its answer. Dropping an object closes it too, when its last user is gone.
pub trait Close: Sized {
    /// Closes the object now.
    ///
    /// A library must refuse this while something uses the object. One that does not has
    /// destroyed what is still in use, so this ends the process.
    ///
    /// # Errors
    ///
    /// `FI_EBUSY` while something uses the object, and what else the library says; the object
    /// comes back.
    fn close(self) -> std::result::Result<(), (Self, Error)>;
}

macro_rules! close {
    ($($name:ident $(<$mode:ident>)?: $what:literal, $inner:ident => $core:expr, $fid:expr;)*) => {
        $(impl $(<$mode: Threading>)? Close for $name $(<$mode>)? {
            fn close(self) -> std::result::Result<(), (Self, Error)> {
                match Arc::try_unwrap(self.core) {
                    Ok(mut $inner) => match $core.try_close() {
                        Ok(()) => Ok(()),
                        Err(error) => Err((Self { core: Arc::new($inner) }, error)),
                    },
                    Err($inner) => match call::close($fid) {
                        Ok(()) => destroyed($what),
                        Err(error) => Err((Self { core: $inner }, error)),
                    },
                }
            }
        })*
    };
}

close! {
    Fabric: "a fabric", core => core, core.fid();
    Domain<M>: "a domain", core => core, core.get().cast();
    Cq<M>: "a completion queue", core => core.owned, core.owned.fid();
    Cntr<M>: "a counter", core => core.owned, core.owned.fid();
    Av<M>: "an address vector", core => core.owned, core.owned.fid();
    Eq: "an event queue", core => core.owned, core.owned.fid();
    Pep: "a passive endpoint", core => core.owned, core.owned.fid();
    Endpoint<M>: "an endpoint", core => core.owned, core.owned.fid();
    SharedTx<M>: "a shared transmit context", core => core, core.fid();
    WaitSet: "a wait set", core => core, core.fid();
}

fn destroyed(what: &str) -> ! {
    eprintln!("fi_close closed {what} that is in use; it must say FI_EBUSY");
    std::process::abort()
}

/// What [`Endpoint::bind`] binds, right or wrong.
pub enum Bound<'a, M: Threading> {
    /// A completion queue.
    Cq(&'a Cq<M>),
    /// A counter.
    Cntr(&'a Cntr<M>),
    /// An address vector.
    Av(&'a Av<M>),
    /// An event queue.
    Eq(&'a Eq),
    /// An endpoint, such as a shared receive context.
    Endpoint(&'a Endpoint<M>),
    /// A shared transmit context.
    SharedTx(&'a SharedTx<M>),
    /// A domain, which no endpoint takes.
    Domain(&'a Domain<M>),
    /// A fabric, which no endpoint takes.
    Fabric(&'a Fabric),
}

/// A bound object, kept open.
#[expect(dead_code, reason = "held, never read")]
pub(crate) enum Kept<M: Threading> {
    Cq(Arc<CqCore<M>>),
    Cntr(Arc<CntrCore<M>>),
    Av(Arc<AvCore<M>>),
    Eq(Arc<EqCore>),
    Ep(Arc<EpCore<M>>),
    Stx(Arc<StxCore<M>>),
    Domain(Arc<DomainCore<M>>),
    Fabric(Arc<FabricCore>),
}

impl<M: Threading> Bound<'_, M> {
    pub(crate) fn keep(&self) -> (Kept<M>, *mut fid) {
        match self {
            Self::Cq(o) => (Kept::Cq(o.core.clone()), o.core.owned.fid()),
            Self::Cntr(o) => (Kept::Cntr(o.core.clone()), o.core.owned.fid()),
            Self::Av(o) => (Kept::Av(o.core.clone()), o.core.owned.fid()),
            Self::Eq(o) => (Kept::Eq(o.core.clone()), o.core.owned.fid()),
            Self::Endpoint(o) => (Kept::Ep(o.core.clone()), o.core.owned.fid()),
            Self::SharedTx(o) => (Kept::Stx(o.core.clone()), o.core.fid()),
            Self::Domain(o) => (Kept::Domain(o.core.clone()), o.core.get().cast()),
            Self::Fabric(o) => (Kept::Fabric(o.core.clone()), o.core.fid()),
        }
    }
}

impl<M: Threading> EndpointBuilder<M> {
    /// Makes the endpoint usable as it is, to be bound and enabled later or not at all.
    ///
    /// # Errors
    ///
    /// `FI_EOPBADSTATE` unless the library was opened with
    /// [`Library::open_unguarded`](crate::Library::open_unguarded): C providers do not check
    /// that an endpoint is enabled.
    pub fn without_enable(self) -> Result<Endpoint<M>> {
        if self.core.owned.parent().guarded() {
            return Err(Error::new("fi_endpoint", Errno::EOPBADSTATE));
        }
        Ok(Endpoint {
            core: Arc::new(self.core),
        })
    }
}

impl<M: Threading> Endpoint<M> {
    /// Binds anything at any time (`fi_ep_bind`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn bind(&self, to: &Bound<'_, M>, flags: Flags) -> Result<()> {
        let (kept, fid) = to.keep();
        call::bind("fi_ep_bind", self.core.owned.fid(), fid, flags.bits())?;
        self.core.late.with(|late| late.push(kept));
        Ok(())
    }

    /// Enables it (`fi_enable`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn enable(&self) -> Result<()> {
        call::command("fi_enable", self.core.owned.fid(), FI_ENABLE)
    }

    /// The default flags of operations (`fi_control`, `FI_GETOPSFLAG`): of transmits, or of
    /// receives.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn op_flags(&self, transmit: bool) -> Result<Flags> {
        let mut flags = direction(transmit).bits();
        let arg: *mut c_void = (&raw mut flags).cast();
        // SAFETY: the command reads and writes one `uint64_t`.
        unsafe { control(self.core.owned.fid(), FI_GETOPSFLAG, arg) }?;
        Ok(Flags::from_bits_retain(flags) - direction(transmit))
    }

    /// Sets the default flags of operations (`fi_control`, `FI_SETOPSFLAG`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set_op_flags(&self, transmit: bool, flags: Flags) -> Result<()> {
        let mut flags = (flags | direction(transmit)).bits();
        let arg: *mut c_void = (&raw mut flags).cast();
        // SAFETY: the command reads one `uint64_t`.
        unsafe { control(self.core.owned.fid(), FI_SETOPSFLAG, arg) }
    }

    /// Sets its address (`fi_setname`).
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the info's format, and what the library says.
    pub fn setname(&self, addr: &Addr) -> Result<()> {
        self.core.setname(addr)
    }

    /// Its address into a buffer of `len` bytes (`fi_getname`): the answer, and the length the
    /// library says it needs.
    pub fn getname_into(&self, len: usize) -> (Result<()>, usize) {
        name_into(self.core.cm(), self.core.owned.fid(), len)
    }
}

impl<M: Threading> EpCore<M> {
    pub(crate) fn setname(&self, addr: &Addr) -> Result<()> {
        let mut padded = addr.padded("fi_setname", self.addr_format)?;
        let bytes: *mut c_void = padded.as_mut_ptr().cast();
        let ret = match op!(self.cm(), fi_ops_cm.setname) {
            // SAFETY: the endpoint is open and `bytes` has at least the length said.
            Some(setname) => unsafe { setname(self.owned.fid(), bytes, addr.as_bytes().len()) },
            None => ENOSYS,
        };
        Error::check("fi_setname", ret)
    }
}

impl Pep {
    /// Sets how many requests may wait (`fi_control`, `FI_BACKLOG`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn backlog(&self, backlog: i32) -> Result<()> {
        let mut backlog = backlog;
        let arg: *mut c_void = (&raw mut backlog).cast();
        // SAFETY: the command reads one `int`.
        unsafe { control(self.core.owned.fid(), FI_BACKLOG, arg) }
    }

    /// As [`Endpoint::getname_into`].
    pub fn getname_into(&self, len: usize) -> (Result<()>, usize) {
        name_into(self.core.cm(), self.core.owned.fid(), len)
    }
}

impl<M: Threading> Cq<M> {
    /// As [`Cq::read`], for at most `max` completions, itself at most 16.
    ///
    /// # Errors
    ///
    /// As [`Cq::read`].
    pub fn read_up_to(&self, out: &mut Vec<Completion>, max: usize) -> Result<usize> {
        self.fetch_into(out, max, Fetch::Now)
    }
}

impl<M: Threading> Av<M> {
    /// Inserts `count` addresses of any bytes, followed by zeroes (`fi_av_insert`): what the
    /// library returns, and what it wrote.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn insert_bytes(
        &self,
        bytes: &[u8],
        count: usize,
        flags: Flags,
    ) -> Result<(usize, Vec<FiAddr>)> {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len() + 512 * (count + 1), 0);
        let mut found = vec![FiAddr::NOTAVAIL; count];
        // Without `FI_EVENT`, the context of `FI_SYNC_ERR` is an array of errors.
        let mut errors = vec![0_i32; count];
        let (from, out) = (padded.as_ptr().cast(), found.as_mut_ptr().cast());
        let context: *mut c_void = errors.as_mut_ptr().cast();
        let ret = match op!(self.table(), fi_ops_av.insert) {
            // SAFETY: the vector is open; `padded` is longer than `count` addresses of any
            // format, `found` and `errors` have room for `count` entries.
            Some(insert) => unsafe {
                insert(
                    self.core.owned.get(),
                    from,
                    count,
                    out,
                    flags.bits(),
                    context,
                )
            },
            None => ENOSYS,
        };
        Ok((Error::check_count("fi_av_insert", ret as isize)?, found))
    }

    /// Resolves and inserts consecutive nodes and services (`fi_av_insertsym`), node by node:
    /// what the library returns, and what it wrote.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn insert_symmetric(
        &self,
        (node, nodes): (&str, usize),
        (service, services): (&str, usize),
    ) -> Result<(usize, Vec<FiAddr>)> {
        let refused = Error::new("fi_av_insertsym", Errno::EINVAL);
        let node = CString::new(node).map_err(|_| refused)?;
        let service = CString::new(service).map_err(|_| refused)?;
        let count = nodes.checked_mul(services).ok_or(refused)?;
        let mut found = vec![FiAddr::NOTAVAIL; count];
        let ret = match op!(self.table(), fi_ops_av.insertsym) {
            // SAFETY: the vector is open, the strings live on, `found` takes a result each.
            Some(insertsym) => unsafe {
                insertsym(
                    self.core.owned.get(),
                    node.as_ptr(),
                    nodes,
                    service.as_ptr(),
                    services,
                    found.as_mut_ptr().cast(),
                    0,
                    ptr::null_mut(),
                )
            },
            None => ENOSYS,
        };
        Ok((Error::check_count("fi_av_insertsym", ret as isize)?, found))
    }

    /// The transport address of a peer into a buffer of `len` bytes (`fi_av_lookup`): the
    /// bytes written, and the length the library says it needs.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn lookup_into(&self, addr: FiAddr, len: usize) -> Result<(Vec<u8>, usize)> {
        let mut bytes = vec![0_u8; len];
        let mut need = len;
        let out: *mut c_void = bytes.as_mut_ptr().cast();
        let ret = match op!(self.table(), fi_ops_av.lookup) {
            // SAFETY: the vector is open and `bytes` has the length said.
            Some(lookup) => unsafe { lookup(self.core.owned.get(), addr.0, out, &raw mut need) },
            None => ENOSYS,
        };
        Error::check("fi_av_lookup", ret)?;
        Ok((bytes, need))
    }

    /// An address as text into a buffer of `len` bytes (`fi_av_straddr`): the text that fits,
    /// and the length the library says it needs.
    ///
    /// # Errors
    ///
    /// `FI_EINVAL` when the address has not the domain's format, `FI_ENOSYS`.
    pub fn straddr_into(&self, addr: &Addr, len: usize) -> Result<(String, usize)> {
        let padded = addr.padded("fi_av_straddr", self.format())?;
        // One more byte, which stays zero.
        let mut text = vec![0_u8; len + 1];
        let mut need = len;
        let out: *mut c_char = text.as_mut_ptr().cast();
        let from: *const c_void = padded.as_ptr().cast();
        let said = match op!(self.table(), fi_ops_av.straddr) {
            // SAFETY: the vector is open, the address is whole, `text` has the length said.
            Some(straddr) => unsafe { straddr(self.core.owned.get(), from, out, &raw mut need) },
            None => return Err(Error::new("fi_av_straddr", Errno::ENOSYS)),
        };
        Ok((copy_text(said), need))
    }
}

impl Fabric {
    /// Opens an event queue to which the program writes as well (`fi_eq_open`, `FI_WRITE`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn eq_for_writing(&self, wait: WaitObj) -> Result<Eq> {
        self.open_eq(0, wait, Flags::WRITE)
    }
}

impl Eq {
    /// Writes an event of the caller's (`fi_eq_write`); `data` comes back with it.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn write(&self, event: u32, data: u64) -> Result<()> {
        let entry = fi_eq_entry {
            data,
            ..Default::default()
        };
        let ret = match op!(self.table(), fi_ops_eq.write) {
            // SAFETY: the queue is open and the entry has the length said.
            Some(write) => unsafe {
                let from: *const c_void = (&raw const entry).cast();
                write(
                    self.core.owned.get(),
                    event,
                    from,
                    size_of::<fi_eq_entry>(),
                    0,
                )
            },
            None => ENOSYS as isize,
        };
        Error::check_count("fi_eq_write", ret).map(|_| ())
    }

    /// Reads an event that [`Eq::write`] wrote, into a buffer of `len` bytes, at most those of
    /// `struct fi_eq_entry` (`fi_eq_sread`); gives event, data and bytes written.
    ///
    /// Use it only on queues where nothing else reports.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn read_written(
        &self,
        len: usize,
        timeout: Option<Duration>,
        flags: Flags,
    ) -> Result<(u32, u64, usize)> {
        let mut entry = fi_eq_entry::default();
        let mut event = 0;
        let len = len.min(size_of::<fi_eq_entry>());
        let into: *mut c_void = (&raw mut entry).cast();
        let eq = self.core.owned.get();
        let ret = match timeout {
            None => match op!(self.table(), fi_ops_eq.read) {
                // SAFETY: the queue is open and the entry is at least as long as said.
                Some(read) => unsafe { read(eq, &raw mut event, into, len, flags.bits()) },
                None => ENOSYS as isize,
            },
            Some(_) => match op!(self.table(), fi_ops_eq.sread) {
                // SAFETY: as above.
                Some(sread) => unsafe {
                    let millis = call::millis(timeout);
                    sread(eq, &raw mut event, into, len, millis, flags.bits())
                },
                None => ENOSYS as isize,
            },
        };
        let len = Error::check_count("fi_eq_read", ret)?;
        Ok((event, entry.data, len))
    }
}

fn direction(transmit: bool) -> Flags {
    match transmit {
        true => Flags::SEND,
        false => Flags::RECV,
    }
}

/// `fi_control`(3).
///
/// # Safety
///
/// The object is live and `arg` is what the command takes.
unsafe fn control(fid: *mut fid, command: i32, arg: *mut c_void) -> Result<()> {
    // SAFETY: the object is live.
    let table = unsafe { (*fid).ops };
    let ret = match op!(table, fi_ops.control) {
        // SAFETY: as the caller promised.
        Some(control) => unsafe { control(fid, command, arg) },
        None => ENOSYS,
    };
    Error::check("fi_control", ret)
}

fn name_into(table: *const fi_ops_cm, fid: *mut fid, len: usize) -> (Result<()>, usize) {
    let mut bytes = vec![0_u8; len];
    let mut need = len;
    let out: *mut c_void = match len {
        0 => ptr::null_mut(),
        _ => bytes.as_mut_ptr().cast(),
    };
    let ret = match op!(table, fi_ops_cm.getname) {
        // SAFETY: the object is live and `bytes` has the length said.
        Some(getname) => unsafe { getname(fid, out, &raw mut need) },
        None => ENOSYS,
    };
    (Error::check("fi_getname", ret), need)
}
