#![allow(unsafe_code)]
//! Text under construction, and its way into a caller's buffer.

use core::ffi::{CStr, c_char, c_void};
use core::fmt;
use core::marker::PhantomData;
use core::ptr;
use std::io::Write;

use crate::edge::arguments;

/// Bytes for a C caller: UTF-8 except where the caller's own strings are not.
#[derive(Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    /// Appends text.
    pub(crate) fn put(&mut self, s: &str) {
        self.bytes(s.as_bytes());
    }

    /// Appends formatted text.
    pub(crate) fn fmt(&mut self, args: fmt::Arguments<'_>) {
        // Writing to memory does not fail, and the arguments are plain values.
        let _ = self.0.write_fmt(args);
    }

    /// Appends bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Appends a C string, or `(null)`.
    pub(crate) fn c_str(&mut self, s: Option<&CStr>) {
        self.bytes(s.unwrap_or(c"(null)").to_bytes());
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
}

arguments! {
    /// Where a call writes text: null, or that many bytes.
    pub(crate) struct TextOut { at: *mut c_char, len: usize }
}

impl<'a> TextOut<'a> {
    /// Room in a buffer of ours.
    pub(crate) fn of(buf: &'a mut [c_char]) -> Self {
        let (at, len, call) = (buf.as_mut_ptr(), buf.len(), PhantomData);
        Self { at, len, call }
    }

    /// Whether nothing can be written.
    pub(crate) fn is_empty(&self) -> bool {
        self.at.is_null() || self.len == 0
    }

    /// Where it begins.
    pub(crate) const fn as_ptr(&self) -> *mut c_char {
        self.at
    }

    /// What is left behind the text that is there already: the buffer of `fi_ops::tostr`, to
    /// which objects append.
    pub(crate) fn rest(self) -> Self {
        let mut used = 0;
        // SAFETY: `used` is within the buffer, as `from_c` was promised.
        while used < self.len && unsafe { self.at.wrapping_add(used).read() } != 0 {
            used = used.saturating_add(1);
        }
        Self {
            at: self.at.wrapping_add(used),
            len: self.len.saturating_sub(used),
            call: PhantomData,
        }
    }

    /// Writes text, cut to what there is room for with the final NUL.
    pub(crate) fn put(self, text: &[u8]) {
        if self.is_empty() {
            return;
        }
        let n = text.len().min(self.len.saturating_sub(1));
        // SAFETY: less than `len` bytes, all of which may be written as `from_c` was promised, and
        // which are no part of what is shared with us.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), self.at.cast(), n) };
        // SAFETY: still one of the `len` bytes.
        unsafe { self.at.wrapping_add(n).write(0) };
    }
}
