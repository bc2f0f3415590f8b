#![allow(unsafe_code)]
//! Memory that moves into an operation and comes back with its completion.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::{self, NonNull};
use std::slice;

/// What the bytes of a buffer are after [`Endpoint::overwrite`](crate::Endpoint::overwrite).
pub const OVERWRITTEN: u8 = 0xee;

/// Owned bytes at a fixed address: zeroed, aligned to a cache line, or to a page from one page up.
///
/// While an operation holds it nobody else can see it, so reading it is plain slice access.
pub struct Buf {
    ptr: NonNull<u8>,
    len: usize,
}

impl Buf {
    /// `len` zero bytes. Aborts when memory is exhausted, like `Vec`.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self {
            ptr: allocate(len),
            len,
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.ptr.as_ptr()
    }
}

impl From<&[u8]> for Buf {
    fn from(bytes: &[u8]) -> Self {
        let mut buf = Self::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is `len` initialised bytes that this value alone owns; no operation
        // holds it, since an operation takes the value.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes it the only reference.
        unsafe { slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        release(self.ptr, self.len);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

// SAFETY: a `Buf` owns its bytes alone, like a `Vec<u8>`.
unsafe impl Send for Buf {}

// SAFETY: shared access only reads.
unsafe impl Sync for Buf {}

fn layout(len: usize) -> Layout {
    let align = if len >= 4096 { 4096 } else { 64 };
    Layout::from_size_align(len, align).expect("a length within isize")
}

/// Fills a buffer that C knows of and has given back with other bytes.
pub(crate) fn overwrite(buf: &Buf) {
    // SAFETY: the bytes are this buffer's, whose owner has it here; the caller says that C, which
    // knows their address, has given them back.
    unsafe { ptr::write_bytes(buf.as_ptr(), OVERWRITTEN, buf.len) }
}

/// Zeroed memory for `len` bytes; a dangling pointer for none.
pub(crate) fn allocate(len: usize) -> NonNull<u8> {
    if len == 0 {
        return NonNull::dangling();
    }
    let layout = layout(len);
    // SAFETY: the layout's size is not zero.
    let raw = unsafe { alloc_zeroed(layout) };
    NonNull::new(raw).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees what [`allocate`] gave for the same length.
pub(crate) fn release(ptr: NonNull<u8>, len: usize) {
    if len != 0 {
        // SAFETY: the only callers are drops of values that `allocate` filled, with one length.
        unsafe { dealloc(ptr.as_ptr(), layout(len)) }
    }
}
