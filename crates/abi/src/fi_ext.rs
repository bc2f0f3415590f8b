//! Mirror of `rdma/fi_ext.h`: import and export extensions.

use core::ffi::{c_char, c_int, c_void};

use crate::fabric::fid;
use crate::fi_log::{fi_log_level, fi_log_subsys};
use crate::fi_prov::fi_provider;

constants! {
    "Provider-specific endpoint option of the efa provider." c_int {
        FI_OPT_EFA_RNR_RETRY = -251265024,
        FI_OPT_EFA_EMULATED_READ = -251265023,
        FI_OPT_EFA_EMULATED_WRITE = -251265022,
        FI_OPT_EFA_EMULATED_ATOMICS = -251265021,
        FI_OPT_EFA_USE_DEVICE_RDMA = -251265020,
        FI_OPT_EFA_SENDRECV_IN_ORDER_ALIGNED_128_BYTES = -251265019,
        FI_OPT_EFA_WRITE_IN_ORDER_ALIGNED_128_BYTES = -251265018,
        FI_OPT_EFA_HOMOGENEOUS_PEERS = -251265017,
        FI_OPT_EFA_USE_UNSOLICITED_WRITE_RECV = -251265016,
    }

    "Base of the provider-specific values of one provider." c_int {
        FI_PROV_SPECIFIC_EFA = 0xefa0000,
        FI_PROV_SPECIFIC_TCP = 0x7cb0000,
    }

    "Flag of `fi_import_log`: the caller filters by provider itself." u64 {
        FI_LOG_PROV_FILTERED = 1 << 0,
    }
}

structs! {
    /// Argument of `FI_EXPORT_FID`, `fi_control`(3).
    struct fi_fid_export: 24 bytes {
        fid @ 0: *mut *mut fid,
        flags @ 8: u64,
        context @ 16: *mut c_void,
    }

    /// What an imported memory monitor offers, `fi_mr`(3).
    ops fi_ops_mem_monitor: 48 bytes {
        start @ 8: fn(monitor: *mut fid_mem_monitor) -> c_int,
        stop @ 16: fn(monitor: *mut fid_mem_monitor),
        subscribe @ 24: fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize) -> c_int,
        unsubscribe @ 32: fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize),
        valid @ 40: fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize) -> bool,
    }

    /// What an imported memory monitor calls, `fi_mr`(3).
    ops fi_ops_mem_notify: 16 bytes {
        notify @ 8: fn(monitor: *mut fid_mem_monitor, addr: *const c_void, len: usize),
    }

    /// An imported memory monitor, `fi_mr`(3).
    struct fid_mem_monitor: 40 bytes {
        fid @ 0: fid,
        export_ops @ 24: *mut fi_ops_mem_monitor,
        import_ops @ 32: *mut fi_ops_mem_notify,
    }

    /// Operations of an imported logger, `fi_provider`(3).
    ops fi_ops_log: 32 bytes {
        enabled @ 8: fn(
            prov: *const fi_provider, level: fi_log_level, subsys: fi_log_subsys, flags: u64,
        ) -> c_int,
        ready @ 16: fn(
            prov: *const fi_provider, level: fi_log_level, subsys: fi_log_subsys, flags: u64,
            showtime: *mut u64,
        ) -> c_int,
        log @ 24: fn(
            prov: *const fi_provider, level: fi_log_level, subsys: fi_log_subsys,
            func: *const c_char, line: c_int, msg: *const c_char,
        ),
    }

    /// An imported logger, `fi_provider`(3).
    struct fid_logging: 32 bytes {
        fid @ 0: fid,
        ops @ 24: *mut fi_ops_log,
    }
}
