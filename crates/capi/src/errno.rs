//! Errors as C returns them.

use core::ffi::c_int;
use core::panic::Location;
use std::cell::Cell;

use ripstop_core::fi_warn;
use ripstop_core::log::{self, Subsys};
use ripstop_types::Errno;

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

/// A call was given NULL for an argument that is not optional; the log says which.
#[cold]
pub(crate) fn missing(call: &str, argument: &str) -> Errno {
    fi_warn!(
        "core",
        Subsys::Core,
        "{call}: {argument} is NULL; it is not optional"
    );
    Errno::EINVAL
}

/// A call was given what it does not take: `why` says what that is and what to do.
#[cold]
pub(crate) fn refused(call: &str, why: &str, errno: Errno) -> Errno {
    fi_warn!("core", Subsys::Core, "{call}: {why}");
    errno
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

#[cfg(test)]
mod tests {
    use super::*;

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
