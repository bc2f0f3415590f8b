#![allow(unsafe_code)]
//! Memory that belongs to a domain, for many operations and for peers.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

use ripstop_abi::{FI_KEY_NOTAVAIL, fid_mr, iovec};
use ripstop_os::SharedBuf;
use ripstop_types::{Errno, Flags};

use crate::buf;
use crate::domain::DomainCore;
use crate::fabric::opened;
use crate::probe::Kept;
use crate::registration::Registration;
use crate::threading::{Lock as _, Ptr, Threading};
use crate::{Error, Result};

/// Bytes that C, and through it a peer, may write at any time.
pub(crate) struct Memory {
    base: NonNull<u8>,
    len: usize,
    /// Where they are, if they are not allocated.
    memfd: Option<SharedBuf>,
    /// The local descriptor, once registered.
    desc: AtomicPtr<c_void>,
}

// SAFETY: the bytes are only touched by atomics here, and by C.
unsafe impl Send for Memory {}

// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn bytes(&self) -> &[AtomicU8] {
        // SAFETY: `base` is `len` initialised bytes, freed with `self`; Rust only ever views
        // them as atomics.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.len) }
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: as for `bytes`; an allocation is aligned to 64 bytes, a mapping to more.
        unsafe { slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.memfd.take() {
            Some(memfd) => memfd.free(),
            None => buf::release(self.base, self.len),
        }
    }
}

/// Memory that operations use in [`Slice`]s, without giving it away. It is freed when the domain
/// has closed, so nothing posted can outlive it. Its bytes are reached by copies, byte by byte
/// atomic, since C or a peer may be writing them. Clones share it.
pub struct Region<M: Threading> {
    memory: Arc<Memory>,
    domain: Arc<DomainCore<M>>,
}

impl<M: Threading> Clone for Region<M> {
    fn clone(&self) -> Self {
        Self {
            memory: self.memory.clone(),
            domain: self.domain.clone(),
        }
    }
}

impl<M: Threading> Region<M> {
    pub(crate) fn new(domain: Arc<DomainCore<M>>, len: usize) -> Self {
        Self::of(domain, buf::allocate(len), len, None)
    }

    /// As [`Region::new`], in a memfd that nobody can make shorter.
    pub(crate) fn in_memfd(domain: Arc<DomainCore<M>>, len: usize) -> Result<Self> {
        const CALL: &str = "memfd_create";
        let memfd = SharedBuf::zeroed(len).map_err(|errno| Error::new(CALL, errno))?;
        let base = NonNull::new(memfd.buf().as_ptr());
        let base = base.ok_or(Error::new(CALL, Errno::ENOMEM))?;
        Ok(Self::of(domain, base, len, Some(memfd)))
    }

    fn of(
        domain: Arc<DomainCore<M>>,
        base: NonNull<u8>,
        len: usize,
        memfd: Option<SharedBuf>,
    ) -> Self {
        let memory = Arc::new(Memory {
            base,
            len,
            memfd,
            desc: AtomicPtr::new(ptr::null_mut()),
        });
        domain.keep_region(memory.clone());
        Self { memory, domain }
    }

