//! Mirror of `rdma/fi_eq.h`: event queues, completion queues, counters and wait objects.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_char, c_int, c_short, c_uint, c_void};

use crate::fabric::{fi_addr_t, fi_info, fid, fid_t};

/// Wait object, `fi_cq`(3), `fi_eq`(3). Any value may arrive from C.
pub type fi_wait_obj = c_uint;

constants! {
    "Wait object, `fi_cq`(3), `fi_eq`(3)." fi_wait_obj {
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_MUTEX_COND = 4,
        FI_WAIT_YIELD = 5,
        FI_WAIT_POLLFD = 6,
    }
}

constants! {
    "Event of `fi_eq_read`(3)." u32 {
        FI_NOTIFY = 0,
        FI_CONNREQ = 1,
        FI_CONNECTED = 2,
        FI_SHUTDOWN = 3,
        FI_MR_COMPLETE = 4,
        FI_AV_COMPLETE = 5,
        FI_JOIN_COMPLETE = 6,
    }
}

/// Completion entry format, `fi_cq`(3). Any value may arrive from C.
pub type fi_cq_format = c_uint;

constants! {
    "Completion entry format, `fi_cq`(3)." fi_cq_format {
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4,
    }
}

/// Wait condition, `fi_cq`(3). Any value may arrive from C.
pub type fi_cq_wait_cond = c_uint;

constants! {
    "Wait condition, `fi_cq`(3)." fi_cq_wait_cond {
        FI_CQ_COND_NONE = 0,
        FI_CQ_COND_THRESHOLD = 1,
    }
}

/// What a counter counts, `fi_cntr`(3). Any value may arrive from C.
pub type fi_cntr_events = c_uint;

constants! {
    "What a counter counts, `fi_cntr`(3)." fi_cntr_events {
        FI_CNTR_EVENTS_COMP = 0,
        FI_CNTR_EVENTS_BYTES = 1,
    }
}

/// `struct pollfd` of the system, `poll`(2).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct pollfd {
    pub fd: c_int,
    pub events: c_short,
    pub revents: c_short,
}

/// Attributes of a wait set, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_wait_attr {
    pub wait_obj: fi_wait_obj,
    pub flags: u64,
}

/// Operations of a wait set, deprecated, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_wait {
    pub size: usize,
    pub wait: Option<unsafe extern "C" fn(waitset: *mut fid_wait, timeout: c_int) -> c_int>,
}

/// A wait set, deprecated, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_wait {
    pub fid: fid,
    pub ops: *mut fi_ops_wait,
}

/// Wait object of kind `FI_WAIT_MUTEX_COND`; the pointers are `pthread_mutex_t` and
/// `pthread_cond_t`, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_mutex_cond {
    pub mutex: *mut c_void,
    pub cond: *mut c_void,
}

/// Wait object of kind `FI_WAIT_POLLFD`, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_wait_pollfd {
    pub change_index: u64,
    pub nfds: usize,
    pub fd: *mut pollfd,
}

/// Attributes of a poll set, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_poll_attr {
    pub flags: u64,
}

/// Operations of a poll set, deprecated, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_poll {
    pub size: usize,
    pub poll: Option<
        unsafe extern "C" fn(
            pollset: *mut fid_poll,
            context: *mut *mut c_void,
            count: c_int,
        ) -> c_int,
    >,
    pub poll_add: Option<
        unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
    >,
    pub poll_del: Option<
        unsafe extern "C" fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
    >,
}

/// A poll set, deprecated, `fi_poll`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_poll {
    pub fid: fid,
    pub ops: *mut fi_ops_poll,
}

/// Attributes of an event queue, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_eq_attr {
    pub size: usize,
    pub flags: u64,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_set: *mut fid_wait,
}

/// Event of an asynchronous control operation, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_eq_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
}

/// Error event, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_eq_err_entry {
    pub fid: fid_t,
    pub context: *mut c_void,
    pub data: u64,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
}

/// Connection event; data follows up to the length read, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_eq_cm_entry {
    pub fid: fid_t,
    pub info: *mut fi_info,
    pub data: [u8; 0],
}

/// Operations of an event queue, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_eq {
    pub size: usize,
    pub read: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: *mut u32,
            buf: *mut c_void,
            len: usize,
            flags: u64,
        ) -> isize,
    >,
    pub readerr: Option<
        unsafe extern "C" fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize,
    >,
    pub write: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: u32,
            buf: *const c_void,
            len: usize,
            flags: u64,
        ) -> isize,
    >,
    pub sread: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            event: *mut u32,
            buf: *mut c_void,
            len: usize,
            timeout: c_int,
            flags: u64,
        ) -> isize,
    >,
    pub strerror: Option<
        unsafe extern "C" fn(
            eq: *mut fid_eq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    >,
}

/// An event queue, `fi_eq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_eq {
    pub fid: fid,
    pub ops: *mut fi_ops_eq,
}

/// Completion of format `FI_CQ_FORMAT_CONTEXT`, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_entry {
    pub op_context: *mut c_void,
}

/// Completion of format `FI_CQ_FORMAT_MSG`, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_msg_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
}

/// Completion of format `FI_CQ_FORMAT_DATA`, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_data_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
}

/// Completion of format `FI_CQ_FORMAT_TAGGED`, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_tagged_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
}

