#![allow(unsafe_code)]
//! `fi_getinfo(3)` at each version node.

use core::ffi::{CStr, c_char, c_int};
use core::marker::PhantomData;
use core::ptr;

use ripstop_abi as abi;
use ripstop_core::Info;
use ripstop_core::hints::{Original, Request};
use ripstop_core::log::Subsys;
use ripstop_core::registry::registry;
use ripstop_types::{Errno, Flags, Result, Version};

use crate::edge::{Arg, Out, trampolines};
use crate::errno::{self, fail};
use crate::info::layout::{InfoIn, Layout, Widened};
use crate::info::read::{self, string};
use crate::info::write;
use crate::{loaded, opened, providers};

/// Answers a call.
///
/// # Errors
/// [`Errno::ENODATA`] when nothing matches, [`Errno::ENOSYS`] for a newer version than ours,
/// [`Errno::EINVAL`] for a bad argument, [`Errno::ENOMEM`].
fn answer(
    version: u32,
    node: Option<&CStr>,
    service: Option<&CStr>,
    flags: u64,
    hints: Option<&Widened>,
) -> Result<*mut abi::fi_info> {
    if hints.is_some_and(Widened::is_for_accelerator) {
        ripstop_core::fi_info!(
            "core",
            Subsys::Core,
            "fi_getinfo: hints->ep_attr->xpu_ctx names an accelerator, for which no provider here has endpoints; leave it NULL"
        );
        return Err(Errno::ENODATA);
    }
    providers::load();
    loaded::load();
    let (node, service) = (node.map(string), service.map(string));
    let read = hints.map(|wide| read::hints(wide.whole())).transpose();
    let unread = read.as_ref().err().copied();
    let original = hints.map(|wide| Original {
        hints: wide,
        is_read: unread.is_none(),
    });
    let hints = match (read, hints) {
        (Err(_), Some(wide)) if loaded::is_any() => Some(read::names(wide.whole())),
        (read, _) => read?,
    };
    let request = Request {
        version: Version(version),
        node: node.as_deref(),
        service: service.as_deref(),
        flags: Flags::from_bits_retain(flags),
        hints: hints.as_ref(),
        original,
    };
    let found = registry().getinfo(&request).map_err(|none| {
        // The registry has told why each provider refuses.
        if none.errno != Errno::ENODATA {
            ripstop_core::fi_warn!("core", Subsys::Core, "fi_getinfo: {none}");
        }
        unread.unwrap_or(none.errno)
    });
    let mut infos = found?;
    if !request.lists_providers() {
        opened::name_in(&mut infos);
    }
    listed(&infos)
}

/// A list for the caller.
///
/// # Errors
/// [`Errno::ENOMEM`].
pub(crate) fn listed(infos: &[Info]) -> Result<*mut abi::fi_info> {
    let list = write::list(infos);
    match list.is_null() {
        true => Err(Errno::ENOMEM),
        false => Ok(list),
    }
}

/// Stores a list, or null where there is none, and returns why.
pub(crate) fn give(
    info: &Out<'_, *mut abi::fi_info>,
    list: impl FnOnce() -> Result<*mut abi::fi_info>,
) -> c_int {
    if info.is_null() {
        return fail(errno::missing("fi_getinfo", "info"));
    }
    let (list, code) = match list() {
        Ok(list) => (list, 0),
        Err(error) => (ptr::null_mut(), fail(error)),
    };
    info.put(list);
    code
}

/// The hints of a call at some version node.
trait At {
    /// That node.
    const LAYOUT: &'static Layout;
}

/// Hints of node `N`, or null.
struct HintsOf<'a, N>(InfoIn<'a, *const abi::fi_info>, PhantomData<N>);

impl<N: At> Arg for HintsOf<'_, N> {
    type C = *const abi::fi_info;

    unsafe fn from_c(at: *const abi::fi_info) -> Self {
        // SAFETY: null or hints of the node, by the contract of this function.
        Self(unsafe { InfoIn::from_c(at) }, PhantomData)
    }
}

impl<N: At> HintsOf<'_, N> {
    /// In today's layout.
    fn widen(self) -> Option<Box<Widened>> {
        // SAFETY: null or an `fi_info` of this node, as `from_c` was promised.
        unsafe { self.0.widen_from(N::LAYOUT) }
    }
}

macro_rules! versions {
    ($($node:literal $layout:ident $name:ident;)*) => { $(
        struct $layout;

        impl At for $layout {
            const LAYOUT: &'static Layout = &Layout::$layout;
        }

        trampolines! { []
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
        pub extern "C" fn $name(
            version as u32,
            node: Option<&CStr> as *const c_char,
            service: Option<&CStr> as *const c_char,
            flags as u64,
            hints: HintsOf<$layout> as *const abi::fi_info,
            info: Out<*mut abi::fi_info> as *mut *mut abi::fi_info,
        ) -> c_int {
            give(&info, || {
                answer(version, node, service, flags, hints.widen().as_deref())
            })
        }
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
    "1.10" V1_10 ripstop_fi_getinfo_1_10;
}
