#![allow(unsafe_code)]
//! `libripstop_shm-fi.so`, which another libfabric loads to have our shm (`fi_provider(3)`).
//!
//! Such a library takes one provider from each object, and that of `libripstop-fi.so` is tcp. This
//! object is linked with that one and returns its second provider, so that both share their code.

use core::ffi::c_void;

// SAFETY: `libripstop-fi.so` exports this function, without arguments, from
// `crates/capi/src/external.rs`; it returns an address and may be called by any thread.
unsafe extern "C" {
    safe fn ripstop_shm_prov_ini() -> *mut c_void;
}

/// What another libfabric calls once, and registers: a `struct fi_provider *`.
// SAFETY: no other part of this object has this name, which is what every object of a provider exports.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut c_void {
    ripstop_shm_prov_ini()
}
