//! Mirror of `rdma/fi_eq.h`: event queues, completion queues, counters and wait objects.

use core::ffi::{c_char, c_int, c_short, c_uint, c_void};

use crate::fabric::{fi_addr_t, fi_info, fid, fid_t};

constants! {
    "Wait object, `fi_cq`(3), `fi_eq`(3)." type fi_wait_obj = c_uint {
        FI_WAIT_NONE = 0,
        FI_WAIT_UNSPEC = 1,
        FI_WAIT_SET = 2,
        FI_WAIT_FD = 3,
        FI_WAIT_MUTEX_COND = 4,
        FI_WAIT_YIELD = 5,
        FI_WAIT_POLLFD = 6,
    }

    "Event of `fi_eq_read`(3)." u32 {
        FI_NOTIFY = 0,
        FI_CONNREQ = 1,
        FI_CONNECTED = 2,
        FI_SHUTDOWN = 3,
        FI_MR_COMPLETE = 4,
        FI_AV_COMPLETE = 5,
        FI_JOIN_COMPLETE = 6,
    }

    "Completion entry format, `fi_cq`(3)." type fi_cq_format = c_uint {
        FI_CQ_FORMAT_UNSPEC = 0,
        FI_CQ_FORMAT_CONTEXT = 1,
        FI_CQ_FORMAT_MSG = 2,
        FI_CQ_FORMAT_DATA = 3,
        FI_CQ_FORMAT_TAGGED = 4,
    }

    "Wait condition, `fi_cq`(3)." type fi_cq_wait_cond = c_uint {
        FI_CQ_COND_NONE = 0,
        FI_CQ_COND_THRESHOLD = 1,
    }

    "What a counter counts, `fi_cntr`(3)." type fi_cntr_events = c_uint {
        FI_CNTR_EVENTS_COMP = 0,
        FI_CNTR_EVENTS_BYTES = 1,
    }
}

