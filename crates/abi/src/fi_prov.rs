//! Mirror of `rdma/providers/fi_prov.h`: what a loadable provider exports.

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::{fi_context, fi_fabric_attr, fi_info, fid_fabric};

structs! {
    /// What a provider registers, `fi_provider`(3).
    struct fi_provider: 72 bytes {
        version @ 0: u32,
        fi_version @ 4: u32,
        context @ 8: fi_context,
        name @ 40: *const c_char,
        getinfo @ 48: Option<unsafe extern "C" fn(
            version: u32, node: *const c_char, service: *const c_char, flags: u64,
            hints: *const fi_info, info: *mut *mut fi_info,
        ) -> c_int>,
        fabric @ 56: Option<unsafe extern "C" fn(
            attr: *mut fi_fabric_attr, fabric: *mut *mut fid_fabric, context: *mut c_void,
        ) -> c_int>,
        cleanup @ 64: Option<unsafe extern "C" fn()>,
    }
}
