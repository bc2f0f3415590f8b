//! Mirror of `rdma/fi_trigger.h`: triggered and deferred operations.
//!
//! Fields carry the meaning of the man page that their struct names.
#![allow(missing_docs)]

use core::ffi::{c_int, c_uint, c_void};
use core::fmt;
use core::ptr;

use crate::fabric::fi_context2;
use crate::fi_atomic::{fi_msg_atomic, fi_msg_compare, fi_msg_fetch};
use crate::fi_domain::{fi_datatype, fi_hmem_iface};
use crate::fi_endpoint::{fi_msg, fid_ep};
use crate::fi_eq::fid_cntr;
use crate::fi_rma::fi_msg_rma;
use crate::fi_tagged::fi_msg_tagged;

/// What fires a triggered operation, `fi_trigger`(3). Any value may arrive from C.
pub type fi_trigger_event = c_uint;

constants! {
    "What fires a triggered operation, `fi_trigger`(3)." fi_trigger_event {
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

/// Counter threshold that fires an operation, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_trigger_threshold {
    pub cntr: *mut fid_cntr,
    pub threshold: usize,
}

/// Union inside [`fi_trigger_var`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger_var_value {
    pub val8: u8,
    pub val16: u16,
    pub val32: u32,
    pub val64: u64,
    pub data: *mut u8,
}

impl Default for fi_trigger_var_value {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self { val64: 0 }
    }
}

impl fmt::Debug for fi_trigger_var_value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_trigger_var_value { .. }")
    }
}

/// Variable a device writes to fire an operation, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_trigger_var {
    pub datatype: fi_datatype,
    pub count: c_int,
    pub addr: *mut c_void,
    pub value: fi_trigger_var_value,
}

/// Union inside [`fi_trigger_xpu`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_trigger_xpu_device {
    pub reserved: u64,
    pub cuda: c_int,
    pub ze: c_int,
}

impl Default for fi_trigger_xpu_device {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self { reserved: 0 }
    }
}

impl fmt::Debug for fi_trigger_xpu_device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_trigger_xpu_device { .. }")
    }
}

/// Device that fires an operation, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_trigger_xpu {
    pub count: c_int,
    pub iface: fi_hmem_iface,
    pub device: fi_trigger_xpu_device,
    pub var: *mut fi_trigger_var,
}

/// Deferred message, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_msg {
    pub ep: *mut fid_ep,
    pub msg: fi_msg,
    pub flags: u64,
}

/// Deferred tagged message, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_tagged {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_tagged,
    pub flags: u64,
}

/// Deferred RMA, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_rma {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_rma,
    pub flags: u64,
}

/// Deferred atomic, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub flags: u64,
}

/// Deferred fetching atomic, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_fetch_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub flags: u64,
}

/// Deferred compare atomic, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_compare_atomic {
    pub ep: *mut fid_ep,
    pub msg: fi_msg_atomic,
    pub fetch: fi_msg_fetch,
    pub compare: fi_msg_compare,
    pub flags: u64,
}

/// Deferred counter update, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_op_cntr {
    pub cntr: *mut fid_cntr,
    pub value: u64,
}

/// Union inside [`fi_triggered_context`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_triggered_context_trigger {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 3],
}

impl Default for fi_triggered_context_trigger {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self {
            internal: [ptr::null_mut(); 3],
        }
    }
}

impl fmt::Debug for fi_triggered_context_trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_triggered_context_trigger { .. }")
    }
}

/// Context of a triggered operation, as large as `fi_context`, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_triggered_context {
    pub event_type: fi_trigger_event,
    pub trigger: fi_triggered_context_trigger,
}

/// Union inside [`fi_triggered_context2`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_triggered_context2_trigger {
    pub threshold: fi_trigger_threshold,
    pub xpu: fi_trigger_xpu,
    pub internal: [*mut c_void; 7],
}

impl Default for fi_triggered_context2_trigger {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self {
            internal: [ptr::null_mut(); 7],
        }
    }
}

impl fmt::Debug for fi_triggered_context2_trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_triggered_context2_trigger { .. }")
    }
}

/// Context of a triggered operation, as large as `fi_context2`, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_triggered_context2 {
    pub event_type: fi_trigger_event,
    pub trigger: fi_triggered_context2_trigger,
}

/// Union inside [`fi_deferred_work`].
#[repr(C)]
#[derive(Clone, Copy)]
pub union fi_deferred_work_op {
    pub msg: *mut fi_op_msg,
    pub tagged: *mut fi_op_tagged,
    pub rma: *mut fi_op_rma,
    pub atomic: *mut fi_op_atomic,
    pub fetch_atomic: *mut fi_op_fetch_atomic,
    pub compare_atomic: *mut fi_op_compare_atomic,
    pub cntr: *mut fi_op_cntr,
}

impl Default for fi_deferred_work_op {
    /// All bytes of the widest member zero.
    fn default() -> Self {
        Self {
            msg: ptr::null_mut(),
        }
    }
}

impl fmt::Debug for fi_deferred_work_op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("fi_deferred_work_op { .. }")
    }
}

/// Argument of `FI_QUEUE_WORK`, `fi_trigger`(3).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct fi_deferred_work {
    pub context: fi_context2,
    pub threshold: u64,
    pub triggering_cntr: *mut fid_cntr,
    pub completion_cntr: *mut fid_cntr,
    pub op_type: fi_op_type,
    pub op: fi_deferred_work_op,
}

layout! {
    fi_trigger_threshold: 16 { cntr = 0, threshold = 8 }
    fi_trigger_var: 24 { datatype = 0, count = 4, addr = 8, value = 16 }
    fi_trigger_xpu: 24 { count = 0, iface = 4, device = 8, var = 16 }
    fi_op_msg: 64 { ep = 0, msg = 8, flags = 56 }
    fi_op_tagged: 80 { ep = 0, msg = 8, flags = 72 }
    fi_op_rma: 80 { ep = 0, msg = 8, flags = 72 }
    fi_op_atomic: 88 { ep = 0, msg = 8, flags = 80 }
    fi_op_fetch_atomic: 112 { ep = 0, msg = 8, fetch = 80, flags = 104 }
    fi_op_compare_atomic: 136 { ep = 0, msg = 8, fetch = 80, compare = 104, flags = 128 }
    fi_op_cntr: 16 { cntr = 0, value = 8 }
    fi_triggered_context: 32 { event_type = 0, trigger = 8 }
    fi_triggered_context2: 64 { event_type = 0, trigger = 8 }
    fi_deferred_work: 104 {
        context = 0, threshold = 64, triggering_cntr = 72, completion_cntr = 80, op_type =
        88, op = 96
    }
}
