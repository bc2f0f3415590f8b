#![allow(unsafe_code)]
//! Errors as text (`fi_strerror(3)`).

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::LazyLock;

use ripstop_types::Errno;

use crate::edge::trampolines;
use crate::text::TextOut;

mod c {
    use core::ffi::{c_char, c_int};

    unsafe extern "C" {
        pub(super) safe fn strerror(errnum: c_int) -> *const c_char;
    }
}

/// The texts of `FI_EOTHER` and up.
static OWN: LazyLock<[CString; 16]> = LazyLock::new(|| {
    let first = Errno::EOTHER.0;
    let text =
        |index| CString::new(Errno(first.wrapping_add(index as c_int)).text()).unwrap_or_default();
    core::array::from_fn(text)
});

/// `fi_strerror(3)` as a C string that is never freed.
pub(crate) fn message(errnum: c_int) -> *const c_char {
    let errnum = errnum.unsigned_abs();
    let own = errnum.checked_sub(Errno::EOTHER.0.unsigned_abs());
    match own {
        None => c::strerror(errnum.cast_signed()),
        Some(index) => OWN.get(index as usize).unwrap_or(&OWN[0]).as_ptr(),
    }
}

/// Describes an error in a caller's buffer, if there is one, and returns the description.
fn describe(errnum: c_int, out: TextOut<'_>) -> *const c_char {
    let text = message(errnum);
    if out.is_empty() {
        return text;
    }
    let buf = out.as_ptr();
    // SAFETY: `message` returns a C string that lasts until the thread's next call.
    out.put(unsafe { CStr::from_ptr(text) }.to_bytes());
    buf
}

trampolines! { [Q]
    /// `fi_cq_strerror` and `fi_eq_strerror`.
    pub(crate) extern "C" fn strerror(
        _queue: *mut Q, prov_errno: c_int, _err_data: *const c_void, text: TextOut(buf, len),
    ) -> *const c_char {
        describe(prov_errno, text)
    }
}

/// Exported as `fi_strerror@@FABRIC_1.0`: describes an error, positive or negative
/// (`fi_errno(3)`). The text belongs to the library; that of a number which is no error of the
/// system's lasts until the thread's next call.
///
/// # Safety
///
/// None: every number is allowed. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_strerror_1_0(errnum: c_int) -> *const c_char {
    message(errnum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(errnum: c_int) -> &'static str {
        // SAFETY: any number is allowed.
        let text = unsafe { ripstop_fi_strerror_1_0(errnum) };
        // SAFETY: a C string that lasts longer than the test, which asks for known errors.
        unsafe { CStr::from_ptr(text) }.to_str().unwrap()
    }

    #[test]
    fn own_texts_are_those_of_the_vocabulary() {
        for number in 256..272 {
            assert_eq!(text(number), Errno(number).text());
            assert_eq!(text(-number), Errno(number).text());
        }
        assert_eq!(text(272), "Unspecified error");
        assert_eq!(text(c_int::MIN), "Unspecified error");
    }

    #[test]
    fn system_texts_come_from_c() {
        assert_eq!(text(-11), "Resource temporarily unavailable");
        assert_eq!(text(0), "Success");
    }
}
