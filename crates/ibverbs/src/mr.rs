#![allow(unsafe_code)]
//! Registered memory.

use std::ffi::c_int;
use std::fmt;
use std::ops::Range;
use std::os::fd::AsRawFd as _;
use std::ptr::NonNull;
use std::sync::Arc;

use ripstop_mem::{Parked, UserBuf, copy_in};
use ripstop_os::{Dmabuf, IoVecMut};
use ripstop_types::{Errno, Result};

use crate::device::Pd;
use crate::library::{Missing, last_errno, library};
use crate::request::Sge;
use crate::sys::ibv_mr;

bitflags::bitflags! {
    /// What a device may do with registered memory (`enum ibv_access_flags`). It may always read it for
    /// requests of this process.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Access: u32 {
        /// Write it for receives, reads and results of atomics of this process.
        const LOCAL_WRITE = 1;
        /// Write it for peers that know the key; needs `LOCAL_WRITE`.
        const REMOTE_WRITE = 2;
        /// Read it for peers that know the key.
        const REMOTE_READ = 4;
        /// Carry out atomics for peers that know the key; needs `LOCAL_WRITE`.
        const REMOTE_ATOMIC = 8;
    }
}

/// Whether the library registers memory of dma-bufs; whether a device does, it says itself.
///
/// # Errors
/// What is missing.
pub fn registers_dmabufs() -> std::result::Result<(), &'static Missing> {
    library()?.ibv_reg_dmabuf_mr.as_ref().map(|_| ())
}

/// A registered memory region. The device reaches the memory as long as this lives, and the pages stay in
/// memory (`ibv_reg_mr(3)`).
pub struct Mr {
    pd: Arc<Pd>,
    raw: NonNull<ibv_mr>,
    lkey: u32,
    rkey: u32,
    start: usize,
    len: usize,
    access: Access,
}

// SAFETY: libibverbs' objects may be used by any thread at any time.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers memory. What [`UserBuf`] says of its use after completion holds: as long as the region
    /// lives, peers may do with the memory what `access` lets them.
    ///
    /// # Errors
    /// What `ibv_reg_mr(3)` says: [`EFAULT`](ripstop_types::Errno::EFAULT) for addresses without memory,
    /// [`ENOMEM`](ripstop_types::Errno::ENOMEM) also beyond the limit of locked memory (`ulimit -l`).
    pub fn register(pd: &Arc<Pd>, buf: UserBuf, access: Access) -> Result<Self> {
        let library = pd.context.library;
        let start = buf.as_ptr().cast();
        // They fit: there are four.
        let flags = access.bits() as c_int;
        // SAFETY: a live protection domain. The memory is the caller's, who keeps it as long as the
        // region is open (`UserBuf`); addresses without memory are refused by the kernel.
        let raw = unsafe { (library.ibv.ibv_reg_mr)(pd.raw.as_ptr(), start, buf.len(), flags) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        // The device, or the driver, uses addresses in it as pointers.
        let start = buf.as_ptr().expose_provenance();
        Ok(Self::made(pd, raw, start, buf.len(), access))
    }

    /// Registers memory of a dma-buf. Requests name it by its address in this process, or by the offset in the
    /// dma-buf where it has none.
    /// What is said of the memory at [`Mr::register`] holds.
    ///
    /// # Errors
    /// [`ENOSYS`](ripstop_types::Errno::ENOSYS) where [`registers_dmabufs`] says why; what
    /// `ibv_reg_dmabuf_mr(3)` says, which is `ENOSYS` or
    /// [`EOPNOTSUPP`](ripstop_types::Errno::EOPNOTSUPP) for a device that does not do that.
    pub fn register_dmabuf(pd: &Arc<Pd>, dmabuf: &Dmabuf<'_>, access: Access) -> Result<Self> {
        let register = pd.context.library.ibv_reg_dmabuf_mr.as_ref();
        let register = register.map_err(|_| Errno::ENOSYS)?;
        // They fit: there are four.
        let flags = access.bits() as c_int;
        // As for `register`.
        let start = match dmabuf.mapped {
            Some(memory) => memory.as_ptr().expose_provenance(),
            None => usize::try_from(dmabuf.offset).map_err(|_| Errno::EINVAL)?,
        };
        let (pd_raw, iova, fd) = (pd.raw.as_ptr(), start as u64, dmabuf.fd.as_raw_fd());
        // SAFETY: a live protection domain and an open descriptor. The memory is the caller's, who keeps it
        // as long as the region is open (`UserBuf`); what is not in the dma-buf is refused by the kernel.
        let raw = unsafe { register(pd_raw, dmabuf.offset, dmabuf.len, iova, fd, flags) };
        let raw = NonNull::new(raw).ok_or_else(last_errno)?;
        Ok(Self::made(pd, raw, start, dmabuf.len, access))
    }

    /// A region that the library has just made.
    fn made(pd: &Arc<Pd>, raw: NonNull<ibv_mr>, start: usize, len: usize, access: Access) -> Self {
        // SAFETY: just made; these fields are set by the library and stay.
        let lkey = unsafe { (*raw.as_ptr()).lkey };
        // SAFETY: as for the other key.
        let rkey = unsafe { (*raw.as_ptr()).rkey };
        Self {
            pd: Arc::clone(pd),
            raw,
            lkey,
            rkey,
            start,
            len,
            access,
        }
    }

    /// The key by which requests of this process name the region.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key by which peers name the region.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The addresses of its memory.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }

    /// A part of its memory, for a request; `None` if that is not all in the region, or is of 4 GiB and more.
    #[must_use]
    pub fn part(&self, addr: usize, len: usize) -> Option<Sge> {
        let at = addr.checked_sub(self.start)?;
        if at.checked_add(len)? > self.len {
            return None;
        }
        Sge::at(addr, len, self.lkey)
    }

    /// What the device may do with it.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The protection domain it was registered with.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }
}