structs! {
    /// `struct pollfd` of the system, `poll`(2).
    struct pollfd: 8 bytes {
        fd @ 0: c_int,
        events @ 4: c_short,
        revents @ 6: c_short,
    }

    /// Attributes of a wait set, `fi_poll`(3).
    struct fi_wait_attr: 16 bytes {
        wait_obj @ 0: fi_wait_obj,
        flags @ 8: u64,
    }

    /// Operations of a wait set, deprecated, `fi_poll`(3).
    ops fi_ops_wait: 16 bytes {
        wait @ 8: fn(waitset: *mut fid_wait, timeout: c_int) -> c_int,
    }

    /// A wait set, deprecated, `fi_poll`(3).
    struct fid_wait: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_wait,
    }

    /// Wait object of kind `FI_WAIT_MUTEX_COND`; the pointers are `pthread_mutex_t` and
    /// `pthread_cond_t`, `fi_poll`(3).
    struct fi_mutex_cond: 16 bytes {
        mutex @ 0: *mut c_void,
        cond @ 8: *mut c_void,
    }

    /// Wait object of kind `FI_WAIT_POLLFD`, `fi_poll`(3).
    struct fi_wait_pollfd: 24 bytes {
        change_index @ 0: u64,
        nfds @ 8: usize,
        fd @ 16: *mut pollfd,
    }

    /// Attributes of a poll set, `fi_poll`(3).
    struct fi_poll_attr: 8 bytes {
        flags @ 0: u64,
    }

    /// Operations of a poll set, deprecated, `fi_poll`(3).
    ops fi_ops_poll: 32 bytes {
        poll @ 8: fn(pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int,
        poll_add @ 16: fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
        poll_del @ 24: fn(pollset: *mut fid_poll, event_fid: *mut fid, flags: u64) -> c_int,
    }

    /// A poll set, deprecated, `fi_poll`(3).
    struct fid_poll: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_poll,
    }

    /// Attributes of an event queue, `fi_eq`(3).
    struct fi_eq_attr: 32 bytes {
        size @ 0: usize,
        flags @ 8: u64,
        wait_obj @ 16: fi_wait_obj,
        signaling_vector @ 20: c_int,
        wait_set @ 24: *mut fid_wait,
    }

    /// Event of an asynchronous control operation, `fi_eq`(3).
    struct fi_eq_entry: 24 bytes {
        fid @ 0: fid_t,
        context @ 8: *mut c_void,
        data @ 16: u64,
    }

    /// Error event, `fi_eq`(3).
    struct fi_eq_err_entry: 48 bytes {
        fid @ 0: fid_t,
        context @ 8: *mut c_void,
        data @ 16: u64,
        err @ 24: c_int,
        prov_errno @ 28: c_int,
        err_data @ 32: *mut c_void,
        err_data_size @ 40: usize,
    }

    /// Connection event; data follows up to the length read, `fi_eq`(3).
    struct fi_eq_cm_entry: 16 bytes {
        fid @ 0: fid_t,
        info @ 8: *mut fi_info,
        data @ 16: [u8; 0],
    }

    /// Operations of an event queue, `fi_eq`(3).
    ops fi_ops_eq: 48 bytes {
        read @ 8: fn(
            eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64,
        ) -> isize,
        readerr @ 16: fn(eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize,
        write @ 24: fn(
            eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64,
        ) -> isize,
        sread @ 32: fn(
            eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int,
            flags: u64,
        ) -> isize,
        strerror @ 40: fn(
            eq: *mut fid_eq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    }

    /// An event queue, `fi_eq`(3).
    struct fid_eq: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_eq,
    }

    /// Completion of format `FI_CQ_FORMAT_CONTEXT`, `fi_cq`(3).
    struct fi_cq_entry: 8 bytes {
        op_context @ 0: *mut c_void,
    }

    /// Completion of format `FI_CQ_FORMAT_MSG`, `fi_cq`(3).
    struct fi_cq_msg_entry: 24 bytes {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
    }

    /// Completion of format `FI_CQ_FORMAT_DATA`, `fi_cq`(3).
    struct fi_cq_data_entry: 40 bytes {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
    }

    /// Completion of format `FI_CQ_FORMAT_TAGGED`, `fi_cq`(3).
    struct fi_cq_tagged_entry: 48 bytes {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
        tag @ 40: u64,
    }

    /// Completion in error, as of API 1.20, `fi_cq`(3).
    struct fi_cq_err_entry: 88 bytes {
        op_context @ 0: *mut c_void,
        flags @ 8: u64,
        len @ 16: usize,
        buf @ 24: *mut c_void,
        data @ 32: u64,
        tag @ 40: u64,
        olen @ 48: usize,
        err @ 56: c_int,
        prov_errno @ 60: c_int,
        err_data @ 64: *mut c_void,
        err_data_size @ 72: usize,
        src_addr @ 80: fi_addr_t,
    }

    /// Attributes of a completion queue, `fi_cq`(3).
    struct fi_cq_attr: 40 bytes {
        size @ 0: usize,
        flags @ 8: u64,
        format @ 16: fi_cq_format,
        wait_obj @ 20: fi_wait_obj,
        signaling_vector @ 24: c_int,
        wait_cond @ 28: fi_cq_wait_cond,
        wait_set @ 32: *mut fid_wait,
    }

    /// Operations of a completion queue, `fi_cq`(3).
    ops fi_ops_cq: 64 bytes {
        read @ 8: fn(cq: *mut fid_cq, buf: *mut c_void, count: usize) -> isize,
        readfrom @ 16: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
        ) -> isize,
        readerr @ 24: fn(cq: *mut fid_cq, buf: *mut fi_cq_err_entry, flags: u64) -> isize,
        sread @ 32: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, cond: *const c_void, timeout: c_int,
        ) -> isize,
        sreadfrom @ 40: fn(
            cq: *mut fid_cq, buf: *mut c_void, count: usize, src_addr: *mut fi_addr_t,
            cond: *const c_void, timeout: c_int,
        ) -> isize,
        signal @ 48: fn(cq: *mut fid_cq) -> c_int,
        strerror @ 56: fn(
            cq: *mut fid_cq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char,
            len: usize,
        ) -> *const c_char,
    }

    /// A completion queue, `fi_cq`(3).
    struct fid_cq: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_cq,
    }

    /// Attributes of a counter, `fi_cntr`(3).
    struct fi_cntr_attr: 24 bytes {
        events @ 0: fi_cntr_events,
        wait_obj @ 4: fi_wait_obj,
        wait_set @ 8: *mut fid_wait,
        flags @ 16: u64,
    }

    /// Operations of a counter, `fi_cntr`(3).
    ops fi_ops_cntr: 64 bytes {
        read @ 8: fn(cntr: *mut fid_cntr) -> u64,
        readerr @ 16: fn(cntr: *mut fid_cntr) -> u64,
        add @ 24: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        set @ 32: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        wait @ 40: fn(cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int,
        adderr @ 48: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
        seterr @ 56: fn(cntr: *mut fid_cntr, value: u64) -> c_int,
    }

    /// A counter, `fi_cntr`(3).
    struct fid_cntr: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_cntr,
    }
}
