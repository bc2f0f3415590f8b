#![allow(unsafe_code)]
//! This library as an external provider of another libfabric (`fi_provider(3)`): what
//! `libripstop-fi.so` exports.
//!
//! That library has the programs' calls of `fi_getinfo` and `fi_fabric`, its own list of
//! providers and its own `FI_PROVIDER`; from the fabric on, objects are ours. It may be older
//! than our structures, and copies what is passed around in the size that it knows: so what comes
//! from it is read as all of them have it.

use core::ffi::{c_char, c_int, c_void};
use core::ptr;
use std::sync::LazyLock;

use ripstop_abi as abi;
use ripstop_core::hints::Request;
use ripstop_core::registry::registry;
use ripstop_types::{Errno, Flags, Result, Version};

use crate::errno::fail;
use crate::info::layout::{self, Layout, Widened};
use crate::info::read::{self, string};
use crate::info::write;
use crate::{object, providers};

/// The provider that is offered.
const OFFERED: &str = "tcp";

/// Its name there, where `tcp` is another's.
const NAME: &core::ffi::CStr = c"ripstop_tcp";

/// What callers of `fi_getinfo` may ask for; the other library adds flags of its own.
const FLAGS: Flags = Flags::SOURCE.union(Flags::NUMERICHOST);

/// With this flag a provider asks that is layered upon others (`ofi_rxm`): to have reliable
/// datagrams, which are offered anyway.
const FOR_LAYERS: u64 = 1 << 59;

/// What the other library knows of us, and writes its notes into.
struct Known(*mut abi::fi_provider);

// SAFETY: it is only handed on; whoever gets it orders its accesses.
unsafe impl Send for Known {}
// SAFETY: as above.
unsafe impl Sync for Known {}

static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    layout::read_as(&Layout::V1_3);
    providers::load();
    let version = registry()
        .lease(OFFERED)
        .map_or(Version::CURRENT, |lease| lease.version());
    let known = Box::new(abi::fi_provider {
        version: version.0,
        fi_version: Version::CURRENT.0,
        name: NAME.as_ptr(),
        getinfo: Some(getinfo),
        fabric: Some(fabric),
        cleanup: Some(cleanup),
        ..Default::default()
    });
    Known(Box::into_raw(known))
});

/// Exported as `fi_prov_ini` of `libripstop-fi.so`: what another libfabric registers.
///
/// # Safety
///
/// None. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_prov_ini() -> *mut abi::fi_provider {
    KNOWN.0
}

/// `fi_provider::cleanup`: the code stays mapped, and what is open stays usable.
unsafe extern "C" fn cleanup() {}

/// # Safety
///
/// Strings are null or C strings; `hints` is null or an `fi_info` with valid pointers.
unsafe fn answer(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::fi_info,
) -> Result<*mut abi::fi_info> {
    if flags & FOR_LAYERS != 0 {
        return Err(Errno::ENODATA);
    }
    // SAFETY: the caller's guarantee, for each block of this function.
    let node = unsafe { string(node) };
    // SAFETY: as above.
    let service = unsafe { string(service) };
    let mut hints = match hints.is_null() {
        true => None,
        false => {
            // SAFETY: as above; not null.
            let wide = unsafe { Widened::read(hints, layout::of_programs()) };
            // SAFETY: as above.
            Some(unsafe { read::hints(wide.info()) }?)
        }
    };
    // The other library has asked those that this names, by names of its own.
    if let Some(fabric) = hints.as_mut().and_then(|hints| hints.fabric.as_mut()) {
        fabric.prov_name = None;
    }
    let request = Request {
        version: Version(version),
        node: node.as_deref(),
        service: service.as_deref(),
        flags: Flags::from_bits_retain(flags) & FLAGS,
        hints: hints.as_ref(),
    };
    request.validate()?;
    let provider = registry().lease(OFFERED).ok_or(Errno::ENODATA)?;
    let mut infos = provider.getinfo(&request).infos;
    if infos.is_empty() {
        return Err(Errno::ENODATA);
    }
    for info in &mut infos {
        // It writes the name under which it knows us.
        info.fabric.prov_name = None;
        info.fabric.prov_version = provider.version().0;
        info.fabric.api_version = request.version;
    }
    let list = write::list(&infos);
    match list.is_null() {
        true => Err(Errno::ENOMEM),
        false => Ok(list),
    }
}

/// `fi_provider::getinfo`.
///
/// # Safety
///
/// As for `fi_getinfo`.
unsafe extern "C" fn getinfo(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const abi::fi_info,
    info: *mut *mut abi::fi_info,
) -> c_int {
    if info.is_null() {
        return fail(Errno::EINVAL);
    }
    // SAFETY: the caller's guarantee.
    let (list, code) = match unsafe { answer(version, node, service, flags, hints) } {
        Ok(list) => (list, 0),
        Err(error) => (ptr::null_mut(), fail(error)),
    };
    // SAFETY: not null, and the caller's guarantee.
    unsafe { info.write(list) };
    code
}

/// `fi_provider::fabric`.
///
/// # Safety
///
/// As for `fi_fabric`.
unsafe extern "C" fn fabric(
    attr: *mut abi::fi_fabric_attr,
    fabric: *mut *mut abi::fid_fabric,
    context: *mut c_void,
) -> c_int {
    let make = || {
        // SAFETY: the caller's guarantee.
        let attr = unsafe { attr.as_ref() }.ok_or(Errno::EINVAL)?;
        // SAFETY: as above.
        let mut attr = unsafe { read::fabric_attr(attr) }?;
        attr.prov_name = Some(OFFERED.to_owned());
        providers::open_fabric(&attr, context)
    };
    // SAFETY: the caller's guarantee.
    unsafe { object::open(fabric, make) }
}