impl fmt::Debug for Mr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mr({} B, key {:#x})", self.len, self.rkey)
    }
}

impl Drop for Mr {
    fn drop(&mut self) {
        let library = self.pd.context.library;
        // SAFETY: made by the library, and freed once. Requests that name its key afterwards fail.
        unsafe { (library.ibv.ibv_dereg_mr)(self.raw.as_ptr()) };
    }
}

/// Registered memory of this process's own, for messages that are sent from it, or that peers read. The device only reads it.
#[derive(Debug)]
pub struct SendArea {
    // Before the memory: without a region no request reaches that any more.
    mr: Mr,
    memory: Box<[u8]>,
}

impl SendArea {
    /// An area of `len` bytes.
    ///
    /// # Errors
    /// As for [`Mr::register`].
    pub fn new(pd: &Arc<Pd>, len: usize) -> Result<Self> {
        Self::with(pd, len, Access::empty())
    }

    /// An area of `len` bytes that peers who know [its key](SendArea::rkey) may read.
    ///
    /// # Errors
    /// As for [`Mr::register`].
    pub fn readable(pd: &Arc<Pd>, len: usize) -> Result<Self> {
        Self::with(pd, len, Access::REMOTE_READ)
    }

    fn with(pd: &Arc<Pd>, len: usize, access: Access) -> Result<Self> {
        let mut memory = vec![0; len].into_boxed_slice();
        // SAFETY: the memory outlives the region (the order of the fields), and stays where it is.
        let buf = unsafe { UserBuf::from_raw(memory.as_mut_ptr(), memory.len()) };
        let mr = Mr::register(pd, buf, access)?;
        Ok(Self { mr, memory })
    }

    /// The address of its first byte, as requests of peers name it.
    #[must_use]
    pub fn addr(&self) -> usize {
        self.mr.range().start
    }

    /// The key by which peers name it.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.mr.rkey()
    }

    /// The bytes from `at` on, `len` of them or what there is. What a request that is under way names is
    /// sent as it is then.
    pub fn bytes(&mut self, at: usize, len: usize) -> &mut [u8] {
        let from = at.min(self.memory.len());
        let rest = &mut self.memory[from..];
        let len = len.min(rest.len());
        &mut rest[..len]
    }

    /// The same, as a piece of memory of a request to send.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for bytes beyond the end.
    pub fn sge(&self, at: usize, len: usize) -> Result<Sge> {
        let end = at.checked_add(len).ok_or(Errno::EINVAL)?;
        let bytes = self.memory.get(at..end).ok_or(Errno::EINVAL)?;
        // SAFETY: the memory is there as long as its region, which the request names.
        let buf = unsafe { UserBuf::from_const(bytes.as_ptr(), len) };
        Sge::new(buf, self.mr.lkey())
    }
}

/// Registered memory of this process's own that messages are received into. The device may write it at any
/// time, so it is only copied from.
#[derive(Debug)]
pub struct RecvArea {
    /// There until it is dropped, as the memory.
    mr: Option<Mr>,
    memory: Option<Parked>,
}

impl RecvArea {
    /// An area of `len` bytes.
    ///
    /// # Errors
    /// As for [`Mr::register`].
    pub fn new(pd: &Arc<Pd>, len: usize) -> Result<Self> {
        let memory = Parked::park(vec![0; len]);
        let mr = Mr::register(pd, memory.buf(), Access::LOCAL_WRITE)?;
        Ok(Self {
            mr: Some(mr),
            memory: Some(memory),
        })
    }

    fn part(&self, at: usize, len: usize) -> Option<UserBuf> {
        self.memory.as_ref()?.buf().slice(at, len)
    }

    /// So many bytes from `at` on as a piece of memory of a receive.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for bytes beyond the end.
    pub fn sge(&self, at: usize, len: usize) -> Result<Sge> {
        let part = self.part(at, len).ok_or(Errno::EINVAL)?;
        Sge::new(part, self.mr.as_ref().map_or(0, Mr::lkey))
    }

    /// Copies bytes from `at` on to `bytes`; returns how many.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> usize {
        let part = self.part(at, bytes.len());
        part.map_or(0, |part| copy_in(bytes, part))
    }

    /// Copies up to `len` bytes from `at` on to `room`, behind the first `skip` bytes of that; returns how
    /// many.
    pub fn read_to(&self, at: usize, len: usize, room: &mut IoVecMut<'_>, skip: usize) -> usize {
        let part = self.part(at, len);
        part.map_or(0, |part| room.copy_from_user(skip, part))
    }
}

impl Drop for RecvArea {
    fn drop(&mut self) {
        self.mr = None;
        if let Some(memory) = self.memory.take() {
            // SAFETY: without the region no device writes it, and its buffer is given to nobody else.
            drop(unsafe { memory.unpark() });
        }
    }
}
