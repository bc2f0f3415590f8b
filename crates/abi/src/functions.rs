//! Types of the functions that `libfabric.so.1` exports, named after them.
//!
//! The variadic `fi_log` and `fi_param_define` take further arguments after the last one shown.

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::{fi_fabric_attr, fi_info, fi_param, fi_param_type, fi_type, fid, fid_fabric};
use crate::fi_log::{fi_log_level, fi_log_subsys};
use crate::fi_prov::fi_provider;

/// `fi_version`(3).
pub type fi_version_fn = unsafe extern "C" fn() -> u32;

/// `fi_getinfo`(3).
pub type fi_getinfo_fn = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const fi_info,
    info: *mut *mut fi_info,
) -> c_int;

/// `fi_freeinfo`, `fi_getinfo`(3).
pub type fi_freeinfo_fn = unsafe extern "C" fn(info: *mut fi_info);

/// `fi_dupinfo`, `fi_getinfo`(3); a null argument allocates a zeroed one.
pub type fi_dupinfo_fn = unsafe extern "C" fn(info: *const fi_info) -> *mut fi_info;

/// `fi_fabric`(3).
pub type fi_fabric_fn = unsafe extern "C" fn(
    attr: *mut fi_fabric_attr,
    fabric: *mut *mut fid_fabric,
    context: *mut c_void,
) -> c_int;

/// `fi_fabric2`, `fi_fabric`(3).
pub type fi_fabric2_fn = unsafe extern "C" fn(
    info: *mut fi_info,
    fabric: *mut *mut fid_fabric,
    flags: u64,
    context: *mut c_void,
) -> c_int;

/// `fi_open`(3).
pub type fi_open_fn = unsafe extern "C" fn(
    version: u32,
    name: *const c_char,
    attr: *mut c_void,
    attr_len: usize,
    flags: u64,
    fid: *mut *mut fid,
    context: *mut c_void,
) -> c_int;

/// `fi_strerror`, `fi_errno`(3).
pub type fi_strerror_fn = unsafe extern "C" fn(errnum: c_int) -> *const c_char;

/// `fi_tostr`(3).
pub type fi_tostr_fn = unsafe extern "C" fn(data: *const c_void, datatype: fi_type) -> *mut c_char;

/// `fi_tostr_r`, `fi_tostr`(3).
pub type fi_tostr_r_fn = unsafe extern "C" fn(
    buf: *mut c_char,
    len: usize,
    data: *const c_void,
    datatype: fi_type,
) -> *mut c_char;

/// `fi_getparams`, `fi_provider`(3).
pub type fi_getparams_fn =
    unsafe extern "C" fn(params: *mut *mut fi_param, count: *mut c_int) -> c_int;

/// `fi_freeparams`, `fi_provider`(3).
pub type fi_freeparams_fn = unsafe extern "C" fn(params: *mut fi_param);

/// `fi_param_define`, `fi_provider`(3).
pub type fi_param_define_fn = unsafe extern "C" fn(
    provider: *const fi_provider,
    param_name: *const c_char,
    type_: fi_param_type,
    help_string_fmt: *const c_char,
    ...
) -> c_int;

/// `fi_param_get`, `fi_provider`(3).
pub type fi_param_get_fn = unsafe extern "C" fn(
    provider: *mut fi_provider,
    param_name: *const c_char,
    value: *mut c_void,
) -> c_int;

/// `fi_log_enabled`, `fi_provider`(3).
pub type fi_log_enabled_fn = unsafe extern "C" fn(
    prov: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
) -> c_int;

/// `fi_log_ready`, `fi_provider`(3).
pub type fi_log_ready_fn = unsafe extern "C" fn(
    prov: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
    showtime: *mut u64,
) -> c_int;

/// `fi_log`, `fi_provider`(3).
pub type fi_log_fn = unsafe extern "C" fn(
    prov: *const fi_provider,
    level: fi_log_level,
    subsys: fi_log_subsys,
    func: *const c_char,
    line: c_int,
    fmt: *const c_char,
    ...
);

/// The entry point of a loadable provider, `fi_prov_ini`, `fi_provider`(3).
pub type fi_prov_ini_fn = unsafe extern "C" fn() -> *mut fi_provider;
