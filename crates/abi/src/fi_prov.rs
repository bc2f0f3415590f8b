//! Mirror of `rdma/providers/fi_prov.h`: what a loadable provider exports.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::{fi_context, fi_fabric_attr, fi_info, fid_fabric};

/// What a provider registers, `fi_provider`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    pub context: fi_context,
    pub name: *const c_char,
    pub getinfo: Option<
        unsafe extern "C" fn(
            version: u32,
            node: *const c_char,
            service: *const c_char,
            flags: u64,
            hints: *const fi_info,
            info: *mut *mut fi_info,
        ) -> c_int,
    >,
    pub fabric: Option<
        unsafe extern "C" fn(
            attr: *mut fi_fabric_attr,
            fabric: *mut *mut fid_fabric,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub cleanup: Option<unsafe extern "C" fn()>,
}

layout! {
    fi_provider: 72 {
        version = 0, fi_version = 4, context = 8, name = 40, getinfo = 48, fabric = 56,
        cleanup = 64
    }
}
