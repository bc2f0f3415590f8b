#![allow(unsafe_code)]
//! What `printf` makes of a format and its arguments.

use core::ffi::{CStr, c_char, c_void};
use core::ptr;

use crate::cmem;
use crate::edge::Arg2;

mod c {
    use core::ffi::{c_char, c_int, c_void};

    unsafe extern "C" {
        pub(super) fn vasprintf(
            text: *mut *mut c_char,
            format: *const c_char,
            args: *mut c_void,
        ) -> c_int;
    }
}

/// A format of `printf`, or null, and arguments that match it.
pub(crate) struct Format {
    format: *const c_char,
    args: Args,
}

/// A `va_list` as C passes it: on both platforms the address of the structure.
#[repr(transparent)]
pub(crate) struct Args(*mut c_void);

impl Arg2 for Format {
    type A = *const c_char;
    type B = Args;

    unsafe fn from_c(format: *const c_char, args: Args) -> Self {
        Self { format, args }
    }
}

impl Format {
    /// The text; `None` for null, for a bad format, and when there is no memory.
    pub(crate) fn print(self) -> Option<String> {
        if self.format.is_null() {
            return None;
        }
        let mut text = ptr::null_mut();
        // SAFETY: a C string and arguments that match it, which are used once; the list is one that
        // `va_arg` takes.
        if unsafe { c::vasprintf(&raw mut text, self.format, self.args.0) } < 0 {
            return None;
        }
        // SAFETY: `vasprintf` made a C string.
        let printed = unsafe { CStr::from_ptr(text) };
        let printed = printed.to_string_lossy().into_owned();
        // SAFETY: `vasprintf` took it from C's allocator.
        unsafe { cmem::free(text) };
        Some(printed)
    }

    /// Whether there is no format.
    pub(crate) fn is_null(&self) -> bool {
        self.format.is_null()
    }
}
