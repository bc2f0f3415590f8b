#![allow(unsafe_code)]
//! Hooks, which intercept the calls of a program on a provider's fabrics, domains, endpoints and so on: those that are
//! built in (`ripstop_hooks`), and providers from shared objects, as the C library's `ofi_hook_debug` is.

use std::sync::{Arc, OnceLock};

use ripstop_abi as abi;
use ripstop_core::log::Subsys;
use ripstop_core::{fi_warn, params};
use ripstop_hooks::{Hook, Hooks};

use super::CProvider;

/// What the names of hooks begin with, which `FI_HOOK` may leave out.
const PREFIX: &str = "ofi_hook_";

/// Hooks that are put above a fabric in one step.
enum Step {
    /// Built in, one or several in a row.
    BuiltIn(Hooks),
    /// From a shared object.
    Shared(Arc<CProvider>),
}

/// Puts the hooks that `FI_HOOK` names above a fabric of this provider that was just opened, the first
/// one lowest; returns what the program gets.
///
/// # Safety
///
/// The fabric is open, and nobody else uses it yet.
pub(crate) unsafe fn install(
    mut fabric: *mut abi::fid_fabric,
    provider: &str,
) -> *mut abi::fid_fabric {
    for step in chosen() {
        match step {
            // SAFETY: the caller's, or what a hook has just laid over it.
            Step::BuiltIn(hooks) => unsafe { ripstop_hooks::install(fabric, hooks, provider) },
            Step::Shared(hook) => fabric = open_above(hook, fabric, provider),
        }
    }
    fabric
}

/// The fabric of a hook from a shared object above another one; that one where it does not open.
fn open_above(
    hook: &Arc<CProvider>,
    below: *mut abi::fid_fabric,
    provider: &str,
) -> *mut abi::fid_fabric {
    hook.open_hook(below, provider).unwrap_or_else(|error| {
        let path = hook.path().display();
        fi_warn!(
            "core",
            Subsys::Core,
            "the hook {path} does not open above {provider}: {error}"
        );
        below
    })
}

/// The hooks that `FI_HOOK` names, as far as there are such hooks; read once.
fn chosen() -> &'static [Step] {
    static CHOSEN: OnceLock<Vec<Step>> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let names = params().get::<String>(None, "hook").unwrap_or_default();
        let mut steps = Vec::new();
        let mut built_in: Vec<&'static dyn Hook> = Vec::new();
        for name in names.split(';').filter(|name| !name.is_empty()) {
            if let Some(hook) = shared_hook(name) {
                end_row(&mut built_in, &mut steps);
                steps.push(Step::Shared(hook));
            } else if let Some(hook) = ripstop_hooks::find(name) {
                built_in.push(hook);
            } else {
                let known = ripstop_hooks::NAMES.join(", ");
                fi_warn!(
                    "core",
                    Subsys::Core,
                    "FI_HOOK names {name}, which is none of the hooks that are built in ({known}), and \
                     no object that FI_PROVIDER_PATH finds brings such a hook"
                );
            }
        }
        end_row(&mut built_in, &mut steps);
        steps
    })
}

/// Makes one step of the row of built-in hooks that has been collected, unless it is empty.
fn end_row(built_in: &mut Vec<&'static dyn Hook>, steps: &mut Vec<Step>) {
    if !built_in.is_empty() {
        steps.push(Step::BuiltIn(std::mem::take(built_in).into()));
    }
}

/// A hook from a shared object by its name, whole or without the [`PREFIX`] that all have.
fn shared_hook(name: &str) -> Option<Arc<CProvider>> {
    let found = super::find(name).or_else(|| super::find(&format!("{PREFIX}{name}")));
    found.filter(|found| found.is_hook())
}
