//! Hooks that are built into `libfabric.so.1`: what `FI_HOOK` names is put between a program and
//! the provider of each fabric that is opened (`docs/design/hooks.md`).
//!
//! The objects of the C interface have their own operation tables, through which the static inline
//! functions of its headers go. A hook lays tables of its own over those of an object, whose
//! address, `fid` and every other field stay what they were (`over`). Each function of these
//! tables says which call it is, asks the provider, and tells the result (`calls`); what is made of
//! that is up to the hooks (`hook`). An object that no hook is asked for is not touched.
#![deny(unsafe_code)]

mod attrs;
mod call;
mod call_cell;
mod calls;
mod closed;
mod completions;
mod counting;
mod debug;
mod hook;
mod layout;
mod monitor;
mod noop;
mod over;
mod pending;
mod perf;
mod queues;
mod trace;
mod unwritten;

pub use hook::{Begins, Ends, Hook, Hooks};
pub use over::install;

/// The hook of this name, with or without the beginning that C libfabric's names have; `None` if it
/// is not built in.
#[must_use]
pub fn find(name: &str) -> Option<&'static dyn Hook> {
    match name.strip_prefix("ofi_hook_").unwrap_or(name) {
        "debug" => Some(&debug::Debug),
        "monitor" => Some(&monitor::Monitor),
        "noop" => Some(&noop::Noop),
        "perf" => Some(&perf::Perf),
        "trace" => Some(&trace::Trace),
        _ => None,
    }
}

/// The names of the hooks that are built in.
pub const NAMES: &[&str] = &["debug", "monitor", "noop", "perf", "trace"];

/// The process ends: hooks write what they have of fabrics that are still open.
pub fn at_end() {
    perf::at_end();
    trace::at_end();
    monitor::at_end();
    debug::at_end();
}
