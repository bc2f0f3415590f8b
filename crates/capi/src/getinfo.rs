#![allow(unsafe_code)]
//! `fi_getinfo(3)` at each version node.

use core::ffi::{c_char, c_int};
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::hints::Request;
use ripstop_core::log::Subsys;
use ripstop_core::registry::registry;
use ripstop_types::{Errno, Flags, Result, Version};

use crate::errno::fail;
use crate::info::layout::{Layout, Widened};
use crate::info::read::{self, string};
use crate::info::write;
use crate::{object, opened, providers};

/// The arguments of `fi_getinfo`.
struct Call {
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::fi_info,
}

/// Answers a call.
///
/// # Errors
/// [`Errno::ENODATA`] when nothing matches, [`Errno::ENOSYS`] for a newer version than ours,
/// [`Errno::EINVAL`] for a bad argument, [`Errno::ENOMEM`].
///
/// # Safety
///
/// Strings are null or C strings; `hints` is null or an `fi_info` of this node, with valid
/// pointers.
unsafe fn answer(call: &Call, layout: &Layout) -> Result<*mut abi::fi_info> {
    providers::load();
    // SAFETY: the caller's guarantee, for each block of this function.
    let node = unsafe { string(call.node) };
    // SAFETY: as above.
    let service = unsafe { string(call.service) };
    let hints = match call.hints.is_null() {
        true => None,
        false => {
            // SAFETY: as above; not null.
            let wide = unsafe { Widened::read(call.hints, layout) };
            // SAFETY: as above; what the node lacks is null.
            Some(unsafe { read::hints(wide.info()) }?)
        }
    };
    let request = Request {
        version: Version(call.version),
        node: node.as_deref(),
        service: service.as_deref(),
        flags: Flags::from_bits_retain(call.flags),
        hints: hints.as_ref(),
    };
    let found = registry().getinfo(&request).map_err(|none| {
        // The registry has told why each provider refuses.
        if none.errno != Errno::ENODATA {
            ripstop_core::fi_warn!("core", Subsys::Core, "fi_getinfo: {none}");
        }
        none.errno
    });
    let mut infos = found?;
    if !request.lists_providers() {
        opened::name_in(&mut infos);
    }
    let list = write::list(&infos);
    match list.is_null() {
        true => Err(Errno::ENOMEM),
        false => Ok(list),
    }
}

/// # Safety
///
/// As for [`answer`]; `info` is null or valid for writes.
unsafe fn getinfo(call: &Call, layout: &Layout, info: *mut *mut abi::fi_info) -> c_int {
    if info.is_null() {
        return fail(object::missing("fi_getinfo", "info"));
    }
    // SAFETY: the caller's guarantee.
    let (list, code) = match unsafe { answer(call, layout) } {
        Ok(list) => (list, 0),
        Err(error) => (ptr::null_mut(), fail(error)),
    };
    // SAFETY: not null, and the caller's guarantee.
    unsafe { info.write(list) };
    code
}

macro_rules! versions {
    ($($node:literal $layout:ident $name:ident;)*) => { $(
        #[doc = concat!("Exported as `fi_getinfo@FABRIC_", $node, "`: lists the interfaces that")]
        /// meet the hints, best first. Returns 0 and a list to be freed with `fi_freeinfo`;
        /// else an error and null: `-FI_ENODATA` when nothing matches (the log says why, at
        /// `FI_LOG_LEVEL=info`), `-FI_ENOSYS` when `version` is newer than the library,
        /// `-FI_EINVAL` for null or a bad argument, `-FI_ENOMEM`.
        ///
        /// # Safety
        ///
        /// - `node` and `service` are null or C strings.
        /// - `hints` is null or an `fi_info` as programs of this node know it; every pointer in
        ///   it is null or valid for what it points to.
        /// - `info` is null or valid for writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const abi::fi_info,
            info: *mut *mut abi::fi_info,
        ) -> c_int {
            let call = Call { version, node, service, flags, hints };
            // SAFETY: the caller's guarantee.
            unsafe { getinfo(&call, &Layout::$layout, info) }
        }
    )* };
}

versions! {
    "1.0" V1_0 ripstop_fi_getinfo_1_0;
    "1.1" V1_1 ripstop_fi_getinfo_1_1;
    "1.2" V1_2 ripstop_fi_getinfo_1_2;
    "1.3" V1_3 ripstop_fi_getinfo_1_3;
    "1.7" V1_7 ripstop_fi_getinfo_1_7;
    "1.8" V1_8 ripstop_fi_getinfo_1_8;
    "1.9" V1_9 ripstop_fi_getinfo_1_9;
}
