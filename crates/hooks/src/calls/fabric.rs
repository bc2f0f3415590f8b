#![allow(unsafe_code)]
//! The operations of fabrics.

use core::ffi::{c_int, c_void};

use ripstop_abi::*;

use super::info;
use crate::hook::With;

super::interpose! {
    fi_ops_fabric at fid_fabric.ops {
        domain "fi_domain" (
            fabric: *mut fid_fabric, attr: *mut fi_info, domain: *mut *mut fid_domain, context: *mut c_void,
        ) -> c_int, opens domain with info(attr);
        passive_ep "fi_passive_ep" (
            fabric: *mut fid_fabric, attr: *mut fi_info, pep: *mut *mut fid_pep, context: *mut c_void,
        ) -> c_int, opens pep with info(attr);
        eq_open "fi_eq_open" (
            fabric: *mut fid_fabric, attr: *mut fi_eq_attr, eq: *mut *mut fid_eq, context: *mut c_void,
        ) -> c_int, opens eq with With::Nothing;
        wait_open "fi_wait_open" (
            fabric: *mut fid_fabric, attr: *mut fi_wait_attr, waitset: *mut *mut fid_wait,
        ) -> c_int, opens waitset with With::Nothing;
        trywait "fi_trywait" (fabric: *mut fid_fabric, fids: *mut *mut fid, count: c_int) -> c_int;
        domain2 "fi_domain2" (
            fabric: *mut fid_fabric, attr: *mut fi_info, domain: *mut *mut fid_domain, flags: u64,
            context: *mut c_void,
        ) -> c_int, opens domain with info(attr);
    }
}
