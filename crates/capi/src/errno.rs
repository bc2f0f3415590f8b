#![allow(unsafe_code)]
//! Errors as C returns them.

use core::ffi::{CStr, c_char, c_int};
use core::panic::Location;
use std::cell::Cell;

use ripstop_core::fi_warn;
use ripstop_core::log::{self, Subsys};
use ripstop_types::Errno;

use crate::tostr::text::copy_cut;

mod c {
    use core::ffi::{c_char, c_int};

    unsafe extern "C" {
        pub(super) safe fn strerror(errnum: c_int) -> *const c_char;
    }
}

/// The texts of `FI_EOTHER` and up.
const OWN: [&CStr; 16] = [
    c"Unspecified error",
    c"Provided buffer is too small",
    c"Operation not permitted in current state",
    c"Error available",
    c"Flags not supported",
    c"Missing or unavailable event queue",
    c"Invalid resource domain",
    c"Missing or unavailable completion queue",
    c"CRC error",
    c"Truncation error",
    c"Required key not available",
    c"Missing or unavailable address vector",
    c"Queue has been overrun",
    c"Receiver not ready, no receive buffers available",
    c"Memory registration limit exceeded",
    c"Host unreachable due to firewall",
];

/// What a call that gives no number returns: 0 or a negative error.
#[inline]
#[track_caller]
pub(crate) fn code(result: ripstop_types::Result<()>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => fail(error),
    }
}

/// What a call that asks whether the library can do something returns: "not supported" is an answer to it and no
/// refusal, so it leaves no line in the log. Programs ask for all that there is when they start.
#[inline]
#[track_caller]
pub(crate) fn answer(result: ripstop_types::Result<()>) -> c_int {
    match result {
        Err(Errno::EOPNOTSUPP) => Errno::EOPNOTSUPP.0.wrapping_neg(),
        result => code(result),
    }
}

/// A negative error. One that refuses a call leaves a line in the log: what knew more has written it, else it is written
/// here.
#[inline]
#[track_caller]
pub(crate) fn fail(error: Errno) -> c_int {
    if !is_answer(error) {
        explain(error, Location::caller());
    }
    error.0.wrapping_neg()
}

/// Errors that answer a question or ask for another try: nothing is wrong with the call.
#[inline]
const fn is_answer(error: Errno) -> bool {
    matches!(
        error,
        Errno::EAGAIN
            | Errno::EAVAIL
            | Errno::EINTR
            | Errno::ENODATA
            | Errno::ENOENT
            | Errno::ENOPROTOOPT
            | Errno::ENOSYS
            | Errno::ETIMEDOUT
            | Errno::ETOOSMALL
    )
}

thread_local! {
    /// Warnings of this thread when it was refused something the last time.
    static BEFORE: Cell<u64> = const { Cell::new(0) };
}

#[cold]
fn explain(error: Errno, at: &Location<'_>) {
    if BEFORE.replace(log::warnings()) != log::warnings() {
        return;
    }
    fi_warn!(
        "core",
        Subsys::Core,
        "a call is refused with {} (-{}): an argument, or the state of an object, is none that the call takes, see its \
         manual page; here that is found by {}:{}",
        error.text(),
        error.0,
        at.file(),
        at.line()
    );
    BEFORE.set(log::warnings());
}

/// What a data call returns: 0 or a negative error.
#[inline]
#[track_caller]
pub(crate) fn status(result: ripstop_types::Result<()>) -> isize {
    code(result) as isize
}

/// What a call that counts returns: the number or a negative error.
#[inline]
#[track_caller]
pub(crate) fn count(result: ripstop_types::Result<usize>) -> isize {
    match result {
        Ok(n) => n.cast_signed(),
        Err(error) => fail(error) as isize,
    }
}

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
///
/// # Safety
///
/// `buf` is null or valid for writes of `len` bytes.
pub(crate) unsafe fn describe(errnum: c_int, buf: *mut c_char, len: usize) -> *const c_char {
    let text = message(errnum);
    if buf.is_null() || len == 0 {
        return text;
    }
    // SAFETY: a C string, as `message` says.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    // SAFETY: the caller's guarantee.
    unsafe { copy_cut(bytes, buf, len) };
    buf
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

    #[test]
    fn a_refusal_leaves_one_line() {
        let mut lines = vec![log::warnings()];
        for error in [Errno::EINVAL, Errno::EBUSY, Errno::EAGAIN, Errno::ENOSYS] {
            fail(error);
            lines.push(log::warnings());
        }
        fi_warn!("core", Subsys::Core, "the argument is none");
        fail(Errno::EINVAL);
        lines.push(log::warnings());
        let first = lines[0];
        let expected = [0, 1, 2, 2, 2, 3].map(|more| first + more);
        assert_eq!(lines, expected);
    }

    #[test]
    fn that_something_is_not_supported_is_an_answer() {
        let before = log::warnings();
        assert_eq!(answer(Err(Errno::EOPNOTSUPP)), -95);
        assert_eq!(answer(Ok(())), 0);
        assert_eq!(log::warnings(), before);
        assert_eq!(answer(Err(Errno::EINVAL)), -22);
        assert_eq!(log::warnings(), before + 1);
    }

    #[test]
    fn results_are_negative_errors_or_counts() {
        assert_eq!(code(Err(Errno::ENOSYS)), -38);
        assert_eq!(count(Ok(3)), 3);
        assert_eq!(count(Err(Errno::EAGAIN)), -11);
        assert_eq!(status(Ok(())), 0);
    }
}
