#![allow(unsafe_code)]
//! Calls that programs rarely make on purpose and that a library must still answer as the man
//! pages say, for which the object model has no words: closing what is in use, binding the wrong
//! thing, buffers that are too short.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use ripstop_abi::{FI_OPT_ENDPOINT, fi_eq_entry, fi_ops_cm, fi_ops_ep, fid};
use ripstop_types::{Errno, Flags};

use crate::call::{self, ENOSYS, calls, op};
use crate::null::Said;
use crate::sets::{PollSet, WaitSet};
use crate::threading::Threading;
use crate::{
    Av, AvSet, Counter, Cq, Domain, Endpoint, Eq, Error, Fabric, Group, Mr, PassiveEp, Result,
    ScalableEp, SharedRx, SharedTx,
};

/// Any open object, kept open.
pub enum Object<M: Threading> {
    /// A fabric.
    Fabric(Arc<Fabric>),
    /// A domain.
    Domain(Arc<Domain<M>>),
    /// An event queue of the library's own.
    Eq(Arc<Eq>),
    /// A completion queue.
    Cq(Arc<Cq<M>>),
    /// A counter.
    Counter(Arc<Counter<M>>),
    /// An address vector.
    Av(Arc<Av<M>>),
    /// A passive endpoint.
    PassiveEp(Arc<PassiveEp>),
    /// An endpoint, or a context of one.
    Endpoint(Arc<Endpoint<M>>),
    /// A shared receive context.
    SharedRx(Arc<SharedRx<M>>),
    /// A shared transmit context.
    SharedTx(Arc<SharedTx<M>>),
    /// A scalable endpoint.
    ScalableEp(Arc<ScalableEp<M>>),
    /// A memory region.
    Mr(Arc<Mr<M>>),
    /// A poll set.
    PollSet(Arc<PollSet<M>>),
    /// A wait set.
    WaitSet(Arc<WaitSet>),
    /// An address vector set.
    AvSet(Arc<AvSet<M>>),
    /// A collective group.
    Group(Arc<Group<M>>),
}

