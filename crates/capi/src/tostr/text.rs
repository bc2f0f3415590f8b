#![allow(unsafe_code)]
//! Text under construction, and its way into a caller's buffer.

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::ptr;

/// Bytes for a C caller: UTF-8 except where the caller's own strings are not.
#[derive(Default)]
pub(crate) struct Text(Vec<u8>);

impl fmt::Write for Text {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        self.0.extend_from_slice(s.as_bytes());
        Ok(())
    }
}

impl Text {
    /// Appends text.
    pub(crate) fn put(&mut self, s: &str) {
        self.0.extend_from_slice(s.as_bytes());
    }

    /// Appends formatted text.
    pub(crate) fn fmt(&mut self, args: fmt::Arguments<'_>) {
        // Writing to memory does not fail, and the arguments are plain values.
        let _ = fmt::Write::write_fmt(self, args);
    }

    /// Appends bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a C string, or `(null)`.
    ///
    /// # Safety
    ///
    /// `s` is null or a NUL-terminated string.
    pub(crate) unsafe fn c_str(&mut self, s: *const c_char) {
        if s.is_null() {
            self.put("(null)");
        } else {
            // SAFETY: not null, and terminated by the caller's guarantee.
            self.bytes(unsafe { CStr::from_ptr(s) }.to_bytes());
        }
    }

    /// Appends an address as C prints it.
    pub(crate) fn pointer<T>(&mut self, pointer: *const T) {
        if pointer.is_null() {
            self.put("(nil)");
        } else {
            self.fmt(format_args!("{:p}", pointer.cast::<c_void>()));
        }
    }

    /// The bytes so far.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Copies the text to `buf`, cut to what `len` bytes hold with the final NUL.
    ///
    /// # Safety
    ///
    /// `buf` is valid for writes of `len` bytes.
    pub(crate) unsafe fn copy_to(&self, buf: *mut c_char, len: usize) {
        // SAFETY: the caller's guarantee.
        unsafe { copy_cut(&self.0, buf, len) };
    }
}

/// Copies text to `buf`, cut to what `len` bytes hold with the final NUL.
///
/// # Safety
///
/// `buf` is valid for writes of `len` bytes, and they are not part of `text`.
pub(crate) unsafe fn copy_cut(text: &[u8], buf: *mut c_char, len: usize) {
    let Some(room) = len.checked_sub(1) else {
        return;
    };
    let n = text.len().min(room);
    // SAFETY: `n < len` bytes, apart from `text` by the caller's guarantee.
    unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buf.cast(), n) };
    // SAFETY: `n < len`.
    let end = unsafe { buf.add(n) };
    // SAFETY: still one of the `len` bytes.
    unsafe { end.write(0) };
}