    /// Bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.memory.len == 0
    }

    /// A part of it to post.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the region, like slice indexing.
    #[inline]
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Slice<'_, M> {
        assert!(
            range.start <= range.end && range.end <= self.memory.len,
            "range {range:?} of a region of {} bytes",
            self.memory.len
        );
        Slice {
            region: self,
            start: range.start,
            len: range.end - range.start,
        }
    }

    /// Copies bytes out, starting at `offset`.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the region.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let range = self.slice(offset..offset + into.len());
        let (head, rest) = into.split_at_mut(range.head());
        let (middle, tail) = rest.as_chunks_mut::<8>();
        copy_out(&self.memory.bytes()[offset..], head);
        let words = self.memory.words().get((offset + head.len()).div_ceil(8)..);
        for (to, word) in middle.iter_mut().zip(words.unwrap_or(&[])) {
            *to = word.load(Ordering::Relaxed).to_ne_bytes();
        }
        copy_out(
            &self.memory.bytes()[offset + range.len - tail.len()..],
            tail,
        );
    }

    /// Copies bytes in, starting at `offset`.
    ///
    /// # Panics
    ///
    /// When the range does not lie within the region.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let range = self.slice(offset..offset + from.len());
        let (head, rest) = from.split_at(range.head());
        let (middle, tail) = rest.as_chunks::<8>();
        copy_in(head, &self.memory.bytes()[offset..]);
        let words = self.memory.words().get((offset + head.len()).div_ceil(8)..);
        for (from, word) in middle.iter().zip(words.unwrap_or(&[])) {
            word.store(u64::from_ne_bytes(*from), Ordering::Relaxed);
        }
        copy_in(
            tail,
            &self.memory.bytes()[offset + range.len - tail.len()..],
        );
    }

    /// Registers the whole region (`fi_mr_reg`) for `access`, such as `FI_REMOTE_WRITE`.
    /// `key` is what to ask for where the provider lets the caller choose.
    ///
    /// # Errors
    ///
    /// What the library says.
    pub fn register(&self, access: Flags, key: u64) -> Result<Mr<M>> {
        self.register_as(&Registration {
            access,
            key,
            ..Registration::default()
        })
    }

    /// Keeps a registration of this memory.
    pub(crate) fn registered(
        &self,
        call: &'static str,
        ret: i32,
        mr: *mut fid_mr,
    ) -> Result<Mr<M>> {
        let ptr = opened(call, ret, mr)?;
        if self.domain.mr_local {
            // SAFETY: the registration is live.
            let desc = unsafe { (*mr).mem_desc };
            self.memory.desc.store(desc, Ordering::Release);
        }
        Ok(Mr {
            ptr: Some(ptr),
            region: self.clone(),
            bound: M::Lock::new(Vec::new()),
        })
    }

    /// The address of its first byte, for peers where `FI_MR_VIRT_ADDR` is in force.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.base().addr() as u64
    }

    /// The domain it belongs to.
    pub(crate) fn domain(&self) -> &DomainCore<M> {
        &self.domain
    }

    /// The address of its first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.memory.base.as_ptr()
    }
}

fn copy_out(from: &[AtomicU8], into: &mut [u8]) {
    for (to, byte) in into.iter_mut().zip(from) {
        *to = byte.load(Ordering::Relaxed);
    }
}

fn copy_in(from: &[u8], into: &[AtomicU8]) {
    for (byte, to) in from.iter().zip(into) {
        to.store(*byte, Ordering::Relaxed);
    }
}

/// Part of a [`Region`], to post.
pub struct Slice<'a, M: Threading> {
    region: &'a Region<M>,
    start: usize,
    len: usize,
}

impl<M: Threading> Clone for Slice<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Threading> Copy for Slice<'_, M> {}

impl<M: Threading> fmt::Debug for Slice<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice({} bytes at {})", self.len, self.start)
    }
}

impl<M: Threading> Slice<'_, M> {
    #[inline]
    pub(crate) fn iov(&self) -> iovec {
        let base = self.region.memory.base.as_ptr().wrapping_add(self.start);
        iovec {
            iov_base: base.cast(),
            iov_len: self.len,
        }
    }

    #[inline]
    pub(crate) fn desc(&self) -> *mut c_void {
        self.region.memory.desc.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn domain(&self) -> usize {
        Arc::as_ptr(&self.region.domain).addr()
    }

    /// Bytes before the first whole word.
    fn head(&self) -> usize {
        (self.start.next_multiple_of(8) - self.start).min(self.len)
    }
}

/// A registered region. Dropping it ends the registration, unless the provider needs
/// `FI_MR_LOCAL`: then posted operations may refer to it and it ends with the domain.
pub struct Mr<M: Threading> {
    pub(crate) ptr: Option<Ptr<fid_mr, M>>,
    region: Region<M>,
    /// What it is bound to.
    pub(crate) bound: M::Lock<Vec<Kept<M>>>,
}

impl<M: Threading> Mr<M> {
    /// The key for peers (`fi_mr_key`).
    ///
    /// # Errors
    ///
    /// `FI_ENOKEY` when the provider has none to give.
    pub fn key(&self) -> Result<u64> {
        let key = match &self.ptr {
            // SAFETY: the registration is live.
            Some(ptr) => unsafe { (*ptr.get()).key },
            None => FI_KEY_NOTAVAIL,
        };
        if key == FI_KEY_NOTAVAIL {
            return Err(Error::new("fi_mr_key", Errno::ENOKEY));
        }
        Ok(key)
    }

    /// The address of its first byte, which peers use where `FI_MR_VIRT_ADDR` is in force;
    /// elsewhere they start at 0.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.region.address()
    }

    /// The memory.
    #[must_use]
    pub fn region(&self) -> &Region<M> {
        &self.region
    }
}

impl<M: Threading> Drop for Mr<M> {
    fn drop(&mut self) {
        if let Some(ptr) = self.ptr.take() {
            self.region.domain.end_mr(ptr);
        }
    }
}
