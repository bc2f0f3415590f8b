#![allow(unsafe_code)]
//! The operations of endpoints, passive ones and shared contexts.

use core::ffi::{c_int, c_void};

use ripstop_abi::*;

use crate::call::Detail;
use crate::hook::With;

// The table is at the same place in all structs that have it.
super::interpose! {
    fi_ops_ep at fid_ep.ops {
        cancel "fi_cancel" (ep: *mut fid, context: *mut c_void) -> isize = Detail::Cancel(context);
        getopt "fi_getopt" (
            ep: *mut fid, level: c_int, optname: c_int, optval: *mut c_void, optlen: *mut usize,
        ) -> c_int;
        setopt "fi_setopt" (
            ep: *mut fid, level: c_int, optname: c_int, optval: *const c_void, optlen: usize,
        ) -> c_int = Detail::Option(optname);
        tx_ctx "fi_tx_context" (
            sep: *mut fid_ep, index: c_int, attr: *mut fi_tx_attr, tx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int, opens tx_ep with With::Nothing;
        rx_ctx "fi_rx_context" (
            sep: *mut fid_ep, index: c_int, attr: *mut fi_rx_attr, rx_ep: *mut *mut fid_ep,
            context: *mut c_void,
        ) -> c_int, opens rx_ep with With::Nothing;
        rx_size_left "fi_rx_size_left" (ep: *mut fid_ep) -> isize;
        tx_size_left "fi_tx_size_left" (ep: *mut fid_ep) -> isize;
    }
}
