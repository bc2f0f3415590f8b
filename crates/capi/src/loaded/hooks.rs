//! Hooks from objects: providers that intercept the calls of a program on another one's objects, as
//! the C library's `ofi_hook_debug` does.

use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, params};

use super::CProvider;

/// What the names of hooks begin with, which `FI_HOOK` may leave out.
const PREFIX: &str = "ofi_hook_";

/// Puts the hooks that `FI_HOOK` names above a fabric of this provider that was just opened, the first
/// one lowest; returns what the program gets.
pub(crate) fn install(fabric: *mut abi::fid_fabric, provider: &str) -> *mut abi::fid_fabric {
    chosen().iter().fold(fabric, |below, hook| {
        hook.open_hook(below, provider).unwrap_or_else(|error| {
            let path = hook.path().display();
            fi_warn!(
                "core",
                Subsys::Core,
                "the hook {path} does not open above {provider}: {error}"
            );
            below
        })
    })
}

/// The hooks that are named and there.
fn chosen() -> &'static [Arc<CProvider>] {
    static CHOSEN: OnceLock<Vec<Arc<CProvider>>> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let names = params().get::<String>(None, "hook").unwrap_or_default();
        let names = names.split(';').filter(|name| !name.is_empty());
        names.filter_map(find).collect()
    })
}

/// A hook by its name, whole or without the beginning that all have.
fn find(name: &str) -> Option<Arc<CProvider>> {
    let found = super::find(name).or_else(|| super::find(&format!("{PREFIX}{name}")));
    let hook = found.filter(|found| found.is_hook());
    if hook.is_none() {
        fi_warn!(
            "core",
            Subsys::Core,
            "FI_HOOK names {name}, and no object that FI_PROVIDER_PATH finds brings such a hook"
        );
    }
    hook
}
