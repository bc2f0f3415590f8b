#![allow(unsafe_code)]
//! This library's providers as external ones of another libfabric (`fi_provider(3)`): what
//! `libripstop-fi.so` exports.
//!
//! An object brings one provider: `fi_prov_ini` takes no argument, and is asked once. So it returns
//! tcp, and `libripstop_shm-fi.so`, which has no code of its own (`libfabric/shm`), asks here for shm.
//!
//! That library has the programs' calls of `fi_getinfo` and `fi_fabric`, its own list of
//! providers and its own `FI_PROVIDER`; from the fabric on, objects are ours. It may be older
//! than our structures, and copies what is passed around in the size that it knows: so what comes
//! from it is read as all of them have it.

use core::ffi::{CStr, c_int, c_void};
use std::sync::LazyLock;

use ripstop_abi as abi;
use ripstop_core::Hints;
use ripstop_core::hints::Request;
use ripstop_core::registry::registry;
use ripstop_types::{Errno, Flags, Result, Version};

use crate::edge::{In, Out, trampolines};
use crate::getinfo::{give, listed};
use crate::info::layout::{self, InfoIn, Layout};
use crate::info::read::{self, string};
use crate::providers;

/// A provider that is offered.
trait Offered: 'static {
    /// Its name here.
    const OURS: &'static str;

    /// Its name there, where the other one may be another's.
    const NAME: &'static CStr;

    /// Whether it reaches processes of this machine only.
    const IS_LOCAL: bool;
}

/// The provider `tcp`.
struct Tcp;

impl Offered for Tcp {
    const OURS: &'static str = "tcp";
    const NAME: &'static CStr = c"ripstop_tcp";
    const IS_LOCAL: bool = false;
}

/// The provider `shm`.
struct Shm;

impl Offered for Shm {
    const OURS: &'static str = "shm";
    const NAME: &'static CStr = c"ripstop_shm";
    const IS_LOCAL: bool = true;
}

/// What callers of `fi_getinfo` may ask for; the other library adds flags of its own.
const FLAGS: Flags = Flags::SOURCE.union(Flags::NUMERICHOST);

/// With this flag a provider asks that is layered upon others (`ofi_rxm`): to have reliable
/// datagrams, which are offered anyway.
const FOR_LAYERS: u64 = 1 << 59;

/// What the other library knows of us, and writes its notes into.
struct Known(*mut abi::fi_provider);

// SAFETY: it is only handed on; whoever gets it orders its accesses.
unsafe impl Send for Known {}
// SAFETY: the pointer is never followed here, so threads may share it.
unsafe impl Sync for Known {}

static TCP: LazyLock<Known> = LazyLock::new(known::<Tcp>);

static SHM: LazyLock<Known> = LazyLock::new(known::<Shm>);

fn known<P: Offered>() -> Known {
    layout::set_of_callers(&Layout::V1_3);
    providers::load();
    let version = registry()
        .provider(P::OURS)
        .map_or(Version::CURRENT, |provider| provider.version());
    let known = Box::new(abi::fi_provider {
        version: version.0,
        fi_version: Version::CURRENT.0,
        name: P::NAME.as_ptr(),
        getinfo: Some(getinfo::<P>),
        fabric: Some(fabric::<P>),
        cleanup: Some(cleanup),
        ..Default::default()
    });
    Known(Box::into_raw(known))
}

/// Exported as `fi_prov_ini` of `libripstop-fi.so`: what another libfabric registers.
///
/// # Safety
///
/// None. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_fi_prov_ini() -> *mut abi::fi_provider {
    TCP.0
}

/// Exported from `libripstop-fi.so` under its own name: what `fi_prov_ini` of
/// `libripstop_shm-fi.so` returns.
///
/// # Safety
///
/// None. `unsafe` only because C calls it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ripstop_shm_prov_ini() -> *mut abi::fi_provider {
    SHM.0
}

/// `fi_provider::cleanup`: the code stays mapped, and what is open stays usable.
unsafe extern "C" fn cleanup() {}

trampolines! { [P: Offered]
    /// `fi_provider::getinfo`.
    extern "C" fn getinfo(
        version: u32, node: Option<&CStr>, service: Option<&CStr>, flags: u64, hints: GivenHints,
        info: Out<*mut abi::fi_info>,
    ) -> c_int {
        give(&info, || {
            let hints = hints.widen();
            let hints = hints.as_ref().map(|wide| read::hints(wide.whole()));
            let node = node.map(string);
            let service = service.map(string);
            let named = (node.as_deref(), service.as_deref());
            answer::<P>(version, named, flags, hints.transpose()?)
        })
    }

    /// `fi_provider::fabric`.
    extern "C" fn fabric(
        attr: In<*mut abi::fi_fabric_attr>, fabric: Out<*mut abi::fid_fabric>,
        context: *mut c_void,
    ) -> c_int {
        fabric.open(|| {
            let mut attr = read::fabric_attr(attr.get().ok_or(Errno::EINVAL)?)?;
            attr.prov_name = Some(P::OURS.to_owned());
            providers::open_fabric(&attr, context)
        })
    }
}

/// An `fi_info` that the other library passes on.
type GivenHints<'a> = InfoIn<'a, *const abi::fi_info>;

/// What a provider offers; `named` are the node and the service.
fn answer<P: Offered>(
    version: u32,
    named: (Option<&str>, Option<&str>),
    flags: u64,
    mut hints: Option<Hints>,
) -> Result<*mut abi::fi_info> {
    if flags & FOR_LAYERS != 0 {
        return Err(Errno::ENODATA);
    }
    if let Some(hints) = &mut hints {
        adapt::<P>(hints);
    }
    let request = Request {
        version: Version(version),
        node: named.0,
        service: named.1,
        flags: Flags::from_bits_retain(flags) & FLAGS,
        hints: hints.as_ref(),
        ..Request::default()
    };
    request.validate()?;
    let provider = registry().provider(P::OURS).ok_or(Errno::ENODATA)?;
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
    listed(&infos)
}

/// Takes out of hints what is not for this provider.
fn adapt<P: Offered>(hints: &mut Hints) {
    // The other library has asked those that this names, by names of its own.
    if let Some(fabric) = hints.fabric.as_mut() {
        fabric.prov_name = None;
    }
    // Who composes providers reaches other machines through another one. `lnx` knows this of a
    // provider named shm only.
    if P::IS_LOCAL && hints.caps.contains(Flags::PEER) {
        hints.caps -= Flags::REMOTE_COMM;
        if let Some(domain) = hints.domain.as_mut() {
            domain.caps -= Flags::REMOTE_COMM;
        }
    }
}
