//! The C edge of Ripstop: what `libfabric.so.1` exports, and the operation tables behind the
//! objects it hands out.
//!
//! Each exported function stands here under a private name, `ripstop_<name>_<major>_<minor>`;
//! the link step in `libfabric/` gives it the versioned name that programs look for
//! (`fi_getinfo@@FABRIC_1.9`). The types of the C interface are those of [`ripstop_abi`].
//!
//! - A C object is a `#[repr(C)]` struct whose first field is the public struct (`fid_ep`), next
//!   to the provider's own object. Its operation tables are constants of the provider's types,
//!   so that `ep->msg->send` runs the provider's code.
//! - Memory that a caller may free, or that it hands over to be freed, comes from C's `malloc`.
//! - What can be checked is checked: a null pointer, an object of the wrong class, an unknown
//!   flag or a short buffer is the documented error. What C cannot express (whether a pointer
//!   is valid) is listed under `# Safety` of each function.
//!
//! Where things are:
//!
//! | of | modules |
//! |---|---|
//! | objects, by manual page | `fabric`, `open/fabric`, `domain`, `endpoint`, `receive`, `sep`, `srx`, `stx`, `passive`, `cq`, `eq`, `counter`, `av`, `mr`, `poll`, `waitset`, `trigger`, `work`, `peer` |
//! | what all objects have | `object` (the struct, from open to close), `tables` (operations that are not there), `edge` (arguments with what holds of them), `buffers`, `options`, `wait`, `inherited` (after a fork) |
//! | `fi_getinfo(3)` and `struct fi_info` | `getinfo`, `info`, `handles`, `opened` (which fabrics and domains a program has open) |
//! | providers | `providers` (those that are built in), `loaded` (those from shared objects), `external` (ours for another libfabric) |
//! | text and errors | `errno`, `error_entry`, `strerror`, `tostr`, `text`, `address` |
//! | log and parameters | `log`, `param`, `varargs` with `format` (C's `printf`) |
#![deny(unsafe_code)]

mod address;
mod av;
mod buffers;
mod cmem;
mod counter;
mod cq;
mod domain;
mod edge;
mod endpoint;
mod eq;
mod errno;
mod error_entry;
mod external;
mod fabric;
mod format;
mod getinfo;
mod handles;
mod info;
mod inherited;
mod loaded;
mod log;
mod mr;
mod object;
mod open;
mod opened;
mod options;
mod param;
mod passive;
mod peer;
mod poll;
mod providers;
mod receive;
mod sep;
mod srx;
mod strerror;
mod stx;
mod tables;
mod text;
mod tostr;
mod trigger;
mod varargs;
mod wait;
mod waitset;
mod work;

pub use external::{ripstop_fi_prov_ini, ripstop_shm_prov_ini};
pub use getinfo::{
    ripstop_fi_getinfo_1_0, ripstop_fi_getinfo_1_1, ripstop_fi_getinfo_1_2, ripstop_fi_getinfo_1_3,
    ripstop_fi_getinfo_1_7, ripstop_fi_getinfo_1_8, ripstop_fi_getinfo_1_9,
    ripstop_fi_getinfo_1_10,
};
pub use info::print::info_text;
pub use info::{
    ripstop_fi_dupinfo_1_0, ripstop_fi_dupinfo_1_1, ripstop_fi_dupinfo_1_2, ripstop_fi_dupinfo_1_3,
    ripstop_fi_dupinfo_1_7, ripstop_fi_dupinfo_1_8, ripstop_fi_dupinfo_1_9,
    ripstop_fi_dupinfo_1_10, ripstop_fi_freeinfo_1_0, ripstop_fi_freeinfo_1_1,
    ripstop_fi_freeinfo_1_2, ripstop_fi_freeinfo_1_3, ripstop_fi_freeinfo_1_7,
    ripstop_fi_freeinfo_1_8, ripstop_fi_freeinfo_1_9, ripstop_fi_freeinfo_1_10,
};
pub use log::{ripstop_fi_log_enabled_1_0, ripstop_fi_log_ready_1_6};
pub use open::fabric::{ripstop_fi_fabric_1_0, ripstop_fi_fabric_1_1, ripstop_fi_fabric2_1_8};
pub use open::{ripstop_fi_open_1_5, ripstop_fi_version_1_0};
pub use param::{ripstop_fi_freeparams_1_0, ripstop_fi_getparams_1_0, ripstop_fi_param_get_1_0};
pub use strerror::ripstop_fi_strerror_1_0;
pub use tostr::{RELEASE, ripstop_fi_tostr_1_0, ripstop_fi_tostr_r_1_4};
pub use varargs::{ripstop_fi_log_1_0, ripstop_fi_param_define_1_0};
