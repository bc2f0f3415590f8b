//! Mirror of `rdma/fi_profile.h`: profiling.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;

use crate::fabric::{fi_type, fid};
use crate::fi_domain::fi_datatype;

constants! {
    "Profiling variable, `fi_profile`(3)." u32 {
        FI_VAR_UNEXP_MSG_CNT = 0,
        FI_VAR_UNEXP_MSG_QUEUE = 1,
        FI_VAR_MSG_QUEUE_CNT = 2,
        FI_VAR_CONNECTION_CNT = 3,
        FI_VAR_CONN_REQUEST = 4,
        FI_VAR_CONN_ACCEPT = 5,
        FI_VAR_CONN_REJECT = 6,
        FI_VAR_OFI_MEM = 7,
    }
}

constants! {
    "Profiling event, `fi_profile`(3)." u32 {
        FI_EVENT_UNEXP_MSG_RECVD = 0,
        FI_EVENT_UNEXP_MSG_MATCHED = 1,
    }
}

/// How a profiling variable is typed, `fi_profile`(3). Any value may arrive from C.
pub type fi_profile_type = c_uint;

constants! {
    "How a profiling variable is typed, `fi_profile`(3)." fi_profile_type {
        fi_primitive_type = 0,
        fi_defined_type = 1,
    }
}

/// Union inside [`fi_profile_desc`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_profile_desc_datatype {
    pub primitive: fi_datatype,
    pub defined: fi_type,
}

impl Default for fi_profile_desc_datatype {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self { primitive: 0 }
    }
}

impl fmt::Debug for fi_profile_desc_datatype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_profile_desc_datatype { .. }")
    }
}

/// Description of a profiling variable or event, `fi_profile`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_profile_desc {
    pub id: u32,
    pub datatype_sel: fi_profile_type,
    pub datatype: fi_profile_desc_datatype,
    pub flags: u64,
    pub size: usize,
    pub name: *const c_char,
    pub desc: *const c_char,
}

/// Operations of a profile, `fi_profile`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_profile_ops {
    pub size: usize,
    pub reset: Option<unsafe extern "C" fn(prof_fid: *mut fid_profile, flags: u64)>,
    pub query_vars: Option<
        unsafe extern "C" fn(
            prof_fid: *mut fid_profile,
            varlist: *mut fi_profile_desc,
            count: *mut usize,
        ) -> isize,
    >,
    pub query_events: Option<
        unsafe extern "C" fn(
            prof_fid: *mut fid_profile,
            eventlist: *mut fi_profile_desc,
            count: *mut usize,
        ) -> isize,
    >,
    pub read_var: Option<
        unsafe extern "C" fn(
            prof_fid: *mut fid_profile,
            var_id: u32,
            data: *mut c_void,
            size: *mut usize,
        ) -> isize,
    >,
    pub reg_callback: Option<
        unsafe extern "C" fn(
            prof_fid: *mut fid_profile,
            event_id: u32,
            callback: Option<
                unsafe extern "C" fn(
                    prof_fid: *mut fid_profile,
                    event: *mut fi_profile_desc,
                    param: *mut c_void,
                    size: usize,
                    context: *mut c_void,
                ) -> c_int,
            >,
            context: *mut c_void,
        ) -> c_int,
    >,
    pub start_reads: Option<unsafe extern "C" fn(prof_fid: *mut fid_profile, flags: u64)>,
    pub end_reads: Option<unsafe extern "C" fn(prof_fid: *mut fid_profile, flags: u64)>,
}

/// A profile, `fi_profile`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_profile {
    pub fid: fid,
    pub ops: *mut fi_profile_ops,
}

layout! {
    fi_profile_desc: 48 {
        id = 0, datatype_sel = 4, datatype = 8, flags = 16, size = 24, name = 32, desc =
        40
    }
    fi_profile_ops: 64 {
        size = 0, reset = 8, query_vars = 16, query_events = 24, read_var = 32,
        reg_callback = 40, start_reads = 48, end_reads = 56
    }
    fid_profile: 32 { fid = 0, ops = 24 }
}
