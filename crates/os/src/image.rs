#![allow(unsafe_code)]
//! The files that the code of this process comes from, and whether whoever started it may name them.

use std::ffi::{CStr, OsStr, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// The executable or shared object that has this function (`dladdr(3)`), as the dynamic linker was
/// given it; `None` if the linker does not know it.
#[must_use]
pub fn path_of_code(function: fn()) -> Option<PathBuf> {
    let address = function as *const c_void;
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: it only compares the address, and `info` takes the answer.
    let found = unsafe { libc::dladdr(address, info.as_mut_ptr()) };
    // SAFETY: zeros are a `Dl_info`, which the call has filled or left alone.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the name is a C string that lasts as long as the object is loaded, which this code
    // needs as well if it is the caller's, and is copied at once if it is another's.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Whether the program has rights that whoever started it has not: it is set-user-ID, set-group-ID, or has capabilities
/// (`AT_SECURE`, see `getauxval(3)`). Then its environment is theirs, and may not say what code it runs or what files it
/// writes.
#[must_use]
pub fn is_privileged() -> bool {
    // SAFETY: it reads what the kernel gave the process when it started.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_have_the_rights_of_who_runs_them() {
        assert!(!is_privileged());
    }

    #[test]
    fn code_of_this_test_is_in_its_executable() {
        let this = path_of_code(code_of_this_test_is_in_its_executable);
        let this = this.map(|path| path.canonicalize());
        let exe = std::env::current_exe().map(|path| path.canonicalize());
        assert_eq!(this.unwrap().unwrap(), exe.unwrap().unwrap());
    }
}