/// Completion in error, as of API 1.20, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_err_entry {
    pub op_context: *mut c_void,
    pub flags: u64,
    pub len: usize,
    pub buf: *mut c_void,
    pub data: u64,
    pub tag: u64,
    pub olen: usize,
    pub err: c_int,
    pub prov_errno: c_int,
    pub err_data: *mut c_void,
    pub err_data_size: usize,
    pub src_addr: fi_addr_t,
}

/// Attributes of a completion queue, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cq_attr {
    pub size: usize,
    pub flags: u64,
    pub format: fi_cq_format,
    pub wait_obj: fi_wait_obj,
    pub signaling_vector: c_int,
    pub wait_cond: fi_cq_wait_cond,
    pub wait_set: *mut fid_wait,
}

/// Operations of a completion queue, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_cq {
    pub size: usize,
    pub read:
        Option<unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize>,
    pub readfrom: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
        ) -> isize,
    >,
    pub readerr: Option<
        unsafe extern "C" fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
    >,
    pub sread: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            cond: *const c_void,
            timeout: c_int,
        ) -> isize,
    >,
    pub sreadfrom: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            buf: *mut c_void,
            count: usize,
            src_addr: *mut fi_addr_t,
            cond: *const c_void,
            timeout: c_int,
        ) -> isize,
    >,
    pub signal: Option<unsafe extern "C" fn(cq: *mut fid_cq) -> c_int>,
    pub strerror: Option<
        unsafe extern "C" fn(
            cq: *mut fid_cq,
            prov_errno: c_int,
            err_data: *const c_void,
            buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    >,
}

/// A completion queue, `fi_cq`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_cq {
    pub fid: fid,
    pub ops: *mut fi_ops_cq,
}

/// Attributes of a counter, `fi_cntr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_cntr_attr {
    pub events: fi_cntr_events,
    pub wait_obj: fi_wait_obj,
    pub wait_set: *mut fid_wait,
    pub flags: u64,
}

/// Operations of a counter, `fi_cntr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_ops_cntr {
    pub size: usize,
    pub read: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
    pub readerr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr) -> u64>,
    pub add: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub set: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub wait:
        Option<unsafe extern "C" fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int>,
    pub adderr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
    pub seterr: Option<unsafe extern "C" fn(cntr: *mut fid_cntr, value: u64) -> c_int>,
}

/// A counter, `fi_cntr`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fid_cntr {
    pub fid: fid,
    pub ops: *mut fi_ops_cntr,
}

layout! {
    fi_wait_attr: 16 { wait_obj = 0, flags = 8 }
    fi_ops_wait: 16 { size = 0, wait = 8 }
    fid_wait: 32 { fid = 0, ops = 24 }
    fi_mutex_cond: 16 { mutex = 0, cond = 8 }
    fi_wait_pollfd: 24 { change_index = 0, nfds = 8, fd = 16 }
    fi_poll_attr: 8 { flags = 0 }
    fi_ops_poll: 32 { size = 0, poll = 8, poll_add = 16, poll_del = 24 }
    fid_poll: 32 { fid = 0, ops = 24 }
    fi_eq_attr: 32 { size = 0, flags = 8, wait_obj = 16, signaling_vector = 20, wait_set = 24 }
    fi_eq_entry: 24 { fid = 0, context = 8, data = 16 }
    fi_eq_err_entry: 48 {
        fid = 0, context = 8, data = 16, err = 24, prov_errno = 28, err_data = 32,
        err_data_size = 40
    }
    fi_eq_cm_entry: 16 { fid = 0, info = 8, data = 16 }
    fi_ops_eq: 48 { size = 0, read = 8, readerr = 16, write = 24, sread = 32, strerror = 40 }
    fid_eq: 32 { fid = 0, ops = 24 }
    fi_cq_entry: 8 { op_context = 0 }
    fi_cq_msg_entry: 24 { op_context = 0, flags = 8, len = 16 }
    fi_cq_data_entry: 40 { op_context = 0, flags = 8, len = 16, buf = 24, data = 32 }
    fi_cq_tagged_entry: 48 { op_context = 0, flags = 8, len = 16, buf = 24, data = 32, tag = 40 }
    fi_cq_err_entry: 88 {
        op_context = 0, flags = 8, len = 16, buf = 24, data = 32, tag = 40, olen = 48, err
        = 56, prov_errno = 60, err_data = 64, err_data_size = 72, src_addr = 80
    }
    fi_cq_attr: 40 {
        size = 0, flags = 8, format = 16, wait_obj = 20, signaling_vector = 24, wait_cond
        = 28, wait_set = 32
    }
    fi_ops_cq: 64 {
        size = 0, read = 8, readfrom = 16, readerr = 24, sread = 32, sreadfrom = 40,
        signal = 48, strerror = 56
    }
    fid_cq: 32 { fid = 0, ops = 24 }
    fi_cntr_attr: 24 { events = 0, wait_obj = 4, wait_set = 8, flags = 16 }
    fi_ops_cntr: 64 {
        size = 0, read = 8, readerr = 16, add = 24, set = 32, wait = 40, adderr = 48,
        seterr = 56
    }
    fid_cntr: 32 { fid = 0, ops = 24 }
}
