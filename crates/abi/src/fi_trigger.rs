//! Mirror of `rdma/fi_trigger.h`: triggered and deferred operations.

use core::ffi::{c_int, c_uint, c_void};
use core::ptr;

use crate::fabric::fi_context2;
use crate::fi_atomic::{fi_msg_atomic, fi_msg_compare, fi_msg_fetch};
use crate::fi_domain::{fi_datatype, fi_hmem_iface};
use crate::fi_endpoint::{fi_msg, fid_ep};
use crate::fi_eq::fid_cntr;
use crate::fi_rma::fi_msg_rma;
use crate::fi_tagged::fi_msg_tagged;

constants! {
    "What fires a triggered operation, `fi_trigger`(3)." type fi_trigger_event = c_uint {
        FI_TRIGGER_THRESHOLD = 0,
        FI_TRIGGER_XPU = 1,
    }
}

/// Deferred operation, `fi_trigger`(3). Any value may arrive from C. Release 2.6.0 has none for
/// collectives.
pub type fi_op_type = c_uint;

constants! {
    "Deferred operation, `fi_trigger`(3)." fi_op_type {
        FI_OP_RECV = 0,
        FI_OP_SEND = 1,
        FI_OP_TRECV = 2,
        FI_OP_TSEND = 3,
        FI_OP_READ = 4,
        FI_OP_WRITE = 5,
        FI_OP_ATOMIC = 6,
        FI_OP_FETCH_ATOMIC = 7,
        FI_OP_COMPARE_ATOMIC = 8,
        FI_OP_CNTR_SET = 9,
        FI_OP_CNTR_ADD = 10,
    }
}

structs! {
    /// Counter threshold that fires an operation, `fi_trigger`(3).
    struct fi_trigger_threshold: 16 bytes {
        cntr @ 0: *mut fid_cntr,
        threshold @ 8: usize,
    }

    /// Union inside [`fi_trigger_var`].
    union fi_trigger_var_value {
        val8: u8,
        val16: u16,
        val32: u32,
        val64: u64,
        data: *mut u8,
    } default { val64: 0 }

    /// Variable a device writes to fire an operation, `fi_trigger`(3).
    struct fi_trigger_var: 24 bytes {
        datatype @ 0: fi_datatype,
        count @ 4: c_int,
        addr @ 8: *mut c_void,
        value @ 16: fi_trigger_var_value,
    }

    /// Union inside [`fi_trigger_xpu`].
    union fi_trigger_xpu_device {
        reserved: u64,
        cuda: c_int,
        ze: c_int,
    } default { reserved: 0 }

    /// Device that fires an operation, `fi_trigger`(3).
    struct fi_trigger_xpu: 24 bytes {
        count @ 0: c_int,
        iface @ 4: fi_hmem_iface,
        device @ 8: fi_trigger_xpu_device,
        var @ 16: *mut fi_trigger_var,
    }

    /// Deferred message, `fi_trigger`(3).
    struct fi_op_msg: 64 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg,
        flags @ 56: u64,
    }

    /// Deferred tagged message, `fi_trigger`(3).
    struct fi_op_tagged: 80 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg_tagged,
        flags @ 72: u64,
    }

    /// Deferred RMA, `fi_trigger`(3).
    struct fi_op_rma: 80 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg_rma,
        flags @ 72: u64,
    }

    /// Deferred atomic, `fi_trigger`(3).
    struct fi_op_atomic: 88 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg_atomic,
        flags @ 80: u64,
    }

    /// Deferred fetching atomic, `fi_trigger`(3).
    struct fi_op_fetch_atomic: 112 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg_atomic,
        fetch @ 80: fi_msg_fetch,
        flags @ 104: u64,
    }

    /// Deferred compare atomic, `fi_trigger`(3).
    struct fi_op_compare_atomic: 136 bytes {
        ep @ 0: *mut fid_ep,
        msg @ 8: fi_msg_atomic,
        fetch @ 80: fi_msg_fetch,
        compare @ 104: fi_msg_compare,
        flags @ 128: u64,
    }

    /// Deferred counter update, `fi_trigger`(3).
    struct fi_op_cntr: 16 bytes {
        cntr @ 0: *mut fid_cntr,
        value @ 8: u64,
    }

    /// Union inside [`fi_triggered_context`].
    union fi_triggered_context_trigger {
        threshold: fi_trigger_threshold,
        xpu: fi_trigger_xpu,
        internal: [*mut c_void; 3],
    } default { internal: [ptr::null_mut(); 3] }

    /// Context of a triggered operation, as large as `fi_context`, `fi_trigger`(3).
    struct fi_triggered_context: 32 bytes {
        event_type @ 0: fi_trigger_event,
        trigger @ 8: fi_triggered_context_trigger,
    }

    /// Union inside [`fi_triggered_context2`].
    union fi_triggered_context2_trigger {
        threshold: fi_trigger_threshold,
        xpu: fi_trigger_xpu,
        internal: [*mut c_void; 7],
    } default { internal: [ptr::null_mut(); 7] }

    /// Context of a triggered operation, as large as `fi_context2`, `fi_trigger`(3).
    struct fi_triggered_context2: 64 bytes {
        event_type @ 0: fi_trigger_event,
        trigger @ 8: fi_triggered_context2_trigger,
    }

    /// Union inside [`fi_deferred_work`].
    union fi_deferred_work_op {
        msg: *mut fi_op_msg,
        tagged: *mut fi_op_tagged,
        rma: *mut fi_op_rma,
        atomic: *mut fi_op_atomic,
        fetch_atomic: *mut fi_op_fetch_atomic,
        compare_atomic: *mut fi_op_compare_atomic,
        cntr: *mut fi_op_cntr,
    } default { msg: ptr::null_mut() }

    /// Argument of `FI_QUEUE_WORK`, `fi_trigger`(3).
    struct fi_deferred_work: 104 bytes {
        context @ 0: fi_context2,
        threshold @ 64: u64,
        triggering_cntr @ 72: *mut fid_cntr,
        completion_cntr @ 80: *mut fid_cntr,
        op_type @ 88: fi_op_type,
        op @ 96: fi_deferred_work_op,
    }
}
