#![allow(unsafe_code)]
//! `fi_open(3)`: objects that belong to the library and not to a fabric; and fabrics, in `fabric`.

pub(crate) mod fabric;

use core::ffi::{CStr, c_char, c_int, c_void};

use ripstop_abi as abi;
use ripstop_types::{Errno, Version};

use crate::edge::{Out, trampolines};
use crate::errno::fail;
use crate::log;

trampolines! { []
    /// Exported as `fi_open@@FABRIC_1.5`: opens `logging` (to import a logger, `fi_import_log`).
    /// Returns 0; `-FI_ENOSYS` for any other name, `mr_cache` among them: nothing here caches
    /// registrations, so there is no monitor to import; `-FI_EINVAL` for null, attributes or a
    /// version before 1.13; `-FI_EBADFLAGS` for flags; `-FI_EALREADY` while a logger is imported.
    ///
    /// # Safety
    ///
    /// `name` is null or a C string; `fid` is null or valid for writes.
    #[unsafe(no_mangle)]
    pub extern "C" fn ripstop_fi_open_1_5(
        version as u32,
        name: Option<&CStr> as *const c_char,
        _attr as *mut c_void,
        attr_len as usize,
        flags as u64,
        fid: Out<*mut abi::fid> as *mut *mut abi::fid,
        context as *mut c_void,
    ) -> c_int {
        let Some(name) = name else {
            return fail(Errno::EINVAL);
        };
        fid.open(|| {
            if !name.to_bytes().eq_ignore_ascii_case(b"logging") {
                return Err(Errno::ENOSYS);
            }
            if Version(version) < Version::new(1, 13) || attr_len != 0 {
                return Err(Errno::EINVAL);
            }
            if flags != 0 {
                return Err(Errno::EBADFLAGS);
            }
            log::open(context)
        })
    }
}

/// Exported as `fi_version@@FABRIC_1.0`: the version of the interface, `FI_VERSION(2, 6)`.
///
/// # Safety
///
/// None. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_version_1_0() -> u32 {
    Version::CURRENT.0
}
