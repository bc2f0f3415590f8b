#![allow(unsafe_code)]
//! The operations of event queues, counters, wait sets and poll sets.

use core::ffi::{c_char, c_int, c_void};

use ripstop_abi::*;

mod queue {
    use super::*;

    super::super::interpose! {
        fi_ops_eq at fid_eq.ops {
            read "fi_eq_read" (
                eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, flags: u64,
            ) -> isize;
            readerr "fi_eq_readerr" (eq: *mut fid_eq, buf: *mut fi_eq_err_entry, flags: u64) -> isize;
            write "fi_eq_write" (
                eq: *mut fid_eq, event: u32, buf: *const c_void, len: usize, flags: u64,
            ) -> isize;
            sread "fi_eq_sread" (
                eq: *mut fid_eq, event: *mut u32, buf: *mut c_void, len: usize, timeout: c_int, flags: u64,
            ) -> isize;
            strerror "fi_eq_strerror" (
                eq: *mut fid_eq, prov_errno: c_int, err_data: *const c_void, buf: *mut c_char, len: usize,
            ) -> *const c_char;
        }
    }
}

super::interpose! {
    fi_ops_cntr at fid_cntr.ops {
        read "fi_cntr_read" (cntr: *mut fid_cntr) -> u64;
        readerr "fi_cntr_readerr" (cntr: *mut fid_cntr) -> u64;
        add "fi_cntr_add" (cntr: *mut fid_cntr, value: u64) -> c_int;
        set "fi_cntr_set" (cntr: *mut fid_cntr, value: u64) -> c_int;
        wait "fi_cntr_wait" (cntr: *mut fid_cntr, threshold: u64, timeout: c_int) -> c_int;
        adderr "fi_cntr_adderr" (cntr: *mut fid_cntr, value: u64) -> c_int;
        seterr "fi_cntr_seterr" (cntr: *mut fid_cntr, value: u64) -> c_int;
    }
}

mod sets {
    use super::*;

    super::super::interpose! {
        fi_ops_wait at fid_wait.ops {
            wait "fi_wait" (waitset: *mut fid_wait, timeout: c_int) -> c_int;
        }
    }

    super::super::interpose! {
        fi_ops_poll at fid_poll.ops {
            poll "fi_poll" (pollset: *mut fid_poll, context: *mut *mut c_void, count: c_int) -> c_int;
            poll_add "fi_poll_add" (pollset: *mut fid_poll, object: *mut fid, flags: u64) -> c_int;
            poll_del "fi_poll_del" (pollset: *mut fid_poll, object: *mut fid, flags: u64) -> c_int;
        }
    }
}