/// Does the same with the handle of any object.
macro_rules! any {
    ($object:expr, $owned:ident, $shared:ident => $body:expr) => {
        match $object {
            Self::Fabric(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Domain(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Eq(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Cq(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Counter(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Av(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::PassiveEp(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Endpoint(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::SharedRx(o) => {
                let ($owned, $shared) = (&o.context().owned, o.context());
                $body
            }
            Self::SharedTx(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::ScalableEp(o) => {
                let ($owned, $shared) = (&o.endpoint().owned, o.endpoint());
                $body
            }
            Self::Mr(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::PollSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::WaitSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::AvSet(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
            Self::Group(o) => {
                let ($owned, $shared) = (&o.owned, o);
                $body
            }
        }
    };
}

impl<M: Threading> Object<M> {
    pub(crate) fn fid(&self) -> *mut fid {
        any!(self, owned, _shared => owned.fid())
    }

    /// What poll sets call it, as long as it is open.
    #[must_use]
    pub fn id(&self) -> usize {
        self.fid().addr()
    }

    /// Closes it now (`fi_close`); `owners` is how many have it that are no objects of the library.
    ///
    /// A library must refuse this while something uses the object. One that does not has
    /// destroyed what is still in use, so this ends the process.
    ///
    /// # Errors
    ///
    /// `FI_EBUSY` while something uses the object, and what else the library says.
    pub fn close(&self, owners: usize) -> Result<()> {
        any!(self, owned, shared => {
            owned.try_close()?;
            if Arc::strong_count(shared) > owners {
                eprintln!("fi_close closed what is in use; it must say FI_EBUSY");
                std::process::abort()
            }
            Ok(())
        })
    }

    /// Binds anything at any time (`fi_ep_bind`, `fi_mr_bind`).
    ///
    /// # Errors
    ///
    /// What the library says; `FI_ENOSYS` for what nothing can be bound to.
    pub fn bind(&self, to: Self, flags: Flags) -> Result<()> {
        match self {
            Self::Endpoint(ep) => ep.bind(to, flags),
            Self::SharedRx(srx) => srx.context().bind(to, flags),
            Self::ScalableEp(sep) => sep.endpoint().bind(to, flags),
            Self::Mr(mr) => mr.bind(to, flags),
            _ => Err(Error::new("fi_bind", Errno::ENOSYS)),
        }
    }

    /// Its address into a buffer of `len` bytes (`fi_getname`): the answer, and the length the
    /// library says it needs.
    pub fn name_into(&self, len: usize) -> (Result<()>, usize) {
        let table = match self {
            Self::Endpoint(ep) => ep.cm(),
            Self::ScalableEp(sep) => sep.endpoint().cm(),
            Self::PassiveEp(pep) => pep.cm(),
            _ => ptr::null(),
        };
        name_into(table, self.fid(), len)
    }

    fn options(&self) -> *const fi_ops_ep {
        match self {
            Self::Endpoint(ep) => ep.ops(),
            Self::SharedRx(srx) => srx.context().ops(),
            Self::ScalableEp(sep) => sep.endpoint().ops(),
            Self::PassiveEp(pep) => pep.ops(),
            _ => ptr::null(),
        }
    }

    /// Reads an option of any number into at most 256 bytes (`fi_getopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn option(&self, name: c_int, len: usize) -> Result<Vec<u8>> {
        crate::endpoint::getopt(self.options(), self.fid(), name, len)
    }

    /// An option of any number into a buffer of `len` bytes, at most 8 (`fi_getopt`): the answer, and
    /// the length the library says it needs.
    pub fn option_into(&self, name: c_int, len: usize) -> (Result<()>, usize) {
        let mut value = 0_u64;
        let mut need = len.min(size_of::<u64>());
        let (out, fid): (*mut c_void, _) = ((&raw mut value).cast(), self.fid());
        let (table, need_out) = (self.options(), &raw mut need);
        let ret = calls!(
            table,
            fi_ops_ep.getopt,
            fid,
            FI_OPT_ENDPOINT,
            name,
            out,
            need_out
        );
        (Error::check("fi_getopt", ret), need)
    }

    /// The wait object it says it has (`fi_control`, `FI_GETWAITOBJ`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn wait_object(&self) -> Result<c_int> {
        crate::null::wait_object(self.fid())
    }

    /// Null where something is wanted, and commands that are none: what each call returned.
    #[must_use]
    pub fn null_calls(&self) -> Vec<Said> {
        match self {
            Self::Fabric(o) => o.null_calls(),
            Self::Domain(o) => o.null_calls(),
            Self::Cq(o) => o.null_calls(),
            Self::Eq(o) => o.null_calls(),
            Self::Counter(o) => o.null_calls(),
            Self::Endpoint(o) => o.null_calls(),
            _ => Vec::new(),
        }
    }

    /// Sets an option of any number to at most 256 bytes (`fi_setopt`, level `FI_OPT_ENDPOINT`).
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn set_option(&self, name: c_int, value: &[u8]) -> Result<()> {
        crate::endpoint::setopt(self.options(), self.fid(), name, value)
    }
}

impl Fabric {
    /// Whether the wait objects of these may be waited on (`fi_trywait`).
    ///
    /// # Errors
    ///
    /// `FI_EAGAIN` when one of them has something to read, and what else the library says.
    pub fn try_wait_all<M: Threading>(&self, objects: &[Object<M>]) -> Result<()> {
        let mut fids: Vec<*mut fid> = objects.iter().map(Object::fid).collect();
        self.trywait(&mut fids)
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
                write(self.owned.get(), event, from, size_of::<fi_eq_entry>(), 0)
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
        let eq = self.owned.get();
        let ret = match timeout {
            None => calls!(
                self.table(),
                fi_ops_eq.read,
                eq,
                &raw mut event,
                into,
                len,
                flags.bits()
            ),
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

fn name_into(table: *const fi_ops_cm, fid: *mut fid, len: usize) -> (Result<()>, usize) {
    let mut bytes = vec![0_u8; len];
    let mut need = len;
    let out: *mut c_void = match len {
        0 => ptr::null_mut(),
        _ => bytes.as_mut_ptr().cast(),
    };
    let ret = calls!(table, fi_ops_cm.getname, fid, out, &raw mut need);
    (Error::check("fi_getname", ret), need)
}
