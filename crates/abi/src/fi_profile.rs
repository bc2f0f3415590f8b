//! Mirror of `rdma/fi_profile.h`: profiling.

use core::ffi::{c_char, c_int, c_uint, c_void};

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

    "Profiling event, `fi_profile`(3)." u32 {
        FI_EVENT_UNEXP_MSG_RECVD = 0,
        FI_EVENT_UNEXP_MSG_MATCHED = 1,
    }

    "How a profiling variable is typed, `fi_profile`(3)." type fi_profile_type = c_uint {
        fi_primitive_type = 0,
        fi_defined_type = 1,
    }
}

structs! {
    /// Union inside [`fi_profile_desc`].
    union fi_profile_desc_datatype {
        primitive: fi_datatype,
        defined: fi_type,
    } default { primitive: 0 }

    /// Description of a profiling variable or event, `fi_profile`(3).
    struct fi_profile_desc: 48 bytes {
        id @ 0: u32,
        datatype_sel @ 4: fi_profile_type,
        datatype @ 8: fi_profile_desc_datatype,
        flags @ 16: u64,
        size @ 24: usize,
        name @ 32: *const c_char,
        desc @ 40: *const c_char,
    }

    /// Operations of a profile, `fi_profile`(3).
    ops fi_profile_ops: 64 bytes {
        reset @ 8: fn(prof_fid: *mut fid_profile, flags: u64),
        query_vars @ 16: fn(
            prof_fid: *mut fid_profile, varlist: *mut fi_profile_desc, count: *mut usize,
        ) -> isize,
        query_events @ 24: fn(
            prof_fid: *mut fid_profile, eventlist: *mut fi_profile_desc, count: *mut usize,
        ) -> isize,
        read_var @ 32: fn(
            prof_fid: *mut fid_profile, var_id: u32, data: *mut c_void, size: *mut usize,
        ) -> isize,
        reg_callback @ 40: fn(
            prof_fid: *mut fid_profile, event_id: u32,
            callback: Option<unsafe extern "C" fn(
                prof_fid: *mut fid_profile, event: *mut fi_profile_desc, param: *mut c_void,
                size: usize, context: *mut c_void,
            ) -> c_int>,
            context: *mut c_void,
        ) -> c_int,
        start_reads @ 48: fn(prof_fid: *mut fid_profile, flags: u64),
        end_reads @ 56: fn(prof_fid: *mut fid_profile, flags: u64),
    }

    /// A profile, `fi_profile`(3).
    struct fid_profile: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_profile_ops,
    }
}
