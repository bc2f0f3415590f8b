#![allow(unsafe_code)]
//! Memory from C's allocator, for what a C program may free itself or gave us to free.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

mod c {
    use core::ffi::c_void;

    unsafe extern "C" {
        pub(super) safe fn calloc(count: usize, size: usize) -> *mut c_void;
        pub(super) fn free(ptr: *mut c_void);
    }
}

/// Zeroed memory for `count` values, or null when there is none.
pub(crate) fn zeroed<T: Copy>(count: usize) -> *mut T {
    // C's allocator aligns for any type of its own, which all of the C interface's are.
    const { assert!(align_of::<T>() <= 16) };
    c::calloc(count.max(1), size_of::<T>().max(1)).cast()
}

/// Gives memory back; null is nothing.
///
/// # Safety
///
/// `ptr` is null or came from C's allocator, and nobody uses the memory any more.
pub(crate) unsafe fn free<T>(ptr: *mut T) {
    // SAFETY: null or what C's allocator gave, and used no more, by the contract of this function.
    unsafe { c::free(ptr.cast::<c_void>()) };
}

/// A copy of one value, or null when there is no memory.
pub(crate) fn boxed<T: Copy>(value: T) -> *mut T {
    let copy = zeroed::<T>(1);
    if !copy.is_null() {
        // SAFETY: fresh memory of this size.
        unsafe { copy.write(value) };
    }
    copy
}

/// A copy of bytes, or null when there is no memory; never null otherwise, even for no bytes.
pub(crate) fn bytes(source: &[u8]) -> *mut u8 {
    let copy = zeroed::<u8>(source.len());
    if !copy.is_null() {
        // SAFETY: both have `source.len()` bytes, and the copy is fresh.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), copy, source.len()) };
    }
    copy
}

/// A NUL-terminated copy of text up to its first NUL, or null when there is no memory.
pub(crate) fn text(source: &str) -> *mut c_char {
    let mut text = source.split('\0').next().unwrap_or_default().to_owned();
    text.push('\0');
    bytes(text.as_bytes()).cast()
}

/// A copy of a C string, or null when there is no memory.
pub(crate) fn c_text(source: &CStr) -> *mut c_char {
    bytes(source.to_bytes_with_nul()).cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_ends_at_its_first_nul() {
        let copy = text("tcp\0shm");
        // SAFETY: `text` terminated it.
        let read = unsafe { CStr::from_ptr(copy) };
        assert_eq!(read, c"tcp");
        let again = c_text(read);
        // SAFETY: from C's allocator, used no more.
        unsafe { free(copy) };
        // SAFETY: `c_text` terminated it.
        assert_eq!(unsafe { CStr::from_ptr(again) }, c"tcp");
        // SAFETY: from C's allocator, used no more.
        unsafe { free(again) };
    }

    #[test]
    fn a_copy_of_nothing_is_not_null() {
        let copy = bytes(&[]);
        assert!(!copy.is_null());
        // SAFETY: from C's allocator, used no more.
        unsafe { free(copy) };
    }
}
