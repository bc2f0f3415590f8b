#![allow(unsafe_code)]
//! Calls that programs rarely make on purpose and that a library must still answer as the man
//! pages say, for which the object model has no words: closing what is in use, binding the wrong
//! thing, buffers that are too short.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use ripstop_abi::{
    FI_GET_FD, FI_GETWAIT, FI_OPT_ENDPOINT, fi_eq_entry, fi_ops_cm, fi_ops_ep, fi_wait_pollfd, fid,
    pollfd,
};
use ripstop_types::{Errno, Flags};

use crate::call::{self, ENOSYS, calls, op};
use crate::null::Said;
use crate::threading::Threading;
use crate::{Eq, Error, Fabric, Object, Result};

impl<M: Threading> Object<M> {
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
        crate::object::endpoint::getopt(self.options(), self.fid(), name, len)
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
            fi_ops_ep.getopt(fid, FI_OPT_ENDPOINT, name, out, need_out)
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

    /// Copies of the descriptors to poll of a queue or counter with `FI_WAIT_POLLFD` (`fi_control`,
    /// `FI_GETWAIT`), at most 64.
    ///
    /// # Errors
    ///
    /// What the library says, or the system.
    pub fn poll_fds(&self) -> Result<Vec<OwnedFd>> {
        let mut entries = [pollfd::default(); 64];
        let mut polled = fi_wait_pollfd {
            change_index: 0,
            nfds: entries.len(),
            fd: entries.as_mut_ptr(),
        };
        let arg: *mut c_void = (&raw mut polled).cast();
        // SAFETY: the object is open, and with `FI_WAIT_POLLFD` the command writes such a struct, and as
        // many entries as it says at most.
        unsafe { call::control(self.fid(), FI_GETWAIT, arg) }?;
        let there = entries.iter().take(polled.nfds);
        there.map(|entry| copy_of(entry.fd)).collect()
    }

    /// A copy of the descriptor of the socket of a connected endpoint (`fi_control`, `FI_GET_FD`).
    ///
    /// # Errors
    ///
    /// What the library says, or the system.
    pub fn socket(&self) -> Result<OwnedFd> {
        let mut fd: c_int = -1;
        let arg: *mut c_void = (&raw mut fd).cast();
        // SAFETY: the object is open, and the command writes one `int`.
        unsafe { call::control(self.fid(), FI_GET_FD, arg) }?;
        copy_of(fd)
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
        crate::object::endpoint::setopt(self.options(), self.fid(), name, value)
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
                fi_ops_eq.read(eq, &raw mut event, into, len, flags.bits())
            ),
            Some(_) => match op!(self.table(), fi_ops_eq.sread) {
                // SAFETY: the queue is open, and the entry has room for `len` bytes.
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

fn copy_of(fd: c_int) -> Result<OwnedFd> {
    if fd < 0 {
        return Err(Error::new("fi_control", Errno::EBADF));
    }
    // SAFETY: the library has just said that this descriptor is open, and its object is.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    let copy = lent.try_clone_to_owned();
    copy.map_err(|error| Error::new("dup", Errno(error.raw_os_error().unwrap_or(0))))
}

fn name_into(table: *const fi_ops_cm, fid: *mut fid, len: usize) -> (Result<()>, usize) {
    let mut bytes = vec![0_u8; len];
    let mut need = len;
    let out: *mut c_void = match len {
        0 => ptr::null_mut(),
        _ => bytes.as_mut_ptr().cast(),
    };
    let ret = calls!(table, fi_ops_cm.getname(fid, out, &raw mut need));
    (Error::check("fi_getname", ret), need)
}
